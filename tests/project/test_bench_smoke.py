"""Every benchmark area runs, with the least possible work; its figures are not judged."""

import importlib.util
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import benchmarks
from benchmarks.wide import line

BENCH = Path(__file__).parents[2] / "scripts" / "bench.py"
AREA_S_MAX = 280.0
"""An area takes up to fifteen seconds, Spark half a minute; more only where peers are installed first."""
AREAS = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
OVER_A_LINE = ("join", "ring_wan", "wan", "wide")


def marked(area: str):
    return pytest.param(area, marks=pytest.mark.analytics if area == "analytics" else ())


@pytest.mark.slow
@pytest.mark.parametrize("area", [marked(area) for area in AREAS])
def test_an_area_runs(area):
    if area == "analytics" and not importlib.util.find_spec("pyspark"):
        pytest.skip("Spark is not installed: pip install zerochat[analytics]")
    if area in OVER_A_LINE and (reason := line.why_not()):
        pytest.skip(reason)
    run = subprocess.run(
        [sys.executable, str(BENCH), area, "--smoke", "--json"], capture_output=True, text=True, timeout=AREA_S_MAX
    )
    assert run.returncode == 0, run.stderr[-5000:]
    rows = json.loads(run.stdout)["rows"]
    assert rows
    assert all(isinstance(row["ours"], int | float) for row in rows)
