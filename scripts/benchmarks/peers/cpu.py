"""The processor time of other processes, as Linux counts it: nanoseconds, and threads that have ended too."""

import contextlib
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path

SESSION_AT = 3
"""Where /proc/PID/stat has the session, counted from after the name."""
PROCESS_CLOCK = 2
"""`CPUCLOCK_SCHED`, in the lowest bits of a clock's number; the others are the complement of the process id."""


def cpu_ms(pids: Iterable[int]) -> float | None:
    """Processor time that these processes have used, in ms; None where that cannot be known. One that has ended does
    not count."""
    if sys.platform != "linux":
        return None
    used = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):
            used += time.clock_gettime(~pid << 3 | PROCESS_CLOCK)
    return used * 1000


def session(leader: int) -> list[int]:
    """The processes of a session, by its leader's process id; on other systems than Linux only that."""
    if sys.platform != "linux":
        return [leader]
    found = []
    for entry in filter(_is_process, os.scandir("/proc")):
        with contextlib.suppress(OSError):  # ended meanwhile
            stat = Path(entry.path, "stat").read_text()
            if int(stat.rpartition(")")[2].split()[SESSION_AT]) == leader:
                found.append(int(entry.name))
    return found


def _is_process(entry: "os.DirEntry[str]") -> bool:
    return entry.name.isdigit()
