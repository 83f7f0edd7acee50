"""File descriptors in posts; the content is fetched separately, part by part (`download.py`).

A file's id is the hash of its size and of the Merkle root over its parts (`hash_tree.py`), so no other content or size
can be offered under its id. Its name and type are its author's choice, and nothing depends on them.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

import msgspec
from msgspec import Struct

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed
from zerochat.group.files.hash_tree import parts_in
from zerochat.limits import FILE_BYTES_MAX

FILES_MAX = 8
"""In one post."""
NAME_BYTES_MAX = 255
"""The maximum of common file systems."""
TYPE_CHARS_MAX = 127
_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_CONTEXT = b"zerochat/file/1\n"


class _Shape(msgspec.Struct, frozen=True):
    """One file in a post's body."""

    root: Annotated[str, msgspec.Meta(min_length=43, max_length=43)]
    size: Annotated[int, msgspec.Meta(ge=1, le=FILE_BYTES_MAX)]
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_BYTES_MAX)]
    type: Annotated[str, msgspec.Meta(max_length=TYPE_CHARS_MAX)] = ""


class File(Struct, frozen=True):
    """One file, as a post names it."""

    root: str
    """base64url of the Merkle root over its parts."""
    size: int
    name: str
    """As written by its author: sanitised wherever it is displayed or used as a file name."""
    type: str = ""
    """A MIME type, guessed by its author; empty: unknown."""

    @property
    def id(self) -> str:
        return _id_of(self.root, self.size)

    @property
    def parts(self) -> int:
        return parts_in(self.size)

    def body(self) -> dict[str, Any]:
        """The JSON value in a post."""
        value = {"root": self.root, "size": self.size, "name": self.name}
        return {**value, "type": self.type} if self.type else value


@lru_cache(maxsize=4096)
def _id_of(root: str, size: int) -> str:
    return b64url(sha256(_CONTEXT + size.to_bytes(8) + b64url_bytes(root)))


def files_in(body: Mapping[str, Any]) -> tuple[File, ...]:
    """The files that a post's body names. Invalid ones are ignored, since a post has its position in its author's chain
    whatever it contains."""
    listed = body.get("files")
    if not isinstance(listed, list) or len(listed) > FILES_MAX:
        return ()
    found: dict[str, File] = {}
    for one in listed:
        try:
            file = _read(one)
        except (Malformed, msgspec.ValidationError, UnicodeEncodeError):
            continue
        found.setdefault(file.id, file)
    return tuple(found.values())


def _read(one: object) -> File:
    shape = msgspec.convert(one, _Shape)
    if len(shape.name.encode()) > NAME_BYTES_MAX or len(b64url_bytes(shape.root)) != 32:
        raise Malformed(why="a file in a post")
    return File(shape.root, shape.size, shape.name, shape.type if _TYPE.fullmatch(shape.type) else "")
