"""The messages by which members get the content of files from each other, one to one in both modes of keys.

asker                              holder
  | -- file-ask (8 parts) ---------> |
  | <---------- file-part, 8 times - |    each with its path to the root, so that it can be checked by itself
  | -- file-ask (the next) --------> |
  | <------------------- file-lack - |    it has no such file, or is asked too much
  | -- file-have (to the author) --> |    also to whoever was told that there is no such file, when there is
"""

from typing import Annotated, Literal

import msgspec

from zerochat.group.event_log.event import Id
from zerochat.group.files.hash_tree import FILE_BYTES_MAX, PART_BYTES, PATH_MAX, parts_in
from zerochat.group.wire.messages import PROTOCOL

FILE_ASK = PROTOCOL + "file-ask"
FILE_PART = PROTOCOL + "file-part"
FILE_LACK = PROTOCOL + "file-lack"
FILE_HAVE = PROTOCOL + "file-have"

ASK_PARTS_MAX = 16
"""Parts that one question may be for: 352 KiB."""
HAVE_FILES_MAX = 64

_Number = Annotated[int, msgspec.Meta(ge=0, lt=parts_in(FILE_BYTES_MAX))]


class FileAskBody(msgspec.Struct, frozen=True):
    """The sender wants some parts of a file that was posted in this group."""

    group: Id
    file: Id
    first: _Number
    count: Annotated[int, msgspec.Meta(ge=1, le=ASK_PARTS_MAX)]


class FilePartBody(msgspec.Struct, frozen=True):
    """One part."""

    group: Id
    file: Id
    part: _Number
    data: Annotated[str, msgspec.Meta(min_length=1, max_length=-(-PART_BYTES * 4 // 3))]
    """base64url."""
    path: Annotated[list[Id], msgspec.Meta(max_length=PATH_MAX)] = []
    """The hashes that lead from it to the root (`group/files/hash_tree.py`)."""


class FileLackBody(msgspec.Struct, frozen=True):
    """The sender cannot give what it was asked for: it does not have the file, or not now."""

    group: Id
    file: Id
    why: Literal["absent", "busy"]


class FileHaveBody(msgspec.Struct, frozen=True):
    """The sender has these files, whole."""

    group: Id
    files: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=HAVE_FILES_MAX)]
