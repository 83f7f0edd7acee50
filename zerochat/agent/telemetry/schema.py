"""Schema of delivery telemetry: one table of record kinds, fields, types and units.

Everything else follows from this table: the journal's encoding, the Parquet columns of an export, the Spark schema
(`analytics/pipeline/schema.py`) and the field list in README.md. A new field is one line here.

A field is `Annotated[type, role, description]`. Names say their units: `_us` microseconds (`t_*_us`: since 1970, UTC),
`_b` bytes. Times follow the clock that the other members know this agent by (`Transaction.now`). A `Literal` type is a
closed vocabulary. In the journal the roles `name` and `names` are numbers of names (`store.py`), 0 meaning none; an
export replaces them by pseudonyms.

`gc=False`: records contain no references to containers, and thousands wait to be written; the garbage collector would
traverse them again and again.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct

from zerochat.crypto.compression import compress, decompress

SCHEMA_VERSION: Final = 1
UNPACKED_BYTES_MAX: Final = 1 << 24
"""Limit for one decompressed batch, in bytes; a recorder writes far smaller ones."""

Observer: TypeAlias = Annotated[int, "name", "the recording member"]
InGroup: TypeAlias = Annotated[int, "name", "the group"]
KeyMode: TypeAlias = Literal["pairwise-multi", "pairwise-single", "sender-key", "dcgka", "deniable"]
Keys: TypeAlias = Annotated[KeyMode, "string", "key mode of the group"]
Kind: TypeAlias = Literal["message", "membership", "annotation"]
EventKind: TypeAlias = Annotated[
    Kind, "string", "event class; `annotation` is any event that is neither a message nor about membership"
]
RecvPath: TypeAlias = Literal["direct", "retransmission", "history", "mediator"]


class Send(Struct, array_like=True, tag=1, gc=False):
    """Events of the observer were handed to the sockets at the end of a batch."""

    observer: Observer
    group: InGroup
    seq: Annotated[int, "int64", "position in the observer's chain, which counts events of all kinds"]
    keys: Keys
    path: Annotated[Literal["direct", "mediator", "mixed"], "string", "how the envelopes left"]
    accountability: Annotated[str, "string", "accountability mode of the group"]
    n: Annotated[int, "int32", "recipients, reachable or not"]
    batch: Annotated[int, "int32", "events of the observer that left in the same batch"]
    t_send_us: Annotated[int, "int64", "timestamp of the event, millisecond precision"]
    queue_us: Annotated[int, "int64", "from the agent's wake-up to the hand-over to the sockets; commit included"]
    plain_b: Annotated[int, "int64", "UTF-8 length of a message's text; of other events the length of the JSON body"]
    env_b: Annotated[int, "int64", "this event's share of all envelopes"]
    envelopes: Annotated[int, "int32", "envelopes; 0: no recipient was reachable, the event log delivers it later"]
    kind: EventKind


class Recv(Struct, array_like=True, tag=2, gc=False):
    """An event of another member was received."""

    observer: Observer
    group: InGroup
    sender: Annotated[int, "name", "author of the event"]
    seq: Annotated[int, "int64", "position in the author's chain"]
    keys: Keys
    kind: EventKind
    n: Annotated[int, "int32", "members in the observer's view, without the author"]
    t_send_us: Annotated[int, "int64", "the author's timestamp, millisecond precision, by the author's clock"]
    t_recv_us: Annotated[int, "int64", "when the agent began to process the envelope"]
    decrypt_us: Annotated[int, "int64", "processing time of the envelope; the same for all its events"]
    hold_us: Annotated[int, "int64", "time in the reorder buffer; 0: delivered at once"]
    display_us: Annotated[int | None, "int64", "from `t_recv_us` until written to a client's socket; null: no client"]
    path: Annotated[RecvPath, "string", "how the event arrived"]
    dup: Annotated[bool, "bool", "duplicate of a stored event"]
    late: Annotated[bool, "bool", "a later event was displayed before this one"]
    env_b: Annotated[int, "int64", "this event's share of its envelope"]
    plain_b: Annotated[int, "int64", "as in `send`"]


class Ack(Struct, array_like=True, tag=3, gc=False):
    """A member acknowledged a prefix of the observer's chain."""

    observer: Observer
    group: InGroup
    member: Annotated[int, "name", "the acknowledging member"]
    upto: Annotated[int, "int64", "last acknowledged position"]
    t_ack_us: Annotated[int, "int64", "when the acknowledgement was processed"]
    path: Annotated[Literal["direct", "mediator"], "string", "how the acknowledgement arrived"]


class Gap(Struct, array_like=True, tag=4, gc=False):
    """A missing range of an author's chain was requested."""

    observer: Observer
    group: InGroup
    sender: Annotated[int, "name", "author of the chain"]
    peer: Annotated[int, "name", "member that the range was requested from"]
    after: Annotated[int, "int64", "last position before the gap"]
    upto: Annotated[int, "int64", "last missing position"]
    t_us: Annotated[int, "int64", "when the gap was detected"]
    us: Annotated[int | None, "int64", "until the range arrived; null: never"]
    outcome: Annotated[Literal["answered", "unanswered"], "string", "whether the range arrived"]


class Join(Struct, array_like=True, tag=5, gc=False):
    """One completed phase of a join; `whole` is the sum of the phases."""

    observer: Observer
    group: InGroup
    attempt: Annotated[int, "random", "random id of the join, the same in all its phases"]
    role: Annotated[Literal["joiner", "acceptor"], "string", "which end of the join the observer is"]
    connected: Annotated[bool, "bool", "every dialled member already had a connection to the observer in another group"]
    phase: Annotated[
        Literal["request", "view", "exchanges", "subscriptions", "announce", "whole"], "string", "phase that ended"
    ]
    us: Annotated[int, "int64", "duration of the phase"]
    members: Annotated[int, "int32", "members of the group"]
    outcome: Annotated[Literal["joined", "failed", "cancelled"], "string", "result of the join"]
    t_us: Annotated[int, "int64", "end of the phase"]
    rtt_us: Annotated[
        int | None, "int64", "a third of the slowest handshake (three round trips); null: none was started"
    ]


class Backfill(Struct, array_like=True, tag=6, gc=False):
    """Backfill of the history from before the observer joined has ended."""

    observer: Observer
    group: InGroup
    rows: Annotated[int, "int64", "events received"]
    bytes_b: Annotated[int, "int64", "their size"]
    us: Annotated[int, "int64", "duration"]
    disconnects: Annotated[int, "int32", "connections of the group that were lost meanwhile"]
    outcome: Annotated[Literal["whole", "cut"], "string", "whether anything is missing"]
    t_us: Annotated[int, "int64", "end of the backfill"]


class State(Struct, array_like=True, tag=7, gc=False):
    """Size of the membership state that a joiner receives, at either end."""

    observer: Observer
    group: InGroup
    members: Annotated[int, "int32", "members in the state"]
    raw_b: Annotated[int, "int64", "size of the membership events as JSON"]
    zstd_b: Annotated[int, "int64", "the same, compressed"]
    t_us: Annotated[int, "int64", "when it was sent or received"]


class Link(Struct, array_like=True, tag=8, gc=False):
    """A connection to a member came up or went down."""

    observer: Observer
    peer: Annotated[int, "name", "the member at the other end"]
    up: Annotated[bool, "bool", "the new state"]
    reason: Annotated[
        Literal["dialled", "accepted", "silent", "closed", "stopped", "unknown"], "string", "cause of the change"
    ]
    us: Annotated[int, "int64", "time in the previous state, as far as it was recorded"]
    t_us: Annotated[int, "int64", "when the state changed"]


class Queue(Struct, array_like=True, tag=9, gc=False):
    """Peak of a queue in one minute, and drops; minutes without either have no row.

    outbox: the observer's events that some member lacks; drops: envelopes that the sockets refused. reorder_buffer:
    events that wait for an earlier one; drops: those that did not fit. clients: bytes that clients have not read yet;
    nothing is dropped there."""

    observer: Observer
    name: Annotated[Literal["outbox", "reorder_buffer", "clients"], "string", "the queue"]
    high: Annotated[int, "int64", "peak, sampled about every 10 s: events, or bytes for `clients`"]
    drops: Annotated[int, "int64", "items dropped"]
    t_us: Annotated[int, "int64", "start of the minute"]


class View(Struct, array_like=True, tag=10):
    """Membership of a group: at the start of recording, at every change, twice a day."""

    observer: Observer
    group: InGroup
    roster: Annotated[list[int], "names", "the members"]
    checksum: Annotated[int, "digest", "7 bytes of a hash of the view's checksum; equal views have equal values"]
    t_us: Annotated[int, "int64", "when the view was installed"]


class Span(Struct, array_like=True, tag=11, gc=False):
    """An interval in which every received event was recorded. Consecutive spans are adjacent; a hole between two means
    that something was received and not recorded."""

    observer: Observer
    t_from_us: Annotated[int, "int64", "start of the interval"]
    t_us: Annotated[int, "int64", "end of the interval"]


Record: TypeAlias = Send | Recv | Ack | Gap | Join | Backfill | State | Link | Queue | View | Span
KINDS: Final[dict[str, type[Record]]] = {kind.__name__.lower(): kind for kind in get_args(Record)}
"""Record types by their names in an export."""
Role: TypeAlias = Literal["name", "names", "digest", "random", "int64", "int32", "bool", "string"]
ARROW_TYPES: Final[dict[str, str]] = {
    "name": "int64",
    "digest": "int64",
    "random": "int64",
    "names": "list<int64>",
}
"""Arrow's type of a role, where it is not the role's own name."""


class Column(Struct, frozen=True):
    name: str
    role: Role
    optional: bool
    words: tuple[str, ...]
    """The closed vocabulary of the column; empty: none."""
    text: str
    """Description, for the README."""

    @property
    def type(self) -> str:
        """The Arrow type."""
        return ARROW_TYPES.get(self.role, self.role)

    @property
    def is_time(self) -> bool:
        return self.name.startswith("t_")


@cache
def columns(kind: type[Record]) -> tuple[Column, ...]:
    """The columns of a record kind, in field order."""
    hints = get_type_hints(kind, include_extras=True)
    found = []
    for name in kind.__struct_fields__:
        shape, role, text = get_args(hints[name])
        optional = get_origin(shape) in (UnionType, Union) and type(None) in get_args(shape)
        words: tuple[Any, ...] = get_args(shape) if get_origin(shape) is Literal else ()
        found.append(Column(name, role, optional, words, text))
    return tuple(found)


@cache
def time_field(kind: type[Record]) -> str:
    """The field that dates a record; an export partitions by its day."""
    times = [column.name for column in columns(kind) if column.is_time]
    return times[-1]


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Record])


def pack_rows(rows: Sequence[Record]) -> bytes:
    """Records as the journal stores them: MessagePack, compressed with zstd."""
    return compress(_ENCODER.encode(rows))


def unpack_rows(data: bytes) -> list[Record]:
    """Inverse of `pack_rows`. Raises Malformed, or msgspec's ValidationError."""
    return _DECODER.decode(decompress(data, UNPACKED_BYTES_MAX))


def name_numbers(rows: Iterable[Record]) -> set[int]:
    """The numbers of all names in these records."""
    found: set[int] = set()
    for row in rows:
        for column in columns(type(row)):
            if column.role == "name":
                found.add(getattr(row, column.name))
            elif column.role == "names":
                found.update(getattr(row, column.name))
    return found - {0}
