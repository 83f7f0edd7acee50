"""Encrypted file contents in the profile's folder: `files/GROUP/FILE`, one copy per group.

Each part is encrypted separately (XChaCha20-Poly1305) under a key derived from a secret in the journal, the group and
the file. The file's id identifies its content, so the part number can be the nonce: no two different plaintexts are
encrypted under one nonce. The hashes of all parts, from which inclusion proofs are computed, follow the last part. An
incomplete file is named `FILE.part`; it is renamed when every part was read back from disk and together they have the
root hash in the file's id. Methods raise OSError for disk errors.
"""

import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from zerochat.agent.storage.database import sync_folder
from zerochat.crypto.content_encryption import xc20p_open, xc20p_seal
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import hkdf_sha256
from zerochat.errors import Unauthentic
from zerochat.group.files.hash_tree import PART_BYTES, leaf, levels_over, part_size, parts_in, path_in

TAG_BYTES = 16
SEALED_PART_BYTES = PART_BYTES + TAG_BYTES
HASH_BYTES = 32
TREES_MAX = 4
"""Cached hash trees: one of the largest file takes some 6 MB."""
ZEROS_BYTES = 1 << 20
"""Zeros that are written at a time over a deleted file."""
_NAME = re.compile(r"[A-Za-z0-9_-]{43}")
_HASHES = b"\xff" * 24
"""The nonce of the hashes, which is no part number."""


class Blobs:
    """The files of one profile."""

    def __init__(self, folder: Path, secret: bytes) -> None:
        self.folder = folder
        self._secret = secret
        self._trees: OrderedDict[Path, list[list[bytes]]] = OrderedDict()

    def scan(self) -> Iterator[tuple[str, str, int, bool]]:
        """Group, file, number of parts, and completeness of each file on disk. Unfinished imports are deleted."""
        for group in self.folder.iterdir() if self.folder.exists() else ():
            if not (group.is_dir() and _NAME.fullmatch(group.name)):
                continue
            for path in group.iterdir():
                name, _, kind = path.name.partition(".")
                if kind == "new":
                    path.unlink(missing_ok=True)
                elif _NAME.fullmatch(name) and kind in ("", "part"):
                    yield group.name, name, path.stat().st_size // SEALED_PART_BYTES, not kind

    def path(self, group: str, file: str, kind: str = "") -> Path:
        assert _NAME.fullmatch(group) and _NAME.fullmatch(file)
        return self.folder / group / (file + kind)

    def _key(self, group: str, file: str) -> bytes:
        return hkdf_sha256(self._secret, f"zerochat/files/1\n{group} {file}".encode())

    # --- received parts -----------------------------------------------------------------------------------------------

    def store(self, group: str, file: str, first: int, parts: Sequence[bytes]) -> None:
        """Write consecutive parts, and sync them to disk."""
        path = self.path(group, file, ".part")
        fresh = not path.exists()
        if fresh:
            self._prepare(path.parent)
        sealed = b"".join(self._sealed(group, file, number, part) for number, part in enumerate(parts, first))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _write_at(descriptor, sealed, first * SEALED_PART_BYTES)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if fresh:
            sync_folder(path.parent)

    def _prepare(self, folder: Path) -> None:
        if not folder.exists():
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            sync_folder(self.folder)
            sync_folder(self.folder.parent)

    def _sealed(self, group: str, file: str, number: int, part: bytes) -> bytes:
        return b"".join(xc20p_seal(self._key(group, file), number.to_bytes(24), part, b""))

    def finish(self, group: str, file: str, root: str, size: int, is_running: Callable[[], bool]) -> bool:
        """Verify all parts, and rename the complete file; False: they do not match the root hash, or `is_running` has
        become False."""
        path = self.path(group, file, ".part")
        if self.path(group, file).exists():
            return True
        with path.open("r+b") as kept:
            leaves = []
            try:
                for part in self._parts(kept.fileno(), group, file, size):
                    if not is_running():
                        return False
                    leaves.append(leaf(part))
            except Unauthentic:
                return False
            if b64url(levels_over(leaves)[-1][0]) != root:
                return False
            self._close(kept.fileno(), group, file, size, leaves)
        path.rename(self.path(group, file))
        sync_folder(path.parent)
        return True

    def _close(self, descriptor: int, group: str, file: str, size: int, leaves: Sequence[bytes]) -> None:
        """Append the hashes, and sync the file."""
        end = size + parts_in(size) * TAG_BYTES
        _write_at(descriptor, b"".join(xc20p_seal(self._key(group, file), _HASHES, b"".join(leaves), b"")), end)
        os.ftruncate(descriptor, end + len(leaves) * HASH_BYTES + TAG_BYTES)
        os.fsync(descriptor)

    def import_file(self, group: str, file: str, size: int, leaves: Sequence[bytes], parts: Iterator[bytes]) -> bool:
        """Store a file of our own; False: the parts do not match these hashes, and nothing is stored."""
        path = self.path(group, file)
        if path.exists():
            return True
        self._prepare(path.parent)
        fresh = self.path(group, file, ".new")
        try:
            descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                count = 0
                for number, part in enumerate(parts):
                    if number >= len(leaves) or leaf(part) != leaves[number]:
                        return False
                    _write_at(descriptor, self._sealed(group, file, number, part), number * SEALED_PART_BYTES)
                    count += 1
                if count != len(leaves):
                    return False
                self._close(descriptor, group, file, size, leaves)
            finally:
                os.close(descriptor)
            fresh.rename(path)
            sync_folder(path.parent)
            self.path(group, file, ".part").unlink(missing_ok=True)
            return True
        finally:
            fresh.unlink(missing_ok=True)

    # --- sent parts ---------------------------------------------------------------------------------------------------

    def read(
        self, group: str, file: str, size: int, first: int, count: int
    ) -> tuple[tuple[bytes, tuple[bytes, ...]], ...]:
        """Some parts of a complete file, each with its inclusion proof. Raises Unauthentic."""
        with self.path(group, file).open("rb") as kept:
            tree = self._tree(kept.fileno(), group, file, size)
            numbers = range(first, min(first + count, parts_in(size)))
            return tuple(
                (self._part(kept.fileno(), group, file, size, number), path_in(tree, number)) for number in numbers
            )

    def content(self, group: str, file: str, size: int) -> Iterator[bytes]:
        """All parts of a complete file. Raises Unauthentic."""
        with self.path(group, file).open("rb") as kept:
            yield from self._parts(kept.fileno(), group, file, size)

    def _parts(self, descriptor: int, group: str, file: str, size: int) -> Iterator[bytes]:
        for number in range(parts_in(size)):
            yield self._part(descriptor, group, file, size, number)

    def _part(self, descriptor: int, group: str, file: str, size: int, number: int) -> bytes:
        length = part_size(size, number)
        sealed = os.pread(descriptor, length + TAG_BYTES, number * SEALED_PART_BYTES)
        if len(sealed) != length + TAG_BYTES:
            raise Unauthentic()
        return xc20p_open(self._key(group, file), number.to_bytes(24), sealed[:-TAG_BYTES], sealed[-TAG_BYTES:], b"")

    def _tree(self, descriptor: int, group: str, file: str, size: int) -> list[list[bytes]]:
        path = self.path(group, file)
        tree = self._trees.pop(path, None)
        if tree is None:
            length = parts_in(size) * HASH_BYTES + TAG_BYTES
            sealed = os.pread(descriptor, length, size + parts_in(size) * TAG_BYTES)
            if len(sealed) != length:
                raise Unauthentic()
            hashes = xc20p_open(self._key(group, file), _HASHES, sealed[:-TAG_BYTES], sealed[-TAG_BYTES:], b"")
            tree = levels_over([hashes[at : at + HASH_BYTES] for at in range(0, len(hashes), HASH_BYTES)])
            while len(self._trees) >= TREES_MAX:
                self._trees.popitem(last=False)
        self._trees[path] = tree
        return tree

    # --- deletion -----------------------------------------------------------------------------------------------------

    def drop(self, group: str, file: str) -> None:
        """Delete a file, and overwrite it before: it may have expired, and its key can be derived as long as the
        profile exists."""
        self._trees.pop(self.path(group, file), None)
        for kind in (".part", ".new", ""):  # in this order no part file is renamed in between
            path = self.path(group, file, kind)
            _overwrite(path)
            path.unlink(missing_ok=True)

    def forget(self, group: str) -> None:
        """Delete all files of a group, and overwrite them before."""
        folder = self.folder / group
        if not _NAME.fullmatch(group) or not folder.exists():
            return
        self._trees.clear()
        for path in folder.iterdir():
            _overwrite(path)
            path.unlink(missing_ok=True)
        folder.rmdir()


def _overwrite(path: Path) -> None:
    """Overwrite a file with zeros, in place and synced; none where there is no such file, or no room to write in."""
    with suppress(OSError), path.open("r+b", buffering=0) as kept:
        left = os.fstat(kept.fileno()).st_size
        while left:
            left -= kept.write(bytes(min(left, ZEROS_BYTES)))
        os.fsync(kept.fileno())


def _write_at(descriptor: int, data: bytes, offset: int) -> None:
    """Write all data; a nearly full disk may accept less at a time."""
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written
