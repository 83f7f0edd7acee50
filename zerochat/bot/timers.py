"""Calls a bot's timers at their times, and makes up for what was missed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from zerochat.bot.failures import told
from zerochat.bot.handlers import Timer
from zerochat.bot.outgoing import doing
from zerochat.bot.store import Store

SLEEP_S_MAX: Final = 60.0
"""A timer looks at the clock this often: it may be set."""


class Timekeeper:
    """The timers of one run of a bot."""

    def __init__(
        self,
        now: Callable[[], float],
        store: Store,
        retries_s: Sequence[float],
        call: Callable[[Timer], Awaitable[None]],
        log: logging.Logger,
    ) -> None:
        """`now`: UTC seconds. `call`: calls a timer's function once."""
        self._now, self._store, self._retries_s, self._call, self._log = now, store, retries_s, call, log

    async def keep(self, timer: Timer) -> None:
        """Call a timer at its times. What was due while nobody was there is done once, unless it is too late for it."""
        ran = self._store.ran(timer.name)
        if ran is None:
            ran = self._now()
            self._store.run(timer.name, ran)
        while True:
            now = self._now()
            due = timer.schedule.after(ran, ran)
            if due <= now - timer.late_s:
                ran = now
                self._store.run(timer.name, ran)  # too late
                continue
            if due > now:
                await asyncio.sleep(min(due - now, SLEEP_S_MAX))
                continue
            await self._tick(timer, due)
            ran = max(due, self._now()) if due < now - 1 else due
            self._store.run(timer.name, ran)

    async def _tick(self, timer: Timer, due: float) -> None:
        """One call of a timer, with as many retries as a handler has."""
        for wait_s in (*self._retries_s, None):
            try:
                with doing(f"{timer.name}:{due:.0f}"):
                    await self._call(timer)
                return
            except Exception as error:  # noqa: BLE001  # whatever a handler raises
                self._log.error("%s has failed:\n%s", timer.name, told(error))
            if wait_s is not None:
                await asyncio.sleep(wait_s)
