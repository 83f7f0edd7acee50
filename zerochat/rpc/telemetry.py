"""Delivery telemetry: consent, recorded rows and pseudonyms."""

from typing import Annotated

from msgspec import Meta, Struct

Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class TelemetryStatus(Struct, frozen=True):
    """Whether delivery telemetry is recorded, and how much of it is stored."""

    on: bool
    """The user has turned it on."""
    recording: bool
    """It is being recorded."""
    forbidden: str
    """Why it is forbidden, as a sentence without full stop; empty: it is allowed."""
    question: list[str]
    """The paragraphs that the user must read before consenting."""
    consent: int
    """The version of that question."""
    since: str | None
    """When the user turned it on."""
    rows: int
    bytes: int
    """The compressed size."""
    first: str | None
    last: str | None
    """The time range of the rows."""
    mebibytes_max: int
    days_max: int
    deleted: int = 0
    """The number of rows that this request deleted."""
    fault: str = ""
    """Why recording stopped by itself, as a sentence; empty: it did not. It resumes at the next start or when turned on
    again."""


class TelemetrySetParams(Struct, frozen=True):
    """Turn telemetry on or off. `consent`: the version of the question that the user agreed to."""

    on: bool
    consent: int = 0


class TelemetryRowsParams(Struct, frozen=True):
    """The batches after the number `after`; or, with `newest`, the last batches with at least that many rows."""

    after: Number = 0
    newest: Annotated[int, Meta(ge=0, le=10_000)] = 0


class TelemetryBatch(Struct, frozen=True):
    """Compressed rows."""

    number: int
    rows: int
    first_us: int
    last_us: int
    """The times of the first and the last row in microseconds since 1970, UTC; other rows may be slightly outside."""
    data: str
    """Base64 of zstd of MessagePack: a list of arrays, each of a kind's number and its columns
    (`agent/telemetry/schema.py`)."""


class TelemetryRows(Struct, frozen=True):
    batches: list[TelemetryBatch]
    more: bool


class TelemetryNamesParams(Struct, frozen=True):
    """The pseudonyms after the number `after`."""

    after: Number = 0


class TelemetryName(Struct, frozen=True):
    """What a number in the rows stands for."""

    number: int
    group: str
    """The group's id; empty: none, and `did` is this profile."""
    did: str
    """A member of the group; empty: the group itself."""


class TelemetryNames(Struct, frozen=True):
    names: list[TelemetryName]
    more: bool
