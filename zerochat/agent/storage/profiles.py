"""Profiles: creation, key location, unlocking and ownership.

The journal's key is 32 random bytes (`key_wrapping.py`). It is stored in a file with mode 0600 (for bots, and for
encrypted disks), in the system's keyring, or wrapped with a passphrase. A profile is created atomically: it is built in
a temporary folder, which is then renamed.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Literal

from zerochat.agent.storage import os_keyring
from zerochat.agent.storage.database import sync_folder
from zerochat.agent.storage.journal import KEY_BYTES, DiskFailed, DiskFull, DiskReadOnly, Journal, disk_error
from zerochat.agent.storage.key_wrapping import (
    BadPassphrase,
    BadSecretFile,
    JournalKey,
    KeyFile,
    KeyringFile,
    OpenToOthers,
    WrappedKeyFile,
    WrongPassphrase,
    check_passphrase,
    exact_bytes,
    passphrase_source,
    read_secret,
    unwrap_key,
    wrap_key,
    write_secret,
)
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.closing import Closing
from zerochat.crypto.encoding import b64url
from zerochat.errors import LocalError
from zerochat.names import checked_name

__all__ = [
    "CREATED",
    "LABEL",
    "RESTORED_AT",
    "SERVER_SECRET",
    "BadPassphrase",
    "BadSecretFile",
    "JournalKey",
    "NoProfile",
    "OpenToOthers",
    "PassphraseNeeded",
    "ProfileExists",
    "ProfileIncomplete",
    "ProfileLock",
    "ProfileOwned",
    "WrongPassphrase",
    "change_key_location",
    "create_profile",
    "key_location",
    "lock_profile",
    "new_profile_folder",
    "passphrase_source",
    "profile_exists",
    "unlock",
]

LABEL, SERVER_SECRET, CREATED = "label", "server_secret", "created"
"""Meta values of a new journal: the display name, the CURVE secret key of the agent's bound sockets (32 bytes), and the
time of creation (UTC ms, decimal)."""
RESTORED_AT = "restored_at"
"""Meta value: when the journal was restored from a backup, UTC ms, decimal. Absent or empty: not restored, or an agent
has started since, and the groups' states record the recovery."""


class NoProfile(LocalError):
    """No profile '{profile}'. Create it with `zerochat --profile {profile} init --name NAME`, or restore a backup with
    `zerochat --profile {profile} restore FILE`."""

    exit_code: ClassVar[int] = 6


class ProfileExists(LocalError):
    """The profile {profile} already exists at {path}; it was not changed. Use it, or create one with another name
    (`zerochat --profile OTHER init --name NAME`)."""


class ProfileIncomplete(LocalError):
    """The profile {profile} is incomplete: {path} is missing. Restore it from a backup, or create another profile
    (`zerochat --profile OTHER init --name NAME`)."""

    exit_code: ClassVar[int] = 6


class ProfileOwned(LocalError):
    """The profile {profile} is in use by a running agent (process {pid}), to which commands and chats connect
    automatically. To start another agent, stop this one first or choose another profile (`--profile NAME`)."""

    exit_code: ClassVar[int] = 6


class PassphraseNeeded(LocalError):
    """The profile {profile} is locked with a passphrase, which cannot be entered here. Put the passphrase into a file
    that only you can read, and set ZEROCHAT_PASSPHRASE_FILE to its path."""

    exit_code: ClassVar[int] = 6


# --- profiles -------------------------------------------------------------------------------------------------------


def profile_exists(paths: ProfilePaths) -> bool:
    """Whether the profile exists, even incomplete, so that it must not be overwritten."""
    with _faults_of_disk(paths.data):
        return any(map(_is_there, (paths.journal, paths.key_file, paths.wrapped_key_file, paths.keyring_file)))


def create_profile(paths: ProfilePaths, label: str, passphrase: bytes | None, *, keyring: bool = False) -> None:
    """Create a profile with the display name `label`.

    Its key is wrapped with the passphrase; without one it is stored in the system's keyring (`keyring`) or a key file.
    Raises NoKeyring, BadName, BadPassphrase, ProfileExists, DiskReadOnly, DiskFull or DiskFailed; then no profile
    exists.
    """
    label = checked_name(label, "name")
    if passphrase is not None:
        check_passphrase(passphrase)
    key = os.urandom(KEY_BYTES)
    with new_profile_folder(paths) as folder:
        meta = {
            LABEL: label.encode(),
            SERVER_SECRET: os.urandom(32),
            CREATED: b"%d" % (time.time_ns() // 1_000_000),
        }
        Journal.create(folder / paths.journal.name, key, meta).close()
        if passphrase is not None:
            write_secret(folder / paths.wrapped_key_file.name, wrap_key(key, passphrase))
        elif keyring:
            write_secret(folder / paths.keyring_file.name, _in_keyring(paths, key))
        else:
            write_secret(folder / paths.key_file.name, KeyFile(b64url(key)))


@contextmanager
def new_profile_folder(paths: ProfilePaths) -> Iterator[Path]:
    """A temporary folder for a new profile. It becomes the profile when the context ends, and is deleted when it
    raises. Raises ProfileExists, DiskReadOnly, DiskFull or DiskFailed."""
    import shutil  # not needed to start an agent
    import tempfile

    if profile_exists(paths):
        raise ProfileExists(profile=paths.profile, path=paths.data)
    parent = paths.data.parent
    with _faults_of_disk(paths.data):
        _make_private(parent)
        folder = Path(tempfile.mkdtemp(prefix=f".{paths.profile}.", dir=parent))
        try:
            yield folder
            sync_folder(folder)
            _settle(folder, paths)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        sync_folder(parent)


def _settle(folder: Path, paths: ProfilePaths) -> None:
    """Rename the finished folder to its path, replacing an empty folder only."""
    try:
        folder.rename(paths.data)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise ProfileExists(profile=paths.profile, path=paths.data) from error
        raise


def _make_private(folder: Path) -> None:
    """Create a folder and its missing parents with mode 0700 (required by the XDG specification), and sync their
    entries: otherwise a power cut could lose them with their content."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)
        with suppress(PermissionError):  # a folder may be writable and not listable
            sync_folder(each.parent)


def key_location(paths: ProfilePaths) -> Literal["key", "keyring", "passphrase"]:
    """Where the journal's key is: in a key file, in the system's keyring, or wrapped with a passphrase.

    Raises NoProfile or ProfileIncomplete.
    """
    if not profile_exists(paths):
        raise NoProfile(profile=paths.profile)
    if not _is_there(paths.journal):
        raise ProfileIncomplete(profile=paths.profile, path=paths.journal)
    if _is_there(paths.key_file):
        return "key"
    if _is_there(paths.keyring_file):
        return "keyring"
    if not _is_there(paths.wrapped_key_file):
        raise ProfileIncomplete(profile=paths.profile, path=paths.key_file)
    return "passphrase"


def unlock(paths: ProfilePaths, passphrase: Callable[[], bytes] | None) -> JournalKey:
    """The key of the profile's journal.

    `passphrase` is called only if the profile has one. Raises NoProfile, ProfileIncomplete, OpenToOthers,
    BadSecretFile, NoKeyring, PassphraseNeeded, BadPassphrase or WrongPassphrase.
    """
    match key_location(paths):
        case "key":
            file = read_secret(paths.key_file, KeyFile)
            return JournalKey(exact_bytes(file.key, KEY_BYTES, paths.key_file))
        case "keyring":
            account = read_secret(paths.keyring_file, KeyringFile).account
            return JournalKey(exact_bytes(os_keyring.fetch(account), KEY_BYTES, paths.keyring_file))
        case "passphrase":
            wrapped = read_secret(paths.wrapped_key_file, WrappedKeyFile)
            if passphrase is None:
                raise PassphraseNeeded(profile=paths.profile)
            return unwrap_key(wrapped, passphrase(), paths.wrapped_key_file, paths.profile)


def change_key_location(
    paths: ProfilePaths, key: JournalKey, passphrase: bytes | None, *, keyring: bool = False
) -> None:
    """Move the key of an existing profile: wrap it with this passphrase; without one, store it in the system's keyring
    or a key file.

    The new location is on disk before the old one is deleted, so the profile opens at every moment. The key itself does
    not change: copies of an old key file, or of an old wrapped key with its passphrase, still open the journal and its
    copies. Raises NoKeyring, BadPassphrase, DiskReadOnly, DiskFull or DiskFailed; then nothing has changed.
    """
    content: KeyFile | WrappedKeyFile | KeyringFile
    with _faults_of_disk(paths.data):
        was = read_secret(paths.keyring_file, KeyringFile).account if _is_there(paths.keyring_file) else None
        if passphrase is not None:
            check_passphrase(passphrase)
            path, content = paths.wrapped_key_file, wrap_key(key, passphrase)
        elif keyring:
            path, content = paths.keyring_file, _in_keyring(paths, key)
        else:
            path, content = paths.key_file, KeyFile(b64url(key))
        fresh = path.with_name(path.name + ".new")
        try:
            fresh.unlink(missing_ok=True)
            write_secret(fresh, content)
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(paths.data)
        for other in {paths.key_file, paths.keyring_file, paths.wrapped_key_file} - {path}:
            other.unlink(missing_ok=True)
        sync_folder(paths.data)
    if was is not None:
        with suppress(os_keyring.NoKeyring):
            os_keyring.delete(was)


def _in_keyring(paths: ProfilePaths, key: bytes) -> KeyringFile:
    account = f"{paths.profile} {b64url(os.urandom(9))}"
    os_keyring.store(account, b64url(key))
    return KeyringFile(account)


# --- ownership ------------------------------------------------------------------------------------------------------


class ProfileLock(Closing):
    """The lock of the process that owns the profile. The kernel releases it when the process ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def close(self) -> None:
        """Release it. The file stays: deleting it could remove the next owner's lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def lock_profile(paths: ProfilePaths) -> ProfileLock:
    """Own an existing profile. Raises ProfileOwned, NoProfile, DiskReadOnly, DiskFull or DiskFailed."""
    if not profile_exists(paths):
        raise NoProfile(profile=paths.profile)
    with _faults_of_disk(paths.lock):
        descriptor = os.open(paths.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip()
                raise ProfileOwned(profile=paths.profile, pid=pid if pid.isdecimal() else "unknown") from None
            with suppress(OSError):  # on a full disk the lock holds, only without the owner's process id
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except BaseException:
            os.close(descriptor)
            raise
    return ProfileLock(descriptor)


def _is_there(path: Path) -> bool:
    """Whether the path exists, even as a dangling link."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def _faults_of_disk(path: Path) -> Iterator[None]:
    """Maps OSError to our errors, with the profile's path."""
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise DiskReadOnly(path=path, why=(error.strerror or str(error)).lower()) from error
    except OSError as error:
        raise disk_error(error, path) from error
    except (DiskFull, DiskFailed, DiskReadOnly) as error:
        raise type(error)(**{**error.fields, "path": path}) from error
