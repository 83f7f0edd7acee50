"""The journal: what one profile knows, in one encrypted SQLite file that survives a power cut.

It holds eight things. The *checkpoint* is the core's state, in parts (`checkpoint.py`). The *log* is every event that
was delivered, in the order of delivery. The *receipts* say since when a member is known to have what. The *stream* is
what bots read, and how far they have come (`api/subscriptions/store.py`). The *signed* messages of some groups stand beside the
log (`signed.py`), and so do the *logbook* of those groups whose log has witnesses (`logbook.py`) and the *cases* in
which we are one of the two (`casebook.py`). *meta* is what the agent itself must know before there is a state. A turn's
state and events are written in one transaction, and what `commit` has returned from is on disk: nothing is sent or
shown before. Besides, whoever has asked for it has *telemetry* there (`telemetry/store.py`).

An event may have come from somebody else than its author: it is *vouched* for by whoever handed it over, until the
author's own word confirms it or refutes it. A refuted event stays in the log for whoever wants to look into it
(`refuted`), and no other question finds it.

How the file is opened, encrypted and kept whole is in `database.py`. That an older copy of the whole file was put in
its place cannot be seen from here: only peers know better.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

import apsw
import msgspec
from msgspec import Struct

from zerochat.agent.api.subscriptions.store import Notes, Store
from zerochat.agent.storage import search_index
from zerochat.agent.storage.database import (
    BUSY_MS,
    KEY_BYTES,
    CipherMissing,
    DiskFailed,
    DiskFull,
    JournalDamaged,
    JournalInUse,
    NewerJournal,
    NotAJournal,
    OlderJournal,
    ReadOnly,
    WrongKey,
    bring_along,
    check_pages,
    copy_database,
    create_database,
    fault_of_disk,
    faults,
    forget_copies,
    open_database,
    reread_pages,
    transaction,
)
from zerochat.agent.storage.disputes import Casebook
from zerochat.agent.storage.signed_messages import Signed
from zerochat.agent.storage.state_parts import Unreadable, assemble, changes, parts_of
from zerochat.agent.storage.tables import (
    BY_SEQ,
    CHAIN,
    CHAIN_BACK,
    CONFIRM,
    COUNT,
    DRAFT,
    DROP,
    FORGET_FACTS,
    FORGET_RECEIPTS,
    FORMAT,
    HEIGHTS,
    KEEP,
    LAST_IN,
    LAST_OF,
    LATEST_ROWS,
    NTH_POST,
    ONE_ROW,
    POSTS_SINCE,
    RECEIPTS,
    RECEIPTS_MAX,
    RECEIPTS_OF,
    RECEIVE,
    REFUTE,
    REFUTED_ROWS,
    REMARKS,
    ROW_OF_SEQ,
    ROWS_AFTER,
    ROWS_BEFORE,
    ROWS_LIKE,
    ROWS_NAMED,
    SCHEMA,
    SET,
    STRETCH,
    STRETCH_BACK,
    TARGETS,
    UNSET,
    VERDICTS,
    VERDICTS_OF_ONE,
    WRITE,
    Held,
    Row,
    row_of,
    values_of,
)
from zerochat.agent.storage.tlog import Logbook
from zerochat.errors import LocalError
from zerochat.group.effects import (
    Confirm,
    DropBlobs,
    Forget,
    KeepAck,
    KeepBlob,
    KeepEntries,
    KeepLog,
    KeepMessage,
    KeepNote,
    KeepRival,
    KeepStatement,
    KeepStray,
    Receipt,
    Refute,
    Remember,
    Remembered,
    SealAcks,
)
from zerochat.group.event_log.event import ANNOUNCE, TOPIC
from zerochat.group.sync.history_policy import Entry

if TYPE_CHECKING:
    from zerochat.agent.telemetry.store import Store as TelemetryStore

S = TypeVar("S")

STRETCH_FIRST, STRETCH_MOST = 8, 256
"""Events of a chain that are read at once when it is read backwards, at first and at most: mostly few of each chain are
wanted, of hundreds of chains."""


def json_list(values: Iterable[object]) -> str:
    """As a question to the log wants a list."""
    return msgspec.json.encode(list(values)).decode()


__all__ = [
    "KEY_BYTES",
    "CipherMissing",
    "DiskFailed",
    "DiskFull",
    "Held",
    "Journal",
    "JournalDamaged",
    "JournalInUse",
    "NewerJournal",
    "NoSuchEvent",
    "NotAJournal",
    "OlderJournal",
    "ReadOnly",
    "Row",
    "Sizes",
    "WrongKey",
    "fault_of_disk",
]


class NoSuchEvent(LocalError):
    """There is no event {event} in this group. `zerochat history --ids {group}` shows the ids."""


class Sizes(Struct, frozen=True):
    """How much there is."""

    disk_bytes: int
    """The file with its write-ahead log."""
    events: int
    parts: int
    """Rows of the checkpoint."""


class Match(Struct, frozen=True):
    """A post that the index of words has found."""

    place: int
    """Its place there."""
    row: Row
    text: str
    """As it stands now."""
    otherwise: bool
    """The index has another text, which does not count."""


class Journal:
    """An open journal. One thread at a time uses it, and a context closes it.

    Every method raises DiskFull, ReadOnly, DiskFailed or JournalDamaged when the disk fails it; what it was asked to
    write is then not written, not even in part, and it can be asked again.
    """

    def __init__(self, path: Path, connection: apsw.Connection) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._db = connection
        self.stream = Store(connection, self._faults, self._transaction)
        """What is told of the log and besides it, who reads that, and what was said under which key."""
        self.signed = Signed(connection, self._faults)
        """The streams of groups whose keys sign."""
        self.logbook = Logbook(connection, self._faults)
        """The logs of groups that are accountable."""
        self.cases = Casebook(connection, self._faults, self._transaction)
        """Whom we have accused, and who has accused us."""
        self._telemetry: TelemetryStore | None = None
        self._written: object | None = None
        """The state that the checkpoint on disk is, as long as `_read`; by identity, the base of what changes."""
        self._read = False
        self._afresh = False
        self._copy: Callable[[Path], None] | None = None
        self._reread: Callable[[int, int], int] | None = None
        self._migrated = False
        self._receipts: dict[tuple[str, str], int] = {}
        """How many there are of a group's member, where that was asked."""
        self.grown = 0
        """Another number whenever something has been put into the log: who has read it to its end need not look again
        while this stays as it is."""
        self.damage = ""
        """What has shown that the file is damaged, in a sentence; empty: nothing has."""

    @classmethod
    def create(cls, path: Path, key: bytes, meta: Mapping[str, bytes] | None = None, *, vfs: str | None = None) -> Self:
        """Make a new journal, with nothing in it but `meta`, that only `key` (32 bytes) opens.

        Raises NotAJournal when something is there.
        """
        journal = cls(path, create_database(path, key, vfs=vfs, busy_ms=BUSY_MS))
        try:
            with journal._transaction():
                journal._db.execute(SCHEMA + search_index.WORDS_SCHEMA)
                journal._db.executemany(SET, (meta or {}).items())
        except BaseException:
            journal.close()
            raise
        return journal

    @classmethod
    def open(cls, path: Path, key: bytes, *, vfs: str | None = None) -> Self:
        """Open an existing journal. A file that does not open is left exactly as it is.

        One of an older version is brought along (`database.bring_along`), and a copy of it as it was stays beside it,
        as `journal.db.v2` or so, until a later start has read its state from the new one.

        `vfs`: a file system of apsw's making, for tests that cut the power. Raises WrongKey, NotAJournal,
        NewerJournal, OlderJournal, JournalInUse, ReadOnly, or what every method may raise.
        """
        journal = cls(path, open_database(path, key, FORMAT, vfs=vfs, busy_ms=BUSY_MS))
        try:
            journal._migrated = bring_along(journal._db, path, key, FORMAT, vfs=vfs)
            journal._copy = partial(copy_database, journal._db, path, key)
            journal._reread = partial(reread_pages, journal._db, path, key)
        except BaseException:
            journal.close()
            raise
        return journal

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

    def check(self) -> None:
        """Read every page. Raises JournalDamaged."""
        with self._faults():
            check_pages(self._db, self.path)

    def reread(self, first: int, count: int) -> int:
        """Read so many pages again, from the disk; how many there were. Raises JournalDamaged."""
        assert self._reread is not None, "it was opened, not made"
        with self._faults():
            return self._reread(first, count)

    def forget_older(self) -> None:
        """Remove the copy that was kept of this journal as it was in an older version."""
        forget_copies(self.path, FORMAT)

    def telemetry(self) -> "TelemetryStore":
        """What is recorded of how messages fare."""
        if self._telemetry is None:
            from zerochat.agent.telemetry.store import Store as TelemetryStore  # almost nobody has any

            self._telemetry = TelemetryStore(self._db, self._faults, self._transaction)
        return self._telemetry

    def copy(self, target: Path) -> None:
        """Put a copy of all that is committed into a new file, which the same key opens. It is on disk, whole, when
        this returns; when it raises there is none. Raises NotAJournal when something is at `target`."""
        assert self._copy is not None, "a journal that was opened"
        with self._faults():
            self._copy(target)

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
        if not self._migrated:
            self.forget_older()
        return state

    def commit(
        self,
        after: object,
        remembered: Sequence[Remembered] = (),
        notes: Notes | None = None,
        meta: Mapping[str, bytes] | None = None,
    ) -> None:
        """Put a turn on disk: what of the state is not as the last commit wrote it, and what it wants remembered.
        `notes`: what it has to say of the stream. `meta`: what `meta_get` gives from then on, and not before.

        `after` is a frozen dataclass, and so is every value in it; a part counts as changed when it is another object.
        When this returns, all of it has reached the disk; when it raises, none of it has. Events that are there already
        are left as they are, but for who vouches for them. Nothing is written when nothing has changed.
        """
        if not self._read:
            self.load(type(after))
        base = None if self._afresh else self._written
        changed = list(changes(base, after))
        if changed or remembered or notes or meta:
            try:
                with self._transaction():
                    if self._afresh:
                        self._db.executemany(DROP, [(path,) for path in parts_of(after)])
                    self._db.executemany(DROP, [(path,) for path, value in changed if value is None])
                    self._db.executemany(WRITE, [(path, value) for path, value in changed if value is not None])
                    self._remember(remembered)
                    if notes:
                        self.stream.write(notes)
                    if meta:
                        self._db.executemany(SET, meta.items())
            except BaseException:
                self._receipts.clear()  # what was counted there has not happened
                self.stream.undone()
                raise
            self.grown += bool(remembered)
        self._written, self._afresh = after, False

    # --- the log ----------------------------------------------------------------------------------------------------

    def history(self, group: str, limit: int, before: str | None = None) -> list[Row]:
        """The last `limit` events of a group (before the event with the id `before`), oldest first.

        The order is the one that every member sees: by Lamport time, author and id. Raises NoSuchEvent.
        """
        place = None
        if before is not None:
            border = self.event(group, before)
            if border is None:
                raise NoSuchEvent(event=ascii(before[:64]), group=group)
            place = border.lamport, border.author, border.id
        return self.page(group, place, limit)[::-1]

    def page(
        self, group: str, before: tuple[int, str, str] | None, limit: int, since_ms: int | None = None
    ) -> list[Row]:
        """The last `limit` events of a group before a place in the order that every member sees, latest first.

        `before`: Lamport time, author and id; None: from the end. `since_ms`: none with a smaller Lamport time.
        """
        least = since_ms if since_ms is not None else -(1 << 63)
        if before is None:
            return self._rows(LATEST_ROWS, (group, least, limit))
        return self._rows(ROWS_BEFORE, (group, least, *before, limit))

    def event(self, group: str, event_id: str) -> Row | None:
        """The event with this id, be it one that was refuted."""
        found = self._rows(ONE_ROW, (event_id, group))
        return found[0] if found else None

    def by_seq(self, since: int, limit: int) -> list[Row]:
        """The first `limit` events, of all groups, that were delivered after the one with the local number `since`."""
        return self._rows(BY_SEQ, (since, limit))

    def latest(self) -> int:
        """The local number of the last delivered event; 0: there is none."""
        return int(self._one("SELECT max(seq) FROM events") or 0)

    def chain(self, group: str, author: str, after: int, limit: int) -> list[bytes]:
        """The records of an author's events after position `after`, at most `limit`, in the order of its chain."""
        return self._records(CHAIN, (group, author, after, limit))

    def chain_back(self, group: str, author: str, before: int, limit: int) -> list[bytes]:
        """The records of an author's events before position `before`, at most `limit`, from the last one down."""
        return self._records(CHAIN_BACK, (group, author, before, limit))

    def heights(self, group: str) -> dict[str, tuple[int, str]]:
        """By author, the position and the id of the last event of its chain."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(HEIGHTS, (group,))
            return {author: (position, event) for author, position, event in rows}

    def like(self, group: str, prefix: str, limit: int) -> list[Row]:
        """At most `limit` events whose ids begin so, be it some that were refuted."""
        return self._rows(ROWS_LIKE, (prefix, group, limit))

    def last_of(self, group: str, author: str, type_: str) -> Row | None:
        """The last event of this type in an author's chain."""
        return next(iter(self._rows(LAST_OF, (group, author, type_))), None)

    def page_after(self, group: str, after: tuple[int, str, str], limit: int) -> list[Row]:
        """The first `limit` events of a group behind a place in the order that every member sees, oldest first."""
        return self._rows(ROWS_AFTER, (group, *after, limit))

    def receipts_of(self, group: str, author: str, position: int) -> list[Held]:
        """Since when each member that is known to have an event has it, in the order of their DIDs."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(RECEIPTS_OF, (group, author, position))
            return [Held(*row) for row in rows]

    def refuted(self, group: str) -> list[Row]:
        """What members have handed over as somebody's words and that somebody has never said, in order of arrival."""
        return self._rows(REFUTED_ROWS, (group,))

    def stretch(self, group: str, author: str, after: int, upto: int, floor: int, limit: int) -> list[Row]:
        """An author's events after position `after`, up to `upto`, whose Lamport time is not smaller than `floor`; at
        most `limit`, in the order of its chain."""
        return self._rows(STRETCH, (group, author, after, upto, floor, limit))

    def stretch_back(self, group: str, author: str, after: int, upto: int) -> Iterator[Entry]:
        """The same, of any time and all of them, backwards; read in pieces, as they are asked for.

        No statement is left open in between: whoever has enough lets go of this in the middle, and apsw (3.54) keeps
        what a cursor holds when the generator above it is closed: a fetch of a hundred chains cost a megabyte for good.
        """
        place, limit = (upto + 1, 0), STRETCH_FIRST
        while True:
            with self._faults():
                rows = self._db.execute(STRETCH_BACK, (group, author, after, *place, limit)).fetchall()
            for row in rows:
                yield Entry(*row[:4])  # type: ignore[arg-type]
            if len(rows) < limit:
                return
            place, limit = (int(rows[-1][1]), int(rows[-1][4])), min(2 * limit, STRETCH_MOST)  # type: ignore[arg-type]

    def found(
        self, question: str, least: int, most: int, limit: int, counts: search_index.Counts = lambda *_: True
    ) -> list[Match]:
        """The last `limit` posts that answer a question in the language of the index, latest first; only those whose
        place is `least` or higher and lower than `most`."""
        with self._faults():
            places: Sequence[Any] = self._db.execute(search_index.FIND, (question, least, most, limit)).fetchall()
            rows = [(place, row) for place, seq in places for row in self._rows(ROW_OF_SEQ, (seq,))]
            return [self._match(place, row, counts) for place, row in rows]

    def _match(self, place: int, row: Row, counts: search_index.Counts) -> Match:
        about = (self._db, row.group, row.id, row.author, row.record)
        text = search_index.text_now(*about, counts)
        return Match(place, row, text, text != search_index.text_now(*about))

    def place(self, row: Row) -> int:
        """Where in the index of words an event stands, or would if it was a post."""
        place = self._one("SELECT place FROM said WHERE seq = ?", (row.seq,))
        return int(place) if place is not None else row.lamport * search_index.PLACES

    def nth_post(self, group: str, number: int, before: int) -> int:
        """The Lamport time of the `number`-th last post with a smaller one than `before`; 0: there are fewer."""
        return int(self._one(NTH_POST, (group, before, number - 1)) or 0)

    def named(self, group: str, ids: Iterable[str]) -> list[Row]:
        """The events with these ids that there are, but for what was refuted."""
        wanted = json_list(ids)
        return self._rows(ROWS_NAMED, (group, wanted)) if wanted != "[]" else []

    def remarks(self, group: str, posts: Iterable[tuple[str, str]]) -> list[Row]:
        """What is said about posts (their ids, with their authors), but for what was refuted; of each member and kind
        the last `REMARKS_OF_ONE` events."""
        wanted = json_list(posts)
        return self._rows(REMARKS, (group, wanted)) if wanted != "[]" else []

    def verdicts(self, group: str) -> list[Row]:
        """What members tell as verdicts, in order of arrival; of each the last `VERDICTS_OF_ONE`."""
        return self._rows(VERDICTS, (group, VERDICTS_OF_ONE))

    def topics(self, group: str, spans: Iterable[tuple[str, int, int]]) -> list[Row]:
        """The last topic in each of these stretches of chains (author, after a place, up to another one)."""
        return self._rows(LAST_IN, (group, json_list(spans), TOPIC))

    def announcements(self, group: str, spans: Iterable[tuple[str, int, int]]) -> list[Row]:
        """The last announcement in each of these stretches of chains, as `topics`."""
        return self._rows(LAST_IN, (group, json_list(spans), ANNOUNCE))

    def targets(self, group: str, author: str, after: int, upto: int, limit: int, *, refuted: bool) -> list[str]:
        """The ids of the posts that an author's events after position `after`, up to `upto`, are about."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(TARGETS, (group, author, int(refuted), after, upto, limit))
            return [target for (target,) in rows]

    def posts_since(self, group: str, lamport: int) -> list[tuple[int, str]]:
        """The Lamport times, this one or later, and the ids of all that is said in a group."""
        with self._faults():
            rows: Iterable[Any] = self._db.execute(POSTS_SINCE, (group, lamport))
            return [(when, event) for when, event in rows]

    def count(self, group: str) -> int:
        """How many events of a group were delivered, and not refuted."""
        return int(self._one(COUNT, (group,)))

    # --- what the agent knows of itself -----------------------------------------------------------------------------

    def meta_get(self, key: str) -> bytes | None:
        value: bytes | None = self._one("SELECT value FROM meta WHERE key = ?", (key,))
        return value

    def meta_set(self, key: str, value: bytes) -> None:
        if self.meta_get(key) == value:
            return
        with self._transaction():
            self._db.execute(SET, (key, value))

    def meta_drop(self, key: str) -> None:
        if self.meta_get(key) is not None:
            with self._transaction():
                self._db.execute(UNSET, (key,))

    def sizes(self) -> Sizes:
        wal = self.path.with_name(self.path.name + "-wal")
        size = sum(path.stat().st_size for path in (self.path, wal) if path.exists())
        events, parts = (int(self._one(f"SELECT count(*) FROM {table}")) for table in ("events", "checkpoint"))  # noqa: S608
        return Sizes(size, events, parts)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _remember(self, remembered: Sequence[Remembered]) -> None:
        """In the order in which the core said it, for a refuted event may make room for the author's own. What is said
        by then can be found by its words (`wordindex.py`)."""
        touched: dict[str, None] = {}  # the ids of posts
        for kind, run in groupby(remembered, type):
            if kind is Remember:
                kept = [one for one in run if isinstance(one, Remember)]
                self._keep(kept)
                touched |= dict.fromkeys(about for one in kept if (about := search_index.about(one)))
                continue
            for one in run:
                match one:
                    case Confirm(group, author, after, upto):
                        self._db.execute(CONFIRM, (group, author, after, upto))
                    case Refute(group, author, after, upto):
                        self.stream.refuted(group, author, after, upto)
                        refuted: Iterable[Any] = self._db.execute(REFUTE, (group, author, after, upto))
                        touched |= dict.fromkeys(about for (about,) in refuted)
                    case Receipt():
                        self._note(one)
                    case KeepMessage() | KeepStatement() | KeepAck() | SealAcks() | KeepRival() | KeepStray():
                        self.signed.keep(one)
                    case KeepLog() | KeepEntries() | KeepNote() | KeepBlob() | DropBlobs():
                        self.logbook.keep(one)
                    case Forget(group):
                        self.forget(group)
                        forget_copies(self.path, FORMAT)  # they have it too
        search_index.renew(self._db, touched)

    def _keep(self, kept: Sequence[Remember]) -> None:
        if not self.stream.unheard:
            self._db.executemany(KEEP, [values_of(one) for one in kept])
            return
        for one in kept:  # one after the other, for their numbers are in the order in which they come
            if (moved := self.stream.anew(one.id)) is not None:
                search_index.renumber(self._db, *moved)
            self._db.execute(KEEP, values_of(one))

    def forget(self, group: str) -> None:
        """Delete a group's events, receipts and draft, within a turn's transaction; SQLite overwrites them
        (secure_delete)."""
        search_index.forget_group(self._db, group)
        for table in ("events", "receipts"):
            self._db.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))  # noqa: S608
        self._db.execute(UNSET, (DRAFT + group,))
        self._db.execute(FORGET_FACTS, (group,))
        self.stream.forget(group)
        self.signed.forget(group)
        self.logbook.forget(group)
        self.cases.forget(group)
        self._receipts = {key: count for key, count in self._receipts.items() if key[0] != group}

    def _note(self, one: Receipt) -> None:
        """One receipt more, and the oldest of this member gone when there are too many."""
        known = self._receipts.get((one.group, one.member))
        if known is None:
            known = int(self._one(RECEIPTS, (one.group, one.member)))
        self._db.execute(RECEIVE, (one.group, one.member, one.author, one.upto, one.at, one.via))
        known += self._db.changes()
        if known > RECEIPTS_MAX:
            self._db.execute(FORGET_RECEIPTS, (one.group, one.member, RECEIPTS_MAX // 10))
            known -= self._db.changes()
        self._receipts[one.group, one.member] = known

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            with faults(self.path, self._db):
                yield
        except JournalDamaged as error:
            self.damage = JournalDamaged(path=self.path, why=error.fields["why"]).sentence()
            raise

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._faults(), transaction(self.path, self._db):
            yield

    def _rows(self, query: str, bindings: Sequence[str | int]) -> list[Row]:
        with self._faults():
            rows: Iterable[Any] = self._db.execute(query, bindings)
            return [row_of(row) for row in rows]

    def _records(self, query: str, bindings: Sequence[str | int]) -> list[bytes]:
        with self._faults():
            rows: Iterable[Any] = self._db.execute(query, bindings)
            return [record for (record,) in rows]

    def _one(self, query: str, bindings: Sequence[str | int] = ()) -> Any:
        """The first column of the only row; None when there is no row."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(query, bindings).fetchall()
            return rows[0][0] if rows else None
