"""Command arguments from a handler's signature: `async def deploy(m: Message, env: str)`.

    str, int, float, bool     one word (bool: yes/no, on/off, true/false, 1/0)
    Literal["a", "b"]         one of these words
    Colour (an Enum)          the name of one of its values, in any case
    Member                    a member of the group: `@Bob`, `Bob` or a DID (`members.py`)
    X | None, Optional[X]     optional, with a default
    list[X], *words: X        all remaining words; a list without a default needs one at least
    *, text: str              the rest of the line, verbatim

Quotes group words: `!remind "the bread" 20m`.
"""

import inspect
import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from zerochat.errors import LocalError

_WORD = re.compile(r""" \s* (?: "((?:[^"\\]|\\.)*)" | '([^']*)' | (\S+) ) """, re.VERBOSE)
_BOOLS = {"yes": True, "on": True, "true": True, "1": True, "no": False, "off": False, "false": False, "0": False}
MEMBERS = "zerochat.bot.members"
"""Module of `Member`, which depends on this one."""
NUMBER_CHARS_MAX = 64
SHOWN_CHARS_MAX = 40
"""Length limit of an invalid word in an error message."""


class BadHandler(LocalError):
    """{name} cannot be used as a handler: {why}."""

    exit_code = 2


class BadArguments(LocalError):
    """{why}."""


@dataclass(frozen=True, slots=True)
class MemberWord:
    """A word that names a member, before it is looked up (`members.find_member`)."""

    name: str
    """Name of the parameter."""
    text: str


def shortened(word: str) -> str:
    """A word of a user for an answer."""
    return word if len(word) <= SHOWN_CHARS_MAX else word[: SHOWN_CHARS_MAX - 1] + "…"


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a command."""

    name: str
    kind: type
    choices: tuple[str, ...] = ()
    default: Any = inspect.Parameter.empty
    shape: Literal["word", "words", "list", "rest"] = "word"

    @property
    def required(self) -> bool:
        return self.default is inspect.Parameter.empty and self.shape != "words"

    def usage(self) -> str:
        text = "|".join(self.choices) if self.choices else self.name.upper()
        if self.shape != "word":
            text += "..."
        return text if self.required else f"[{text}]"

    def parse(self, word: str) -> object:
        """The typed value of a word. Raises BadArguments."""
        shown = shortened(word)
        if self.kind is MemberWord:
            return MemberWord(self.name, word)
        if self.choices:
            chosen = word.lower() if issubclass(self.kind, Enum) else word
            if chosen not in self.choices:
                raise BadArguments(why=f"{self.name} must be one of {', '.join(self.choices)}, not {shown}")
            return list(self.kind)[self.choices.index(chosen)] if issubclass(self.kind, Enum) else word
        if self.kind is bool:
            if word.lower() not in _BOOLS:
                raise BadArguments(why=f"{self.name} must be yes or no, not {shown}")
            return _BOOLS[word.lower()]
        if self.kind is str:
            return word
        try:
            if len(word) > NUMBER_CHARS_MAX:
                raise ValueError
            value = self.kind(word)
            if not math.isfinite(value):
                raise ValueError
        except ValueError:
            what = "a whole number" if self.kind is int else "a number"
            raise BadArguments(why=f"{self.name} must be {what}, not {shown}") from None
        return value


def parameters_of(handler: Callable[..., object], skip: int = 1) -> tuple[Parameter, ...]:
    """The command arguments of a handler: its parameters after the first `skip`. Raises BadHandler."""
    name = getattr(handler, "__name__", repr(handler))
    try:
        hints = get_type_hints(handler)
    except NameError as error:
        raise BadHandler(name=name, why=f"an annotation names an unknown type ({error})") from error
    found: list[Parameter] = []
    given = list(inspect.signature(handler).parameters.values())
    if len(given) < skip:
        raise BadHandler(name=name, why="its first parameter must be the message")
    for one in given[skip:]:
        match one.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                shape: Literal["word", "words", "list", "rest"] = "words"
            case inspect.Parameter.KEYWORD_ONLY:
                shape = "rest"
            case inspect.Parameter.VAR_KEYWORD:
                raise BadHandler(name=name, why=f"**{one.name} is not supported")
            case _:
                shape = "word"
        if found and found[-1].shape != "word":
            raise BadHandler(
                name=name, why=f"{found[-1].name} takes the rest of the line, so {one.name} cannot follow it"
            )
        hint = hints.get(one.name, str)
        if shape == "word" and (element := _list_element(hint)) is not None:
            shape, hint = "list", element
        kind, choices = _value_type(name, one.name, hint)
        if shape == "rest" and (kind is not str or choices):
            raise BadHandler(name=name, why=f"{one.name} takes the rest of the line, so it must be a str")
        if (
            found
            and not found[-1].required
            and found[-1].shape == "word"
            and one.default is one.empty
            and shape == "rest"
        ):
            raise BadHandler(name=name, why=f"{one.name} needs a default, because {found[-1].name} has one")
        found.append(Parameter(one.name, kind, choices, one.default, shape))
    return tuple(found)


def _list_element(hint: object) -> object | None:
    """The type of the elements of `list[X]` or `list[X] | None`; None: it is no list."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = [one for one in get_args(hint) if one is not type(None)]
        hint = inner[0] if len(inner) == 1 else hint
    return get_args(hint)[0] if get_origin(hint) is list else None


def _value_type(handler: str, name: str, hint: object) -> tuple[type, tuple[str, ...]]:
    """The type that a word is converted to, and the allowed words (empty: any)."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = [one for one in get_args(hint) if one is not type(None)]
        if len(inner) == 1:
            return _value_type(handler, name, inner[0])
    if get_origin(hint) is Literal and all(isinstance(one, str) for one in get_args(hint)):
        return str, get_args(hint)
    if isinstance(hint, type) and issubclass(hint, Enum):
        names = tuple(one.name.lower() for one in hint)
        if not names or len(set(names)) < len(names):
            raise BadHandler(name=handler, why=f"{name} needs an Enum whose names differ in more than their case")
        return hint, names
    if isinstance(hint, type) and any(one.__name__ == "Member" and one.__module__ == MEMBERS for one in hint.__mro__):
        return MemberWord, ()
    if hint in (str, int, float, bool) and isinstance(hint, type):
        return hint, ()
    raise BadHandler(
        name=handler,
        why=f"{name} has the unsupported type {hint!r}; use str, int, float, bool, Literal['…'], an Enum, Member or a "
        "list of these",
    )


def usage_of(parameters: tuple[Parameter, ...]) -> str:
    """The arguments as shown in a usage line: `ENV [DRY]`."""
    return " ".join(one.usage() for one in parameters)


def parse_arguments(parameters: tuple[Parameter, ...], line: str) -> tuple[list[object], dict[str, object]]:
    """Positional and keyword arguments from the text after a command's name. Raises BadArguments."""
    values: list[object] = []
    named: dict[str, object] = {}
    place = 0
    for one in parameters:
        if one.shape == "rest":
            rest = line[place:].strip()
            if not rest and one.required:
                raise BadArguments(why=f"{one.name} is missing")
            named[one.name] = rest or (one.default if not one.required else "")
            return values, named
        if one.shape in ("words", "list"):
            words: list[object] = []
            while (found := _WORD.match(line, place)) is not None:
                words.append(one.parse(_unquoted(found)))
                place = found.end()
            if not words and one.required:
                raise BadArguments(why=f"{one.name} is missing")
            values += words if one.shape == "words" else [words] if words or one.required else [one.default]
            return values, named
        found = _WORD.match(line, place)
        if found is None:
            if one.required:
                raise BadArguments(why=f"{one.name} is missing")
            values.append(one.default)
            continue
        values.append(one.parse(_unquoted(found)))
        place = found.end()
    if line[place:].strip():
        raise BadArguments(why="there are too many arguments")
    return values, named


def _unquoted(found: re.Match[str]) -> str:
    double, single, bare = found.groups()
    if double is not None:
        return re.sub(r"\\(.)", r"\1", double)
    return single if single is not None else bare
