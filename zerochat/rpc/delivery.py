"""Who has an event, and what has become of it on its way."""

from typing import Literal

from msgspec import Struct, field

from zerochat.rpc.common import Author
from zerochat.rpc.completeness import DiffersNews
from zerochat.rpc.events import Event
from zerochat.rpc.members import Connection

DeliveryState = Literal["queued", "sent", "held", "delivered", "left", "unknown"]
Word = Literal["mine", "signed", "author", "vouched", "refuted"]


class MemberDelivery(Struct, frozen=True):
    """Whether a member has an event, and how that is known."""

    did: str
    nick: str
    delivered: bool
    state: DeliveryState = "unknown"
    """`delivered`: it has said so itself. `sent`: it can be reached, and has not said so yet. `held`: the same, but its
    mediator has signed that it keeps the event for it (in the answers of `delivery` and `why`). `queued`: it cannot be
    reached, and gets the event as soon as it can be. `left`: it went before it had said so. `unknown`: the event is
    somebody else's, who repeats it and not we, and this member has told us nothing of it."""
    at: str | None = None
    """Since when it is known to have it; None: it is not, or that was not kept."""
    via: str = ""
    """How that was heard (`link`, `mediator`, or the DID of whoever told it); while it is not delivered, how the member
    is reached now. Empty: unknown, or not at all."""
    connection: Connection = "unreachable"
    last_heard: str | None = None
    """When the member's last authentic message came; None: never."""
    tries: int = 0
    """How often it was repeated to this member since the member last acknowledged anything."""
    next_try: str | None = None
    """When it is repeated next; None: as soon as the member can be reached."""
    read: bool = False
    """It has it, and says that it has read up to there or further. Never so unless `share.read_receipts` is on here and
    there."""
    signed: bool = False
    """It has signed that it has it, and that is kept here (`proof`). Only of my own words, in a group whose keys
    sign."""
    signed_at: str | None = None
    """When it has, by its own clock."""
    held_until: str | None = None
    """Of what is `held`: when the mediator throws it away, by its own word."""


class DeliveryReport(Struct, frozen=True):
    """Answer of `wait` and `delivery`. `complete` says whether what was waited for has happened."""

    group: str
    id: str
    delivered: int
    of: int
    complete: bool
    members: list[MemberDelivery]
    event: Event | None = None
    """The event itself, in the answer of `delivery`."""
    signed: bool = False
    """Whether its author has signed it, and that is kept here; in the answers of `delivery` and `why`."""


class Fate(Struct, frozen=True, kw_only=True):
    """Answer of `why`: what is known of one event, from its author's chain to everybody who was to have it."""

    event: Event
    report: DeliveryReport
    word: Word
    """Whose word it is: mine; signed by its author, and so proof for everybody; the author's, as its envelope or its
    later word says (`author`); that of `event.vouched` alone, so far; or nobody's, since the author says something else
    in this place."""
    first: int
    """The author's chain is here without a break from this position on; 0: that is not known."""
    here: int
    """And up to this one; 0: it is not here but for single events that concern the group."""
    known: int
    """The last position that anybody has told us of."""
    forked: bool = False
    """Whether the author has signed, or said, two different things in one place of its chain."""
    differs: list[DiffersNews] = field(default_factory=list)
    """Who has something else of the author, in this place or from an earlier one on."""
    second: Author | None = None
    """Of what is vouched for: another member that has the same, when it was asked."""
    gone: list[MemberDelivery] = field(default_factory=list)
    """Those for whom it was too and who are no longer members, as far as they are known to have it or not."""


class ReceiptNews(Struct, frozen=True):
    """`member` is now known to have `author`'s events with `after < position <= upto`."""

    group: str
    member: str
    author: str
    after: int
    upto: int


class EventParams(Struct, frozen=True):
    """`id`: an event's id, its first letters (four or more), `last` for the newest message of my own, or `last:NAME`
    for that of whoever is called so."""

    group: str
    id: str


class WaitParams(Struct, frozen=True):
    """Wait until `count` other members have the event (-1: all of them), at most `timeout_s` seconds."""

    group: str
    id: str
    count: int = -1
    timeout_s: float = 30.0
