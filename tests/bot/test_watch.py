"""The CPU watchdog interrupts code in the event loop's thread only."""

import asyncio
import os
import signal
import time
from collections.abc import Callable

import pytest

from zerochat.bot.cpu_watchdog import HANDLER_CPU_S_MAX, PATTERN_CPU_S_MAX, CpuLimitExceeded, CpuWatchdog, interruptible

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such signals here")


def at_work(
    monkeypatch: pytest.MonkeyPatch, computed: Callable[[], float], then: Callable[[CpuWatchdog], None]
) -> None:
    """Run `then` while a bot is watched whose own thread has computed for so long."""
    monkeypatch.setattr(time, "thread_time", computed)

    async def serve() -> None:
        watch = CpuWatchdog()
        watch.start()
        try:
            then(watch)
        finally:
            watch.stop()
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0, 0)

    asyncio.run(serve())


@interruptible
def theirs(steps: int = 1) -> int:
    """The clock of the process has run down, so many times; how often that did not interrupt this."""
    for _ in range(steps):
        os.kill(os.getpid(), signal.SIGVTALRM)
    return steps


def test_other_threads_do_not_trigger_the_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = [7.0]

    def play(watch: CpuWatchdog) -> None:
        assert theirs(3) == 3, "the loop's own thread has computed nothing meanwhile"
        left, _ = signal.getitimer(signal.ITIMER_VIRTUAL)
        assert left > 0, "it is asked again when it could be so"
        spent[0] += HANDLER_CPU_S_MAX - 1
        assert theirs(3) == 3
        with watch.pattern_limit():
            assert theirs() == 1, "a pattern has a time of its own"
            spent[0] += PATTERN_CPU_S_MAX
            with pytest.raises(CpuLimitExceeded, match=f"{PATTERN_CPU_S_MAX:g} seconds"):
                theirs()
        spent[0] += HANDLER_CPU_S_MAX
        with pytest.raises(CpuLimitExceeded, match=f"{HANDLER_CPU_S_MAX:g} seconds"):
            theirs()
        assert theirs() == 1, "and that began anew"

    at_work(monkeypatch, lambda: spent[0], play)


def test_internal_code_is_never_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = [0.0]

    def play(watch: CpuWatchdog) -> None:
        spent[0] += 1_000
        os.kill(os.getpid(), signal.SIGVTALRM)

    at_work(monkeypatch, lambda: spent[0], play)


def test_computing_handler_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerochat.bot.cpu_watchdog.HANDLER_CPU_S_MAX", 0.05)

    @interruptible
    def endless() -> None:
        while True:
            pass

    async def serve() -> None:
        watch = CpuWatchdog()
        watch.start()
        try:
            with pytest.raises(CpuLimitExceeded):
                endless()
        finally:
            watch.stop()

    asyncio.run(serve())
