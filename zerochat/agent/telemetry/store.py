"""Telemetry store: append-only batches in the encrypted journal, with a table of names.

Batches contain numbers instead of names; forgetting a group deletes its names (`Journal.forget`). Each batch is one
transaction, so a power cut loses the last seconds and never half a batch. A mark stored with it says how far the event
log is recorded: the next recorder detects whether events arrived in between.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
from msgspec import Struct
from msgspec.structs import replace

from zerochat.agent.storage.tables import DELETE_META, SET_META
from zerochat.agent.telemetry.schema import Record, pack_rows, time_field

BATCH_ROWS_MAX: Final = 2_000
"""Records in one batch."""
DAY_US: Final = 86_400_000_000
EXPIRY_CHECK_US: Final = 3_600_000_000
"""Interval of expiry scans, us; a scan reads the whole table."""
_EVICT_BATCHES: Final = 64
"""Batches examined at a time during eviction."""
_EVICT_MARGIN: Final = 1 / 16
"""Share of the size limit that an eviction frees, so that not every append evicts."""
_MARK: Final = "telemetry_mark"
"""Key in the journal's `meta` table: local number of the last recorded event, and the end of the interval in us."""
_PUT: Final = "INSERT INTO telemetry (first_us, last_us, rows, data) VALUES (?, ?, ?, ?)"
_NAME: Final = "INSERT OR IGNORE INTO telemetry_names (number, group_id, name) VALUES (?, ?, ?)"
_SUMS: Final = """
SELECT coalesce(sum(rows), 0), coalesce(sum(length(data)), 0), coalesce(min(first_us), 0), coalesce(max(last_us), 0)
FROM telemetry
"""
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM events"
_AUTHORS_AFTER: Final = "SELECT DISTINCT group_id, author FROM events WHERE seq > ?"
_OLDEST: Final = "SELECT number, length(data) FROM telemetry ORDER BY number LIMIT ?"
_PAGE: Final = "SELECT number, first_us, last_us, rows, data FROM telemetry WHERE number > ? ORDER BY number LIMIT ?"
_NEWEST: Final = "SELECT number, first_us, last_us, rows, data FROM telemetry ORDER BY number DESC LIMIT ?"
_NAMES: Final = "SELECT number, group_id, name FROM telemetry_names WHERE number > ? ORDER BY number LIMIT ?"


class Batch(Struct, frozen=True):
    number: int
    first_us: int
    last_us: int
    """Times of the first and last record; others may lie slightly outside."""
    rows: int
    data: bytes
    """Input of `schema.unpack_rows`."""


class Sums(Struct):
    """Totals of the stored batches."""

    rows: int
    bytes: int
    first_us: int
    last_us: int
    """0: no records."""


class TelemetryStore:
    """The telemetry of one journal. Every method raises the journal's errors."""

    def __init__(
        self,
        db: apsw.Connection,
        faults: Callable[[], AbstractContextManager[None]],
        transaction: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._db, self._faults, self._transaction = db, faults, transaction
        self._numbers: dict[tuple[str, str], int] = {}
        self._unwritten: dict[tuple[str, str], int] = {}
        """Names that the next batch will store."""
        self._last_number: int | None = None
        self._sums: Sums | None = None
        self._expired_us = 0
        """Time of the last expiry scan, us."""

    # --- reading ----------------------------------------------------------------------------------------------------

    def sums(self) -> Sums:
        if self._sums is not None:
            return replace(self._sums)
        with self._faults():
            rows: Sequence[Any] = self._db.execute(_SUMS).fetchall()
        return Sums(*rows[0])

    def batches(self, after: int, limit: int) -> list[Batch]:
        """The first `limit` batches after a number."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(_PAGE, (after, limit))
            return [Batch(*row) for row in rows]

    def newest(self, limit: int) -> list[Batch]:
        """The last `limit` batches, oldest first."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(_NEWEST, (limit,)).fetchall()
            return [Batch(*row) for row in reversed(rows)]

    def names(self, after: int, limit: int) -> list[tuple[int, str, str]]:
        """The first `limit` names after a number: number, group, name (empty for the group itself)."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(_NAMES, (after, limit))
            return [(number, group, name) for number, group, name in rows]

    def recorded_until(self, me: Mapping[str, str], now_us: int) -> int:
        """End of the completely recorded interval, us; `now_us` when events arrived unrecorded. `me`: the observer's
        DID by group."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute("SELECT value FROM meta WHERE key = ?", (_MARK,)).fetchall()
            if not rows:
                return now_us
            event, _, until = rows[0][0].partition(b" ")
            behind: Iterable[Any] = self._db.execute(_AUTHORS_AFTER, (int(event),)).fetchall()
        came = any(me.get(group) != author for group, author in behind)
        return now_us if came else min(int(until), now_us)

    # --- writing ----------------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Clear the caches when recording starts: names may have been deleted meanwhile."""
        self._numbers.clear()
        self._unwritten.clear()
        self._last_number = self._sums = None

    def number(self, group: str, name: str = "") -> int:
        """The number of a name in a group, or of the group itself; stored with the next batch."""
        known = self._numbers.get((group, name))
        if known is None:
            known = self._numbers[group, name] = self._stored_number(group, name) or self._new_number(group, name)
        return known

    def forget(self, group: str) -> None:
        """The journal forgot a group and deleted its names."""
        for known in (self._numbers, self._unwritten):
            for key in [key for key in known if key[0] == group]:
                del known[key]

    def append(self, rows: Sequence[Record], now_us: int, bytes_max: int, days_max: int, *, complete: bool) -> None:
        """Write one batch and delete expired and excess ones. `complete`: the event log is now recorded to its end."""
        times = [getattr(row, time_field(type(row))) for row in (rows[0], rows[-1])]
        data = pack_rows(rows)
        sums = self._sums = self.sums()
        aged = not 0 <= now_us - self._expired_us < EXPIRY_CHECK_US
        try:
            with self._transaction():
                if self._unwritten:
                    named = [(number, *key) for key, number in self._unwritten.items()]
                    self._db.executemany(_NAME, named)
                self._db.execute(_PUT, (min(times), max(times), len(rows), data))
                if complete:
                    self._db.execute(SET_META, (_MARK, f"{self._last_event()} {now_us}".encode()))
                full = sums.bytes + len(data) > bytes_max
                if aged:
                    self._expire(now_us - days_max * DAY_US)
                if full:
                    self._evict(int(bytes_max * (1 - _EVICT_MARGIN)))
        except BaseException:
            self._sums = None
            raise
        self._unwritten.clear()
        if aged:
            self._expired_us = now_us
        if aged or full or not sums.first_us:
            self._sums = None
        else:
            sums.rows, sums.bytes = sums.rows + len(rows), sums.bytes + len(data)
            sums.first_us, sums.last_us = min(sums.first_us, *times), max(sums.last_us, *times)

    def expire(self, now_us: int, days_max: int) -> None:
        """Delete expired batches while recording is off."""
        with self._transaction():
            self._expire(now_us - days_max * DAY_US)
        self._sums = None

    def delete(self) -> int:
        """Delete everything; return the number of records. SQLite overwrites them (`secure_delete`)."""
        rows = self.sums().rows
        with self._transaction():
            self._db.execute("DELETE FROM telemetry")
            self._db.execute("DELETE FROM telemetry_names")
            self._db.execute(DELETE_META, (_MARK,))
        self._numbers.clear()
        self._unwritten.clear()
        self._sums = None
        return rows

    # --- inside -----------------------------------------------------------------------------------------------------

    def _stored_number(self, group: str, name: str) -> int:
        with self._faults():
            query = "SELECT number FROM telemetry_names WHERE group_id = ? AND name = ?"
            rows: Sequence[Any] = self._db.execute(query, (group, name)).fetchall()
            return int(rows[0][0]) if rows else 0

    def _new_number(self, group: str, name: str) -> int:
        """A number that was never used, so that old records of a deleted name are not attributed to a new one."""
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

    def _expire(self, since_us: int) -> None:
        """Delete the batches that end before `since_us`, anywhere in the table: clocks may be set back."""
        self._db.execute("DELETE FROM telemetry WHERE last_us < ?", (since_us,))

    def _evict(self, bytes_max: int) -> None:
        """Delete the oldest batches until at most `bytes_max` remain."""
        rows: Sequence[Any] = self._db.execute("SELECT coalesce(sum(length(data)), 0) FROM telemetry").fetchall()
        size = int(rows[0][0])
        while size > bytes_max:
            border = 0
            oldest: Sequence[Any] = self._db.execute(_OLDEST, (_EVICT_BATCHES,)).fetchall()
            for number, length in oldest:
                if size <= bytes_max:
                    break
                border, size = number, size - length
            self._db.execute("DELETE FROM telemetry WHERE number <= ?", (border,))
