"""What a mediator keeps: its recipients, their DIDs, and the envelopes that wait, in one encrypted SQLite file.

    recipients   whom it was granted to
    dids names   what they have registered, and every name under which that may come in a forward
    heard        digests of what a recipient has said that must not be said again by somebody who recorded it
    messages     envelopes that wait to be fetched; `seq` is the order in which they came
    waiting      envelopes that wait for a time (a delay), or to be sent on (`target`)
    seen         digests of messages that are gone, so that a sender's repetition is not delivered again

Everything happens inside a `turn`: one transaction for all that has come in together, which is on disk when it ends.
Only then may anybody be told. How much waits for whom is also kept in memory, because every message asks.
"""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from zerochat.agent.mediator.tables import (
    FORGET,
    FORMAT,
    RECIPIENT,
    SCHEMA,
    SET,
    TICK,
    WAITING,
    Due,
    Kept,
    Place,
    Recipient,
    Usage,
    digest_of,
    due_of,
    place_of,
    recipient_of,
)
from zerochat.agent.storage.database import create_database, faults, open_database, transaction
from zerochat.errors import LocalError

SWEEP_MAX: Final = 1_000
"""Messages that one sweep takes away, so that a turn stays short; there may be several sweeps in a row."""
FORGET_MAX: Final = 4_000
"""Digests that one sweep takes away: more than come in at the same time."""
SEEN_MAX: Final = 2_000_000
"""Digests of messages that are gone: some 150 MB. Beyond that no more are noted, and repetitions are kept again."""
HEARD_MAX: Final = 8_192
"""Digests of what one recipient has said; the oldest go first."""


class Store:
    """An open store. One thread uses it, and a context closes it. Everything raises the errors of `database.faults`."""

    def __init__(self, path: Path, connection: Any) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._db = connection
        self.usage: defaultdict[int, Usage] = defaultdict(Usage)
        """By recipient."""
        self.total = Usage()
        self.aside: defaultdict[int, Usage] = defaultdict(Usage)
        """By recipient, of that: what waits for a time, or to be sent on."""
        self._seen = 0
        """How many digests there are, and some that are counted twice."""
        self._inside = False

    @classmethod
    def create(cls, path: Path, key: bytes) -> Self:
        store = cls(path, create_database(path, key))
        try:
            with transaction(path, store._db):
                store._db.execute(SCHEMA)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, path: Path, key: bytes) -> Self:
        store = cls(path, open_database(path, key, FORMAT))
        store._count()
        return store

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        with faults(self.path, self._db):
            self._db.close()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """All or nothing: on disk when the context ends, and as before when anything raises in it.

        Every turn writes something, so that nobody can tell by the wait for the disk whether a message was kept or
        dropped. What the processor takes longer for keeping one (some 100 microseconds, up to one millisecond for a
        large one) shows to whoever is near enough to measure it and knows the name already.
        """
        try:
            with transaction(self.path, self._db):
                self._inside = True
                self._db.execute(TICK)
                yield
        except BaseException:
            with suppress(LocalError):  # a disk that cannot be read fails the next turn anyway
                self._count()
            raise
        finally:
            self._inside = False

    # --- meta -------------------------------------------------------------------------------------------------------

    def meta_get(self, key: str) -> bytes | None:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def meta_set(self, key: str, value: bytes) -> None:
        self._write(SET, (key, value))

    # --- recipients -------------------------------------------------------------------------------------------------

    def recipients(self) -> int:
        """How many there are."""
        return int(self._rows("SELECT count(*) FROM recipients")[0][0])

    def recipient(self, did: str) -> Recipient | None:
        """By the short form of its DID."""
        rows = self._rows(f"{RECIPIENT} WHERE did = ?", (did,))
        return recipient_of(rows[0]) if rows else None

    def recipient_numbered(self, number: int) -> Recipient | None:
        rows = self._rows(f"{RECIPIENT} WHERE id = ?", (number,))
        return recipient_of(rows[0]) if rows else None

    def is_own(self, did: str) -> bool:
        """Whether we speak under this DID to a recipient."""
        return bool(self._rows("SELECT 1 FROM recipients WHERE own = ?", (did,)))

    def grant(self, did: str, long: str, own: str, now_s: int) -> None:
        """Take a recipient in, to which we speak under the DID `own`."""
        self._write(
            "INSERT INTO recipients (did, long, heard, own, since, knows) VALUES (?, ?, ?, ?, ?, 0)",
            (did, long, now_s, own, now_s),
        )

    def knows(self, recipient: int, *, knows: bool) -> None:
        """Whether the recipient has addressed the DID under which we speak to it."""
        self._write("UPDATE recipients SET knows = ? WHERE id = ?", (knows, recipient))

    def rotate(self, recipient: int, did: str, long: str) -> None:
        """The recipient has another DID from now on, which nobody else has."""
        self._write("UPDATE recipients SET did = ?, long = ? WHERE id = ?", (did, long, recipient))

    def heard(self, recipient: int, now_s: int) -> None:
        self._write("UPDATE recipients SET heard = ? WHERE id = ?", (now_s, recipient))

    # --- their DIDs -------------------------------------------------------------------------------------------------

    def place(self, name: str) -> Place | None:
        """Where a name leads; None: nobody has registered it."""
        rows = self._rows(
            "SELECT recipient, dids.id, long, relay, proven FROM names JOIN dids ON dids.id = names.did WHERE name = ?",
            (name,),
        )
        return place_of(rows[0]) if rows else None

    def dids(self, recipient: int) -> int:
        """How many it has registered."""
        query = "SELECT count(DISTINCT dids.id) FROM dids JOIN names ON names.did = dids.id WHERE recipient = ?"
        return int(self._rows(query, (recipient,))[0][0])

    def listing(self, recipient: int, offset: int, limit: int) -> list[str]:
        """The DIDs that a recipient has registered, as it wrote them, in the order in which it did."""
        query = (
            "SELECT long FROM dids WHERE recipient = ? AND EXISTS (SELECT 1 FROM names WHERE did = dids.id)"
            " ORDER BY id LIMIT ? OFFSET ?"
        )
        return [row[0] for row in self._rows(query, (recipient, limit, offset))]

    def register(
        self, recipient: int, did: str, long: str, names: Sequence[str], relay: bool, *, proven: bool = False
    ) -> None:
        """Let messages for a DID in, which nobody has registered: under its short form `did`, and further names that
        nobody else has. `proven`: the recipient has shown that it has the key, as far as the DID is one."""
        self._write(
            "INSERT INTO dids (recipient, did, long, relay) VALUES (?, ?, ?, ?) ON CONFLICT (did)"
            " DO UPDATE SET recipient = excluded.recipient, long = excluded.long, relay = excluded.relay",
            (recipient, did, long, relay),
        )
        number = self._rows("SELECT id FROM dids WHERE did = ?", (did,))[0][0]
        for name in (did, *names):
            self._write(
                "INSERT INTO names VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
                (name, number, proven and name == did),
            )

    def prove(self, name: str) -> None:
        """Whoever has registered this name has shown that it has its key."""
        self._write("UPDATE names SET proven = 1 WHERE name = ?", (name,))

    def evict(self, name: str) -> None:
        """Let nothing more in under this name: whom it leads to has no right to it. What waits there stays."""
        self._write("UPDATE dids SET did = did || ' ' || id WHERE did = ?", (name,))
        self._write("DELETE FROM names WHERE name = ?", (name,))

    def unregister(self, place: Place) -> None:
        """Let nothing more in. What is waiting stays until it is fetched."""
        self._write("DELETE FROM names WHERE did = ?", (place.did,))

    def first_time(self, recipient: int, name: str, now_s: int) -> bool:
        """Whether a recipient has not sent the message `name` before, among the last HEARD_MAX that were asked for."""
        digest = hashlib.sha256(name.lower().encode()).digest()[:16]
        if self._rows("SELECT 1 FROM heard WHERE recipient = ? AND digest = ?", (recipient, digest)):
            return False
        self._write("INSERT INTO heard VALUES (?, ?, ?)", (recipient, digest, now_s))
        if self._rows("SELECT count(*) FROM heard WHERE recipient = ?", (recipient,))[0][0] > HEARD_MAX:
            self._write(
                "DELETE FROM heard WHERE recipient = ?1 AND digest IN"
                " (SELECT digest FROM heard WHERE recipient = ?1 ORDER BY at LIMIT ?2)",
                (recipient, HEARD_MAX // 8),
            )
        return True

    # --- messages ---------------------------------------------------------------------------------------------------

    def is_known(self, place: Place, envelope: bytes) -> bool:
        """Whether this has come before, for the same DID: it waits, or was fetched not long ago."""
        digest = digest_of(place, envelope)
        query = (
            "SELECT 1 FROM messages WHERE digest = ?1 UNION ALL SELECT 1 FROM waiting WHERE digest = ?1"
            " UNION ALL SELECT 1 FROM seen WHERE digest = ?1 LIMIT 1"
        )
        return bool(self._rows(query, (digest,)))

    def keep(self, place: Place, name: str, envelope: bytes, now_s: int, expires: int) -> None:
        """Put an envelope, which is not known, into the recipient's queue, as the message `name`."""
        self._write(
            "INSERT INTO messages (id, recipient, did, envelope, digest, received, expires) VALUES (?,?,?,?,?,?,?)",
            (name, place.recipient, place.did, envelope, digest_of(place, envelope), now_s, expires),
        )
        self._used(place.recipient, 1, len(envelope))

    def wait(
        self, place: Place, target: str | None, envelope: bytes, due_ms: int, expires: int, digest: bytes | None = None
    ) -> None:
        """Put an envelope aside until its time has come. `digest`: what it is known by, if not by itself."""
        self._write(
            "INSERT INTO waiting (recipient, did, target, envelope, digest, due, expires) VALUES (?,?,?,?,?,?,?)",
            (place.recipient, place.did, target, envelope, digest or digest_of(place, envelope), due_ms, expires),
        )
        self._used(place.recipient, 1, len(envelope), aside=True)

    def latest(self) -> int:
        """The number of the last message that came."""
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'")[0][0])

    def fetch(self, recipient: int, limit: int, *, after: int = 0, did: int | None = None) -> list[Kept]:
        """The oldest messages that wait for a recipient (or for one of its DIDs), after the number `after`."""
        query = "SELECT seq, id, length(envelope) FROM messages WHERE recipient = ?1 AND seq > ?2"
        query += " ORDER BY seq LIMIT ?3" if did is None else " AND did = ?4 ORDER BY seq LIMIT ?3"
        bindings = (recipient, after, limit) if did is None else (recipient, after, limit, did)
        return [Kept(*row) for row in self._rows(query, bindings)]

    def envelope(self, kept: Kept) -> bytes:
        """What a message holds. It must be there."""
        return bytes(self._rows("SELECT envelope FROM messages WHERE seq = ?", (kept.seq,))[0][0])

    def ends(self, recipient: int, did: int | None = None) -> tuple[int, int, int | None, int | None]:
        """How many messages wait, their bytes, and when (UTC seconds) the oldest and the newest came."""
        if did is not None:
            query = "SELECT count(*), coalesce(sum(length(envelope)), 0), min(received), max(received) FROM messages"
            row = self._rows(query + " WHERE recipient = ? AND did = ?", (recipient, did))[0]
            return row[0], row[1], row[2], row[3]
        query = "SELECT received FROM messages WHERE recipient = ? ORDER BY seq"
        oldest = self._rows(query + " LIMIT 1", (recipient,))
        if not oldest:
            return 0, 0, None, None
        [[newest]] = self._rows(query + " DESC LIMIT 1", (recipient,))
        used, aside = self.usage[recipient], self.aside[recipient]
        return used.messages - aside.messages, used.bytes - aside.bytes, oldest[0][0], newest

    def received(self, recipient: int, names: Sequence[str], until_s: int) -> int:
        """Forget messages that a recipient has; their digests only at `until_s`. How many there were."""
        gone = 0
        for name in names:
            rows = self._rows(
                "DELETE FROM messages WHERE id = ? AND recipient = ? RETURNING digest, length(envelope)",
                (name, recipient),
            )
            for digest, size in rows:
                self._note(digest, until_s)
                self._used(recipient, -1, -size)
                gone += 1
        return gone

    # --- what waits for its time ------------------------------------------------------------------------------------

    def due(self, now_ms: int, limit: int, *, sending: bool = True, busy: Collection[int] = ()) -> list[Due]:
        """What is to be done now, the oldest first; without `sending`, only what stays here, and nothing that is to be
        sent on for the recipients in `busy`."""
        where, bindings = _sendable(sending, busy)
        query = f"{WAITING} WHERE due <= ?{where} ORDER BY due LIMIT ?"
        return [due_of(row) for row in self._rows(query, (now_ms, *bindings, limit))]

    def waiting(self, seq: int) -> Due | None:
        """What waits under this number, if it still does."""
        rows = self._rows(f"{WAITING} WHERE waiting.seq = ?", (seq,))
        return due_of(rows[0]) if rows else None

    def next_due(self, *, sending: bool = True, busy: Collection[int] = ()) -> int | None:
        """When something is to be done next, in UTC milliseconds; `sending` and `busy` as for `due`."""
        where, bindings = _sendable(sending, busy)
        return self._rows(f"SELECT min(due) FROM waiting WHERE 1{where}", bindings)[0][0]  # type: ignore[no-any-return] # noqa: S608

    def postpone(self, seq: int, due_ms: int, tries: int) -> None:
        self._write("UPDATE waiting SET due = ?, tries = ? WHERE seq = ?", (due_ms, tries, seq))

    def done(self, seq: int, until_s: int | None) -> None:
        """Take away what waited; its digest is kept until `until_s`, or (None) not at all."""
        rows = self._rows("DELETE FROM waiting WHERE seq = ? RETURNING recipient, digest, length(envelope)", (seq,))
        for recipient, digest, size in rows:
            if until_s is not None:
                self._note(digest, until_s)
            self._used(recipient, -1, -size, aside=True)

    # --- tidying ----------------------------------------------------------------------------------------------------

    def sweep(self, now_s: int, idle_s: int) -> tuple[int, bool]:
        """Take away what has expired, and recipients that were not heard of for `idle_s`. How many messages went, and
        whether there may be more to take away."""
        gone, more = 0, False
        for table in ("messages", "waiting"):
            rows = self._rows(
                f"DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} WHERE expires <= ? LIMIT {SWEEP_MAX})"  # noqa: S608
                " RETURNING recipient, length(envelope)",
                (now_s,),
            )
            for recipient, size in rows:
                self._used(recipient, -1, -size, aside=table == "waiting")
            gone += len(rows)
            more = more or len(rows) == SWEEP_MAX
        forgotten = self._rows(
            f"DELETE FROM seen WHERE digest IN (SELECT digest FROM seen WHERE until <= ? LIMIT {FORGET_MAX})"  # noqa: S608
            " RETURNING 1",
            (now_s,),
        )
        self._seen -= len(forgotten)
        for (idle,) in self._rows("SELECT id FROM recipients WHERE heard <= ? LIMIT 16", (now_s - idle_s,)):
            self._drop(idle)
        self._write(
            "DELETE FROM dids WHERE NOT EXISTS (SELECT 1 FROM names WHERE names.did = dids.id)"
            " AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.did = dids.id)"
            " AND NOT EXISTS (SELECT 1 FROM waiting WHERE waiting.did = dids.id)",
            (),
        )
        return gone, more or len(forgotten) == FORGET_MAX

    def _drop(self, recipient: int) -> None:
        self._write("DELETE FROM names WHERE did IN (SELECT id FROM dids WHERE recipient = ?)", (recipient,))
        for table in ("messages", "waiting", "heard"):
            self._write(f"DELETE FROM {table} WHERE recipient = ?", (recipient,))  # noqa: S608
        self._write("DELETE FROM recipients WHERE id = ?", (recipient,))
        gone = self.usage.pop(recipient, Usage())
        self.aside.pop(recipient, None)
        self.total.add(-gone.messages, -gone.bytes)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _used(self, recipient: int, messages: int, size: int, *, aside: bool = False) -> None:
        self.usage[recipient].add(messages, size)
        self.total.add(messages, size)
        if aside:
            self.aside[recipient].add(messages, size)

    def _note(self, digest: bytes, until_s: int) -> None:
        """Recognise a message that is gone, until then."""
        if self._seen < SEEN_MAX:
            self._seen += 1
            self._write(FORGET, (digest, until_s))

    def _count(self) -> None:
        """Count afresh what is on disk."""
        self.usage.clear()
        self.aside.clear()
        self.total = Usage()
        self._seen = self._rows("SELECT count(*) FROM seen")[0][0]
        for table in ("messages", "waiting"):
            query = f"SELECT recipient, count(*), sum(length(envelope)) FROM {table} GROUP BY recipient"  # noqa: S608
            for recipient, messages, size in self._rows(query):
                self._used(recipient, messages, size, aside=table == "waiting")

    def _rows(self, query: str, bindings: Sequence[object] = ()) -> list[Any]:
        with faults(self.path, self._db):
            return list(self._db.execute(query, bindings))

    def _write(self, query: str, bindings: Sequence[object]) -> None:
        assert self._inside
        with faults(self.path, self._db):
            self._db.execute(query, bindings)


def _sendable(sending: bool, busy: Collection[int]) -> tuple[str, tuple[int, ...]]:
    """The condition that leaves out what cannot be sent on now, and what goes into it."""
    if not sending:
        return " AND target IS NULL", ()
    if not busy:
        return "", ()
    return f" AND (target IS NULL OR waiting.recipient NOT IN ({','.join('?' * len(busy))}))", tuple(busy)
