"""Tables of the thesis from telemetry, compared with what the recorded benchmarks measured.

Counts and bytes are equal; times differ in their end points.
"""

import contextlib
import shutil
from collections import Counter

import pytest

pytest.importorskip("pyspark", reason="pyspark comes with the extra `analytics`: scripts/test --analytics")
pytest.importorskip("pyarrow", reason="pyarrow comes with the extra `analytics`: scripts/test --analytics")

from analytics import cli, tables
from analytics.results import open_results
from benchmarks import group, join, sizes
from benchmarks.ours.core import MULTI, SINGLE
from benchmarks.ours.recording import Recording
from benchmarks.wide.agents import Agents
from benchmarks.wide.line import Line, NoLine
from benchmarks.wide.thesis import one_way_ms
from tests.support.analytics_study import make_study

pytestmark = pytest.mark.analytics

MEMBERS, BATCHES = (2, 3), (1, 10)
STATED_MS = 1.0
"""What a message says of when it was said is rounded down to that."""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """What benchmarks have recorded and measured, tiny ones: by area, and the folder with all exports."""
    folder = tmp_path_factory.mktemp("recorded")
    recordings = {area: Recording(folder / area, settle_s=0) for area in ("group", "join", "sizes")}
    missing = {}
    # Each with keys of its own, so that one study can tell them apart.
    cases = dict.fromkeys(MEMBERS, BATCHES)
    group.measure_ours(SINGLE, cases, folder / "agents", empty(), missing, recordings["group"])
    assert missing == {}
    sizes.say_all(MULTI, 5, 2, recordings["sizes"])
    with contextlib.suppress(NoLine):  # the test of it says so
        join_some(recordings["join"])
    for area, recording in recordings.items():
        recording.close(area)
        if (folder / area / "exports").exists():
            shutil.move(folder / area / "exports", folder / "exports" / area)
    return recordings, folder


def empty():
    return {SINGLE: {(members, batch): [] for members in MEMBERS for batch in BATCHES}}


def join_some(recording):
    with Line(one_way_ms(2)) as line, Agents(line) as agents:
        seats = [agents.start(host) for host in ("alice", "bob")]
        for joiners in (1, 2):
            join.join_afresh(agents, seats, joiners, [], recording)


@pytest.fixture(scope="module")
def study(spark, recorded):
    _, folder = recorded
    told = make_study(spark, folder / "exports", folder / "study")
    assert told["aside"] == []
    return open_results(str(folder / "study"))


def test_bursts(recorded, study):
    runs = recorded[0]["group"].runs
    assert Counter(run["batch"] for run in runs).keys() == {*BATCHES, group.WARM_UP}
    found = sorted((row for row in study.rows("burst") if row["n"] in MEMBERS), key=lambda row: row["t_from_us"])
    bursts = [row for row in found if row["plain_b"] == group.TEXT_BYTES * row["messages"]]
    assert [(row["keys"], row["n"], row["messages"], row["expected"], row["delivered"]) for row in bursts] == [
        (run["keys"], run["members"], run["batch"], run["wanted"], run["came"]) for run in runs
    ]
    for row, run in zip(bursts, runs, strict=True):
        assert 0 <= row["whole_us"] <= row["shown_us"]
        assert row["whole_us"] / 1e3 <= run["ms"] + STATED_MS


def test_joins(recorded, study):
    runs = recorded[0]["join"].runs
    if not runs:
        pytest.skip("this machine allows no line of our own")
    joins = {row["observer"]: row for row in study.rows("join") if row["role"] == "joiner"}
    measured = tables.Benchmark("join", runs)
    lines = {line.of: line for table in tables.joins(study, measured) for line in table.rows}
    assert {of: line.count for of, line in lines.items() if line.measured} == Counter(
        (run["members"], run["at_once"]) for run in runs
    )
    for run in runs:
        row = joins[run["joiner"]]
        assert row["outcome"] == "joined" and run["members"] <= row["found"] < run["members"] + run["at_once"]
        assert 0 < row["whole_us"] / 1e3 <= run["from_nothing_ms"] + STATED_MS


@pytest.mark.parametrize("kind", ["message", "change"])
def test_sizes(recorded, study, kind):
    runs = [run for run in recorded[0]["sizes"].runs if run["kind"] == kind]
    by_size = {row: [] for row in {(run["keys"], run["of"]) for run in runs}}
    for run in runs:
        by_size[run["keys"], run["of"]].append(run["bytes"])
    rows = {(row["keys"], row["of"]): row for row in study.rows("sizes") if row["kind"] == kind}
    for of, sizes_b in by_size.items():
        row = rows[of]
        assert (row["rows"], row["min_b"], row["max_b"]) == (len(sizes_b), min(sizes_b), max(sizes_b))


def test_tables_with_benchmark_figures(recorded, study, capsys):
    _, folder = recorded
    beside = folder / "group" / "measured.json"
    assert cli.main(["thesis", "--in", study.place, "--benchmark", str(beside)]) == cli.OK
    said = capsys.readouterr().out
    assert "Table 8" in said and "Figure 31" in said and "Figure 32" in said and "measured" in said
    assert cli.main(["thesis", "--in", study.place, "--benchmark", str(folder / "nowhere")]) == cli.REFUSED
    assert "contains no benchmark figures" in capsys.readouterr().err
