"""The agent itself."""

from msgspec import Struct, field

from zerochat.rpc.connections import ConnectionInfo
from zerochat.rpc.groups import GroupInfo, JoinStatus


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
    damaged: bool = False
    """True when the journal is; `warning` says how."""
    groups: list[GroupInfo]
    hidden: bool = False
    """True when nobody can dial this agent, so that its addresses are told to nobody."""
    web: list[str] = field(default_factory=list)
    """The URIs under which others reach this agent over HTTP and WebSocket."""
    mediators: list[ConnectionInfo] = field(default_factory=list)
    joins: list[JoinStatus] = field(default_factory=list)
    """My joins that are under way, and the last one that has failed since the agent started."""
    shares: list[str] = field(default_factory=list)
    """What the others are told of what I do besides what I say, and I of them: `typing`, `read`, both or nothing."""


class Hello(Struct, frozen=True, kw_only=True):
    protocol: int
    version: str
    profile: str
    nick: str
    methods: list[str] = field(default_factory=list)
    """Every method that this agent serves."""
    features: list[str] = field(default_factory=list)
    """What it does besides: `consumers` (named ones, with `ack`), `keys` (idempotency keys), `retry` (hints in the data
    of errors)."""


class HelloParams(Struct, frozen=True, forbid_unknown_fields=False):
    protocol: int
    client: str = ""


class Copied(Struct, frozen=True):
    """A copy of the journal, for a backup. Whoever asked for it takes it away."""

    path: str


class NoParams(Struct, frozen=True):
    pass
