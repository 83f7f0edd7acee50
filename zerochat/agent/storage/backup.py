"""Backups: a tar file of a profile's journal and key, made while the agent runs, and restoring it.

A backup has mode 0600 and contains, in this order, `backup.json` (profile and time), the journal's key, and the
encrypted journal. The key is wrapped with a passphrase or plain; with a plain key the backup opens by itself, like the
profile that it was made of.

A restored profile has an old state: meanwhile the members may have received events that it does not know, even its own.
So the journal is marked as restored (`RESTORED_AT`): an agent that continued at once would reuse positions of its own
chain, which looks like equivocation to all others.
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

from zerochat.agent.storage.database import KEY_BYTES, disk_error, sync_folder
from zerochat.agent.storage.journal import Journal, JournalDamaged, NotAJournal, UnsupportedJournal, WrongKey
from zerochat.agent.storage.key_wrapping import (
    SECRET_FILE_BYTES_MAX,
    BadSecretFile,
    JournalKey,
    KeyFile,
    WrappedKeyFile,
    exact_bytes,
    read_secret,
    unwrap_key,
    wrap_key,
    write_secret,
)
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.storage.profiles import RESTORED_AT, PassphraseNeeded, new_profile_folder
from zerochat.crypto.encoding import Count, b64url
from zerochat.errors import LocalError
from zerochat.group.state import Agent

MANIFEST, COPY = "backup.json", "backup.db"
VERSION: Final = 1


class BadBackup(LocalError):
    """{path} cannot be restored: {why}. No profile was created."""

    exit_code: ClassVar[int] = 7


class BackupThere(LocalError):
    """{path} exists already, and was not overwritten. Choose another name for the backup."""

    exit_code: ClassVar[int] = 2


class NotForMediators(LocalError):
    """The profile {profile} is a mediator, whose messages in transit change all the time. To move it, stop it and copy
    its folder {path}."""


class Manifest(msgspec.Struct, frozen=True, tag_field="zerochat", tag="backup"):
    """The unencrypted description of a backup."""

    profile: str
    made_at: Count
    """UTC milliseconds."""
    version: Count = VERSION


class RestoredProfile(Struct, frozen=True):
    """A restored profile."""

    profile: str
    """The name of the backed-up profile."""
    made_at: int
    """UTC milliseconds."""
    key_location: Literal["key", "passphrase"]
    groups: tuple[str, ...]
    """The names of its groups."""
    groups_without_others: tuple[str, ...]
    """The groups without other members."""


# --- creating -----------------------------------------------------------------------------------------------------


def copy_journal(journal: Journal, on_progress: Callable[[int, int], object] = lambda done, of: None) -> Path:
    """Copy an open journal within the profile's private folder; the path of the copy, which the caller deletes. A copy
    left over from an interrupted backup is replaced. `on_progress`: called with how many pages of how many."""
    target = prepare_copy(journal)
    for done, of in journal.copy_in_slices(target):
        on_progress(done, of)
    return target


def prepare_copy(journal: Journal) -> Path:
    """The path for a copy of an open journal, which an interrupted backup may have left."""
    target = journal.path.with_name(COPY)
    try:
        target.unlink(missing_ok=True)
    except OSError as error:
        raise disk_error(error, target) from error
    return target


def write_backup(
    paths: ProfilePaths, target: Path, copy: Path, key: JournalKey | None, passphrase: bytes | None
) -> None:
    """Write a backup from a copy of the profile's journal, and delete the copy in any case.

    `key`: None uses the profile's wrapped key and passphrase. Otherwise the key is wrapped with `passphrase`, or stored
    plain if that is None. Raises BackupThere, DiskFull, DiskFailed or DiskReadOnly; then there is no backup.
    """
    try:
        with copy.open("rb") as journal:
            copy.unlink()  # at once: another backup may make its own copy under this name
            if key is None:
                name, secret = (
                    paths.wrapped_key_file.name,
                    msgspec.json.encode(read_secret(paths.wrapped_key_file, WrappedKeyFile)),
                )
            elif passphrase is not None:
                name, secret = paths.wrapped_key_file.name, msgspec.json.encode(wrap_key(key, passphrase))
            else:
                name, secret = paths.key_file.name, msgspec.json.encode(KeyFile(b64url(key)))
            manifest = msgspec.json.encode(Manifest(paths.profile, time.time_ns() // 1_000_000))
            with _fresh(target) as file, tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
                _add(tar, MANIFEST, io.BytesIO(manifest), len(manifest))
                _add(tar, name, io.BytesIO(secret), len(secret))
                _add(tar, paths.journal.name, journal, os.fstat(journal.fileno()).st_size)
    except OSError as error:
        raise disk_error(error, target) from error


@contextmanager
def _fresh(path: Path) -> Iterator[IO[bytes]]:
    """A new file with mode 0600; synced when the context ends, deleted when it raises."""
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


# --- restoring ------------------------------------------------------------------------------------------------------


def restore(paths: ProfilePaths, source: Path, passphrase: Callable[[], bytes] | None) -> RestoredProfile:
    """Create a profile from a backup; an existing profile is never replaced.

    `passphrase` is called only if the backup has one. Every page of the journal is verified, and it is marked as
    restored. Raises ProfileExists, BadBackup, PassphraseNeeded, BadPassphrase, WrongPassphrase, DiskReadOnly, DiskFull
    or DiskFailed; then no profile exists.
    """
    with new_profile_folder(paths) as folder, _open(source) as tar:
        try:
            manifest = _manifest(tar, source)
            lock = _take_secret(tar, source, paths, folder)
            key = _key_in(folder, source, paths, lock, passphrase)
            _take(tar, source, paths.journal.name, folder / paths.journal.name)
            if tar.next() is not None:
                raise BadBackup(path=source, why="it contains additional files")
            _check_end(tar)
        except (tarfile.TarError, EOFError) as error:
            raise BadBackup(path=source, why="it is truncated or damaged") from error
        state = _check_and_mark(folder / paths.journal.name, key, source)
        active = [group for group in state.groups.values() if group.state == "active"]
        alone = tuple(group.name for group in active if not group.others)
        return RestoredProfile(manifest.profile, manifest.made_at, lock, tuple(group.name for group in active), alone)


def _open(source: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(source, "r:")
    except OSError as error:
        raise BadBackup(path=source, why=(error.strerror or str(error)).lower()) from error
    except (tarfile.TarError, EOFError) as error:
        raise BadBackup(path=source, why="it is not a zerochat backup") from error


def _next(tar: tarfile.TarFile, source: Path, *names: str) -> tarfile.TarInfo:
    """The next entry, which must be a regular file with one of these names."""
    entry = tar.next()
    plain = (tarfile.REGTYPE, tarfile.AREGTYPE)  # no links and no sparse files
    if entry is None or entry.name not in names or entry.type not in plain:
        raise BadBackup(path=source, why=f"it does not contain {' or '.join(names)} at the expected place")
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
        raise BadBackup(path=source, why="it is not a zerochat backup") from error
    if manifest.version > VERSION:
        raise BadBackup(path=source, why=f"a newer version of zerochat wrote it (format {manifest.version})")
    return manifest


def _take_secret(tar: tarfile.TarFile, source: Path, paths: ProfilePaths, folder: Path) -> Literal["key", "passphrase"]:
    entry = _next(tar, source, paths.key_file.name, paths.wrapped_key_file.name)
    sealed = entry.name == paths.wrapped_key_file.name
    content = _small(tar, source, entry)
    try:
        secret = msgspec.json.decode(content, type=WrappedKeyFile if sealed else KeyFile)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise BadBackup(path=source, why=f"{entry.name} is invalid") from error
    write_secret(folder / entry.name, secret)
    return "passphrase" if sealed else "key"


def _key_in(
    folder: Path, source: Path, paths: ProfilePaths, lock: str, passphrase: Callable[[], bytes] | None
) -> JournalKey:
    try:
        if lock == "key":
            path = folder / paths.key_file.name
            return JournalKey(exact_bytes(read_secret(path, KeyFile).key, KEY_BYTES, path))
        if passphrase is None:
            raise PassphraseNeeded(profile=paths.profile)
        path = folder / paths.wrapped_key_file.name
        return unwrap_key(read_secret(path, WrappedKeyFile), passphrase(), path, paths.profile)
    except BadSecretFile as error:
        raise BadBackup(path=source, why=f"its key cannot be used ({error.fields['why']})") from error


def _take(tar: tarfile.TarFile, source: Path, name: str, target: Path) -> None:
    file = tar.extractfile(_next(tar, source, name))
    assert file is not None, "a regular file"
    with _fresh(target) as out:
        shutil.copyfileobj(file, out, 1 << 20)


def _check_end(tar: tarfile.TarFile) -> None:
    """Check the padding after the journal, whose absence shows an incomplete copy. Raises ReadError."""
    last, file = tar.getmembers()[-1], tar.fileobj
    assert file is not None, "still open"
    end = last.offset_data + -(-last.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
    size = -(-(end + 2 * tarfile.BLOCKSIZE) // tarfile.RECORDSIZE) * tarfile.RECORDSIZE
    file.seek(last.offset_data + last.size)
    if file.read(size + 1) != bytes(size - last.offset_data - last.size):
        raise tarfile.ReadError("an invalid end of archive")


def _check_and_mark(path: Path, key: JournalKey, source: Path) -> Agent:
    """Verify the journal, and mark it as restored; its state."""
    try:
        with Journal.open(path, key) as journal:
            journal.check()
            state = journal.load(Agent) or Agent("")
            journal.meta_set(RESTORED_AT, b"%d" % (time.time_ns() // 1_000_000))
            return state
    except (WrongKey, NotAJournal) as error:
        raise BadBackup(path=source, why="its key does not open its journal") from error
    except JournalDamaged as error:
        raise BadBackup(path=source, why=f"its journal is damaged ({error.fields['why']})") from error
    except UnsupportedJournal as error:
        raise BadBackup(path=source, why="another version of zerochat wrote its journal") from error
