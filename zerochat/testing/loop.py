"""An event loop in virtual time: nothing in it ever waits, and one seed gives one story.

When every task waits, time goes on to whatever is due next: a timer of the loop, or something in the simulated world.
Only threads (handlers that are no coroutine functions) take real time; while one is at work, virtual time stands still.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
IDLE_S_MAX = 7 * 24 * 3600.0
"""So much virtual time may pass while every task waits for something else than time."""


class World(Protocol):
    """What happens beside the loop, in the same time."""

    def due_s(self) -> float | None:
        """When the next thing happens there, in seconds since the loop began; None: nothing ever does."""

    def run_to(self, moment_s: float) -> None:
        """Let time pass there until this moment."""


class Stuck(AssertionError):
    """Every task waits, and nothing will ever happen that they wait for."""


class _Selector(selectors.DefaultSelector):
    """Looks whether a thread has something to say; and lets virtual time pass where the loop would have slept."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.loop.threads > self.loop.waiting:
            return super().select(None)
        self.loop.pass_time(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` begins at 0 and passes as fast as it can."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.worlds: list[World] = []
        self.threads = self.waiting = 0
        """How many calls are at work in threads, and how many of these wait for something that this loop does."""
        self._moment = 0.0
        self._idle_since = 0.0
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._moment

    def pass_time(self, timeout: float | None) -> None:
        """Go on to whatever comes first: what the loop waits for, or something in a world."""
        if timeout is not None:
            self._idle_since = self._moment
        end = self._moment + timeout if timeout is not None else self._idle_since + IDLE_S_MAX
        due = [moment for world in self.worlds if (moment := world.due_s()) is not None]
        first = max(self._moment, min(due, default=end))
        if timeout is None and first >= end:
            raise Stuck(Stuck.__doc__)
        self._moment = min(first, end)
        for world in self.worlds:
            world.run_to(self._moment)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, future: asyncio.Future[Any]) -> None:
        self.threads -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """It is a thread that waits for the others."""
        self.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self.threads -= 1

    async def counted(self, work: Coroutine[Any, Any, T]) -> T:
        """What a thread waits for: meanwhile it does nothing else (`zerochat.bot.sync.wait`)."""
        self.waiting += 1
        try:
            return await work
        finally:
            self.waiting -= 1


def run(story: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time, and give what it returns."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(story)
