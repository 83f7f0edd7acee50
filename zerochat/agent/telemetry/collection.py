"""Telemetry of an agent, read over its control socket in pages."""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zerochat.agent.telemetry.export import Subject
from zerochat.agent.telemetry.schema import Record, columns, unpack_rows
from zerochat.errors import LocalError
from zerochat.rpc.telemetry import TelemetryBatch, TelemetryNames, TelemetryRows


class DeletedMeanwhile(LocalError):
    """The records were deleted or replaced by newer ones during the export; nothing was exported. Try again."""


Call = Callable[..., Any]
"""RPC: the name of a method, and its params by name (`Client.call`)."""


def records_in(batch: TelemetryBatch) -> list[Record]:
    return unpack_rows(base64.b64decode(batch.data))


def newest(call: Call, count: int) -> list[Record]:
    """The last `count` records, oldest first."""
    page: TelemetryRows = call("get_telemetry_rows", newest=count)
    return [row for batch in page.batches for row in records_in(batch)][-count:]


def last_batch(call: Call) -> int:
    """Number of the newest batch; 0: none. An export that has begun ignores later batches."""
    page: TelemetryRows = call("get_telemetry_rows", newest=1)
    return page.batches[-1].number if page.batches else 0


def names(call: Call) -> dict[int, Subject]:
    """Subjects by name number, without those of forgotten groups."""
    found: dict[int, Subject] = {}
    page: TelemetryNames = call("get_telemetry_names")
    while True:
        found |= {one.number: Subject(one.group, one.did) for one in page.names}
        if not page.more:
            return found
        page = call("get_telemetry_names", after=page.names[-1].number)


def batches(call: Call, end: int) -> Iterator[list[Record]]:
    """All records up to batch `end`, oldest first. Raises DeletedMeanwhile."""
    after = 0
    while after < end:
        page: TelemetryRows = call("get_telemetry_rows", after=after)
        numbers = [batch.number for batch in page.batches]
        if end not in numbers and not (numbers and numbers[-1] < end):
            raise DeletedMeanwhile
        for batch in page.batches:
            if batch.number <= end:
                yield records_in(batch)
        after = numbers[-1]


def as_dict(row: Record) -> Mapping[str, Any]:
    """The fields of a record, by name."""
    return {column.name: getattr(row, column.name) for column in columns(type(row))}
