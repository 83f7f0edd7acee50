"""Telemetry: whether it is recorded, and what of it there is."""

from typing import Annotated

from msgspec import Meta, Struct

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class TelemetryStatus(Struct, frozen=True):
    """Whether it is recorded how messages fare, and how much there is; answer of `telemetry`, `telemetry_set` and
    `telemetry_delete`."""

    on: bool
    """Somebody has asked for it."""
    recording: bool
    """And so it is."""
    forbidden: str
    """What forbids it whatever anybody asks for, as a sentence without its full stop; empty: nothing does."""
    question: list[str]
    """What somebody must have read who asks for it, a paragraph each."""
    consent: int
    """The number of that question."""
    since: str | None
    """When it was asked for."""
    rows: int
    bytes: int
    """What there is, compressed."""
    first: str | None
    last: str | None
    """From when to when."""
    mebibytes_max: int
    days_max: int
    deleted: int = 0
    """How many rows this request has deleted."""
    fault: str = ""
    """Why recording has ended by itself, although it was asked for, as a sentence; empty: it has not. It begins again
    with the next start of the agent, or when it is asked for anew."""


class TelemetrySetParams(Struct, frozen=True):
    """Record, or do not. `consent`: the number of the question that somebody has said yes to."""

    on: bool
    consent: int = 0


class TelemetryRowsParams(Struct, frozen=True):
    """Batches behind the one with the number `after`; or, with `newest`, the last ones, with so many rows or more."""

    after: Number = 0
    newest: Annotated[int, Meta(ge=0, le=10_000)] = 0


class TelemetryBatch(Struct, frozen=True):
    """Some rows, as they are kept."""

    number: int
    rows: int
    first_us: int
    last_us: int
    """Of the first and the last of them, in microseconds since 1970, UTC; others may be a little beyond."""
    data: str
    """Base64 of zstd of MessagePack: a list of arrays, each of a kind's number and its columns
    (`agent/telemetry/schema.py`)."""


class TelemetryRows(Struct, frozen=True):
    batches: list[TelemetryBatch]
    more: bool


class TelemetryNamesParams(Struct, frozen=True):
    """Names behind the one with the number `after`."""

    after: Number = 0


class TelemetryName(Struct, frozen=True):
    """What a number in a row stands for."""

    number: int
    group: str
    """The group's id; empty: no group's, and `did` stands for this profile."""
    did: str
    """A member of that group; empty: the group itself."""


class TelemetryNames(Struct, frozen=True):
    names: list[TelemetryName]
    more: bool
