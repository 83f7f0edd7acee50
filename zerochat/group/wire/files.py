"""Messages for file transfer between two members, in both key modes.

requester                          holder
  | -- file-request (8 parts) -----> |
  | <---------- file-part, 8 times - |    each with its path to the root, so that it can be checked by itself
  | -- file-request (the next) ----> |
  | <------------ file-unavailable - |    it has no such file, or has too many requests
  | -- files-available ------------> |    to the author, and to members that were answered file-unavailable
"""

from typing import Annotated, Literal

import msgspec

from zerochat.group.event_log.event import Id
from zerochat.group.files.hash_tree import PART_BYTES, PATH_MAX, parts_in
from zerochat.group.wire.messages import PROTOCOL, ContentKey
from zerochat.limits import FILE_BYTES_MAX

FILE_REQUEST = PROTOCOL + "file-request"
FILE_PART = PROTOCOL + "file-part"
FILE_UNAVAILABLE = PROTOCOL + "file-unavailable"
FILES_AVAILABLE = PROTOCOL + "files-available"
FILE_MESSAGES = frozenset({FILE_REQUEST, FILE_PART, FILE_UNAVAILABLE, FILES_AVAILABLE})

REQUEST_PARTS_MAX = 16
"""Parts in one request: 352 KiB."""
AVAILABLE_FILES_MAX = 64

_Number = Annotated[int, msgspec.Meta(ge=0, lt=parts_in(FILE_BYTES_MAX))]


class FileRequestBody(msgspec.Struct, frozen=True):
    """The sender requests parts of a file that was posted in this group."""

    group: Id
    file: Id
    first: _Number
    count: Annotated[int, msgspec.Meta(ge=1, le=REQUEST_PARTS_MAX)]
    content_key: ContentKey = ""


class FilePartBody(msgspec.Struct, frozen=True):
    """One part of a file."""

    group: Id
    file: Id
    part: _Number
    data: Annotated[str, msgspec.Meta(min_length=1, max_length=-(-PART_BYTES * 4 // 3))]
    """base64url."""
    path: Annotated[list[Id], msgspec.Meta(max_length=PATH_MAX)] = []
    """The hashes from the part to the root (`group/files/hash_tree.py`)."""


class FileUnavailableBody(msgspec.Struct, frozen=True):
    """The sender cannot serve a request: it lacks the file, or is busy."""

    group: Id
    file: Id
    reason: Literal["absent", "busy"]


class FilesAvailableBody(msgspec.Struct, frozen=True):
    """The sender has these complete files."""

    group: Id
    files: Annotated[list[Id], msgspec.Meta(min_length=1, max_length=AVAILABLE_FILES_MAX)]
