"""The wall clock with detection of clock steps, and the agent's named timers."""

import heapq
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

_MONOTONIC = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that cannot be set and that counts while the machine sleeps. `CLOCK_MONOTONIC` stops during sleep on Linux,
and does not on macOS."""
STEP_MS = 1_000
"""A smaller difference between two readings is NTP slewing the clock, not a step."""


@cache
def _boot_id() -> str:
    """The kernel's identifier of this boot; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _monotonic() -> float:
    return time.clock_gettime(_MONOTONIC)


class Clock:
    """The wall clock in UTC milliseconds, compared with a monotonic clock. Read it about once a second."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = _monotonic) -> None:
        """Both return seconds."""
        self._wall, self._monotonic = wall, monotonic
        self._offset = wall() - monotonic()

    @property
    def mark(self) -> bytes:
        """The boot and the clock offset, for a later process (`restore`)."""
        return f"{_boot_id()} {self._offset}".encode()

    def restore(self, mark: bytes) -> bool:
        """Continue from the mark of an earlier process: `step_ms` then reports a step that happened in between.

        False after a reboot, when the downtime is unknown.
        """
        boot, _, offset = mark.decode().partition(" ")
        same = bool(boot) and boot == _boot_id()
        if same:
            self._offset = float(offset)
        return same

    def now(self) -> int:
        return int(self._wall() * 1000)

    def step_ms(self) -> int:
        """The step of the wall clock in milliseconds since the last call; 0 where there was none."""
        offset = self._wall() - self._monotonic()
        by_ms = round((offset - self._offset) * 1000)
        self._offset = offset
        return by_ms if abs(by_ms) >= STEP_MS else 0

    def undo_step(self, by_ms: int) -> None:
        """Report this step again: the batch that contained it was not committed."""
        self._offset -= by_ms / 1000


class Timers:
    """Named one-shot timers on the monotonic clock: one deadline per name."""

    def __init__(self) -> None:
        self._deadlines: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, name: str, delay_ms: int, *, keep: bool = False) -> None:
        """Start a timer or replace its deadline; `keep`: leave a running timer as it is."""
        if keep and name in self._deadlines:
            return
        deadline = time.monotonic() + delay_ms / 1000
        self._deadlines[name] = deadline
        heapq.heappush(self._heap, (deadline, name))

    def pop_due(self, now: float) -> list[str]:
        """Remove the timers whose deadline has passed; their names in order of deadlines."""
        due = []
        while self._heap and self._heap[0][0] <= now:
            deadline, name = heapq.heappop(self._heap)
            if self._deadlines.get(name) == deadline:
                del self._deadlines[name]
                due.append(name)
        return due

    def pop_matching(self, matches: Callable[[str], bool]) -> list[str]:
        """Remove the timers whose names match, before they are due."""
        names = [name for name in self._deadlines if matches(name)]
        for name in names:
            del self._deadlines[name]
        return names

    @property
    def next_deadline(self) -> float | None:
        return self._heap[0][0] if self._heap else None
