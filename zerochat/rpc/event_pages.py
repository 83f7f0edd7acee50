"""A group's log for whoever wants to check it: every row as it lies on disk, and what the agent's state says of it."""

from typing import Literal

from msgspec import Struct, field

Place = tuple[int, str, str]
"""Lamport time, author's DID and id: where an event stands in the order that every member sees."""


class Height(Struct, frozen=True, kw_only=True):
    """How much of an author's chain the state says is here."""

    author: str
    nick: str
    seq: int
    """The last position; 0: nothing of it is here yet but, perhaps, membership events."""
    tip: str = ""
    """The id of the event there; empty: not known."""
    first: int = 1
    """The first position of the unbroken stretch that ends at `seq`; what is before, if anything, are membership
    events. 0: not known."""
    sure: int = 0
    """Up to here it is the author's own word; what follows, up to `seq`, others have handed over."""


class Dispute(Struct, frozen=True, kw_only=True):
    """A place of an author's chain of which there is known to be more than one version."""

    author: str
    position: int
    forked: bool = False
    """True: the author has said two things there itself. False: a member has something else than is here."""


class Ledger(Struct, frozen=True, kw_only=True):
    """Answer of `ledger`: what a group's log must come to, as the agent's state has it at this moment."""

    group: str
    name: str
    me: str
    nick: str
    view: str
    """The checksum of the membership view."""
    heights: list[Height]
    events: int
    """Rows in the log, without those that were refuted."""
    refuted: int = 0
    disputes: list[Dispute] = field(default_factory=list)
    latest: int = 0
    """The local number of the last row of all: what comes later is not meant by this answer."""


class LogRow(Struct, frozen=True, kw_only=True):
    """A row of the log."""

    seq: int
    """Local and monotone: the order in which this agent delivered."""
    id: str
    author: str
    position: int
    lamport: int
    type: str
    record: bytes
    """The canonical record, exactly as it was hashed, with its signature where it has one."""
    received: int
    """UTC milliseconds."""
    late: bool = False
    vouched: str = ""
    """The DID of who handed it over; empty: its author's own word."""
    refuted: bool = False
    history: bool = False
    """From before our time in the group."""


Outcome = Literal["new", "known", "apart", "causes", "contradiction", "invalid", "stranger", "own"]
"""What has become of a record out of a file. `new`: it was missing here. `known`: it was here. `apart`: it does not
join on to what is here of its author's chain. `causes`: a membership event that it rests on is not here.
`contradiction`: something else is here in its place, or is named there. `invalid`: it is not as it must be, or of
another group. `stranger`: its author is no member, or was none any more. `own`: it says that it is mine, and nobody but
I says what is mine."""


class ImportParams(Struct, frozen=True):
    """Records out of a file, to be taken in where they are missing here: at most 256, and 1 MB of them. `back`: they go
    from the newest to the oldest, and down from what is here of each chain; else from the oldest on, and up."""

    group: str
    records: list[bytes]
    back: bool = False


class Imported(Struct, frozen=True):
    """Answer of `import`: what has become of each record, in their order."""

    outcomes: list[Outcome]


class RowsParams(Struct, frozen=True):
    """The next rows after the place `after` (None: from the beginning) in the order that every member sees, of those
    with a local number of at most `latest`."""

    group: str
    latest: int
    after: Place | None = None


class Rows(Struct, frozen=True):
    rows: list[LogRow]
    last: Place | None
    """Where to go on; None: that was all."""
