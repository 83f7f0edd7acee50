"""Makes a profile, keeps the key of its journal, and says which process owns it.

The journal's key is 32 random bytes. A profile without a passphrase has it in a file that only its user can read: for
bots, and for disks that are encrypted anyway. A profile with one has it in a vault: the key sealed under another one,
which Argon2id makes of the passphrase, so that a new passphrase means one small file and not a new journal. A profile
appears whole or not at all: it is made in a folder beside its place, which is then renamed.
"""

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final, Literal, NewType, Self, TypeVar

import msgspec
import nacl.pwhash
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_aead_xchacha20poly1305_ietf_NPUBBYTES,
)
from nacl.exceptions import CryptoError

from zerochat.agent import ring
from zerochat.agent.journal import KEY_BYTES, DiskFailed, DiskFull, Journal, ReadOnly, fault_of_disk
from zerochat.agent.places import Places
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.errors import LocalError, Malformed
from zerochat.names import checked_name

JournalKey = NewType("JournalKey", bytes)

VERSION: Final = 1
KDF_PASSES: Final = 3
KDF_BYTES: Final = 64 << 20
"""Argon2id as RFC 9106 wants it where memory is scarce (its second recommendation): a quarter of a second or so."""
KDF_PASSES_MAX: Final = 64
KDF_BYTES_MAX: Final = 4 << 30
"""What a vault's header may ask of this machine."""
SECRET_FILE_BYTES_MAX: Final = 4096
PASSPHRASE_BYTES_MAX: Final = 4096

LABEL, SERVER_SECRET, CREATED = "label", "server_secret", "created"
"""What a new journal's meta holds: the name that others see, the CURVE secret key of the agent's bound sockets (32
bytes), and when it was made (UTC milliseconds, in decimal)."""


class NoProfile(LocalError):
    """There is no profile {profile} yet. Make it with `zerochat --profile {profile} init --name NAME`."""

    exit_code: ClassVar[int] = 6


class ProfileExists(LocalError):
    """The profile {profile} exists already, at {path}, and is kept as it is. Use it, or make another one under another
    name (`zerochat --profile OTHER init --name NAME`)."""


class ProfileIncomplete(LocalError):
    """The profile {profile} is incomplete: there is no {path}. Put it back from a backup, or make another profile
    (`zerochat --profile OTHER init --name NAME`)."""

    exit_code: ClassVar[int] = 6


class ProfileOwned(LocalError):
    """The profile {profile} belongs to another zerochat that is running (process {pid}). Its verbs and faces reach that
    one by themselves; to run another agent, stop it first or choose another profile (`--profile NAME`)."""

    exit_code: ClassVar[int] = 6


class OpenToOthers(LocalError):
    """The key file {path} can be read or changed by other users, so it is not used. Close it with
    `chmod 600 {path}`."""

    exit_code: ClassVar[int] = 6


class BadSecretFile(LocalError):
    """{path} cannot be used: {why}. Put it back from a backup; without it the profile does not open."""

    exit_code: ClassVar[int] = 6


class PassphraseNeeded(LocalError):
    """The profile {profile} is locked with a passphrase, and there is nobody to ask for it. Put the passphrase into a
    file that only you can read, and name that file in ZEROCHAT_PASSPHRASE_FILE."""

    exit_code: ClassVar[int] = 6


class WrongPassphrase(LocalError):
    """This is not the passphrase of the profile {profile}. Nothing has changed: try again."""

    exit_code: ClassVar[int] = 6


class BadPassphrase(LocalError):
    """The passphrase cannot be used: {why}."""

    exit_code: ClassVar[int] = 2


class _Version(msgspec.Struct, frozen=True):
    """What any version of these files begins with."""

    version: int


class _KeyFile(msgspec.Struct, frozen=True, tag_field="zerochat", tag="key"):
    key: str
    version: int = VERSION


class _Lock(msgspec.Struct, frozen=True):
    """How the key is locked. These bytes are authenticated with it, so that nobody can make the next unlocking weak."""

    salt: str
    nonce: str
    passes: int = KDF_PASSES
    memory_bytes: int = KDF_BYTES
    kdf: Literal["argon2id"] = "argon2id"
    cipher: Literal["xchacha20-poly1305"] = "xchacha20-poly1305"


class _Vault(msgspec.Struct, frozen=True, tag_field="zerochat", tag="vault"):
    lock: _Lock
    sealed: str
    version: int = VERSION


class _Ring(msgspec.Struct, frozen=True, tag_field="zerochat", tag="keyring"):
    account: str
    version: int = VERSION


_Secret = TypeVar("_Secret", _KeyFile, _Vault, _Ring)


# --- profiles -------------------------------------------------------------------------------------------------------


def profile_exists(places: Places) -> bool:
    """Whether there is a profile, be it incomplete: then nothing may be put in its place."""
    with _faults_of_disk(places.data):
        return any(map(_is_there, (places.journal, places.key_file, places.vault, places.ring)))


def create_profile(places: Places, label: str, passphrase: bytes | None, *, keyring: bool = False) -> None:
    """Make a profile for somebody whom others shall see as `label`.

    Its key is locked with the passphrase; without one it lies in the system's keyring (`keyring`) or in a key file.
    Raises NoKeyring, BadName, BadPassphrase, ProfileExists, ReadOnly, DiskFull or DiskFailed, and then there is no
    profile.
    """
    label = checked_name(label, "name")
    if passphrase is not None:
        _check_passphrase(passphrase)
    if profile_exists(places):
        raise ProfileExists(profile=places.profile, path=places.data)
    key = os.urandom(KEY_BYTES)
    folder = places.data.parent
    with _faults_of_disk(places.data):
        _make_private(folder)
        building = Path(tempfile.mkdtemp(prefix=f".{places.profile}.", dir=folder))
        try:
            meta = {
                LABEL: label.encode(),
                SERVER_SECRET: os.urandom(32),
                CREATED: b"%d" % (time.time_ns() // 1_000_000),
            }
            Journal.create(building / places.journal.name, key, meta).close()
            if passphrase is not None:
                _write_secret(building / places.vault.name, _seal(key, passphrase))
            elif keyring:
                account = f"{places.profile} {b64url(os.urandom(9))}"
                ring.keep(account, b64url(key))
                _write_secret(building / places.ring.name, _Ring(account))
            else:
                _write_secret(building / places.key_file.name, _KeyFile(b64url(key)))
            _sync(building)
            _settle(building, places)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        _sync(folder)


def _settle(building: Path, places: Places) -> None:
    """Put the finished folder in its place. An empty folder there gives way; anything else does not."""
    try:
        building.rename(places.data)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise ProfileExists(profile=places.profile, path=places.data) from error
        raise


def _make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, closed to others (the XDG specification asks for that)."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)


def unlock(places: Places, passphrase: Callable[[], bytes] | None) -> JournalKey:
    """The key of the profile's journal.

    `passphrase` is called only when there is one to ask for. Raises NoProfile, ProfileIncomplete, OpenToOthers,
    BadSecretFile, NoKeyring, PassphraseNeeded, BadPassphrase or WrongPassphrase.
    """
    if not profile_exists(places):
        raise NoProfile(profile=places.profile)
    if not _is_there(places.journal):
        raise ProfileIncomplete(profile=places.profile, path=places.journal)
    if _is_there(places.key_file):
        file = _read_secret(places.key_file, _KeyFile)
        return JournalKey(_bytes(file.key, KEY_BYTES, places.key_file))
    if _is_there(places.ring):
        account = _read_secret(places.ring, _Ring).account
        return JournalKey(_bytes(ring.fetch(account), KEY_BYTES, places.ring))
    if not _is_there(places.vault):
        raise ProfileIncomplete(profile=places.profile, path=places.key_file)
    vault = _read_secret(places.vault, _Vault)
    if passphrase is None:
        raise PassphraseNeeded(profile=places.profile)
    return _open(vault, passphrase(), places)


# --- passphrases ----------------------------------------------------------------------------------------------------


def passphrase_source(environ: Mapping[str, str]) -> Callable[[], bytes] | None:
    """Where a program without a person gets the passphrase: the file that ZEROCHAT_PASSPHRASE_FILE names, up to the
    end of its first line. None: nowhere.

    The file may be one that the system lends for the purpose (`/dev/fd/3`, a mounted secret), so it is taken as it is.
    """
    name = environ.get("ZEROCHAT_PASSPHRASE_FILE")
    return (lambda: _passphrase_in(Path(name).expanduser())) if name else None


def _passphrase_in(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            text = file.read(PASSPHRASE_BYTES_MAX + 2)
    except OSError as error:
        why = f"the file {path} (ZEROCHAT_PASSPHRASE_FILE) cannot be read ({(error.strerror or str(error)).lower()})"
        raise BadPassphrase(why=why) from error
    line = text.partition(b"\n")[0].removesuffix(b"\r")
    _check_passphrase(line)
    return line


def _check_passphrase(passphrase: bytes) -> None:
    if not passphrase:
        raise BadPassphrase(why="it is empty")
    if len(passphrase) > PASSPHRASE_BYTES_MAX:
        raise BadPassphrase(why=f"it has more than {PASSPHRASE_BYTES_MAX} bytes")


def _seal(key: bytes, passphrase: bytes) -> _Vault:
    nonce = os.urandom(crypto_aead_xchacha20poly1305_ietf_NPUBBYTES)
    lock = _Lock(b64url(os.urandom(nacl.pwhash.argon2id.SALTBYTES)), b64url(nonce))
    sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(
        key, msgspec.json.encode(lock), nonce, _stretch(passphrase, lock)
    )
    return _Vault(lock, b64url(sealed))


def _open(vault: _Vault, passphrase: bytes, places: Places) -> JournalKey:
    _check_passphrase(passphrase)
    lock = vault.lock
    if not (KDF_PASSES <= lock.passes <= KDF_PASSES_MAX and KDF_BYTES <= lock.memory_bytes <= KDF_BYTES_MAX):
        raise BadSecretFile(path=places.vault, why="it asks for more work, or less, than zerochat does")
    _bytes(lock.salt, nacl.pwhash.argon2id.SALTBYTES, places.vault)
    nonce = _bytes(lock.nonce, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES, places.vault)
    sealed = _bytes(vault.sealed, KEY_BYTES + 16, places.vault)
    try:
        key = crypto_aead_xchacha20poly1305_ietf_decrypt(
            sealed, msgspec.json.encode(lock), nonce, _stretch(passphrase, lock)
        )
    except CryptoError as error:
        raise WrongPassphrase(profile=places.profile) from error
    return JournalKey(key)


def _stretch(passphrase: bytes, lock: _Lock) -> bytes:
    return nacl.pwhash.argon2id.kdf(
        KEY_BYTES, passphrase, b64url_bytes(lock.salt), opslimit=lock.passes, memlimit=lock.memory_bytes
    )


# --- ownership ------------------------------------------------------------------------------------------------------


class ProfileLock:
    """Held for as long as this process owns the profile. The kernel lets go of it when the process ends, however."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go. The file stays: removing it could take the lock of whoever comes next."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_profile(places: Places) -> ProfileLock:
    """Become the owner of an existing profile. Raises ProfileOwned, NoProfile, ReadOnly, DiskFull or DiskFailed."""
    if not profile_exists(places):
        raise NoProfile(profile=places.profile)
    with _faults_of_disk(places.lock):
        descriptor = os.open(places.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
                raise ProfileOwned(profile=places.profile, pid=pid if pid.isdecimal() else "unknown") from None
            with suppress(OSError):  # on a full disk the lock holds all the same, only nobody learns whose it is
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except BaseException:
            os.close(descriptor)
            raise
    return ProfileLock(descriptor)


# --- small secret files ---------------------------------------------------------------------------------------------


def _write_secret(path: Path, content: msgspec.Struct) -> None:
    """Write a file that only this user can read, in a folder that nobody else knows yet."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(content)) + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _read_secret(path: Path, shape: type[_Secret]) -> _Secret:
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


def _bytes(text: str, size: int, path: Path) -> bytes:
    try:
        value = b64url_bytes(text)
    except Malformed as error:
        raise BadSecretFile(path=path, why="it is not what zerochat writes there (no base64url)") from error
    if len(value) != size:
        raise BadSecretFile(path=path, why=f"it is not what zerochat writes there ({len(value)} bytes for {size})")
    return value


def _is_there(path: Path) -> bool:
    """Whether there is anything at this path, be it a link to nowhere."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _sync(folder: Path) -> None:
    """Put on disk which names are in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _faults_of_disk(path: Path) -> Iterator[None]:
    """What the system says about files, in our own words and about the place that the person knows."""
    try:
        yield
    except OSError as error:
        raise fault_of_disk(error, path) from error
    except (DiskFull, DiskFailed, ReadOnly) as error:
        raise type(error)(**{**error.fields, "path": path}) from error
