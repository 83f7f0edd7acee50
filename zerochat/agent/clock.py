"""This machine's clock, and whether anybody sets it."""

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that nobody can set and that does not stand still while the machine sleeps. `CLOCK_MONOTONIC` does on Linux;
on macOS it does not."""
STEP_MS = 1_000
"""Less than this, from one look to the next, is a clock that is made to run a little faster or slower, as NTP does."""


@cache
def _boot() -> str:
    """Which start of the machine this is; empty where that cannot be told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _steady() -> float:
    return time.clock_gettime(_STEADY)


class Clock:
    """The wall clock, in UTC milliseconds, beside one that runs evenly. To be looked at every second or so."""

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = _steady) -> None:
        """Both give seconds."""
        self._wall, self._steady = wall, steady
        self._lead = wall() - steady()

    @property
    def mark(self) -> bytes:
        """What a later process needs to know whether the clock was set in between (`recall`)."""
        return f"{_boot()} {self._lead}".encode()

    def recall(self, mark: bytes) -> bool:
        """Go on from an earlier process's mark: whatever was set since, the next `set_by` tells. False where the
        machine has started anew since, for then nothing tells how long it was off."""
        boot, _, lead = mark.decode().partition(" ")
        same = bool(boot) and boot == _boot()
        if same:
            self._lead = float(lead)
        return same

    def now(self) -> int:
        return int(self._wall() * 1000)

    def set_by(self) -> int:
        """By how many milliseconds somebody has set the clock since this was last asked; 0 where nobody has."""
        lead = self._wall() - self._steady()
        by_ms = round((lead - self._lead) * 1000)
        self._lead = lead
        return by_ms if abs(by_ms) >= STEP_MS else 0

    def unset(self, by_ms: int) -> None:
        """What was told of a clock that was set could not be remembered: tell it again."""
        self._lead -= by_ms / 1000
