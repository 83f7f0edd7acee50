"""What a bot listens to: its handlers, which of them an event is for, and who may have it done.

Nothing here waits for anything or asks anybody, but for the role of an author where a command wants one.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from zerochat.bot.arguments import BadArguments, BadHandler, Parameter, read_arguments, usage_of
from zerochat.bot.events import Delivered, Event, Joined, JoinRequest, Message, Reaction
from zerochat.bot.schedule import Rate, Schedule
from zerochat.rpc import AnnouncedCommand

Include = Literal["self", "bots", "replayed"]
INCLUDES: tuple[Include, ...] = ("self", "bots", "replayed")
Role = Literal["writer", "admin", "owner"]
RANKS = {"reader": 0, "writer": 1, "admin": 2, "owner": 3}
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")
USAGE_CHARS_MAX, HELP_CHARS_MAX = 128, 256
COMMANDS_MAX = 32


@dataclass(frozen=True, slots=True)
class Call:
    """What a handler is to be called with."""

    event: Event
    args: tuple[object, ...] = ()
    named: Mapping[str, object] = field(default_factory=dict)
    answer: str = ""
    """Instead of a call: what is answered, because it cannot be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """A function that is called for some events."""

    name: str
    """Unique in its bot, and the same from start to start: keys and dead letters go by it."""
    types: frozenset[str]
    call: Callable[..., Any]
    blocking: bool
    """It is no coroutine function: it gets a thread."""
    include: frozenset[Include] = frozenset()
    group: str = ""
    """Only there; a name, an id or its first letters; empty: everywhere."""
    limit_s: float | None = None
    """How long it may take; None: as long as it likes."""

    def heeds(self, event: Event) -> bool:
        """Whether it wants to hear of this at all."""
        if event.type not in self.types:
            return False
        if self.group and not event.group.answers_to(self.group):
            return False
        if event.own and "self" not in self.include and not isinstance(event, JoinRequest | Delivered):
            return False
        if isinstance(event, Joined):  # its author is who has let the newcomer in
            return True
        return not event.author.bot or event.own or "bots" in self.include

    def match(self, event: Event) -> Call | None:
        """What to call it with; None: it is nothing for this one."""
        return Call(event) if self.heeds(event) else None

    def concerns(self, event: Event) -> bool:
        """Whether `match` would find something, or might: without looking for any pattern, which can take for ever."""
        return self.match(event) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextHandler(Handler):
    """For messages in which a pattern is found."""

    pattern: re.Pattern[str] | None = None
    commands: "Commands"

    def match(self, event: Event) -> Call | None:
        if not self.concerns(event) or not isinstance(event, Message):
            return None
        if self.pattern is None:
            return Call(event)
        found = self.pattern.search(event.text)
        return Call(replace(event, match=found)) if found else None

    def concerns(self, event: Event) -> bool:
        if not self.heeds(event) or not isinstance(event, Message) or event.deleted:
            return False
        return self.commands.named(event.text) is None  # a command has its own handler


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactionHandler(Handler):
    """For emoji, those that are put and not those that are taken back."""

    emoji: frozenset[str] = frozenset()

    def match(self, event: Event) -> Call | None:
        if not self.heeds(event) or not isinstance(event, Reaction) or not event.on:
            return None
        return Call(event) if not self.emoji or event.emoji in self.emoji else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Command(Handler):
    """For messages that begin with its name."""

    word: str
    parameters: tuple[Parameter, ...]
    role: Role | None = None
    allow: frozenset[str] = frozenset()
    """DIDs; empty: everybody."""
    verified: bool = False
    rate: Rate | None = None
    max_age_s: float = 0.0
    """What is older is not done any more; 0: however old."""
    help: str = ""
    commands: "Commands"

    @property
    def usage(self) -> str:
        return usage_of(self.parameters)

    def announced(self) -> AnnouncedCommand:
        return AnnouncedCommand(self.word, self.usage[:USAGE_CHARS_MAX], self.help, self.role or "")

    def match(self, event: Event) -> Call | None:
        if not self.heeds(event) or not isinstance(event, Message) or event.deleted:
            return None
        typed = self.commands.named(event.text)
        if typed is None or typed[0] is not self:
            return None
        line = typed[1]
        event = replace(event, args=tuple(line.split()))
        try:
            args, named = read_arguments(self.parameters, line)
        except BadArguments as error:
            usage = f"{self.commands.prefix}{self.word} {self.usage}".rstrip()
            said = error.sentence()
            return Call(event, answer=f"{said[0].upper()}{said[1:]} Usage: {usage}")
        return Call(event, tuple(args), named)

    def refused(self, event: Event, role: str, moment: float) -> str | None:
        """Why it is not done for whoever asks: a sentence for them, or empty where nothing is answered. None: it is
        done. `role`: what the author is in the group; `moment`: UTC seconds."""
        arrived = event.at.timestamp()
        if self.max_age_s and moment - arrived > self.max_age_s:
            return f"That was a while ago. Say {self.commands.prefix}{self.word} again if you still want it."
        if event.vouched and (self.role is not None or self.allow or self.verified):
            return "Somebody else has handed that over, and I cannot tell whether you have said it. Say it again."
        if self.allow and event.author.did not in self.allow:
            return "You may not ask me for that."
        if self.verified and not event.author.verified:
            return "I do that only for members whose words were compared with mine."
        if self.role is not None and RANKS.get(role, -1) < RANKS[self.role]:
            return f"Only {'an' if self.role[0] in 'ao' else 'a'} {self.role} may ask me for that."
        if self.rate is not None and (wait_s := self.rate.wait_s(event.author.did, event.id, arrived)):
            told = self.rate.tells(event.author.did, event.id, arrived, wait_s)
            return f"Not so often, please: try again in {max(1.0, wait_s):.0f} s." if told else ""
        return None


@dataclass(slots=True)
class Commands:
    """The commands of a bot, by name."""

    prefix: str
    known: dict[str, Command] = field(default_factory=dict)

    def named(self, text: str) -> tuple[Command, str] | None:
        """The command that a text is for, and what stands behind its name; None: it is for none of ours."""
        if not text.startswith(self.prefix):
            return None
        text = text[len(self.prefix) :]
        word, *rest = text.split(None, 1) if text[:1].strip() else [""]
        command = self.known.get(word.lower())
        return (command, rest[0] if rest else "") if command is not None else None


@dataclass(frozen=True, slots=True)
class Timer:
    """A function that is called at its times."""

    name: str
    schedule: Schedule
    call: Callable[..., Any]
    blocking: bool
    late_s: float
    """How late it may be, where nobody was there at the time."""
    limit_s: float | None = None
    """As a handler has it."""


@dataclass(frozen=True, slots=True)
class Start:
    """A function that is called once, when the bot hears its groups."""

    name: str
    call: Callable[..., Any]
    blocking: bool


def unique_name(call: Callable[..., Any], taken: Collection[str]) -> str:
    """The name of a function, in ASCII; with a number where it is taken."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", getattr(call, "__name__", "handler"))[:32] or "handler"
    number, found = 2, name
    while found in taken:
        found, number = f"{name}-{number}", number + 1
    return found


def check_command(call: Callable[..., Any], word: str, parameters: tuple[Parameter, ...], help_: str) -> None:
    """Raises BadHandler where a command could not be announced."""
    name = getattr(call, "__name__", repr(call))
    if not NAME.fullmatch(word):
        raise BadHandler(name=name, why=f"{word!r} is not 1 to 32 of a-z, 0-9, - and _, with a letter or digit first")
    if len(help_) > HELP_CHARS_MAX or not help_.isprintable():
        raise BadHandler(name=name, why=f"its help is one line of at most {HELP_CHARS_MAX} characters")
    if len(usage_of(parameters)) > USAGE_CHARS_MAX:
        raise BadHandler(name=name, why=f"its usage has more than {USAGE_CHARS_MAX} characters")
