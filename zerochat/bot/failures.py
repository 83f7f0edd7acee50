"""Calls the handlers of failures (`on_error`, `on_dead_letter`)."""

import logging
from collections.abc import Sequence

from zerochat.bot.events import Event
from zerochat.bot.handlers import Failure, FailureHandler
from zerochat.bot.invoke import Invoker, format_failure
from zerochat.bot.sync import blocking_view


class Failures:
    """The failure handlers of one run. Their own exceptions are logged, not retried."""

    def __init__(self, handlers: Sequence[FailureHandler], invoker: Invoker, log: logging.Logger) -> None:
        self._handlers, self._invoker, self.log = handlers, invoker, log

    async def report(self, handler: str, error: Exception, event: Event | None, attempt: int, final: bool) -> None:
        """Call them after a failed attempt; `final`: the event is now a dead letter."""
        for one in self._handlers:
            if one.dead_letters and not final:
                continue
            shown = blocking_view(event) if one.blocking and event is not None else event
            failure = Failure(handler=handler, error=error, event=shown, attempt=attempt, dead_letter=final)
            try:
                await self._invoker.call(one, None, (failure,))
            except Exception as fault:  # noqa: BLE001  # user code
                self.log.error("%s failed:\n%s", one.name, format_failure(fault))
