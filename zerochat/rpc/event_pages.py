"""The event log as stored, for audit, export and import: rows, and what the agent's state says about them."""

from typing import Literal

from msgspec import Struct, field

EventPosition = tuple[int, str, str]
"""Lamport time, author and id: the position of an event in the total order."""


class ChainExtent(Struct, frozen=True, kw_only=True):
    """The part of an author's chain that is stored here, by the agent's state."""

    author: str
    nick: str
    seq: int
    """The last position; 0: none except, perhaps, membership events."""
    head: str = ""
    """The id of the event at `seq`; empty: unknown."""
    first: int = 1
    """The first position of the contiguous range that ends at `seq`. 0: unknown."""
    confirmed: int = 0
    """Events up to here are confirmed by the author; later ones, up to `seq`, were relayed by other members."""


class ChainConflict(Struct, frozen=True, kw_only=True):
    """A position of a chain with more than one known version."""

    author: str
    position: int
    forked: bool = False
    """True: the author signed two versions (a fork). False: a member reports a different event than ours."""


class LogSummary(Struct, frozen=True, kw_only=True):
    """What a group's log must contain, by the agent's state now."""

    group: str
    name: str
    me: str
    nick: str
    view: str
    """The checksum of the membership view."""
    chains: list[ChainExtent]
    events: int
    """The number of rows without refuted ones."""
    refuted: int = 0
    conflicts: list[ChainConflict] = field(default_factory=list)
    latest: int = 0
    """The local seq of the last row: later rows are not covered."""


class LogRow(Struct, frozen=True, kw_only=True):
    """A row of the log."""

    seq: int
    """Local and monotone: the order of delivery."""
    id: str
    author: str
    position: int
    lamport: int
    type: str
    record: bytes
    """The canonical record as it was hashed, with its signature if any."""
    received: int
    """UTC milliseconds."""
    late: bool = False
    relayed_by: str = ""
    """The DID of who handed it over; empty: its author's own word."""
    refuted: bool = False
    history: bool = False
    """Backfilled: older than our membership."""


Outcome = Literal["new", "known", "detached", "missing-causes", "contradiction", "invalid", "not-a-member", "own"]
"""The result of importing a record. `new`: stored. `known`: stored already. `detached`: it does not connect to the
stored part of its author's chain. `missing-causes`: a membership event that it depends on is missing. `contradiction`:
another event is stored or announced at its position. `invalid`: malformed, or of another group. `not-a-member`: its
author was not a member. `own`: it claims to be by this profile."""


class ImportEventsParams(Struct, frozen=True):
    """Import records: at most 256 and 1 MB. `back`: newest first, continuing each stored chain backwards; otherwise
    oldest first."""

    group: str
    records: list[bytes]
    back: bool = False


class Imported(Struct, frozen=True):
    """The outcome of each record, in order."""

    outcomes: list[Outcome]


class EventPageParams(Struct, frozen=True):
    """The next rows in the total order with a local seq of at most `latest`."""

    group: str
    latest: int
    after: EventPosition | None = None
    """The position of the last row of the previous page; null: the first page."""


class EventPage(Struct, frozen=True):
    rows: list[LogRow]
    last: EventPosition | None
    """`after` of the next page; null: there is none."""
