"""Makes a profile, keeps the key of its journal, and says which process owns it.

The journal's key is 32 random bytes (`seal.py` knows how they lie on disk). A profile without a passphrase has it in a
file that only its user can read: for bots, and for disks that are encrypted anyway; or in the system's keyring. A
profile with one has it in a vault, sealed. A profile appears whole or not at all: it is made in a folder beside its
place, which is then renamed.
"""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Literal, Self

from zerochat.agent.storage import os_keyring
from zerochat.agent.storage.database import sync_folder
from zerochat.agent.storage.journal import KEY_BYTES, DiskFailed, DiskFull, Journal, ReadOnly, fault_of_disk
from zerochat.agent.storage.key_wrapping import (
    BadPassphrase,
    BadSecretFile,
    JournalKey,
    KeyFile,
    OpenToOthers,
    Ring,
    Vault,
    WrongPassphrase,
    check_passphrase,
    exact_bytes,
    open_sealed,
    passphrase_source,
    read_secret,
    seal,
    write_secret,
)
from zerochat.agent.storage.paths import Places
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
    "building",
    "create_profile",
    "how_locked",
    "lock_profile",
    "passphrase_source",
    "profile_exists",
    "rewrap",
    "unlock",
]

LABEL, SERVER_SECRET, CREATED = "label", "server_secret", "created"
"""What a new journal's meta holds: the name that others see, the CURVE secret key of the agent's bound sockets (32
bytes), and when it was made (UTC milliseconds, in decimal)."""
RESTORED_AT = "restored_at"
"""In a journal's meta: when it was restored from a backup, UTC milliseconds in decimal; absent or empty: never, or an
agent has started with it since, and each group's own state says that it must not go on yet."""


class NoProfile(LocalError):
    """There is no profile {profile} yet. `zerochat --profile {profile} init --name NAME` makes it, or `zerochat
    --profile {profile} restore FILE` from a backup."""

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


class PassphraseNeeded(LocalError):
    """The profile {profile} is locked with a passphrase, and there is nobody to ask for it. Put the passphrase into a
    file that only you can read, and name that file in ZEROCHAT_PASSPHRASE_FILE."""

    exit_code: ClassVar[int] = 6


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
        check_passphrase(passphrase)
    key = os.urandom(KEY_BYTES)
    with building(places) as folder:
        meta = {
            LABEL: label.encode(),
            SERVER_SECRET: os.urandom(32),
            CREATED: b"%d" % (time.time_ns() // 1_000_000),
        }
        Journal.create(folder / places.journal.name, key, meta).close()
        if passphrase is not None:
            write_secret(folder / places.vault.name, seal(key, passphrase))
        elif keyring:
            write_secret(folder / places.ring.name, _in_keyring(places, key))
        else:
            write_secret(folder / places.key_file.name, KeyFile(b64url(key)))


@contextmanager
def building(places: Places) -> Iterator[Path]:
    """A folder for the things of a profile that does not exist yet. What is in it is the profile when the context ends,
    and gone when anything raises in it. Raises ProfileExists, ReadOnly, DiskFull or DiskFailed."""
    import shutil  # An agent that starts makes no profile.
    import tempfile

    if profile_exists(places):
        raise ProfileExists(profile=places.profile, path=places.data)
    parent = places.data.parent
    with _faults_of_disk(places.data):
        _make_private(parent)
        folder = Path(tempfile.mkdtemp(prefix=f".{places.profile}.", dir=parent))
        try:
            yield folder
            sync_folder(folder)
            _settle(folder, places)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        sync_folder(parent)


def _settle(folder: Path, places: Places) -> None:
    """Put the finished folder in its place. An empty folder there gives way; anything else does not."""
    try:
        folder.rename(places.data)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise ProfileExists(profile=places.profile, path=places.data) from error
        raise


def _make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, closed to others (the XDG specification asks for that). Their
    names are on disk when this returns: without them a power cut would take along all that is in them."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    for each in reversed(missing):
        with suppress(FileExistsError):
            each.mkdir(mode=0o700)
        with suppress(PermissionError):  # one may write in a folder that one may not list
            sync_folder(each.parent)


def how_locked(places: Places) -> Literal["key", "keyring", "passphrase"]:
    """Where the key of the profile's journal is: in a file, in the system's keyring, or sealed under a passphrase.

    Raises NoProfile or ProfileIncomplete.
    """
    if not profile_exists(places):
        raise NoProfile(profile=places.profile)
    if not _is_there(places.journal):
        raise ProfileIncomplete(profile=places.profile, path=places.journal)
    if _is_there(places.key_file):
        return "key"
    if _is_there(places.ring):
        return "keyring"
    if not _is_there(places.vault):
        raise ProfileIncomplete(profile=places.profile, path=places.key_file)
    return "passphrase"


def unlock(places: Places, passphrase: Callable[[], bytes] | None) -> JournalKey:
    """The key of the profile's journal.

    `passphrase` is called only when there is one to ask for. Raises NoProfile, ProfileIncomplete, OpenToOthers,
    BadSecretFile, NoKeyring, PassphraseNeeded, BadPassphrase or WrongPassphrase.
    """
    match how_locked(places):
        case "key":
            file = read_secret(places.key_file, KeyFile)
            return JournalKey(exact_bytes(file.key, KEY_BYTES, places.key_file))
        case "keyring":
            account = read_secret(places.ring, Ring).account
            return JournalKey(exact_bytes(os_keyring.fetch(account), KEY_BYTES, places.ring))
        case "passphrase":
            vault = read_secret(places.vault, Vault)
            if passphrase is None:
                raise PassphraseNeeded(profile=places.profile)
            return open_sealed(vault, passphrase(), places.vault, places.profile)


def rewrap(places: Places, key: JournalKey, passphrase: bytes | None, *, keyring: bool = False) -> None:
    """Keep the key of an existing profile in another way: locked with this passphrase; without one, in the system's
    keyring or in a key file.

    The new way is on disk before the old one goes, so the profile opens at every moment. Key and journal stay what they
    are: an old key file, or an old vault with its old passphrase, goes on to open them and every copy of them. Raises
    NoKeyring, BadPassphrase, ReadOnly, DiskFull or DiskFailed, and then nothing has changed.
    """
    content: KeyFile | Vault | Ring
    with _faults_of_disk(places.data):
        was = read_secret(places.ring, Ring).account if _is_there(places.ring) else None
        if passphrase is not None:
            check_passphrase(passphrase)
            path, content = places.vault, seal(key, passphrase)
        elif keyring:
            path, content = places.ring, _in_keyring(places, key)
        else:
            path, content = places.key_file, KeyFile(b64url(key))
        fresh = path.with_name(path.name + ".new")
        try:
            fresh.unlink(missing_ok=True)
            write_secret(fresh, content)
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_folder(places.data)
        for other in {places.key_file, places.ring, places.vault} - {path}:
            other.unlink(missing_ok=True)
        sync_folder(places.data)
    if was is not None:
        with suppress(os_keyring.NoKeyring):
            os_keyring.forget(was)


def _in_keyring(places: Places, key: bytes) -> Ring:
    account = f"{places.profile} {b64url(os.urandom(9))}"
    os_keyring.keep(account, b64url(key))
    return Ring(account)


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


def _is_there(path: Path) -> bool:
    """Whether there is anything at this path, be it a link to nowhere."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


@contextmanager
def _faults_of_disk(path: Path) -> Iterator[None]:
    """What the system says about files, in our own words and about the place that the person knows."""
    try:
        yield
    except OSError as error:
        raise fault_of_disk(error, path) from error
    except (DiskFull, DiskFailed, ReadOnly) as error:
        raise type(error)(**{**error.fields, "path": path}) from error
