"""Watchdog for handlers that block the event loop with computation.

A regular expression with catastrophic backtracking or an endless loop blocks every other handler. The event loop rearms
a CPU-time timer (`ITIMER_VIRTUAL`) at regular intervals; it counts only while this process computes, so a busy or
suspended machine does not trigger it. When it expires and the event loop's own thread has used the time,
`CpuLimitExceeded` is raised in the running handler. The thread's CPU time is checked because the timer counts all
threads of the process.

Unix delivers signals to the main thread; elsewhere nothing is interrupted.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final, TypeVar

from zerochat.errors import LocalError

PATTERN_CPU_S_MAX: Final = 2.0
"""CPU time limit for matching a pattern against one text, seconds."""
HANDLER_CPU_S_MAX: Final = 10.0
"""CPU time for which a handler may block the event loop, seconds."""
REARM_S: Final = 2.0
TIMER_S_MIN: Final = 0.01
"""Shortest timer: zero would disable it."""
_USER_CODE: Final[set[CodeType]] = set()

F = TypeVar("F", bound=Callable[..., object])


class CpuLimitExceeded(LocalError):
    """It blocked the bot for {seconds} seconds of computation and was interrupted. Make a function that computes this
    long an ordinary function: it then runs in a thread."""


def interruptible(function: F) -> F:
    """Mark a function that runs user code: only code called from it is interrupted."""
    _USER_CODE.add(function.__code__)
    return function


class CpuWatchdog:
    """The watchdog of one run, in the event loop's thread."""

    def __init__(self) -> None:
        self._limit_s = HANDLER_CPU_S_MAX
        self._armed_at = 0.0
        """CPU time of this thread when the timer was armed, seconds."""
        self._running = False
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Arm the watchdog until `stop`. Main thread only; without effect where the signal does not exist."""
        if not hasattr(signal, "setitimer"):
            return
        signal.signal(signal.SIGVTALRM, self._on_signal)
        self._running = True
        self._beat(asyncio.get_running_loop())

    def stop(self) -> None:
        if self._running:
            self._running = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
            if self._next is not None:
                self._next.cancel()

    @contextmanager
    def pattern_limit(self) -> Iterator[None]:
        """Apply `PATTERN_CPU_S_MAX` to the block."""
        self._arm(PATTERN_CPU_S_MAX)
        try:
            yield
        finally:
            self._arm(HANDLER_CPU_S_MAX)

    def _arm(self, limit_s: float) -> None:
        if self._running:
            self._limit_s, self._armed_at = limit_s, time.thread_time()
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._arm(HANDLER_CPU_S_MAX)
        self._next = loop.call_later(REARM_S, self._beat, loop)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """Interrupt a handler or a pattern match; the bot's own code is bounded and continues."""
        seconds = self._limit_s
        left_s = self._armed_at + seconds - time.thread_time()
        if left_s > 0:  # other threads used the time
            signal.setitimer(signal.ITIMER_VIRTUAL, max(left_s, TIMER_S_MIN))
            return
        self._arm(HANDLER_CPU_S_MAX)
        if _in_user_code(frame):
            raise CpuLimitExceeded(seconds=f"{seconds:g}")


def _in_user_code(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _USER_CODE:
            return True
        frame = frame.f_back
    return False
