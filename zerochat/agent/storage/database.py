"""Encrypted SQLite database file: durable settings, page authentication, and error mapping.

A write-ahead log with `synchronous=FULL` loses no acknowledged commit in a simulated power cut; with NORMAL, the usual
advice, a third of the simulations lost one. SQLite before 3.51.3 can corrupt a write-ahead log with several
connections; the exclusive lock allows only one (and needs no shared-memory file). Memory mapping is useless with
encrypted pages. The cipher is ChaCha20-Poly1305 per page under a raw 32-byte key, so any changed byte is detected.
"""

import errno
import os
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final

import apsw
from msgspec import Struct

from zerochat.errors import LocalError, Retry

KEY_BYTES: Final = 32
SQLITE_VERSION_MIN: Final = 3_051_003
BUSY_MS: Final = 1_000
"""How long to wait for a lock held by another program, such as a backup tool."""
WAL_PAGES: Final = 4_000
"""Pages of 4 kB in the write-ahead log before a checkpoint. Event ids are random, so fewer checkpoints write each index
page less often: this halves the time of storing a long history."""
COPY_PAGES: Final = 256
"""Pages of one slice of a copy: one megabyte."""
NEVER_WRITTEN: Final = 1 << 30
"""File offset of the lock-byte page, which SQLite never writes."""
WAL_BYTES_KEPT: Final = 16 << 20
"""A larger write-ahead log is truncated at the next checkpoint."""


class FileFormat(Struct, frozen=True):
    """The identity of a database file."""

    mark: int
    """The program that the file belongs to (`application_id`)."""
    version: int
    """The schema version (`user_version`). A file of another version is refused and not changed."""


class DiskFull(LocalError):
    """The disk is full: no space left at {path}. Nothing that was confirmed is lost, but nothing new is stored until
    you free some space; zerochat then continues by itself."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 30


class DiskReadOnly(LocalError):
    """Cannot write {path}: {why}. Make it writable for this user, or choose another folder with ZEROCHAT_HOME."""

    exit_code: ClassVar[int] = 6


class DiskFailed(LocalError):
    """Disk error at {path}: {why}; nothing that was confirmed is lost unless the disk is damaged. Check the disk, and
    start zerochat again."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 30


class WrongKey(LocalError):
    """The key of this profile does not open the journal {path}. If you copied the two, copy both again from the same
    backup; otherwise the beginning of the file is damaged."""

    exit_code: ClassVar[int] = 6


class NotAJournal(LocalError):
    """{path} is not a zerochat journal and was not changed: {why}. Restore the journal from a backup, or choose another
    profile with `--profile`."""

    exit_code: ClassVar[int] = 6


class UnsupportedJournal(LocalError):
    """The journal {path} has format {found}, and this version of zerochat reads only format {known}; the file was not
    changed. Use the version that wrote it, or choose another profile with `--profile`."""

    exit_code: ClassVar[int] = 6


class JournalInUse(LocalError):
    """Another program has the journal {path} open. Close that program, and try again."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class JournalDamaged(LocalError):
    """The journal {path} is damaged: {why}. Keep a copy of the file, and restore the last good backup; the other
    members still have the messages that are missing there."""

    exit_code: ClassVar[int] = 7


class CipherMissing(LocalError):
    """This installation cannot encrypt its journal; nothing was written: {why}. Reinstall zerochat with the package
    apsw-sqlite3mc, and uninstall the package apsw."""

    exit_code: ClassVar[int] = 6


# --- opening ---------------------------------------------------------------------------------------------------------


def create_database(
    path: Path, key: bytes, *, vfs: str | None = None, busy_ms: int = BUSY_MS, wal: bool = True
) -> apsw.Connection:
    """A new file without tables, encrypted with `key` (32 bytes). The caller creates the tables and sets the mark and
    the version in one transaction. Raises NotAJournal when the path exists, or any error of `sqlite_errors`; then there
    is no new file.

    `wal`: with a write-ahead log; a copy that is written once needs none.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise NotAJournal(path=path, why="the path exists already") from None
    except OSError as error:
        raise disk_error(error, path) from error
    try:
        return _connect(path, key, None, vfs, busy_ms, "WAL" if wal else "OFF")
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def open_database(
    path: Path, key: bytes, format_: FileFormat, *, vfs: str | None = None, busy_ms: int = BUSY_MS
) -> apsw.Connection:
    """An existing file. A file that does not open is not changed.

    `vfs`: a simulated file system, for power-cut tests. Raises WrongKey, NotAJournal, UnsupportedJournal, JournalInUse,
    DiskReadOnly, or any error of `sqlite_errors`.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        raise NotAJournal(path=path, why="the file does not exist") from None
    except OSError as error:
        raise disk_error(error, path) from error
    if not stat.S_ISREG(mode):
        raise NotAJournal(path=path, why="it is not a regular file")
    return _connect(path, key, format_, vfs, busy_ms)


def _connect(
    path: Path, key: bytes, expected: FileFormat | None, vfs: str | None, busy_ms: int, mode: str = "WAL"
) -> apsw.Connection:
    assert len(key) == KEY_BYTES
    if apsw.SQLITE_VERSION_NUMBER < SQLITE_VERSION_MIN:
        raise CipherMissing(path=path, why=f"its SQLite is {apsw.sqlite_lib_version()}, which is too old")
    # The file itself must not be a symbolic link; its folders may be, as home folders and /tmp often are.
    resolved = path.parent.resolve() / path.name
    with sqlite_errors(path):
        db = apsw.Connection(str(resolved), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs)
    try:
        with sqlite_errors(path, db):
            _prepare(db, path, key, busy_ms)
            if expected is not None:
                _check(db, path, expected)
            elif mode == "WAL":  # a copy gets it from its source
                db.pragma("auto_vacuum", 2)  # incremental: pages of erased content are given back in slices
            if db.pragma("journal_mode", mode) != mode.lower():
                raise DiskFailed(path=path, why="this file system does not support a write-ahead log")
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: apsw.Connection, path: Path, key: bytes, busy_ms: int) -> None:
    """Set the key and the connection options, without changing the file."""
    if db.readonly("main"):
        raise DiskReadOnly(path=path, why="the file is read-only")
    if not _unlock(db, key):
        raise CipherMissing(path=path, why="its SQLite has no cipher")
    db.set_busy_timeout(busy_ms)
    for name, value in (
        ("locking_mode", "EXCLUSIVE"),
        ("trusted_schema", 0),
        ("cell_size_check", 1),
        ("mmap_size", 0),
        ("temp_store", "MEMORY"),
        ("secure_delete", 1),
        ("synchronous", "FULL"),
        ("fullfsync", 1),  # on macOS, where fsync alone does not reach the disk
        ("checkpoint_fullfsync", 1),
        ("journal_size_limit", WAL_BYTES_KEPT),
        ("wal_autocheckpoint", WAL_PAGES),
    ):
        db.pragma(name, value)
    db.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # reads the first page, which detects a wrong key


def _unlock(db: apsw.Connection, key: bytes) -> bool:
    """Set the key; False: this SQLite has no cipher."""
    if db.pragma("cipher", "chacha20") != "chacha20":
        return False
    db.pragma("key", "raw:" + key.hex())
    return True


def _check(db: apsw.Connection, path: Path, expected: FileFormat) -> None:
    """Raise NotAJournal or UnsupportedJournal unless the file has the expected mark and version."""
    mark, version = db.pragma("application_id"), db.pragma("user_version")
    if mark != expected.mark:
        raise NotAJournal(path=path, why="it belongs to another program, or was not completed")
    if version != expected.version:
        raise UnsupportedJournal(path=path, found=version, known=expected.version)


def check_pages(db: apsw.Connection, path: Path) -> None:
    """Read every page of the file. Raises JournalDamaged."""
    if db.pragma("integrity_check", 1) != "ok":
        raise JournalDamaged(path=path, why="its pages are inconsistent")


def verify_pages(db: apsw.Connection, path: Path, key: bytes, first: int, count: int) -> int:
    """Verify so many pages on disk, bypassing the page cache; the number of pages read. Raises JournalDamaged,
    JournalInUse, or any error of writing."""
    size: int = db.pragma("page_size")
    try:
        count_on_disk = path.stat().st_size // size
    except OSError as error:  # moved away, perhaps; SQLite still has it open
        raise disk_error(error, path) from error
    pages = range(first, min(first + count, count_on_disk))
    for page in pages:
        # After a power cut during a write, the write-ahead log still has the page, and a checkpoint rewrites it.
        if page * size != NEVER_WRITTEN and not _is_sound(db, key, page, size):
            logged, written = db.wal_checkpoint()
            if written < logged:
                raise JournalInUse(path=path)
            if not _is_sound(db, key, page, size):
                raise JournalDamaged(path=path, why="a page fails authentication")
    return len(pages)


def _is_sound(db: apsw.Connection, key: bytes, page: int, size: int) -> bool:
    try:
        db.read("main", 0, page * size, size)
    except apsw.Error:
        _unlock(db, key)  # otherwise the cipher fails for every later read
        return False
    return True


# --- copies ---------------------------------------------------------------------------------------------------------


def copy_database(
    db: apsw.Connection, path: Path, key: bytes, target: Path, *, vfs: str | None = None
) -> Generator[tuple[int, int], None, None]:
    """Copy the open database `path` into a new file with the same key, and sync it to disk: a slice at each step, and
    yields how many of its pages have been copied. In between the connection may be used: the copy is that of the end.

    Raises NotAJournal when `target` exists, or any error of `sqlite_errors`. An incomplete copy is removed, also where
    the generator is closed.
    """
    copy = create_database(target, key, vfs=vfs, wal=False)
    try:
        descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
        try:
            with sqlite_errors(target, copy), copy.backup("main", db, "main") as backup:
                while not backup.done:
                    backup.step(COPY_PAGES)
                    os.fsync(descriptor)  # else the last step would wait for all of the file
                    yield backup.page_count - backup.remaining, backup.page_count
        except JournalDamaged as error:  # the new file cannot be damaged, so it is a page of the source
            raise JournalDamaged(path=path, why=error.fields["why"]) from error
        finally:
            os.close(descriptor)
        with sqlite_errors(target, copy):
            copy.close()
        sync_folder(target.parent)
    except BaseException as error:
        copy.close(force=True)
        target.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise disk_error(error, target) from error
        raise


def sync_folder(folder: Path) -> None:
    """Sync a folder's entries to disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class sqlite_errors:
    """Maps SQLite's errors to DiskFull, DiskReadOnly, DiskFailed, WrongKey, NotAJournal, JournalDamaged or
    JournalInUse. `on_damage` receives each JournalDamaged."""

    __slots__ = ("_db", "_on_damage", "_path")

    def __init__(
        self,
        path: Path,
        db: apsw.Connection | None = None,
        on_damage: Callable[[JournalDamaged], None] | None = None,
    ) -> None:
        self._path, self._db, self._on_damage = path, db, on_damage

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            return
        ours = _error_of(error, self._path, self._db)
        damage = ours or error
        if self._on_damage is not None and isinstance(damage, JournalDamaged):
            self._on_damage(damage)
        if ours is not None:
            raise ours from error


def _error_of(error: BaseException, path: Path, db: apsw.Connection | None) -> LocalError | None:
    """Our error for one of SQLite's; None: it is none of these."""
    match error:
        case apsw.FullError():
            return DiskFull(path=path)
        case apsw.ReadOnlyError():
            return DiskReadOnly(path=path, why="the file is read-only")
        case apsw.NotADBError():
            return _unreadable_error(path)
        case apsw.CorruptError():
            return JournalDamaged(path=path, why="a page fails authentication")
        case apsw.BusyError() | apsw.LockedError():
            return JournalInUse(path=path)
        case apsw.IOError() | apsw.CantOpenError():
            # SQLite detects a full disk only from a plain write, and no exceeded quota.
            number = db.system_errno if db is not None else 0
            return disk_error(OSError(number, os.strerror(number) if number else str(error)), path)
    return None


@contextmanager
def transaction(path: Path, db: apsw.Connection) -> Iterator[None]:
    """A transaction: committed to disk when the context ends, rolled back when it raises."""
    with sqlite_errors(path, db):
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # after some errors SQLite has rolled back by itself
                db.execute("ROLLBACK")
            raise


def disk_error(error: OSError, path: Path) -> LocalError:
    """The error for a failed system call at `path`."""
    why = (error.strerror or str(error)).lower()
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(path=path)
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return DiskReadOnly(path=path, why=why)
        case _:
            return DiskFailed(path=path, why=why)


def _unreadable_error(path: Path) -> LocalError:
    """The error for a file whose first page does not decrypt.

    SQLite3 Multiple Ciphers leaves bytes 16 to 23 of an encrypted file readable: the page size, and three constants of
    every SQLite file.
    """
    with path.open("rb") as file:
        head = file.read(24)
    if head.startswith(b"SQLite format 3\0"):
        return NotAJournal(path=path, why="it is an unencrypted database")
    if head[21:24] != b"\x40\x20\x20":
        return NotAJournal(path=path, why="it is not an encrypted database")
    return WrongKey(path=path)
