"""Decorators that register a bot's handlers."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar, overload

from zerochat.bot.arguments import BadHandler, parameters_of
from zerochat.bot.handlers import (
    COMMANDS_MAX,
    INCLUDES,
    RANKS,
    Command,
    Commands,
    Handler,
    Include,
    ReactionHandler,
    Role,
    StartHandler,
    TextHandler,
    Timer,
    check_command,
    unique_name,
)
from zerochat.bot.schedule import RateLimit, make_schedule, parse_duration
from zerochat.rpc import EVENT_TYPES, ITEM_TYPES

GRACE = "1h"

F = TypeVar("F", bound=Callable[..., Any])


class HandlerRegistry:
    """The registered handlers; the base class of `Bot`."""

    def __init__(self, prefix: str, include: frozenset[Include], limit_s: float | None) -> None:
        """`limit_s`: default time limit of a handler; None: no limit."""
        self._include, self._default_timeout_s = include, limit_s
        self._handlers: list[Handler] = []
        self._timers: list[Timer] = []
        self._starts: list[StartHandler] = []
        self._commands = Commands(prefix)

    @overload
    def command(self, name: F) -> F: ...
    @overload
    def command(
        self,
        name: str | None = None,
        *,
        role: Role | None = None,
        help: str = "",
        allow: Iterable[str] = (),
        verified: bool = False,
        rate: str | None = None,
        max_age: str | float | None = None,
        group: str = "",
        include: Sequence[Include] | None = None,
        timeout: str | float | None = "",
    ) -> Callable[[F], F]: ...
    def command(
        self,
        name: str | F | None = None,
        *,
        role: Role | None = None,
        help: str = "",
        allow: Iterable[str] = (),
        verified: bool = False,
        rate: str | None = None,
        max_age: str | float | None = None,
        group: str = "",
        include: Sequence[Include] | None = None,
        timeout: str | float | None = "",
    ) -> F | Callable[[F], F]:
        """Call the function for messages that start with `!name` (None, or no parentheses: the function's name). The
        text after it becomes the function's arguments, converted by their annotations (`arguments.py`); the answer to
        invalid arguments is the usage line.

        `role`: the least role that may use it. `allow`: DIDs of the members who may use it. `verified`: only verified
        members. `rate`: limit per member, such as `5/min`. `max_age`: messages received longer ago are not executed
        (`10m`). `help`: one line (default: first line of the docstring). `timeout`: time limit (None: no limit;
        default: the bot's).
        """

        def add(call: F) -> F:
            label = getattr(call, "__name__", repr(call))
            word = (name if isinstance(name, str) else label.strip("_")).lower()
            parameters = parameters_of(call)
            said = help or (inspect.getdoc(call) or "").partition("\n")[0]
            check_command(call, word, parameters, said)
            if word in self._commands.by_name:
                raise BadHandler(name=label, why=f"the command {word!r} already exists")
            if len(self._commands.by_name) >= COMMANDS_MAX - 1:
                raise BadHandler(name=label, why=f"a bot has at most {COMMANDS_MAX - 1} commands")
            if role is not None and role not in RANKS:
                raise BadHandler(name=label, why=f"{role!r} is not one of the roles {', '.join(RANKS)}")
            allowed = frozenset(allow)
            if isinstance(allow, str) or not all(one.startswith("did:") for one in allowed):
                raise BadHandler(name=label, why="`allow` takes DIDs, because names are not unique")
            limit, age = _parse_limits(label, rate, max_age)
            command = Command(
                **self._handler(call, {"message"}, include, group, timeout),
                word=word,
                parameters=parameters,
                role=role,
                allow=allowed,
                verified=verified,
                rate=limit,
                max_age_s=age,
                help=said,
                commands=self._commands,
            )
            self._commands.by_name[word] = command
            self._handlers.append(command)
            return call

        return add(name) if callable(name) else add

    @overload
    def on_message(self, call: F) -> F: ...
    @overload
    def on_message(
        self,
        *,
        text: str | re.Pattern[str] | None = None,
        group: str = "",
        include: Sequence[Include] | None = None,
        timeout: str | float | None = "",
    ) -> Callable[[F], F]: ...
    def on_message(
        self,
        call: F | None = None,
        *,
        text: str | re.Pattern[str] | None = None,
        group: str = "",
        include: Sequence[Include] | None = None,
        timeout: str | float | None = "",
    ) -> F | Callable[[F], F]:
        """Call the function for messages that are not commands of the bot. `text`: a regular expression that must match
        somewhere in the text; `m.match` is the match. `timeout`: as in `command`."""

        def add(call: F) -> F:
            parts = self._handler(call, {"message"}, include, group, timeout)
            try:
                pattern = re.compile(text) if text is not None else None
            except re.error as error:
                raise BadHandler(
                    name=parts["name"], why=f"{text!r} is not a valid regular expression ({error})"
                ) from None
            self._handlers.append(TextHandler(**parts, pattern=pattern, commands=self._commands))
            return call

        return add if call is None else add(call)

    @overload
    def on_reaction(self, call: F) -> F: ...
    @overload
    def on_reaction(
        self, *, emoji: Iterable[str] = (), group: str = "", include: Sequence[Include] | None = None
    ) -> Callable[[F], F]: ...
    def on_reaction(
        self,
        call: F | None = None,
        *,
        emoji: Iterable[str] = (),
        group: str = "",
        include: Sequence[Include] | None = None,
    ) -> F | Callable[[F], F]:
        """Call the function when a member reacts to a message (`emoji`: with one of these)."""

        def add(call: F) -> F:
            wanted = frozenset({emoji} if isinstance(emoji, str) else emoji)
            self._handlers.append(ReactionHandler(**self._handler(call, {"reacted"}, include, group), emoji=wanted))
            return call

        return add if call is None else add(call)

    @overload
    def on_join(self, call: F) -> F: ...
    @overload
    def on_join(self, *, group: str = "") -> Callable[[F], F]: ...
    def on_join(self, call: F | None = None, *, group: str = "") -> F | Callable[[F], F]:
        """Call the function when a member joins a group."""
        return self._event_decorator("member_joined", call, group)

    @overload
    def on_delivery(self, call: F) -> F: ...
    @overload
    def on_delivery(self, *, group: str = "") -> Callable[[F], F]: ...
    def on_delivery(self, call: F | None = None, *, group: str = "") -> F | Callable[[F], F]:
        """Call the function when a member has acknowledged messages of this profile."""
        return self._event_decorator("delivery", call, group)

    @overload
    def on_join_request(self, call: F) -> F: ...
    @overload
    def on_join_request(self, *, group: str = "") -> Callable[[F], F]: ...
    def on_join_request(self, call: F | None = None, *, group: str = "") -> F | Callable[[F], F]:
        """Call the function when a join request arrives or is withdrawn."""
        return self._event_decorator("join_request", call, group)

    def on(
        self,
        *types: str,
        group: str = "",
        include: Sequence[Include] | None = None,
        timeout: str | float | None = "",
    ) -> Callable[[F], F]:
        """Call the function for events of these types: `on("gap", "fork")`. `rpc.EVENT_TYPES` and `rpc.ITEM_TYPES` have
        all of them. `timeout`: as in `command`."""
        _check_types(types)

        def add(call: F) -> F:
            self._handlers.append(Handler(**self._handler(call, set(types), include, group, timeout)))
            return call

        return add

    def _event_decorator(self, kind: str, call: F | None, group: str) -> F | Callable[[F], F]:
        add = self.on(kind, group=group)
        return add if call is None else add(call)

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
        _refuse_function(interval, '@bot.every("10m")')
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
        _refuse_function(time, '@bot.at("09:00")')
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

    def _handler(
        self,
        call: Callable[..., Any],
        types: set[str],
        include: Sequence[Include] | None,
        group: str,
        timeout: str | float | None = "",
    ) -> dict[str, Any]:
        name = unique_name(call, self._names())
        if not inspect.signature(call).parameters:
            raise BadHandler(name=name, why="its first parameter must be the event")
        try:
            timeout_s = self._timeout_s(timeout)
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
        }

    def _timeout_s(self, timeout: str | float | None) -> float | None:
        """The time limit in seconds. Raises ValueError."""
        if timeout == "":
            return self._default_timeout_s
        return None if timeout is None else parse_duration(timeout)

    def _names(self) -> set[str]:
        parts: list[Handler | Timer | StartHandler] = [*self._handlers, *self._timers, *self._starts]
        return {one.name for one in parts}


def _refuse_function(given: object, example: str) -> None:
    """Raises BadHandler for a decorator that needs arguments and was used without parentheses."""
    if callable(given):
        raise BadHandler(name=getattr(given, "__name__", repr(given)), why=f"write it with parentheses: {example}")


def _check_types(types: Sequence[object]) -> None:
    """Raises BadHandler for types that no event has."""
    for one in types or (None,):
        _refuse_function(one, '@bot.on("gap")')
        if not isinstance(one, str) or one not in (*EVENT_TYPES, *ITEM_TYPES):
            known = get_close_matches(str(one), [*EVENT_TYPES, *ITEM_TYPES], 3) or sorted([*EVENT_TYPES, *ITEM_TYPES])
            why = f"{one!r} is not an event type" if types else "it names no event type"
            raise BadHandler(name="@bot.on", why=f"{why}. Use one of: {', '.join(known)}")


def included(name: str, include: Sequence[Include]) -> frozenset[Include]:
    if isinstance(include, str) or not set(include) <= set(INCLUDES):
        raise BadHandler(name=name, why=f"`include` must be a tuple of {', '.join(INCLUDES)}")
    return frozenset(include)


def _parse_limits(name: str, rate: str | None, max_age: str | float | None) -> tuple[RateLimit | None, float]:
    """The rate limit and the age limit in seconds. Raises BadHandler."""
    try:
        return RateLimit.parse(rate) if rate else None, parse_duration(max_age) if max_age else 0.0
    except ValueError as error:
        raise BadHandler(name=name, why=error) from None
