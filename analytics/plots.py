"""Plots of a study with matplotlib: functions from results to a figure, or None without data."""

import io
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from statistics import fmean, median
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from analytics import thesis
from analytics.pipeline.schema import PHASES
from analytics.results import Results, short_id

BINS_PER_E = 50
SIZE_STEPS = (2, 4, 8, 16, 32, 64)
POINTS_MAX = 400
MEMBERS_SHOWN, MEMBERS_NAMED = 128, 24
JOINS_SHOWN = 30
OUTAGES_SHOWN = 200
LINES_SHOWN = 8
SILENT_MIN = 60
"""Minutes without a message that interrupt the line."""
SIZES_SHOWN = 2_000
"""Limits for plots; a plot that omits data says so."""
INK, FAINT, WARN = "#1b4965", "#bcccdc", "#c1121f"


def png(figure: Figure) -> bytes:
    file = io.BytesIO()
    # Without metadata, equal figures give equal files.
    figure.savefig(file, format="png", dpi=110, bbox_inches="tight", metadata={"Software": None})
    return file.getvalue()


def latencies(results: Results) -> Figure | None:
    """Share of deliveries within a time, by key mode and group size."""
    counts: dict[tuple[str, int], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    table = results.table("edge_hist").select(["keys", "n", "path", "dup", "bin", "rows"])
    for row in table.group_by(["keys", "n", "path", "dup", "bin"]).aggregate([("rows", "sum")]).to_pylist():
        if not row["dup"] and row["path"] != "history":
            size = next((step for step in SIZE_STEPS if row["n"] + 1 <= step), SIZE_STEPS[-1])
            counts[row["keys"], size][row["bin"]] += row["rows_sum"]
    if not counts:
        return None
    figure, axes = _axes("Deliveries within a time", "ms", "share")
    for (keys, size), bins in sorted(counts.items()):
        whole, upto, xs, ys = sum(bins.values()), 0, [], []
        for bin_, rows in sorted(bins.items()):
            upto += rows
            xs.append(2.718281828459045 ** ((bin_ + 1) / BINS_PER_E) / 1e3)
            ys.append(upto / whole)
        sizes = f"{size // 2 + 1} to {size}" if size > SIZE_STEPS[0] else str(size)
        axes.step(xs, ys, where="post", label=f"{keys}, {sizes} members")
    axes.set_xscale("log")
    axes.legend(loc="lower right", fontsize=8)
    return figure


def loss_heatmap(results: Results) -> Figure | None:
    """Share of lost messages for each pair of members."""
    table = results.table("edge").select(["sender", "observer", "evidence", "expected", "ratio"])
    table = table.filter(pc.and_(pc.equal(table["evidence"], "receipts"), pc.greater(table["expected"], 0)))
    if not table.num_rows:
        return None
    weight: dict[int, int] = defaultdict(int)
    for end in ("sender", "observer"):
        for row in table.group_by(end).aggregate([("expected", "sum")]).to_pylist():
            weight[row[end]] += row["expected_sum"]
    # The members with the most messages: a plot of all would grow quadratically.
    most = sorted(weight, key=lambda member: (-weight[member], member))[:MEMBERS_SHOWN]
    people, left = sorted(most), len(weight) - len(most)
    place = {member: number for number, member in enumerate(people)}
    shown = pa.array(people, pa.int64())
    cells = [[float("nan")] * len(people) for _ in people]
    for row in table.filter(
        pc.and_(pc.is_in(table["sender"], value_set=shown), pc.is_in(table["observer"], value_set=shown))
    ).to_pylist():
        cells[place[row["sender"]]][place[row["observer"]]] = 100 * (1 - row["ratio"])
    figure, axes = _axes("Lost messages (%)", "recipient", "sender")
    _note_omitted(axes, left, "members with fewer messages")
    picture = axes.imshow(cells, cmap="Reds", vmin=0)
    figure.colorbar(picture, ax=axes)
    names = [short_id(member) for member in people] if len(people) <= MEMBERS_NAMED else []
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.grid(visible=False)
    return figure


def over_time(results: Results) -> Figure | None:
    """Share of direct deliveries over time; outages are shaded, and times without messages are left blank."""
    table = results.table("minute").select(["minute", "expected", "direct"])
    rows = table.group_by(["minute"]).aggregate([("expected", "sum"), ("direct", "sum")]).to_pylist()
    if not rows:
        return None
    minutes = [row["minute"] for row in rows]
    step = max(1, -(-(max(minutes) - min(minutes) + 1) // POINTS_MAX))
    sums: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for row in rows:
        both = sums[row["minute"] // step * step]
        both[0] += row["expected_sum"]
        both[1] += row["direct_sum"]
    figure, axes = _axes(f"Direct deliveries per {step} min", "", "%")
    for run in _runs(sorted(sums), max(2 * step, SILENT_MIN)):
        times, shares = [_when(x * 60_000_000) for x in run], [100 * sums[x][1] / sums[x][0] for x in run]
        axes.plot(times, shares, color=INK, lw=1, marker="." if len(run) == 1 else "")
    outages = sorted(results.rows("outage"), key=lambda row: row["t_from_us"] - row["t_to_us"])
    _note_omitted(axes, len(outages) - OUTAGES_SHOWN, "shorter outages")
    for row in outages[:OUTAGES_SHOWN]:
        # The edge keeps very short outages visible.
        axes.axvspan(_when(row["t_from_us"]), _when(row["t_to_us"]), color=WARN, alpha=0.15, lw=0.8)
    axes.set_ylim(bottom=0)
    figure.autofmt_xdate()
    return figure


def _runs(places: list[int], apart: int) -> list[list[int]]:
    """Sorted numbers, split where more than `apart` are missing."""
    runs: list[list[int]] = []
    for place in places:
        if runs and place - runs[-1][-1] <= apart:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def time_to_all(results: Results) -> Figure | None:
    """Time until all recipients have a message, by group size; with the thesis's Table 8."""
    rows = [
        row for row in results.rows("keys_path_size") if row["grain"] == "message" and row["whole_p50_us"] is not None
    ]
    if not rows:
        return None
    figure, axes = _axes("Time until all recipients have a message (median, p99)", "recipients", "ms")
    by: dict[tuple[str, int], list[tuple[int, float, float]]] = defaultdict(list)
    for row in rows:
        # The batch is unknown for authors without an export.
        by[row["keys"], row["batch"] or 0].append((row["n"], row["whole_p50_us"] / 1e3, row["whole_p99_us"] / 1e3))
    _note_omitted(axes, len(by) - LINES_SHOWN, "further key modes and batches")
    for (keys, batch), points in sorted(by.items())[:LINES_SHOWN]:
        points.sort()
        [line] = axes.plot(
            [n for n, *_ in points], [mid for _, mid, _ in points], "o-", label=f"{keys}, batch of {batch}"
        )
        axes.plot([n for n, *_ in points], [high for *_, high in points], "^:", color=line.get_color(), lw=0.8, ms=4)
    for keys in sorted({row["keys"] for row in rows} & thesis.WHOLE_MS.keys()):
        published = thesis.WHOLE_MS[keys]
        axes.plot(
            list(published), [times[0] for times in published.values()], "x--", color=FAINT, label=f"thesis, {keys}, 1"
        )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    return figure


def joins(results: Results) -> Figure | None:
    """Duration of each phase of a join; with the thesis's Table 6."""
    rows = [row for row in results.rows("join") if row["outcome"] == "joined" and row["role"] == "joiner"]
    if not rows:
        return None
    figure, axes = _axes("Phases of a join", "members before", "ms")
    every = sorted({row["members"] for row in rows})
    sizes = every[:JOINS_SHOWN]
    _note_omitted(axes, len(every) - len(sizes), "larger groups")
    floor = [0.0] * len(sizes)
    for phase in PHASES[:-1]:
        took = [median((row[f"{phase}_us"] or 0) / 1e3 for row in rows if row["members"] == size) for size in sizes]
        axes.bar(range(len(sizes)), took, bottom=floor, label=phase)
        floor = [low + high for low, high in zip(floor, took, strict=True)]
    beside = [(place, thesis.JOINED_MS[size][0]) for place, size in enumerate(sizes) if size in thesis.JOINED_MS]
    if beside:
        axes.plot(
            [place for place, _ in beside], [fmean(known) for _, known in beside], "kx", label="thesis, connected"
        )
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.legend(fontsize=8)
    return figure


def sizes(results: Results) -> Figure | None:
    """Size of messages and membership states; with the thesis's Figures 31 and 32."""
    rows = results.rows("sizes")
    if not rows:
        return None
    figure, axes = _axes("Bytes on the wire", "text length in bytes, or members", "bytes")
    messages, left = [row for row in rows if row["kind"] == "message"], 0
    for keys in sorted({row["keys"] for row in messages}):
        points = sorted((row["of"], row["sum_b"] / row["envelopes"]) for row in messages if row["keys"] == keys)
        # Of very many lengths, a sample shows the line.
        some = points[:: -(-len(points) // SIZES_SHOWN)]
        left += len(points) - len(some)
        axes.plot([x for x, _ in some], [y for _, y in some], ".", ms=4, label=f"message, {keys}")
    _note_omitted(axes, left, "text lengths")
    states = sorted((row["of"], row["sum_b"] / row["rows"]) for row in rows if row["kind"] == "state")
    if states:
        axes.plot([x for x, _ in states], [y for _, y in states], "s-", label="membership state")
    changes = sorted((row["of"] + 2, row["sum_b"] / row["rows"]) for row in rows if row["kind"] == "change")
    if changes:
        axes.plot([x for x, _ in changes], [y for _, y in changes], "d", ms=4, label="membership change, all envelopes")
    axes.plot(list(thesis.MESSAGE_B), list(thesis.MESSAGE_B.values()), "x--", color=FAINT, label="thesis, message")
    axes.plot(
        list(thesis.STATE_B), [after for _, after in thesis.STATE_B.values()], "+--", color=FAINT, label="thesis, state"
    )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.legend(fontsize=8)
    return figure


PLOTS: dict[str, Callable[[Results], Figure | None]] = {
    "Latency": latencies,
    "Losses by pair": loss_heatmap,
    "Over time": over_time,
    "Time to all recipients": time_to_all,
    "Joins": joins,
    "Sizes": sizes,
}


def _note_omitted(axes: Any, count: int, what: str) -> None:
    """State in the title what a plot omits."""
    if count > 0:
        axes.set_title(f"{axes.get_title()}\nwithout {count:,} {what}", fontsize=11)


def _when(us: int) -> datetime:
    return datetime.fromtimestamp(us / 1e6, UTC)


def _axes(title: str, across: str, up: str) -> tuple[Figure, Any]:
    figure = Figure(figsize=(7.5, 4.2))
    axes = figure.subplots()
    axes.set_title(title, fontsize=11)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(visible=True, color=FAINT, lw=0.4)
    return figure, axes
