"""How the key of a journal lies on disk: open in a key file, sealed under a passphrase, or named to the keyring.

These are small JSON files that only their user can read. A sealed key is encrypted under another one, which Argon2id
makes of the passphrase, so that a new passphrase means one small file and not a new journal.
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
from zerochat.crypto.encoding import Count, b64url, b64url_bytes
from zerochat.errors import LocalError, Malformed

JournalKey = NewType("JournalKey", bytes)

VERSION: Final = 1
KDF_PASSES: Final = 3
KDF_BYTES: Final = 64 << 20
"""Argon2id as RFC 9106 wants it where memory is scarce (its second recommendation): a quarter of a second or so. Every
version has written these and no others, so none else are read: a vault may be a stranger's (`backup.py`), and the same
header that could ask for less protection could ask for all of this machine's memory."""
SECRET_FILE_BYTES_MAX: Final = 4096
PASSPHRASE_BYTES_MAX: Final = 4096
PASSPHRASE_FILE: Final = "ZEROCHAT_PASSPHRASE_FILE"  # noqa: S105  # the name of a variable


class OpenToOthers(LocalError):
    """The key file {path} can be read or changed by other users, so it is not used. Close it with
    `chmod 600 {path}`."""

    exit_code: ClassVar[int] = 6


class BadSecretFile(LocalError):
    """{path} cannot be used: {why}. Put it back from a backup; without it the profile does not open."""

    exit_code: ClassVar[int] = 6


class WrongPassphrase(LocalError):
    """This is not the passphrase of the profile {profile}. Nothing has changed: try again."""

    exit_code: ClassVar[int] = 6


class BadPassphrase(LocalError):
    """The passphrase cannot be used: {why}."""

    exit_code: ClassVar[int] = 2


class _Version(msgspec.Struct, frozen=True):
    """What any version of these files begins with."""

    version: Count


class KeyFile(msgspec.Struct, frozen=True, tag_field="zerochat", tag="key"):
    key: str
    version: int = VERSION


class Lock(msgspec.Struct, frozen=True):
    """How the key is locked. These bytes are authenticated with it, so that nobody can make the next unlocking weak."""

    salt: str
    nonce: str
    passes: Count = KDF_PASSES
    memory_bytes: Count = KDF_BYTES
    kdf: Literal["argon2id"] = "argon2id"
    cipher: Literal["xchacha20-poly1305"] = "xchacha20-poly1305"


class Vault(msgspec.Struct, frozen=True, tag_field="zerochat", tag="vault"):
    lock: Lock
    sealed: str
    version: int = VERSION


class Ring(msgspec.Struct, frozen=True, tag_field="zerochat", tag="keyring"):
    account: str
    version: int = VERSION


Secret = TypeVar("Secret", KeyFile, Vault, Ring)


# --- passphrases ----------------------------------------------------------------------------------------------------


def passphrase_source(environ: Mapping[str, str], variable: str = PASSPHRASE_FILE) -> Callable[[], bytes] | None:
    """Where a program without a person gets a passphrase: the file that this variable names, up to the end of its first
    line. None: nowhere.

    The file may be one that the system lends for the purpose (`/dev/fd/3`, a mounted secret), so it is taken as it is.
    """
    name = environ.get(variable)
    return (lambda: _passphrase_in(Path(name).expanduser(), variable)) if name else None


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


def seal(key: bytes, passphrase: bytes) -> Vault:
    """The key, locked with this passphrase."""
    nonce = os.urandom(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES)
    lock = Lock(b64url(os.urandom(nacl.pwhash.argon2id.SALTBYTES)), b64url(nonce))
    sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(
        key, msgspec.json.encode(lock), nonce, _stretch(passphrase, lock)
    )
    return Vault(lock, b64url(sealed))


def open_sealed(vault: Vault, passphrase: bytes, path: Path, profile: str) -> JournalKey:
    """The key in a vault that was read from `path`. Raises BadPassphrase, BadSecretFile or WrongPassphrase."""
    check_passphrase(passphrase)
    lock = vault.lock
    if (lock.passes, lock.memory_bytes) != (KDF_PASSES, KDF_BYTES):
        asked = f"{lock.memory_bytes >> 20} MiB and {lock.passes} passes of Argon2id"
        why = f"it asks for {asked}, and zerochat writes {KDF_BYTES >> 20} MiB and {KDF_PASSES}"
        raise BadSecretFile(path=path, why=why)
    exact_bytes(lock.salt, nacl.pwhash.argon2id.SALTBYTES, path)
    nonce = exact_bytes(lock.nonce, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, path)
    sealed = exact_bytes(vault.sealed, KEY_BYTES + 16, path)
    try:
        key = crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, msgspec.json.encode(lock), nonce, _stretch(passphrase, lock)
        )
    except CryptoError as error:
        raise WrongPassphrase(profile=profile) from error
    return JournalKey(key)


def _stretch(passphrase: bytes, lock: Lock) -> bytes:
    return nacl.pwhash.argon2id.kdf(
        KEY_BYTES, passphrase, b64url_bytes(lock.salt), opslimit=lock.passes, memlimit=lock.memory_bytes
    )


# --- small secret files ---------------------------------------------------------------------------------------------


def write_secret(path: Path, content: msgspec.Struct) -> None:
    """Write a file that only this user can read, in a folder that nobody else knows yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def read_secret(path: Path, shape: type[Secret]) -> Secret:
    """Raises BadSecretFile or OpenToOthers."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        link = error.errno in (errno.ELOOP, errno.EMLINK)
        why = "it is a symbolic link" if link else (error.strerror or str(error)).lower()
        raise BadSecretFile(path=path, why=why) from error
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise BadSecretFile(path=path, why="it is no plain file")
        if stat.S_IMODE(facts.st_mode) & 0o077 or facts.st_uid not in (os.geteuid(), 0):
            raise OpenToOthers(path=path)
        text = os.read(descriptor, SECRET_FILE_BYTES_MAX)
    finally:
        os.close(descriptor)
    try:
        version = msgspec.json.decode(text, type=_Version).version
        if version > VERSION:
            raise BadSecretFile(path=path, why=f"a newer zerochat wrote it (version {version})")
        return msgspec.json.decode(text, type=shape)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadSecretFile(path=path, why=f"it is not what zerochat writes there ({error})") from error


def exact_bytes(text: str, size: int, path: Path) -> bytes:
    try:
        value = b64url_bytes(text)
    except Malformed as error:
        raise BadSecretFile(path=path, why="it is not what zerochat writes there (no base64url)") from error
    if len(value) != size:
        raise BadSecretFile(path=path, why=f"it is not what zerochat writes there ({len(value)} bytes for {size})")
    return value
