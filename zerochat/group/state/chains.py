"""The event log: how far each author's chain is delivered here, which part is confirmed, and what waits."""

from collections.abc import Mapping, Sequence
from enum import Enum
from heapq import nlargest
from typing import Any, Self

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.crypto.structs import Redacted
from zerochat.group.composite import Composite
from zerochat.group.event_log.event import Event
from zerochat.limits import LATEST_AUTHORS_MAX


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
    exhausted_by: tuple[str, ...] = ()
    """On the ring: the members without anything below `first` that dates from after we joined."""


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
    SOUGHT = "sought"
    """On the ring: it began with the first event that came, and earlier ones from after we joined may be missing
    (`sync/ring_starts.py`)."""


_UNANNOUNCED, _UNANNOUNCED_FIXED = ChainStart.UNANNOUNCED, ChainStart.UNANNOUNCED_FIXED


class StartEvent(Enum):
    """What moves a chain from one `ChainStart` to another."""

    ANNOUNCED = "announced"
    AUTHOR_POST = "author-post"
    FOUND = "found"


START_TRANSITIONS: Mapping[tuple[ChainStart, StartEvent], ChainStart] = {
    (ChainStart.OPEN, StartEvent.ANNOUNCED): ChainStart.OPEN,
    (ChainStart.OPEN, StartEvent.AUTHOR_POST): ChainStart.FIXED,
    (ChainStart.UNANNOUNCED, StartEvent.ANNOUNCED): ChainStart.OPEN,
    (ChainStart.UNANNOUNCED, StartEvent.AUTHOR_POST): ChainStart.UNANNOUNCED_FIXED,
    (ChainStart.SOUGHT, StartEvent.FOUND): ChainStart.OPEN,
}
"""All other pairs leave the state as it is. A chain begins as OPEN (`Chain.after`), UNANNOUNCED (`Chain.relayed`) or
SOUGHT (`Chain.on_ring`)."""


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
    upgraded: int = 0
    """The place from which on its author had the upgrade of the keys in its past; 0: none is known."""

    @classmethod
    def after(cls, since: int) -> Self:
        """A chain whose events after this place are meant for us."""
        return cls(since, backfill=Backfill(since + 1) if since else None)

    @classmethod
    def on_ring(cls, since: int) -> Self:
        """A chain on the ring, where authors announce nothing to most members: it begins with the first signed event
        that comes, and what is missing before that is fetched."""
        if not since:
            return cls()
        return cls(since, start=ChainStart.SOUGHT, backfill=Backfill(since + 1, since_joining=True))

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
        start = self.start  # checked for every author and message, so by identity
        return start is _UNANNOUNCED or start is _UNANNOUNCED_FIXED

    @property
    def is_sought(self) -> bool:
        """Whether events from after we joined may be missing at its beginning."""
        return self.start is ChainStart.SOUGHT

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

    @property
    def complete_seq(self) -> int:
        """The last place that we acknowledge: all that is meant for us up to there is here, by the author's own
        word."""
        return 0 if self.is_sought else self.confirmed_seq


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


class EventLog(Composite, frozen=True, dict=True):
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

    @property
    def latest_authors(self) -> Sequence[str]:
        """The authors of the newest events, the newest first, LATEST_AUTHORS_MAX at most."""
        found: Sequence[str] | None = self.__dict__.get("latest")
        if found is None:
            found = self.__dict__["latest"] = nlargest(LATEST_AUTHORS_MAX, self.chains, key=self._newness)
        return found

    def changed(self, **fields: Any) -> Self:
        """The same with other values of these fields, of all but `chains`."""
        log = replace(self, **fields)
        log.__dict__.update(self.__dict__)
        return log

    def with_chain(self, author: str, chain: Chain) -> Self:
        """The same with another chain of this author."""
        log = replace(self, chains={**self.chains, author: chain})
        latest: Sequence[str] = self.__dict__.get("latest", ())
        if latest and chain.lamport > self.chains[latest[0]].lamport:
            log.__dict__["latest"] = [author, *(one for one in latest if one != author)][:LATEST_AUTHORS_MAX]
        return log

    def without_chain(self, author: str) -> Self:
        """The same without this author's chain."""
        return replace(self, chains={did: one for did, one in self.chains.items() if did != author})

    def _newness(self, author: str) -> tuple[int, str]:
        return self.chains[author].lamport, author
