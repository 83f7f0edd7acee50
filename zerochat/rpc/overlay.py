"""The overlay of a group: its links, and what each has carried."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.members import Connection, Via

LinkPlace = Literal["member", "successor", "predecessor", "shortcut", "guest"]


class LinkInfo(Struct, frozen=True, kw_only=True):
    """The link to one member. The counts are of this link alone, since the agent started, without mail over
    mediators."""

    did: str
    nick: str
    place: LinkPlace
    """In a mesh: `member`. On the ring: `successor`, `predecessor`, a `shortcut` across it, or a `guest`, which is no
    neighbour of mine: it has chosen me, or it takes the place of one that is down."""
    connection: Connection
    via: Via = ""
    sent: int = 0
    """Envelopes of any kind that I have sent to it."""
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    brought: int = 0
    """On the ring: the messages, of any author, that it was the first to bring."""
    duplicates: int = 0
    """Messages that it brought and that were here already."""
    repaired: int = 0
    """Events of other members that were missing here, and that it sent on request."""
    repaired_at: str = ""
    """When it last did; empty: never."""


class OverlayInfo(Struct, frozen=True, kw_only=True):
    """How a group is linked here."""

    group: str
    path: str
    forwards: bool
    """Whether members forward messages of others: on the ring, once it has more than 24 members."""
    members: int
    since: str
    """Since when is counted: the start of the agent."""
    own: int = 0
    """My posts and annotations since then."""
    forwarded: int = 0
    """Messages of others that I have forwarded."""
    copies: int = 0
    """The copies that I have sent of both over all links, without retransmissions and mail over mediators."""
    links: list[LinkInfo] = field(default_factory=list)
    """Neighbours in the order of the ring, then guests; in a mesh in the order of joining. At most 64."""
