"""An asyncio event loop in virtual time.

When every task waits, time jumps to the next timer of the loop or event of a simulation. Only threads (handlers that
are ordinary functions) take real time; virtual time stands still while one runs.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
IDLE_S_MAX = 7 * 24 * 3600.0
"""Virtual time that may pass while no task waits for a timer, seconds."""


class Simulation(Protocol):
    """A simulation that shares the loop's time."""

    def due_s(self) -> float | None:
        """Time of the next event, in seconds since the loop started; None: none is scheduled."""

    def run_to(self, moment_s: float) -> None:
        """Advance the simulation to this time."""


class Deadlock(AssertionError):
    """Every task waits, and no event is scheduled that could wake one."""


class _Selector(selectors.DefaultSelector):
    """Polls for finished threads, and advances virtual time where the loop would sleep."""

    loop: "VirtualLoop"

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        if self.loop.threads > self.loop.waiting:
            return super().select(None)
        self.loop.advance(timeout)
        return []


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose `time()` starts at 0 and advances as fast as possible."""

    def __init__(self) -> None:
        selector = _Selector()
        selector.loop = self
        self.simulations: list[Simulation] = []
        self.threads = self.waiting = 0
        """Number of calls running in threads, and of those that wait for this loop."""
        self._moment = 0.0
        self._idle_since = 0.0
        super().__init__(selector)
        self._clock_resolution = 1e-9

    def time(self) -> float:
        return self._moment

    def advance(self, timeout: float | None) -> None:
        """Jump to the next timer of the loop or event of a simulation."""
        if timeout is not None:
            self._idle_since = self._moment
        end = self._moment + timeout if timeout is not None else self._idle_since + IDLE_S_MAX
        due = [moment for world in self.simulations if (moment := world.due_s()) is not None]
        first = max(self._moment, min(due, default=end))
        if timeout is None and first >= end:
            raise Deadlock(Deadlock.__doc__)
        self._moment = min(first, end)
        for world in self.simulations:
            world.run_to(self._moment)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        self.threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, future: asyncio.Future[Any]) -> None:
        self.threads -= 1

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Counted as a thread that waits for the others."""
        self.threads += 1
        try:
            await super().shutdown_default_executor()
        finally:
            self.threads -= 1

    async def count_waiting(self, work: Coroutine[Any, Any, T]) -> T:
        """Await `work` for a thread that waits for it (`zerochat.bot.sync.wait`)."""
        self.waiting += 1
        try:
            return await work
        finally:
            self.waiting -= 1


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time and return its result."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
