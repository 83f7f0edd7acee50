"""Key files of a journal: the plain key, the key wrapped with a passphrase (Argon2id), or a keyring reference.

They are small JSON files with mode 0600. A wrapped key is encrypted under a key derived from the passphrase, so a new
passphrase rewrites one small file instead of the journal.
"""

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar, Final, Literal, NewType, TypeVar

import msgspec
import nacl.pwhash
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

from zerochat.agent.storage.database import KEY_BYTES
from zerochat.agent.storage.paths import user_path
from zerochat.crypto.encoding import Count, b64url, b64url_bytes
from zerochat.errors import LocalError, Malformed, quoted

JournalKey = NewType("JournalKey", bytes)

VERSION: Final = 1
KDF_PASSES: Final = 3
KDF_BYTES: Final = 64 << 20
"""Argon2id parameters: the second recommendation of RFC 9106, about a quarter of a second. Other values are refused: a
wrapped key may come from an untrusted backup (`backup.py`), and its header could demand all memory of this machine."""
SECRET_FILE_BYTES_MAX: Final = 4096
PASSPHRASE_BYTES_MAX: Final = 4096
PASSPHRASE_FILE: Final = "ZEROCHAT_PASSPHRASE_FILE"  # noqa: S105  # the name of a variable


class OpenToOthers(LocalError):
    """Other users can read or change the key file {path}, so it is not used. Restrict it with `chmod 600 {path}`."""

    exit_code: ClassVar[int] = 6


class BadSecretFile(LocalError):
    """{path} cannot be used: {why}. {remedy}"""

    exit_code: ClassVar[int] = 6

    def __init__(
        self,
        *,
        path: Path,
        why: str,
        remedy: str = "Restore it from a backup; without it the profile cannot be opened.",
    ) -> None:
        super().__init__(path=path, why=why, remedy=remedy)


class NotOurSecretFile(LocalError):
    """{path} cannot be used: it belongs to another user (id {owner}). Use zerochat as that user, or give the profile
    to yours: `sudo chown -R $USER {folder}`."""

    exit_code: ClassVar[int] = 6


class WrongPassphrase(LocalError):
    """Wrong passphrase for the profile {profile}. Try again."""

    exit_code: ClassVar[int] = 6


class BadPassphrase(LocalError):
    """The passphrase cannot be used: {why}."""

    exit_code: ClassVar[int] = 2


class _Version(msgspec.Struct, frozen=True):
    """The version field, common to all versions of these files."""

    version: Count


class KeyFile(msgspec.Struct, frozen=True, tag_field="zerochat", tag="key"):
    key: str
    version: int = VERSION


class WrappingParameters(msgspec.Struct, frozen=True):
    """Key derivation and cipher parameters, authenticated as associated data."""

    salt: str
    nonce: str
    passes: Count = KDF_PASSES
    memory_bytes: Count = KDF_BYTES
    kdf: Literal["argon2id"] = "argon2id"
    cipher: Literal["xchacha20-poly1305"] = "xchacha20-poly1305"


class WrappedKeyFile(msgspec.Struct, frozen=True, tag_field="zerochat", tag="wrapped-key"):
    lock: WrappingParameters
    sealed: str
    version: int = VERSION


class KeyringFile(msgspec.Struct, frozen=True, tag_field="zerochat", tag="keyring"):
    account: str
    version: int = VERSION


class ErasureKeyFile(msgspec.Struct, frozen=True, tag_field="zerochat", tag="erasure-key"):
    keys: tuple[str, str]
    """The key in force and the next one (`erasure_key.py`)."""
    version: int = VERSION


Secret = TypeVar("Secret", KeyFile, WrappedKeyFile, KeyringFile, ErasureKeyFile)


# --- passphrases ----------------------------------------------------------------------------------------------------


def passphrase_source(environ: Mapping[str, str], variable: str = PASSPHRASE_FILE) -> Callable[[], bytes] | None:
    """A function that reads the passphrase from the first line of the file named by this variable; None: not set.

    The file may be a pipe or a mounted secret (`/dev/fd/3`), so its permissions are not checked.
    """
    name = environ.get(variable)
    return (lambda: _passphrase_in(user_path(name), variable)) if name else None


def _passphrase_in(path: Path, variable: str) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(PASSPHRASE_BYTES_MAX + 2)
    except OSError as error:
        why = f"the file {path} ({variable}) cannot be read ({(error.strerror or str(error)).lower()})"
        raise BadPassphrase(why=why) from error
    line = text.partition(b"\n")[0].removesuffix(b"\r")
    check_passphrase(line)
    return line


def check_passphrase(passphrase: bytes) -> None:
    if not passphrase:
        raise BadPassphrase(why="it is empty")
    if len(passphrase) > PASSPHRASE_BYTES_MAX:
        raise BadPassphrase(why=f"it has more than {PASSPHRASE_BYTES_MAX} bytes")


def wrap_key(key: bytes, passphrase: bytes) -> WrappedKeyFile:
    """The key wrapped with this passphrase."""
    nonce = os.urandom(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES)
    lock = WrappingParameters(b64url(os.urandom(nacl.pwhash.argon2id.SALTBYTES)), b64url(nonce))
    sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(
        key, msgspec.json.encode(lock), nonce, _stretch(passphrase, lock)
    )
    return WrappedKeyFile(lock, b64url(sealed))


def unwrap_key(wrapped: WrappedKeyFile, passphrase: bytes, path: Path, profile: str) -> JournalKey:
    """The key from a wrapped key file read from `path`. Raises BadPassphrase, BadSecretFile or WrongPassphrase."""
    check_passphrase(passphrase)
    lock = wrapped.lock
    if (lock.passes, lock.memory_bytes) != (KDF_PASSES, KDF_BYTES):
        found = f"{lock.memory_bytes >> 20} MiB and {lock.passes} passes of Argon2id"
        why = f"it uses {found} instead of {KDF_BYTES >> 20} MiB and {KDF_PASSES}"
        raise BadSecretFile(path=path, why=why)
    exact_bytes(lock.salt, nacl.pwhash.argon2id.SALTBYTES, path)
    nonce = exact_bytes(lock.nonce, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, path)
    sealed = exact_bytes(wrapped.sealed, KEY_BYTES + 16, path)
    try:
        key = crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, msgspec.json.encode(lock), nonce, _stretch(passphrase, lock)
        )
    except CryptoError as error:
        raise WrongPassphrase(profile=profile) from error
    return JournalKey(key)


def _stretch(passphrase: bytes, lock: WrappingParameters) -> bytes:
    return nacl.pwhash.argon2id.kdf(
        KEY_BYTES, passphrase, b64url_bytes(lock.salt), opslimit=lock.passes, memlimit=lock.memory_bytes
    )


# --- small secret files ---------------------------------------------------------------------------------------------


def write_secret(path: Path, content: msgspec.Struct) -> None:
    """Write a new file with mode 0600, and sync it to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_secret(path: Path, shape: type[Secret]) -> Secret:
    """Raises BadSecretFile, NotOurSecretFile or OpenToOthers."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot_open(path, error) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise BadSecretFile(path=path, why="it is not a regular file")
        if facts.st_uid not in (os.geteuid(), 0):
            raise NotOurSecretFile(path=path, owner=facts.st_uid, folder=path.parent)
        if stat.S_IMODE(facts.st_mode) & 0o077:
            raise OpenToOthers(path=path)
        text = os.read(descriptor, SECRET_FILE_BYTES_MAX)
    finally:
        os.close(descriptor)
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version > VERSION:
            why = f"a newer version of zerochat wrote it (format {version})"
            raise BadSecretFile(path=path, why=why, remedy="Use that version, or a newer one.")
        return msgspec.json.decode(text, type=shape)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadSecretFile(path=path, why=f"its content is invalid ({error})") from error


def _cannot_open(path: Path, error: OSError) -> LocalError:
    if error.errno in (errno.ELOOP, errno.EMLINK):
        return BadSecretFile(path=path, why="it is a symbolic link", remedy="Put the file itself in its place.")
    why = (error.strerror or str(error)).lower()
    if error.errno != errno.EACCES:
        return BadSecretFile(path=path, why=why)
    try:
        owner = path.stat().st_uid
    except OSError:
        return BadSecretFile(path=path, why=why, remedy="Use zerochat as the user that owns the profile.")
    if owner != os.geteuid():
        return NotOurSecretFile(path=path, owner=owner, folder=path.parent)
    return BadSecretFile(path=path, why=why, remedy=f"Make it readable for you: `chmod 600 {quoted(str(path))}`.")


def exact_bytes(text: str, size: int, path: Path) -> bytes:
    try:
        value = b64url_bytes(text)
    except Malformed as error:
        raise BadSecretFile(path=path, why="its content is invalid (not base64url)") from error
    if len(value) != size:
        raise BadSecretFile(path=path, why=f"its content is invalid ({len(value)} bytes instead of {size})")
    return value
