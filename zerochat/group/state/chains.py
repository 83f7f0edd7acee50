"""The event log: how far each author's chain is delivered here, which part is confirmed, and what waits."""

from collections.abc import Mapping
from enum import Enum
from typing import Self

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.crypto.structs import Redacted
from zerochat.group.event_log.event import Event
from zerochat.group.state.composite import Composite


class ChainPosition(Struct, frozen=True):
    """A place in an author's chain."""

    seq: int = 0
    event_id: str = ""
    """The id of the event there; empty: unknown."""
    lamport: int = 0


class Backfill(Struct, frozen=True):
    """How far back an author's chain was fetched, from where its live part begins."""

    first: int = 1
    """The first place of the unbroken stretch that we have."""
    previous_id: str = ""
    """The id that the event before it must have; empty: unknown."""
    anchored: bool = False
    """`previous_id` comes from an event or a signature of the author itself."""
    unconfirmed_top: ChainPosition | None = None
    """The newest fetched event whose stretch the author has not confirmed; None: nothing is unconfirmed."""
    relayed_by: str = ""
    """The member that relayed the unconfirmed stretch."""
    since_joining: bool = False
    """Part of the stretch dates from after we joined, so it is ours under any history rule."""


class ChainStart(Enum):
    """How certain the place is where an author's chain begins for us."""

    OPEN = "open"
    """Announced by its author, or the very beginning; a new announcement moves it."""
    FIXED = "fixed"
    """A post of its author was delivered: moving the start would hide the events before that post."""
    UNANNOUNCED = "unannounced"
    """The chain is known from relaying members alone."""
    UNANNOUNCED_FIXED = "unannounced-fixed"
    """The same, and a signed post, or a former member's own, was delivered."""


class StartEvent(Enum):
    """What moves a chain from one `ChainStart` to another."""

    ANNOUNCED = "announced"
    AUTHOR_POST = "author-post"


START_TRANSITIONS: Mapping[tuple[ChainStart, StartEvent], ChainStart] = {
    (ChainStart.OPEN, StartEvent.ANNOUNCED): ChainStart.OPEN,
    (ChainStart.OPEN, StartEvent.AUTHOR_POST): ChainStart.FIXED,
    (ChainStart.UNANNOUNCED, StartEvent.ANNOUNCED): ChainStart.OPEN,
    (ChainStart.UNANNOUNCED, StartEvent.AUTHOR_POST): ChainStart.UNANNOUNCED_FIXED,
}
"""All other pairs leave the state as it is. A chain begins as OPEN (`Chain.after`) or UNANNOUNCED (`Chain.relayed`)."""


class Chain(Struct, frozen=True):
    """How far one author's chain is delivered here."""

    seq: int = 0
    head_id: str = ""
    """The id of event `seq`; empty if the chain began before it was meant for us."""
    lamport: int = 0
    start: ChainStart = ChainStart.OPEN
    fork_seq: int = 0
    """The last place at which the author was found to equivocate; 0: none."""
    confirmed: ChainPosition | None = None
    """The end of the part that its author has confirmed, if relayed events follow; None: all of it is confirmed."""
    relayed_by: str = ""
    """The member that relayed the last event."""
    backfill: Backfill | None = None
    """The part before the live one; None: received from its beginning."""
    detached: bool = False
    """Other events were relayed before that need not lead up to this part."""

    @classmethod
    def after(cls, since: int) -> Self:
        """A chain whose events after this place are meant for us."""
        return cls(since, backfill=Backfill(since + 1) if since else None)

    @classmethod
    def relayed(cls, since: int, *, detached: bool = False) -> Self:
        """A chain known from relaying members alone, from after this place on."""
        chain = replace(cls.after(since), confirmed=ChainPosition(), detached=detached)
        return replace(chain, start=ChainStart.UNANNOUNCED)

    def start_after(self, event: StartEvent) -> ChainStart:
        """The state of its start after this event."""
        return START_TRANSITIONS.get((self.start, event), self.start)

    @property
    def is_unannounced(self) -> bool:
        """Whether its author has not announced where it begins for us."""
        return self.start in (ChainStart.UNANNOUNCED, ChainStart.UNANNOUNCED_FIXED)

    @property
    def is_fixed(self) -> bool:
        """Whether an announcement of its author can no longer move its start."""
        return self.start in (ChainStart.FIXED, ChainStart.UNANNOUNCED_FIXED)

    @property
    def confirmed_seq(self) -> int:
        """The last place confirmed by the author; 0 until the author has announced where the chain begins for us."""
        if self.is_unannounced:
            return 0
        return self.seq if self.confirmed is None else self.confirmed.seq


class EarlyEvent(Redacted, frozen=True):
    """An event that arrived before its predecessor."""

    REDACTED = ("record",)

    record: bytes


class ReorderBuffer(Struct, frozen=True):
    """One author's events that arrived out of order. The journal stores each by itself, so one more costs one row."""

    events: dict[int, EarlyEvent] = field(default_factory=dict)
    """By seq."""

    @property
    def size(self) -> int:
        """The bytes of the records."""
        return sum(len(event.record) for event in self.events.values())


class BlockedEvent(Struct, frozen=True):
    """A membership event whose dependencies are missing, and its sender."""

    sender: str
    record: bytes


class EventLog(Composite, frozen=True):
    """The delivered events of a group, and those that wait for others."""

    chains: dict[str, Chain] = field(default_factory=dict)
    lamport: int = 0
    heads: tuple[str, ...] = ()
    """The delivered events that no delivered event names yet, sorted."""
    covered_heads: tuple[str, ...] = ()
    """The heads of the membership events that our own chain has named: they need not be named again."""
    reorder_buffers: dict[str, ReorderBuffer] = field(default_factory=dict)
    """By author: events that wait for their predecessor."""
    blocked: dict[str, BlockedEvent] = field(default_factory=dict)
    """By id: membership events that wait for their dependencies."""
    unpublished: tuple[Event, ...] = ()
    """Our own events of this batch, published together at its end; empty between batches."""
