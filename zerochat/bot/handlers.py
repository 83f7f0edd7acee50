"""Handlers: matching of events, and authorisation of commands. Pure, without I/O."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal, TypeAlias

from zerochat.bot.arguments import BadArguments, BadHandler, Parameter, parse_arguments, usage_of
from zerochat.bot.events import (
    Delivered,
    Event,
    Joined,
    JoinRequest,
    Left,
    Message,
    PrivateInvitation,
    Reaction,
    WebhookEvent,
)
from zerochat.bot.schedule import RateLimit, Schedule
from zerochat.rpc import AnnouncedCommand

Include = Literal["self", "bots", "replayed"]
INCLUDES: tuple[Include, ...] = ("self", "bots", "replayed")
Role = Literal["writer", "admin", "owner"]
RANKS = {"reader": 0, "writer": 1, "admin": 2, "owner": 3}
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
USAGE_CHARS_MAX, HELP_CHARS_MAX = 128, 256
LOCAL_TYPES = frozenset({"timer", "webhook"})
"""Types of events that arise in the bot (`local_events.py`)."""
COMMANDS_MAX = 32
WORDS_MAX = 3
"""Words of a command's name."""

ABOUT_OTHERS = (JoinRequest, PrivateInvitation, Delivered)
"""Events about other members that count as this profile's own."""


@dataclass(frozen=True, slots=True)
class Call:
    """The arguments of a handler call."""

    event: Event
    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)
    refusal: str = ""
    """Answer to send instead of the call; empty to make the call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function that is called for some events."""

    name: str
    """Unique in the bot and stable across restarts: idempotency keys and dead letters refer to it."""
    types: frozenset[str]
    call: Callable[..., Any]
    blocking: bool
    """Whether it is an ordinary function, which runs in a thread."""
    include: frozenset[Include] = frozenset()
    group: str = ""
    """Only events of this group (name, id or prefix of the id); empty: all groups."""
    timeout_s: float | None = None
    """Time limit, seconds; None: no limit."""
    max_age_s: float = 0.0
    """Age after which an event is no longer handled, seconds; 0: no limit."""

    def too_old(self, event: Event, now_s: float) -> bool:
        """`now_s`: UTC, seconds."""
        return self.max_age_s > 0 and now_s - event.at.timestamp() > self.max_age_s

    def accepts(self, event: Event) -> bool:
        """Whether the type, group and author of the event pass the handler's filters."""
        if event.type not in self.types:
            return False
        if self.group and not event.group.matches(self.group):
            return False
        if (
            event.own
            and "self" not in self.include
            and not isinstance(event, JoinRequest | PrivateInvitation | Delivered)
        ):
            return False
        if isinstance(event, Joined | Left):  # its author is another member
            return True
        return not event.author.bot or event.own or "bots" in self.include

    def match(self, event: Event) -> Call | None:
        """The call to make; None if the handler does not apply."""
        return Call(event) if self.accepts(event) else None

    def may_match(self, event: Event) -> bool:
        """Whether `match` could return a call, without matching a pattern, which can take forever."""
        return self.match(event) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHandler(Handler):
    """A handler for messages that match a pattern."""

    pattern: re.Pattern[str] | None = None
    mention: bool = False
    """Only messages that mention the bot."""
    commands: "Commands"

    def match(self, event: Event) -> Call | None:
        if not self.may_match(event) or not isinstance(event, Message):
            return None
        if self.pattern is None:
            return Call(event)
        found = self.pattern.search(event.text)
        return Call(replace(event, match=found)) if found else None

    def may_match(self, event: Event) -> bool:
        if not self.accepts(event) or not isinstance(event, Message) or event.deleted:
            return False
        if self.mention and event.group.me not in event.mentions:
            return False
        return not self.commands.concerns(event.text)  # a command has its own handler


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactionHandler(Handler):
    """A handler for added reactions; removed ones are skipped."""

    emoji: frozenset[str] = frozenset()

    def match(self, event: Event) -> Call | None:
        if not self.accepts(event) or not isinstance(event, Reaction) or not event.on:
            return None
        return Call(event) if not self.emoji or event.emoji in self.emoji else None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookHandler(Handler):
    """A handler for requests to one path."""

    path: str

    def match(self, event: Event) -> Call | None:
        return Call(event) if isinstance(event, WebhookEvent) and event.name == self.path else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Handler):
    """A handler for messages that start with its name."""

    word: str
    parameters: tuple[Parameter, ...]
    role: Role | None = None
    allow: frozenset[str] = frozenset()
    """DIDs of the members who may use it; empty: all."""
    verified: bool = False
    rate: RateLimit | None = None
    aliases: tuple[str, ...] = ()
    help: str = ""
    commands: "Commands"

    @property
    def usage(self) -> str:
        return usage_of(self.parameters)

    @property
    def line(self) -> str:
        """How to call it: `!deploy WHERE VERSION`."""
        return f"{self.commands.prefix}{self.word} {self.usage}".rstrip()

    def too_old(self, event: Event, now_s: float) -> bool:
        return False  # it is answered: `refusal`

    def match(self, event: Event) -> Call | None:
        if not self.accepts(event) or not isinstance(event, Message) or event.deleted:
            return None
        typed = self.commands.parse(event.text)
        if typed is None:
            known = self.commands.subcommands(event.text)
            usage = f"Usage: {' | '.join(one.line for one in known)}"
            return Call(event, refusal=usage) if known and known[0] is self else None
        if typed[0] is not self:
            return None
        line = typed[1]
        event = replace(event, args=tuple(line.split()))
        try:
            args, named = parse_arguments(self.parameters, line)
        except BadArguments as error:
            return Call(event, refusal=self.explain(error))
        return Call(event, tuple(args), named)

    def explain(self, error: BadArguments) -> str:
        """The answer to invalid arguments."""
        said = error.sentence()
        return f"{said[0].upper()}{said[1:]} Usage: {self.line}"

    def refusal(self, event: Event, roles: Mapping[str, str], now_s: float) -> str | None:
        """The answer to a member who may not use the command now; empty: refuse without an answer; None: execute it.
        `roles`: the members' current roles by DID, for a command with a role; `now_s`: UTC, seconds."""
        arrived = event.at.timestamp()
        if Handler.too_old(self, event, now_s):
            return f"This command is too old. Send {self.commands.prefix}{self.word} again to execute it."
        if event.unconfirmed and (self.role is not None or self.allow or self.verified):
            return "Another member relayed this command, so I cannot verify that you sent it. Please send it again."
        if self.allow and event.author.did not in self.allow:
            return "You are not allowed to use this command."
        if self.verified and not event.author.verified:
            return "Only verified members can use this command."
        if self.role is not None and not self._may(roles.get(event.author.did, "")):
            none = "" if any(map(self._may, roles.values())) else " No member of this group has it."
            return f"You need the role {self.role} to use this command.{none}"
        if self.rate is not None and (wait_s := self.rate.acquire(event.author.did, event.id, arrived)):
            told = self.rate.should_notify(event.author.did, event.id, arrived, wait_s)
            return f"Rate limit exceeded. Try again in {max(1.0, wait_s):.0f} s." if told else ""
        return None

    def _may(self, role: str) -> bool:
        return self.role is None or RANKS.get(role, -1) >= RANKS[self.role]


@dataclass(slots=True)
class Commands:
    """The commands of a bot by name."""

    prefix: str
    by_name: dict[str, Command] = field(default_factory=dict)

    def parse(self, text: str) -> tuple[Command, str] | None:
        """The command that a text calls, and the text after its name; None if it calls none."""
        words = self._words(text)
        for count in range(len(words), 0, -1):
            command = self.by_name.get(" ".join(one.group().lower() for one in words[:count]))
            if command is not None:
                return command, text[words[count - 1].end() :].lstrip()
        return None

    def subcommands(self, text: str) -> list[Command]:
        """The commands that a text could mean by its first word, which needs another word."""
        words = self._words(text)
        first = f"{words[0].group().lower()} " if words and self.parse(text) is None else "\n"
        return list({one.word: one for name, one in self.by_name.items() if name.startswith(first)}.values())

    def concerns(self, text: str) -> bool:
        """Whether a command handles or answers this text."""
        return self.parse(text) is not None or bool(self.subcommands(text))

    def _words(self, text: str) -> list[re.Match[str]]:
        """The first words of a text that begins with the prefix."""
        if not text.startswith(self.prefix) or not text[len(self.prefix) :][:1].strip():
            return []
        return list(islice(re.compile(r"\S+").finditer(text, len(self.prefix)), WORDS_MAX))

    @property
    def all(self) -> list[Command]:
        """Each command once, in the order of registration."""
        return list({one.word: one for one in self.by_name.values()}.values())

    def announcements(self) -> list[AnnouncedCommand]:
        """The commands as members complete them: subcommands under their first word."""
        found: dict[str, list[Command]] = {}
        for one in self.all:
            found.setdefault(one.word.partition(" ")[0], []).append(one)
        return [_announced(first, commands) for first, commands in found.items()]


@dataclass(frozen=True, slots=True)
class Timer:
    """A function that is called on a schedule."""

    name: str
    schedule: Schedule
    call: Callable[..., Any]
    blocking: bool
    grace_s: float
    """How late a missed call may still be made up for, seconds."""
    timeout_s: float | None = None
    """Time limit, seconds; None: no limit."""


@dataclass(frozen=True, slots=True)
class StartHandler:
    """A function that is called once, after the bot has subscribed."""

    name: str
    call: Callable[..., Any]
    blocking: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A failed call of a handler or timer, for `on_error` and `on_dead_letter`."""

    handler: str
    """Name of the function."""
    error: Exception
    event: Event | None
    """None: it was a timer of `every` or `at`."""
    attempt: int
    dead_letter: bool
    """Whether the event is now a dead letter and is not retried."""


@dataclass(frozen=True, slots=True)
class FailureHandler:
    """A function that is called when handlers fail."""

    name: str
    call: Callable[..., Any]
    blocking: bool
    timeout_s: float | None
    dead_letters: bool
    """Only for dead letters."""


Callee: TypeAlias = Handler | Timer | StartHandler | FailureHandler


@dataclass(frozen=True, slots=True)
class BotSpec:
    """A bot's configuration and handlers, as collected by its decorators."""

    consumer: str
    groups: Sequence[str] | None
    handlers: Sequence[Handler]
    timers: Sequence[Timer]
    start_handlers: Sequence[StartHandler]
    failure_handlers: Sequence[FailureHandler]
    retries_s: Sequence[float]
    credit: int
    from_beginning: bool
    take_over: bool
    announced_commands: Sequence[AnnouncedCommand]
    arguments: Callable[[Callee, Event | None], tuple[object, ...]]
    """Returns the first argument of a handler: the event, or its blocking variant."""


def _announced(first: str, commands: Sequence[Command]) -> AnnouncedCommand:
    """Commands with the same first word."""
    usages = [f"{one.word[len(first) :].lstrip()} {one.usage}".strip() for one in commands]
    ranks = sorted(RANKS[one.role or "reader"] for one in commands)
    role = next((role for role, rank in RANKS.items() if rank == ranks[0] and rank), "")
    usage = " | ".join(one for one in usages if one)
    usage = usage if len(usage) <= USAGE_CHARS_MAX else usage[: USAGE_CHARS_MAX - 1] + "…"
    return AnnouncedCommand(first, usage, commands[0].help, role)


def unique_name(call: Callable[..., Any], taken: Collection[str]) -> str:
    """The name of a function in ASCII, with a number appended if it is taken."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", getattr(call, "__name__", "handler"))[:32] or "handler"
    number, found = 2, name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found


def check_command(call: Callable[..., Any], word: str, parameters: tuple[Parameter, ...], help_: str) -> None:
    """Raises BadHandler if the command could not be announced."""
    name = getattr(call, "__name__", repr(call))
    words = word.split(" ")
    if not all(map(NAME.fullmatch, words)) or len(words) > WORDS_MAX:
        raise BadHandler(
            name=name,
            why=f"{word!r} must be up to {WORDS_MAX} words of 1 to 32 characters of a-z, 0-9, - and _, starting with a "
            "letter or digit",
        )
    if len(help_) > HELP_CHARS_MAX or not help_.isprintable():
        raise BadHandler(name=name, why=f"its help must be one line of at most {HELP_CHARS_MAX} characters")
    if len(usage_of(parameters)) > USAGE_CHARS_MAX:
        raise BadHandler(name=name, why=f"its usage line is longer than {USAGE_CHARS_MAX} characters")
