"""Groups: policies, invitations, joins, join requests and votes."""

from typing import Literal

from msgspec import Struct, field

from zerochat.limits import KEYS_DEFAULT
from zerochat.rpc.common import Author, Role
from zerochat.rpc.completeness import Completeness, HistoryStart
from zerochat.rpc.tlog import TlogState
from zerochat.rpc.unread import Place

GroupState = Literal["active", "leaving", "left"]


class PolicyInfo(Struct, frozen=True, kw_only=True):
    """The rules of a group, fixed at its creation. `presentation/group_rules.py` describes them in sentences."""

    join: str = "invited"
    """Who can join: users with a personal invitation (`invited`), after the inviter's approval (`ask`), or everyone
    with an invitation (`open`)."""
    remove: str = "quorum"
    """Who can remove a member: `anyone`, the owner and the `admins`, or a `quorum` of members by vote."""
    quorum: int = 2
    """The number of votes that remove a member; 0 unless `remove` is `quorum`."""
    roles: str = "flat"
    """All members are equal (`flat`), or the founder is the owner and appoints `admins`."""
    agreement: str = "permissive"
    """What a joiner does when members report different views: join with a warning (`permissive`) or fail (`strict`)."""
    history: str = "all"
    """The earlier history that new members get: `none`, `all`, `last:N` messages, or messages `since:T` (UTC
    milliseconds)."""
    keepers: int = 0
    """The number of members that store the history for new members, those who joined first; 0: all members."""
    keep: int = 0
    """How long messages are kept, milliseconds; then all members erase them. 0: for ever. An hour to ten years; not
    with a transparency log."""


class VoteInfo(Struct, frozen=True, kw_only=True):
    """A vote on removing a member."""

    group: str
    did: str
    """The member to remove."""
    nick: str
    votes: int
    """The number of votes that count."""
    needed: int
    """The number of votes that are needed; 1 where no quorum is."""
    cast: int = 0
    """The number of members that have voted. It exceeds `votes` where votes of members that admitted each other count
    as one."""
    voted: bool = False
    """I have voted."""
    removed: bool = False
    """The member is removed."""


class UpgradeInfo(Struct, frozen=True, kw_only=True):
    """The upgrade of a group's keys that is possible."""

    keys: str
    """The keys that the group would have then."""
    votes: int
    """The number of members that agree."""
    needed: int
    """The number of members that must agree."""
    voted: bool = False
    """I agree."""
    allowed: bool = True
    """I may agree: in a group with admins only they may."""


class JoinRequestInfo(Struct, frozen=True, kw_only=True):
    """A join request that waits for an answer."""

    group: str
    did: str
    nick: str
    role: Role
    """The requested role."""
    words: list[str]
    """Eight safety words of the joiner's key, which its `JoinStatus` has too: compare them before you admit it."""
    asked_at: str


class PrivateInvitationInfo(Struct, frozen=True, kw_only=True):
    """A member's invitation to a private conversation, which waits for my answer."""

    group: str
    did: str
    nick: str
    asked_at: str
    expires_at: str


class PrivateInfo(Struct, frozen=True, kw_only=True):
    """What makes a group a private conversation."""

    group: str
    """The group from which it was begun; I may have left it since."""
    did: str
    """The other member's DID there."""
    nick: str
    state: Literal["waiting", "joined", "left"]
    """Whether the other member has joined: not yet, yes, or it has left. Declining is not reported: the state stays
    `waiting`."""
    expires_at: str = ""
    """While `waiting`: when my invitation expires. Empty: it has; `open_conversation` sends a new one."""
    sent_at: str = ""
    """While `waiting`: when it was last sent. Empty: the member was not in reach yet."""


class WarningNotification(Struct, frozen=True):
    """Members report different views of the group, or a member has signed a fork."""

    group: str
    member: str
    """The member that deviates; empty: unknown."""
    nick: str
    text: str
    """One sentence for the user."""


class GroupInfo(Struct, frozen=True, kw_only=True):
    """A group. Each of its lists of members names at most 64 of them."""

    id: str
    name: str
    state: GroupState
    me: str
    """My DID in this group."""
    nick: str
    members: int
    connected: int
    """The number of other members that are connected, over a link or through a mediator."""
    via_mediator: int = 0
    """How many of them are reachable through a mediator only, which stores messages while they are offline
    (`MemberInfo.last_seen`)."""
    keys: str
    path: str
    forwards: bool = False
    """Members forward each other's messages: `path` is `ring`, and there are more than 24. Then each is linked to some,
    and `connected` counts these."""
    accountability: str
    upgrade: UpgradeInfo | None = None
    """The upgrade of its keys that is possible (`upgrade_group`); null: none."""
    upgraded_from: str = ""
    """The keys that the group was created with, where they were upgraded."""
    envelope: str = ""
    """The envelope format of the group: `didcomm/v2` or `didcomm/v1`."""
    view: str
    """The checksum of the membership view: equal for two members exactly when they see the same members."""
    unacknowledged: int
    """The number of my events that some member has not acknowledged."""
    quota_used_up: list[Author] = field(default_factory=list)
    """The members that accept no more of my events for now, since my daily quota there is used up (their
    `storage.daily_max`)."""
    created_at: str
    topic: str = ""
    """The current topic."""
    policy: PolicyInfo = PolicyInfo()
    keep: int = 0
    """How long messages stay on this machine, milliseconds: the shortest of the group's rule, my choice and my setting.
    0: for ever."""
    keep_choice: int = 0
    """My choice for this conversation; 0: none."""
    keep_setting: int = 0
    """My setting `storage.keep`, milliseconds; 0: for ever."""
    role: Role = "writer"
    """My role. A reader cannot send."""
    removed_by: Author | None = None
    """The member that removed me, where I was removed."""
    voters: list[Author] = field(default_factory=list)
    """The members that voted to remove me, where a quorum removed me."""
    votes: list[VoteInfo] = field(default_factory=list)
    """The open votes on removing members."""
    requests: list[JoinRequestInfo] = field(default_factory=list)
    """The join requests that wait for my answer, oldest first."""
    private: PrivateInfo | None = None
    """The other member, if this is a private conversation; its name is the group's name here."""
    private_invitations: list[PrivateInvitationInfo] = field(default_factory=list)
    """The members that invite me to a private conversation, oldest first."""
    forked: list[str] = field(default_factory=list)
    """The DIDs of members and former members that have signed a fork."""
    warnings: list[WarningNotification] = field(default_factory=list)
    """The warnings about the membership view, until dismissed."""
    completeness: Completeness | None = None
    """Which events are known to be missing; null: I am not in the group."""
    history_start: HistoryStart | None = None
    """Where the log starts here, and why."""
    tlog: TlogState = ""
    """The state of the transparency log (`TlogInfo`); empty: the group has none."""
    suspended: bool = False
    """I cannot send: the profile is an older copy, and members may have newer events of mine (`resume_group`)."""
    unread: int = 0
    """The number of unread messages, as in `ReadState`."""
    mentions: int = 0
    """The number of unread mentions, as in `ReadState`."""
    first_unread: Place | None = None
    """As in `ReadState`."""
    read_upto: Place | None = None
    """As in `ReadState`."""


class InvitationInfo(Struct, frozen=True, kw_only=True):
    group: str
    url: str
    """The Out-of-Band 2.0 link (`_oob`)."""
    code: str
    """The same invitation as a compact code (`ZC:…`); empty where it leads through a mediator."""
    expires_at: str
    uses: int
    """How many users can join with it; 0: no limit."""
    endpoint: str
    role: Role = "writer"
    """The highest role of a user that joins with it."""
    short: str = ""
    """A short link to the invitation, served by a mediator of mine or by this agent; empty: there is none."""
    short_missing: str = ""
    """Why a mediator serves no short link, as a sentence; empty: it does, or I have no mediator."""
    role_binds: bool = True
    """Whether its users keep `role` until an admin changes it. False: in a flat group, a reader can become a writer."""
    history: str = "all"
    """The earlier history that it gives, as in `PolicyInfo`, at most as much as the group's rule."""
    id: str = ""
    """Its `OpenInvitation.id`."""
    name: str = ""
    """What I call it."""
    open_count: int = 1
    """How many invitations of mine to this group can be used now, with this one."""


InviteeState = Literal["joining", "waiting", "joined", "gone"]


class Invitee(Struct, frozen=True, kw_only=True):
    """A user of an invitation of mine."""

    state: InviteeState
    """`joining`: in progress. `waiting`: for my approval. `joined`: a member. `gone`: a former member, or refused."""
    nick: str = ""
    """Empty until the joiner has sent it."""
    at: str = ""
    """When it used the invitation."""


class OpenInvitation(Struct, frozen=True, kw_only=True):
    """An invitation of mine that has not expired."""

    id: str
    """The parameter of `revoke_invitation`."""
    group: str
    expires_at: str
    uses: int
    """How many users can join with it; 0: no limit."""
    role: Role = "writer"
    history: str = "all"
    name: str = ""
    """What I call it."""
    invitees: list[Invitee] = field(default_factory=list)
    """Its users, oldest first."""


JoinPhase = Literal["dialling", "exchanging", "asking", "connecting", "joined", "failed"]

CONTRADICTION = "Contradiction"
"""The `error` of a join that failed because members had signed different views."""


class JoinStatus(Struct, frozen=True, kw_only=True):
    """The progress of a join; also the notification `join_changed`."""

    join: str
    phase: JoinPhase
    text: str
    group: str = ""
    connected: int = 0
    members: int = 0
    error: str = ""
    """The error code of a `failed` join, for example `CONTRADICTION`."""
    words: list[str] = field(default_factory=list)
    """While the join waits for approval: eight safety words to compare (`JoinRequestInfo.words`)."""
    name: str = ""
    """The name of the group; empty until the inviter has sent it."""
    started_at: str = ""
    expires_at: str = ""
    """When it fails unless it has succeeded."""
    cancelling: bool = False
    """The join is cancelled, and the inviter is being notified."""


class InvitationNotification(Struct, frozen=True):
    """A user has joined with an invitation of mine."""

    group: str
    nick: str
    uses_left: int
    """The remaining uses of the invitation."""
    invitation: str = ""
    """Its `OpenInvitation.id`."""
    name: str = ""
    """What I call it."""


class ViewNotification(Struct, frozen=True):
    """The members or their states, or how long messages stay here, have changed: call `list_members` and `list_groups`
    again."""

    group: str


class JoinRequestNotification(Struct, frozen=True, kw_only=True):
    """A join request has arrived (`asked`) or is settled. `GroupInfo.requests` has its safety words."""

    group: str
    member: str
    """The DID that the joiner will have in the group."""
    nick: str
    role: Role = "writer"
    state: Literal["asked", "admitted", "refused"]
    """`refused` also where the request has expired or was cancelled."""


class PrivateInvitationNotification(Struct, frozen=True, kw_only=True):
    """A member invites me to a private conversation (`asked`), or its invitation is settled."""

    group: str
    member: str
    nick: str
    state: Literal["asked", "accepted", "declined"]
    """`declined` also where the invitation has expired or its member has left."""


class ConversationMovedNotification(Struct, frozen=True):
    """Both members had begun a private conversation: mine (`former`) is gone, and my messages are in the other one."""

    group: str
    former: str


class MemberConnectionsNotification(Struct, frozen=True):
    """A new member that we admitted is connected to this many members."""

    group: str
    member: str
    nick: str
    connected: int
    members: int


class RemovedNotification(Struct, frozen=True):
    """I was removed from the group."""

    group: str
    by: str
    nick: str
    voters: list[str] = field(default_factory=list)
    """The names of the members that voted for it, where a quorum removes members."""


class GroupParams(Struct, frozen=True):
    """`group`: a name, an id, or a prefix of an id."""

    group: str


class CreateGroupParams(Struct, frozen=True):
    """`group`: the name. `envelope`: `didcomm/v2` or `didcomm/v1`. `keys`: with keys that heal, `dcgka` with signed
    messages, or `deniable`; `pairwise-multi`, `pairwise-single`, or `sender-key` with signed messages.
    `path`: `mesh`, each member is linked to each; or with `dcgka` also `ring`, each is linked to its neighbours, which
    forward messages. `accountability`: `acks`, or with `sender-key` also `tlog`, a witnessed transparency log. The
    others as in `PolicyInfo`. None can be changed later, but older keys can be upgraded (`upgrade_group`)."""

    group: str
    envelope: str = "didcomm/v2"
    keys: str = KEYS_DEFAULT
    join: str = "invited"
    remove: str | None = None
    quorum: int | None = None
    roles: str = "flat"
    agreement: str = "permissive"
    history: str = "all"
    keepers: int = 0
    accountability: str = "acks"
    keep: int = 0
    path: str = "mesh"


class SetRetentionParams(Struct, frozen=True):
    """`keep`: how long messages of this conversation stay on this machine, milliseconds, an hour to ten years; 0: as
    long as the group's rule and my setting say."""

    group: str
    keep: int


class CreateInvitationParams(Struct, frozen=True):
    """`uses`: how many users can join with it; null: one, or without limit in an `open` group. `history`: as in
    `PolicyInfo`, at most as much as the group's rule; null: the group's rule. `name`: what I call it; its users do not
    see it."""

    group: str
    expires_s: int = 24 * 3600
    uses: int | None = None
    role: str = "writer"
    history: str | None = None
    name: str = ""


class RevokeInvitationParams(Struct, frozen=True):
    """`invitation`: its `OpenInvitation.id` or a prefix of it."""

    group: str
    invitation: str


class JoinGroupParams(Struct, frozen=True):
    """`invitation`: an `_oob` link or a `ZC:` code. `name`: my display name. `role`: `reader` or `writer`."""

    invitation: str
    name: str | None = None
    role: str = "writer"


class AnswerJoinRequestParams(Struct, frozen=True):
    """`member`: the DID of a joiner, or its name where it is unique. `nick`, `role`: as the user saw them; a request
    that has changed is not admitted."""

    group: str
    member: str
    admit: bool
    nick: str = ""
    role: str = ""


class OpenConversationParams(Struct, frozen=True):
    """`member`: a name or DID in `group`; where that is empty, the title of a conversation or a name that only one
    member of my groups has."""

    member: str
    group: str = ""


class AnswerPrivateInvitationParams(Struct, frozen=True):
    """`member`: the name or DID of the inviting member."""

    group: str
    member: str
    accept: bool


class CancelJoinParams(Struct, frozen=True):
    """`join`: the id of a join in progress, a prefix of it, or the group's name; empty: the only one."""

    join: str = ""


class DismissWarningsParams(Struct, frozen=True):
    """`member`: a DID or a name; empty: all warnings of the group."""

    group: str
    member: str = ""
