"""The registered handlers of a bot, and what its decorators share."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypedDict, TypeVar

from zerochat.bot.arguments import BadHandler
from zerochat.bot.handlers import (
    INCLUDES,
    Commands,
    FailureHandler,
    Handler,
    Include,
    StartHandler,
    Timer,
    unique_name,
)
from zerochat.bot.schedule import parse_duration

F = TypeVar("F", bound=Callable[..., Any])


class Options(TypedDict, total=False):
    """The options of every handler of events."""

    group: str
    include: Sequence[Include] | None
    max_age: str | float | None
    timeout: str | float | None


class Registry:
    """The handlers that the decorators have registered."""

    def __init__(self, prefix: str, include: frozenset[Include], limit_s: float | None) -> None:
        """`limit_s`: default time limit of a handler; None: no limit."""
        self._include, self._default_timeout_s = include, limit_s
        self._handlers: list[Handler] = []
        self._timers: list[Timer] = []
        self._starts: list[StartHandler] = []
        self._failures: list[FailureHandler] = []
        self._commands = Commands(prefix)

    def _handler(
        self,
        call: Callable[..., Any],
        types: set[str],
        include: Sequence[Include] | None = None,
        group: str = "",
        timeout: str | float | None = "",
        max_age: str | float | None = None,
    ) -> dict[str, Any]:
        name = unique_name(call, self._names())
        if not inspect.signature(call).parameters:
            raise BadHandler(name=name, why="its first parameter must be the event")
        try:
            timeout_s, age_s = self._timeout_s(timeout), parse_duration(max_age) if max_age else 0.0
        except ValueError as error:
            raise BadHandler(name=name, why=error) from None
        return {
            "name": name,
            "types": frozenset(types),
            "call": call,
            "blocking": not inspect.iscoroutinefunction(call),
            "include": self._include if include is None else included(name, include),
            "group": group,
            "timeout_s": timeout_s,
            "max_age_s": age_s,
        }

    def _timeout_s(self, timeout: str | float | None) -> float | None:
        """The time limit in seconds. Raises ValueError."""
        if timeout == "":
            return self._default_timeout_s
        return None if timeout is None else parse_duration(timeout)

    def _names(self) -> set[str]:
        parts: list[Handler | Timer | StartHandler | FailureHandler] = [*self._handlers, *self._timers]
        parts += [*self._starts, *self._failures]
        return {one.name for one in parts}


def refuse_function(given: object, example: str) -> None:
    """Raises BadHandler for a decorator that needs arguments and was used without parentheses."""
    if callable(given):
        raise BadHandler(name=getattr(given, "__name__", repr(given)), why=f"write it with parentheses: {example}")


def included(name: str, include: Sequence[Include]) -> frozenset[Include]:
    if isinstance(include, str) or not set(include) <= set(INCLUDES):
        raise BadHandler(name=name, why=f"`include` must be a tuple of {', '.join(INCLUDES)}")
    return frozenset(include)
