"""The watch: a thread that cuts whoever sends more than the agent reads, also while the agent is busy.

It must be quick, because a peer can send hundreds of megabytes a second, and it must cost nothing while nothing
happens. Both follow from sleeping not for a time but for CPU time: to take in what a peer sends, this process must
decrypt it, and the kernel wakes the watch when the process has worked for some milliseconds (Linux,
`clock_nanosleep` on the process clock). A quiet agent never wakes it.

Where the kernel does not say what a connection has sent (outside Linux), the watch still limits how many strangers
there are and for how long, but not what a member makes libzmq keep.

What we have dialled needs no watch: nothing is read there but by the agent itself (`dial.py`).
"""

import ctypes
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable

from zerochat.agent.network.zmq.listener import Door

NAP_CPU_S = 0.005
"""Work of this process between two looks. At full speed a member sends about four megabytes meanwhile."""
NAP_CPU_S_MAX = 0.05
NAP_FACTOR = 20
"""Within these two, so many times what the last look has cost: the watch takes about 5 % of the work."""
NAP_S = 0.1
"""The nap where there is no such clock."""
CLOCK_PROCESS_CPUTIME_ID = 2


class Watch(threading.Thread):
    """Looks at every connection of the doors until `end`."""

    def __init__(
        self,
        doors: Iterable[Door],
        counts: Counter[str],
        ring: Callable[[], None],
    ) -> None:
        """`ring` tells the agent that connections have gone. `counts` gets `watch.*`, which nobody else writes."""
        super().__init__(name="zerochat-watch", daemon=True)
        self._doors = tuple(doors)
        self._counts, self._ring = counts, ring
        self._ended = False

    def start(self) -> None:
        on_duty.add(self)
        super().start()

    def end(self) -> None:
        """Look no more. The thread itself ends at its next waking; there is no need to wait for that."""
        self._ended = True
        on_duty.discard(self)

    def run(self) -> None:
        cpu_s, cuts = NAP_CPU_S, 0
        while not self._ended:
            nap(cpu_s * max(1, len(on_duty)))
            begun = time.thread_time()
            if cuts:
                tidy()
            try:
                cuts = self.look(time.monotonic())
            except Exception:  # noqa: BLE001
                # Whatever it was, nobody else stands guard.
                self._counts["watch.failed"] += 1
            cpu_s = min(max(NAP_CPU_S, NAP_FACTOR * (time.thread_time() - begun)), NAP_CPU_S_MAX)

    def look(self, now: float) -> int:
        """One look at everybody; `now` in seconds, monotonic. Gives how many had to be cut."""
        cuts = 0
        for door in self._doors:
            door.observe()
            for connection in door.overdue(now):
                self._counts[f"watch.{door.name}"] += 1
                if connection.user:
                    door.turn_away(connection.user, now)
                door.cut(connection, rudely=True)
                cuts += 1
            if door.gone:
                self._ring()
        return cuts


on_duty: set[Watch] = set()
"""The watches of this process. They nap by one clock, and wake each other with their own work; so they share."""

if sys.platform == "linux":

    class Timespec(ctypes.Structure):
        """`struct timespec`."""

        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    libc = ctypes.CDLL(None)

    def nap(cpu_s: float) -> None:
        """Sleep until this process has used so much CPU time, in all its threads together."""
        span = Timespec(int(cpu_s), int(cpu_s % 1 * 1e9))
        if libc.clock_nanosleep(CLOCK_PROCESS_CPUTIME_ID, 0, ctypes.byref(span), None):
            time.sleep(NAP_S)

    def tidy() -> None:
        """Give the system back what an attack has left behind in the allocator; glibc alone keeps it."""
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)

else:

    def tidy() -> None:
        """Nothing to do here."""

    def nap(cpu_s: float) -> None:
        """Sleep for a while."""
        time.sleep(max(NAP_S, cpu_s))
