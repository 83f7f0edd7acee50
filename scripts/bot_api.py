"""The page bot-api.md: the public names of `zerochat.bot` and `zerochat.testing`, from their docstrings."""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from types import ModuleType
from typing import Any

from zerochat.errors import LocalError

HEAD = """\
# Bot API

Generated from `zerochat/bot` and `zerochat/testing` by `scripts/manual.py`; edit the sources. [bots](bots.md) explains
how they work together. Import these names from `zerochat.bot` (`Bot`, `SyncBot`, `Message`, `SyncMessage`, `Event` and
the `AgentError` of refused requests also from `zerochat`). [json-rpc](json-rpc.md) has the types that are not here.
"""
HIDDEN = ("VirtualLoop",)
"""`run` uses it."""
FIRST = ("Bot", "Message", "Event", "Group", "Member")
"""The classes that a reader needs first."""


def page() -> str:
    from zerochat import bot, testing

    text = HEAD
    names = [*FIRST, *(name for name in bot.__all__ if name not in FIRST)]
    for name in names:
        text += _class(name, getattr(bot, name))
    text += "\n# Tests\n\nImport these names from `zerochat.testing`.\n"
    for name in testing.__all__:
        if name not in HIDDEN:
            text += _entry(testing, name)
    return text


def _entry(module: ModuleType, name: str) -> str:
    one = getattr(module, name)
    if inspect.isclass(one):
        return _class(name, one)
    return f"\n## {name}\n\n`{name}{_signature(one)}`{_result(one)}: {_doc(one)}\n"


def _class(name: str, one: type) -> str:
    bases = [
        base
        for base in one.__mro__[1:]
        if base.__module__.startswith("zerochat.") and not base.__name__.startswith("_")
    ]
    public = [base.__name__ for base in bases if base.__name__ in _public()]
    if issubclass(one, LocalError):
        return f"\n## {name}\n\nAn error: “{_doc(one)}”\n"
    text = f"\n## {name}\n\n{_doc(one)}" + (f" A kind of `{public[0]}`." if public else "") + "\n"
    if not is_dataclass(one) and "__init__" in vars(one) and one.__init__.__doc__:
        text += f"\n`{name}{_signature(one.__init__, skip=1)}`: {_doc(one.__init__)}\n"
    inherited = {
        each.name for base in bases if base.__name__ in _public() and is_dataclass(base) for each in fields(base)
    }
    lines = list(_fields(one, inherited)) if is_dataclass(one) else []
    lines += list(_methods(one, bases))
    return text + ("\n" + "\n".join(lines) + "\n" if lines else "")


def _public() -> set[str]:
    from zerochat import bot, testing

    return {*bot.__all__, *testing.__all__}


def _fields(one: type, inherited: set[str]) -> Iterator[str]:
    notes = _notes(one)
    for each in fields(one):
        if each.name.startswith("_") or each.name in inherited:
            continue
        note = notes.get(each.name, "")
        yield _line(f"`{each.name}`: `{_type(each.type)}`", note)


def _line(name: str, note: str) -> str:
    return f"- {name}" + (f" — {note}" if note else "")


def _notes(one: type) -> dict[str, str]:
    """The strings below the fields of a class."""
    found: dict[str, str] = {}
    for base in reversed(one.__mro__):
        if base.__module__.startswith("zerochat."):
            pattern = r'^    (\w+): [^\n]+\n    """(.*?)"""'
            for name, note in re.findall(pattern, inspect.getsource(base), re.MULTILINE | re.DOTALL):
                found[name] = " ".join(note.split())
    return found


def _methods(one: type, bases: list[type]) -> Iterator[str]:
    shown: set[str] = set()
    for home in (one, *(base for base in bases if base.__name__ not in _public())):
        for name, member in vars(home).items():
            if name.startswith("_") or name in shown:
                continue
            if isinstance(member, property) and member.fget is not None:
                returned = inspect.signature(member.fget).return_annotation
                yield _line(f"`{name}`: `{_type(returned)}`", _doc(member.fget))
            elif inspect.isfunction(member):
                shown.add(name)
                begin = "await " if inspect.iscoroutinefunction(member) else ""
                note = _doc(member) or _doc(_overridden(one, name))
                yield _line(f"`{begin}{name}{_signature(member, skip=1)}`{_result(member)}", note)
            shown.add(name)


def _overridden(one: type, name: str) -> Any:
    return next((vars(base)[name] for base in one.__mro__[1:] if name in vars(base)), None)


def _signature(function: Any, skip: int = 0) -> str:
    """The signature without default values that are objects, and without `self`."""
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())[skip:]
    bare = [one.replace(annotation=one.empty, default=_default(one.default)) for one in parameters]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def _result(function: Any) -> str:
    """The type of the result, unless a reader can do nothing with it: decorators return their functions."""
    text = _type(inspect.signature(function).return_annotation)
    return "" if text in ("None", "Any", "~F", "~T", "Self") or "Callable" in text else f" → `{text}`"


class _Shown:
    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _default(value: object) -> object:
    plain = value is inspect.Parameter.empty or isinstance(value, str | int | float | bool | tuple | None)
    return value if plain else _Shown("…")


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Z])", "", text).replace("'", "").replace("|", "or")


def _doc(thing: object) -> str:
    return " ".join((inspect.getdoc(thing) or "").split()).replace("|", "\\|") if thing is not None else ""
