"""All that an agent has recorded, as whoever asks it at its control socket gets it."""

import base64
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zerochat.agent.telemetry.export import Name
from zerochat.agent.telemetry.schema import Fact, columns, unpack_rows
from zerochat.errors import LocalError
from zerochat.rpc.telemetry import TelemetryBatch, TelemetryNames, TelemetryRows


class DeletedMeanwhile(LocalError):
    """What was recorded was deleted while it was read, or has made room for what came since. Nothing is exported."""


Call = Callable[..., Any]
"""Asks the agent: the name of a method, and its params by name (`Client.call`)."""


def rows_of(batch: TelemetryBatch) -> list[Fact]:
    return unpack_rows(base64.b64decode(batch.data))


def newest(call: Call, count: int) -> list[Fact]:
    """The last `count` rows, oldest first."""
    page: TelemetryRows = call("telemetry_rows", newest=count)
    return [row for batch in page.batches for row in rows_of(batch)][-count:]


def end_of(call: Call) -> int:
    """The number of the last batch that there is now; 0: there is none. What comes later belongs to no export that has
    begun."""
    page: TelemetryRows = call("telemetry_rows", newest=1)
    return page.batches[-1].number if page.batches else 0


def names(call: Call) -> dict[int, Name]:
    """What the numbers in the rows stand for, but for groups that are forgotten."""
    found: dict[int, Name] = {}
    page: TelemetryNames = call("telemetry_names")
    while True:
        found |= {one.number: Name(one.group, one.did) for one in page.names}
        if not page.more:
            return found
        page = call("telemetry_names", after=page.names[-1].number)


def batches(call: Call, end: int) -> Iterator[list[Fact]]:
    """All rows up to the batch `end`, in the order in which they were recorded. Raises DeletedMeanwhile."""
    after = 0
    while after < end:
        page: TelemetryRows = call("telemetry_rows", after=after)
        numbers = [batch.number for batch in page.batches]
        if end not in numbers and not (numbers and numbers[-1] < end):
            raise DeletedMeanwhile
        for batch in page.batches:
            if batch.number <= end:
                yield rows_of(batch)
        after = numbers[-1]


def as_kept(row: Fact) -> Mapping[str, Any]:
    """Every field of a row, by name."""
    return {column.name: getattr(row, column.name) for column in columns(type(row))}
