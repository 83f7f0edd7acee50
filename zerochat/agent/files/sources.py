"""The files that a person gives: opened with care, and read twice.

The first time says what a file is (its size and its hashes), the second takes it in; if the two do not agree, somebody
is writing to it, and nothing is sent.
"""

import mimetypes
import os
import stat
import unicodedata
from collections.abc import Callable, Iterator
from pathlib import Path

from zerochat.agent.files.blobs import Blobs
from zerochat.crypto.encoding import b64url
from zerochat.errors import LocalError
from zerochat.group.files.descriptor import FILES_MAX, NAME_BYTES_MAX, File
from zerochat.group.files.hash_tree import PART_BYTES, leaf, levels_over


class TooManyToSend(LocalError):
    """A message can have at most {limit} files, and these are {count}. Send the rest with another one."""


class NoFiles(LocalError):
    """No file was named, so nothing was sent."""


class NoRoomToSend(LocalError):
    """These files do not fit: with what is here they have more than `[files] total_max` in the settings allows. Remove
    one first: `zerochat files drop GROUP FILE`."""


class NotAbsolute(LocalError):
    """{path} is not the whole path of a file, so it could be in another folder than you mean. Begin it with a slash."""


class CannotRead(LocalError):
    """{path} cannot be sent: {why}."""


class FileTooLargeToSend(LocalError):
    """{path} has {size} bytes, and at most {limit} can be sent (`[files] size_max` in the settings)."""


class FileChanges(LocalError):
    """{path} has changed while it was read, so nothing was sent. Try again when nobody writes to it."""


class Interrupted(LocalError):
    """The agent was stopped before all of it was read, so nothing was sent."""


def take_in(
    blobs: Blobs, group: str, paths: list[str], size_max: int, left: int, going_on: Callable[[], bool]
) -> tuple[File, ...]:
    """Keep these files for a group, and say what they are. `left`: what there is room for.

    Raises a LocalError, or OSError where our own disk fails.
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
        file = _take_in(blobs, group, path, size_max, going_on)
        found.setdefault(file.id, file)
    return tuple(found.values())


def _take_in(blobs: Blobs, group: str, path: str, size_max: int, going_on: Callable[[], bool]) -> File:
    descriptor = _opened(path, size_max)
    try:
        before = os.fstat(descriptor)
        leaves, size = [], 0
        for part in _parts(descriptor, path, going_on):
            leaves.append(leaf(part))
            size += len(part)
            if size > size_max:
                raise FileTooLargeToSend(path=path, size=size, limit=size_max)
        if not size or size != before.st_size:
            raise FileChanges(path=path) if before.st_size else CannotRead(path=path, why="it is empty")
        root = b64url(levels_over(leaves)[-1][0])
        file = File(root, size, _name(path), mimetypes.guess_type(path)[0] or "")
        if not blobs.take_in(group, file.id, size, leaves, _parts(descriptor, path, going_on)):
            raise FileChanges(path=path)
        return file
    finally:
        os.close(descriptor)


def _opened(path: str, size_max: int) -> int:
    """A regular file, open for reading: no pipe that would keep us waiting, no device, no folder."""
    if not Path(path).is_absolute():
        raise NotAbsolute(path=ascii(path))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        raise CannotRead(path=path, why=why) from error
    facts = os.fstat(descriptor)
    if not stat.S_ISREG(facts.st_mode):
        os.close(descriptor)
        raise CannotRead(path=path, why="it is a folder" if stat.S_ISDIR(facts.st_mode) else "it is no regular file")
    if facts.st_size > size_max:
        os.close(descriptor)
        raise FileTooLargeToSend(path=path, size=facts.st_size, limit=size_max)
    return descriptor


def _parts(descriptor: int, path: str, going_on: Callable[[], bool]) -> Iterator[bytes]:
    place = 0
    while True:
        if not going_on():
            raise Interrupted
        try:
            part = _full(descriptor, place)
        except OSError as error:
            raise CannotRead(path=path, why=(error.strerror or str(error)).lower()) from error
        if part:
            yield part
        if len(part) < PART_BYTES:
            return
        place += len(part)


def _full(descriptor: int, place: int) -> bytes:
    """A whole part, unless the file ends before."""
    part = b""
    while len(part) < PART_BYTES and (more := os.pread(descriptor, PART_BYTES - len(part), place + len(part))):
        part += more
    return part


def _name(path: str) -> str:
    """Only the last part of the path is anybody's business."""
    name = unicodedata.normalize("NFC", os.fsencode(Path(path).name).decode(errors="replace"))
    return name.encode()[:NAME_BYTES_MAX].decode(errors="ignore")
