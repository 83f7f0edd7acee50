"""Members: identity, connection, roles, verification and safety words."""

from typing import Literal

from msgspec import Struct, field

from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc.common import Role, Trust

Connection = Literal["self", "connected", "connecting", "indirect", "unreachable"]
Via = Literal["link", "mediator", ""]
MemberAction = Literal["remove", "reader", "writer", "admin", "owner"]


class AnnouncedCommand(Struct, frozen=True):
    """A command of a bot: a message that starts with `!` and the name."""

    name: str
    """At most 32 of a-z, 0-9, - and _."""
    usage: str = ""
    """The arguments, for example `ENVIRONMENT [--dry]`; one line of at most 128 characters."""
    help: str = ""
    """One line of at most 256 characters."""
    role: str = ""
    """The lowest role that may use it, `writer`, `admin` or `owner`; empty: every member."""


class MemberInfo(Struct, frozen=True, kw_only=True):
    did: str
    nick: str
    connection: Connection
    """Whether messages can be sent to it now. A mediator accepts messages for an offline member, so `connected` does
    not mean online: see `last_seen`. `indirect`: in a large group, no neighbour of mine; messages reach it over other
    members, and whether it is online is unknown."""
    via: Via = ""
    """Whether the member is reached over a link or through a mediator; empty: not reachable."""
    nearby: bool = False
    """It was found on a network of this machine (`get_nearby`)."""
    no_mediator: bool = False
    """It is unreachable since it has no mediator, and this agent never connects directly (`network.hidden` =
    `always`)."""
    bot: bool = False
    """It has announced that it is a bot."""
    commands: list[AnnouncedCommand] = field(default_factory=list)
    """The commands that it has announced."""
    verified: bool = False
    """Whether `trust` is `verified`."""
    view_matches: bool | None = None
    """Whether the view that it reported last equals mine; null: it has reported none."""
    last_seen: str | None = None
    ahead_ms: int | None = None
    """How far its clock was ahead of mine when it last reported it, to about a second; null: unknown."""
    missing: int = 0
    """The number of its events that are known to exist and are missing here."""
    joined_at: str
    added_by: str | None = None
    role: Role = "writer"
    trust: Trust = "unverified"
    """`verified`: I have compared safety words with it. `changed`: another key was verified under its name."""
    forked: bool = False
    """It has signed a fork: there is proof."""
    disputed: bool = False
    """It has signed something else than what I received when I joined."""
    unconfirmed: bool = False
    """Only my inviter or the member that admitted it vouches for it so far; it waits for confirmation."""
    arrived: bool = True
    """False: I admitted it, and it has not connected within the time that a join takes."""
    keeps_history: bool = False
    """It is one of the members that store the history for new members (`PolicyInfo.keepers`); false where all do."""
    ignored: bool = False
    """I ignore it: its messages are not shown."""
    rotates_every_s: int = 0
    """The interval at which my DID towards it is replaced; 0: on request only."""
    verdicts: list[str] = field(default_factory=list)
    """My verdicts against it: `upheld`, `forked`, `turned back` (`list_cases`)."""
    allowed_actions: list[MemberAction] = field(default_factory=list)
    """What I may do now: remove it or vote for that (`remove`), or give it one of these roles (`owner`: mine)."""


class SafetyWords(Struct, frozen=True, kw_only=True):
    """Safety words to compare by voice or in person: equal words mean equal keys at both ends."""

    group: str
    did: str = ""
    """The member whose key and mine they represent; empty: they represent the keys of all members."""
    nick: str = ""
    words: list[str]
    trust: Trust | None = None
    """The trust of the member; null: they represent all members."""
    match: bool | None = None
    """Whether the `entered` words are the same; null: none were entered."""
    mismatches: list[int] = field(default_factory=list)
    """The positions, from 1, of words that differ."""


class PeerNotification(Struct, frozen=True):
    group: str
    member: str
    nick: str
    connected: bool


class TrustNotification(Struct, frozen=True):
    """A member was verified, or the verification was withdrawn."""

    group: str
    member: str
    nick: str
    trust: Trust


class IgnoredNotification(Struct, frozen=True):
    """I ignore a member, or no longer: `ignored` of its events has changed."""

    group: str
    member: str
    nick: str
    ignored: bool


class RotatedNotification(Struct, frozen=True):
    """A pairwise DID was replaced: the member's, or (`mine`) mine, which the member has accepted."""

    group: str
    member: str
    nick: str
    mine: bool


class ListMembersParams(Struct, frozen=True):
    """A page of the members in the order of joining, at most 64. The page is the last one where it has fewer members
    than `limit`; otherwise request the next one with `after`."""

    group: str
    query: str = ""
    """Only members whose name contains this, in any case, or whose DID starts with it; empty: all."""
    after: str = ""
    """The DID of the last member of the page before; empty: the first page."""
    limit: int = MEMBER_PAGE_MAX
    """1 to 64."""
    dids: list[str] | None = None
    """Only the members with these DIDs, at most 64; null: all."""


class RemoveMemberParams(Struct, frozen=True):
    """`member`: a DID, a prefix of one, or a name."""

    group: str
    member: str


class SetRoleParams(Struct, frozen=True):
    """`role`: `reader`, `writer`, `admin`, or `owner`: the member succeeds me as the owner, and I become an admin.
    `member`: as in `RemoveMemberParams`; empty: myself."""

    group: str
    role: str
    member: str = ""


class SetDisplayNameParams(Struct, frozen=True):
    """`name`: my new display name in this group."""

    group: str
    name: str


class SafetyWordsParams(Struct, frozen=True):
    """`member`: as in `RemoveMemberParams`; empty: the whole group. `entered`: the words that the other member read
    out, in any case and spacing; the first four letters of each are enough. Malformed words are refused
    (`NotTheWords`)."""

    group: str
    member: str = ""
    entered: str = ""


class IgnoreMemberParams(Struct, frozen=True):
    """Ignore a member or former member, or (`ignored` false) no longer: the clients of this profile do not show its
    messages. `member`: as in `RemoveMemberParams`. The other members do not learn of it."""

    group: str
    member: str
    ignored: bool = True


class IgnoredMember(Struct, frozen=True):
    """A member or former member that I ignore, or no longer."""

    did: str
    nick: str
    ignored: bool = True
    former: bool = False
    """It has left, or was removed."""


class VerifyMemberParams(Struct, frozen=True):
    """The safety words were compared outside the chat and match; or (`verified` false) withdraw the verification."""

    group: str
    member: str
    verified: bool = True
