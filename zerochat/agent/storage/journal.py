"""Journal: one profile's state and event log in an encrypted SQLite file that survives a power cut.

It holds the *checkpoint* (the core's state in parts, `state_parts.py`), the event *log* in delivery order, the
*receipts* (since when a member has which events), the bots' *stream* and its consumers (`api/subscriptions/store.py`),
signed messages (`signed_messages.py`), transparency logs (`tlog.py`), dispute cases (`disputes.py`), *meta* (what the
agent needs before it has a state), and telemetry, if enabled (`telemetry/store.py`). The state and events of a batch
are written in one transaction, and are on disk when `commit` returns; nothing is sent or shown before.

An event relayed by a member who is not its author is unconfirmed until the author's own chain confirms or refutes it. A
refuted event stays in the log for inspection (`refuted`), and no other query returns it.

`database.py` opens and encrypts the file. A rollback to an older copy of the file cannot be detected here, only by
comparison with peers.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import apsw
from msgspec import Struct

from zerochat.agent.api.subscriptions.store import SubscriptionRecords, SubscriptionStore
from zerochat.agent.storage import search_index
from zerochat.agent.storage.database import (
    BUSY_MS,
    KEY_BYTES,
    CipherMissing,
    DiskFailed,
    DiskFull,
    DiskReadOnly,
    JournalDamaged,
    JournalInUse,
    NotAJournal,
    UnsupportedJournal,
    WrongKey,
    check_pages,
    copy_database,
    create_database,
    disk_error,
    open_database,
    sqlite_errors,
    transaction,
    verify_pages,
)
from zerochat.agent.storage.disputes import CaseStore
from zerochat.agent.storage.erasure import DRAFT_PREFIX, ErasureStore
from zerochat.agent.storage.erasure_key import ErasureKey, erasure_key_path
from zerochat.agent.storage.log_queries import LogQueries, NoSuchEvent
from zerochat.agent.storage.signed_messages import SignedMessageStore
from zerochat.agent.storage.state_parts import UnreadablePart, assemble, changes, is_erasable, parts_of
from zerochat.agent.storage.tables import (
    CONFIRM_EVENTS,
    COUNT_RECEIPTS,
    DELETE_META,
    DELETE_OLD_RECEIPTS,
    DELETE_PARTS,
    DELETE_SEALED_PARTS,
    DELETE_TELEMETRY_NAMES,
    FORMAT,
    INSERT_EVENT,
    INSERT_RECEIPT,
    META_BELOW,
    READ_PREFIX,
    REFUTE_EVENTS,
    SCHEMA,
    SEALED_PARTS,
    SET_META,
    WRITE_PART,
    WRITE_SEALED_PART,
    EventReceipt,
    Row,
    values_of,
)
from zerochat.agent.storage.tlog import TlogStore
from zerochat.closing import Closing
from zerochat.errors import LocalError
from zerochat.group.effects import (
    ConfirmEvents,
    DeleteBlobs,
    DeleteLog,
    EraseContent,
    FreezeSignedAcks,
    JournalEffect,
    RefuteEvents,
    StoreBlob,
    StoreCheckpoint,
    StoreConflictingMessage,
    StoreEvent,
    StoreReceipt,
    StoreRejectedMessage,
    StoreSignedAck,
    StoreSignedMessage,
    StoreStatement,
    StoreTlog,
    StoreTlogEntries,
)
from zerochat.group.event_log.event import POST

if TYPE_CHECKING:
    from zerochat.agent.telemetry.store import TelemetryStore

S = TypeVar("S")

__all__ = [
    "KEY_BYTES",
    "CipherMissing",
    "DiskFailed",
    "DiskFull",
    "DiskReadOnly",
    "EventReceipt",
    "Journal",
    "JournalDamaged",
    "JournalInUse",
    "JournalSizes",
    "NoSuchEvent",
    "NotAJournal",
    "Row",
    "UnsupportedJournal",
    "WrongKey",
    "disk_error",
]


class JournalSizes(Struct, frozen=True):
    """Size and row counts of a journal."""

    disk_bytes: int
    """Size of the file and its write-ahead log."""
    events: int
    parts: int
    """Rows of the checkpoint table."""


class Journal(LogQueries, Closing):
    """An open journal, used by one thread at a time. A context manager that closes it.

    Every method may raise DiskFull, DiskReadOnly, DiskFailed or JournalDamaged; a write is then rolled back and can be
    retried.
    """

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._db = connection
        self.stream = SubscriptionStore(connection, self._faults, self._transaction)
        """The bots' stream, its consumers, and idempotency keys."""
        self.signed_messages = SignedMessageStore(connection, self._faults)
        """Signed streams of groups with a signing key mode."""
        self.tlog = TlogStore(connection, self._faults)
        """Transparency logs of accountable groups."""
        self.cases = CaseStore(connection, self._faults, self._transaction)
        """Dispute cases in which we are accuser or accused."""
        self.erasures = ErasureStore(connection, self._faults, self._transaction, self.stream)
        """Expired content that is to be erased."""
        self._erasure_key = ErasureKey(erasure_key_path(path))
        self.has_used_keys = False
        """Whether sealed parts have changed since they were last sealed anew (`erase_used_keys`)."""
        self._telemetry: TelemetryStore | None = None
        self._written: object | None = None
        """The state of the checkpoint on disk, if `_read`; changed parts are found by comparing identities with it."""
        self._read = False
        self._afresh = False
        self._copy: Callable[[Path], Generator[tuple[int, int], None, None]] | None = None
        self._reread: Callable[[int, int], int] | None = None
        self._unindexed: tuple[int, int] | None = None
        """The local number up to which posts are in the full-text index, and the bytes of the others; None: unknown."""
        self._receipts: dict[tuple[str, str], int] = {}
        """Receipt counts by group and member, as far as they are known."""
        self.revision = 0
        """Changes with every write to the log; a reader that has reached the end can wait for a change."""
        self.damage = ""
        """The sentence of the error that has shown that the file is damaged; empty: none has."""

    @classmethod
    def create(cls, path: Path, key: bytes, meta: Mapping[str, bytes] | None = None, *, vfs: str | None = None) -> Self:
        """Create a journal with nothing in it but `meta`, encrypted with `key` (32 bytes).

        Raises NotAJournal when the path exists.
        """
        journal = cls(path, create_database(path, key, vfs=vfs, busy_ms=BUSY_MS))
        try:
            with journal._transaction():
                journal._db.execute(SCHEMA)
                journal._db.executemany(SET_META, (meta or {}).items())
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, path: Path, key: bytes, *, vfs: str | None = None) -> Self:
        """Open an existing journal. A file that does not open is not changed.

        `vfs`: a simulated file system, for power-cut tests. Raises WrongKey, NotAJournal, UnsupportedJournal,
        JournalInUse, DiskReadOnly, or what every method may raise.
        """
        journal = cls(path, open_database(path, key, FORMAT, vfs=vfs, busy_ms=BUSY_MS))
        try:
            journal._copy = partial(copy_database, journal._db, path, key)
            journal._reread = partial(verify_pages, journal._db, path, key)
        except BaseException:
            journal.close()
            raise
        return journal

    def close(self) -> None:
        """Erase used keys, checkpoint the write-ahead log, and close the file. Idempotent."""
        if self.has_used_keys:
            with suppress(LocalError, apsw.ConnectionClosedError):  # the next start erases them
                self.erase_used_keys()
        with self._faults():
            self._db.close()

    def check(self) -> None:
        """Verify every page. Raises JournalDamaged."""
        with self._faults():
            check_pages(self._db, self.path)

    def verify_pages(self, first: int, count: int) -> int:
        """Verify so many pages on disk; the number of pages read. Raises JournalDamaged."""
        assert self._reread is not None, "only for an opened journal"
        with self._faults():
            return self._reread(first, count)

    def telemetry(self) -> "TelemetryStore":
        """The store of delivery telemetry."""
        if self._telemetry is None:
            from zerochat.agent.telemetry.store import TelemetryStore  # rarely used

            self._telemetry = TelemetryStore(self._db, self._faults, self._transaction)
        return self._telemetry

    def copy(self, target: Path) -> None:
        """Copy everything committed to a new file with the same key, and sync it to disk. Raises NotAJournal when
        `target` exists; after an error there is no copy."""
        deque(self.copy_in_slices(target), maxlen=0)

    def copy_in_slices(self, target: Path) -> Generator[tuple[int, int], None, None]:
        """The same, a slice at each step: yields how many pages of how many have been copied. In between the journal
        may be used: the copy has what is committed before the last step. Closing the generator removes the copy."""
        assert self._copy is not None, "only for an opened journal"
        with self._faults():
            yield from self._copy(target)

    # --- checkpoint and batch ---------------------------------------------------------------------------------------

    def load(self, shape: type[S]) -> S | None:
        """The state that the last `commit` wrote, of the frozen dataclass `shape`; None in a new journal."""
        with self._faults():
            rows: list[Any] = self._db.execute("SELECT path, value FROM checkpoint ORDER BY number").fetchall()
            sealed: Sequence[Any] = self._db.execute(SEALED_PARTS).fetchall()
        opened = [(path, self._erasure_key.open(path, value)) for path, value in sealed]
        rows += [one for one in opened if one[1] is not None]
        try:
            found = assemble(shape, rows)
        except UnreadablePart as error:
            raise JournalDamaged(path=self.path, why=error) from error
        state, self._afresh = found or (None, False)
        self._afresh |= any(value is None for _, value in opened)  # a backup, whose keys are not there
        self._written, self._read, self.has_used_keys = state, True, bool(sealed)
        return state

    def erase_used_keys(self) -> None:
        """Seal the sealed parts anew, so that none of their older versions opens."""
        key, is_complete = self._erasure_key, False
        while not is_complete:  # after an interrupted erasure, older versions are sealed under the second key, too
            is_complete = key.advance()
            with self._transaction():
                sealed: Sequence[Any] = self._db.execute(SEALED_PARTS).fetchall()
                values = [(path, key.open(path, value)) for path, value in sealed]
                anew = [(path, key.seal(path, value)) for path, value in values if value is not None]
                self._db.executemany(WRITE_SEALED_PART, anew)
            key.erase()
        self.has_used_keys = False

    def commit(
        self,
        after: object,
        effects: Sequence[JournalEffect] = (),
        notes: SubscriptionRecords | None = None,
        meta: Mapping[str, bytes] | None = None,
    ) -> None:
        """Write a batch in one transaction: the changed parts of the state, and its storage effects. `notes`: changes
        of the stream. `meta`: meta values.

        `after` is a frozen struct of frozen values; a part is changed when it is another object. When this returns, all
        of it is on disk; when it raises, none of it is. Stored events are not changed, except that they may become
        confirmed. Nothing is written when nothing has changed.
        """
        if not self._read:
            self.load(type(after))
        base = None if self._afresh else self._written
        changed, sealed = self._changed_parts(base, after)
        if changed or sealed or effects or notes or meta:
            try:
                with self._transaction():
                    gone = [(path,) for path in parts_of(after)] if self._afresh else []
                    gone += [(path,) for path, value in changed if value is None]
                    self._db.executemany(DELETE_PARTS, gone)
                    before = self._db.total_changes()
                    self._db.executemany(DELETE_SEALED_PARTS, gone)
                    self._db.executemany(WRITE_SEALED_PART, sealed)
                    has_used_keys = self._db.total_changes() > before
                    self._db.executemany(WRITE_PART, [(path, value) for path, value in changed if value is not None])
                    self._apply_effects(effects)
                    if notes:
                        self.stream.write(notes)
                    if meta:
                        self._db.executemany(SET_META, meta.items())
            except BaseException:
                self._receipts.clear()  # the counts include rolled-back rows
                self._unindexed = None
                self.stream.rolled_back()
                raise
            self.revision += bool(effects)
            self.has_used_keys |= has_used_keys
        self._written, self._afresh = after, False

    def _changed_parts(
        self, base: object | None, after: object
    ) -> tuple[list[tuple[str, bytes | None]], list[tuple[str, bytes]]]:
        """The parts to write or delete to get from `base` to `after`, and the sealed parts to write."""
        plain, sealed = list[tuple[str, bytes | None]](), list[tuple[str, bytes]]()
        for path, value in changes(base, after):
            if value is not None and is_erasable(type(after), path):
                sealed.append((path, self._erasure_key.seal(path, value)))
            else:
                plain.append((path, value))
        return plain, sealed

    # --- meta -------------------------------------------------------------------------------------------------------

    def meta_get(self, key: str) -> bytes | None:
        value: bytes | None = self._scalar("SELECT value FROM meta WHERE key = ?", (key,))
        return value

    def meta_set(self, key: str, value: bytes) -> None:
        if self.meta_get(key) == value:
            return
        with self._transaction():
            self._db.execute(SET_META, (key, value))

    def meta_below(self, prefix: str) -> dict[str, bytes]:
        """The values whose keys start with `prefix`, which ends with `/`."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(META_BELOW, (prefix, prefix[:-1] + "0"))  # `0` follows `/`
            return dict(rows)

    def meta_delete(self, key: str) -> None:
        if self.meta_get(key) is not None:
            with self._transaction():
                self._db.execute(DELETE_META, (key,))

    def sizes(self) -> JournalSizes:
        wal = self.path.with_name(self.path.name + "-wal")
        size = sum(path.stat().st_size for path in (self.path, wal) if path.exists())
        events, parts = (int(self._scalar(f"SELECT count(*) FROM {table}")) for table in ("events", "checkpoint"))  # noqa: S608
        return JournalSizes(size, events, parts)

    # --- internals --------------------------------------------------------------------------------------------------

    def _apply_effects(self, effects: Sequence[JournalEffect]) -> None:
        """Apply the effects in order, as a refuted event may be followed by the author's own, and update the full-text
        index."""
        changed_posts: dict[str, None] = {}  # the ids of posts
        indexed_upto, waiting = self._unindexed or self._find_unindexed()
        for kind, run in groupby(effects, type):
            if kind is StoreEvent:
                events = [one for one in run if isinstance(one, StoreEvent)]
                are_new = self._store_events(events)
                waiting += sum(len(one.record) for one in events if one.type == POST)
                changed_posts |= dict.fromkeys(
                    affected
                    for one in events
                    if not (are_new and one.type == POST) and (affected := search_index.affected_post(one))
                )
                continue
            for one in run:
                match one:
                    case ConfirmEvents(group, author, after, upto):
                        self._db.execute(CONFIRM_EVENTS, (group, author, after, upto))
                    case RefuteEvents(group, author, after, upto):
                        self.stream.note_refuted(group, author, after, upto)
                        refuted: Iterable[Any] = self._db.execute(REFUTE_EVENTS, (group, author, after, upto))
                        changed_posts |= dict.fromkeys(affected for (affected,) in refuted)
                    case StoreReceipt():
                        self._store_receipt(one)
                    case (
                        StoreSignedMessage()
                        | StoreStatement()
                        | StoreSignedAck()
                        | FreezeSignedAcks()
                        | StoreConflictingMessage()
                        | StoreRejectedMessage()
                    ):
                        self.signed_messages.store(one)
                    case StoreTlog() | StoreTlogEntries() | StoreCheckpoint() | StoreBlob() | DeleteBlobs():
                        self.tlog.store(one)
                    case DeleteLog(group):
                        self.forget(group)
                    case EraseContent():
                        self.erasures.order(one)
        search_index.reindex(self._db, changed_posts, indexed_upto)
        self._unindexed = indexed_upto, waiting
        if waiting > search_index.UNINDEXED_BYTES_MAX:
            self._index_waiting()

    def _find_unindexed(self) -> tuple[int, int]:
        upto = int(self.meta_get(search_index.INDEXED_UPTO) or 0)
        return upto, search_index.unindexed_bytes(self._db, upto)

    def _index_waiting(self) -> None:
        """Index the posts that wait, within a transaction."""
        upto, _ = self._unindexed or self._find_unindexed()
        last = search_index.index_after(self._db, upto)
        self._db.execute(SET_META, (search_index.INDEXED_UPTO, b"%d" % last))
        self._unindexed = last, 0

    @contextmanager
    def _indexed(self) -> Iterator[None]:
        """Every post is in the full-text index within this context, and stays there if the disk has room for it."""
        found = self._unindexed or self._find_unindexed()
        if not found[1]:
            yield
            return
        done = False
        try:
            with self._transaction():
                self._index_waiting()
                yield
                done = True
        except BaseException as error:
            self._unindexed = None
            if not done or not isinstance(error, DiskFull):
                raise

    def _store_events(self, events: Sequence[StoreEvent]) -> bool:
        """Whether none of them is known to have been here before."""
        if not self.stream.refuted_unacked:
            last = self._scalar("SELECT max(seq) FROM events") or 0
            self._db.executemany(INSERT_EVENT, [values_of(one) for one in events])
            return int(self._scalar("SELECT count(*) FROM events WHERE seq > ?", (last,))) == len(events)
        for one in events:  # one by one, because their numbers are assigned in this order
            if (moved := self.stream.renumber(one.id)) is not None:
                search_index.renumber(self._db, *moved)
            self._db.execute(INSERT_EVENT, values_of(one))
        return False

    def forget(self, group: str) -> None:
        """Delete a group's events, receipts, drafts and read marker, within the batch's transaction; SQLite overwrites
        them (secure_delete)."""
        search_index.forget_group(self._db, group)
        for table in ("events", "receipts"):
            self._db.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))  # noqa: S608
        drafts = self.meta_below(f"{DRAFT_PREFIX}{group}/")
        self._db.executemany(DELETE_META, [(key,) for key in (READ_PREFIX + group, *drafts)])
        self._db.execute(DELETE_TELEMETRY_NAMES, (group,))
        self.stream.forget(group)
        self.signed_messages.forget(group)
        self.tlog.forget(group)
        self.cases.forget(group)
        self.erasures.forget(group)
        self._receipts = {key: count for key, count in self._receipts.items() if key[0] != group}

    def _store_receipt(self, one: StoreReceipt) -> None:
        """Insert a receipt, and delete a tenth of the member's when there are too many, the oldest."""
        known = self._receipts.get((one.group, one.member))
        if known is None:
            known = int(self._scalar(COUNT_RECEIPTS, (one.group, one.member)))
        self._db.execute(INSERT_RECEIPT, (one.group, one.member, one.author, one.upto, one.at, one.via))
        known += self._db.changes()
        if known > one.kept_max:
            surplus = known - one.kept_max + one.kept_max // 10
            self._db.execute(DELETE_OLD_RECEIPTS, (one.group, one.member, surplus))
            known -= self._db.changes()
        self._receipts[one.group, one.member] = known

    def _faults(self) -> sqlite_errors:
        return sqlite_errors(self.path, self._db, self._note_damage)

    def _note_damage(self, error: JournalDamaged) -> None:
        self.damage = JournalDamaged(path=self.path, why=error.fields["why"]).sentence()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._faults(), transaction(self.path, self._db):
            yield
