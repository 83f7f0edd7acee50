"""Backups: one file with all that a profile is, made while its agent runs, and made into a profile again.

A backup is a tar file that only its user can read. It holds, in this order, `backup.json` (whose it is and when it was
made), the key of the journal, and the journal itself, encrypted as ever. The key is `vault`, sealed under a passphrase,
or `key`, in the open: then the backup opens by itself, like the profile that it was made of.

What comes back is a state of the past: since then the members have heard events that the restored profile knows nothing
of, some of them its own. A journal that was restored says so (`RESTORED_AT`), because an agent that went on from there
at once would give numbers of its own chain away twice, and look to everybody like one that lies.
"""

import io
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, ClassVar, Final, Literal

import msgspec
from msgspec import Struct

from zerochat.agent.storage.database import KEY_BYTES, fault_of_disk, sync_folder
from zerochat.agent.storage.journal import Journal, JournalDamaged, NewerJournal, NotAJournal, OlderJournal, WrongKey
from zerochat.agent.storage.key_wrapping import (
    SECRET_FILE_BYTES_MAX,
    BadSecretFile,
    JournalKey,
    KeyFile,
    Vault,
    exact_bytes,
    open_sealed,
    read_secret,
    seal,
    write_secret,
)
from zerochat.agent.storage.paths import Places
from zerochat.agent.storage.profiles import RESTORED_AT, PassphraseNeeded, building
from zerochat.crypto.encoding import Count, b64url
from zerochat.errors import LocalError
from zerochat.group.state import Agent

MANIFEST, COPY = "backup.json", "backup.db"
VERSION: Final = 1


class BadBackup(LocalError):
    """{path} cannot be restored: {why}. Nothing has been made of it."""

    exit_code: ClassVar[int] = 7


class BackupThere(LocalError):
    """There is something at {path} already, and it is kept as it is. Choose another name for the backup."""

    exit_code: ClassVar[int] = 2


class NotForMediators(LocalError):
    """The profile {profile} is a mediator's. What it keeps is on its way to others and changes all the time: to move
    it, stop it and copy its folder {path}."""


class Manifest(msgspec.Struct, frozen=True, tag_field="zerochat", tag="backup"):
    """What anybody who has the file can read."""

    profile: str
    made: Count
    """UTC milliseconds."""
    version: Count = VERSION


class Restored(Struct, frozen=True):
    """What a profile was restored from."""

    profile: str
    """As it was called where the backup was made."""
    made: int
    """UTC milliseconds."""
    lock: Literal["key", "passphrase"]
    groups: tuple[str, ...]
    """The names of the groups that it is in."""
    alone: tuple[str, ...]
    """Those among them in which it is alone, as far as it knows."""


# --- making one -----------------------------------------------------------------------------------------------------


def copy_beside(journal: Journal) -> Path:
    """A copy of an open journal, in the folder of its profile: only there is it certain to be nobody else's business.
    Whoever asked for it takes it away; what a backup that was cut off has left is replaced."""
    target = journal.path.with_name(COPY)
    try:
        target.unlink(missing_ok=True)
    except OSError as error:
        raise fault_of_disk(error, target) from error
    journal.copy(target)
    return target


def write_backup(places: Places, target: Path, copy: Path, key: JournalKey | None, passphrase: bytes | None) -> None:
    """Make a backup of a copy of the profile's journal, which is gone afterwards, come what may.

    `key`: None for a profile with a passphrase whose backup shall open with the same one. Otherwise the key goes in
    under `passphrase`, or in the open where that is None. Raises BackupThere, DiskFull, DiskFailed or ReadOnly, and
    then there is no backup.
    """
    try:
        with copy.open("rb") as journal:
            copy.unlink()
            if key is None:
                name, secret = places.vault.name, msgspec.json.encode(read_secret(places.vault, Vault))
            elif passphrase is not None:
                name, secret = places.vault.name, msgspec.json.encode(seal(key, passphrase))
            else:
                name, secret = places.key_file.name, msgspec.json.encode(KeyFile(b64url(key)))
            manifest = msgspec.json.encode(Manifest(places.profile, time.time_ns() // 1_000_000))
            with _fresh(target) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                _add(tar, MANIFEST, io.BytesIO(manifest), len(manifest))
                _add(tar, name, io.BytesIO(secret), len(secret))
                _add(tar, places.journal.name, journal, os.fstat(journal.fileno()).st_size)
    except OSError as error:
        raise fault_of_disk(error, target) from error
    finally:
        copy.unlink(missing_ok=True)


@contextmanager
def _fresh(path: Path) -> Iterator[IO[bytes]]:
    """A new file that only its user can read; on disk when the context ends, and gone when anything raises in it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise BackupThere(path=path) from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = size, 0o600, int(time.time())
    tar.addfile(entry, content)


# --- and back -------------------------------------------------------------------------------------------------------


def restore(places: Places, source: Path, passphrase: Callable[[], bytes] | None) -> Restored:
    """Make a profile of a backup; never in the place of another.

    `passphrase` is asked only when the backup has one. The journal is checked to its last page, brought along when it
    is of an older version, and marked as restored. Raises ProfileExists, BadBackup, PassphraseNeeded, BadPassphrase,
    WrongPassphrase, ReadOnly, DiskFull or DiskFailed, and then there is no profile.
    """
    with building(places) as folder, _open(source) as tar:
        try:
            manifest = _manifest(tar, source)
            lock = _take_secret(tar, source, places, folder)
            key = _key_in(folder, source, places, lock, passphrase)
            _take(tar, source, places.journal.name, folder / places.journal.name)
            if tar.next() is not None:
                raise BadBackup(path=source, why="there is more in it than zerochat writes there")
            _check_end(tar)
        except (tarfile.TarError, EOFError) as error:
            raise BadBackup(path=source, why="it is cut off or damaged") from error
        state = _check_and_mark(folder / places.journal.name, key, source)
        active = [group for group in state.groups.values() if group.state == "active"]
        alone = tuple(group.name for group in active if not group.others)
        return Restored(manifest.profile, manifest.made, lock, tuple(group.name for group in active), alone)


def _open(source: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(source, "r:")
    except OSError as error:
        raise BadBackup(path=source, why=(error.strerror or str(error)).lower()) from error
    except (tarfile.TarError, EOFError) as error:
        raise BadBackup(path=source, why="it is no backup of zerochat's") from error


def _next(tar: tarfile.TarFile, source: Path, *names: str) -> tarfile.TarInfo:
    """The next file in it, which must have one of these names. Where it says that it belongs is of no interest."""
    entry = tar.next()
    plain = (tarfile.REGTYPE, tarfile.AREGTYPE)  # no links, and nothing with holes in it
    if entry is None or entry.name not in names or entry.type not in plain:
        raise BadBackup(path=source, why=f"where {' or '.join(names)} should be, there is something else")
    return entry


def _small(tar: tarfile.TarFile, source: Path, entry: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(entry)
    if file is None or entry.size > SECRET_FILE_BYTES_MAX:
        raise BadBackup(path=source, why=f"{entry.name} is too large")
    content = file.read(SECRET_FILE_BYTES_MAX)
    if len(content) != entry.size:
        raise tarfile.ReadError
    return content


def _manifest(tar: tarfile.TarFile, source: Path) -> Manifest:
    content = _small(tar, source, _next(tar, source, MANIFEST))
    try:
        manifest = msgspec.json.decode(content, type=Manifest)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadBackup(path=source, why="it is no backup of zerochat's") from error
    if manifest.version > VERSION:
        raise BadBackup(path=source, why=f"a newer zerochat wrote it (version {manifest.version})")
    return manifest


def _take_secret(tar: tarfile.TarFile, source: Path, places: Places, folder: Path) -> Literal["key", "passphrase"]:
    entry = _next(tar, source, places.key_file.name, places.vault.name)
    sealed = entry.name == places.vault.name
    content = _small(tar, source, entry)
    try:
        secret = msgspec.json.decode(content, type=Vault if sealed else KeyFile)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadBackup(path=source, why=f"{entry.name} is not what zerochat writes there") from error
    write_secret(folder / entry.name, secret)
    return "passphrase" if sealed else "key"


def _key_in(
    folder: Path, source: Path, places: Places, lock: str, passphrase: Callable[[], bytes] | None
) -> JournalKey:
    try:
        if lock == "key":
            path = folder / places.key_file.name
            return JournalKey(exact_bytes(read_secret(path, KeyFile).key, KEY_BYTES, path))
        if passphrase is None:
            raise PassphraseNeeded(profile=places.profile)
        path = folder / places.vault.name
        return open_sealed(read_secret(path, Vault), passphrase(), path, places.profile)
    except BadSecretFile as error:
        raise BadBackup(path=source, why=f"its key cannot be used ({error.fields['why']})") from error


def _take(tar: tarfile.TarFile, source: Path, name: str, target: Path) -> None:
    file = tar.extractfile(_next(tar, source, name))
    assert file is not None, "it is a plain file"
    with _fresh(target) as out:
        shutil.copyfileobj(file, out, 1 << 20)


def _check_end(tar: tarfile.TarFile) -> None:
    """What comes after the journal carries nothing, but a file that lacks some of it was not copied whole. Raises
    ReadError."""
    last, file = tar.getmembers()[-1], tar.fileobj
    assert file is not None, "it is open"
    end = last.offset_data + -(-last.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    size = -(-(end + 2 * tarfile.BLOCKSIZE) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE
    file.seek(last.offset_data + last.size)
    if file.read(size + 1) != bytes(size - last.offset_data - last.size):
        raise tarfile.ReadError("an end that is not as it was written")


def _check_and_mark(path: Path, key: JournalKey, source: Path) -> Agent:
    """The state that is in it."""
    try:
        with Journal.open(path, key) as journal:
            journal.check()
            state = journal.load(Agent) or Agent("")
            journal.meta_set(RESTORED_AT, b"%d" % (time.time_ns() // 1_000_000))
            journal.forget_older()
            return state
    except (WrongKey, NotAJournal) as error:
        raise BadBackup(path=source, why="the journal in it does not open with its key") from error
    except JournalDamaged as error:
        raise BadBackup(path=source, why=f"the journal in it is damaged ({error.fields['why']})") from error
    except (NewerJournal, OlderJournal) as error:
        whose = "a newer" if isinstance(error, NewerJournal) else "too old a"
        raise BadBackup(path=source, why=f"{whose} zerochat wrote its journal") from error
