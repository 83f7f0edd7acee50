"""The bot's database: values, dead letters, spilled items, timer state.

One SQLite file per consumer in the profile's folder, with mode 0600. It is **not encrypted**: do not store secrets in
`bot.kv` or in timers. The contents of messages stay in the agent's encrypted journal; a dead letter holds the id of the
event and the error, a spilled item only the id. The `data` of timers and the bodies of webhooks are stored whole.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerochat.closing import Closing
from zerochat.errors import LocalError

KEY_CHARS_MAX = 256
VALUE_BYTES_MAX = 64 * 1024
VALUES_MAX = 10_000
DEAD_LETTERS_MAX = 10_000
"""Maximum number of dead letters; beyond it the oldest is deleted and counted."""
ERROR_CHARS_MAX = 2_000
FILE_PAGES_MAX = 1 << 18
"""Size limit of the file in pages of 4 kB: one gigabyte."""
REFUTED_MAX = 1_000
"""Maximum number of refuted events; beyond it the oldest is forgotten."""
BUSY_S = 10.0
FORMAT = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL, group_id TEXT NOT NULL, type TEXT NOT NULL,
    handler TEXT NOT NULL, error TEXT NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL, body TEXT NOT NULL,
    again INTEGER NOT NULL DEFAULT 0, UNIQUE (event, handler)
);
CREATE TABLE IF NOT EXISTS timers (name TEXT PRIMARY KEY, ran REAL NOT NULL, calls INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS local_events (
    id TEXT PRIMARY KEY, type TEXT NOT NULL, due REAL NOT NULL, span REAL NOT NULL, every REAL NOT NULL,
    body TEXT NOT NULL, run INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS deliveries (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS starts (
    event TEXT NOT NULL, handler TEXT NOT NULL, times INTEGER NOT NULL, PRIMARY KEY (event, handler)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS spilled (
    number INTEGER PRIMARY KEY AUTOINCREMENT, group_id TEXT NOT NULL, event TEXT NOT NULL UNIQUE, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS spilled_by_group ON spilled (group_id, number);
CREATE TABLE IF NOT EXISTS refuted (
    number INTEGER PRIMARY KEY AUTOINCREMENT, group_id TEXT NOT NULL, event TEXT NOT NULL UNIQUE
);
"""


class BadValue(LocalError):
    """This value cannot be stored: {why}."""


class StoreUnusable(LocalError):
    """The bot's database {path} cannot be used: {why}."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event that a handler could not handle."""

    id: int
    event: str
    """Event id."""
    group: str
    """Group id."""
    type: str
    handler: str
    error: str
    """The last exception. It contains message text only if the handler put it there."""
    attempts: int
    at: float
    """Time, UTC, seconds."""
    body: str
    """The event as JSON if it is not in the log; otherwise empty."""


@dataclass(frozen=True, slots=True)
class SpilledItem:
    """An item that is acknowledged but not yet handled."""

    group: str
    event: str
    """Event id."""
    body: str
    """The item as JSON if it is not in the log; otherwise empty."""


class KeyValues(MutableMapping[str, Any]):
    """`bot.kv`: JSON values by name. Each assignment is on disk when it returns."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def __getitem__(self, key: str) -> Any:
        with self._store.transaction() as db:
            row = db.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return json.loads(row[0])

    def __setitem__(self, key: str, value: Any) -> None:
        if not 0 < len(key) <= KEY_CHARS_MAX:
            raise BadValue(why=f"a name must have 1 to {KEY_CHARS_MAX} characters")
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(why=f"it is not JSON-serialisable ({type(error).__name__})") from error
        if len(text.encode()) > VALUE_BYTES_MAX:
            raise BadValue(why=f"it is larger than {VALUE_BYTES_MAX} bytes")
        with self._store.transaction() as db:
            there = db.execute("SELECT 1 FROM kv WHERE key = ?", (key,)).fetchone()
            if there is None and db.execute("SELECT count(*) FROM kv").fetchone()[0] >= VALUES_MAX:
                raise BadValue(why=f"the limit of {VALUES_MAX} values is reached")
            db.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (key, text))

    def __delitem__(self, key: str) -> None:
        with self._store.transaction() as db:
            if db.execute("DELETE FROM kv WHERE key = ?", (key,)).rowcount == 0:
                raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        with self._store.transaction() as db:
            rows = db.execute("SELECT key FROM kv ORDER BY key").fetchall()
        return iter([key for (key,) in rows])

    def __len__(self) -> int:
        with self._store.transaction() as db:
            return int(db.execute("SELECT count(*) FROM kv").fetchone()[0])


class Store(Closing):
    """The database. Usable from any thread; consistent after a crash."""

    def __init__(self, path: Path | None) -> None:
        """`path`: None keeps everything in memory. Raises StoreUnusable."""
        self.path = path
        self._lock = threading.RLock()
        self.values = KeyValues(self)
        try:
            if path is not None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            name = ":memory:" if path is None else path
            self._db = sqlite3.connect(name, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > FORMAT:
                raise StoreUnusable(path=path, why="it was written by a newer version of zerochat")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(f"PRAGMA max_page_count = {FILE_PAGES_MAX}")
            if version < FORMAT:
                self._db.executescript(_SCHEMA + f"PRAGMA user_version = {FORMAT};")
        except sqlite3.Error as error:
            raise StoreUnusable(path=path, why=error) from error
        except OSError as error:
            raise StoreUnusable(path=path, why=(error.strerror or str(error)).lower()) from error

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def transaction(self, *, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction, on disk when the block has ended. Not `synced`: it outlives a killed process, but maybe not
        a power cut."""
        with self._lock:
            try:
                self._db.execute(f"PRAGMA synchronous = {'FULL' if synced else 'NORMAL'}")
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise StoreUnusable(path=self.path, why=error) from error

    # --- dead letters -----------------------------------------------------------------------------------------------

    def add_dead_letter(self, letter: DeadLetter) -> None:
        """Store a dead letter, replacing an earlier one of the same event and handler."""
        with self.transaction() as db:
            db.execute("DELETE FROM dead_letters WHERE event = ? AND handler = ?", (letter.event, letter.handler))
            db.execute(
                "INSERT INTO dead_letters (event, group_id, type, handler, error, attempts, at, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(letter.event, letter.group, letter.type, letter.handler, letter.error[:ERROR_CHARS_MAX]),
                    *(letter.attempts, letter.at, letter.body),
                ),
            )
            gone = db.execute(
                "DELETE FROM dead_letters WHERE id <= (SELECT max(id) FROM dead_letters) - ?", (DEAD_LETTERS_MAX,)
            ).rowcount
            if gone > 0:
                db.execute(
                    "INSERT INTO counters VALUES ('dead_letters_dropped', ?)"
                    " ON CONFLICT (name) DO UPDATE SET number = number + ?",
                    (gone, gone),
                )

    def dead_letters(self, *, retry_only: bool = False) -> list[DeadLetter]:
        """The dead letters, oldest first; `retry_only`: those marked for another attempt."""
        with self.transaction() as db:
            rows = db.execute(
                "SELECT id, event, group_id, type, handler, error, attempts, at, body FROM dead_letters"
                " WHERE again >= ? ORDER BY id",
                (int(retry_only),),
            ).fetchall()
        return [DeadLetter(*row) for row in rows]

    def dead_letters_dropped(self) -> int:
        """Number of dead letters deleted to make room for later ones."""
        with self.transaction() as db:
            row = db.execute("SELECT number FROM counters WHERE name = 'dead_letters_dropped'").fetchone()
        return int(row[0]) if row else 0

    def request_retry(self, letter: int | None) -> int:
        """Mark a dead letter for another attempt (None: all). Returns how many."""
        with self.transaction() as db:
            if letter is None:
                return db.execute("UPDATE dead_letters SET again = 1").rowcount
            return db.execute("UPDATE dead_letters SET again = 1 WHERE id = ?", (letter,)).rowcount

    def delete_dead_letters(self, letter: int | None) -> int:
        """Delete a dead letter (None: all). Returns how many."""
        with self.transaction() as db:
            if letter is None:
                return db.execute("DELETE FROM dead_letters").rowcount
            return db.execute("DELETE FROM dead_letters WHERE id = ?", (letter,)).rowcount

    # --- starts of handlers -----------------------------------------------------------------------------------------

    def count_start(self, event: str, handler: str = "") -> int:
        """Count the start of handling an event (or of one handler of it). Returns how often that has happened, also in
        processes that were killed."""
        with self.transaction(synced=False) as db:
            db.execute(
                "INSERT INTO starts VALUES (?, ?, 1) ON CONFLICT (event, handler) DO UPDATE SET times = times + 1",
                (event, handler),
            )
            row = db.execute("SELECT times FROM starts WHERE event = ? AND handler = ?", (event, handler)).fetchone()
            return int(row[0])

    def clear_starts(self, event: str) -> None:
        """The event is handled."""
        with self.transaction(synced=False) as db:
            db.execute("DELETE FROM starts WHERE event = ?", (event,))

    # --- spilled items ----------------------------------------------------------------------------------------------

    def spill(self, found: Iterable[SpilledItem]) -> None:
        """Append items; they are on disk when this returns."""
        with self.transaction() as db:
            rows = [(one.group, one.event, one.body) for one in found]
            db.executemany("INSERT OR IGNORE INTO spilled (group_id, event, body) VALUES (?, ?, ?)", rows)

    def spilled(self, group: str, limit: int) -> list[SpilledItem]:
        """The first spilled items of a group, in order."""
        with self.transaction() as db:
            rows = db.execute(
                "SELECT group_id, event, body FROM spilled WHERE group_id = ? ORDER BY number LIMIT ?", (group, limit)
            ).fetchall()
        return [SpilledItem(*row) for row in rows]

    def spilled_groups(self) -> list[str]:
        """Groups with spilled items."""
        with self.transaction() as db:
            return [group for (group,) in db.execute("SELECT DISTINCT group_id FROM spilled ORDER BY group_id")]

    def spilled_ids(self) -> set[str]:
        with self.transaction() as db:
            return {event for (event,) in db.execute("SELECT event FROM spilled")}

    def drop_spilled(self, events: Iterable[str]) -> None:
        with self.transaction() as db:
            db.executemany("DELETE FROM spilled WHERE event = ?", [(event,) for event in events])

    # --- refuted events ---------------------------------------------------------------------------------------------

    def refute(self, group: str, event: str) -> None:
        """Replace a spilled item by a refuted event, which may be reinstated."""
        with self.transaction() as db:
            db.execute("DELETE FROM spilled WHERE event = ?", (event,))
            db.execute("INSERT OR IGNORE INTO refuted (group_id, event) VALUES (?, ?)", (group, event))
            db.execute("DELETE FROM refuted WHERE number <= (SELECT max(number) FROM refuted) - ?", (REFUTED_MAX,))

    def refuted(self) -> dict[str, str]:
        """Group id by event id of the refuted events, oldest first."""
        with self.transaction() as db:
            return dict(db.execute("SELECT event, group_id FROM refuted ORDER BY number"))

    def requeue(self, group: str, event: str) -> None:
        """Append a reinstated event to the spilled items."""
        with self.transaction() as db:
            db.execute("DELETE FROM refuted WHERE event = ?", (event,))
            db.execute("INSERT OR IGNORE INTO spilled (group_id, event, body) VALUES (?, ?, '')", (group, event))

    def drop_refuted(self, event: str) -> None:
        with self.transaction() as db:
            db.execute("DELETE FROM refuted WHERE event = ?", (event,))

    # --- timers -----------------------------------------------------------------------------------------------------

    def last_run(self, timer: str) -> tuple[float, int] | None:
        """The due time of the timer's last call (UTC, seconds), and the number of calls; None: never."""
        with self.transaction() as db:
            row = db.execute("SELECT ran, calls FROM timers WHERE name = ?", (timer,)).fetchone()
        return (float(row[0]), int(row[1])) if row else None

    def set_last_run(self, timer: str, moment: float, calls: int) -> None:
        with self.transaction() as db:
            db.execute("INSERT OR REPLACE INTO timers VALUES (?, ?, ?)", (timer, moment, calls))
