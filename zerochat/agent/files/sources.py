"""Imports the files of a message: each is read twice, first for its size and hashes, then for its content.

If the two reads differ, another program is writing to the file, and nothing is sent.
"""

import mimetypes
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from zerochat.agent.files.blobs import Blobs
from zerochat.agent.files.worker import Interrupted
from zerochat.crypto.encoding import b64url
from zerochat.errors import LocalError
from zerochat.group.files.descriptor import FILES_MAX, NAME_BYTES_MAX, File
from zerochat.group.files.hash_tree import PART_BYTES, leaf, levels_over


class TooManyToSend(LocalError):
    """A message can have at most {limit} files; you gave {count}. Send the rest with another message."""


class NoFiles(LocalError):
    """No file given. Nothing was sent."""


class NoRoomToSend(LocalError):
    """No space for these files: with the stored ones they exceed `[files] total_max` in the settings. Remove one first:
    `zerochat files remove GROUP FILE`."""


class NotAbsolute(LocalError):
    """{path} is not an absolute path. Begin it with a slash."""


class CannotSend(LocalError):
    """{path} cannot be sent: {why}."""


class FileTooLargeToSend(LocalError):
    """{path} has {size} bytes; at most {limit} can be sent (`[files] size_max` in the settings)."""


class FileChanges(LocalError):
    """{path} changed while it was read; nothing was sent. Try again when no program writes to it."""


def import_files(
    blobs: Blobs, group: str, paths: list[str], size_max: int, left: int, is_running: Callable[[], bool]
) -> tuple[File, ...]:
    """Store these files for a group; their descriptors. `left`: free bytes of the quota.

    Raises a LocalError, or OSError for an error of our own disk.
    """
    if len(paths) > FILES_MAX:
        raise TooManyToSend(limit=FILES_MAX, count=len(paths))
    found: dict[str, File] = {}
    for path in paths:
        descriptor = _opened(path, size_max)
        left -= os.fstat(descriptor).st_size
        os.close(descriptor)
    if left < 0:
        raise NoRoomToSend
    for path in paths:
        file = _import_file(blobs, group, path, size_max, is_running)
        found.setdefault(file.id, file)
    return tuple(found.values())


def _import_file(blobs: Blobs, group: str, path: str, size_max: int, is_running: Callable[[], bool]) -> File:
    descriptor = _opened(path, size_max)
    try:
        before = os.fstat(descriptor)
        leaves, size = [], 0
        for part in _parts(descriptor, path, is_running):
            leaves.append(leaf(part))
            size += len(part)
            if size > size_max:
                raise FileTooLargeToSend(path=path, size=size, limit=size_max)
        if not size or size != before.st_size:
            raise FileChanges(path=path) if before.st_size else CannotSend(path=path, why="it is empty")
        root = b64url(levels_over(leaves)[-1][0])
        file = File(root, size, _name(path), mimetypes.guess_type(path)[0] or "")
        if not blobs.import_file(group, file.id, size, leaves, _parts(descriptor, path, is_running)):
            raise FileChanges(path=path)
        return file
    finally:
        os.close(descriptor)


def _opened(path: str, size_max: int) -> int:
    """A descriptor of a regular file: no pipe that could block, no device, no folder."""
    if not Path(path).is_absolute():
        raise NotAbsolute(path=ascii(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise CannotSend(path=path, why=why) from error
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise CannotSend(path=path, why="it is a folder" if stat.S_ISDIR(facts.st_mode) else "it is not a regular file")
    if facts.st_size > size_max:
        os.close(descriptor)
        raise FileTooLargeToSend(path=path, size=facts.st_size, limit=size_max)
    return descriptor


def _parts(descriptor: int, path: str, is_running: Callable[[], bool]) -> Iterator[bytes]:
    offset = 0
    while True:
        if not is_running():
            raise Interrupted
        try:
            part = _full(descriptor, offset)
        except OSError as error:
            raise CannotSend(path=path, why=(error.strerror or str(error)).lower()) from error
        if part:
            yield part
        if len(part) < PART_BYTES:
            return
        offset += len(part)


def _full(descriptor: int, offset: int) -> bytes:
    """A complete part, or a shorter one at the end of the file."""
    part = b""
    while len(part) < PART_BYTES and (more := os.pread(descriptor, PART_BYTES - len(part), offset + len(part))):
        part += more
    return part


def _name(path: str) -> str:
    """The name that recipients see: only the last component of the path."""
    name = unicodedata.normalize("NFC", os.fsencode(Path(path).name).decode(errors="replace"))
    return name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
