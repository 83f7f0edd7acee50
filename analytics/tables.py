"""Tables of the ZeroComm thesis computed from telemetry, next to its figures: Tables 6 to 8, Figures 27, 28, 31, 32.

From telemetry alone: bursts of messages (`pipeline.bursts.bursts`), joins as seen by joiners, and bytes sent. A
recorded benchmark (`scripts/bench.py group --record DIR`) has measured the same from its clients, and can be compared
(`Benchmark`).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from analytics import thesis
from analytics.errors import NoBenchmark
from analytics.results import Results, Row


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of times or mean of bytes, with minimum and maximum."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return format_number(self.middle)
        return f"{format_number(self.middle)} [{format_number(self.low)}, {format_number(self.high)}]"


def format_number(value: float) -> str:
    """A number with a sensible number of digits."""
    return f"{value:,.0f}" if abs(value) >= 1_000 or value == int(value) else f"{value:,.1f}"


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: its case, number of samples, fraction delivered, and figure. `thesis`: the thesis's figure."""

    of: tuple[str | int, ...]
    count: int
    arrived: float
    figure: Spread | None
    thesis: float | None = None
    measured: Spread | None = None
    thesis_of: int | None = None
    """For a row over several sizes: the size of the thesis's figure."""

    def published(self) -> str:
        """The thesis's figure as text; empty if there is none."""
        if self.thesis is None:
            return ""
        return format_number(self.thesis) + (f" ({self.thesis_of})" if self.thesis_of is not None else "")


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    unit: str
    rows: Sequence[TableRow]


def spread(figures: Sequence[float]) -> Spread | None:
    return Spread(median(figures), min(figures), max(figures)) if figures else None


def group_rows(rows: Sequence[Row], of: Callable[[Row], tuple[Any, ...]]) -> "dict[tuple[Any, ...], list[Row]]":
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[of(row)].append(row)
    return dict(sorted(found.items()))


# --- benchmark figures ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The runs of a benchmark, as written next to its recording."""

    area: str
    runs: Sequence[Row]

    @classmethod
    def read(cls, file: Path) -> "Benchmark":
        """Read measured.json. Raises NoBenchmark."""
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            return cls(str(told["area"]), [dict(run) for run in told["runs"]])
        except (OSError, ValueError, KeyError, TypeError) as error:
            seen = (error.strerror or "").lower() if isinstance(error, OSError) else "its content is invalid"
            raise NoBenchmark(place=str(file), why=seen or "it cannot be read") from error

    def figures(self, area: str, name: str, **those: object) -> Spread | None:
        """The figures of the runs with these properties."""
        return spread(
            [
                run[name]
                for run in self.runs
                if self.area == area and all(run[key] == value for key, value in those.items())
            ]
        )


NO_BENCHMARK = Benchmark("", ())


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(results: Results, measured: Benchmark = NO_BENCHMARK) -> list[Table]:
    """The tables for which there is data."""
    made = (
        bursts(results, measured),
        *joins(results, measured),
        messages(results, measured),
        changes(results, measured),
        states(results),
    )
    return [table for table in made if table.rows]


def bursts(results: Results, measured: Benchmark = NO_BENCHMARK) -> Table:
    """Table 8 and Figures 27, 28: time until the last recipient's client shows the last message, for fully delivered
    bursts."""
    lines = []
    rows = group_rows(results.rows("burst"), lambda row: (row["keys"], row["n"], row["messages"]))
    for (keys, members, batch), some in rows.items():
        line = TableRow(
            (keys, members, batch),
            len(some),
            sum(row["delivered"] for row in some) / sum(row["expected"] for row in some),
            spread([row["shown_us"] / 1e3 for row in some if row["shown_us"] is not None]),
            thesis.whole_ms(keys, members, batch),
            measured.figures("group", "ms", keys=keys, members=members, batch=batch),
        )
        lines.append(line)
    return Table(
        "Table 8, Figures 27 and 28: bursts of messages (less than 1 s apart), until all recipients show them",
        ("keys", "members", "messages"),
        "ms",
        lines,
    )


def joins(results: Results, measured: Benchmark = NO_BENCHMARK) -> Iterator[Table]:
    """Tables 6 and 7: successful joins as seen by the joiner, by members before and concurrent joiners."""
    done = [
        row
        for row in results.rows("join")
        if (row["role"], row["outcome"]) == ("joiner", "joined") and row["whole_us"] is not None
    ]
    rows: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for together in _overlapping(done):
        # The first joiner found none of the others in the group.
        before = min(row["members"] if row["found"] is None else row["found"] for row in together)
        rows[before, len(together)] += together
    for how, name in (("in total", "from_nothing_ms"), ("from the request", "from_request_ms")):
        lines = []
        for (members, at_once), some in sorted(rows.items()):
            _, unknown = thesis.JOINED_MS.get(members, ((), ()))
            before_us = [row["request_us"] or 0 if name == "from_request_ms" else 0 for row in some]
            took_ms = [(row["whole_us"] - us) / 1e3 for row, us in zip(some, before_us, strict=True)]
            published = fmean(unknown) if unknown and at_once == 1 else None
            own = measured.figures("join", name, members=members, at_once=at_once)
            lines.append(TableRow((members, at_once), len(some), 1.0, spread(took_ms), published, own))
        yield Table(f"Tables 6 and 7: joins, {how}", ("members before", "concurrent"), "ms", lines)


def _overlapping(joins: Sequence[Row]) -> Iterator[list[Row]]:
    """Joins of one group that overlap in time."""
    for some in group_rows(joins, lambda row: (row["group"],)).values():
        together: list[Row] = []
        for row in sorted(some, key=lambda row: row["ended_us"] - row["whole_us"]):
            if together and row["ended_us"] - row["whole_us"] >= max(one["ended_us"] for one in together):
                yield together
                together = []
            together.append(row)
        yield together


SIZES_MAX = 16
"""Up to this many text sizes have a row each; of more, several share one."""


def messages(results: Results, measured: Benchmark = NO_BENCHMARK) -> Table:
    """Figure 31: bytes of a text and of its envelope for one recipient."""
    lines: list[TableRow] = []
    for (keys,), some in group_rows(_of_kind(results, "message"), lambda row: (row["keys"],)).items():
        if len(some) > SIZES_MAX:
            lines += _by_magnitude(keys, some)
            continue
        lines += [
            TableRow(
                (row["keys"], row["of"]),
                row["rows"],
                1.0,
                Spread(row["sum_b"] / row["envelopes"], row["min_b"], row["max_b"]),
                thesis.MESSAGE_B.get(row["of"]),
                measured.figures("sizes", "bytes", kind="message", keys=row["keys"], of=row["of"]),
            )
            for row in some
        ]
    return Table("Figure 31: envelope of a message for one recipient", ("keys", "text (B)"), "B", lines)


def _by_magnitude(keys: str, rows: Sequence[Row]) -> Iterator[TableRow]:
    """One row per power of two."""
    for (bits,), some in group_rows(rows, lambda row: (row["of"].bit_length(),)).items():
        low, high = 2**bits // 2, max(0, 2**bits - 1)
        published = next((size for size in thesis.MESSAGE_B if low <= size <= high), None)
        yield TableRow(
            (keys, str(low) if low == high else f"{low}-{high}"),
            sum(row["rows"] for row in some),
            1.0,
            Spread(
                sum(row["sum_b"] for row in some) / sum(row["envelopes"] for row in some),
                min(row["min_b"] for row in some),
                max(row["max_b"] for row in some),
            ),
            None if published is None else thesis.MESSAGE_B[published],
            thesis_of=published,
        )


def changes(results: Results, measured: Benchmark = NO_BENCHMARK) -> Table:
    """Figure 32: bytes sent to everyone else for a membership change; the thesis also counts the joiner and the
    inviter."""
    lines = [
        TableRow(
            (row["keys"], row["of"]),
            row["rows"],
            1.0,
            Spread(row["sum_b"] / row["rows"], row["min_b"], row["max_b"]),
            thesis.STATE_B.get(row["of"] + 2, (None, None))[1],
            measured.figures("sizes", "bytes", kind="change", keys=row["keys"], of=row["of"]),
        )
        for row in _of_kind(results, "change")
    ]
    return Table("Figure 32: membership change, all envelopes", ("keys", "recipients"), "B", lines)


def states(results: Results) -> Table:
    """Bytes of the membership state that a joiner receives, compressed."""
    lines = [
        TableRow((row["of"],), row["rows"], 1.0, Spread(row["sum_b"] / row["rows"], row["min_b"], row["max_b"]))
        for row in _of_kind(results, "state")
    ]
    return Table("Membership state for a joiner", ("members",), "B", lines)


def _of_kind(results: Results, kind: str) -> list[Row]:
    rows = [row for row in results.rows("sizes") if row["kind"] == kind]
    return sorted(rows, key=lambda row: (row["keys"] or "", row["of"]))


def render(table: Table) -> Iterator[str]:
    """A table for the terminal, line by line."""
    known = [line.measured for line in table.rows if line.measured is not None]
    beside = [line.thesis for line in table.rows if line.thesis is not None]
    of = "; thesis: (its size)" if any(line.thesis_of is not None for line in table.rows) else ""
    yield f"{table.title} ({table.unit})"
    yield f"median [minimum, maximum]{of}"
    head = [
        *table.columns,
        "samples",
        "delivered",
        "telemetry",
        *(["measured"] * bool(known)),
        *(["thesis"] * bool(beside)),
    ]
    cells = [head]
    for line in table.rows:
        row = [str(one) for one in line.of] + [str(line.count), f"{line.arrived:.2%}", str(line.figure or "incomplete")]
        row += [str(line.measured or "")] * bool(known)
        row += [line.published()] * bool(beside)
        cells.append(row)
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for row in cells:
        yield "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
