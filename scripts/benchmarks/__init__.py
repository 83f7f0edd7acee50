"""Shared by the benchmarks: figures with their spread, rows that compare them, and interleaved rounds.

An area is a module in this folder with a function `measure(quick: bool) -> Report`. Ours, the peers and the floor run
in turn within one run, so that background load affects all of them. Compare ratios rather than milliseconds.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

ROOT = Path(__file__).resolve().parents[2]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Figure:
    """A median with its range."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure":
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{number(self.median)} [{number(self.low)}, {number(self.high)}]"


@dataclass(frozen=True, slots=True)
class Row:
    """One case: our figure, the peers', the floor (the lowest possible figure), and the goal or None.

    `floor_is` and `goal_is` name them in a few words; `absent`, by peer, says why an installed peer has no figure."""

    case: str
    unit: str
    better: Literal["lower", "higher"]
    ours: Figure
    floor: Figure | None = None
    floor_is: str = ""
    peers: Mapping[str, Figure] = field(default_factory=dict)
    goal: float | None = None
    absent: Mapping[str, str] = field(default_factory=dict)
    goal_is: str = ""

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.ours.median <= self.goal if self.better == "lower" else self.ours.median >= self.goal

    def as_json(self) -> dict[str, Any]:
        """The row as `--json` prints it: medians, each with `_range` [min, max]."""
        return {
            "case": self.case,
            "unit": self.unit,
            "better": self.better,
            "ours": rounded(self.ours.median),
            "ours_range": spread(self.ours),
            "peers": {name: rounded(figure.median) for name, figure in self.peers.items()},
            "peers_range": {name: spread(figure) for name, figure in self.peers.items()},
            "absent": dict(self.absent),
            "floor": None if self.floor is None else rounded(self.floor.median),
            "floor_range": None if self.floor is None else spread(self.floor),
            "floor_is": self.floor_is,
            "goal": None if self.goal is None else rounded(self.goal),
            "goal_is": self.goal_is,
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """`missing`: peers that are not installed here; `notes`: the conditions, in sentences."""

    rows: Sequence[Row]
    missing: Sequence[str] = ()
    notes: Sequence[str] = ()


class Scale:
    """How much an area measures. `smoke`: only that it runs, so as little as possible; its figures mean nothing."""

    smoke = False


def scaled(quick: bool, whole: T, few: T, least: T) -> T:
    """The size of a measurement: `whole`, `few` with --quick, `least` with --smoke."""
    return least if Scale.smoke else few if quick else whole


def take_turns(runs: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call everything once to warm up, then `rounds` times in turn, forward and backward, so that the order is
    balanced. With --smoke only once."""
    if Scale.smoke:
        return {name: [run()] for name, run in runs.items()}
    for run in runs.values():
        run()
    values: dict[str, list[T]] = {name: [] for name in runs}
    for round_ in range(rounds):
        for name in list(runs)[:: 1 if round_ % 2 == 0 else -1]:
            values[name].append(runs[name]())
    return values


def processor_s(processes: Iterable[int]) -> float:
    """The processor time that these processes have taken, all threads of them. By the clock that
    clock_getcpuclockid(3) has for each (Linux): it counts nanoseconds, and /proc/PID/stat ticks of ten million."""
    return sum(time.clock_gettime((~process << 3) | 2) for process in processes)


def any_goal(ours: float, goals: Mapping[str, float]) -> tuple[float, str]:
    """For a row that is met when any of these goals is: the first that holds, or else the widest, and its name."""
    name = next((name for name, goal in goals.items() if ours <= goal), max(goals, key=lambda name: goals[name]))
    return goals[name], name


def rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def spread(figure: Figure) -> list[float]:
    return [rounded(figure.low), rounded(figure.high)]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
