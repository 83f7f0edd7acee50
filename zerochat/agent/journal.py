"""The journal: what one profile knows, in one encrypted SQLite file that survives a power cut.

It holds three things. The *checkpoint* is the core's state, in parts (`checkpoint.py`). The *log* is every event that
was delivered, in the order of delivery. *meta* is what the agent itself must know before there is a state. A turn's
state and events are written in one transaction, and what `commit` has returned from is on disk: nothing is sent or
shown before.

Why each setting is what it is: a write-ahead log with `synchronous=FULL` loses nothing acknowledged in a simulated
power cut, and with NORMAL, the usual advice, it loses a third; SQLite from 3.51.3 on is free of the corruption that
several connections could cause in a write-ahead log, and there is only one connection anyway, which the exclusive
lock makes sure of (so there is no shared-memory file either); memory-mapped pages are of no use when each is
encrypted. The cipher is ChaCha20-Poly1305 by page under a raw 32-byte key, so whoever changes a byte is found out.
That an older copy of the whole file was put in its place cannot be seen from here: only peers know better.
"""

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self, TypeVar

import apsw

from zerochat.agent.checkpoint import Unreadable, assemble, changes, parts_of
from zerochat.errors import LocalError
from zerochat.group.effects import Remember

S = TypeVar("S")

KEY_BYTES: Final = 32
SQLITE_VERSION_MIN: Final = 3_051_003
APPLICATION_ID: Final = 0x7A63_6A6C
"""`zcjl`, where SQLite keeps the mark of the program that a file belongs to."""
SCHEMA_VERSION: Final = 1
BUSY_MS: Final = 1_000
"""Another program that only looks at the file for a moment, such as a backup, is waited for."""
WAL_BYTES_KEPT: Final = 4 << 20
"""A write-ahead log that has grown beyond this is cut again at the next checkpoint."""

_SCHEMA: Final = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT, WITHOUT ROWID;
CREATE TABLE checkpoint (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, value BLOB NOT NULL) STRICT;
CREATE TABLE events (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    group_id TEXT NOT NULL,
    id TEXT NOT NULL UNIQUE,
    author TEXT NOT NULL,
    position INTEGER NOT NULL,
    lamport INTEGER NOT NULL,
    type TEXT NOT NULL,
    record BLOB NOT NULL,
    received INTEGER NOT NULL,
    late INTEGER NOT NULL CHECK (late IN (0, 1))
) STRICT;
CREATE INDEX events_in_order ON events (group_id, lamport, author, id);
CREATE INDEX events_by_chain ON events (group_id, author, position);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

_COLUMNS: Final = "seq, group_id, id, author, position, lamport, type, record, received, late"
LATEST_ROWS: Final = f"""
SELECT {_COLUMNS} FROM events WHERE group_id = ?
ORDER BY lamport DESC, author DESC, id DESC LIMIT ?
"""  # noqa: S608  # the columns are those above
ROWS_BEFORE: Final = f"""
SELECT {_COLUMNS} FROM events WHERE group_id = ? AND (lamport, author, id) < (?, ?, ?)
ORDER BY lamport DESC, author DESC, id DESC LIMIT ?
"""  # noqa: S608
CHAIN: Final = """
SELECT record FROM events WHERE group_id = ? AND author = ? AND position > ? ORDER BY position, seq LIMIT ?
"""
COUNT: Final = "SELECT count(*) FROM events WHERE group_id = ?"
_KEEP: Final = """
INSERT INTO events (group_id, id, author, position, lamport, type, record, received, late)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING
"""
_SET: Final = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"
_WRITE: Final = """
INSERT INTO checkpoint (path, value) VALUES (?, ?) ON CONFLICT (path) DO UPDATE SET value = excluded.value
"""
_DROP: Final = "DELETE FROM checkpoint WHERE path = ?1 OR (path > ?1 || '/' AND path < ?1 || '0')"
"""`0` is the character after `/`."""


class DiskFull(LocalError):
    """The disk is full: there is no room left at {path}. Nothing that was confirmed is lost, and nothing new is kept
    until there is room: free some space, and zerochat goes on."""


class ReadOnly(LocalError):
    """{path} cannot be written: {why}. Make it writable for this user, or choose another place with ZEROCHAT_HOME."""

    exit_code: ClassVar[int] = 6


class DiskFailed(LocalError):
    """The disk does not do what it is asked to at {path}: {why}. Nothing that was confirmed is lost as long as the disk
    is sound; check it, and start zerochat again."""

    exit_code: ClassVar[int] = 6


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


class JournalInUse(LocalError):
    """Another program has the journal {path} open. Close it, and try again."""

    exit_code: ClassVar[int] = 6


class JournalDamaged(LocalError):
    """The journal {path} is damaged: {why}. Keep a copy of the file, and put the last good one back from a backup; what
    is missing there, the other members still have."""

    exit_code: ClassVar[int] = 7


class CipherMissing(LocalError):
    """This installation cannot encrypt its journal: {why}. Nothing was written: install zerochat again, with the
    package apsw-sqlite3mc and without the package apsw."""

    exit_code: ClassVar[int] = 6


class NoSuchEvent(LocalError):
    """There is no event {event} in this group. `zerochat history {group} --format jsonl` shows the ids."""


@dataclass(frozen=True, slots=True)
class Row:
    """One delivered event, as the log has it."""

    seq: int
    """Local and monotone, never used twice: the order in which this agent delivered."""
    group: str
    id: str
    author: str
    position: int
    """The event's place in its author's chain, from 1."""
    lamport: int
    type: str
    record: bytes = field(repr=False)
    received: int
    """UTC milliseconds."""
    late: bool


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much there is."""

    disk_bytes: int
    """The file with its write-ahead log."""
    events: int
    parts: int
    """Rows of the checkpoint."""


class Journal:
    """An open journal. One thread at a time uses it, and a context closes it.

    Every method raises DiskFull, ReadOnly, DiskFailed or JournalDamaged when the disk fails it; what it was asked to
    write is then not written, not even in part, and it can be asked again.
    """

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._db = connection
        self._written: object | None = None
        """The state that the checkpoint on disk is, as long as `_read`; by identity, the base of what changes."""
        self._read = False
        self._afresh = False

    @classmethod
    def create(cls, path: Path, key: bytes, meta: Mapping[str, bytes] | None = None, *, vfs: str | None = None) -> Self:
        """Make a new journal, with nothing in it but `meta`, that only `key` (32 bytes) opens.

        Raises NotAJournal when something is there.
        """
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except FileExistsError:
            raise NotAJournal(path=path, why="something else is in its place already") from None
        except OSError as error:
            raise fault_of_disk(error, path) from error
        journal = cls(path, _connect(path, key, vfs, new=True))
        try:
            with journal._transaction():
                journal._db.execute(_SCHEMA)
                journal._db.executemany(_SET, (meta or {}).items())
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, path: Path, key: bytes, *, vfs: str | None = None) -> Self:
        """Open an existing journal. A file that does not open is left exactly as it is.

        `vfs`: a file system of apsw's making, for tests that cut the power. Raises WrongKey, NotAJournal,
        NewerJournal, JournalInUse, ReadOnly, or what every method may raise.
        """
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            raise NotAJournal(path=path, why="there is no such file") from None
        except OSError as error:
            raise fault_of_disk(error, path) from error
        if not stat.S_ISREG(mode):
            raise NotAJournal(path=path, why="it is no plain file")
        return cls(path, _connect(path, key, vfs))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Fold the write-ahead log into the file, and close it. Idempotent."""
        with self._faults():
            self._db.close()

    # --- the checkpoint, and a turn ---------------------------------------------------------------------------------

    def load(self, shape: type[S]) -> S | None:
        """The state that the last `commit` wrote, of the frozen dataclass `shape`; None in a new journal."""
        with self._faults():
            rows: Any = self._db.execute("SELECT path, value FROM checkpoint ORDER BY number")
            try:
                found = assemble(shape, rows)
            except Unreadable as error:
                raise JournalDamaged(path=self.path, why=error) from error
        state, self._afresh = found or (None, False)
        self._written, self._read = state, True
        return state

    def commit(self, after: object, remembered: Sequence[Remember] = ()) -> None:
        """Put a turn on disk: what of the state is not as the last commit wrote it, and the delivered events.

        `after` is a frozen dataclass, and so is every value in it; a part counts as changed when it is another object.
        When this returns, all of it has reached the disk; when it raises, none of it has. Events that are there already
        are left as they are. Nothing is written when nothing has changed.
        """
        if not self._read:
            self.load(type(after))
        base = None if self._afresh else self._written
        changed = list(changes(base, after))
        if changed or remembered:
            with self._transaction():
                if self._afresh:
                    self._db.executemany(_DROP, [(path,) for path in parts_of(after)])
                self._db.executemany(_DROP, [(path,) for path, value in changed if value is None])
                self._db.executemany(_WRITE, [(path, value) for path, value in changed if value is not None])
                self._db.executemany(_KEEP, [_event(one) for one in remembered])
        self._written, self._afresh = after, False

    # --- the log ----------------------------------------------------------------------------------------------------

    def history(self, group: str, limit: int, before: str | None = None) -> list[Row]:
        """The last `limit` events of a group (before the event with the id `before`), oldest first.

        The order is the one that every member sees: by Lamport time, author and id. Raises NoSuchEvent.
        """
        if before is None:
            rows = self._rows(LATEST_ROWS, (group, limit))
        else:
            border = self.event(group, before)
            if border is None:
                raise NoSuchEvent(event=ascii(before[:64]), group=group)
            rows = self._rows(ROWS_BEFORE, (group, border.lamport, border.author, border.id, limit))
        rows.reverse()
        return rows

    def event(self, group: str, event_id: str) -> Row | None:
        found = self._rows(f"SELECT {_COLUMNS} FROM events WHERE id = ? AND group_id = ?", (event_id, group))  # noqa: S608
        return found[0] if found else None

    def by_seq(self, since: int, limit: int) -> list[Row]:
        """The first `limit` events, of all groups, that were delivered after the one with the local number `since`."""
        return self._rows(f"SELECT {_COLUMNS} FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (since, limit))  # noqa: S608

    def latest(self) -> int:
        """The local number of the last delivered event; 0: there is none."""
        return int(self._one("SELECT max(seq) FROM events") or 0)

    def chain(self, group: str, author: str, after: int, limit: int) -> list[bytes]:
        """The records of an author's events after position `after`, at most `limit`, in the order of its chain."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(CHAIN, (group, author, after, limit))
            return [record for (record,) in rows]

    def count(self, group: str) -> int:
        """How many events of a group were delivered."""
        return int(self._one(COUNT, (group,)))

    # --- what the agent knows of itself -----------------------------------------------------------------------------

    def meta_get(self, key: str) -> bytes | None:
        value: bytes | None = self._one("SELECT value FROM meta WHERE key = ?", (key,))
        return value

    def meta_set(self, key: str, value: bytes) -> None:
        if self.meta_get(key) == value:
            return
        with self._transaction():
            self._db.execute(_SET, (key, value))

    def sizes(self) -> Sizes:
        wal = self.path.with_name(self.path.name + "-wal")
        size = sum(path.stat().st_size for path in (self.path, wal) if path.exists())
        events, parts = (int(self._one(f"SELECT count(*) FROM {table}")) for table in ("events", "checkpoint"))  # noqa: S608
        return Sizes(size, events, parts)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _faults(self) -> AbstractContextManager[None]:
        return _faults(self.path, self._db)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing: on disk when the context ends, and as before when anything raises in it."""
        with self._faults():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:  # after some faults SQLite has rolled back by itself
                    self._db.execute("ROLLBACK")
                raise

    def _rows(self, query: str, bindings: Sequence[str | int]) -> list[Row]:
        with self._faults():
            rows: Any = self._db.execute(query, bindings)
            return [
                Row(seq, group, event, author, position, lamport, kind, record, received, late == 1)
                for seq, group, event, author, position, lamport, kind, record, received, late in rows
            ]

    def _one(self, query: str, bindings: Sequence[str | int] = ()) -> Any:
        """The first column of the only row; None when there is no row."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(query, bindings).fetchall()
            return rows[0][0] if rows else None


def _event(one: Remember) -> tuple[str | int | bytes, ...]:
    return (
        one.group,
        one.id,
        one.author,
        one.seq,
        one.lamport,
        one.type,
        one.record,
        one.received,
        int(one.late),
    )


# --- opening --------------------------------------------------------------------------------------------------------


def _connect(path: Path, key: bytes, vfs: str | None, *, new: bool = False) -> apsw.Connection:
    assert len(key) == KEY_BYTES
    if apsw.SQLITE_VERSION_NUMBER < SQLITE_VERSION_MIN:
        raise CipherMissing(path=path, why=f"its SQLite is {apsw.sqlite_lib_version()}, which is too old")
    # No link may stand in the file's place. One further up may well: home folders and /tmp often are.
    resolved = path.parent.resolve() / path.name
    with _faults(path):
        db = apsw.Connection(str(resolved), flags=apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW, vfs=vfs)
    try:
        with _faults(path, db):
            _prepare(db, path, key)
            if not new:
                _check(db, path)
            if db.pragma("journal_mode", "WAL") != "wal":
                raise DiskFailed(path=path, why="this file system cannot hold a write-ahead log")
    except BaseException:
        db.close()
        raise
    return db


def _prepare(db: apsw.Connection, path: Path, key: bytes) -> None:
    """Everything that changes nothing in the file."""
    if db.readonly("main"):
        raise ReadOnly(path=path, why="the file is read-only")
    if db.pragma("cipher", "chacha20") != "chacha20":
        raise CipherMissing(path=path, why="its SQLite has no cipher")
    db.pragma("key", "raw:" + key.hex())
    db.set_busy_timeout(BUSY_MS)
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
    ):
        db.pragma(name, value)
    db.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # the first page: here a wrong key shows


def _check(db: apsw.Connection, path: Path) -> None:
    """Whether it is a journal that this version can write."""
    mark, version = db.pragma("application_id"), db.pragma("user_version")
    if mark != APPLICATION_ID:
        raise NotAJournal(path=path, why="it belongs to another program, or was never finished")
    if version > SCHEMA_VERSION:
        raise NewerJournal(path=path, found=version, known=SCHEMA_VERSION)


@contextmanager
def _faults(path: Path, db: apsw.Connection | None = None) -> Iterator[None]:
    """What SQLite says, in our own words."""
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
