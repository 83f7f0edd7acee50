"""The decorator of a bot's commands."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypedDict, Unpack, overload

from zerochat.bot.arguments import BadHandler, parameters_of
from zerochat.bot.handlers import COMMANDS_MAX, RANKS, Command, Role, check_command
from zerochat.bot.registry import F, Options, Registry
from zerochat.bot.schedule import RateLimit


class Access(TypedDict, total=False):
    """Who may use a command, and how often."""

    role: Role | None
    allow: Iterable[str]
    verified: bool
    rate: str | None


class CommandOptions(Access, Options, total=False):
    """The options of a command."""

    help: str
    aliases: Iterable[str]


class CommandDecorator(Registry):
    """`bot.command`."""

    @overload
    def command(self, name: F) -> F: ...
    @overload
    def command(self, name: str | None = None, **options: Unpack[CommandOptions]) -> Callable[[F], F]: ...
    def command(self, name: str | F | None = None, **options: Unpack[CommandOptions]) -> F | Callable[[F], F]:
        """Call the function for messages that start with `!name` (None, or no parentheses: the function's name). A name
        of several words is a subcommand: `command("db migrate")`. The text after it becomes the function's arguments,
        converted by their annotations (`arguments.py`); the answer to invalid arguments is the usage line.

        `role`: the least role that may use it. `allow`: DIDs of the members who may use it. `verified`: only verified
        members. `rate`: limit per member, such as `5/min`. `help`: one line (default: first line of the docstring).
        `aliases`: further names. `group`, `include`, `max_age`, `timeout`: as for events.
        """
        help_, aliases = options.pop("help", ""), options.pop("aliases", ())
        access = Access(
            role=options.pop("role", None),
            allow=options.pop("allow", ()),
            verified=options.pop("verified", False),
            rate=options.pop("rate", None),
        )

        def add(call: F) -> F:
            label = getattr(call, "__name__", repr(call))
            word = " ".join((name if isinstance(name, str) else label.strip("_")).lower().split())
            parameters = parameters_of(call)
            said = help_ or (inspect.getdoc(call) or "").partition("\n")[0]
            if isinstance(aliases, str):
                raise BadHandler(name=label, why="`aliases` must be a tuple of names")
            names = (word, *(" ".join(one.lower().split()) for one in aliases))
            for one in names:
                check_command(call, one, parameters, said)
                if one in self._commands.by_name:
                    raise BadHandler(name=label, why=f"the command {one!r} already exists")
            command = Command(
                **self._handler(call, {"message"}, **options),  # type: ignore[misc]
                **_permissions(label, access),
                word=word,
                aliases=names[1:],
                parameters=parameters,
                help=said,
                commands=self._commands,
            )
            self._commands.by_name.update(dict.fromkeys(names, command))
            if len(self._commands.announcements()) >= COMMANDS_MAX:
                raise BadHandler(name=label, why=f"a bot has at most {COMMANDS_MAX - 1} commands")
            self._handlers.append(command)
            return call

        return add(name) if callable(name) else add


def _permissions(label: str, access: Access) -> dict[str, Any]:
    """The fields of a command that restrict its use. Raises BadHandler."""
    role, allow, rate = access["role"], access["allow"], access["rate"]
    if role is not None and role not in RANKS:
        raise BadHandler(name=label, why=f"{role!r} is not one of the roles {', '.join(RANKS)}")
    allowed = frozenset(allow)
    if isinstance(allow, str) or not all(one.startswith("did:") for one in allowed):
        raise BadHandler(name=label, why="`allow` takes DIDs, because names are not unique")
    try:
        limit = RateLimit.parse(rate) if rate else None
    except ValueError as error:
        raise BadHandler(name=label, why=error) from None
    return {"role": role, "allow": allowed, "verified": access["verified"], "rate": limit}
