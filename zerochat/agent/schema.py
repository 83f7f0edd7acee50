"""The control protocol's vocabulary: what faces ask the agent, and what it tells them.

JSON-RPC 2.0, one object a line, UTF-8, over the profile's control socket. A request has `id`, `method` and `params`
(an object); a response has `result` or `error`; the agent's own news are notifications with the method `event`,
`receipt`, `peer`, `view`, `join` or `invitation`. Readers ignore members that they do not know: new ones may come at
any time, and none changes its meaning within one `PROTOCOL` number.

Times are RFC 3339 in UTC with milliseconds. A member's `did` is the did:key of the Ed25519 key that it holds in this
one group. Text is exactly as its author wrote it: whoever shows it makes it printable first.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

PROTOCOL = 1
LINE_BYTES_MAX = 1 << 20
"""One line on the control socket, either way: a full page of history fits, a runaway client does not."""

# JSON-RPC's own error numbers, and one for everything that zerochat refuses (its name is in `data.code`).
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, INTERNAL_ERROR = -32700, -32600, -32601, -32602, -32603
REFUSED = -32000

JoinPhase = Literal["dialling", "exchanging", "asking", "connecting", "joined", "failed"]
GroupState = Literal["active", "leaving", "left"]
Connection = Literal["self", "connected", "connecting", "unreachable"]

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

    `type` is `group_created`, `member_joined`, `member_left` or `message`, and `unknown` for what a later version may
    have written; a reader skips types that it does not know.
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
    """`message`: {"text"}. `group_created`: {"name"}. `member_joined`: {"did", "nick"}. `member_left`: {"did"}."""
    reply_to: str | None = None
    mentions: list[str] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    self: bool = False
    replayed: bool = False
    """True when it comes from the log, false when it has just been delivered."""
    late: bool = False
    delivery: Delivery


class GroupInfo(Struct, frozen=True, kw_only=True):
    id: str
    name: str
    state: GroupState
    me: str
    """My DID in this group."""
    nick: str
    members: int
    connected: int
    """How many of the others are connected now."""
    keys: str
    path: str
    accountability: str
    view: str
    """The checksum of the membership view: equal at two members exactly when they see the same members."""
    unacknowledged: int
    """Events of mine that not every member is known to have."""
    created_at: str


class MemberInfo(Struct, frozen=True, kw_only=True):
    did: str
    nick: str
    connection: Connection
    bot: bool = False
    verified: bool = False
    view_agrees: bool | None = None
    """Whether the view that this member last told is ours; None: not heard yet."""
    last_heard: str | None = None
    joined_at: str
    added_by: str | None = None


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
    """The compact code (`ZC:…`), the same invitation."""
    expires_at: str
    uses: int
    endpoint: str


class JoinStatus(Struct, frozen=True, kw_only=True):
    """How a join is getting on; also the notification `join`."""

    join: str
    phase: JoinPhase
    text: str
    group: str = ""
    connected: int = 0
    members: int = 0
    error: str = ""


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


# --- what faces ask -------------------------------------------------------------------------------------------------


class HelloParams(Struct, frozen=True, forbid_unknown_fields=False):
    protocol: int
    client: str = ""


class NoParams(Struct, frozen=True):
    pass


class GroupParams(Struct, frozen=True):
    """`group`: a name, an id, or the first letters of an id."""

    group: str


class InviteParams(Struct, frozen=True):
    group: str
    expires_s: int = 24 * 3600
    uses: int = 1


class JoinParams(Struct, frozen=True):
    """`invitation`: an `_oob` link or a `ZC:` code. `name`: what I shall be called there."""

    invitation: str
    name: str | None = None


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


METHODS: dict[str, tuple[type[Struct], object]] = {
    "hello": (HelloParams, Hello),
    "status": (NoParams, Status),
    "groups": (NoParams, list[GroupInfo]),
    "new": (GroupParams, GroupInfo),
    "invite": (InviteParams, InvitationInfo),
    "join": (JoinParams, JoinStatus),
    "send": (SendParams, Sent),
    "wait": (WaitParams, DeliveryReport),
    "delivery": (EventParams, DeliveryReport),
    "history": (HistoryParams, History),
    "members": (GroupParams, list[MemberInfo]),
    "leave": (GroupParams, GroupInfo),
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
}
"""Every notification with its shape."""


class Request(Struct, frozen=True):
    method: str
    id: int | str | UnsetType | None = UNSET
    params: dict[str, Any] | UnsetType = UNSET
    jsonrpc: str = ""
