"""Signed messages in the journal: signed streams, subscription statements, acknowledgements, equivocations.

The event log has the same events without signatures; signed messages are kept for retransmission and as proofs. Each is
stored as it was transmitted, with the key that decrypts it and no other message.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
from msgspec import Struct

from zerochat.agent.storage.statement_retention import CLEANUP_EVERY, SubscriptionStatement, obsolete_statements
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.structs import Redacted
from zerochat.evidence.handshake import Accept, parse_statement
from zerochat.evidence.messages import Equivocation, find_equivocation
from zerochat.group.effects import (
    FreezeSignedAcks,
    StoreConflictingMessage,
    StoreRejectedMessage,
    StoreSignedAck,
    StoreSignedMessage,
    StoreStatement,
)

RECALL_BYTES_MAX: Final = 256 * 1024
"""Bytes of messages in one answer to a `ReadOwnEvents`."""
SIGNED_SCHEMA: Final = """
CREATE TABLE signed (
    group_id TEXT NOT NULL,
    author TEXT NOT NULL,
    alias BLOB NOT NULL,
    time INTEGER NOT NULL,
    previous BLOB NOT NULL,
    signature BLOB NOT NULL,
    upto INTEGER NOT NULL,
    message BLOB NOT NULL,
    key BLOB NOT NULL,
    hash BLOB NOT NULL,
    PRIMARY KEY (group_id, author, alias, time)
) STRICT, WITHOUT ROWID;
CREATE INDEX signed_by_position ON signed (group_id, author, upto);
CREATE INDEX signed_by_hash ON signed (group_id, hash) WHERE hash <> x'';
CREATE INDEX signed_new_keys ON signed (group_id, author) WHERE length(key) = 0;
CREATE INDEX signed_by_previous ON signed (previous);
CREATE TABLE statements (
    group_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    member TEXT NOT NULL,
    kind TEXT NOT NULL,
    statement BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX statements_by_member ON statements (group_id, member, at);
CREATE TABLE acks (
    group_id TEXT NOT NULL,
    alias BLOB NOT NULL,
    member TEXT NOT NULL,
    range INTEGER NOT NULL,
    time INTEGER NOT NULL,
    ack BLOB NOT NULL,
    PRIMARY KEY (group_id, alias, member, range)
) STRICT, WITHOUT ROWID;
CREATE TABLE equivocations (
    group_id TEXT NOT NULL,
    author TEXT NOT NULL,
    kind TEXT NOT NULL,
    first BLOB NOT NULL,
    second BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, author, kind)
) STRICT, WITHOUT ROWID;
CREATE TABLE rejected (
    group_id TEXT NOT NULL,
    author TEXT NOT NULL,
    signature BLOB NOT NULL,
    alias BLOB NOT NULL,
    time INTEGER NOT NULL,
    message BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, author, signature)
) STRICT, WITHOUT ROWID;
"""
"""`signed.hash`: the hash under which a message may stand in the transparency log; else empty. An empty `signed.key`:
the message brings a new key and no text (the index counts these without reading messages). `acks`: each member's last
acknowledgement of each range of our stream, so that a proof for an old message need not include all later ones.
`equivocations`: two contradicting messages of one author, the first pair of each kind. `rejected`: messages that were
received and not accepted, so that they do not count as missing; with their bytes, if they wait for a predecessor no
longer."""
REJECTED_MAX: Final = 16
"""Rejected messages of one author that are kept with their bytes: the first ones."""
REJECTED_MS_MAX: Final = 30 * 24 * 3_600_000
"""Retention of rejected messages, ms."""
REJECTED_IDS_MAX: Final = 256
"""Rejected messages of one author that are kept without bytes: the last ones."""
ACCEPTS_MAX: Final = 32
"""An author's last accepted subscriptions that are searched for one to which a rejected message belongs."""
RANGE: Final = 64
"""Events of a range; per range one acknowledgement of each member is kept."""
CHAIN_BYTES_MAX: Final = 160 * 1024
"""Size of the chain of messages from a missing one to an acknowledged one: this much fits a defence
(`case.DEFENCE_BYTES_MAX`), plus one message of any size."""
_TABLES: Final = ("signed", "statements", "acks", "equivocations", "rejected")
_KEEP = "INSERT OR IGNORE INTO signed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_STATE = "INSERT OR IGNORE INTO statements VALUES (?, ?, ?, ?, ?, ?)"
_ACKNOWLEDGED = f"""
SELECT upto / {RANGE} FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time = ? AND signature = ?
"""  # noqa: S608  # the number is ours
_ACKNOWLEDGE = """
INSERT INTO acks VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (group_id, alias, member, range) DO UPDATE SET time = excluded.time, ack = excluded.ack
WHERE excluded.time > acks.time
"""
_LAST_ACKS = """
SELECT time, range FROM acks WHERE group_id = ? AND alias = ? AND member = ? ORDER BY time DESC LIMIT 2
"""
_BYTES = """
SELECT total(length(message)) FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? AND time <= ?
"""
_SEAL = """
UPDATE acks SET range = -1 - time WHERE group_id = ? AND member = ? AND alias = ? AND time <= ? AND range >= 0
"""
"""A frozen acknowledgement (negative range) is only replaced by a late one of the same subscription."""
_ACKS = "SELECT member, ack FROM acks WHERE group_id = ? AND alias = ? AND time >= ? ORDER BY member, time"
_SINCE = """
SELECT upto, message FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? ORDER BY time LIMIT ?
"""
_BESIDE = """
SELECT message FROM signed WHERE previous = ?4 AND group_id = ?1 AND author = ?2 AND alias = ?3
UNION ALL
SELECT * FROM (SELECT message FROM signed WHERE group_id = ?1 AND author = ?2 AND alias = ?3 ORDER BY time DESC LIMIT 1)
"""
"""Messages that a message may contradict: those with the same predecessor, and the last one."""
_EXPIRE_REJECTED = "DELETE FROM rejected WHERE group_id = ? AND author = ? AND at < ?"
_ADD_REJECTED = """
INSERT INTO rejected SELECT ?1, ?2, ?3, ?4, ?5, CASE WHEN
    (SELECT count(*) FROM rejected WHERE group_id = ?1 AND author = ?2 AND message <> x'') < ?8 THEN ?6 ELSE x'' END, ?7
WHERE true ON CONFLICT (group_id, author, signature) DO UPDATE SET message = excluded.message WHERE message = x''
"""
_TRIM_REJECTED = """
DELETE FROM rejected WHERE group_id = ?1 AND author = ?2 AND message = x'' AND signature NOT IN (
    SELECT signature FROM rejected WHERE group_id = ?1 AND author = ?2 AND message = x''
    ORDER BY at DESC, time DESC LIMIT ?3
)
"""
_ANSWERS = """
SELECT statement FROM statements WHERE group_id = ? AND member = ? AND kind = 'accept' ORDER BY at DESC LIMIT ?
"""
_STATED = "SELECT count(*) FROM statements WHERE group_id = ? AND member = ?"
_UNSTATE = "DELETE FROM statements WHERE group_id = ? AND digest = ?"
_ADD_EQUIVOCATION = "INSERT OR IGNORE INTO equivocations VALUES (?, ?, ?, ?, ?, ?)"
_COLUMNS = "author, alias, time, previous, signature, upto, message, key"
_WITH = f"""
SELECT {_COLUMNS} FROM signed WHERE group_id = ? AND author = ? AND upto >= ? AND length(key) > 0
ORDER BY upto, time LIMIT 1
"""  # noqa: S608  # the columns are those above
_STREAM = f"""
SELECT {_COLUMNS} FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time >= ? ORDER BY time LIMIT ?
"""  # noqa: S608

_TALLY = """
SELECT author, count(*) - (
    SELECT count(*) FROM signed AS brought INDEXED BY signed_new_keys
    WHERE group_id = ?1 AND brought.author = every.author AND length(key) = 0
), (
    SELECT time FROM signed AS first WHERE group_id = ?1 AND first.author = every.author AND length(key) > 0
    ORDER BY upto LIMIT 1
), (
    SELECT time FROM signed AS last WHERE group_id = ?1 AND last.author = every.author AND length(key) > 0
    ORDER BY upto DESC LIMIT 1
) FROM signed AS every INDEXED BY signed_by_position WHERE group_id = ?1 GROUP BY author
"""
_COUNT = """
SELECT count(*) FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? AND length(key) > 0
"""


_SAID = """
SELECT * FROM (
    SELECT 1 FROM signed WHERE group_id = ?1 AND author = ?2 AND alias = ?3 AND time > ?4 AND time <= ?5 LIMIT 1
)
UNION ALL
SELECT 1 FROM rejected WHERE group_id = ?1 AND author = ?2 AND alias = ?3 AND time > ?4 AND time <= ?5
"""
_HAS = """
SELECT 1 FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time < ? AND signature = ?
ORDER BY time DESC LIMIT 1
"""
_LAST_BEFORE = f"""
SELECT {_COLUMNS} FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time < ? ORDER BY time DESC LIMIT 1
"""  # noqa: S608
_LAST_ALIAS = "SELECT alias FROM signed WHERE group_id = ? AND author = ? ORDER BY upto DESC, time DESC LIMIT 1"
_SUCCESSOR = f"""
SELECT {_COLUMNS} FROM signed WHERE previous = ? AND group_id = ? AND author = ? AND alias = ? LIMIT 1
"""  # noqa: S608
_STATEMENT = "SELECT digest, member, kind, statement, at FROM statements WHERE group_id = ? AND digest = ?"


class StoredEquivocation(Struct, frozen=True):
    """Two contradicting signed messages of one author."""

    author: str
    pair: Equivocation
    at: int
    """When the second one was received, UTC ms."""


class StoredMessage(Redacted, frozen=True):
    """A stored message of a stream."""

    REDACTED = ("message", "key")

    author: str
    alias: bytes
    time: int
    before: bytes
    signature: bytes
    upto: int
    """The position in its author's event chain that the stream has reached with it."""
    message: bytes
    key: bytes
    """Empty: the message brings a new key."""


class SignedMessageStore:
    """The journal's part for signed messages. Methods raise what every method of `Journal` may raise."""

    def __init__(self, connection: apsw.Connection, faults: Callable[[], AbstractContextManager[None]]) -> None:
        self._db, self._faults = connection, faults

    def store(
        self,
        one: StoreSignedMessage
        | StoreStatement
        | StoreSignedAck
        | FreezeSignedAcks
        | StoreConflictingMessage
        | StoreRejectedMessage,
    ) -> None:
        """Apply an effect, within the batch's transaction."""
        match one:
            case StoreSignedMessage():
                place = one.group, one.author, one.alias, one.time, one.before, one.signature
                self._db.execute(_KEEP, (*place, one.upto, one.message, one.key, one.hash))
            case StoreStatement():
                self._db.execute(_STATE, (one.group, one.digest, one.member, one.kind, one.statement, one.at))
                if self._db.changes():
                    self._clean_up(one.group, one.member, one.at)
            case StoreSignedAck():
                self._acknowledge(one)
            case FreezeSignedAcks():
                self._db.execute(_SEAL, (one.group, one.member, one.alias, one.upto))
            case StoreConflictingMessage():
                self._detect_equivocation(one)
            case StoreRejectedMessage():
                self._store_rejected(one)

    def _store_rejected(self, one: StoreRejectedMessage) -> None:
        place = one.group, one.author
        self._db.execute(_EXPIRE_REJECTED, (*place, one.at - REJECTED_MS_MAX))
        message = one.message if one.message and self._was_subscribed(one) else b""
        stray = one.signature, one.alias, one.time, message, one.at, REJECTED_MAX
        self._db.execute(_ADD_REJECTED, (*place, *stray))
        self._db.execute(_TRIM_REJECTED, (*place, REJECTED_IDS_MAX))

    def _was_subscribed(self, one: StoreRejectedMessage) -> bool:
        """Whether we had subscribed to the stream when the message was made: only then it can be evidence."""
        rows: Any = self._db.execute(_ANSWERS, (one.group, one.author, ACCEPTS_MAX)).fetchall()
        said = [parse_statement(written) for (written,) in rows]
        alias = b64url(one.alias)
        return any(
            isinstance(given, Accept)
            and (given.publisher, given.alias) == (one.author, alias)
            and given.time < one.time
            for given in said
        )

    def _clean_up(self, group: str, member: str, now: int) -> None:
        """Delete obsolete statements from time to time."""
        rows: Any = self._db.execute(_STATED, (group, member)).fetchall()
        ((count,),) = rows
        if count % CLEANUP_EVERY:
            return

        def said(alias: str, after: int, upto: int) -> bool:
            return bool(self._db.execute(_SAID, (group, member, b64url_bytes(alias), after, upto)).fetchall())

        gone = obsolete_statements(member, self.statements(group, member), said, now)
        self._db.executemany(_UNSTATE, [(group, digest) for digest in gone])

    def _acknowledge(self, one: StoreSignedAck) -> None:
        """Keep the last acknowledgement of a range, and the one before it if the proof by the last would be too
        long."""
        stream = one.group, one.author, one.alias
        of: Any = self._db.execute(_ACKNOWLEDGED, (*stream, one.time, one.of)).fetchone()
        if of is None:
            return
        (range_,) = of
        place = one.group, one.alias, one.member
        if one.before:
            self._db.execute(_ACKNOWLEDGE, (*place, -1 - one.before, one.time, one.ack))
            return
        known: Any = self._db.execute(_LAST_ACKS, place).fetchall()
        if known and known[0][1] == range_ and known[0][0] < one.time:
            before = known[1][0] if len(known) > 1 else 0
            behind: Any = self._db.execute(_BYTES, (*stream, before, one.time)).fetchone()
            if behind[0] > CHAIN_BYTES_MAX:
                self._db.execute(_SEAL, (one.group, one.member, one.alias, known[0][0]))
        self._db.execute(_ACKNOWLEDGE, (*place, range_, one.time, one.ack))

    def _detect_equivocation(self, one: StoreConflictingMessage) -> None:
        others: Any = [(one.beside,)]
        if not one.beside:
            others = self._db.execute(_BESIDE, (one.group, one.author, one.alias, one.before)).fetchall()
        for (other,) in others:
            if found := find_equivocation(bytes(other), one.message):
                self._db.execute(_ADD_EQUIVOCATION, (one.group, one.author, found.kind, found.one, found.other, one.at))

    def forget(self, group: str) -> None:
        """Delete a group, within the batch's transaction."""
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))  # noqa: S608  # those above

    def recall(self, group: str, author: str, alias: bytes, time: int, limit: int) -> list[tuple[int, bytes]]:
        """The messages of a stream after a time, each with the chain position that it covers."""
        found: list[tuple[int, bytes]] = []
        size = 0
        with self._faults():
            rows: Any = self._db.execute(_SINCE, (group, author, alias, time, limit))
            for upto, message in rows:
                size += len(message)
                if found and size > RECALL_BYTES_MAX:
                    break
                found.append((upto, message))
            rows.close()
        return found

    def carrier(self, group: str, author: str, place: int) -> StoredMessage | None:
        """The first message that covers this position of an author's chain; it may contain only later events, which the
        caller sees when it decrypts it."""
        return self._one(_WITH, (group, author, place))

    def stream(self, group: str, author: str, alias: bytes, since: int = 0, limit: int = -1) -> list[StoredMessage]:
        """The messages of a stream from this time on, in order; at most `limit` (-1: all)."""
        with self._faults():
            rows: Any = self._db.execute(_STREAM, (group, author, alias, since, limit)).fetchall()
        return [StoredMessage(*row) for row in rows]

    def last_alias(self, group: str, author: str) -> bytes:
        """The alias of the author's latest stream; empty: none."""
        with self._faults():
            row: Any = self._db.execute(_LAST_ALIAS, (group, author)).fetchone()
        return bytes(row[0]) if row else b""

    def last_before(self, group: str, author: str, alias: bytes, time: int) -> StoredMessage | None:
        """The last message of a stream that is earlier than this time."""
        return self._one(_LAST_BEFORE, (group, author, alias, time))

    def successor(self, group: str, author: str, alias: bytes, signature: bytes) -> StoredMessage | None:
        """The message whose predecessor has this signature."""
        return self._one(_SUCCESSOR, (signature, group, author, alias))

    def has(self, group: str, author: str, alias: bytes, time: int, signature: bytes) -> bool:
        """Whether the message of a stream with this signature, earlier than this time, is stored."""
        with self._faults():
            return bool(self._db.execute(_HAS, (group, author, alias, time, signature)).fetchall())

    def rejected(self, group: str, author: str) -> dict[bytes, bytes]:
        """An author's rejected messages by signature, in time order: the bytes of those that wait for a predecessor no
        longer; else empty."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT signature, message FROM rejected WHERE group_id = ? AND author = ? ORDER BY time",
                (group, author),
            ).fetchall()
        return dict(rows)

    def statement(self, group: str, digest: str) -> SubscriptionStatement | None:
        """A subscription statement by its digest."""
        with self._faults():
            row: Any = self._db.execute(_STATEMENT, (group, digest)).fetchone()
        return SubscriptionStatement(*row) if row else None

    def _one(self, query: str, bindings: tuple[Any, ...]) -> StoredMessage | None:
        with self._faults():
            row: Any = self._db.execute(query, bindings).fetchone()
        return StoredMessage(*row) if row else None

    def acks(self, group: str, alias: bytes) -> dict[str, bytes]:
        """By member: its last acknowledgement of our stream."""
        return dict(self._acks(group, alias, 0))

    def acks_of(self, group: str, alias: bytes, time: int) -> dict[str, bytes]:
        """By member: its first stored acknowledgement of the message with this time or a later one."""
        return dict(reversed(self._acks(group, alias, time)))

    def _acks(self, group: str, alias: bytes, time: int) -> list[tuple[str, bytes]]:
        with self._faults():
            rows: Any = self._db.execute(_ACKS, (group, alias, time)).fetchall()
        return [(str(member), bytes(ack)) for member, ack in rows]

    def message_counts(self, group: str) -> dict[str, tuple[int, int, int]]:
        """By author: number of stored messages with content, and the times of the first and the last one."""
        with self._faults():
            rows: Any = self._db.execute(_TALLY, (group,)).fetchall()
        return {str(author): (count, first, last) for author, count, first, last in rows if count}

    def count(self, group: str, author: str, alias: bytes, after: int) -> int:
        """Number of messages with content in a stream after this time."""
        with self._faults():
            row: Any = self._db.execute(_COUNT, (group, author, alias, after)).fetchone()
        return int(row[0])

    def statements(self, group: str, member: str) -> list[SubscriptionStatement]:
        """The subscription statements between us and a member, in order of arrival."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT digest, member, kind, statement, at FROM statements WHERE group_id = ? AND member = ? "
                "ORDER BY at, digest",
                (group, member),
            ).fetchall()
        return [SubscriptionStatement(*row) for row in rows]

    def equivocations(self, group: str) -> list[StoredEquivocation]:
        """The proven equivocations: two messages in one place, or a time that goes back."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT author, kind, first, second, at FROM equivocations WHERE group_id = ? ORDER BY author, kind",
                (group,),
            ).fetchall()
        return [
            StoredEquivocation(author, Equivocation(outcome, one, other), at)
            for author, outcome, one, other, at in rows
        ]
