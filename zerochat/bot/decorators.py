"""What a bot listens to: the decorators that are put on its handlers."""

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
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
    Start,
    TextHandler,
    Timer,
    check_command,
    unique_name,
)
from zerochat.bot.schedule import Rate, schedule_of, seconds_of

LATE = "1h"

F = TypeVar("F", bound=Callable[..., Any])


class Listener:
    """Keeps what the decorators have collected. A `Bot` is one."""

    def __init__(self, prefix: str, include: frozenset[Include], limit_s: float | None) -> None:
        """`limit_s`: how long a handler may take for which nothing else is said; None: as long as it likes."""
        self._include, self._limit_s = include, limit_s
        self._handlers: list[Handler] = []
        self._timers: list[Timer] = []
        self._starts: list[Start] = []
        self._commands = Commands(prefix)

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
    ) -> Callable[[F], F]:
        """Call this for messages that begin with `!name` (None: the function's own name). What stands behind it becomes
        the function's arguments, by their annotations (`arguments.py`); what does not fit is answered with the usage.

        `role`: what one has to be at least. `allow`: the DIDs of those who may. `verified`: only members whose words
        were compared. `rate`: how often each may, such as `5/min`. `max_age`: what came longer ago is not done any more
        (`10m`). `help`: one line; None said, the first of the docstring. `timeout`: how long it may take (None: as long
        as it likes; nothing said: what the bot's is)."""

        def add(call: F) -> F:
            label = getattr(call, "__name__", repr(call))
            word = (name or label.strip("_")).lower()
            parameters = parameters_of(call)
            said = help or (inspect.getdoc(call) or "").partition("\n")[0]
            check_command(call, word, parameters, said)
            if word in self._commands.known:
                raise BadHandler(name=label, why=f"there is a command {word!r} already")
            if len(self._commands.known) >= COMMANDS_MAX - 1:
                raise BadHandler(name=label, why=f"a bot has at most {COMMANDS_MAX - 1} commands")
            if role is not None and role not in RANKS:
                raise BadHandler(name=label, why=f"{role!r} is none of the roles {', '.join(RANKS)}")
            allowed = frozenset(allow)
            if isinstance(allow, str) or not all(one.startswith("did:") for one in allowed):
                raise BadHandler(name=label, why="`allow` has DIDs; a name can be anybody's")
            try:
                limit = Rate.parse(rate) if rate else None
                age = seconds_of(max_age) if max_age else 0.0
            except ValueError as error:
                raise BadHandler(name=label, why=error) from None
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
            self._commands.known[word] = command
            self._handlers.append(command)
            return call

        return add

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
        """Call this for messages that are none of the bot's commands. `text`: a regular expression that has to be found
        in it; `m.match` has what was. `timeout`: as `command` has it."""

        def add(call: F) -> F:
            parts = self._handler(call, {"message"}, include, group, timeout)
            try:
                pattern = re.compile(text) if text is not None else None
            except re.error as error:
                raise BadHandler(name=parts["name"], why=f"{text!r} is no regular expression ({error})") from None
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
        """Call this when somebody answers a message with an emoji (`emoji`: with one of these)."""

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
        """Call this when somebody comes into a group."""
        return self._on("member_joined", call, group)

    @overload
    def on_delivery(self, call: F) -> F: ...
    @overload
    def on_delivery(self, *, group: str = "") -> Callable[[F], F]: ...
    def on_delivery(self, call: F | None = None, *, group: str = "") -> F | Callable[[F], F]:
        """Call this when a member has acknowledged messages of this profile."""
        return self._on("delivery", call, group)

    @overload
    def on_request(self, call: F) -> F: ...
    @overload
    def on_request(self, *, group: str = "") -> Callable[[F], F]: ...
    def on_request(self, call: F | None = None, *, group: str = "") -> F | Callable[[F], F]:
        """Call this when somebody asks to be let in, or does so no longer."""
        return self._on("request", call, group)

    def on(
        self,
        *types: str,
        group: str = "",
        include: Sequence[Include] | None = None,
        timeout: str | float | None = "",
    ) -> Callable[[F], F]:
        """Call this for events of these types (`Item` in `zerochat/rpc/subscriptions.py` lists them): `on("gap")`.
        `timeout`: as `command` has it."""

        def add(call: F) -> F:
            self._handlers.append(Handler(**self._handler(call, set(types), include, group, timeout)))
            return call

        return add

    def _on(self, kind: str, call: F | None, group: str) -> F | Callable[[F], F]:
        add = self.on(kind, group=group)
        return add if call is None else add(call)

    def on_start(self, call: F) -> F:
        """Call this once, when the bot hears its groups; it may last as long as the bot. What it raises ends the bot.
        What it says has no lasting key: when the bot starts again, it is said again, unless a `key` is given."""
        name = unique_name(call, self._names())
        if inspect.signature(call).parameters:
            raise BadHandler(name=name, why="nobody calls it with anything: it has no parameters")
        self._starts.append(Start(name, call, not inspect.iscoroutinefunction(call)))
        return call

    def every(
        self,
        span: str | float,
        *,
        at: str = "",
        zone: str = "",
        late: str | float | None = None,
        timeout: str | float | None = "",
    ) -> Callable[[F], F]:
        """Call this again and again: `every("10m")`, or `every("6h", at="03:00")` for 03:00, 09:00, 15:00 and 21:00.
        What was due while the bot did not run is done once when it runs again. `timeout`: as `command` has it."""
        return self._timer(late, timeout, every=span, at=at, zone=zone)

    def at(
        self,
        clock: str,
        *,
        days: str = "daily",
        zone: str = "",
        late: str | float = LATE,
        timeout: str | float | None = "",
    ) -> Callable[[F], F]:
        """Call this at a time of day: `at("09:00", days="mon-fri")`. `zone`: an IANA name; empty: this machine's own.
        `late`: how much later it may still be done, where the bot did not run at the time. `timeout`: as `command` has
        it."""
        return self._timer(late, timeout, at=clock, days=days, zone=zone)

    def _timer(self, late: str | float | None, timeout: str | float | None, **schedule: Any) -> Callable[[F], F]:
        def add(call: F) -> F:
            name = unique_name(call, self._names())
            if inspect.signature(call).parameters:
                raise BadHandler(name=name, why="nobody calls it with anything: a timer has no parameters")
            try:
                late_s = float("inf") if late is None else seconds_of(late)
                blocking, limit_s = not inspect.iscoroutinefunction(call), self._limit_of(timeout)
                timer = Timer(name, schedule_of(**schedule), call, blocking, late_s, limit_s)
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
            raise BadHandler(name=name, why="its first parameter is what has happened")
        try:
            limit_s = self._limit_of(timeout)
        except ValueError as error:
            raise BadHandler(name=name, why=error) from None
        return {
            "name": name,
            "types": frozenset(types),
            "call": call,
            "blocking": not inspect.iscoroutinefunction(call),
            "include": self._include if include is None else included(name, include),
            "group": group,
            "limit_s": limit_s,
        }

    def _limit_of(self, timeout: str | float | None) -> float | None:
        """Raises ValueError."""
        if timeout == "":
            return self._limit_s
        return None if timeout is None else seconds_of(timeout)

    def _names(self) -> set[str]:
        parts: list[Handler | Timer | Start] = [*self._handlers, *self._timers, *self._starts]
        return {one.name for one in parts}


def included(name: str, include: Sequence[Include]) -> frozenset[Include]:
    if isinstance(include, str) or not set(include) <= set(INCLUDES):
        raise BadHandler(name=name, why=f"`include` is a tuple of {', '.join(INCLUDES)}")
    return frozenset(include)
