"""An encrypted SQLite file that survives a power cut: how it is opened, and what its failures are called.

Why each setting is what it is: a write-ahead log with `synchronous=FULL` loses nothing acknowledged in a simulated
power cut, and with NORMAL, the usual advice, it loses a third; SQLite from 3.51.3 on is free of the corruption that
several connections could cause in a write-ahead log, and there is only one connection anyway, which the exclusive
lock makes sure of (so there is no shared-memory file either); memory-mapped pages are of no use when each is
encrypted. The cipher is ChaCha20-Poly1305 by page under a raw 32-byte key, so whoever changes a byte is found out.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar, Final

import apsw
from msgspec import Struct, field

from zerochat.errors import LocalError, Retry

KEY_BYTES: Final = 32
SQLITE_VERSION_MIN: Final = 3_051_003
BUSY_MS: Final = 1_000
"""Another program that only looks at the file for a moment, such as a backup, is waited for."""
WAL_PAGES: Final = 4_000
"""Of 4 kB each, and a checkpoint follows: ids fall anywhere in their index, so four times as many in one checkpoint
write each page of it so much more rarely: half the time of putting a long history on disk."""
NEVER_WRITTEN: Final = 1 << 30
"""Where SQLite leaves out a page, because its locks lie there."""
WAL_BYTES_KEPT: Final = 16 << 20
"""A write-ahead log that has grown beyond this is cut again at the next checkpoint."""


class Format(Struct, frozen=True):
    """What a file says it is."""

    mark: int
    """Where SQLite keeps the mark of the program that a file belongs to (`application_id`)."""
    version: int
    """Of the tables (`user_version`); a file of a later version is not touched."""
    migrations: Mapping[int, str] = field(default_factory=dict)
    """By an older version, the SQL that makes of its tables those of the next one, without the version itself."""
    steps: Mapping[int, Callable[[apsw.Connection], None]] = field(default_factory=dict)
    """By an older version, what else is to be done behind that, where SQL alone cannot; in the same transaction."""


class DiskFull(LocalError):
    """The disk is full: there is no room left at {path}. Nothing that was confirmed is lost, and nothing new is kept
    until there is room: free some space, and zerochat goes on."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 30


class ReadOnly(LocalError):
    """{path} cannot be written: {why}. Make it writable for this user, or choose another place with ZEROCHAT_HOME."""

    exit_code: ClassVar[int] = 6


class DiskFailed(LocalError):
    """The disk does not do what it is asked to at {path}: {why}. Nothing that was confirmed is lost as long as the disk
    is sound; check it, and start zerochat again."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 30


class WrongKey(LocalError):
    """The journal {path} does not open with the key of this profile. If the two were copied from somewhere, copy both
    again from the same backup; if not, the beginning of the file is damaged."""

    exit_code: ClassVar[int] = 6


class NotAJournal(LocalError):
    """{path} is not a journal of zerochat: {why}. It has not been touched: put the journal back from a backup, or
    choose another profile with `--profile`."""

    exit_code: ClassVar[int] = 6


class NewerJournal(LocalError):
    """The journal {path} was written by a newer zerochat (its format is {found}, and this one knows {known}). It has
    not been touched: use the newer version."""

    exit_code: ClassVar[int] = 6


class OlderJournal(LocalError):
    """The journal {path} was written by an older zerochat (its format is {found}, and this one knows {known}), and
    cannot be brought along. It has not been touched: use the older version, or choose another profile with
    `--profile`."""

    exit_code: ClassVar[int] = 6


class JournalInUse(LocalError):
    """Another program has the journal {path} open. Close it, and try again."""

    exit_code: ClassVar[int] = 6
    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class JournalDamaged(LocalError):
    """The journal {path} is damaged: {why}. Keep a copy of the file, and put the last good one back from a backup; what
    is missing there, the other members still have."""

    exit_code: ClassVar[int] = 7


class CipherMissing(LocalError):
    """This installation cannot encrypt its journal: {why}. Nothing was written: install zerochat again, with the
    package apsw-sqlite3mc and without the package apsw."""

    exit_code: ClassVar[int] = 6


# --- opening ---------------------------------------------------------------------------------------------------------


def create_database(
    path: Path, key: bytes, *, vfs: str | None = None, busy_ms: int = BUSY_MS, wal: bool = True
) -> apsw.Connection:
    """A new file without any tables, that only `key` (32 bytes) opens. Whoever makes the tables sets the mark and the
    version of the format too, in the same transaction. Raises NotAJournal when something is there.

    `wal`: whether it gets a write-ahead log; a copy that is written once, and whole, needs none.
    """
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        raise NotAJournal(path=path, why="something else is in its place already") from None
    except OSError as error:
        raise fault_of_disk(error, path) from error
    return _connect(path, key, None, vfs, busy_ms, "WAL" if wal else "OFF")


def open_database(
    path: Path, key: bytes, format_: Format, *, vfs: str | None = None, busy_ms: int = BUSY_MS
) -> apsw.Connection:
    """An existing file. One that does not open is left exactly as it is.

    A file of an older version that `format_` has a way from is opened as it is; `bring_along` comes next.

    `vfs`: a file system of apsw's making, for tests that cut the power. Raises WrongKey, NotAJournal, NewerJournal,
    OlderJournal, JournalInUse, ReadOnly, or what every use of it may raise (`faults`).
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        raise NotAJournal(path=path, why="there is no such file") from None
    except OSError as error:
        raise fault_of_disk(error, path) from error
    if not stat.S_ISREG(mode):
        raise NotAJournal(path=path, why="it is no plain file")
    return _connect(path, key, format_, vfs, busy_ms)


def _connect(
    path: Path, key: bytes, expected: Format | None, vfs: str | None, busy_ms: int, mode: str = "WAL"
) -> apsw.Connection:
    assert len(key) == KEY_BYTES
    if apsw.SQLITE_VERSION_NUMBER < SQLITE_VERSION_MIN:
        raise CipherMissing(path=path, why=f"its SQLite is {apsw.sqlite_lib_version()}, which is too old")
    # No link may stand in the file's place. One further up may well: home folders and /tmp often are.
    resolved = path.parent.resolve() / path.name
    with faults(path):
        db = apsw.Connection(str(resolved), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs)
    try:
        with faults(path, db):
            _prepare(db, path, key, busy_ms)
            if expected is not None:
                _check(db, path, expected)
            if db.pragma("journal_mode", mode) != mode.lower():
                raise DiskFailed(path=path, why="this file system cannot hold a write-ahead log")
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: apsw.Connection, path: Path, key: bytes, busy_ms: int) -> None:
    """Everything that changes nothing in the file."""
    if db.readonly("main"):
        raise ReadOnly(path=path, why="the file is read-only")
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
    db.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # the first page: here a wrong key shows


def _unlock(db: apsw.Connection, key: bytes) -> bool:
    """Hand over the key; False: there is no cipher, and nothing was done."""
    if db.pragma("cipher", "chacha20") != "chacha20":
        return False
    db.pragma("key", "raw:" + key.hex())
    return True


def _check(db: apsw.Connection, path: Path, expected: Format) -> None:
    """Whether it is a file that this program can write, or make into one."""
    mark, version = db.pragma("application_id"), db.pragma("user_version")
    if mark != expected.mark:
        raise NotAJournal(path=path, why="it belongs to another program, or was never finished")
    if version > expected.version:
        raise NewerJournal(path=path, found=version, known=expected.version)
    if not all(each in expected.migrations for each in range(version, expected.version)):
        raise OlderJournal(path=path, found=version, known=expected.version)


def check_pages(db: apsw.Connection, path: Path) -> None:
    """Read every page of the file. Raises JournalDamaged."""
    if db.pragma("integrity_check", 1) != "ok":
        raise JournalDamaged(path=path, why="its pages do not fit together")


def reread_pages(db: apsw.Connection, path: Path, key: bytes, first: int, count: int) -> int:
    """Read so many pages from the disk itself, whoever has them in memory, and say how many there were. Raises
    JournalDamaged, JournalInUse, or what writing may raise."""
    size: int = db.pragma("page_size")
    try:
        there = path.stat().st_size // size
    except OSError as error:  # somebody has moved it away, say; SQLite goes on with what it has opened
        raise fault_of_disk(error, path) from error
    pages = range(first, min(first + count, there))
    for page in pages:
        # Where the power went while it was written, the write-ahead log has it, and a checkpoint writes it anew.
        if page * size != NEVER_WRITTEN and not _is_sound(db, key, page, size):
            logged, written = db.wal_checkpoint()
            if written < logged:
                raise JournalInUse(path=path)
            if not _is_sound(db, key, page, size):
                raise JournalDamaged(path=path, why="a page is not as it was written")
    return len(pages)


def _is_sound(db: apsw.Connection, key: bytes, page: int, size: int) -> bool:
    try:
        db.read("main", 0, page * size, size)
    except apsw.Error:
        _unlock(db, key)  # or its cipher fails at everything that is asked of it from now on
        return False
    return True


# --- copies, and files of an older version ---------------------------------------------------------------------------


def copy_database(db: apsw.Connection, path: Path, key: bytes, target: Path, *, vfs: str | None = None) -> None:
    """Put a copy of the open database `path`, as it is now, into a new file that the same key opens.

    It is on disk, with its name, when this returns. Raises NotAJournal when something is at `target`, or what every use
    of either may raise; what was begun of the copy is then gone.
    """
    copy = create_database(target, key, vfs=vfs, wal=False)
    try:
        try:
            with faults(target, copy), copy.backup("main", db, "main") as backup:
                backup.step()
        except JournalDamaged as error:  # what is new cannot be: it is a page of the other one
            raise JournalDamaged(path=path, why=error.fields["why"]) from error
        with faults(target, copy):
            copy.close()
        try:
            sync_folder(target.parent)
        except OSError as error:
            raise fault_of_disk(error, target) from error
    except BaseException:
        copy.close(force=True)
        target.unlink(missing_ok=True)
        raise


def copy_before(path: Path, version: int) -> Path:
    """Where a file of this version is kept while it is not yet certain that its successor is good."""
    return path.with_name(f"{path.name}.v{version}")


def forget_copies(path: Path, format_: Format) -> None:
    """Remove what was kept of the older versions of a file. Nothing depends on it, so a disk that refuses is let be."""
    for version in format_.migrations:
        with suppress(OSError):
            copy_before(path, version).unlink(missing_ok=True)


def bring_along(db: apsw.Connection, path: Path, key: bytes, format_: Format, *, vfs: str | None = None) -> bool:
    """Make a file of this version out of an older one that has just been opened; False: it was of this one already.

    All or nothing, in one transaction; before that, every page is checked, and a copy of the file as it was is put
    beside it (`copy_before`) and is on disk. The copy stays until whoever opens the file has seen, in a later start,
    that the new one is good, and calls `forget_copies`. Raises JournalDamaged, or what every use may raise.
    """
    with faults(path, db):
        version = db.pragma("user_version")
        if version == format_.version:
            return False
        check_pages(db, path)
    kept = copy_before(path, version)
    unfinished = kept.with_name(kept.name + ".new")
    try:
        unfinished.unlink(missing_ok=True)
        copy_database(db, path, key, unfinished, vfs=vfs)
        unfinished.replace(kept)
        sync_folder(path.parent)
    except OSError as error:
        raise fault_of_disk(error, kept) from error
    with transaction(path, db):
        for each in range(version, format_.version):
            db.execute(format_.migrations[each])
            if each in format_.steps:
                format_.steps[each](db)
        db.pragma("user_version", format_.version)
    return True


def sync_folder(folder: Path) -> None:
    """Put on disk which names are in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def faults(path: Path, db: apsw.Connection | None = None) -> Iterator[None]:
    """What SQLite says, in our own words: DiskFull, ReadOnly, DiskFailed, WrongKey, NotAJournal, JournalDamaged or
    JournalInUse."""
    try:
        yield
    except apsw.FullError as error:
        raise DiskFull(path=path) from error
    except apsw.ReadOnlyError as error:
        raise ReadOnly(path=path, why="the file is read-only") from error
    except apsw.NotADBError as error:
        raise _misfit(path) from error
    except apsw.CorruptError as error:
        raise JournalDamaged(path=path, why="a page is not as it was written") from error
    except (apsw.BusyError, apsw.LockedError) as error:
        raise JournalInUse(path=path) from error
    except (apsw.IOError, apsw.CantOpenError) as error:
        # SQLite knows a full disk only from a plain write that failed; a quota, say, it does not know.
        number = db.system_errno if db is not None else 0
        why = OSError(number, os.strerror(number) if number else str(error))
        raise fault_of_disk(why, path) from error


@contextmanager
def transaction(path: Path, db: apsw.Connection) -> Iterator[None]:
    """All or nothing: on disk when the context ends, and as before when anything raises in it."""
    with faults(path, db):
        db.execute("BEGIN IMMEDIATE")
        try:
            yield
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:  # after some faults SQLite has rolled back by itself
                db.execute("ROLLBACK")
            raise


def fault_of_disk(error: OSError, path: Path) -> LocalError:
    """The sentence for a failed system call at `path`."""
    why = (error.strerror or str(error)).lower()
    match error.errno:
        case errno.ENOSPC | errno.EDQUOT:
            return DiskFull(path=path)
        case errno.EROFS | errno.EACCES | errno.EPERM:
            return ReadOnly(path=path, why=why)
        case _:
            return DiskFailed(path=path, why=why)


def _misfit(path: Path) -> LocalError:
    """What to say of a file whose first page the key does not open.

    SQLite3 Multiple Ciphers leaves bytes 16 to 23 of an encrypted file readable: the page size, and three numbers that
    are the same in every SQLite file.
    """
    with path.open("rb") as file:
        head = file.read(24)
    if head.startswith(b"SQLite format 3\0"):
        return NotAJournal(path=path, why="it is a database without encryption")
    if head[21:24] != b"\x40\x20\x20":
        return NotAJournal(path=path, why="it is no encrypted database")
    return WrongKey(path=path)
