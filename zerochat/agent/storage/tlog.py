"""Transparency logs in the journal: entries, cosigned checkpoints, and the blobs that entries refer to.

A message that is stored as a signed message (`signed_messages.py`) is not stored twice. This module answers the core's
tlog queries (`group/tlog/queries.py`), and serves case files and proofs.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from typing import Any, Final

import apsw
import msgspec

from zerochat.agent.storage.signed_messages import CHAIN_BYTES_MAX
from zerochat.crypto.encoding import b64url_bytes
from zerochat.crypto.primitives import sha256
from zerochat.evidence.case import MESSAGES_MAX, Rules
from zerochat.evidence.merkle import Tree
from zerochat.evidence.note import Note, parse_checkpoint, parse_note
from zerochat.evidence.witness import Entry, Kind, Receipt, kind_marker, parse_entry, receipt_for
from zerochat.group.effects import DeleteBlobs, StoreBlob, StoreCheckpoint, StoreTlog, StoreTlogEntries
from zerochat.group.tlog.queries import (
    BlobQuery,
    Blobs,
    Extension,
    ExtensionQuery,
    Hashes,
    Messages,
    MissingBlobs,
    MissingEntries,
    OverdueMessages,
    Records,
    TlogQuery,
    TlogResult,
    UnplacedEntries,
    UnreadEntries,
)

BLOBS_MAX: Final = 256 << 20
"""Bytes of blobs stored for others, per group."""
BLOBS_OF_ONE_MAX: Final = 64 << 20
"""The same per author: an author that submits more finds its witnesses full, without effect on others."""
_REQUESTED: Final = 2
"""Factor of these limits for blobs that the log refers to: unlogged blobs can neither displace an accusation nor block
a witness from cosigning."""
ANSWER_BYTES_MAX: Final = 384 * 1024
"""Bytes of blobs in one answer, which has at least one."""
BLOB_ROW_BYTES: Final = 256
"""What a stored blob takes besides its own bytes, and counts for: else small ones would have no limit."""
TREES_MAX: Final = 1 << 17
"""Entries of all Merkle trees in memory: some 20 MB."""
OVERDUE_MAX: Final = 64
"""Our messages in one answer."""

TLOG_SCHEMA: Final = f"""
CREATE TABLE logs (
    group_id TEXT NOT NULL,
    origin TEXT NOT NULL,
    rules BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, origin)
) STRICT, WITHOUT ROWID;
CREATE TABLE log_entries (
    group_id TEXT NOT NULL,
    origin TEXT NOT NULL,
    place INTEGER NOT NULL,
    record BLOB NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (group_id, origin, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX log_entries_by_digest ON log_entries (group_id, origin, digest, place);
CREATE TABLE log_notes (
    group_id TEXT NOT NULL,
    origin TEXT NOT NULL,
    size INTEGER NOT NULL,
    at INTEGER NOT NULL,
    note TEXT NOT NULL,
    PRIMARY KEY (group_id, origin, size, at)
) STRICT, WITHOUT ROWID;
CREATE TABLE log_blobs (
    group_id TEXT NOT NULL,
    hash BLOB NOT NULL,
    author TEXT NOT NULL,
    size INTEGER NOT NULL,
    at INTEGER NOT NULL,
    blob BLOB NOT NULL,
    PRIMARY KEY (group_id, hash)
) STRICT;
CREATE INDEX log_blobs_by_age ON log_blobs (group_id, at);
CREATE TABLE log_blob_bytes (
    group_id TEXT NOT NULL,
    author TEXT NOT NULL,
    bytes INTEGER NOT NULL,
    PRIMARY KEY (group_id, author)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER log_blob_stored AFTER INSERT ON log_blobs BEGIN
    INSERT INTO log_blob_bytes VALUES
        (new.group_id, '', new.size + {BLOB_ROW_BYTES}), (new.group_id, new.author, new.size + {BLOB_ROW_BYTES})
        ON CONFLICT (group_id, author) DO UPDATE SET bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER log_blob_deleted AFTER DELETE ON log_blobs BEGIN
    UPDATE log_blob_bytes SET bytes = bytes - old.size - {BLOB_ROW_BYTES}
    WHERE group_id = old.group_id AND author IN ('', old.author);
END;
"""  # noqa: S608  # the limit is that above
"""`log_blob_bytes`: what the blobs of each author take, and (author '') all of a group: a sum over the stored blobs for
each new one would be quadratic."""
_TABLES: Final = ("logs", "log_entries", "log_notes", "log_blobs", "log_blob_bytes")
_BLOB: Final = """
INSERT OR IGNORE INTO log_blobs SELECT ?1, ?2, ?3, ?4, ?5, ?6
WHERE NOT EXISTS (SELECT 1 FROM signed WHERE group_id = ?1 AND hash = ?2 AND hash <> x'')
    AND NOT EXISTS (SELECT 1 FROM log_blob_bytes WHERE group_id = ?1 AND author = '' AND bytes > ?7)
    AND NOT EXISTS (SELECT 1 FROM log_blob_bytes WHERE group_id = ?1 AND author = ?3 AND bytes > ?8)
"""
_HELD: Final = """
SELECT EXISTS (SELECT 1 FROM signed WHERE group_id = ?1 AND hash = ?2 AND hash <> x'')
    OR EXISTS (SELECT 1 FROM log_blobs WHERE group_id = ?1 AND hash = ?2)
"""
_GET: Final = """
SELECT message FROM signed WHERE group_id = ?1 AND hash = ?2 AND hash <> x''
UNION ALL SELECT blob FROM log_blobs WHERE group_id = ?1 AND hash = ?2 LIMIT 1
"""
_KINDS: Final = """
SELECT total(instr(record, ?1) > 0), total(instr(record, ?2) > 0), total(instr(record, ?3) > 0) FROM log_entries
WHERE group_id = ?4 AND origin = ?5 AND place < ?6
"""
_PLACE: Final = "SELECT min(place) FROM log_entries WHERE group_id = ? AND origin = ? AND digest = ?"
_NOTE: Final = """
SELECT size, note FROM log_notes WHERE group_id = ? AND origin = ? AND size >= ? ORDER BY size, at LIMIT 1
"""
_NOTE_AFTER: Final = """
SELECT size, note FROM log_notes WHERE group_id = ? AND origin = ? AND at >= ? ORDER BY at, size LIMIT 1
"""
_LAST: Final = "SELECT size, note FROM log_notes WHERE group_id = ? AND origin = ? ORDER BY size DESC, at DESC LIMIT 1"
_ACKED: Final = """
SELECT time FROM acks WHERE group_id = ? AND alias = ? AND member = ? AND time > ? AND time <= ? ORDER BY time
"""
_SIZES: Final = """
SELECT time, length(message) FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? ORDER BY time
"""
_STREAM: Final = """
SELECT time, message FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? AND time <= ?
ORDER BY time LIMIT ?
"""


class TlogStore:
    """The journal's part for transparency logs. Methods raise what every method of `Journal` may raise."""

    def __init__(self, connection: apsw.Connection, faults: Callable[[], AbstractContextManager[None]]) -> None:
        self._db, self._faults = connection, faults
        self._trees: dict[tuple[str, str], Tree] = {}
        """Merkle trees by group and origin, least recently used first. Logs are append-only, so trees only grow."""

    # --- storing ----------------------------------------------------------------------------------------------------

    def store(self, one: StoreTlog | StoreTlogEntries | StoreCheckpoint | StoreBlob | DeleteBlobs) -> None:
        """Apply an effect, within the batch's transaction."""
        match one:
            case StoreTlog():
                self._db.execute(
                    "INSERT OR IGNORE INTO logs VALUES (?, ?, ?, ?)", (one.group, one.origin, one.rules, one.at)
                )
            case StoreTlogEntries():
                self._db.executemany(
                    "INSERT OR IGNORE INTO log_entries VALUES (?, ?, ?, ?, ?)",
                    [
                        (one.group, one.origin, place, record, sha256(record))
                        for place, record in enumerate(one.records, one.after)
                    ],
                )
            case StoreCheckpoint():
                self._db.execute(
                    "INSERT OR IGNORE INTO log_notes VALUES (?, ?, ?, ?, ?)",
                    (one.group, one.origin, one.size, one.at, one.note),
                )
            case StoreBlob():
                row = one.group, b64url_bytes(one.hash), one.author, len(one.blob), one.at, one.blob
                room, taken = _REQUESTED if one.requested else 1, len(one.blob) + BLOB_ROW_BYTES
                self._db.execute(_BLOB, (*row, room * BLOBS_MAX - taken, room * BLOBS_OF_ONE_MAX - taken))
            case DeleteBlobs():
                self._db.execute("DELETE FROM log_blobs WHERE group_id = ? AND at < ?", (one.group, one.before))

    def forget(self, group: str) -> None:
        """Delete a group, within the batch's transaction."""
        self._trees = {key: tree for key, tree in self._trees.items() if key[0] != group}
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))  # noqa: S608  # those above

    # --- for cases, proofs and clients -----------------------------------------------------------------------------

    def all_rules(self, group: str) -> list[Rules]:
        """The rules of the group's logs, oldest first."""
        rows = self._rows("SELECT rules FROM logs WHERE group_id = ? ORDER BY at, origin", (group,))
        return [msgspec.json.decode(rules, type=Rules) for (rules,) in rows]

    def entries(self, group: str, origin: str, after: int, limit: int) -> list[bytes]:
        """At most `limit` records of a log after the first `after` ones."""
        wanted = (
            "SELECT record FROM log_entries WHERE group_id = ? AND origin = ? AND place >= ? ORDER BY place LIMIT ?"
        )
        return [record for (record,) in self._rows(wanted, (group, origin, after, limit))]

    def index_of(self, group: str, origin: str, record: bytes, since: int = 0) -> int | None:
        """The first index (from 0) of an entry, from `since` on; None: not in the log."""
        ((place,),) = self._rows(_PLACE + " AND place >= ?", (group, origin, sha256(record), since))
        return int(place) if place is not None else None

    def size(self, group: str, origin: str) -> int:
        """The number of entries covered by a cosigned checkpoint."""
        ((size,),) = self._rows("SELECT max(size) FROM log_notes WHERE group_id = ? AND origin = ?", (group, origin))
        return int(size or 0)

    def entry_counts(self, group: str, origin: str) -> dict[str, int]:
        """The numbers of accusations, defences and log ends among the entries."""
        kinds: tuple[Kind, ...] = ("accusation", "defence", "close")
        ((*counts,),) = self._rows(_KINDS, (*map(kind_marker, kinds), group, origin, self.size(group, origin)))
        return dict(zip(kinds, map(int, counts), strict=True))

    def blob(self, group: str, hash_: str) -> bytes | None:
        """The blob with this hash (base64url of SHA-256), if stored."""
        found = self._rows(_GET, (group, b64url_bytes(hash_)))
        return found[0][0] if found else None

    def checkpoint_covering(self, group: str, origin: str, at_least_size: int) -> Note | None:
        """The first cosigned checkpoint that covers so many entries."""
        return _note(self._rows(_NOTE, (group, origin, at_least_size)))

    def checkpoint_after(self, group: str, origin: str, at_ms: int) -> Note | None:
        """The first checkpoint that covers everything in the log at this time (UTC ms; `Quorum.whole_ms`)."""
        return _note(self._rows(_NOTE_AFTER, (group, origin, at_ms)))

    def latest_checkpoint(self, group: str, origin: str) -> Note | None:
        """The latest checkpoint."""
        return _note(self._rows(_LAST, (group, origin)))

    def receipt(self, group: str, origin: str, record: bytes, since: int = 0) -> Receipt | None:
        """The inclusion proof of an entry at its first index from `since` on; None: not in the log, or not cosigned
        yet."""
        place = self.index_of(group, origin, record, since)
        note = self.checkpoint_covering(group, origin, place + 1) if place is not None else None
        if place is None or note is None:
            return None
        size = parse_checkpoint(note.text).size
        return receipt_for(self._tree(group, origin, size), place, note)

    def _tree(self, group: str, origin: str, size: int) -> Tree:
        """The Merkle tree over at least so many entries; cached, because hashing a long log takes seconds."""
        tree = self._trees.pop((group, origin), None) or Tree()
        if len(tree) < size:
            for record in self.entries(group, origin, len(tree), size - len(tree)):
                tree.append(record)
        self._trees[group, origin] = tree
        while sum(map(len, self._trees.values())) > TREES_MAX:
            del self._trees[next(iter(self._trees))]
        return tree

    # --- queries of the core ----------------------------------------------------------------------------------------

    def answer(self, group: str, origin: str, what: TlogQuery) -> TlogResult:
        """The answer to a query of the core."""
        match what:
            case UnplacedEntries(_, records):
                free = [one for one in records if self.index_of(group, origin, one) is None]
                return Records(tuple(one for one in free if self._holds(group, parse_entry(one))))
            case MissingBlobs():
                return self._missing_blobs(group, what)
            case ExtensionQuery(_, after, limit):
                return self._piece(group, origin, after, limit)
            case BlobQuery(records=records):
                return self._bytes(group, records)
            case UnreadEntries():
                return self._unread(group, origin, what)
            case OverdueMessages():
                return self._overdue_messages(group, what)

    def _missing_blobs(self, group: str, what: MissingBlobs) -> Hashes:
        entries = [parse_entry(record) for record in what.records]
        lacking = [one for one in entries if not self._holds(group, one)]
        total = self._bytes_of(group, "")
        full = any(
            total + one.size + BLOB_ROW_BYTES > _REQUESTED * BLOBS_MAX
            or self._bytes_of(group, one.author) + one.size + BLOB_ROW_BYTES > _REQUESTED * BLOBS_OF_ONE_MAX
            for one in lacking
        )
        return Hashes(tuple(dict.fromkeys(one.hash for one in lacking)), full)

    def _bytes_of(self, group: str, author: str) -> int:
        """What the blobs of an author take; an empty author: those of all."""
        found = self._rows("SELECT bytes FROM log_blob_bytes WHERE group_id = ? AND author = ?", (group, author))
        return int(found[0][0]) if found else 0

    def _holds(self, group: str, entry: Entry) -> bool:
        ((held,),) = self._rows(_HELD, (group, b64url_bytes(entry.hash)))
        return bool(held) and self._has_size(group, entry)

    def _has_size(self, group: str, entry: Entry) -> bool:
        """Whether the blob has the size stated in the entry, which a witness checks."""
        query = """
        SELECT length(message) FROM signed WHERE group_id = ?1 AND hash = ?2 AND hash <> x''
        UNION ALL SELECT size FROM log_blobs WHERE group_id = ?1 AND hash = ?2 LIMIT 1
        """
        return [(entry.size,)] == self._rows(query, (group, b64url_bytes(entry.hash)))

    def _piece(self, group: str, origin: str, after: int, limit: int) -> Extension:
        found = self._rows(_NOTE, (group, origin, after + 1))
        if found and found[0][0] - after <= limit:
            return Extension(tuple(self.entries(group, origin, after, found[0][0] - after)), found[0][1])
        if found:
            return Extension((), "")  # a reader between two checkpoints got its position elsewhere
        return Extension(tuple(self.entries(group, origin, after, limit)), "")

    def _bytes(self, group: str, records: Sequence[bytes]) -> Blobs:
        found: list[tuple[bytes, bytes]] = []
        size = 0
        for record in records:
            blob = self.blob(group, parse_entry(record).hash)
            size += len(blob or b"")
            if found and size > ANSWER_BYTES_MAX:
                break
            if blob is not None:
                found.append((record, blob))
        return Blobs(tuple(found))

    def _unread(self, group: str, origin: str, what: UnreadEntries) -> MissingEntries:
        records = self.entries(group, origin, what.after, what.limit)
        entries = [(record, parse_entry(record)) for record in records]
        lacking = tuple(record for record, one in entries if self._lacks(group, what.me, one))
        return MissingEntries(what.after + len(records), lacking)

    def _lacks(self, group: str, me: str, entry: Entry) -> bool:
        """Whether a message was not accepted yet (its blob does not suffice), or another blob is not stored."""
        if entry.kind == "message":
            return entry.author != me and not self._is_accepted(group, entry.hash)
        return self.blob(group, entry.hash) is None

    def _is_accepted(self, group: str, hash_: str) -> bool:
        query = "SELECT 1 FROM signed WHERE group_id = ? AND hash = ? AND hash <> x''"
        return bool(self._rows(query, (group, b64url_bytes(hash_))))

    def _overdue_messages(self, group: str, what: OverdueMessages) -> Messages:
        begin = max(what.after, min((owed.begun for owed in what.owed), default=what.upto))
        if begin >= what.upto:
            return Messages((), what.upto)
        place = group, what.author, what.alias
        times = self._without_proof(place, what, begin)
        found: list[bytes] = []
        size, reached = 0, begin
        for time, message in self._own(place, min(times) - 1, what.upto) if times else ():
            if time not in times:
                continue
            size += len(message)
            if found and (size > ANSWER_BYTES_MAX or len(found) >= OVERDUE_MAX):
                return Messages(tuple(found), reached)
            found.append(message)
            reached = time
        return Messages(tuple(found), what.upto)

    def _without_proof(self, place: tuple[str, str, bytes], what: OverdueMessages, begin: int) -> set[int]:
        """The times of the messages without proof of delivery to all recipients: a recipient's acknowledgement is
        missing, or too far behind to fit a defence."""
        sizes = self._rows(_SIZES, (*place, begin))
        times = [time for time, _ in sizes]
        upto = [0, *accumulate(size for _, size in sizes)]
        found = set()
        for owed in what.owed:
            acks = [ack for (ack,) in self._rows(_ACKED, (place[0], what.alias, owed.member, begin, owed.until))]
            first, last = bisect_right(times, owed.begun), bisect_right(times, min(owed.until, what.upto))
            for number in range(first, last):
                nearest = bisect_left(acks, times[number])
                end = bisect_right(times, acks[nearest]) if nearest < len(acks) else 0
                near = end - number == 1 or upto[end] - upto[number] <= CHAIN_BYTES_MAX
                if not (number < end <= number + MESSAGES_MAX and near):
                    found.add(times[number])
        return found

    def _own(self, place: tuple[str, str, bytes], after: int, upto: int) -> Iterable[tuple[int, bytes]]:
        """The messages of a stream with these times, read in chunks."""
        while True:
            rows = self._rows(_STREAM, (*place, after, upto, OVERDUE_MAX))
            yield from rows
            if len(rows) < OVERDUE_MAX:
                return
            after = rows[-1][0]

    def _rows(self, query: str, bindings: Sequence[str | int | bytes]) -> list[Any]:
        with self._faults():
            return self._db.execute(query, bindings).fetchall()


def _note(rows: Sequence[tuple[int, str]]) -> Note | None:
    return parse_note(rows[0][1].encode()) if rows else None
