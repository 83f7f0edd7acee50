"""Timers of a bot on a clock that is set, and over restarts."""

import asyncio
import logging
from typing import cast

import pytest

from zerochat.bot.agent_link import AgentLink
from zerochat.bot.api import _key_scope
from zerochat.bot.failures import Failures
from zerochat.bot.handlers import Timer
from zerochat.bot.invoke import Invoker
from zerochat.bot.schedule import make_schedule
from zerochat.bot.store import Store
from zerochat.bot.timers import TimerRunner
from zerochat.testing import run

NOON = 1_750_000_000 // 86_400 * 86_400 + 12 * 3600.0
HOUR_S, DAY_S = 3600.0, 86_400.0
LOG = logging.getLogger("test")


class Clocks:
    """A system clock that can be set, and a steady one."""

    ahead_s = 0.0

    def now(self) -> float:
        return NOON + self.steady() + self.ahead_s

    def steady(self) -> float:
        return asyncio.get_running_loop().time()


class Watched:
    """A timer that notes when it is called, in hours on the steady clock."""

    def __init__(self, store: Store, clocks: Clocks, *, grace_s: float = float("inf"), **schedule: str) -> None:
        self.ran: list[float] = []
        self.keys: list[str] = []
        timer = Timer("t", make_schedule(**schedule), self.note, False, grace_s)
        runner = TimerRunner(cast(AgentLink, clocks), store, (), self.call, Failures((), cast(Invoker, None), LOG))
        self.task = asyncio.create_task(runner.run(timer))

    async def call(self, timer: Timer) -> None:
        self.note()

    def note(self) -> None:
        scope = _key_scope.get()
        assert scope is not None
        self.keys.append(scope.name)
        self.ran.append(round(asyncio.get_running_loop().time() / HOUR_S, 1))


@pytest.mark.parametrize("ahead_s", [-400 * DAY_S, -HOUR_S, 90.0, HOUR_S, 400 * DAY_S])
def test_an_interval_ignores_a_clock_that_is_set(ahead_s: float) -> None:
    """Neither a burst nor silence, whether the clock is set while it runs or while it is stopped."""

    async def scenario() -> None:
        clocks = Clocks()
        with Store(None) as store:
            one = Watched(store, clocks, every="1h")
            await asyncio.sleep(2.5 * HOUR_S)
            clocks.ahead_s = ahead_s
            await asyncio.sleep(2 * HOUR_S)
            assert one.ran == [1, 2, 3, 4]
            one.task.cancel()
            clocks.ahead_s = 0.0  # it is corrected
            again = Watched(store, clocks, every="1h")
            await asyncio.sleep(2.1 * HOUR_S)
            assert 2 <= len(again.ran) <= 3, "at most one call is made up for"
            keys = one.keys + again.keys
            assert len(set(keys)) == len(keys), "each call sends its own messages"

    run(scenario())


def test_a_killed_call_keeps_its_keys() -> None:
    async def scenario() -> None:
        clocks = Clocks()
        with Store(None) as store:
            one = Watched(store, clocks, every="1h")
            await asyncio.sleep(HOUR_S + 1)
            store.set_last_run("t", NOON, 0)  # it was killed before it ended
            one.task.cancel()
            again = Watched(store, clocks, every="1h")
            await asyncio.sleep(1)
            assert again.keys == one.keys

    run(scenario())


@pytest.mark.parametrize(
    ("ahead_s", "ran"),
    [
        (-HOUR_S, [1, 26]),  # the same hour comes twice: no call is repeated
        (-5 * HOUR_S, [1, 6, 30]),  # the clock was wrong before
        (400 * DAY_S, [1, 25]),  # the call that was missed is over
    ],
)
def test_a_time_of_day_follows_the_clock(utc: None, ahead_s: float, ran: list[float]) -> None:
    async def scenario() -> None:
        clocks = Clocks()
        with Store(None) as store:
            one = Watched(store, clocks, grace_s=HOUR_S, at="13:00", zone="UTC")
            await asyncio.sleep(1.1 * HOUR_S)
            clocks.ahead_s = ahead_s
            await asyncio.sleep(29.9 * HOUR_S)
            assert [round(each) for each in one.ran] == ran
            one.task.cancel()
            clocks.ahead_s = 0.0
            again = Watched(store, clocks, grace_s=HOUR_S, at="13:00", zone="UTC")
            await asyncio.sleep(48 * HOUR_S)
            assert len(again.ran) == 2, "it is not silent until the wrong time comes"

    run(scenario())


def test_a_time_of_day_follows_the_time_zone_of_the_system(utc: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C library reads it only once."""

    async def scenario() -> None:
        with Store(None) as store:
            local, fixed = Watched(store, Clocks(), at="13:00"), Watched(store, Clocks(), at="13:00", zone="UTC")
            await asyncio.sleep(2 * HOUR_S)
            monkeypatch.setenv("TZ", "UTC+5")  # five hours behind UTC
            await asyncio.sleep(26 * HOUR_S)
            assert (local.ran, fixed.ran) == ([1, 6], [1, 25])
            local.task.cancel()
            fixed.task.cancel()

    run(scenario())
