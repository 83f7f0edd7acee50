"""The benchmarks' own arithmetic: a wrong stopwatch is worse than none."""

import importlib
import pkgutil

import pytest

import benchmarks
from benchmarks import Figure, Row, take_turns
from benchmarks.startup import has_frame

AREAS = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]


@pytest.mark.parametrize("area", AREAS)
def test_an_area_is_a_module_that_measures(area):
    module = importlib.import_module(f"benchmarks.{area}")
    assert module.__doc__
    assert callable(module.measure)


def test_a_row_of_json():
    row = Row(
        "case", "ms", "lower", Figure.of([3, 1, 2.00001]), Figure(1, 1, 1), "nothing", {"peer": Figure(9, 8, 10)}, 1.5
    )
    assert row.as_json() == {
        "case": "case",
        "unit": "ms",
        "better": "lower",
        "ours": 2.0,
        "ours_range": [1, 3],
        "peers": {"peer": 9},
        "peers_range": {"peer": [8, 10]},
        "floor": 1,
        "floor_range": [1, 1],
        "floor_is": "nothing",
        "goal": 1.5,
        "met": False,
    }


@pytest.mark.parametrize(
    ("better", "goal", "met"),
    [("lower", 2, True), ("lower", 1.9, False), ("higher", 2, True), ("higher", 2.1, False), ("lower", None, None)],
)
def test_when_a_goal_is_met(better, goal, met):
    assert Row("case", "ms", better, Figure(2, 0, 9), goal=goal).met is met


def test_turns_are_fair():
    calls = []
    values = take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=2)
    assert "".join(calls) == "ab" + "ab" + "ba"  # once to warm up, then there and back
    assert values == {"a": [None, None], "b": [None, None]}


@pytest.mark.parametrize(
    ("output", "painted"),
    [
        (b"Starting up, please wait", False),
        (b"\x1b[?1049h", False),
        (b"words before \x1b[?1049h\x1b[2J\x1b[1;1H  ", False),
        (b"\x1b[?1049h\x1b]0;a title\x07\x1bPquery\x1b\\\x1b[?2026$p\x1b(B\x1b[38;2;1;2;3m   ", False),
        (b"\x1b[?1049h\x1b]0;half a title", False),
        (b"\x1b[?1049h\x1b[1;1H\x1b[1mready", True),
        (b"\x1b[?1049h\x1b]0;a title\x07\x1b[Hready", True),
    ],
)
def test_what_counts_as_a_frame(output, painted):
    assert has_frame(output) is painted
