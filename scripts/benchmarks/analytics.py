"""A study of telemetry: from exports to tables, in Spark, next to DuckDB with the same work in the same run.

The work: every file is verified (size, SHA-256, footer, owner of its rows), every row is validated, and the tables
message, edge_hist, edge, minute and outage are written with all columns. Spark also writes its bronze and silver
tables, from which it resumes after an interruption; the others keep theirs in memory. The naive form (`ours/naive.py`)
writes four tables with fewer columns and verifies no files.

The exports are simulated (members x messages, with outages, losses, retransmissions and wrong clocks). The results of
all engines are compared row by row; if they differ, no figures are printed. Every engine is a process of its own, timed
from start to exit. On one machine Spark is several times slower than the others; it is used because the same code runs
on a cluster. The area also measures how time grows from a quarter of the data to all of it, and the notebook over the
sample.

`--members N --messages N` make it smaller (64 and 200,000); with `--keep FOLDER` the exports are generated once.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ROOT, Figure, Report, Row, Scale, scaled

MEMBERS, MESSAGES = 64, 200_000
MEMBERS_QUICK, MESSAGES_QUICK = 6, 2_000
HOURS = 7 * 24.0
WORK = (
    "Spark and DuckDB verify every file (size, SHA-256, footer, observers of its rows) and validate every row.",
    "Both write message, edge_hist, edge, minute and outage; all columns are compared.",
    "Spark also writes its bronze and silver tables, from which it resumes; DuckDB keeps those in memory.",
    "Naive Spark: four of the tables, fewer columns, no verification of files.",
)
"""The description of each engine, printed with the figures."""
PARTS = (4, 2, 1)
"""Which part of the messages: for how time grows."""
TURNS = 3
"""Rounds of Spark and DuckDB, in turn; background load is a twentieth of either."""
TIMES_DUCKDB_MAX, OF_NAIVE_MAX, GROWTH_MAX, JAVA_MB_MAX = 8.0, 0.7, 4.0, 2_560.0
NOTEBOOK_S_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The cost of one engine: `wall_s` from the start of its process to its exit, `cpu_s` over all processors."""

    wall_s: float
    cpu_s: float
    inner_s: float
    mb: float
    steps: dict[str, float]


class Unequal(Exception):
    """Two engines have found different things."""


def options(parser: argparse.ArgumentParser) -> None:
    """The options of this area."""
    parser.add_argument("--members", type=int, help=f"of the simulated group ({MEMBERS})")
    parser.add_argument("--messages", type=int, help=f"in it ({MESSAGES})")
    parser.add_argument("--keep", type=Path, help="a folder in which exports stay for the next time")


def measure(quick: bool, members: int | None = None, messages: int | None = None, keep: Path | None = None) -> Report:
    members = members or scaled(quick, MEMBERS, MEMBERS_QUICK, 3)
    messages = messages or scaled(quick, MESSAGES, MESSAGES_QUICK, 200)
    with tempfile.TemporaryDirectory(prefix="zerochat-study-") as folder:
        rows = _measure(Path(folder), keep or Path(folder), members, messages, 1 if quick else TURNS)
        return Report(rows if quick else [*rows, notebook_row(Path(folder))], notes=WORK)


def _measure(work: Path, data: Path, members: int, messages: int, turns: int) -> list[Row]:
    from benchmarks.ours.exports import Plan, write
    from benchmarks.ours.same import differences, table

    sizes = {part: messages // part for part in (PARTS if not Scale.smoke else (1,))}
    rows: dict[int, int] = {}
    for part, number in sizes.items():
        place = data / f"simulated-{members}x{number}"
        if not (place / "rows").exists():
            say(f"Simulating {members} members x {number:,} messages.")
            truth = write(place, Plan(members=members, messages=number, hours=HOURS, lost=0.002, detour=0.02))
            (place / "rows").write_text(str(truth.rows), encoding="ascii")
        rows[part] = int((place / "rows").read_text(encoding="ascii"))
    ended: dict[tuple[str, int], Ended] = {}
    by_turns: list[tuple[Ended, Ended]] = []

    def run(engine: str, part: int) -> Ended:
        one = process(engine, data / f"simulated-{members}x{sizes[part]}", work / f"{engine}-{part}")
        slowest = ", ".join(f"{name} {took:.1f}" for name, took in sorted(one.steps.items(), key=lambda s: -s[1])[:6])
        say(
            f"{engine}, {rows[part]:,} deliveries: {one.wall_s:.1f} s ({one.cpu_s:.1f} s of processors), "
            f"{one.mb:,.0f} MB. {slowest}"
        )
        return one

    for part in sizes:
        for engine in ("duckdb", "spark", *(["naive"] if part == 1 else [])):
            ended[engine, part] = run(engine, part)
        if part == 1:
            by_turns.append((ended["spark", 1], ended["duckdb", 1]))
            for _ in range(turns - 1):
                shutil.rmtree(work / "duckdb-1")
                duckdb = run("duckdb", 1)
                shutil.rmtree(work / "spark-1")
                by_turns.append((run("spark", 1), duckdb))
            middle = sorted(by_turns, key=lambda pair: pair[0].wall_s / pair[1].wall_s)[len(by_turns) // 2]
            ended["spark", 1], ended["duckdb", 1] = middle
        if unequal := differences(work / f"spark-{part}", work / f"duckdb-{part}"):
            raise Unequal(f"Spark and DuckDB have different results: {'; '.join(unequal)}")
    counted = [sum(table(work / "duckdb-1", "message")[column].to_pylist()) for column in ("expected", "delivered")]
    if naive_counts(work / "naive-1") != counted:
        raise Unequal(f"naive Spark has {naive_counts(work / 'naive-1')} instead of {counted}")
    return list(rows_of(members, messages, rows, ended, by_turns))


def notebook_row(work: Path) -> Row:
    """From the command to the report, over the sample; a process of its own."""
    command = [sys.executable, "-m", "analytics", "notebook", "--out", str(work / "notebook"), "--quiet"]
    begun = time.monotonic()
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    took = exactly(time.monotonic() - begun)
    return Row("the sample's notebook, from the command to the report", "s", "lower", took, goal=NOTEBOOK_S_MAX)


def process(engine: str, exports: Path, out: Path) -> Ended:
    """Have one engine make a study, in a process of its own."""
    paths = [str(ROOT), str(ROOT / "scripts"), *filter(None, [os.environ.get("PYTHONPATH")])]
    command = [sys.executable, "-m", "benchmarks.ours.study", engine, str(exports), str(out)]
    begun, before_s = time.monotonic(), children_s()
    run = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)}, stdout=subprocess.PIPE, text=True, check=True
    )
    wall = time.monotonic() - begun
    told: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return Ended(wall, children_s() - before_s, told["inner_s"], told["java_mb"] or told["mb"], told["steps"])


def children_s() -> float:
    """The processor time of all processes that have ended, ours and theirs (Spark's Java machine is one of theirs)."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def naive_counts(study: Path) -> list[int]:
    import pyarrow.parquet as pq

    told = pq.read_table(study / "gold" / "message", columns=["expected", "delivered"])
    return [sum(told[column].to_pylist()) for column in ("expected", "delivered")]


def rows_of(
    members: int,
    messages: int,
    rows: dict[int, int],
    ended: dict[tuple[str, int], Ended],
    by_turns: list[tuple[Ended, Ended]],
) -> "list[Row]":
    """`by_turns`: the cost of every round of Spark and DuckDB; the median pair is in `ended` too."""
    case = f"{members} members x {messages:,} messages, {rows[1]:,} deliveries"
    names = {"duckdb": "DuckDB", "naive": "naive Spark"}
    others = {name: ended[engine, 1] for engine, name in names.items()}
    ours = ended["spark", 1]
    wall = {name: exactly(one.wall_s) for name, one in others.items()}
    # With less data, start-up dominates Spark, and the goals mean nothing.
    whole = members >= MEMBERS and messages >= MESSAGES
    ratios = (
        ("times DuckDB's", ended["duckdb", 1], TIMES_DUCKDB_MAX),
        ("times naive Spark's", ended["naive", 1], OF_NAIVE_MAX),
    )
    wall_ratios = (
        Figure.of([spark.wall_s / duckdb.wall_s for spark, duckdb in by_turns]),
        exactly(ours.wall_s / ended["naive", 1].wall_s),
    )
    spent = [
        Row(
            f"{case}, of processors",
            "s",
            "lower",
            exactly(ours.cpu_s),
            peers={name: exactly(one.cpu_s) for name, one in others.items()},
        ),
        *(Row(f"{case}, of processors", unit, "lower", exactly(ours.cpu_s / other.cpu_s)) for unit, other, _ in ratios),
    ]
    return [
        Row(case, "s", "lower", exactly(ours.wall_s), peers=wall),
        *(
            Row(case, unit, "lower", ratio, goal=goal if whole else None)
            for (unit, _, goal), ratio in zip(ratios, wall_ratios, strict=True)
        ),
        *spent,
        Row(
            f"{case}, without starting",
            "s",
            "lower",
            exactly(ours.inner_s),
            peers={name: exactly(one.inner_s) for name, one in others.items()},
        ),
        Row(
            f"{case}, deliveries",
            "1/s",
            "higher",
            exactly(rows[1] / ours.wall_s),
            peers={name: exactly(rows[1] / one.wall_s) for name, one in others.items()},
        ),
        Row(
            f"{case}, most memory (Spark: of Java)",
            "MB",
            "lower",
            exactly(ours.mb),
            peers={name: exactly(one.mb) for name, one in others.items()},
            goal=JAVA_MB_MAX,
        ),
        *(
            Row(
                f"{rows[part]:,} deliveries",
                "s",
                "lower",
                exactly(ended["spark", part].wall_s),
                peers={
                    name: exactly(ended[engine, part].wall_s) for engine, name in names.items() if engine != "naive"
                },
            )
            for part in rows
            if part != 1
        ),
        *(growth_rows(rows, ended) if 4 in rows else ()),
    ]


def growth_rows(rows: dict[int, int], ended: dict[tuple[str, int], Ended]) -> list[Row]:
    """How time grows from a quarter of the data to all of it."""
    whole, quarter = (ended["spark", part] for part in (1, 4))
    whole_duckdb, quarter_duckdb = (ended["duckdb", part] for part in (1, 4))
    case = f"from {rows[4]:,} to {rows[1]:,} deliveries"
    growth = exactly(whole_duckdb.wall_s / quarter_duckdb.wall_s)
    steady = exactly(whole_duckdb.inner_s / quarter_duckdb.inner_s)
    return [
        Row(
            case,
            "times",
            "lower",
            exactly(whole.wall_s / quarter.wall_s),
            peers={"DuckDB": growth},
            goal=GROWTH_MAX,
        ),
        Row(
            f"{case}, without starting",
            "times",
            "lower",
            exactly(whole.inner_s / quarter.inner_s),
            peers={"DuckDB": steady},
        ),
    ]


def exactly(value: float) -> Figure:
    return Figure.of([value])


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
