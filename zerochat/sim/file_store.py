"""Simulated storage of file contents (`agent/files/`): parts are stored, read and verified."""

from typing import TypeAlias

from msgspec import Struct, field

from zerochat.crypto.encoding import b64url
from zerochat.group.effects import DeleteFileData, ReadParts, StoreParts, VerifyFile
from zerochat.group.files.descriptor import File
from zerochat.group.files.hash_tree import PART_BYTES, leaf, levels_over, path_in
from zerochat.group.inputs import FileFailed, FilesFound, FileVerified, PartsRead, PartsStored

FileEffect: TypeAlias = ReadParts | StoreParts | VerifyFile | DeleteFileData


def file_of(name: str, data: bytes) -> File:
    """The descriptor of a file with this content."""
    return File(b64url(_levels(_cut_up(data))[-1][0]), len(data), name, "application/octet-stream")


def _cut_up(data: bytes) -> list[bytes]:
    return [data[start : start + PART_BYTES] for start in range(0, len(data), PART_BYTES)]


def _levels(parts: list[bytes]) -> list[list[bytes]]:
    return levels_over([leaf(part) for part in parts])


class FileStore(Struct):
    """The files of one node, by group and file."""

    parts: dict[tuple[str, str], list[bytes]] = field(default_factory=dict)
    whole: set[tuple[str, str]] = field(default_factory=set)

    def copy(self) -> "FileStore":
        return FileStore({key: list(parts) for key, parts in self.parts.items()}, set(self.whole))

    def put(self, group: str, file: str, data: bytes) -> None:
        """Store a complete file."""
        self.parts[group, file] = _cut_up(data)
        self.whole.add((group, file))

    def content(self, group: str, file: str) -> bytes | None:
        """The content of a complete file."""
        return b"".join(self.parts[group, file]) if (group, file) in self.whole else None

    def perform(self, effect: FileEffect) -> PartsRead | PartsStored | FileVerified | FileFailed | None:
        match effect:
            case StoreParts(group, file, _, first, data):
                self.parts.setdefault((group, file), [])[first:] = [data]
                return PartsStored(group, file, first + 1)
            case ReadParts(group, member, file, _, first, count):
                parts = self.parts.get((group, file), [])
                levels = _levels(parts) if parts else []
                wanted = range(first, min(first + count, len(parts)))
                return PartsRead(group, member, file, first, tuple((parts[at], path_in(levels, at)) for at in wanted))
            case VerifyFile(group, file, root, size):
                parts = self.parts.get((group, file), [])
                if not parts or b64url(_levels(parts)[-1][0]) != root or sum(map(len, parts)) != size:
                    return FileFailed(group, file, "")
                self.whole.add((group, file))
                return FileVerified(group, file)
            case DeleteFileData(group, file):
                self.parts.pop((group, file), None)
                self.whole.discard((group, file))
        return None

    def found(self) -> FilesFound:
        """The stored files, reported after a start."""
        there = ((group, file, len(parts), (group, file) in self.whole) for (group, file), parts in self.parts.items())
        return FilesFound(tuple(there))
