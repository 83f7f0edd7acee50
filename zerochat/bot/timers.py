"""Calls a bot's timers on schedule and makes up for missed calls."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from zerochat.bot.api import key_scope
from zerochat.bot.handlers import Timer
from zerochat.bot.invoke import format_failure
from zerochat.bot.store import Store

SLEEP_S_MAX: Final = 60.0
"""Longest sleep, seconds: the system clock may be set meanwhile."""


class TimerRunner:
    """The timers of one run."""

    def __init__(
        self,
        now: Callable[[], float],
        store: Store,
        retries_s: Sequence[float],
        call: Callable[[Timer], Awaitable[None]],
        log: logging.Logger,
    ) -> None:
        """`now`: UTC, seconds. `call`: calls a timer's function once."""
        self._now, self._store, self._retries_s, self._call, self._log = now, store, retries_s, call, log

    async def run(self, timer: Timer) -> None:
        """Call a timer on its schedule. Calls missed within the grace period are made up for by one call."""
        ran = self._store.last_run(timer.name)
        if ran is None:
            ran = self._now()
            self._store.set_last_run(timer.name, ran)
        while True:
            now = self._now()
            due = timer.schedule.next_after(ran, ran)
            if due <= now - timer.grace_s:
                ran = now
                self._store.set_last_run(timer.name, ran)  # grace period over
                continue
            if due > now:
                await asyncio.sleep(min(due - now, SLEEP_S_MAX))
                continue
            await self._fire(timer, due)
            ran = max(due, self._now()) if due < now - 1 else due
            self._store.set_last_run(timer.name, ran)

    async def _fire(self, timer: Timer, due: float) -> None:
        """Call a timer, with the retries of a handler."""
        for wait_s in (*self._retries_s, None):
            try:
                with key_scope(f"{timer.name}:{due:.0f}"):
                    await self._call(timer)
                return
            except Exception as error:  # noqa: BLE001  # a timer may raise any exception
                self._log.error("%s failed:\n%s", timer.name, format_failure(error))
            if wait_s is not None:
                await asyncio.sleep(wait_s)
