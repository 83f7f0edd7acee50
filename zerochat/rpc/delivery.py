"""Delivery: which members have an event, and everything known about it."""

from typing import Literal

from msgspec import Struct, field

from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc.common import Author
from zerochat.rpc.completeness import ChainDifferenceNotification
from zerochat.rpc.events import Event
from zerochat.rpc.members import Connection

DeliveryState = Literal["queued", "sent", "stored", "held", "delivered", "left", "unknown"]
Obstacle = Literal["", "no_mediator", "own_mediator"]
Provenance = Literal["own", "signed", "author", "relayed", "refuted"]


class MemberDelivery(Struct, frozen=True):
    """Whether a member has an event, and how that is known."""

    did: str
    nick: str
    delivered: bool
    state: DeliveryState = "unknown"
    """`delivered`: acknowledged. `sent`: the member is reachable and has not acknowledged. `stored`: the same, and its
    mediator has signed that it stores the event (only in `get_delivery` and `get_message_status`). `held`: the
    member refuses it until `next_try`, since my daily quota there is used up. `queued`: not
    reachable; the event is sent when it is. `left`: left before acknowledging. `unknown`: another member's event, about
    which this member has not reported; on the ring also mine, where I am not linked to the member."""
    at: str | None = None
    """When the delivery became known; null: not delivered, or unknown."""
    via: str = ""
    """How it became known (`link`, `mediator`, or the DID of the reporting member); before delivery, how the member is
    reached. Empty: unknown or not reachable."""
    connection: Connection = "unreachable"
    last_seen: str | None = None
    """When the member's last authentic message was received; null: never."""
    tries: int = 0
    """The number of retransmissions since the member's last acknowledgement."""
    next_try: str | None = None
    """The time of the next retransmission; null: as soon as the member is reachable."""
    read: bool = False
    """It has read up to the event. Only with `share.read_receipts` at both ends."""
    signed: bool = False
    """Its signed acknowledgement is stored (`get_proof`). Only for my own events in groups with signed messages."""
    signed_at: str | None = None
    """The time of that signature, by its clock."""
    stored_until: str | None = None
    """When the mediator deletes a `stored` event, by its own statement."""
    obstacle: Obstacle = ""
    """Why no acknowledgement can come. `no_mediator`: this agent connects to its own mediators only (`network.hidden` =
    `always`), and the member has none. `own_mediator`: the member cannot be dialled and has never connected, and this
    agent has no mediator to which it could answer."""


class DeliveryReport(Struct, frozen=True):
    """The delivery of one event. `complete`: the condition of `wait_for_delivery` holds."""

    group: str
    id: str
    delivered: int
    of: int
    complete: bool
    members: list[MemberDelivery]
    """A page of the recipients, at most 64: first those that lack it, each part in the order of joining."""
    event: Event | None = None
    """The event; only in `get_delivery`."""
    signed: bool = False
    """The author's signature is stored here; only in `get_delivery` and `get_message_status`."""
    next: str = ""
    """The parameter `after` of the next page (`get_delivery`); empty: this is the last one."""


class MessageStatus(Struct, frozen=True, kw_only=True):
    """Everything known about one event, from its author's chain to its recipients."""

    event: Event
    report: DeliveryReport
    provenance: Provenance
    """`own`; `signed` by its author, which proves it to everyone; confirmed by the `author`'s envelope or later
    statement; `relayed` by `event.relayed_by` alone; or `refuted`: the author has signed another event there."""
    first: int
    """The first position of the contiguous part of the author's chain; 0: unknown."""
    here: int
    """The last position of that part; 0: none except membership events."""
    known: int
    """The last position that any member has reported."""
    forked: bool = False
    """The author has signed a fork."""
    held: bool = False
    """Later events of the author are refused here for now: its daily quota here is used up."""
    differs: list[ChainDifferenceNotification] = field(default_factory=list)
    """The members that have other events of the author at this or an earlier position."""
    corroborated_by: Author | None = None
    """For a relayed event: another member that has the same event."""
    former_members: list[MemberDelivery] = field(default_factory=list)
    """Recipients that are no longer members, as far as their delivery is known: the last 64 that have joined."""


class ReceiptNotification(Struct, frozen=True):
    """`member` now has the events of `author` with `after < position <= upto`.

    In a group of more than 64 members, only receipts of my events are sent, and one can stand for all members that
    reported the same at once.
    """

    group: str
    member: str
    author: str
    after: int
    upto: int
    members: int = 1
    """The number of members for which it stands, with `member`."""


class EventParams(Struct, frozen=True):
    """`id`: an event id, a prefix of at least four characters, `last` for my newest message, or `last:NAME` for a
    member's. The others choose the recipients in `DeliveryReport.members`."""

    group: str
    id: str
    after: str = ""
    """`DeliveryReport.next` of the page before; empty: the first page."""
    limit: int = MEMBER_PAGE_MAX
    """The size of the page, 1 to 64."""
    query: str = ""
    """Only recipients whose name contains this, in any case; empty: all. It does not change the counts."""


class WaitParams(Struct, frozen=True):
    """Wait until `count` other members have the event (-1: all), for at most `timeout_s` seconds."""

    group: str
    id: str
    count: int = -1
    timeout_s: float = 30.0
