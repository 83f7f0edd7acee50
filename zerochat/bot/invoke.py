"""Handler calls with time limits.

A coroutine that exceeds its limit is cancelled. An ordinary function runs in a thread, which cannot be ended: the bot
gives up on it, lets the other handlers end, and exits (`HandlerStuck`) so that its supervisor restarts it.
`cpu_watchdog.py` interrupts functions that block the event loop.
"""

import asyncio
import concurrent.futures
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

from zerochat.bot.cpu_watchdog import interruptible
from zerochat.bot.events import Event
from zerochat.bot.handlers import Callee, StartHandler
from zerochat.errors import LocalError
from zerochat.terminal_text import printable

_OURS: Final = Path(__file__).parent
_THREADS: Final = (Path(asyncio.__file__).parent, Path(concurrent.futures.__file__).parent)
SLOW_S: Final = 60.0
"""Time after which a running handler is logged, seconds."""
STUCK_EXIT: Final = 9


class HandlerTimeout(LocalError):
    """{name} did not finish within {seconds} seconds (`timeout`)."""


class HandlerStuck(LocalError):
    """{name} did not finish within {seconds} seconds, and its thread cannot be interrupted. The bot stops after the
    other handlers have finished; run it again."""

    exit_code: ClassVar[int] = STUCK_EXIT


class Invoker:
    """Calls the handlers of one run."""

    def __init__(
        self,
        arguments: Callable[[Callee, Event | None], tuple[object, ...]],
        log: logging.Logger,
        on_stuck: Callable[[HandlerStuck], None],
    ) -> None:
        """`arguments`: returns the first arguments of a function. `on_stuck`: called when a thread exceeds its
        limit."""
        self._arguments, self._log, self._on_stuck = arguments, log, on_stuck

    @interruptible
    async def call(
        self,
        what: Callee,
        event: Event | None = None,
        args: Sequence[object] = (),
        named: Mapping[str, object] | None = None,
    ) -> None:
        """Call a function. Raises its exception, HandlerTimeout, or HandlerStuck, after which the bot ends."""
        loop, limit_s = asyncio.get_running_loop(), None if isinstance(what, StartHandler) else what.timeout_s
        slow = loop.call_later(SLOW_S, self._log.info, "%s is still running", what.name)
        call = partial(what.call, *self._arguments(what, event), *args, **(named or {}))
        limit = asyncio.timeout(limit_s)
        try:
            if what.blocking:
                await self._in_thread(what.name, call, limit_s)
                return
            async with limit:
                await call()
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise HandlerTimeout(name=what.name, seconds=f"{limit_s:g}") from error
        finally:
            slow.cancel()

    async def _in_thread(self, name: str, call: Callable[[], Any], limit_s: float | None) -> None:
        work = asyncio.ensure_future(asyncio.to_thread(call))
        try:
            done, _ = await asyncio.wait([work], timeout=limit_s)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if not done:
            work.cancel()
            stuck = HandlerStuck(name=name, seconds=f"{limit_s:g}")
            self._on_stuck(stuck)
            raise stuck
        work.result()


def format_failure(error: Exception) -> str:
    """The traceback of a handler's exception, without the frames of this package and of threads before it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return printable("".join(traceback.format_exception(type(error), error, trace)).rstrip())


def _is_ours(file: str) -> bool:
    return Path(file).parent in (_OURS, *_THREADS)
