"""Calls a bot's timers on schedule and makes up for missed calls.

Intervals are measured on a steady clock, so that setting the system clock causes neither a burst of calls nor silence.
Times of day follow the system's clock and time zone. If the clock was set back by more than three hours, they count
anew (as in cron); otherwise no call is repeated.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from zerochat.bot.agent_link import AgentLink
from zerochat.bot.api import key_scope
from zerochat.bot.failures import Failures
from zerochat.bot.handlers import Timer
from zerochat.bot.invoke import format_failure
from zerochat.bot.store import Store

SLEEP_S_MAX: Final = 60.0
"""Longest sleep, seconds: the system clock may be set meanwhile."""
SET_BACK_S: Final = 3 * 3600.0
"""A system clock that is further behind the last call, in seconds, was set back."""
CLOCK_ERROR_S: Final = 1.0
"""A call that is later than this, in seconds, was missed; clocks that differ by more than this were set."""


@dataclass(frozen=True, slots=True)
class _Last:
    """The last call of a timer."""

    due: float
    """Its due time, UTC, seconds."""
    steady: float
    """The same on the steady clock."""
    calls: int
    """The number of calls so far, a part of the idempotency keys: a clock that is set back repeats due times."""


class TimerRunner:
    """The timers of one run."""

    def __init__(
        self,
        link: AgentLink,
        store: Store,
        retries_s: Sequence[float],
        call: Callable[[Timer], Awaitable[None]],
        failures: Failures,
    ) -> None:
        """`link`: for its clocks. `call`: calls a timer's function once."""
        self._now, self._steady = link.now, link.steady
        self._store, self._retries_s, self._call = store, retries_s, call
        self._failures = failures

    async def run(self, timer: Timer) -> None:
        """Call a timer on its schedule. Calls missed within the grace period are made up for by one call."""
        last = self._resume(timer)
        while True:
            due, wait_s = self._next(timer, last)
            if wait_s > 0:
                await asyncio.sleep(min(wait_s, SLEEP_S_MAX))
                if timer.schedule.at is not None and last.due - self._now() > SET_BACK_S:
                    last = self._save(timer, self._now(), self._steady(), last.calls)
            elif wait_s <= -timer.grace_s:  # grace period over
                last = self._save(timer, self._now(), self._steady(), last.calls)
            else:
                steady_due = self._steady() + wait_s
                await self._fire(timer, due, last.calls)
                missed = wait_s < -CLOCK_ERROR_S
                last = self._called(timer, due, self._steady() if missed else steady_due, last.calls + 1)

    def _resume(self, timer: Timer) -> _Last:
        now = self._now()
        ran, calls = self._store.last_run(timer.name) or (None, 0)
        limit = now if timer.schedule.at is None else now + SET_BACK_S
        if ran is None or ran > limit:  # the first run, or the clock was set back
            return self._save(timer, now, self._steady(), calls)
        return _Last(ran, self._steady() - (now - ran), calls)

    def _next(self, timer: Timer, last: _Last) -> tuple[float, float]:
        """The next due time, and the seconds until then; negative: it has passed."""
        if timer.schedule.at is not None:
            time.tzset()  # the time zone of the system may have changed since the bot began
        due = timer.schedule.next_after(last.due, last.due)
        if timer.schedule.at is None:
            return due, last.steady + (due - last.due) - self._steady()
        return due, due - self._now()

    def _called(self, timer: Timer, due: float, steady: float, calls: int) -> _Last:
        """Note a call whose time on the steady clock was `steady`."""
        by_clock = self._now() - (self._steady() - steady)
        if timer.schedule.at is not None:
            by_clock = max(by_clock, due)
        return self._save(timer, due if abs(by_clock - due) <= CLOCK_ERROR_S else by_clock, steady, calls)

    def _save(self, timer: Timer, due: float, steady: float, calls: int) -> _Last:
        self._store.set_last_run(timer.name, due, calls)
        return _Last(due, steady, calls)

    async def _fire(self, timer: Timer, due: float, calls: int) -> None:
        """Call a timer, with the retries of a handler."""
        for attempt, wait_s in enumerate((*self._retries_s, None), 1):
            try:
                with key_scope(f"{timer.name}:{calls}:{due:.0f}"):
                    await self._call(timer)
                return
            except Exception as error:  # noqa: BLE001  # a timer may raise any exception
                self._failures.log.error("%s failed:\n%s", timer.name, format_failure(error))
                await self._failures.report(timer.name, error, None, attempt, False)
            if wait_s is not None:
                await asyncio.sleep(wait_s)
