"""The arguments of a command, read off a handler's signature: `async def deploy(m: Message, env: str)`.

    str, int, float, bool     one word (bool: yes/no, on/off, true/false, 1/0)
    Literal["a", "b"]         one of these words
    X | None, Optional[X]     with a default, one may leave it out
    *words: str               all words that are left
    *, text: str              all that is left of the line, as it was typed

Quotes hold words together: `!remind "the bread" 20m`.
"""

import inspect
import math
import re
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from zerochat.errors import LocalError

_WORD = re.compile(r""" \s* (?: "((?:[^"\\]|\\.)*)" | '([^']*)' | (\S+) ) """, re.VERBOSE)
_BOOLS = {"yes": True, "on": True, "true": True, "1": True, "no": False, "off": False, "false": False, "0": False}
NUMBER_CHARS_MAX = 64
SHOWN_CHARS_MAX = 40
"""Of a word that is not what it should be."""


class BadHandler(LocalError):
    """{name} cannot be a handler: {why}."""

    exit_code = 2


class BadArguments(LocalError):
    """{why}."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a command."""

    name: str
    kind: type
    choices: tuple[str, ...] = ()
    default: Any = inspect.Parameter.empty
    shape: Literal["word", "words", "rest"] = "word"

    @property
    def needed(self) -> bool:
        return self.default is inspect.Parameter.empty and self.shape != "words"

    def usage(self) -> str:
        text = "|".join(self.choices) if self.choices else self.name.upper()
        if self.shape != "word":
            text += "..."
        return text if self.needed else f"[{text}]"

    def read(self, word: str) -> object:
        """The value of a word. Raises BadArguments."""
        shown = word if len(word) <= SHOWN_CHARS_MAX else word[: SHOWN_CHARS_MAX - 1] + "…"
        if self.choices:
            if word not in self.choices:
                raise BadArguments(why=f"{self.name} is one of {', '.join(self.choices)}, and not {shown}")
            return word
        if self.kind is bool:
            if word.lower() not in _BOOLS:
                raise BadArguments(why=f"{self.name} is yes or no, and not {shown}")
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
            raise BadArguments(why=f"{self.name} is {what}, and not {shown}") from None
        return value


def parameters_of(handler: Callable[..., object], skip: int = 1) -> tuple[Parameter, ...]:
    """What a handler takes behind its first `skip` parameters. Raises BadHandler."""
    name = getattr(handler, "__name__", repr(handler))
    try:
        hints = get_type_hints(handler)
    except NameError as error:
        raise BadHandler(name=name, why=f"its annotations name something that is not there ({error})") from error
    found: list[Parameter] = []
    given = list(inspect.signature(handler).parameters.values())
    if len(given) < skip:
        raise BadHandler(name=name, why="its first parameter is the message")
    for one in given[skip:]:
        match one.kind:
            case inspect.Parameter.VAR_POSITIONAL:
                shape: Literal["word", "words", "rest"] = "words"
            case inspect.Parameter.KEYWORD_ONLY:
                shape = "rest"
            case inspect.Parameter.VAR_KEYWORD:
                raise BadHandler(name=name, why=f"**{one.name} is nothing that can be typed")
            case _:
                shape = "word"
        if found and found[-1].shape != "word":
            raise BadHandler(name=name, why=f"nothing is left for {one.name} behind {found[-1].name}")
        kind, choices = _kind(name, one.name, hints.get(one.name, str))
        if shape == "rest" and (kind is not str or choices):
            raise BadHandler(name=name, why=f"{one.name} is the rest of the line, which is a str")
        if (
            found
            and not found[-1].needed
            and found[-1].shape == "word"
            and one.default is one.empty
            and shape == "rest"
        ):
            raise BadHandler(name=name, why=f"{one.name} needs a default, since {found[-1].name} has one")
        found.append(Parameter(one.name, kind, choices, one.default, shape))
    return tuple(found)


def _kind(handler: str, name: str, hint: object) -> tuple[type, tuple[str, ...]]:
    """What a word becomes, and the words that it may be (none: any)."""
    if get_origin(hint) in (Union, types.UnionType):
        inner = [one for one in get_args(hint) if one is not type(None)]
        if len(inner) == 1:
            return _kind(handler, name, inner[0])
    if get_origin(hint) is Literal and all(isinstance(one, str) for one in get_args(hint)):
        return str, get_args(hint)
    if hint in (str, int, float, bool) and isinstance(hint, type):
        return hint, ()
    raise BadHandler(name=handler, why=f"{name} is {hint!r}; str, int, float, bool and Literal['…'] can be typed")


def usage_of(parameters: tuple[Parameter, ...]) -> str:
    """`ENV [DRY]`: what is typed behind the command's name."""
    return " ".join(one.usage() for one in parameters)


def read_arguments(parameters: tuple[Parameter, ...], line: str) -> tuple[list[object], dict[str, object]]:
    """Positional and keyword arguments from what was typed behind a command's name. Raises BadArguments."""
    values: list[object] = []
    named: dict[str, object] = {}
    place = 0
    for one in parameters:
        if one.shape == "rest":
            rest = line[place:].strip()
            if not rest and one.needed:
                raise BadArguments(why=f"{one.name} is missing")
            named[one.name] = rest or (one.default if not one.needed else "")
            return values, named
        if one.shape == "words":
            while (found := _WORD.match(line, place)) is not None:
                values.append(one.read(_unquoted(found)))
                place = found.end()
            return values, named
        found = _WORD.match(line, place)
        if found is None:
            if one.needed:
                raise BadArguments(why=f"{one.name} is missing")
            values.append(one.default)
            continue
        values.append(one.read(_unquoted(found)))
        place = found.end()
    if line[place:].strip():
        raise BadArguments(why="there is more than it takes")
    return values, named


def _unquoted(found: re.Match[str]) -> str:
    double, single, bare = found.groups()
    if double is not None:
        return re.sub(r"\\(.)", r"\1", double)
    return single if single is not None else bare
