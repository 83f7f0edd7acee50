"""The thesis' tables as one's own telemetry has them, and its figures beside: Tables 6 to 8, Figures 31 and 32.

Of telemetry alone: messages that were said in one go (`pipeline.batches.bursts`), joins as joiners tell of them, and
the bytes that went out. A benchmark that was recorded (`scripts/bench.py group --record DIR`) has measured the same
from where its faces are, and can be put beside (`Measured`).
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from analytics import thesis
from analytics.errors import NotMeasured
from analytics.results import Results, Row


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some figures (the median of times, the mean of bytes), and the range that they come from."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        if self.low == self.high:
            return figure(self.middle)
        return f"{figure(self.middle)} [{figure(self.low)}, {figure(self.high)}]"


def figure(value: float) -> str:
    """A number with as many digits as it is worth."""
    return f"{value:,.0f}" if abs(value) >= 1_000 or value == int(value) else f"{value:,.1f}"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a table: what it is of, how often, how much of it arrived, and the figure. `thesis`: its own one."""

    of: tuple[str | int, ...]
    count: int
    arrived: float
    figure: Spread | None
    thesis: float | None = None
    measured: Spread | None = None
    thesis_of: int | None = None
    """Where the line is of several sizes: of which of them the thesis has its figure."""

    def published(self) -> str:
        """The thesis' figure in words; empty where it has none."""
        if self.thesis is None:
            return ""
        return figure(self.thesis) + (f" ({self.thesis_of})" if self.thesis_of is not None else "")


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: tuple[str, ...]
    unit: str
    lines: Sequence[Line]


def spread(figures: Sequence[float]) -> Spread | None:
    return Spread(median(figures), min(figures), max(figures)) if figures else None


def gathered(rows: Sequence[Row], of: Callable[[Row], tuple[Any, ...]]) -> "dict[tuple[Any, ...], list[Row]]":
    found: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in rows:
        found[of(row)].append(row)
    return dict(sorted(found.items()))


# --- what a benchmark has measured itself -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of a benchmark, as it has written them beside its recording."""

    area: str
    runs: Sequence[Row]

    @classmethod
    def read(cls, file: Path) -> "Measured":
        """Raises NotMeasured."""
        try:
            told = json.loads(file.read_text(encoding="utf-8"))
            return cls(str(told["area"]), [dict(run) for run in told["runs"]])
        except (OSError, ValueError, KeyError, TypeError) as error:
            seen = (error.strerror or "").lower() if isinstance(error, OSError) else "what is there is none"
            raise NotMeasured(place=str(file), why=seen or "it cannot be read") from error

    def figures(self, area: str, name: str, **those: object) -> Spread | None:
        """What it has measured in the runs of which all of this is true."""
        return spread(
            [
                run[name]
                for run in self.runs
                if self.area == area and all(run[key] == value for key, value in those.items())
            ]
        )


NOTHING = Measured("", ())


# --- tables -----------------------------------------------------------------------------------------------------------


def tables(results: Results, measured: Measured = NOTHING) -> list[Table]:
    """Those for which there is anything."""
    made = (
        bursts(results, measured),
        *joins(results, measured),
        messages(results, measured),
        changes(results, measured),
        states(results),
    )
    return [table for table in made if table.lines]


def bursts(results: Results, measured: Measured = NOTHING) -> Table:
    """Table 8: until the last member's face is told of the last message; of bursts that arrived whole."""
    lines = []
    rows = gathered(results.rows("burst"), lambda row: (row["keys"], row["n"], row["messages"]))
    for (keys, members, batch), some in rows.items():
        published = thesis.WHOLE_MS.get(keys, {}).get(members)
        line = Line(
            (keys, members, batch),
            len(some),
            sum(row["delivered"] for row in some) / sum(row["expected"] for row in some),
            spread([row["shown_us"] / 1e3 for row in some if row["shown_us"] is not None]),
            published[thesis.BATCHES.index(batch)] if published and batch in thesis.BATCHES else None,
            measured.figures("group", "ms", keys=keys, members=members, batch=batch),
        )
        lines.append(line)
    return Table(
        "Table 8: messages at once (less than 1 s apart), until everyone is told",
        ("keys", "members", "messages"),
        "ms",
        lines,
    )


def joins(results: Results, measured: Measured = NOTHING) -> Iterator[Table]:
    """Tables 6 and 7: joins that succeeded, as the joiner tells of them, by how many were members before, and how many
    joined the group at once."""
    done = [
        row
        for row in results.rows("join")
        if (row["role"], row["outcome"]) == ("joiner", "joined") and row["whole_us"] is not None
    ]
    rows: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for together in _at_once(done):
        # The first of them to be let in found none of the others there.
        before = min(row["members"] if row["found"] is None else row["found"] for row in together)
        rows[before, len(together)] += together
    for how, name in (("from nothing", "from_nothing_ms"), ("from the request", "from_request_ms")):
        lines = []
        for (members, at_once), some in sorted(rows.items()):
            _, unknown = thesis.JOINED_MS.get(members, ((), ()))
            before_us = [row["request_us"] or 0 if name == "from_request_ms" else 0 for row in some]
            took_ms = [(row["whole_us"] - us) / 1e3 for row, us in zip(some, before_us, strict=True)]
            published = fmean(unknown) if unknown and at_once == 1 else None
            own = measured.figures("join", name, members=members, at_once=at_once)
            lines.append(Line((members, at_once), len(some), 1.0, spread(took_ms), published, own))
        yield Table(f"Tables 6 and 7: joining, {how}", ("members before", "at once"), "ms", lines)


def _at_once(joins: Sequence[Row]) -> Iterator[list[Row]]:
    """Joins of one group, as far as each overlaps with another one."""
    for some in gathered(joins, lambda row: (row["group"],)).values():
        together: list[Row] = []
        for row in sorted(some, key=lambda row: row["ended_us"] - row["whole_us"]):
            if together and row["ended_us"] - row["whole_us"] >= max(one["ended_us"] for one in together):
                yield together
                together = []
            together.append(row)
        yield together


SIZES_MAX = 16
"""So many sizes of texts have a line each. Of more, as whoever just writes has them, some share one."""


def messages(results: Results, measured: Measured = NOTHING) -> Table:
    """Figure 31: bytes of a text, and of its envelope for one member."""
    lines: list[Line] = []
    for (keys,), some in gathered(_of_kind(results, "message"), lambda row: (row["keys"],)).items():
        if len(some) > SIZES_MAX:
            lines += _by_magnitude(keys, some)
            continue
        lines += [
            Line(
                (row["keys"], row["of"]),
                row["rows"],
                1.0,
                Spread(row["sum_b"] / row["envelopes"], row["min_b"], row["max_b"]),
                thesis.MESSAGE_B.get(row["of"]),
                measured.figures("sizes", "bytes", kind="message", keys=row["keys"], of=row["of"]),
            )
            for row in some
        ]
    return Table("Figure 31: a message for one member", ("keys", "text (B)"), "B", lines)


def _by_magnitude(keys: str, rows: Sequence[Row]) -> Iterator[Line]:
    """One line for texts from a power of two to the next."""
    for (bits,), some in gathered(rows, lambda row: (row["of"].bit_length(),)).items():
        low, high = 2**bits // 2, max(0, 2**bits - 1)
        published = next((size for size in thesis.MESSAGE_B if low <= size <= high), None)
        yield Line(
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


def changes(results: Results, measured: Measured = NOTHING) -> Table:
    """Figure 32: what everyone else is told when somebody comes or goes; the thesis counts the one who comes, and who
    lets it in."""
    lines = [
        Line(
            (row["keys"], row["of"]),
            row["rows"],
            1.0,
            Spread(row["sum_b"] / row["rows"], row["min_b"], row["max_b"]),
            thesis.STATE_B.get(row["of"] + 2, (None, None))[1],
            measured.figures("sizes", "bytes", kind="change", keys=row["keys"], of=row["of"]),
        )
        for row in _of_kind(results, "change")
    ]
    return Table("Figure 32: a change of members, for all who are told", ("keys", "told"), "B", lines)


def states(results: Results) -> Table:
    """What a newcomer is told of the members, after compression."""
    lines = [
        Line((row["of"],), row["rows"], 1.0, Spread(row["sum_b"] / row["rows"], row["min_b"], row["max_b"]))
        for row in _of_kind(results, "state")
    ]
    return Table("What a newcomer is told of the members", ("members",), "B", lines)


def _of_kind(results: Results, kind: str) -> list[Row]:
    rows = [row for row in results.rows("sizes") if row["kind"] == kind]
    return sorted(rows, key=lambda row: (row["keys"] or "", row["of"]))


def words(table: Table) -> Iterator[str]:
    """A table for a terminal, line by line."""
    known = [line.measured for line in table.lines if line.measured is not None]
    beside = [line.thesis for line in table.lines if line.thesis is not None]
    of = "; the thesis' of (one size)" if any(line.thesis_of is not None for line in table.lines) else ""
    yield f"{table.title} ({table.unit})"
    yield f"in the middle, with [least, most]{of}"
    head = [
        *table.columns,
        "times",
        "arrived",
        "telemetry",
        *(["measured"] * bool(known)),
        *(["thesis"] * bool(beside)),
    ]
    cells = [head]
    for line in table.lines:
        row = [str(one) for one in line.of] + [str(line.count), f"{line.arrived:.2%}", str(line.figure or "not whole")]
        row += [str(line.measured or "")] * bool(known)
        row += [line.published()] * bool(beside)
        cells.append(row)
    widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
    for row in cells:
        yield "  " + "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
