"""Interrupts what computes and computes, and never waits: then nothing else of the bot goes on.

A regular expression with a repetition in a repetition, or a loop that has no end, holds the whole event loop up. While
the loop goes on it winds a clock up again and again; the clock runs only while this process computes, so neither a
busy machine nor a stopped process counts. When it has run down, a signal comes; and where the loop's own thread is what
has computed for so long, it raises `HeldUp` at the place that computes, where it is a failure like any other. The
signal alone does not say that: its clock runs for all threads of the process, for several at once on several cores.

Signals come to the main thread of a process, on Unix: elsewhere nothing is interrupted.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Final, TypeVar

from zerochat.errors import LocalError

PATTERN_S: Final = 2.0
"""How long it may be looked for a pattern in one text, in seconds of computing."""
HANDLER_S: Final = 10.0
"""How long a handler may hold everything up, in seconds of computing."""
BEAT_S: Final = 2.0
LEFT_S_MIN: Final = 0.01
"""A clock that is wound up for less, or for nothing, might stand still."""
_THEIRS: Final[set[CodeType]] = set()

F = TypeVar("F", bound=Callable[..., object])


class HeldUp(LocalError):
    """It has held up the whole bot for {seconds} seconds of computing, and was interrupted. A coroutine function that
    computes for so long belongs in a thread: make it an ordinary function."""


def interruptible(function: F) -> F:
    """Where this function waits for what somebody else has written, that may be interrupted."""
    _THEIRS.add(function.__code__)
    return function


class Watch:
    """The clock of one run, in the event loop's own thread."""

    def __init__(self) -> None:
        self._limit_s = HANDLER_S
        self._wound = 0.0
        """What this thread had computed when the clock was wound up, in seconds."""
        self._running = False
        self._next: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """From here on, until `stop`. For the main thread alone; where there are no such signals nothing happens."""
        if not hasattr(signal, "setitimer"):
            return
        signal.signal(signal.SIGVTALRM, self._run_down)
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
    def pattern(self) -> Iterator[None]:
        """What is in this block may take `PATTERN_S`, and nothing else is computed meanwhile."""
        self._wind(PATTERN_S)
        try:
            yield
        finally:
            self._wind(HANDLER_S)

    def _wind(self, limit_s: float) -> None:
        if self._running:
            self._limit_s, self._wound = limit_s, time.thread_time()
            signal.setitimer(signal.ITIMER_VIRTUAL, limit_s)

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wind(HANDLER_S)
        self._next = loop.call_later(BEAT_S, self._beat, loop)

    def _run_down(self, number: int, frame: FrameType | None) -> None:
        """Interrupt a handler or a pattern. What is none of these goes on: it is ours, and has an end."""
        seconds = self._limit_s
        left_s = self._wound + seconds - time.thread_time()
        if left_s > 0:  # other threads have computed
            signal.setitimer(signal.ITIMER_VIRTUAL, max(left_s, LEFT_S_MIN))
            return
        self._wind(HANDLER_S)
        if _is_theirs(frame):
            raise HeldUp(seconds=f"{seconds:g}")


def _is_theirs(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code in _THEIRS:
            return True
        frame = frame.f_back
    return False
