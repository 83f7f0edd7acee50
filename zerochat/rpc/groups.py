"""Groups: what they are, their rules, who asks to be let in, and how somebody comes in and goes out."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.common import Author, Role
from zerochat.rpc.completeness import Beginning, Completeness
from zerochat.rpc.tlog import LogState

GroupState = Literal["active", "leaving", "left"]


class PolicyInfo(Struct, frozen=True, kw_only=True):
    """The rules that a group has had from its beginning. `presentation/group_rules.py` puts them into sentences."""

    join: str = "invited"
    """Who comes in: whoever an invitation is for (`invited`); once its maker says yes (`ask`); as many as come with one
    (`open`)."""
    remove: str = "quorum"
    """Who puts a member out: `anyone`, the owner and the `admins`, or a `quorum` of members together."""
    quorum: int = 2
    """How many members have to want somebody out; 0 unless `remove` is `quorum`."""
    roles: str = "flat"
    """Everybody is equal (`flat`), or the founder is the owner, and makes `admins`."""
    agreement: str = "permissive"
    """What a newcomer does to whom the members tell different things: go on, and say so (`permissive`), or go
    (`strict`)."""
    history: str = "all"
    """What newcomers get of what was said before they came: `none`, `all`, `last:N` messages, or what was said
    `since:T` (UTC milliseconds)."""
    keepers: int = 0
    """How many members keep the history for newcomers: those who have been in longest; 0: everybody."""


class VoteInfo(Struct, frozen=True, kw_only=True):
    """How far it is with putting somebody out; also the answer of `remove`."""

    group: str
    did: str
    """Whom it is about."""
    nick: str
    votes: int
    """How many votes count for it."""
    needed: int
    """How many have to: 1 where one is enough."""
    cast: int = 0
    """How many members have voted. More than `votes` where the votes of several count as one, because they came in
    through each other and nobody else had seen that yet."""
    mine: bool = False
    """Whether one of the votes is mine."""
    out: bool = False
    """Whether it is out."""


class RequestInfo(Struct, frozen=True, kw_only=True):
    """Somebody who waits to be let into a group."""

    group: str
    did: str
    nick: str
    role: Role
    """What it wants to be."""
    words: list[str]
    """Eight words for its key, which its own `JoinStatus` has too: to be compared by voice, before it is let in."""
    asked_at: str


class DisagreementNews(Struct, frozen=True):
    """The members tell different things of who is in the group, or one of them has signed two histories."""

    group: str
    member: str
    """Who says something else than the others; empty: that cannot be told."""
    nick: str
    text: str
    """One sentence for a person."""


class GroupInfo(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: GroupState
    me: str
    """My DID in this group."""
    nick: str
    members: int
    connected: int
    """How many of the others are connected now, over a link or over a mediator."""
    mailed: int = 0
    """How many of these are reached over a mediator only: it keeps what is for them, and nobody knows whether they are
    there (`MemberInfo.last_heard`)."""
    keys: str
    path: str
    accountability: str
    envelope: str = ""
    """The kind of envelopes that everything in this group travels in: `didcomm/v2` or `didcomm/v1`."""
    view: str
    """The checksum of the membership view: equal at two members exactly when they see the same members."""
    unacknowledged: int
    """Events of mine that not every member is known to have."""
    created_at: str
    topic: str = ""
    """What it is about, as somebody has last said (`topic`)."""
    policy: PolicyInfo = PolicyInfo()
    role: Role = "writer"
    """What I am in it. A reader cannot send."""
    removed_by: Author | None = None
    """Who has put me out, where that is why I am no longer in (`state` is `left`)."""
    voters: list[Author] = field(default_factory=list)
    """Who has voted me out, where a quorum puts members out and that is why I am no longer in."""
    votes: list[VoteInfo] = field(default_factory=list)
    """The members whom somebody wants out."""
    requests: list[RequestInfo] = field(default_factory=list)
    """Who has come with an invitation of mine and waits for my answer (`answer`), the first that asked first."""
    forked: list[str] = field(default_factory=list)
    """The DIDs of those who have signed two different histories, members or not: there is proof of it."""
    disagreements: list[DisagreementNews] = field(default_factory=list)
    """What casts doubt on what I was told of the members, until it is dismissed (`dismiss`)."""
    completeness: Completeness | None = None
    """How much of what was said is here, as far as the others have told; None: we are not in the group."""
    beginning: Beginning | None = None
    """With what the log begins here, and why."""
    log: LogState = ""
    """How the group's log stands (`LogInfo`); empty: it is not meant to keep one."""
    suspended: bool = False
    """I can say nothing here yet: this is an older copy of the profile, from a backup say, and somebody may have heard
    more of me than is here (`resume`)."""


class InvitationInfo(Struct, frozen=True, kw_only=True):
    group: str
    url: str
    """The Out-of-Band 2.0 link (`_oob`)."""
    code: str
    """The compact code (`ZC:…`), the same invitation; empty for one that leads over a mediator."""
    expires_at: str
    uses: int
    """How many may use it; 0: as many as come."""
    endpoint: str
    role: Role = "writer"
    """What whoever accepts it may be at the most."""
    short: str = ""
    """A short link to the same invitation, served by the agent while it takes HTTP in; empty where it does not."""
    history: str = "all"
    """What it gives of what was said before, as in `PolicyInfo`; never more than the group's own rule."""
    id: str = ""
    """Its `OpenInvitation.id`."""


InviteeState = Literal["joining", "waiting", "joined", "gone"]


class Invitee(Struct, frozen=True, kw_only=True):
    """Somebody who has used an invitation of mine, and how far that is."""

    state: InviteeState
    """`joining`: its agent and mine are at it. `waiting`: for my answer. `joined`: it is a member. `gone`: it was one,
    or was refused."""
    nick: str = ""
    """Empty as long as it has not said what it wants to be called."""
    at: str = ""
    """Since when it uses the invitation."""


class OpenInvitation(Struct, frozen=True, kw_only=True):
    """An invitation of mine that can still be used, or could be until it expires; answer of `invitations`."""

    id: str
    """What `revoke` takes."""
    group: str
    expires_at: str
    uses: int
    """How many may use it; 0: as many as come."""
    role: Role = "writer"
    history: str = "all"
    invitees: list[Invitee] = field(default_factory=list)
    """Who has used it, the first first."""


JoinPhase = Literal["dialling", "exchanging", "asking", "connecting", "joined", "failed"]

CONTRADICTION = "Contradiction"
"""The `error` of a join that ended because the members had signed different things."""


class JoinStatus(Struct, frozen=True, kw_only=True):
    """How a join is getting on; also the notification `join`."""

    join: str
    phase: JoinPhase
    text: str
    group: str = ""
    connected: int = 0
    members: int = 0
    error: str = ""
    """The code of what went wrong, when `failed`; `CONTRADICTION` among them."""
    words: list[str] = field(default_factory=list)
    """While a person there has to let me in: the eight words that this person sees (`RequestInfo.words`)."""
    name: str = ""
    """What the group is called; empty until whoever invited me has said so."""
    since: str = ""
    """When it began."""
    until: str = ""
    """When it is given up."""
    parting: bool = False
    """Whether it is over, and whoever invited me is being told so."""


class InvitationNews(Struct, frozen=True):
    """Somebody has come in with an invitation of mine."""

    group: str
    nick: str
    uses_left: int
    """Of this invitation."""
    invitation: str = ""
    """Its `OpenInvitation.id`."""


class ViewNews(Struct, frozen=True):
    """The group's members or what is known of them changed: ask `members` and `groups` again."""

    group: str


class RequestNews(Struct, frozen=True, kw_only=True):
    """Somebody waits to be let in (`asked`), or does so no longer. `GroupInfo.requests` has its words."""

    group: str
    member: str
    """The DID that it will have in the group."""
    nick: str
    role: Role = "writer"
    state: Literal["asked", "admitted", "refused"]
    """`refused`, too, where it waited too long, or does not want to come in any more."""


class SeatingNews(Struct, frozen=True):
    """How far somebody whom we have let in is: connected to so many of the members."""

    group: str
    member: str
    nick: str
    connected: int
    members: int


class RemovedNews(Struct, frozen=True):
    """I have been put out of the group, `by` this member."""

    group: str
    by: str
    nick: str
    voters: list[str] = field(default_factory=list)
    """What those are called who have voted for it, where a quorum puts members out."""


class GroupParams(Struct, frozen=True):
    """`group`: a name, an id, or the first letters of an id."""

    group: str


class NewParams(Struct, frozen=True):
    """`group`: its name. `envelope`: `didcomm/v2` or `didcomm/v1`. `keys`: `pairwise-multi`, `pairwise-single` or
    `sender-key`, where all that is said is signed. `accountability`: `acks`; with keys that sign also `ledger`, a log
    with witnesses. The others as in `PolicyInfo`; `remove` and `quorum` may be left to the others. All of it is for
    good."""

    group: str
    envelope: str = "didcomm/v2"
    keys: str = "pairwise-multi"
    join: str = "invited"
    remove: str | None = None
    quorum: int | None = None
    roles: str = "flat"
    agreement: str = "permissive"
    history: str = "all"
    keepers: int = 0
    accountability: str = "acks"


class InviteParams(Struct, frozen=True):
    """`history`: as in `PolicyInfo`, and not more than the group's own rule gives; None: as much as that."""

    group: str
    expires_s: int = 24 * 3600
    uses: int = 1
    role: str = "writer"
    history: str | None = None


class RevokeParams(Struct, frozen=True):
    """Take an invitation back. `invitation`: its `OpenInvitation.id`, or the first letters of that."""

    group: str
    invitation: str


class JoinParams(Struct, frozen=True):
    """`invitation`: an `_oob` link or a `ZC:` code. `name`: what I shall be called there. `role`: `reader` or
    `writer`."""

    invitation: str
    name: str | None = None
    role: str = "writer"


class AnswerParams(Struct, frozen=True):
    """`who`: the DID of somebody who waits to be let in, or its name if no other has that. `admit`: whether to. `nick`,
    `role`: what it asks for, as the person was shown it; where it asks for something else by now nobody is let in."""

    group: str
    who: str
    admit: bool
    nick: str = ""
    role: str = ""


class CancelParams(Struct, frozen=True):
    """`join`: the id of one of my joins that is under way, its beginning, or the group's name; empty: the only one."""

    join: str = ""


class DismissParams(Struct, frozen=True):
    """`member`: whose `disagreements` have been seen, a DID or a name; empty: all of the group's."""

    group: str
    member: str = ""
