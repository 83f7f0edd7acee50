"""Splits a tree of frozen structs into small named parts for incremental checkpoints, and assembles it again.

A batch changes little of a large state: one counter of one member of one group. So each field of the root is a part; a
field that is a dict of structs is split by entry; an entry that itself contains such a dict is split by field, and so
are a `Composite`, whose dicts of bytes, numbers and tuples are split by entry too, and an `Erasable`, whose parts are
sealed (`is_erasable`), and whose defaults have none. Values are immutable, so a part with an identical object is
unchanged, and the cost of finding changes is proportional to the changes.

The entries of a split dict come back in the order in which they were first written, those of a `SortedComposite`, such
as a membership view, in the order of their keys. A struct whose dicts have another order that matters is one part.

Parts are MessagePack, decoded by the types of the structs. An absent field takes its default, and an unknown part is
ignored.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Final, TypeAlias, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Struct, field
from msgspec.structs import fields

from zerochat.crypto.structs import Erasable
from zerochat.errors import ZerochatError
from zerochat.group.composite import Composite, SortedComposite

S = TypeVar("S")

DICT: Final = b""
"""The value of a dict's own part, which marks that the dict exists, even if empty. MessagePack values are never
empty."""
_ABSENT: Final = object()


class UnreadablePart(Exception):
    """A part does not match the types."""


class _Whole(Struct, frozen=True):
    """A value stored in one part."""

    type: Any
    decoder: msgspec.msgpack.Decoder[Any]


class _Entries(Struct, frozen=True):
    """A dict with one or more parts per entry."""

    key: type
    """str, bytes or int."""
    entry: "_Whole | _Fields"


class _Fields(Struct, frozen=True):
    """A struct with one or more parts per field."""

    type: type
    parts: "dict[str, _Part]"
    defaults: dict[str, Any]
    """Of an `Erasable`: the values of fields that have no part."""


_Part: TypeAlias = _Whole | _Entries | _Fields


@cache
def _fields_of(shape: Any) -> _Fields:
    hints, composite = get_type_hints(shape), issubclass(shape, Composite)
    optional = [each for each in fields(shape) if not each.required and issubclass(shape, Erasable)]
    defaults = {
        each.name: each.default if each.default is not NODEFAULT else each.default_factory() for each in optional
    }
    parts = {each.name: _part_of(hints[each.name], composite=composite) for each in fields(shape)}
    return _Fields(shape, parts, defaults)


def _part_of(hint: Any, *, composite: bool) -> "_Part":
    arguments = get_args(hint)
    if get_origin(hint) in (dict, Mapping) and arguments[0] in (str, bytes, int):
        if _is_record(arguments[1]):
            fields = _fields_of(arguments[1])
            splits = any(not isinstance(part, _Whole) for part in fields.parts.values())
            return _Entries(arguments[0], fields if splits or _is(arguments[1], Erasable) else _whole_of(arguments[1]))
        if composite and (arguments[1] in (bytes, int) or get_origin(arguments[1]) is tuple):
            return _Entries(arguments[0], _whole_of(arguments[1]))
    if get_origin(hint) in (Union, UnionType) and len(others := [one for one in arguments if one is not NoneType]) == 1:
        return _fields_of(others[0]) if _is(others[0], Erasable) else _whole_of(hint)
    return _fields_of(hint) if _is(hint, Composite) or _is(hint, Erasable) else _whole_of(hint)


def _is(hint: Any, base: type) -> bool:
    return isinstance(hint, type) and issubclass(hint, base)


@cache
def _whole_of(hint: Any) -> _Whole:
    return _Whole(hint, msgspec.msgpack.Decoder(hint))


def _is_record(hint: Any) -> bool:
    return _is(hint, Struct)


def is_erasable(shape: Any, path: str) -> bool:
    """Whether a path of `changes` is a part of an `Erasable`."""
    part: _Part = _fields_of(shape)
    for name in path.split("/"):
        match part:
            case _Fields() if issubclass(part.type, Erasable):
                return True
            case _Fields():
                part = part.parts[name]
            case _Entries():
                part = part.entry
            case _Whole():
                return False
    return isinstance(part, _Fields) and issubclass(part.type, Erasable)


# --- splitting ------------------------------------------------------------------------------------------------------


def parts_of(state: object) -> Iterator[str]:
    """The names of the root's fields: the first components of all paths."""
    shape: Any = type(state)
    yield from _fields_of(shape).parts


def changes(before: object | None, after: object) -> Iterator[tuple[str, bytes | None]]:
    """The (path, value) pairs to write to get from `before` (None: nothing) to `after`.

    A value of None: delete this path and everything below it.
    """
    shape: Any = type(after)
    assert before is None or type(before) is shape
    yield from _changes(_fields_of(shape), "", _ABSENT if before is None else before, after)


def _changes(part: _Part, path: str, before: Any, after: Any) -> Iterator[tuple[str, bytes | None]]:
    if before is after:
        return
    match part:
        case _Whole():
            yield path, msgspec.msgpack.encode(after)
        case _Fields() if after is None:
            yield path, None
        case _Fields():
            for name, each in part.parts.items():
                old = _ABSENT if before is _ABSENT or before is None else getattr(before, name)
                if (new := getattr(after, name)) is old:
                    continue
                below = f"{path}/{name}" if path else name
                if name in part.defaults and new == part.defaults[name]:
                    if old is not _ABSENT:
                        yield below, None
                    continue
                if name in part.defaults and old == part.defaults[name]:
                    old = _ABSENT
                yield from _changes(each, below, old, new)
        case _Entries():
            if before is _ABSENT:
                yield path, DICT
                before = {}
            if not before.keys() <= after.keys():
                for key in before:
                    if key not in after:
                        yield _entry_path(path, key), None
            for key, value in after.items():
                # Most entries are unchanged; building a path for each would dominate the cost.
                if (old := before.get(key, _ABSENT)) is not value:
                    yield from _changes(part.entry, _entry_path(path, key), old, value)


def _entry_path(path: str, key: str | bytes | int) -> str:
    match key:
        case bytes():
            return f"{path}/{key.hex()}"
        case int():
            return f"{path}/{key}"
    return f"{path}/{key.replace('%', '%25').replace('/', '%2F')}"


def _key(name: str, kind: type) -> str | bytes | int:
    if kind is int:
        return int(name)
    return bytes.fromhex(name) if kind is bytes else name.replace("%2F", "/").replace("%25", "%")


# --- assembling -----------------------------------------------------------------------------------------------------


class _Node(Struct):
    """The value at a path, and the nodes below it."""

    value: bytes | None = None
    below: "dict[str, _Node]" = field(default_factory=dict)


def assemble(shape: type[S], rows: Iterable[tuple[str, bytes]]) -> tuple[S, bool] | None:
    """The state whose parts these are, in the order in which they were first written; None when there are none.

    The flag is true when the parts are not where `changes` would look for them: then write everything afresh. Raises
    Unreadable.
    """
    root = _Node()
    for path, value in rows:
        node = root
        for name in path.split("/"):
            node = node.below.setdefault(name, _Node())
        node.value = value
    if not root.below:
        return None
    moved: list[str] = []
    known: Any = shape
    state: S = _assemble(_fields_of(known), root, "", moved)
    return state, bool(moved)


def _assemble(part: _Part, node: _Node, path: str, moved: list[str]) -> Any:
    match part:
        case _Whole() if node.value is None and _is_record(part.type):
            moved.append(path)
            return _assemble(_fields_of(part.type), node, path, moved)
        case _Whole():
            return _decode(part, node, path)
        case _Fields() if node.value is not None:
            moved.append(path)
            return _decode(_whole_of(part.type), node, path)
        case _Fields():
            return _assemble_fields(part, node, path, moved)
        case _Entries():
            if node.value != DICT:
                raise UnreadablePart(f"{path} is not a dict of parts")
            entries = {}
            for name, child in node.below.items():
                try:
                    key = _key(name, part.key)
                except ValueError as error:
                    raise UnreadablePart(f"{path} has an invalid key") from error
                entries[key] = _assemble(part.entry, child, f"{path}/{name}", moved)
            return entries


def _assemble_fields(part: _Fields, node: _Node, path: str, moved: list[str]) -> Any:
    values = {}
    for each in fields(part.type):
        below = f"{path}/{each.name}" if path else each.name
        if each.name in node.below:
            values[each.name] = _assemble(part.parts[each.name], node.below[each.name], below, moved)
            if issubclass(part.type, SortedComposite) and isinstance(part.parts[each.name], _Entries):
                values[each.name] = dict(sorted(values[each.name].items()))
        elif each.required:
            raise UnreadablePart(f"{below} is missing")
        elif not (each.name in part.defaults or _is_leaf(part.parts[each.name])):
            # The default has dicts that have no parts yet.
            moved.append(below)
    try:
        return part.type(**values)
    except (ValueError, TypeError, ZerochatError) as error:
        raise UnreadablePart(f"{path or part.type.__name__} is invalid: {error}") from error


def _is_leaf(part: _Part) -> bool:
    """Whether a default value of this part needs no parts below it."""
    return isinstance(part, _Whole) or (isinstance(part, _Fields) and issubclass(part.type, Erasable))


def _decode(part: _Whole, node: _Node, path: str) -> Any:
    try:
        return part.decoder.decode(node.value or b"")
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, ZerochatError) as error:
        raise UnreadablePart(f"{path} does not match its type: {error}") from error
