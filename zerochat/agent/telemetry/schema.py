"""The kinds of facts, as they are kept and as an export has them. Version 3.

Version 3 has `Span`, and `Join.attempt` is another number in each export. Version 2 has `Send.kind`, and
`Join.connected` says what is so; in version 1 it was always false. New fields stand at the end and have a default, so
that a journal's older batches are read like its newer ones.

Names say their units: `_us` microseconds (`t_*_us`: since 1970, UTC), `_b` bytes. In the journal `observer`, `group`,
`sender`, `member`, `asked` and `peer` are numbers of names (`store.py`), which an export replaces by pseudonyms; 0 is
nobody. Times are by the clock that the members know us by (`Turn.now`).

`gc=False`: nothing in them can refer to anything that refers to them, and thousands wait to be written, which Python's
collector would walk again and again.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Annotated, Final, Literal, TypeAlias, get_args, get_type_hints

import msgspec
from msgspec import Struct

from zerochat.crypto.compression import compress, decompress

SCHEMA_VERSION: Final = 3
BATCH_BYTES_MAX: Final = 1 << 24
"""Of a batch, uncompressed; a recorder writes far smaller ones."""

Name: TypeAlias = Annotated[int, "name"]
"""The number of a name; in an export a pseudonym, int64."""
Lot: TypeAlias = Annotated[int, "lot"]
"""A number drawn by lot; in an export another one, of 48 bits."""
Long: TypeAlias = Annotated[int, "int64"]
Short: TypeAlias = Annotated[int, "int32"]
Flag: TypeAlias = Annotated[bool, "bool"]
Keys: TypeAlias = Annotated[str, "string"]
"""`pairwise-multi`, `pairwise-single` or `sender-key`."""
Kind: TypeAlias = Literal["message", "membership", "remark"]
"""A remark is what is said about something: an edit, a reaction, a topic, a bot's announcement."""


class Send(Struct, array_like=True, tag=1, gc=False):
    """An event of the observer's own went out to the others."""

    observer: Name
    group: Name
    seq: Long
    """Its place in the observer's chain, which counts events of all kinds."""
    keys: Keys
    path: Annotated[Literal["direct", "mediator", "mixed"], "string"]
    accountability: Annotated[str, "string"]
    n: Short
    """Members that it is meant for, whether they can be reached or not."""
    batch: Short
    """How many of the observer's events went out in the same turn."""
    t_send_us: Long
    """As the event itself says, to the millisecond."""
    queue_us: Long
    """From when the agent turned to it until it was handed to the sockets; on disk by then."""
    plain_b: Long
    """Of a message its text in UTF-8, of other events their body as JSON."""
    env_b: Long
    """All its envelopes together; where several events went out in the same ones, its share of them."""
    envelopes: Short
    """0: nobody could be reached, and the log brings it later."""
    kind: Annotated[Kind | None, "string"] = None
    """Null: recorded before version 2, which did not say."""


class Recv(Struct, array_like=True, tag=2, gc=False):
    """An event of somebody else's has come."""

    observer: Name
    group: Name
    sender: Name
    """Its author."""
    seq: Long
    keys: Keys
    kind: Annotated[Kind, "string"]
    n: Short
    """Members that the observer sees, without the author."""
    t_send_us: Long
    """As its author says, to the millisecond."""
    t_recv_us: Long
    """When the agent turned to the envelope that brought it."""
    decrypt_us: Long
    """What the core took over that envelope: opening it, checking all that is in it, and working it in. It is the same
    number for all events of one envelope."""
    hold_us: Long
    """How long it waited for what stands before it; 0: it did not."""
    display_us: Annotated[int | None, "int64"]
    """From `t_recv_us` until it was on its way to a face; null: no face was there."""
    path: Annotated[Literal["direct", "repair", "history", "mediator"], "string"]
    dup: Flag
    """It was there already."""
    late: Flag
    """Something that stands below it was there already."""
    env_b: Long
    """Its share of the envelope that brought it."""
    plain_b: Long


class Ack(Struct, array_like=True, tag=3, gc=False):
    """A member has said how far it has the observer's chain."""

    observer: Name
    group: Name
    member: Name
    upto: Long
    t_ack_us: Long
    path: Annotated[Literal["direct", "mediator"], "string"]


class Repair(Struct, array_like=True, tag=4, gc=False):
    """Something of somebody's chain was missing, and asked for."""

    observer: Name
    group: Name
    sender: Name
    asked: Name
    after: Long
    upto: Long
    t_us: Long
    us: Annotated[int | None, "int64"]
    outcome: Annotated[Literal["answered", "unanswered"], "string"]


class Join(Struct, array_like=True, tag=5, gc=False):
    """One phase of a join that is over; `whole` is all of it."""

    observer: Name
    group: Name
    attempt: Lot
    """The same for all phases."""
    role: Annotated[Literal["joiner", "acceptor"], "string"]
    connected: Flag
    """Whoever the observer has dialled for it was connected with it before, in another group."""
    phase: Annotated[Literal["request", "view", "exchanges", "subscriptions", "announce", "whole"], "string"]
    us: Long
    members: Short
    outcome: Annotated[Literal["joined", "failed", "cancelled"], "string"]
    t_us: Long
    """When it ended."""
    rtt_us: Annotated[int | None, "int64"]
    """A third of how long the slowest handshake took of those that the observer has begun for it, which are three round
    trips; null: it began none. Links that ride on a connection from before have no handshake to wait for."""


class Snapshot(Struct, array_like=True, tag=6, gc=False):
    """What was said before the observer's time has been fetched."""

    observer: Name
    group: Name
    rows: Long
    bytes_b: Long
    us: Long
    cuts: Short
    """How often a connection of the group was lost meanwhile."""
    outcome: Annotated[Literal["whole", "cut"], "string"]
    t_us: Long


class State(Struct, array_like=True, tag=7, gc=False):
    """What a newcomer is told of the members, at either end."""

    observer: Name
    group: Name
    sections: Short
    """Members that it tells of."""
    raw_b: Long
    zstd_b: Long
    t_us: Long


class Link(Struct, array_like=True, tag=8, gc=False):
    """A connection to a member has come up or gone down."""

    observer: Name
    peer: Name
    up: Flag
    reason: Annotated[Literal["dialled", "accepted", "silent", "closed", "stopped", "unknown"], "string"]
    us: Long
    """How long it had been the other way, as far as that was recorded."""
    t_us: Long


class Queue(Struct, array_like=True, tag=9, gc=False):
    """The most that was seen waiting in one minute, and what was dropped; minutes without either have no row.

    outbox: events of the observer's own that some member lacks; dropped: envelopes that the sockets did not take.
    limbo: events that wait for an earlier one; dropped: those for which there was no room. faces: bytes that faces have
    not read yet; nothing is dropped there."""

    observer: Name
    name: Annotated[Literal["outbox", "limbo", "faces"], "string"]
    high: Long
    drops: Long
    t_us: Long
    """When the minute began."""


class View(Struct, array_like=True, tag=10):
    """Who is in a group, when recording began and whenever that changes."""

    observer: Name
    group: Name
    roster: Annotated[list[int], "names"]
    checksum: Annotated[int, "class"]
    """Equal where the members see the same; of the view's checksum, 7 bytes of a hash."""
    t_us: Long


class Span(Struct, array_like=True, tag=11, gc=False):
    """From one moment to the next, all that came was recorded. While recording goes on, each span begins where the one
    before has ended; a hole between two is a time in which something came that was not recorded."""

    observer: Name
    """What stands for the profile, as in `Queue`."""
    t_from_us: Long
    t_us: Long


Fact: TypeAlias = Send | Recv | Ack | Repair | Join | Snapshot | State | Link | Queue | View | Span
KINDS: Final[dict[str, type[Fact]]] = {kind.__name__.lower(): kind for kind in get_args(Fact)}
"""By the name that an export has for them."""
ARROW: Final = {"name": "int64", "class": "int64", "lot": "int64", "names": "list<int64>"}


class Column(Struct, frozen=True):
    name: str
    what: Literal["name", "names", "class", "lot", "int64", "int32", "bool", "string"]
    optional: bool

    @property
    def type(self) -> str:
        """As Arrow calls it."""
        return ARROW.get(self.what, self.what)

    @property
    def is_time(self) -> bool:
        return self.name.startswith("t_")


@cache
def columns(kind: type[Fact]) -> tuple[Column, ...]:
    """The columns of a kind of facts, in the order of its fields."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for name in kind.__struct_fields__:
        shape, what = get_args(hints[name])
        found.append(Column(name, what, type(None) in get_args(shape)))
    return tuple(found)


@cache
def time_field(kind: type[Fact]) -> str:
    """The field that says when it was: the day of it is where an export has the fact."""
    times = [column.name for column in columns(kind) if column.is_time]
    return times[-1]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Fact])


def pack_rows(rows: Sequence[Fact]) -> bytes:
    """Facts as they are kept: MessagePack, compressed."""
    return compress(_ENCODER.encode(rows))


def unpack_rows(data: bytes) -> list[Fact]:
    """Facts as `pack_rows` has packed them. Raises Malformed, or msgspec's ValidationError."""
    return _DECODER.decode(decompress(data, BATCH_BYTES_MAX))


def names_in(rows: Iterable[Fact]) -> set[int]:
    """The numbers of all names in these facts."""
    found: set[int] = set()
    for row in rows:
        for column in columns(type(row)):
            if column.what == "name":
                found.add(getattr(row, column.name))
            elif column.what == "names":
                found.update(getattr(row, column.name))
    return found - {0}
