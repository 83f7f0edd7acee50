"""Calls a bot's functions, and sees to it that none takes for ever.

A coroutine function that takes longer than its limit is cancelled where it waits. An ordinary function has a thread,
and nothing can end a thread: the bot gives up on it, lets everything else end, and ends itself (`HandlerStuck`), for
its supervisor to run it again. What never waits and holds the whole bot up is seen to in `watch.py`.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from zerochat.bot.cpu_watchdog import interruptible
from zerochat.bot.events import Event
from zerochat.bot.handlers import Handler, Start, Timer
from zerochat.errors import LocalError

SLOW_S: Final = 60.0
"""After so long it is said that a handler is still at work."""
STUCK_EXIT: Final = 9


class TookTooLong(LocalError):
    """{name} was not done after {seconds} seconds (`timeout`)."""


class HandlerStuck(LocalError):
    """{name} was not done after {seconds} seconds. It is no coroutine function, so nothing can end it but the end of
    the bot: whatever else was at work is finished, and the bot has to be run again."""

    exit_code: ClassVar[int] = STUCK_EXIT


class Caller:
    """The calls of one run."""

    def __init__(
        self,
        arguments: Callable[[Handler | Timer | Start, Event | None], tuple[object, ...]],
        log: logging.Logger,
        stuck: Callable[[HandlerStuck], None],
    ) -> None:
        """`arguments`: what a function is given first. `stuck`: told when one is given up that nothing can end."""
        self._arguments, self._log, self._stuck = arguments, log, stuck

    @interruptible
    async def call(
        self,
        what: Handler | Timer | Start,
        event: Event | None = None,
        args: Sequence[object] = (),
        named: Mapping[str, object] | None = None,
    ) -> None:
        """Raises what the function raises, TookTooLong, or HandlerStuck, after which the bot ends."""
        loop, limit_s = asyncio.get_running_loop(), None if isinstance(what, Start) else what.limit_s
        slow = loop.call_later(SLOW_S, self._log.info, "%s is still at work", what.name)
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
            raise TookTooLong(name=what.name, seconds=f"{limit_s:g}") from error
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
            self._stuck(stuck)
            raise stuck
        work.result()
