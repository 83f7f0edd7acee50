"""The journal: what one profile knows, in one encrypted SQLite file that survives a power cut.

It holds three things. The *checkpoint* is the core's state, in parts (`checkpoint.py`). The *log* is every event that
was delivered, in the order of delivery. *meta* is what the agent itself must know before there is a state. A turn's
state and events are written in one transaction, and what `commit` has returned from is on disk: nothing is sent or
shown before.

How the file is opened, encrypted and kept whole is in `database.py`. That an older copy of the whole file was put in
its place cannot be seen from here: only peers know better.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import apsw

from zerochat.agent.checkpoint import Unreadable, assemble, changes, parts_of
from zerochat.agent.database import (
    BUSY_MS,
    KEY_BYTES,
    CipherMissing,
    DiskFailed,
    DiskFull,
    Format,
    JournalDamaged,
    JournalInUse,
    NewerJournal,
    NotAJournal,
    ReadOnly,
    WrongKey,
    create_database,
    fault_of_disk,
    faults,
    open_database,
    transaction,
)
from zerochat.errors import LocalError
from zerochat.group.effects import Remember

S = TypeVar("S")

__all__ = [
    "CHAIN",
    "COUNT",
    "KEY_BYTES",
    "LATEST_ROWS",
    "ROWS_BEFORE",
    "CipherMissing",
    "DiskFailed",
    "DiskFull",
    "Journal",
    "JournalDamaged",
    "JournalInUse",
    "NewerJournal",
    "NoSuchEvent",
    "NotAJournal",
    "ReadOnly",
    "Row",
    "Sizes",
    "WrongKey",
    "fault_of_disk",
]

APPLICATION_ID: Final = 0x7A63_6A6C
"""`zcjl`, where SQLite keeps the mark of the program that a file belongs to."""
SCHEMA_VERSION: Final = 2
_FORMAT: Final = Format(APPLICATION_ID, SCHEMA_VERSION)

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
        journal = cls(path, create_database(path, key, vfs=vfs, busy_ms=BUSY_MS))
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
        return cls(path, open_database(path, key, _FORMAT, vfs=vfs, busy_ms=BUSY_MS))

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
        return faults(self.path, self._db)

    def _transaction(self) -> AbstractContextManager[None]:
        return transaction(self.path, self._db)

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
