"""The agent: handshake, status and backup."""

from typing import Literal, TypeAlias

from msgspec import Struct, field

from zerochat.rpc.connections import ConnectionInfo
from zerochat.rpc.groups import GroupInfo, JoinStatus
from zerochat.rpc.subscriptions import ConsumerInfo


class ReplacedPort(Struct, frozen=True):
    """A port that another program used when the agent started: it listens on another one."""

    port: int
    by: int


HeldWhy: TypeAlias = Literal["unproved", "failed", "near"]
"""Why nothing is posted to a member's mediator: it has not answered a probe, it failed just now, or its address is
nearer than it may be."""


class HeldMail(Struct, frozen=True):
    """A member for which nothing can be sent now, as it is not connected and its mediator does not count."""

    group: str
    member: str
    """Its display name."""
    uri: str
    why: HeldWhy


Sends: TypeAlias = Literal["direct", "mediator", "nothing"]


class Status(Struct, frozen=True, kw_only=True):
    profile: str
    nick: str
    version: str
    pid: int
    uptime_s: int
    pair: str
    """The addresses of this agent, as zmq+tcp:// URIs."""
    queue: str
    closed: bool
    """The ZAP authenticator has failed, so no new connection is accepted."""
    warning: str = ""
    """The most urgent problem, as a sentence; empty: none."""
    damaged: bool = False
    """The journal is damaged; `warning` has details."""
    groups: list[GroupInfo]
    hidden: bool = False
    """No peer can dial this agent, and its addresses are not announced."""
    sends: Sends = "direct"
    """How this agent sends: `direct`: to members and their mediators; `mediator`: through its own mediators alone
    (`network.hidden` = `always`); `nothing`: so, and none of them can be reached and sends for it."""
    web: list[str] = field(default_factory=list)
    """The HTTP and WebSocket URIs of this agent."""
    mediators: list[ConnectionInfo] = field(default_factory=list)
    joins: list[JoinStatus] = field(default_factory=list)
    """The joins in progress, and the last that failed since the start."""
    consumers: list[ConsumerInfo] = field(default_factory=list)
    """The bots and scripts with a durable cursor, and their lag."""
    shares: list[str] = field(default_factory=list)
    """The indicators that are sent and received: `typing`, `read`, both or none."""
    unread: int = 0
    """The number of unread messages in all groups."""
    mentions: int = 0
    """The number of unread mentions in all groups."""
    replaced_ports: list[ReplacedPort] = field(default_factory=list)
    held_mail: list[HeldMail] = field(default_factory=list)
    """The members whose mail waits, at most 100."""
    memory_locked: bool = False
    """The system cannot move the agent's memory to swap."""
    dumpable: bool = True
    """Processes of the same user can read the agent's memory, as debuggers do."""


class Hello(Struct, frozen=True, kw_only=True):
    protocol: int
    version: str
    profile: str
    nick: str
    methods: list[str] = field(default_factory=list)
    """The methods of this agent."""
    features: list[str] = field(default_factory=list)
    """Further features: `consumers` (named consumers), `keys` (idempotency keys), `retry` (retry hints in errors)."""
    owner: str = ""
    """The client (`cli`, `tui`, `bot`…) that has started the agent for itself. The agent ends with it: attach again, or
    start one. Empty: the agent runs on its own."""


class HelloParams(Struct, frozen=True, forbid_unknown_fields=False):
    protocol: int
    client: str = ""


class BackupCopy(Struct, frozen=True):
    """An encrypted copy of the journal. The client moves it away."""

    path: str


class BackupProgress(Struct, frozen=True):
    """How far the copy that this client has requested with `create_backup` is. No subscription is needed."""

    done: int
    """Pages of the journal."""
    of: int


class NoParams(Struct, frozen=True):
    pass
