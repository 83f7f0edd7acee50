"""Signed messages in the journal: the streams of groups whose keys sign, and who has acknowledged what of ours.

They stand beside the log, which has the same events without signatures: what is here is for those who lack it, and for
whoever wants proof. A message is kept as it travelled, with the key that opens it and no other one.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
from msgspec import Struct

from zerochat.agent.storage.statement_retention import LOOK_EVERY, Stated, unused
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.redacted import Veiled
from zerochat.evidence.equivocation import Pair, contradiction
from zerochat.evidence.handshake import Accept, parse_statement
from zerochat.group.effects import KeepAck, KeepMessage, KeepRival, KeepStatement, KeepStray, SealAcks

RECALL_BYTES_MAX: Final = 256 * 1024
"""Of messages in one answer to a `Recall`."""
SIGNED_SCHEMA: Final = """
CREATE TABLE signed (
    group_id TEXT NOT NULL,
    author TEXT NOT NULL,
    alias BLOB NOT NULL,
    time INTEGER NOT NULL,
    before BLOB NOT NULL,
    signature BLOB NOT NULL,
    upto INTEGER NOT NULL,
    message BLOB NOT NULL,
    key BLOB NOT NULL,
    PRIMARY KEY (group_id, author, alias, time)
) STRICT, WITHOUT ROWID;
CREATE INDEX signed_by_place ON signed (group_id, author, upto);
CREATE TABLE statements (
    group_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    member TEXT NOT NULL,
    says TEXT NOT NULL,
    statement BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, digest)
) STRICT, WITHOUT ROWID;
CREATE TABLE acks (
    group_id TEXT NOT NULL,
    alias BLOB NOT NULL,
    member TEXT NOT NULL,
    stretch INTEGER NOT NULL,
    time INTEGER NOT NULL,
    ack BLOB NOT NULL,
    PRIMARY KEY (group_id, alias, member, stretch)
) STRICT, WITHOUT ROWID;
"""
"""The last two: what was said about subscriptions, and of each member its last acknowledgement of each stretch of a
stream of ours: so that what proves that it has an old message need not lead through all that came after."""
HASHED: Final = """
ALTER TABLE signed ADD COLUMN hash BLOB NOT NULL DEFAULT x'';
CREATE INDEX signed_by_hash ON signed (group_id, hash) WHERE hash <> x'';
CREATE INDEX signed_new_keys ON signed (group_id, author) WHERE length(key) = 0;
"""
"""Of a message that may stand in a group's log, by which hash it stands there (`logbook.py`); of others, none. And the
few messages without words, so that all others are counted and not read (`Signed.tally`)."""
RIVALS_SCHEMA: Final = """
CREATE INDEX signed_by_before ON signed (before);
CREATE TABLE rivals (
    group_id TEXT NOT NULL,
    author TEXT NOT NULL,
    says TEXT NOT NULL,
    one BLOB NOT NULL,
    other BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, author, says)
) STRICT, WITHOUT ROWID;
"""
"""Two signed messages of one author that cannot both be, the first pair of each kind; and how they are found."""
STRAYS_SCHEMA: Final = """
CREATE TABLE strays (
    group_id TEXT NOT NULL,
    author TEXT NOT NULL,
    signature BLOB NOT NULL,
    alias BLOB NOT NULL,
    time INTEGER NOT NULL,
    message BLOB NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (group_id, author, signature)
) STRICT, WITHOUT ROWID;
CREATE INDEX statements_by_member ON statements (group_id, member, at);
"""
"""What has come and was not taken in: so it is not missing. Those with their bytes wait no longer for what they name,
which never came."""
STRAYS_MAX: Final = 16
"""With their bytes, of one author: the first ones,"""
STRAYS_MS_MAX: Final = 30 * 24 * 3_600_000
"""for so long."""
ARRIVALS_MAX: Final = 256
"""Without: the last ones."""
ANSWERS_MAX: Final = 32
"""So many of an author's last answers are looked at for one by which it may be accused."""
STRETCH: Final = 64
"""Events."""
CHAIN_BYTES_MAX: Final = 160 * 1024
"""Of messages from one that somebody says it lacks to one that it has acknowledged: so much fits a defence
(`case.DEFENCE_BYTES_MAX`), and one message of any size."""
_TABLES: Final = ("signed", "statements", "acks", "rivals", "strays")
_KEEP = "INSERT OR IGNORE INTO signed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_STATE = "INSERT OR IGNORE INTO statements VALUES (?, ?, ?, ?, ?, ?)"
_ACKNOWLEDGED = f"""
SELECT upto / {STRETCH} FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time = ? AND signature = ?
"""  # noqa: S608  # the number is ours
_ACKNOWLEDGE = """
INSERT INTO acks VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (group_id, alias, member, stretch) DO UPDATE SET time = excluded.time, ack = excluded.ack
WHERE excluded.time > acks.time
"""
_LAST_ACKS = """
SELECT time, stretch FROM acks WHERE group_id = ? AND alias = ? AND member = ? ORDER BY time DESC LIMIT 2
"""
_BYTES = """
SELECT total(length(message)) FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? AND time <= ?
"""
_SEAL = """
UPDATE acks SET stretch = -1 - time WHERE group_id = ? AND member = ? AND alias = ? AND time <= ? AND stretch >= 0
"""
"""What is in no stretch any more is never replaced, but by what was signed late of the same subscription."""
_ACKS = "SELECT member, ack FROM acks WHERE group_id = ? AND alias = ? AND time >= ? ORDER BY member, time"
"""What a member has signed counts only of what was really said."""
_SINCE = """
SELECT upto, message FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? ORDER BY time LIMIT ?
"""
_BESIDE = """
SELECT message FROM signed WHERE before = ?4 AND group_id = ?1 AND author = ?2 AND alias = ?3
UNION ALL
SELECT * FROM (SELECT message FROM signed WHERE group_id = ?1 AND author = ?2 AND alias = ?3 ORDER BY time DESC LIMIT 1)
"""
"""What a message may contradict: what names the same one before it, and the last one, which it may name itself."""
_STALE = "DELETE FROM strays WHERE group_id = ? AND author = ? AND at < ?"
_STRAY = """
INSERT INTO strays SELECT ?1, ?2, ?3, ?4, ?5, CASE WHEN
    (SELECT count(*) FROM strays WHERE group_id = ?1 AND author = ?2 AND message <> x'') < ?8 THEN ?6 ELSE x'' END, ?7
WHERE true ON CONFLICT (group_id, author, signature) DO UPDATE SET message = excluded.message WHERE message = x''
"""
_FEWER = """
DELETE FROM strays WHERE group_id = ?1 AND author = ?2 AND message = x'' AND signature NOT IN (
    SELECT signature FROM strays WHERE group_id = ?1 AND author = ?2 AND message = x''
    ORDER BY at DESC, time DESC LIMIT ?3
)
"""
_ANSWERS = """
SELECT statement FROM statements WHERE group_id = ? AND member = ? AND says = 'accept' ORDER BY at DESC LIMIT ?
"""
_STATED = "SELECT count(*) FROM statements WHERE group_id = ? AND member = ?"
_UNSTATE = "DELETE FROM statements WHERE group_id = ? AND digest = ?"
_CONVICT = "INSERT OR IGNORE INTO rivals VALUES (?, ?, ?, ?, ?, ?)"
_COLUMNS = "author, alias, time, before, signature, upto, message, key"
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
) FROM signed AS every INDEXED BY signed_by_place WHERE group_id = ?1 GROUP BY author
"""
_COUNT = """
SELECT count(*) FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? AND length(key) > 0
"""


_SAID = """
SELECT * FROM (
    SELECT 1 FROM signed WHERE group_id = ?1 AND author = ?2 AND alias = ?3 AND time > ?4 AND time <= ?5 LIMIT 1
)
UNION ALL
SELECT 1 FROM strays WHERE group_id = ?1 AND author = ?2 AND alias = ?3 AND time > ?4 AND time <= ?5
"""
_HAS = """
SELECT 1 FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time < ? AND signature = ?
ORDER BY time DESC LIMIT 1
"""
_LAST_BEFORE = f"""
SELECT {_COLUMNS} FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time < ? ORDER BY time DESC LIMIT 1
"""  # noqa: S608
_LAST_ALIAS = "SELECT alias FROM signed WHERE group_id = ? AND author = ? ORDER BY upto DESC, time DESC LIMIT 1"
_BEHIND = f"SELECT {_COLUMNS} FROM signed WHERE before = ? AND group_id = ? AND author = ? AND alias = ? LIMIT 1"  # noqa: S608
_STATEMENT = "SELECT digest, member, says, statement, at FROM statements WHERE group_id = ? AND digest = ?"


class Rivals(Struct, frozen=True):
    """Two signed messages of one author that cannot both be."""

    author: str
    pair: Pair
    at: int
    """When the second one came, UTC ms."""


class Kept(Veiled, frozen=True):
    """A message of a stream, as it is kept."""

    VEILED = ("message", "key")

    author: str
    alias: bytes
    time: int
    before: bytes
    signature: bytes
    upto: int
    """The place in its author's chain of events up to which all is said with it."""
    message: bytes
    key: bytes
    """Empty: it brought a new key."""


class Signed:
    """The part of a journal that keeps them. One thread at a time uses it; raises what every method of it may."""

    def __init__(self, connection: apsw.Connection, faults: Callable[[], AbstractContextManager[None]]) -> None:
        self._db, self._faults = connection, faults

    def keep(self, one: KeepMessage | KeepStatement | KeepAck | SealAcks | KeepRival | KeepStray) -> None:
        """Within a turn's transaction."""
        match one:
            case KeepMessage():
                place = one.group, one.author, one.alias, one.time, one.before, one.signature
                self._db.execute(_KEEP, (*place, one.upto, one.message, one.key, one.hash))
            case KeepStatement():
                self._db.execute(_STATE, (one.group, one.digest, one.member, one.says, one.statement, one.at))
                if self._db.changes():
                    self._bound(one.group, one.member, one.at)
            case KeepAck():
                self._acknowledge(one)
            case SealAcks():
                self._db.execute(_SEAL, (one.group, one.member, one.alias, one.upto))
            case KeepRival():
                self._compare(one)
            case KeepStray():
                self._put_aside(one)

    def _put_aside(self, one: KeepStray) -> None:
        place = one.group, one.author
        self._db.execute(_STALE, (*place, one.at - STRAYS_MS_MAX))
        message = one.message if one.message and self._was_owed(one) else b""
        stray = one.signature, one.alias, one.time, message, one.at, STRAYS_MAX
        self._db.execute(_STRAY, (*place, *stray))
        self._db.execute(_FEWER, (*place, ARRIVALS_MAX))

    def _was_owed(self, one: KeepStray) -> bool:
        """Whether we had asked for that stream when this was said: nobody could be accused by anything else."""
        rows: Any = self._db.execute(_ANSWERS, (one.group, one.author, ANSWERS_MAX)).fetchall()
        said = [parse_statement(written) for (written,) in rows]
        alias = b64url(one.alias)
        return any(
            isinstance(given, Accept)
            and (given.publisher, given.alias) == (one.author, alias)
            and given.time < one.time
            for given in said
        )

    def _bound(self, group: str, member: str, now: int) -> None:
        """Look from time to time for statements that are of no use any more."""
        rows: Any = self._db.execute(_STATED, (group, member)).fetchall()
        ((count,),) = rows
        if count % LOOK_EVERY:
            return

        def said(alias: str, after: int, upto: int) -> bool:
            return bool(self._db.execute(_SAID, (group, member, b64url_bytes(alias), after, upto)).fetchall())

        gone = unused(member, self.statements(group, member), said, now)
        self._db.executemany(_UNSTATE, [(group, digest) for digest in gone])

    def _acknowledge(self, one: KeepAck) -> None:
        """Of a stretch the last one stays, and the one before it too where the way to the last is too long to show."""
        stream = one.group, one.author, one.alias
        of: Any = self._db.execute(_ACKNOWLEDGED, (*stream, one.time, one.of)).fetchone()
        if of is None:
            return
        (stretch,) = of
        place = one.group, one.alias, one.member
        if one.before:
            self._db.execute(_ACKNOWLEDGE, (*place, -1 - one.before, one.time, one.ack))
            return
        known: Any = self._db.execute(_LAST_ACKS, place).fetchall()
        if known and known[0][1] == stretch and known[0][0] < one.time:
            before = known[1][0] if len(known) > 1 else 0
            behind: Any = self._db.execute(_BYTES, (*stream, before, one.time)).fetchone()
            if behind[0] > CHAIN_BYTES_MAX:
                self._db.execute(_SEAL, (one.group, one.member, one.alias, known[0][0]))
        self._db.execute(_ACKNOWLEDGE, (*place, stretch, one.time, one.ack))

    def _compare(self, one: KeepRival) -> None:
        others: Any = [(one.beside,)]
        if not one.beside:
            others = self._db.execute(_BESIDE, (one.group, one.author, one.alias, one.before)).fetchall()
        for (other,) in others:
            if found := contradiction(bytes(other), one.message):
                self._db.execute(_CONVICT, (one.group, one.author, found.says, found.one, found.other, one.at))

    def forget(self, group: str) -> None:
        """Within a turn's transaction."""
        for table in _TABLES:
            self._db.execute(f"DELETE FROM {table} WHERE group_id = ?", (group,))  # noqa: S608  # those above

    def lacking(self, group: str, author: str, alias: bytes, time: int, limit: int) -> list[tuple[int, bytes]]:
        """What a `Recall` asks for of a stream: up to which place all is said with each message, and the message."""
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

    def carrier(self, group: str, author: str, place: int) -> Kept | None:
        """The message that brought an author's event in this place of its chain, if there is one: a later one may stand
        for it, which whoever opens it sees."""
        return self._one(_WITH, (group, author, place))

    def stream(self, group: str, author: str, alias: bytes, since: int = 0, limit: int = -1) -> list[Kept]:
        """A stream from the message with this time on, in its order; at most `limit` of it (-1: all)."""
        with self._faults():
            rows: Any = self._db.execute(_STREAM, (group, author, alias, since, limit)).fetchall()
        return [Kept(*row) for row in rows]

    def last_alias(self, group: str, author: str) -> bytes:
        """The name of the stream in which an author has last said something; empty: there is nothing of it."""
        with self._faults():
            row: Any = self._db.execute(_LAST_ALIAS, (group, author)).fetchone()
        return bytes(row[0]) if row else b""

    def last_before(self, group: str, author: str, alias: bytes, time: int) -> Kept | None:
        """The last message of a stream that is earlier than this time."""
        return self._one(_LAST_BEFORE, (group, author, alias, time))

    def behind(self, group: str, author: str, alias: bytes, signature: bytes) -> Kept | None:
        """The message of a stream that names the one with this signature as the one before it."""
        return self._one(_BEHIND, (signature, group, author, alias))

    def has(self, group: str, author: str, alias: bytes, time: int, signature: bytes) -> bool:
        """Whether the message of a stream with this signature, which is earlier than this time, was taken in."""
        with self._faults():
            return bool(self._db.execute(_HAS, (group, author, alias, time, signature)).fetchall())

    def strays(self, group: str, author: str) -> dict[bytes, bytes]:
        """By their signatures, an author's messages that have come and were not taken in, in the order of their times:
        as they were sent where they wait no longer for the one that they name; else empty."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT signature, message FROM strays WHERE group_id = ? AND author = ? ORDER BY time", (group, author)
            ).fetchall()
        return dict(rows)

    def statement(self, group: str, digest: str) -> Stated | None:
        """What was said about a subscription, by its digest."""
        with self._faults():
            row: Any = self._db.execute(_STATEMENT, (group, digest)).fetchone()
        return Stated(*row) if row else None

    def _one(self, query: str, bindings: tuple[Any, ...]) -> Kept | None:
        with self._faults():
            row: Any = self._db.execute(query, bindings).fetchone()
        return Kept(*row) if row else None

    def acks(self, group: str, alias: bytes) -> dict[str, bytes]:
        """By member: its last acknowledgement of a stream of ours."""
        return dict(self._acks(group, alias, 0))

    def acks_of(self, group: str, alias: bytes, time: int) -> dict[str, bytes]:
        """By member: its first acknowledgement that is kept of the message with this time, or a later one."""
        return dict(reversed(self._acks(group, alias, time)))

    def _acks(self, group: str, alias: bytes, time: int) -> list[tuple[str, bytes]]:
        with self._faults():
            rows: Any = self._db.execute(_ACKS, (group, alias, time)).fetchall()
        return [(str(member), bytes(ack)) for member, ack in rows]

    def tally(self, group: str) -> dict[str, tuple[int, int, int]]:
        """By author: how many messages with words of theirs are kept, and the times of the first and the last one."""
        with self._faults():
            rows: Any = self._db.execute(_TALLY, (group,)).fetchall()
        return {str(author): (count, first, last) for author, count, first, last in rows if count}

    def count(self, group: str, author: str, alias: bytes, after: int) -> int:
        """How many such messages of a stream came behind the one with this time."""
        with self._faults():
            row: Any = self._db.execute(_COUNT, (group, author, alias, after)).fetchone()
        return int(row[0])

    def statements(self, group: str, member: str) -> list[Stated]:
        """What was said between us and a member, in the order in which it came."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT digest, member, says, statement, at FROM statements WHERE group_id = ? AND member = ? "
                "ORDER BY at, digest",
                (group, member),
            ).fetchall()
        return [Stated(*row) for row in rows]

    def rivals(self, group: str) -> list[Rivals]:
        """What convicts members of having said two things in one place, or of a time that went back."""
        with self._faults():
            rows: Any = self._db.execute(
                "SELECT author, says, one, other, at FROM rivals WHERE group_id = ? ORDER BY author, says", (group,)
            ).fetchall()
        return [Rivals(author, Pair(says, one, other), at) for author, says, one, other, at in rows]
