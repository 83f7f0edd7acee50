"""Signed messages in the journal: the streams of groups whose keys sign, and who has acknowledged what of ours.

They stand beside the log, which has the same events without signatures: what is here is for those who lack it, and for
whoever wants proof. A message is kept as it travelled, with the key that opens it and no other one.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
from msgspec import Struct

from zerochat.crypto.veil import Veiled
from zerochat.evidence.rivals import Pair, contradiction
from zerochat.group.effects import KeepAck, KeepMessage, KeepRival, KeepStatement, SealAcks

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
"""
"""Of a message that may stand in a group's log, by which hash it stands there (`logbook.py`); of others, none."""
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
STRETCH: Final = 64
"""Events."""
_TABLES: Final = ("signed", "statements", "acks", "rivals")
_KEEP = "INSERT OR IGNORE INTO signed VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_STATE = "INSERT OR IGNORE INTO statements VALUES (?, ?, ?, ?, ?, ?)"
_ACKNOWLEDGE = f"""
INSERT INTO acks SELECT ?1, ?3, ?2, upto / {STRETCH}, ?4, ?6 FROM signed
WHERE group_id = ?1 AND alias = ?3 AND time = ?4 AND signature = ?5 LIMIT 1
ON CONFLICT (group_id, alias, member, stretch) DO UPDATE SET time = excluded.time, ack = excluded.ack
WHERE excluded.time > acks.time
"""  # noqa: S608  # the number is ours
_SEAL = """
UPDATE acks SET stretch = -1 - time WHERE group_id = ? AND member = ? AND alias = ? AND time <= ? AND stretch >= 0
"""
"""What is in no stretch any more is never replaced."""
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
SELECT author, count(*), min(time), max(time) FROM signed WHERE group_id = ? AND length(key) > 0 GROUP BY author
"""
_COUNT = """
SELECT count(*) FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time > ? AND length(key) > 0
"""


_LAST_BEFORE = f"""
SELECT {_COLUMNS} FROM signed WHERE group_id = ? AND author = ? AND alias = ? AND time < ? ORDER BY time DESC LIMIT 1
"""  # noqa: S608
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


class Stated(Struct, frozen=True):
    """A signed statement about a subscription."""

    digest: str
    member: str
    """The other one of the two."""
    says: str
    statement: bytes
    at: int
    """When it came, or was made, UTC ms."""


class Signed:
    """The part of a journal that keeps them. One thread at a time uses it; raises what every method of it may."""

    def __init__(self, connection: apsw.Connection, faults: Callable[[], AbstractContextManager[None]]) -> None:
        self._db, self._faults = connection, faults

    def keep(self, one: KeepMessage | KeepStatement | KeepAck | SealAcks | KeepRival) -> None:
        """Within a turn's transaction."""
        match one:
            case KeepMessage():
                place = one.group, one.author, one.alias, one.time, one.before, one.signature
                self._db.execute(_KEEP, (*place, one.upto, one.message, one.key, one.hash))
            case KeepStatement():
                self._db.execute(_STATE, (one.group, one.digest, one.member, one.says, one.statement, one.at))
            case KeepAck():
                self._db.execute(_ACKNOWLEDGE, (one.group, one.member, one.alias, one.time, one.of, one.ack))
            case SealAcks():
                self._db.execute(_SEAL, (one.group, one.member, one.alias, one.upto))
            case KeepRival():
                self._compare(one)

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

    def last_before(self, group: str, author: str, alias: bytes, time: int) -> Kept | None:
        """The last message of a stream that is earlier than this time."""
        return self._one(_LAST_BEFORE, (group, author, alias, time))

    def behind(self, group: str, author: str, alias: bytes, signature: bytes) -> Kept | None:
        """The message of a stream that names the one with this signature as the one before it."""
        return self._one(_BEHIND, (signature, group, author, alias))

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
        return {str(author): (count, first, last) for author, count, first, last in rows}

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
