"""What every benchmark shares: figures with their spread, rows that set them side by side, and fair turns.

An area is a module beside this one with a function `measure(quick: bool) -> Report`. Ours, the peers and the floor are
measured in turn within one run, so that a busy machine is busy for all of them; believe ratios before milliseconds.
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
    """A median and the range that it comes from."""

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
    """One case: our figure, the peers', the floor below which nobody gets, and the goal (None: none is set).

    `floor_is` says in a few words what the floor is; `absent`, by peer, why there is no figure of one that is here.
    """

    case: str
    unit: str
    better: Literal["lower", "higher"]
    ours: Figure
    floor: Figure | None = None
    floor_is: str = ""
    peers: Mapping[str, Figure] = field(default_factory=dict)
    goal: float | None = None
    absent: Mapping[str, str] = field(default_factory=dict)

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.ours.median <= self.goal if self.better == "lower" else self.ours.median >= self.goal

    def as_json(self) -> dict[str, Any]:
        """The row as `--json` prints it: medians, and beside each the `_range` [min, max] that it comes from."""
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
            "met": self.met,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """`missing` names the peers that are not installed here; `notes` say what was done, in sentences."""

    rows: Sequence[Row]
    missing: Sequence[str] = ()
    notes: Sequence[str] = ()


def take_turns(runs: Mapping[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """Call everything once to warm up, then `rounds` times in turn, there and back so that nobody always follows
    the same one."""
    for run in runs.values():
        run()
    values: dict[str, list[T]] = {name: [] for name in runs}
    for turn in range(rounds):
        for name in list(runs)[:: 1 if turn % 2 == 0 else -1]:
            values[name].append(runs[name]())
    return values


def processor_s(processes: Iterable[int]) -> float:
    """The processor time that these processes have taken, all threads of them. By the clock that
    clock_getcpuclockid(3) has for each (Linux): it counts nanoseconds, and /proc/PID/stat ticks of ten million."""
    return sum(time.clock_gettime((~process << 3) | 2) for process in processes)


def rounded(value: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{value:.4g}")


def spread(figure: Figure) -> list[float]:
    return [rounded(figure.low), rounded(figure.high)]


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
