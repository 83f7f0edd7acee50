"""Members: who they are and how they are reached, what they may do, and the words to compare with them."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.common import Role, Trust

Connection = Literal["self", "connected", "connecting", "unreachable"]
Via = Literal["link", "mediator", ""]
Deed = Literal["remove", "reader", "writer", "admin"]


class AnnouncedCommand(Struct, frozen=True):
    """A command that a bot listens to: a message that begins with `!` and its name."""

    name: str
    """At most 32 of a-z, 0-9, - and _."""
    usage: str = ""
    """What is typed behind the name, as in `ENVIRONMENT [--dry]`; one line of at most 128 characters."""
    help: str = ""
    """What it does; one line of at most 256 characters."""
    role: str = ""
    """What one has to be at least for the bot to listen, `writer`, `admin` or `owner`; empty: a member."""


class MemberInfo(Struct, frozen=True, kw_only=True):
    did: str
    nick: str
    connection: Connection
    """Whether what is said now is taken on its way. A mediator takes it for a member who is away, or gone for good:
    that is `connected` too, so that only `last_heard` tells whether it is there."""
    via: Via = ""
    """How this member is reached: over a link of our own, over a mediator, or not at all."""
    bot: bool = False
    """Whether it says that it is one (`announce`)."""
    commands: list[AnnouncedCommand] = field(default_factory=list)
    """What it says that it listens to."""
    verified: bool = False
    """Whether `trust` is `verified`."""
    view_agrees: bool | None = None
    """Whether the view that this member last told is ours; None: not heard yet."""
    last_heard: str | None = None
    ahead_ms: int | None = None
    """By how much its clock was ahead of mine when it last said so, give or take a second; None: not heard."""
    missing: int = 0
    """How many of its events are known to exist and are not here."""
    joined_at: str
    added_by: str | None = None
    role: Role = "writer"
    trust: Trust = "unverified"
    """`verified`: I have compared words with this member. `changed`: somebody else was verified under the name that it
    bears."""
    forked: bool = False
    """Whether it has signed two different histories: there is proof of it."""
    disputed: bool = False
    """Whether it has signed something else than what I was told when I joined."""
    unconfirmed: bool = False
    """Whether nobody speaks for it but whoever let me in or has brought it in: I wait with it until somebody does."""
    arrived: bool = True
    """False: I have let it in, and in all the time that a join takes it has never said anything."""
    keeper: bool = False
    """Whether it is one of those who keep the history for newcomers (`PolicyInfo.keepers`); False where all do."""
    guilty: list[str] = field(default_factory=list)
    """What cases against it have come to, as I have worked it out myself: `upheld`, `forked`, `turned back`
    (`cases`)."""
    may: list[Deed] = field(default_factory=list)
    """What I may do to it now: put it out, or vote for that (`remove`), or give it another of these roles."""


class WordsInfo(Struct, frozen=True, kw_only=True):
    """Words to compare with somebody by voice or face to face: equal words mean equal keys at both ends."""

    group: str
    did: str = ""
    """Whose keys and mine they are for; empty: they are for all members' keys, and everybody sees the same."""
    nick: str = ""
    words: list[str]
    trust: Trust | None = None
    """Of the member; None: they are for all."""
    same: bool | None = None
    """Whether what the other one has `said` is the same; None: nothing was said."""
    differ: list[int] = field(default_factory=list)
    """The places, from 1, of the words that are not the same."""


class PeerNews(Struct, frozen=True):
    group: str
    member: str
    nick: str
    connected: bool


class TrustNews(Struct, frozen=True):
    """A member was verified, or is no longer."""

    group: str
    member: str
    nick: str
    trust: Trust


class RotatedNews(Struct, frozen=True):
    """A DID between a member and us was replaced: the member's, or (`mine`) ours, which the member knows by now."""

    group: str
    member: str
    nick: str
    mine: bool


class RemoveParams(Struct, frozen=True):
    """`member`: a DID, its beginning, or a name."""

    group: str
    member: str


class RoleParams(Struct, frozen=True):
    """`role`: `reader`, `writer` or `admin`. `member`: as in `RemoveParams`; empty: myself."""

    group: str
    role: str
    member: str = ""


class RenameParams(Struct, frozen=True):
    """`name`: what I want to be called in this group."""

    group: str
    name: str


class WordsParams(Struct, frozen=True):
    """`member`: as in `RemoveParams`; empty: the words of the whole group. `said`: what the other one has read out,
    however spaced and capitalised; four letters of a word are enough. What cannot be such words at all (another number
    of them, a word that there is not) is refused as `NotTheWords`."""

    group: str
    member: str = ""
    said: str = ""


class VerifyParams(Struct, frozen=True):
    """The words were compared, not in the chat itself, and are the same; or (`verified` false) that is taken back."""

    group: str
    member: str
    verified: bool = True
