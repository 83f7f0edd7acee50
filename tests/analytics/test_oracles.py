"""DuckDB and Polars as oracles: the same queries give the same rows."""

from dataclasses import astuple, replace

import pytest

pytest.importorskip("pyspark", reason="pyspark comes with the extra `analytics`: scripts/test --analytics")
pytest.importorskip("duckdb", reason="duckdb comes with the extra `analytics-oracles`: scripts/test --analytics")
pytest.importorskip("polars", reason="polars comes with the extra `analytics-oracles`: scripts/test --analytics")

from benchmarks import analytics
from benchmarks.ours.exports import Plan, write
from benchmarks.ours.same import differences
from benchmarks.peers import delivery_duckdb, delivery_polars
from tests.support.analytics_study import make_study

pytestmark = pytest.mark.analytics


@pytest.mark.parametrize(("members", "messages"), [(9, 1_500), (64, 300)])
def test_other_engines_give_the_same_results(spark, tmp_path, members, messages):
    plan = Plan(members=members, messages=messages, hours=20, seed=5, lost=0.01, detour=0.05, dup=0.02)
    write(tmp_path / "exports", plan)
    make_study(spark, tmp_path / "exports", tmp_path / "spark")
    for name, engine in (("duckdb", delivery_duckdb), ("polars", delivery_polars)):
        engine.study(tmp_path / "exports", tmp_path / name)
        assert differences(tmp_path / "spark", tmp_path / name) == [], name


def test_differences_are_reported(tmp_path):
    write(tmp_path / "exports", Plan(members=3, messages=200, hours=2))
    for place, within_us in (("one", 30_000_000), ("other", 50_000)):
        delivery_duckdb.study(tmp_path / "exports", tmp_path / place, within_us)
    assert [line.partition(" (")[0] for line in differences(tmp_path / "one", tmp_path / "other")] == [
        "message has other in_time",
        "message has other slow_for",
    ]


def test_rows_of_the_benchmark():
    ended = {
        (engine, part): analytics.Ended(wall / part, 3 * wall / part, wall / part, 100, {})
        for engine, wall in (("duckdb", 6.0), ("spark", 40.0), ("naive", 50.0))
        for part in (1, 2, 4)
    }
    by_turns = [
        (replace(ended["spark", 1], wall_s=spark), replace(ended["duckdb", 1], wall_s=duckdb))
        for spark, duckdb in ((40.0, 6.0), (50.0, 5.0), (30.0, 6.0))
    ]
    rows = analytics.rows_of(64, 200_000, {1: 400, 2: 200, 4: 100}, ended, by_turns)
    times_duckdb, times_naive = rows[1:3]
    assert astuple(times_duckdb.ours) == pytest.approx((40 / 6, 30 / 6, 50 / 5)) and times_duckdb.met is True
    assert times_naive.ours.median == pytest.approx(40 / 50) and times_naive.met is False
    assert [row.ours.median for row in rows[3:6]] == pytest.approx([120, 40 / 6, 40 / 50])
    assert rows[-2].ours.median == pytest.approx(4) and rows[-2].met is True
    little = analytics.rows_of(8, 100, {1: 400, 2: 200, 4: 100}, ended, by_turns)
    assert all(row.goal is None for row in little[:3])
