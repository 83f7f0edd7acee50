"""Flood guard: a thread that cuts connections whose peer sends more than the agent reads, also while it is busy.

The guard must react fast, because a peer can send hundreds of megabytes a second, and must cost nothing when idle. So
it sleeps for CPU time instead of wall time: receiving means decrypting, and the kernel wakes the guard when this
process has worked for some milliseconds (Linux, `clock_nanosleep` on the process clock).

Outside Linux the kernel does not report how much a connection has sent. There the guard still limits the number and the
age of unauthenticated connections, but not what a member makes libzmq buffer.

Dialled connections need no guard: only the agent reads from them, at its own pace (`dialer.py`).
"""

import ctypes
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from zerochat.agent.network.zmq.listener import Listener

SLEEP_CPU_S = 0.005
"""CPU time of this process between two checks. At full speed a member sends about four megabytes meanwhile."""
SLEEP_CPU_S_MAX = 0.05
SLEEP_FACTOR = 20
"""Within these bounds, the sleep is so many times the cost of the last check: the guard takes about 5 % of the CPU."""
SLEEP_S = 0.1
"""Wall time between two checks where there is no process CPU clock."""
CLOCK_PROCESS_CPUTIME_ID = 2


class FloodGuard(threading.Thread):
    """Checks every inbound connection of the listeners until `end`."""

    def __init__(self, listeners: Iterable[Listener], counts: Counter[str], wake: Callable[[], None]) -> None:
        """`wake` is called when connections have ended. `counts` gets `flood.*`, which only this thread writes."""
        super().__init__(name="zerochat-flood-guard", daemon=True)
        self._listeners = tuple(listeners)
        self._counts, self._wake = counts, wake
        self._ended = False

    def start(self) -> None:
        running_guards.add(self)
        super().start()

    def end(self) -> None:
        """Stop checking. The thread ends at its next wake-up; the caller need not wait for it."""
        self._ended = True
        running_guards.discard(self)

    def run(self) -> None:
        cpu_s, cuts = SLEEP_CPU_S, 0
        while not self._ended:
            sleep_cpu(cpu_s * max(1, len(running_guards)))
            begun = time.thread_time()
            if cuts:
                release_memory()
            try:
                cuts = self.check(time.monotonic())
            except Exception:  # noqa: BLE001
                # A failed check must not end the only protection against floods.
                self._counts["flood.check_failed"] += 1
            cpu_s = min(max(SLEEP_CPU_S, SLEEP_FACTOR * (time.thread_time() - begun)), SLEEP_CPU_S_MAX)

    def check(self, now: float) -> int:
        """Check every connection once; the number that was cut. `now` in seconds, monotonic."""
        cuts = 0
        for listener in self._listeners:
            listener.observe()
            for connection in listener.overdue(now):
                self._counts[f"flood.{listener.name}"] += 1
                if connection.user:
                    listener.suspend_key(connection.user, now)
                listener.cut(connection, reset=True)
                cuts += 1
            if listener.gone:
                self._wake()
        return cuts


running_guards: set[FloodGuard] = set()
"""The guards of this process. They sleep by one CPU clock and wake each other with their own work, so they share it."""

if sys.platform == "linux":

    class Timespec(ctypes.Structure):
        """`struct timespec`."""

        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    libc = ctypes.CDLL(None)

    def sleep_cpu(cpu_s: float) -> None:
        """Sleep until all threads of this process together have used so much CPU time."""
        span = Timespec(int(cpu_s), int(cpu_s % 1 * 1e9))
        if libc.clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, ctypes.byref(span), None):
            time.sleep(SLEEP_S)

    def release_memory() -> None:
        """Return freed memory to the system after an attack; only glibc keeps it."""
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)

else:

    def release_memory() -> None:
        """Only glibc needs this."""

    def sleep_cpu(cpu_s: float) -> None:
        time.sleep(max(SLEEP_S, cpu_s))
