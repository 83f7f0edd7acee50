"""Decorators of functions that a bot calls by the clock, at its start, and for webhooks."""

import inspect
import re
from collections.abc import Callable
from typing import Any, overload

from zerochat.bot.arguments import BadHandler
from zerochat.bot.handlers import Handler, StartHandler, Timer, WebhookHandler, unique_name
from zerochat.bot.registry import F, Registry, refuse_function
from zerochat.bot.schedule import make_schedule, parse_duration

GRACE = "1h"
PATH = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class TimerDecorators(Registry):
    """`bot.every`, `bot.at`, `bot.on_timer`, `bot.on_webhook` and `bot.on_start`."""

    def on_timer(self, call: F) -> F:
        """Call the function with a `TimerEvent` when a timer of `bot.set_timer` is due."""
        self._handlers.append(Handler(**self._handler(call, {"timer"})))
        return call

    def on_webhook(self, path: str, *, timeout: str | float | None = "") -> Callable[[F], F]:
        """Call the function with a `WebhookEvent` for `POST /path`; see `webhooks` of `Bot`. `timeout`: as in
        `command`."""
        refuse_function(path, '@bot.on_webhook("build")')

        def add(call: F) -> F:
            parts = self._handler(call, {"webhook"}, timeout=timeout)
            if not PATH.fullmatch(path):
                raise BadHandler(name=parts["name"], why=f"{path!r} must be 1 to 64 of a-z, 0-9, dots, - and _")
            self._handlers.append(WebhookHandler(**parts, path=path))
            return call

        return add

    @overload
    def on_start(self, call: F) -> F: ...
    @overload
    def on_start(self) -> Callable[[F], F]: ...
    def on_start(self, call: F | None = None) -> F | Callable[[F], F]:
        """Call the function once, after the bot has subscribed; it may run as long as the bot. An exception ends the
        bot. Messages that it sends are sent again after a restart, unless a `key` is given."""

        def add(call: F) -> F:
            name = unique_name(call, self._names())
            if inspect.signature(call).parameters:
                raise BadHandler(name=name, why="it must have no parameters")
            self._starts.append(StartHandler(name, call, not inspect.iscoroutinefunction(call)))
            return call

        return add if call is None else add(call)

    def every(
        self,
        interval: str | float,
        *,
        at: str = "",
        zone: str = "",
        grace: str | float | None = None,
        timeout: str | float | None = "",
    ) -> Callable[[F], F]:
        """Call the function at an interval: `every("10m")`, or `every("6h", at="03:00")` for 03:00, 09:00, 15:00 and
        21:00. Calls missed while the bot was stopped are made up for by one call. `timeout`: as in `command`."""
        refuse_function(interval, '@bot.every("10m")')
        return self._timer(grace, timeout, every=interval, at=at, zone=zone)

    def at(
        self,
        time: str,
        *,
        days: str = "daily",
        zone: str = "",
        grace: str | float = GRACE,
        timeout: str | float | None = "",
    ) -> Callable[[F], F]:
        """Call the function at a time of day: `at("09:00", days="mon-fri")`. `zone`: an IANA name; empty: local time.
        `grace`: how late a missed call may still be made up for. `timeout`: as in `command`."""
        refuse_function(time, '@bot.at("09:00")')
        return self._timer(grace, timeout, at=time, days=days, zone=zone)

    def _timer(self, late: str | float | None, timeout: str | float | None, **schedule: Any) -> Callable[[F], F]:
        def add(call: F) -> F:
            name = unique_name(call, self._names())
            if inspect.signature(call).parameters:
                raise BadHandler(name=name, why="a timer must have no parameters")
            try:
                late_s = float("inf") if late is None else parse_duration(late)
                blocking, limit_s = not inspect.iscoroutinefunction(call), self._timeout_s(timeout)
                timer = Timer(name, make_schedule(**schedule), call, blocking, late_s, limit_s)
            except ValueError as error:
                raise BadHandler(name=name, why=error) from None
            self._timers.append(timer)
            return call

        return add
