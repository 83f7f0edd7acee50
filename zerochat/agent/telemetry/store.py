"""Facts as the journal has them: batches that are only ever appended, and the names that their numbers stand for.

The journal is encrypted, so they rest as safely as the log does. No name stands in a batch; when a group is forgotten
its names go, and whoever reads its facts later finds nobody in them (`Journal.forget`). A batch is written in a
transaction of its own: a power cut loses the last few seconds of facts and never half of a batch. With it goes a mark:
up to where the log is recorded, so that whoever begins to record again knows whether anything came meanwhile.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.storage.tables import SET, UNSET
from zerochat.agent.telemetry.schema import Fact, pack_rows, time_field

BATCH_ROWS_MAX: Final = 2_000
"""Facts in one batch."""
DAY_US: Final = 86_400_000_000
AGE_US: Final = 3_600_000_000
"""How often it is looked for what is too old: each time, all that there is has to be looked at."""
_SHED: Final = 64
"""Batches that are looked at together when some have to go."""
_ROOM: Final = 1 / 16
"""So much room is made where there was none, so that not every batch has to make some."""
_MARK: Final = "telemetry_mark"
"""In a journal's meta: the local number of the last event of which there are facts, and until when, in microseconds."""
_PUT: Final = "INSERT INTO telemetry (first_us, last_us, rows, data) VALUES (?, ?, ?, ?)"
_NAME: Final = "INSERT OR IGNORE INTO telemetry_names (number, group_id, name) VALUES (?, ?, ?)"
_SUMS: Final = """
SELECT coalesce(sum(rows), 0), coalesce(sum(length(data)), 0), coalesce(min(first_us), 0), coalesce(max(last_us), 0)
FROM telemetry
"""
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM events"
_BEHIND: Final = "SELECT DISTINCT group_id, author FROM events WHERE seq > ?"
_OLDEST: Final = "SELECT number, length(data) FROM telemetry ORDER BY number LIMIT ?"
_PAGE: Final = "SELECT number, first_us, last_us, rows, data FROM telemetry WHERE number > ? ORDER BY number LIMIT ?"
_NEWEST: Final = "SELECT number, first_us, last_us, rows, data FROM telemetry ORDER BY number DESC LIMIT ?"
_NAMES: Final = "SELECT number, group_id, name FROM telemetry_names WHERE number > ? ORDER BY number LIMIT ?"


class Batch(Struct, frozen=True):
    number: int
    first_us: int
    last_us: int
    """When its first and its last fact were; those in between may be a little beyond."""
    rows: int
    data: bytes
    """As `rows.unpack_rows` reads it."""


class Sums(Struct):
    """All that there is."""

    rows: int
    bytes: int
    first_us: int
    last_us: int
    """0: there is nothing."""


class Store:
    """The telemetry of one journal. Every method raises what the journal raises."""

    def __init__(
        self,
        db: apsw.Connection,
        faults: Callable[[], AbstractContextManager[None]],
        transaction: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._db, self._faults, self._transaction = db, faults, transaction
        self._numbers: dict[tuple[str, str], int] = {}
        self._unwritten: dict[tuple[str, str], int] = {}
        """Names that are on disk with the next batch."""
        self._last_number: int | None = None
        self._sums: Sums | None = None
        self._aged_us = 0
        """When it was last looked for what is too old."""

    # --- what there is ----------------------------------------------------------------------------------------------

    def sums(self) -> Sums:
        if self._sums is not None:
            return replace(self._sums)
        with self._faults():
            rows: Sequence[Any] = self._db.execute(_SUMS).fetchall()
        return Sums(*rows[0])

    def batches(self, after: int, limit: int) -> list[Batch]:
        """The first `limit` batches behind a number."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(_PAGE, (after, limit))
            return [Batch(*row) for row in rows]

    def newest(self, limit: int) -> list[Batch]:
        """The last `limit` batches, oldest first."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(_NEWEST, (limit,)).fetchall()
            return [Batch(*row) for row in reversed(rows)]

    def names(self, after: int, limit: int) -> list[tuple[int, str, str]]:
        """The first `limit` names behind a number: number, group and name. The name of a group itself is empty."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(_NAMES, (after, limit))
            return [(number, group, name) for number, group, name in rows]

    def recorded(self, me: Mapping[str, str], now_us: int) -> int:
        """Up to when there are facts of all that has come; now, where something has come of which there are none. `me`:
        who the observer is, by group."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute("SELECT value FROM meta WHERE key = ?", (_MARK,)).fetchall()
            if not rows:
                return now_us
            event, _, until = rows[0][0].partition(b" ")
            behind: Iterable[Any] = self._db.execute(_BEHIND, (int(event),)).fetchall()
        came = any(me.get(group) != author for group, author in behind)
        return now_us if came else min(int(until), now_us)

    # --- what changes it --------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Somebody begins to record: what was known from before may be of names that have gone meanwhile."""
        self._numbers.clear()
        self._unwritten.clear()
        self._last_number = self._sums = None

    def number(self, group: str, name: str = "") -> int:
        """The number that stands for a name in a group, or for the group itself. It is on disk with the next batch."""
        known = self._numbers.get((group, name))
        if known is None:
            known = self._numbers[group, name] = self._known(group, name) or self._new(group, name)
        return known

    def forgot(self, group: str) -> None:
        """The journal has forgotten a group, and with it the group's names."""
        for known in (self._numbers, self._unwritten):
            for key in [key for key in known if key[0] == group]:
                del known[key]

    def append(self, rows: Sequence[Fact], now_us: int, bytes_max: int, days_max: int, *, whole: bool) -> None:
        """Write one batch, and drop the oldest for which there is no more room, or time. `whole`: after it there are
        facts of all that is in the log."""
        times = [getattr(row, time_field(type(row))) for row in (rows[0], rows[-1])]
        data = pack_rows(rows)
        sums = self._sums = self.sums()
        aged = not 0 <= now_us - self._aged_us < AGE_US
        try:
            with self._transaction():
                if self._unwritten:
                    named = [(number, *key) for key, number in self._unwritten.items()]
                    self._db.executemany(_NAME, named)
                self._db.execute(_PUT, (min(times), max(times), len(rows), data))
                if whole:
                    self._db.execute(SET, (_MARK, f"{self._last_event()} {now_us}".encode()))
                full = sums.bytes + len(data) > bytes_max
                if aged:
                    self._age(now_us - days_max * DAY_US)
                if full:
                    self._shed(int(bytes_max * (1 - _ROOM)))
        except BaseException:
            self._sums = None
            raise
        self._unwritten.clear()
        if aged:
            self._aged_us = now_us
        if aged or full or not sums.first_us:
            self._sums = None
        else:
            sums.rows, sums.bytes = sums.rows + len(rows), sums.bytes + len(data)
            sums.first_us, sums.last_us = min(sums.first_us, *times), max(sums.last_us, *times)

    def age(self, now_us: int, days_max: int) -> None:
        """Drop what is too old, where nothing is recorded any more."""
        with self._transaction():
            self._age(now_us - days_max * DAY_US)
        self._sums = None

    def delete(self) -> int:
        """Remove everything; how many facts there were. SQLite overwrites them (secure_delete)."""
        rows = self.sums().rows
        with self._transaction():
            self._db.execute("DELETE FROM telemetry")
            self._db.execute("DELETE FROM telemetry_names")
            self._db.execute(UNSET, (_MARK,))
        self._numbers.clear()
        self._unwritten.clear()
        self._sums = None
        return rows

    # --- inside -----------------------------------------------------------------------------------------------------

    def _known(self, group: str, name: str) -> int:
        with self._faults():
            query = "SELECT number FROM telemetry_names WHERE group_id = ? AND name = ?"
            rows: Sequence[Any] = self._db.execute(query, (group, name)).fetchall()
            return int(rows[0][0]) if rows else 0

    def _new(self, group: str, name: str) -> int:
        """A number that was never used: else facts that are left of one name would be taken for another's."""
        if self._last_number is None:
            with self._faults():
                query = "SELECT seq FROM sqlite_sequence WHERE name = 'telemetry_names'"
                rows: Sequence[Any] = self._db.execute(query).fetchall()
                self._last_number = int(rows[0][0]) if rows else 0
        self._last_number += 1
        self._unwritten[group, name] = self._last_number
        return self._last_number

    def _last_event(self) -> int:
        rows: Sequence[Any] = self._db.execute(_LAST).fetchall()
        return int(rows[0][0])

    def _age(self, since_us: int) -> None:
        """Drop the batches of which nothing is from then on, wherever they are: clocks are set."""
        self._db.execute("DELETE FROM telemetry WHERE last_us < ?", (since_us,))

    def _shed(self, bytes_max: int) -> None:
        """Drop the oldest batches, until no more than that is left."""
        rows: Sequence[Any] = self._db.execute("SELECT coalesce(sum(length(data)), 0) FROM telemetry").fetchall()
        size = int(rows[0][0])
        while size > bytes_max:
            border = 0
            oldest: Sequence[Any] = self._db.execute(_OLDEST, (_SHED,)).fetchall()
            for number, length in oldest:
                if size <= bytes_max:
                    break
                border, size = number, size - length
            self._db.execute("DELETE FROM telemetry WHERE number <= ?", (border,))
