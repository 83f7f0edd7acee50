"""A seed as a tree, so that a change at any depth leaves everything around it well formed.

JSON in base64url in JSON, a document in a DID in a token: each layer is a node, and writing the tree writes them all.
Nodes are replaced on the path from the root, never changed, and each caches its text: an execution pays for the changed
part.
"""

import json
from base64 import b64decode
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Sequence
from json.encoder import encode_basestring
from typing import TypeAlias

from zerochat.crypto.encoding import JSON, base58_bytes
from zerochat.didcomm.did import peer4
from zerochat.errors import RemoteError

_TO_URL = bytes.maketrans(b"+/", b"-_")
_PARTS_MAX = 64


class Node:
    """One layer with its parts. `text()` is its content; in JSON, a string unless it is JSON itself."""

    __slots__ = ("_text", "parts")
    is_json = False

    def __init__(self, parts: "Sequence[Part]") -> None:
        self.parts = parts
        self._text: str | None = None

    def text(self) -> str:
        if self._text is None:
            self._text = self.write()
        return self._text

    def write(self) -> str:
        raise NotImplementedError

    def with_parts(self, parts: "Sequence[Part]") -> "Node":
        return type(self)(parts)


Part: TypeAlias = "Node | str | int | float | bool | None"


class Array(Node):
    """A JSON array."""

    __slots__ = ()
    is_json = True

    def write(self) -> str:
        return "[" + ",".join(map(as_json, self.parts)) + "]"


class Object(Node):
    """A JSON object; a name may occur twice."""

    __slots__ = ("names",)
    is_json = True

    def __init__(self, parts: Sequence[Part], names: Sequence[str]) -> None:
        super().__init__(parts)
        self.names = names

    def write(self) -> str:
        members = zip(self.names, self.parts, strict=True)
        return "{" + ",".join(encode_basestring(name) + ":" + as_json(part) for name, part in members) + "}"

    def with_parts(self, parts: Sequence[Part]) -> "Object":
        return Object(parts, self.names)

    def get(self, name: str) -> Part:
        return self.parts[self.names.index(name)] if name in self.names else None

    def put(self, name: str, part: Part) -> "Object":
        """The object with this member in the place of the one of that name, or at its end."""
        if name not in self.names:
            return Object((*self.parts, part), (*self.names, name))
        at = self.names.index(name)
        return Object([*self.parts[:at], part, *self.parts[at + 1 :]], self.names)


class Verbatim(Node):
    """JSON text that no writer would write."""

    __slots__ = ("verbatim",)
    is_json = True

    def __init__(self, text: str) -> None:
        super().__init__(())
        self.verbatim = text

    def write(self) -> str:
        return self.verbatim

    def with_parts(self, parts: Sequence[Part]) -> "Verbatim":
        return self


class Base64(Node):
    """The text of its part in base64url, padded or not."""

    __slots__ = ("padded",)

    def __init__(self, parts: Sequence[Part], padded: bool = False) -> None:
        super().__init__(parts)
        self.padded = padded

    def write(self) -> str:
        return base64url(utf8("".join(map(as_text, self.parts))), self.padded)

    def with_parts(self, parts: Sequence[Part]) -> "Base64":
        return Base64(parts, self.padded)


class Bytes(Node):
    """Bytes in base64url: keys, nonces, ciphertexts."""

    __slots__ = ("data", "padded")

    def __init__(self, data: bytes, padded: bool = False) -> None:
        super().__init__(())
        self.data, self.padded = data, padded

    def write(self) -> str:
        return base64url(self.data, self.padded)

    def with_parts(self, parts: Sequence[Part]) -> "Bytes":
        return self


class Joined(Node):
    """Texts with a separator between them: a token, a link, a did:peer:2."""

    __slots__ = ("separator",)

    def __init__(self, parts: Sequence[Part], separator: str) -> None:
        super().__init__(parts)
        self.separator = separator

    def write(self) -> str:
        return self.separator.join(map(as_text, self.parts))

    def with_parts(self, parts: Sequence[Part]) -> "Joined":
        return Joined(parts, self.separator)


class Peer4(Node):
    """The long form of a did:peer:4 of its part, with the matching hash, and its suffix."""

    __slots__ = ("rest",)

    def __init__(self, parts: Sequence[Part], rest: str = "") -> None:
        super().__init__(parts)
        self.rest = rest

    def write(self) -> str:
        return peer4(utf8("".join(map(as_text, self.parts)))[:6000]) + self.rest

    def with_parts(self, parts: Sequence[Part]) -> "Peer4":
        return Peer4(parts, self.rest)


# --- writing --------------------------------------------------------------------------------------------------------


def base64url(data: bytes, padded: bool) -> str:
    text = b2a_base64(data, newline=False).translate(_TO_URL)
    return (text if padded else text.rstrip(b"=")).decode()


def utf8(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def as_text(part: Part) -> str:
    """A part by itself, or inside anything but JSON."""
    if isinstance(part, Node):
        return part.text()
    return part if isinstance(part, str) else as_json(part)


def as_json(part: Part) -> str:
    if isinstance(part, str):
        return encode_basestring(part)
    if isinstance(part, Node):
        return part.text() if part.is_json else encode_basestring(part.text())
    return json.dumps(part)


# --- taking apart ---------------------------------------------------------------------------------------------------


def dissect(text: str) -> Part:
    """The tree of a text, to its full depth."""
    if text[:1] in ("{", "["):
        try:
            return _tree(json.loads(text, object_pairs_hook=_object))
        except (ValueError, RecursionError):
            return text
    if text.startswith("did:peer:4") and text.count(":") == 3:
        return _peer4(text)
    if text.startswith("did:peer:2.") or (text.count(".") == 2 and text.startswith("ey")):
        return Joined([_element(part) for part in text.split(".")], ".")
    if "://" in text and "=" in text:
        page, mark, value = text.partition("=")
        return Joined([page + mark, dissect(value)], "")
    return _encoded(text)


def _object(pairs: list[tuple[str, object]]) -> Object:
    return Object([_tree(value) for _, value in pairs], [name for name, _ in pairs])


def _tree(value: object) -> Part:
    if isinstance(value, list):
        return Array([_tree(item) for item in value])
    if isinstance(value, str):
        return dissect(value)
    assert value is None or isinstance(value, (Node, int, float))
    return value


def _element(text: str) -> Part:
    return Joined(["S", dissect(text[1:])], "") if text.startswith("Sey") else dissect(text)


def _peer4(text: str) -> Part:
    did, mark, fragment = text.partition("#")
    try:
        data = base58_bytes(did.rpartition(":z")[2], 4096)
    except RemoteError:
        return text
    inside = dissect(data.removeprefix(JSON).decode(errors="replace"))
    node = Peer4([inside], mark + fragment)
    return node if node.text() == text else text


def _encoded(text: str) -> Part:
    bare = text.rstrip("=")
    try:
        data = b64decode(bare + "=" * (-len(bare) % 4), b"-_", validate=True)
    except ValueError:
        return text
    padded = len(bare) != len(text)
    if len(data) < 8 or base64url(data, padded) != text:
        return text
    if data[:1] in (b"{", b"["):
        inside = dissect(data.decode(errors="surrogateescape"))
        if not isinstance(inside, str):
            return Base64([inside], padded) if utf8(as_text(inside)) == data else Bytes(data, padded)
    if data[:8] == b"did:peer":
        return Base64([dissect(data.decode())], padded)
    return Bytes(data, padded)


# --- changing -------------------------------------------------------------------------------------------------------

Path: TypeAlias = tuple[int, ...]


def paths(part: Part) -> Iterator[Path]:
    """The way to every part of a tree, itself first."""
    yield ()
    if isinstance(part, Node):
        for number, inner in enumerate(part.parts[:_PARTS_MAX]):
            for rest in paths(inner):
                yield (number, *rest)


def at(part: Part, path: Path) -> Part:
    """The part at the end of a way, or the last one on it."""
    for step in path:
        if not isinstance(part, Node) or step >= len(part.parts):
            break
        part = part.parts[step]
    return part


def edit(part: Part, path: Path, change: Callable[[Part], Part]) -> Part:
    """The tree with the part at the end of a way changed, or the last one on it."""
    if path and isinstance(part, Node) and path[0] < len(part.parts):
        parts = list(part.parts)
        parts[path[0]] = edit(parts[path[0]], path[1:], change)
        return part.with_parts(parts)
    return change(part)
