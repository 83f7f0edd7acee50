"""What a bot keeps on disk: its values, its dead letters, what waits to be handled, and when its timers last ran.

One small SQLite file for each consumer, in the profile's folder, closed to other users (0600). It is **not
encrypted**: no secrets in `bot.kv`. What was said in a group stays in the agent's encrypted journal; a dead letter
names the event and says what went wrong, and has nobody's text in it; what waits is named alone.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from zerochat.errors import LocalError

KEY_CHARS_MAX = 256
VALUE_BYTES_MAX = 64 * 1024
VALUES_MAX = 10_000
DEAD_MAX = 10_000
"""Dead letters; then the oldest goes, and it is said how many have gone."""
ERROR_CHARS_MAX = 2_000
FILE_PAGES_MAX = 1 << 18
"""Of 4 kB: a gigabyte, which nothing above comes to."""
REFUTED_MAX = 1_000
"""Of what was refuted before its turn; then the oldest is not looked for any more."""
BUSY_S = 10.0
FORMAT = 3

_SCHEMA = """
CREATE TABLE IF NOT EXISTS kv (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL, group_id TEXT NOT NULL, type TEXT NOT NULL,
    handler TEXT NOT NULL, error TEXT NOT NULL, attempts INTEGER NOT NULL, at REAL NOT NULL, body TEXT NOT NULL,
    again INTEGER NOT NULL DEFAULT 0, UNIQUE (event, handler)
);
CREATE TABLE IF NOT EXISTS timers (name TEXT PRIMARY KEY, ran REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS begun (event TEXT PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, number INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS aside (
    number INTEGER PRIMARY KEY AUTOINCREMENT, group_id TEXT NOT NULL, event TEXT NOT NULL UNIQUE, body TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS aside_of ON aside (group_id, number);
CREATE TABLE IF NOT EXISTS refuted (
    number INTEGER PRIMARY KEY AUTOINCREMENT, group_id TEXT NOT NULL, event TEXT NOT NULL UNIQUE
);
"""


class BadValue(LocalError):
    """This cannot be kept in bot.kv: {why}."""


class StoreUnusable(LocalError):
    """The bot's file {path} cannot be used: {why}."""

    exit_code = 6


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Something that no handler could be made to handle."""

    id: int
    event: str
    """The event's id."""
    group: str
    """The group's id."""
    type: str
    handler: str
    error: str
    """What was raised in the end. It may have words of a message in it, if the handler has put them there."""
    attempts: int
    at: float
    """UTC seconds."""
    body: str
    """Of what is told besides the log, as JSON; empty for what is in the log."""


@dataclass(frozen=True, slots=True)
class Aside:
    """Something that is acknowledged and not handled yet."""

    group: str
    event: str
    """The event's id."""
    body: str
    """Of what is told besides the log, the whole item as JSON; empty for what is in the log."""


class Values(MutableMapping[str, Any]):
    """`bot.kv`: values that JSON can say, by name. Each assignment is on disk when it returns."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def __getitem__(self, key: str) -> Any:
        with self._store.using() as db:
            row = db.execute("SELECT value FROM kv WHERE key = ?", (key,)).fetchone()
        if row is None:
            raise KeyError(key)
        return json.loads(row[0])

    def __setitem__(self, key: str, value: Any) -> None:
        if not 0 < len(key) <= KEY_CHARS_MAX:
            raise BadValue(why=f"a name is a str of 1 to {KEY_CHARS_MAX} characters")
        try:
            text = json.dumps(value, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise BadValue(why=f"JSON has no way to say it ({type(error).__name__})") from error
        if len(text.encode()) > VALUE_BYTES_MAX:
            raise BadValue(why=f"it has more than {VALUE_BYTES_MAX} bytes")
        with self._store.using() as db:
            there = db.execute("SELECT 1 FROM kv WHERE key = ?", (key,)).fetchone()
            if there is None and db.execute("SELECT count(*) FROM kv").fetchone()[0] >= VALUES_MAX:
                raise BadValue(why=f"there are {VALUES_MAX} values already")
            db.execute("INSERT OR REPLACE INTO kv VALUES (?, ?)", (key, text))

    def __delitem__(self, key: str) -> None:
        with self._store.using() as db:
            if db.execute("DELETE FROM kv WHERE key = ?", (key,)).rowcount == 0:
                raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        with self._store.using() as db:
            rows = db.execute("SELECT key FROM kv ORDER BY key").fetchall()
        return iter([key for (key,) in rows])

    def __len__(self) -> int:
        with self._store.using() as db:
            return int(db.execute("SELECT count(*) FROM kv").fetchone()[0])


class Store:
    """The file. Any thread may use it; a process that is killed leaves it whole."""

    def __init__(self, path: Path | None) -> None:
        """`path`: None keeps everything in memory. Raises StoreUnusable."""
        self.path = path
        self._lock = threading.RLock()
        self.values = Values(self)
        try:
            if path is not None:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            name = ":memory:" if path is None else path
            self._db = sqlite3.connect(name, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > FORMAT:
                raise StoreUnusable(path=path, why="a newer version of zerochat has written it")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute(f"PRAGMA max_page_count = {FILE_PAGES_MAX}")
            if version < FORMAT:
                self._db.executescript(_SCHEMA + f"PRAGMA user_version = {FORMAT};")
        except sqlite3.Error as error:
            raise StoreUnusable(path=path, why=error) from error
        except OSError as error:
            raise StoreUnusable(path=path, why=(error.strerror or str(error)).lower()) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._db.close()

    @contextmanager
    def using(self) -> Iterator[sqlite3.Connection]:
        """One transaction, which is on disk when the block has ended."""
        with self._lock:
            try:
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

    def bury(self, letter: DeadLetter) -> None:
        """Keep what could not be handled. The same event and handler again takes the place of the one before."""
        with self.using() as db:
            db.execute("DELETE FROM dead WHERE event = ? AND handler = ?", (letter.event, letter.handler))
            db.execute(
                "INSERT INTO dead (event, group_id, type, handler, error, attempts, at, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    *(letter.event, letter.group, letter.type, letter.handler, letter.error[:ERROR_CHARS_MAX]),
                    *(letter.attempts, letter.at, letter.body),
                ),
            )
            gone = db.execute("DELETE FROM dead WHERE id <= (SELECT max(id) FROM dead) - ?", (DEAD_MAX,)).rowcount
            if gone > 0:
                db.execute(
                    "INSERT INTO facts VALUES ('gone', ?) ON CONFLICT (name) DO UPDATE SET number = number + ?",
                    (gone, gone),
                )

    def dead(self, *, again: bool = False) -> list[DeadLetter]:
        """The dead letters, oldest first; `again`: those that somebody wants to be tried again."""
        with self.using() as db:
            rows = db.execute(
                "SELECT id, event, group_id, type, handler, error, attempts, at, body FROM dead"
                " WHERE again >= ? ORDER BY id",
                (int(again),),
            ).fetchall()
        return [DeadLetter(*row) for row in rows]

    def gone(self) -> int:
        """How many dead letters have made room for later ones."""
        with self.using() as db:
            row = db.execute("SELECT number FROM facts WHERE name = 'gone'").fetchone()
        return int(row[0]) if row else 0

    def want(self, letter: int | None) -> int:
        """Have the bot try a dead letter again (None: all of them); how many there are of those."""
        with self.using() as db:
            if letter is None:
                return db.execute("UPDATE dead SET again = 1").rowcount
            return db.execute("UPDATE dead SET again = 1 WHERE id = ?", (letter,)).rowcount

    def forget(self, letter: int | None) -> int:
        """Throw a dead letter away (None: all of them); how many have gone."""
        with self.using() as db:
            if letter is None:
                return db.execute("DELETE FROM dead").rowcount
            return db.execute("DELETE FROM dead WHERE id = ?", (letter,)).rowcount

    # --- what is begun ----------------------------------------------------------------------------------------------

    def beginning(self, event: str) -> int:
        """A handler begins with something that came once more: how often that has been, this time with it."""
        with self.using() as db:
            db.execute("INSERT INTO begun VALUES (?, 1) ON CONFLICT (event) DO UPDATE SET times = times + 1", (event,))
            return int(db.execute("SELECT times FROM begun WHERE event = ?", (event,)).fetchone()[0])

    def ended(self, event: str) -> None:
        with self.using() as db:
            db.execute("DELETE FROM begun WHERE event = ?", (event,))

    # --- what is put aside ------------------------------------------------------------------------------------------

    def put_aside(self, found: Iterable[Aside]) -> None:
        """Keep what waits, behind what is kept already; it is on disk when this returns."""
        with self.using() as db:
            rows = [(one.group, one.event, one.body) for one in found]
            db.executemany("INSERT OR IGNORE INTO aside (group_id, event, body) VALUES (?, ?, ?)", rows)

    def aside(self, group: str, limit: int) -> list[Aside]:
        """The first of what waits for a group, in its order."""
        with self.using() as db:
            rows = db.execute(
                "SELECT group_id, event, body FROM aside WHERE group_id = ? ORDER BY number LIMIT ?", (group, limit)
            ).fetchall()
        return [Aside(*row) for row in rows]

    def aside_groups(self) -> list[str]:
        """For which groups something waits."""
        with self.using() as db:
            return [group for (group,) in db.execute("SELECT DISTINCT group_id FROM aside ORDER BY group_id")]

    def aside_ids(self) -> set[str]:
        with self.using() as db:
            return {event for (event,) in db.execute("SELECT event FROM aside")}

    def drop_aside(self, events: Iterable[str]) -> None:
        with self.using() as db:
            db.executemany("DELETE FROM aside WHERE event = ?", [(event,) for event in events])

    # --- what was refuted before its turn ---------------------------------------------------------------------------

    def refute(self, group: str, event: str) -> None:
        """What was put aside was never said, as it stands now; it may come anew."""
        with self.using() as db:
            db.execute("DELETE FROM aside WHERE event = ?", (event,))
            db.execute("INSERT OR IGNORE INTO refuted (group_id, event) VALUES (?, ?)", (group, event))
            db.execute("DELETE FROM refuted WHERE number <= (SELECT max(number) FROM refuted) - ?", (REFUTED_MAX,))

    def refuted(self) -> dict[str, str]:
        """Whose group it is by the event's id, oldest first."""
        with self.using() as db:
            return dict(db.execute("SELECT event, group_id FROM refuted ORDER BY number"))

    def put_back(self, group: str, event: str) -> None:
        """It has come anew: it waits again, behind what waits already."""
        with self.using() as db:
            db.execute("DELETE FROM refuted WHERE event = ?", (event,))
            db.execute("INSERT OR IGNORE INTO aside (group_id, event, body) VALUES (?, ?, '')", (group, event))

    def drop_refuted(self, event: str) -> None:
        with self.using() as db:
            db.execute("DELETE FROM refuted WHERE event = ?", (event,))

    # --- timers -----------------------------------------------------------------------------------------------------

    def ran(self, timer: str) -> float | None:
        """When a timer was last due that has run, UTC seconds; None: never."""
        with self.using() as db:
            row = db.execute("SELECT ran FROM timers WHERE name = ?", (timer,)).fetchone()
        return float(row[0]) if row else None

    def run(self, timer: str, moment: float) -> None:
        with self.using() as db:
            db.execute("INSERT OR REPLACE INTO timers VALUES (?, ?)", (timer, moment))
