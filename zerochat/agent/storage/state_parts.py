"""Takes a tree of records (frozen Structs) apart into small named parts, and puts it together again.

A turn changes little of a large state: one counter of one member of one group. So each field of the root is a part of
its own; a field that is a dict of records is split by entry; and an entry that holds such a dict itself is split by
field again. Values are never changed in place, so a part whose object is still the same one need not be looked into,
and finding what changed costs what changed.

Parts are MessagePack, decoded by the types of the records. A newer version may add fields with defaults and drop
others: a field that is absent takes its default, and a part that nobody knows is left alone. It may also give an entry
its first dict of records, or take the last one away, which moves the entry to other parts: then the whole is
written afresh.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, field
from msgspec.structs import fields

from zerochat.errors import ZerochatError

S = TypeVar("S")

DICT: Final = b""
"""The value of a dict's own part, which says that the dict is there, be it empty. No MessagePack is empty, so a field
that has become a dict of records, or has been one, is never mistaken."""
_ABSENT: Final = object()


class Unreadable(Exception):
    """A part does not fit the types."""


class _Whole(Struct, frozen=True):
    """A value in one part."""

    type: Any
    decoder: msgspec.msgpack.Decoder[Any]


class _Entries(Struct, frozen=True):
    """A dict with a part, or parts, for each entry."""

    bytes_keys: bool
    entry: "_Whole | _Fields"


class _Fields(Struct, frozen=True):
    """A record with a part, or parts, for each field."""

    type: type
    parts: "dict[str, _Part]"


_Part: TypeAlias = _Whole | _Entries | _Fields


@cache
def _fields_of(shape: Any) -> _Fields:
    hints = get_type_hints(shape)
    return _Fields(shape, {each.name: _part_of(hints[each.name]) for each in fields(shape)})


def _part_of(hint: Any) -> _Whole | _Entries:
    arguments = get_args(hint)
    if get_origin(hint) in (dict, Mapping) and arguments[0] in (str, bytes) and _is_record(arguments[1]):
        fields = _fields_of(arguments[1])
        splits = any(isinstance(part, _Entries) for part in fields.parts.values())
        return _Entries(arguments[0] is bytes, fields if splits else _whole_of(arguments[1]))
    return _whole_of(hint)


@cache
def _whole_of(hint: Any) -> _Whole:
    return _Whole(hint, msgspec.msgpack.Decoder(hint))


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Struct)


# --- taking apart ---------------------------------------------------------------------------------------------------


def parts_of(state: object) -> Iterator[str]:
    """The names of the root's fields: below these paths is all that `changes` ever writes."""
    shape: Any = type(state)
    yield from _fields_of(shape).parts


def changes(before: object | None, after: object) -> Iterator[tuple[str, bytes | None]]:
    """What to write, as path and value, to get from `before` (None: from nothing) to `after`.

    None for a value: remove this path and everything below it.
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
                # Most are as they were: a name and a call for each would be most of the work.
                if (old := before.get(key, _ABSENT)) is not value:
                    yield from _changes(part.entry, _entry_path(path, key), old, value)


def _entry_path(path: str, key: str | bytes) -> str:
    name = key.hex() if isinstance(key, bytes) else key.replace("%", "%25").replace("/", "%2F")
    return f"{path}/{name}"


def _key(name: str, bytes_keys: bool) -> str | bytes:
    return bytes.fromhex(name) if bytes_keys else name.replace("%2F", "/").replace("%25", "%")


# --- putting together -----------------------------------------------------------------------------------------------


class _Node(Struct):
    """What is stored at a path, and below it."""

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
                raise Unreadable(f"{path} is no dict of parts")
            entries = {}
            for name, child in node.below.items():
                try:
                    key = _key(name, part.bytes_keys)
                except ValueError as error:
                    raise Unreadable(f"{path} has a key that is not one") from error
                entries[key] = _assemble(part.entry, child, f"{path}/{name}", moved)
            return entries


def _assemble_fields(part: _Fields, node: _Node, path: str, moved: list[str]) -> Any:
    values = {}
    for each in fields(part.type):
        below = f"{path}/{each.name}" if path else each.name
        if each.name in node.below:
            values[each.name] = _assemble(part.parts[each.name], node.below[each.name], below, moved)
        elif each.required:
            raise Unreadable(f"{below} is missing")
        elif isinstance(part.parts[each.name], _Entries):
            # The default is a dict whose parts are not there yet.
            moved.append(below)
    try:
        return part.type(**values)
    except (ValueError, TypeError, ZerochatError) as error:
        raise Unreadable(f"{path or part.type.__name__} cannot be: {error}") from error


def _decode(part: _Whole, node: _Node, path: str) -> Any:
    try:
        return part.decoder.decode(node.value or b"")
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError, ZerochatError) as error:
        raise Unreadable(f"{path} does not fit its type: {error}") from error
