"""The erasure key: cryptographic erasure (NIST SP 800-88) of keys that are used up.

A database keeps what it overwrites for a time: in its write-ahead log, in free pages, in the unused space of pages, in
copies. So the parts of the state that have such keys (`Erasable`) are sealed under an erasure key, which is in a small
file beside the journal. Soon after they have changed, they are sealed anew under the next erasure key, and the file is
replaced: then no older copy of them opens, wherever it is. Backups do not contain the file.

    file  =  the key in force, and the next one

The parts are sealed anew in one transaction, before the file is replaced. A crash in between leaves them sealed under
the second key of the file, and the next start replaces it.
"""

import logging
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from zerochat.agent.storage.database import KEY_BYTES, disk_error, sync_folder
from zerochat.agent.storage.key_wrapping import BadSecretFile, ErasureKeyFile, exact_bytes, read_secret, write_secret
from zerochat.crypto.encoding import b64url
from zerochat.crypto.nacl_boxes import (
    CHACHA_NONCE_BYTES,
    chacha20_poly1305_open,
    chacha20_poly1305_seal,
)
from zerochat.errors import LocalError, RemoteError

RENEWAL_S: Final = 30.0
"""How long after a change the parts are sealed anew: so long, and one batch more, a used key stays on disk."""
RETRY_S: Final = 60.0
"""The same after a failed try."""
_REMEDY: Final = "Delete it: the other members then send fresh keys."


def erasure_key_path(journal: Path) -> Path:
    """The file beside this journal."""
    return journal.with_suffix(".erasure-key")


class ErasureKey:
    """The erasure key of one journal; its file is read, or created, at the first use.

    Methods raise BadSecretFile, OpenToOthers, NotOurSecretFile, DiskFull, DiskReadOnly or DiskFailed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys: tuple[bytes, bytes] | None = None
        self._has_advanced = False
        """The second key seals; parts may be sealed under either one."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def seal(self, place: str, value: bytes) -> bytes:
        """The value sealed for its path, under the key in force."""
        nonce = os.urandom(CHACHA_NONCE_BYTES)
        return nonce + chacha20_poly1305_seal(self._pair()[self._has_advanced], nonce, value, place.encode())

    def open(self, place: str, sealed: bytes) -> bytes | None:
        """Inverse of `seal`; None: it is sealed under an erased key, or of another journal."""
        for is_next, key in enumerate(self._pair()):
            nonce, rest = sealed[:CHACHA_NONCE_BYTES], sealed[CHACHA_NONCE_BYTES:]
            with suppress(RemoteError):
                value = chacha20_poly1305_open(key, nonce, rest, place.encode())
                self._has_advanced |= bool(is_next)
                return value
        return None

    def advance(self) -> bool:
        """Put the next key in force; false: it is in force already."""
        before, self._has_advanced = self._has_advanced, True
        return not before

    def erase(self) -> None:
        """Erase the first key: what it has sealed does not open any more. The second one has sealed all parts anew."""
        try:
            self._write((self._pair()[1], os.urandom(KEY_BYTES)))
        except OSError as error:
            raise disk_error(error, self.path) from error

    def _pair(self) -> tuple[bytes, bytes]:
        if self._keys is None:
            try:
                exists = os.path.lexists(self.path)
                if exists:
                    keys = read_secret(self.path, ErasureKeyFile).keys
                    self._keys = exact_bytes(keys[0], KEY_BYTES, self.path), exact_bytes(keys[1], KEY_BYTES, self.path)
                else:
                    self._write((os.urandom(KEY_BYTES), os.urandom(KEY_BYTES)))
            except BadSecretFile as error:
                raise BadSecretFile(path=self.path, why=str(error.fields["why"]), remedy=_REMEDY) from error
            except OSError as error:
                raise disk_error(error, self.path) from error
        assert self._keys is not None
        return self._keys

    def _write(self, keys: tuple[bytes, bytes]) -> None:
        """Replace the file, then overwrite the blocks of the old one, where the file system writes in place."""
        fresh = self.path.with_name(self.path.name + ".new")
        _overwrite(fresh)
        fresh.unlink(missing_ok=True)
        write_secret(fresh, ErasureKeyFile((b64url(keys[0]), b64url(keys[1]))))
        try:
            old = os.open(self.path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            old = None
        try:
            fresh.replace(self.path)
            sync_folder(self.path.parent)
            self._keys, self._has_advanced = keys, False
            if old is not None:
                _zero(old)
        finally:
            if old is not None:
                os.close(old)


def _overwrite(path: Path) -> None:
    """Overwrite what a crash has left."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        _zero(descriptor)
    finally:
        os.close(descriptor)


def _zero(descriptor: int) -> None:
    os.pwrite(descriptor, bytes(os.fstat(descriptor).st_size), 0)
    os.fsync(descriptor)


class UsedKeys(Protocol):
    """A journal with sealed parts."""

    has_used_keys: bool

    def erase_used_keys(self) -> None: ...


class ErasureKeyTimer:
    """Erases the used keys of one journal between the batches."""

    def __init__(self, journal: UsedKeys, log: logging.Logger) -> None:
        self._journal, self._log = journal, log
        self._at: float | None = None

    def run_if_due(self) -> float | None:
        """Erase used keys, if it is time. Returns when it is, on the monotonic clock; None: there are none."""
        now = time.monotonic()
        if not self._journal.has_used_keys:
            self._at = None
        elif self._at is None:
            self._at = now + RENEWAL_S
        elif now >= self._at:
            try:
                self._journal.erase_used_keys()
                self._at = None
            except LocalError as error:
                self._at = now + RETRY_S
                self._log.error("used keys could not be erased: %s", error.code)
        return self._at
