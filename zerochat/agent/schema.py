"""The control protocol's vocabulary: what faces ask the agent, and what it tells them.

JSON-RPC 2.0, one object a line, UTF-8, over the profile's control socket. A request has `id`, `method` and `params`
(an object); a response has `result` or `error`; the agent's own news are notifications, whose methods are the keys of
`NEWS`. Readers ignore news and members that they do not know: new ones may come at any time, and none changes its
meaning within one `PROTOCOL` number.

Times are RFC 3339 in UTC with milliseconds. A member's `did` is the did:key of the Ed25519 key that it holds in this
one group. Text is exactly as its author wrote it, and so is everything else that a peer has chosen (labels, key ids,
protocol names, codes): whoever shows it makes it printable first.

A `peer`, wherever one is asked for, is a connection's label or id, a member's label or DID, or GROUP/NAME. What is
asked of a peer is answered at once with the thread of the question; the peer's answer comes as news with that thread.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

PROTOCOL = 1
LINE_BYTES_MAX = 1 << 20
"""One line on the control socket, either way: a full page of history fits, a runaway client does not."""

# JSON-RPC's own error numbers, and one for everything that zerochat refuses (its name is in `data.code`).
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000

CONTRADICTION = "Contradiction"
"""The `error` of a join that ended because the members had signed different things."""

JoinPhase = Literal["dialling", "exchanging", "asking", "connecting", "joined", "failed"]
GroupState = Literal["active", "leaving", "left"]
Connection = Literal["self", "connected", "connecting", "unreachable"]
Via = Literal["link", "mediator", ""]
Way = Literal["direct", "mediator", "web"]
Role = Literal["reader", "writer", "admin", "owner"]
Trust = Literal["unverified", "verified", "changed"]
Deed = Literal["remove", "reader", "writer", "admin"]
ConnectionState = Literal["offered", "requested", "established", "ended"]
Mediation = Literal["asking", "granted", "denied"]

# --- what the agent tells -------------------------------------------------------------------------------------------


class Author(Struct, frozen=True):
    did: str
    nick: str
    bot: bool = False
    verified: bool = False


class Delivery(Struct, frozen=True):
    """How many of the other members are known to have an event: `delivered` of `of`."""

    delivered: int
    of: int


class Event(Struct, frozen=True, kw_only=True):
    """One event of a group's log.

    `type` is `group_created`, `member_joined`, `member_left`, `member_removed`, `removal_voted`, `role_changed`,
    `member_renamed` or `message`, and `unknown` for what a later version may have written; a reader skips types that it
    does not know.
    Lists are ordered by (`lamport`, `author.did`, `id`), the order that every member sees.
    """

    v: int = 1
    seq: int
    """Local and monotone: the order in which this agent delivered. Use it as a cursor."""
    type: str
    group: str
    id: str
    author: Author
    position: int
    """The event's place in its author's chain, from 1."""
    lamport: int
    parents: list[str]
    sent_at: str
    received_at: str
    body: dict[str, Any]
    """`message`: {"text"}. `group_created`: {"name"}. `member_joined`: {"did", "nick", "role"}. `member_left`: {"did"}.
    `member_removed` and `removal_voted`: {"did", "nick"}, whom the author puts out, or wants out. `role_changed`:
    {"did", "nick", "role"}. `member_renamed`: {"did", "nick", "was"}, the author's new name and the one before. Each
    `nick` is the name of that time."""
    then: str = ""
    """What the author was called at that time, while `author.nick` is what it is called now; empty for a message."""
    reply_to: str | None = None
    mentions: list[str] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    self: bool = False
    replayed: bool = False
    """True when it comes from the log, false when it has just been delivered."""
    late: bool = False
    delivery: Delivery


class PolicyInfo(Struct, frozen=True, kw_only=True):
    """The rules that a group has had from its beginning. `agent/plain.py` puts them into sentences."""

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


class VoteInfo(Struct, frozen=True, kw_only=True):
    """How far it is with putting somebody out; also the answer of `remove`."""

    group: str
    did: str
    """Whom it is about."""
    nick: str
    votes: int
    """How many members want it out."""
    needed: int
    """How many have to: 1 where one is enough."""
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


class MemberInfo(Struct, frozen=True, kw_only=True):
    did: str
    nick: str
    connection: Connection
    """Whether what is said now gets there. A mediator takes it for a member who is away, which is `connected` too."""
    via: Via = ""
    """How this member is reached: over a link of our own, over a mediator, or not at all."""
    bot: bool = False
    verified: bool = False
    """Whether `trust` is `verified`."""
    view_agrees: bool | None = None
    """Whether the view that this member last told is ours; None: not heard yet."""
    last_heard: str | None = None
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


class MemberDelivery(Struct, frozen=True):
    did: str
    nick: str
    delivered: bool


class DeliveryReport(Struct, frozen=True):
    """Answer of `wait` and `delivery`. `complete` says whether what was waited for has happened."""

    group: str
    id: str
    delivered: int
    of: int
    complete: bool
    members: list[MemberDelivery]


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


class LetterInfo(Struct, frozen=True):
    """A line of text to (`mine`) or from a connection; answer of `letters`, which has the last ones, oldest first."""

    id: str
    at: str
    mine: bool
    text: str


class ConnectionInfo(Struct, frozen=True, kw_only=True):
    """A relationship outside of any group: with a mediator, or with an agent that may be somebody else's program."""

    id: str
    label: str
    state: ConnectionState
    envelope: str
    did: str
    """The peer's DID, in its short form; empty while its answer is awaited."""
    my_did: str
    mediator: Mediation | None = None
    """What the peer has said to being our mediator; None: it was not asked."""
    reachable: bool | None = None
    """Whether what it keeps for us can be fetched now; None: it is no mediator of ours."""
    begun_at: str


class OfferInfo(Struct, frozen=True, kw_only=True):
    """An invitation to connect, outside of any group, for one agent of whatever make."""

    url: str
    """The Out-of-Band link."""
    expires_at: str
    connection: str
    """The id of the connection that it becomes."""
    short: str = ""
    """As in `InvitationInfo`."""


class Question(Struct, frozen=True):
    """Something was asked of a peer; its answer comes as news with this `thread`."""

    thread: str


class ToldInfo(Struct, frozen=True):
    id: str
    """The id of the message that was sent."""


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
    until: str = ""
    """When it is given up."""


class Status(Struct, frozen=True, kw_only=True):
    profile: str
    nick: str
    version: str
    pid: int
    uptime_s: int
    pair: str
    """Where peers reach this agent, as zmq+tcp:// URIs."""
    queue: str
    closed: bool
    """True when the gatekeeper of the sockets has died, so that nobody new gets in."""
    warning: str = ""
    """What needs attention (a full disk, say), in a sentence."""
    groups: list[GroupInfo]
    hidden: bool = False
    """True when nobody can dial this agent, so that its addresses are told to nobody."""
    web: list[str] = field(default_factory=list)
    """The URIs under which others reach this agent over HTTP and WebSocket."""
    mediators: list[ConnectionInfo] = field(default_factory=list)
    joins: list[JoinStatus] = field(default_factory=list)
    """My joins that are under way, and the last one that has failed since the agent started."""


class Hello(Struct, frozen=True, kw_only=True):
    protocol: int
    version: str
    profile: str
    nick: str


class History(Struct, frozen=True):
    events: list[Event]
    more: bool
    """True when there are older events than the first one."""


class Sent(Struct, frozen=True):
    group: str
    id: str
    lamport: int
    position: int
    of: int
    """How many other members it is meant for."""


class ReceiptNews(Struct, frozen=True):
    """`member` is now known to have `author`'s events with `after < position <= upto`."""

    group: str
    member: str
    author: str
    after: int
    upto: int


class PeerNews(Struct, frozen=True):
    group: str
    member: str
    nick: str
    connected: bool


class ViewNews(Struct, frozen=True):
    """The group's members or what is known of them changed: ask `members` and `groups` again."""

    group: str


class InvitationNews(Struct, frozen=True):
    group: str
    nick: str
    uses_left: int


class RequestNews(Struct, frozen=True, kw_only=True):
    """Somebody waits to be let in (`asked`), or does so no longer. `GroupInfo.requests` has its words."""

    group: str
    member: str
    """The DID that it will have in the group."""
    nick: str
    role: Role = "writer"
    state: Literal["asked", "admitted", "refused"]
    """`refused`, too, where it waited too long."""


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


class TrustNews(Struct, frozen=True):
    """A member was verified, or is no longer."""

    group: str
    member: str
    nick: str
    trust: Trust


class DisagreementNews(Struct, frozen=True):
    """The members tell different things of who is in the group, or one of them has signed two histories."""

    group: str
    member: str
    """Who says something else than the others; empty: that cannot be told."""
    nick: str
    text: str
    """One sentence for a person."""


class PongNews(Struct, frozen=True, kw_only=True):
    """A peer has answered a ping."""

    thread: str
    peer: str
    """What it is called."""
    rtt_ms: int
    envelope: str
    """The kind of envelope that the answer came in, and how it was protected."""
    their_key: str
    """The key id of the peer that the answer is proven to be from."""
    my_key: str
    """The key id of ours that it was encrypted to."""
    way: Way
    """How the peer is reached: over a link of our own, over a mediator, or at its address on the web."""


class FeatureInfo(Struct, frozen=True):
    """`type`: `protocol`, `goal-code` or `header`; `id`: which one."""

    type: str
    id: str


class FeaturesNews(Struct, frozen=True):
    """What a peer discloses of what it speaks: all of it need not be there."""

    thread: str
    peer: str
    features: list[FeatureInfo]


class ConnectionNews(Struct, frozen=True, kw_only=True):
    """A connection was established, has ended, or its peer has said whether it will be our mediator."""

    connection: str
    text: str
    """One sentence for a person, with the peer's label in it."""
    label: str = ""
    state: ConnectionState = "ended"
    mediator: Mediation | None = None


class ToldNews(Struct, frozen=True):
    """A basic message from a connection."""

    connection: str
    label: str
    text: str


class ProblemNews(Struct, frozen=True):
    """A peer says that something went wrong on its side (a problem report)."""

    peer: str
    code: str
    comment: str


class RotatedNews(Struct, frozen=True):
    """A DID between a member and us was replaced: the member's, or (`mine`) ours, which the member knows by now."""

    group: str
    member: str
    nick: str
    mine: bool


# --- what faces ask -------------------------------------------------------------------------------------------------


class HelloParams(Struct, frozen=True, forbid_unknown_fields=False):
    protocol: int
    client: str = ""


class NoParams(Struct, frozen=True):
    pass


class GroupParams(Struct, frozen=True):
    """`group`: a name, an id, or the first letters of an id."""

    group: str


class NewParams(Struct, frozen=True):
    """`group`: its name. `envelope`: `didcomm/v2` or `didcomm/v1`. `keys`: `pairwise-multi` or `pairwise-single`. The
    others as in `PolicyInfo`; `remove` and `quorum` may be left to the others. All of it is for good."""

    group: str
    envelope: str = "didcomm/v2"
    keys: str = "pairwise-multi"
    join: str = "invited"
    remove: str | None = None
    quorum: int | None = None
    roles: str = "flat"
    agreement: str = "permissive"


class InviteParams(Struct, frozen=True):
    group: str
    expires_s: int = 24 * 3600
    uses: int = 1
    role: str = "writer"


class JoinParams(Struct, frozen=True):
    """`invitation`: an `_oob` link or a `ZC:` code. `name`: what I shall be called there. `role`: `reader` or
    `writer`."""

    invitation: str
    name: str | None = None
    role: str = "writer"


class AnswerParams(Struct, frozen=True):
    """`who`: the DID of somebody who waits to be let in, or its name if no other has that. `admit`: whether to."""

    group: str
    who: str
    admit: bool


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


class SendParams(Struct, frozen=True):
    group: str
    text: str


class EventParams(Struct, frozen=True):
    group: str
    id: str


class WaitParams(Struct, frozen=True):
    """Wait until `count` other members have the event (-1: all of them), at most `timeout_s` seconds."""

    group: str
    id: str
    count: int = -1
    timeout_s: float = 30.0


class HistoryParams(Struct, frozen=True):
    """The newest `limit` events, or those before (older than) the event `before`, oldest first."""

    group: str
    limit: int = 100
    before: str | None = None


class SubscribeParams(Struct, frozen=True):
    """News from now on, or first whatever was delivered after local `since`."""

    groups: list[str] | None = None
    since: int | None = None


class PeerParams(Struct, frozen=True):
    peer: str


class FeaturesParams(Struct, frozen=True):
    """`match`: a protocol's URI, or the beginning of some with `*` behind it."""

    peer: str
    match: str = "*"


class TellParams(Struct, frozen=True):
    peer: str
    text: str


class ConnectParams(Struct, frozen=True):
    """`invitation`: an Out-of-Band link of any version, or the JSON in one. `name`: what to call the connection here.
    `mediate`: ask that agent to be our mediator."""

    invitation: str
    name: str = ""
    mediate: bool = False


class OfferParams(Struct, frozen=True):
    envelope: str = "didcomm/v2"
    expires_s: int = 24 * 3600


METHODS: dict[str, tuple[type[Struct], object]] = {
    "hello": (HelloParams, Hello),
    "status": (NoParams, Status),
    "groups": (NoParams, list[GroupInfo]),
    "new": (NewParams, GroupInfo),
    "invite": (InviteParams, InvitationInfo),
    "join": (JoinParams, JoinStatus),
    "send": (SendParams, Sent),
    "wait": (WaitParams, DeliveryReport),
    "delivery": (EventParams, DeliveryReport),
    "history": (HistoryParams, History),
    "members": (GroupParams, list[MemberInfo]),
    "requests": (GroupParams, list[RequestInfo]),
    "answer": (AnswerParams, GroupInfo),
    "remove": (RemoveParams, VoteInfo),
    "role": (RoleParams, MemberInfo),
    "rename": (RenameParams, GroupInfo),
    "words": (WordsParams, WordsInfo),
    "verify": (VerifyParams, MemberInfo),
    "leave": (GroupParams, GroupInfo),
    "ping": (PeerParams, Question),
    "features": (FeaturesParams, Question),
    "rotate": (PeerParams, NoParams),
    "connect": (ConnectParams, ConnectionInfo),
    "offer": (OfferParams, OfferInfo),
    "connections": (NoParams, list[ConnectionInfo]),
    "letters": (PeerParams, list[LetterInfo]),
    "tell": (TellParams, ToldInfo),
    "disconnect": (PeerParams, NoParams),
    "subscribe": (SubscribeParams, NoParams),
    "stop": (NoParams, NoParams),
}
"""Every method with the shape of its params and of its result."""

NEWS: dict[str, type[Struct]] = {
    "event": Event,
    "receipt": ReceiptNews,
    "peer": PeerNews,
    "view": ViewNews,
    "join": JoinStatus,
    "invitation": InvitationNews,
    "request": RequestNews,
    "seating": SeatingNews,
    "removed": RemovedNews,
    "trust": TrustNews,
    "disagreement": DisagreementNews,
    "pong": PongNews,
    "features": FeaturesNews,
    "connection": ConnectionNews,
    "told": ToldNews,
    "problem": ProblemNews,
    "rotated": RotatedNews,
}
"""Every notification with its shape."""


class Request(Struct, frozen=True):
    method: str
    id: int | str | UnsetType | None = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    jsonrpc: str = ""
