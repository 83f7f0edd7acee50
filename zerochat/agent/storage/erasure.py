"""Erasure of expired content: rows, index, drafts, receipts and write-ahead log, in bounded slices.

The core orders an erasure with a commit (`EraseContent`); the order stays in the journal until it is done, so a crash
delays it and no more. Each slice is a transaction of its own between two batches. SQLite overwrites what is deleted
(`secure_delete`), the full-text index forgets deleted words by merging its segments, and at the end the file shrinks
(incremental vacuum) and the write-ahead log, which has older versions of pages, is truncated. Afterwards no page of the
file or of its log has the content. What the disk itself keeps of overwritten blocks is beyond a program's reach, and
encrypted.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw

from zerochat.agent.api.subscriptions.store import SubscriptionStore
from zerochat.agent.storage import search_index
from zerochat.errors import LocalError, RemoteError
from zerochat.group.effects import EraseContent
from zerochat.group.event_log.event import EXPIRED, LASTING, load_event

SLICE_ROWS: Final = 32
"""Rows of one slice, of others and of our own: about 4 ms of work, 50 if the index merges its segments meanwhile. The
agent does nothing else for that time."""
MERGE_PAGES: Final = 32
"""Pages of the index that one slice merges."""
VACUUM_PAGES: Final = 64
"""Free pages that one slice returns to the file system."""
DRAFT_PREFIX: Final = "draft:"
"""Prefix of the keys in `meta` that hold drafts, followed by the group's id, `/` and the client (`drafts.py`)."""
DRAFT_TIME_BYTES: Final = 8
PAUSE_S, IDLE_S, RETRY_S, TRACES_S = 0.05, 1.0, 60.0, 600.0
"""Pause between two slices, where nothing is due, after an error, and from one removal of traces to the next, which
reads all of the index."""
ERASURE_SCHEMA: Final = """
CREATE TABLE erasures (
    group_id TEXT PRIMARY KEY,
    before INTEGER NOT NULL,
    ruled INTEGER NOT NULL,
    me TEXT NOT NULL,
    own_upto INTEGER NOT NULL,
    erased_before INTEGER NOT NULL DEFAULT 0,
    own_erased INTEGER NOT NULL DEFAULT 0,
    due INTEGER NOT NULL DEFAULT 1,
    traces INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
"""
"""The last order of each group, how far it is done in the log of others and in our own chain, and whether rows are due
(0 or 1). `traces`: whether deleted rows have left traces: 0: none; 1 and 2: their removal is to begin, or has begun."""
_ORDER = """
INSERT INTO erasures (group_id, before, ruled, me, own_upto) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (group_id) DO UPDATE SET
    before = excluded.before, ruled = excluded.ruled, me = excluded.me, own_upto = excluded.own_upto, due = 1
"""
_DUE = "SELECT group_id, before, ruled, me, own_upto, erased_before, own_erased FROM erasures WHERE due = 1 LIMIT 1"
_LASTING = ", ".join(repr(type_) for type_ in sorted({*LASTING, EXPIRED}))
_CONTENT = f"type NOT IN ({_LASTING})"
_OTHERS = f"""
SELECT seq, id, lamport, position, record FROM events
WHERE group_id = ? AND refuted = 0 AND type <> '{EXPIRED}' AND lamport >= ? AND lamport < ?
AND author <> ? AND {_CONTENT}
ORDER BY lamport LIMIT ?
"""  # noqa: S608  # the types above
_OWN = """
SELECT seq, id, lamport, position, record, type FROM events
WHERE group_id = ? AND refuted = 0 AND author = ? AND position > ? ORDER BY position LIMIT ?
"""
_REFUTED = f"""
SELECT seq, id, lamport, position, record FROM events
WHERE group_id = ? AND refuted = 1 AND lamport < ? AND {_CONTENT} LIMIT ?
"""  # noqa: S608
_FILE_NOTIFICATIONS = "DELETE FROM notifications WHERE group_id = ? AND at < ? AND type = 'file_changed'"
_DRAFTS = "SELECT key, value FROM meta WHERE key >= ? AND key < ?"
_ERASE = "UPDATE events SET type = ?, record = ?, target = '' WHERE seq = ?"
_SIGNED = "DELETE FROM signed WHERE group_id = ? AND time < ? AND author <> ?"
_OWN_SIGNED = "DELETE FROM signed WHERE group_id = ? AND author = ? AND upto <= ?"
_PROGRESS = """
UPDATE erasures SET erased_before = ?, own_erased = ?, due = ?, traces = iif(?, 1, traces) WHERE group_id = ?
"""


class ErasureStore:
    """The erasures of one journal. Methods raise what every method of `Journal` may raise."""

    def __init__(
        self,
        db: apsw.Connection,
        faults: Callable[[], AbstractContextManager[None]],
        transaction: Callable[[], AbstractContextManager[None]],
        stream: SubscriptionStore,
    ) -> None:
        self._db, self._faults, self._transaction, self._stream = db, faults, transaction, stream
        self.cleared = 0
        """How often the traces of erased content were removed."""

    def order(self, one: EraseContent) -> None:
        """Note an erasure, within the batch's transaction."""
        self._db.execute(_ORDER, (one.group, one.before, one.ruled, one.me, one.own_upto))

    def forget(self, group: str) -> None:
        """Delete what belongs to a group, within the batch's transaction."""
        self._db.execute("DELETE FROM erasures WHERE group_id = ?", (group,))

    def erase_slice(self, *, traces: bool = True) -> bool:
        """Do the next slice; false: nothing is due. `traces`: also of the removal of traces."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(_DUE).fetchall()
        if rows:
            self._erase_rows(*rows[0])
            return True
        with self._faults():
            left: Sequence[Any] = self._db.execute("SELECT max(traces = 1) FROM erasures WHERE traces > 0").fetchall()
        ((begin,),) = left
        if begin is None or not traces:
            return False
        if self._clear_traces(begin=bool(begin)):
            self._truncate_log()
        return True

    # --- rows -------------------------------------------------------------------------------------------------------

    def _erase_rows(
        self, group: str, before: int, ruled: int, me: str, own_upto: int, erased_before: int, own_erased: int
    ) -> None:
        """Erase one slice of a group; the last one also erases what is no row of the log."""
        with self._transaction():
            before_all = self._db.total_changes()
            refuted: Sequence[Any] = self._db.execute(_REFUTED, (group, before, SLICE_ROWS)).fetchall()
            others: Sequence[Any] = self._db.execute(_OTHERS, (group, erased_before, before, me, SLICE_ROWS)).fetchall()
            own: Sequence[Any] = self._db.execute(_OWN, (group, me, own_erased, SLICE_ROWS)).fetchall()
            expired = [row for row in own if row[2] < ruled or (row[2] < before and row[3] <= own_upto)]
            for seq, event, _, _, record in (*refuted, *others, *(row[:5] for row in expired if _has_content(row[5]))):
                self._erase(seq, event, record)
            is_last = max(len(refuted), len(others), len(expired)) < SLICE_ROWS
            own_erased = expired[-1][3] if expired else own_erased
            progress = before if len(others) < SLICE_ROWS else others[-1][2]
            if is_last:
                self._erase_rest(group, before, me, own_erased)
            has_changed = self._db.total_changes() > before_all
            self._db.execute(_PROGRESS, (progress, own_erased, not is_last, has_changed, group))

    def _erase(self, seq: int, event: str, record: bytes) -> None:
        try:
            header = load_event(record).erased().record
        except RemoteError:
            header = b"{}"
        search_index.remove(self._db, seq)
        self._db.execute(_ERASE, (EXPIRED, header, seq))

    def _erase_rest(self, group: str, before: int, me: str, own_erased: int) -> None:
        """Erase signed messages, names of files in notifications, digests of requests, receipts and drafts."""
        self._db.execute(_SIGNED, (group, before, me))
        self._db.execute(_OWN_SIGNED, (group, me, own_erased))
        self._db.execute(_FILE_NOTIFICATIONS, (group, before))
        for table in ("keys", "receipts"):
            self._db.execute(f"DELETE FROM {table} WHERE group_id = ? AND at < ?", (group, before))  # noqa: S608
        self._stream.rolled_back()  # it reads the tables again
        below = f"{DRAFT_PREFIX}{group}/"
        drafts: Sequence[Any] = self._db.execute(_DRAFTS, (below, below[:-1] + "0")).fetchall()
        old = [(key,) for key, value in drafts if drafted_at(value) < before]
        self._db.executemany("DELETE FROM meta WHERE key = ?", old)

    # --- traces -----------------------------------------------------------------------------------------------------

    def _clear_traces(self, *, begin: bool) -> bool:
        """Merge the index, then shrink the file, one slice; whether both are done."""
        with self._transaction():
            is_merged = search_index.merge(self._db, MERGE_PAGES, begin=begin)
            self._db.execute("UPDATE erasures SET traces = 2 WHERE traces = 1")
        if not is_merged or begin:
            return False
        with self._faults():
            self._db.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
            return not self._db.pragma("freelist_count")

    def _truncate_log(self) -> None:
        """Write all pages to the file, and empty the write-ahead log. A crash before that leaves the order due."""
        with self._faults():
            self._db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        with self._transaction():
            self._db.execute("UPDATE erasures SET traces = 0 WHERE traces = 2")
        self.cleared += 1


def drafted_at(value: bytes) -> int:
    """When a draft was stored, UTC ms: the first bytes of its value."""
    return int.from_bytes(value[:DRAFT_TIME_BYTES])


def _has_content(type_: str) -> bool:
    return type_ != EXPIRED and type_ not in LASTING


class Eraser:
    """Runs the erasures of one journal between the batches."""

    def __init__(self, store: ErasureStore, log: logging.Logger) -> None:
        self._store, self._log = store, log
        self._due = self._traces_at = 0.0
        self._is_busy = False

    def run_if_due(self) -> float | None:
        """Do the next slice, if it is time. Returns when the next one is due, on the monotonic clock; None: nothing is
        to be erased now."""
        now = time.monotonic()
        if now < self._due:
            return self._due if self._is_busy else None
        cleared = self._store.cleared
        try:
            self._is_busy = self._store.erase_slice(traces=now >= self._traces_at)
        except LocalError as error:
            self._due, self._is_busy = now + RETRY_S, True
            self._log.error("expired content could not be erased: %s", error.code)
            return self._due
        if self._store.cleared != cleared:
            self._traces_at = now + TRACES_S
        self._due = now + (PAUSE_S if self._is_busy else IDLE_S)
        return self._due if self._is_busy else None
