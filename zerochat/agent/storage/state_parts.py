"""Splits a tree of frozen structs into small named parts for incremental checkpoints, and assembles it again.

A batch changes little of a large state: one counter of one member of one group. So each field of the root is a part; a
field that is a dict of structs is split by entry; an entry that itself contains such a dict is split by field, and so
is a `Composite`. Values are immutable, so a part with an identical object is unchanged, and the cost of finding changes
is proportional to the changes.

The entries of a split dict come back in the order in which they were first written. A struct whose dicts have an order
that matters, such as a membership view, is one part.

Parts are MessagePack, decoded by the types of the structs. An absent field takes its default, and an unknown part is
ignored.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields

from zerochat.errors import ZerochatError
from zerochat.group.state.composite import Composite

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


_Part: TypeAlias = _Whole | _Entries | _Fields


@cache
def _fields_of(shape: Any) -> _Fields:
    hints = get_type_hints(shape)
    return _Fields(shape, {each.name: _part_of(hints[each.name]) for each in fields(shape)})


def _part_of(hint: Any) -> "_Part":
    arguments = get_args(hint)
    if get_origin(hint) in (dict, Mapping) and arguments[0] in (str, bytes, int) and _is_record(arguments[1]):
        fields = _fields_of(arguments[1])
        splits = any(not isinstance(part, _Whole) for part in fields.parts.values())
        return _Entries(arguments[0], fields if splits else _whole_of(arguments[1]))
    return _fields_of(hint) if isinstance(hint, type) and issubclass(hint, Composite) else _whole_of(hint)


@cache
def _whole_of(hint: Any) -> _Whole:
    return _Whole(hint, msgspec.msgpack.Decoder(hint))


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


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
        case _Fields():
            for name, each in part.parts.items():
                old = _ABSENT if before is _ABSENT else getattr(before, name)
                if (new := getattr(after, name)) is not old:
                    yield from _changes(each, f"{path}/{name}" if path else name, old, new)
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
        elif each.required:
            raise UnreadablePart(f"{below} is missing")
        elif not isinstance(part.parts[each.name], _Whole):
            # The default has dicts that have no parts yet.
            moved.append(below)
    try:
        return part.type(**values)
    except (ValueError, TypeError, ZerochatError) as error:
        raise UnreadablePart(f"{path or part.type.__name__} is invalid: {error}") from error


def _decode(part: _Whole, node: _Node, path: str) -> Any:
    try:
        return part.decoder.decode(node.value or b"")
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, ZerochatError) as error:
        raise UnreadablePart(f"{path} does not match its type: {error}") from error
