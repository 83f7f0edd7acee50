"""Mediator store: recipients, their DIDs and stored envelopes, in one encrypted SQLite file.

    recipients       those with granted mediation
    dids, names      registered DIDs, and all their names in forwards
    replay_digests   digests of recipients' messages that must not be replayed
    messages         envelopes to be fetched; `seq` is the order of arrival
    delayed          envelopes with a delay, or to be relayed (`target`)
    delivered        digests of delivered messages, to discard duplicates
    short_links      sealed invitations that are served to joiners
    sharers          shared mailboxes (`shared_mailboxes.py`)

All changes happen inside a `transaction` for one batch, which is on disk when it ends; only then results are sent. The
usage per recipient and DID is cached in memory, because every message needs it.
"""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from zerochat.agent.mediator import shared_mailboxes
from zerochat.agent.mediator.tables import (
    ADD_DELIVERED,
    DELAYED,
    EVICT_DELAYED,
    EVICT_MESSAGE,
    FORMAT,
    RECIPIENT,
    SCHEMA,
    SET_META,
    TOUCH,
    DelayedMessage,
    QueuedMessage,
    Recipient,
    Registration,
    digest_of,
    due_of,
    recipient_of,
    registration_of,
    sendable,
)
from zerochat.agent.mediator.usage import Usage
from zerochat.agent.storage.database import create_database, open_database, sqlite_errors, transaction
from zerochat.closing import Closing
from zerochat.errors import LocalError

SWEEP_MAX: Final = 1_000
"""Messages deleted by one sweep, so that a transaction stays short."""
DELIVERED_SWEEP_MAX: Final = 4_000
"""Digests deleted by one sweep: more than arrive in the same time."""
DELIVERED_MAX: Final = 2_000_000
"""Digests of delivered messages: some 150 MB. Beyond that no more are kept, and duplicates are stored again."""
REPLAY_DIGESTS_MAX: Final = 8_192
"""Replay digests of one recipient; the oldest are deleted first."""


class Store(Closing):
    """An open store, used by one thread. A context manager. Methods raise the errors of `sqlite_errors`."""

    def __init__(self, path: Path, connection: Any) -> None:
        """Use `create` or `open`."""
        self.path = path
        self._db = connection
        self.usage = Usage()
        self.shared_mailboxes = shared_mailboxes.SharedMailboxes(self._rows, self._write)
        self._delivered = 0
        """Number of delivered digests; duplicates may count twice."""
        self._inside = False

    @classmethod
    def create(cls, path: Path, key: bytes) -> Self:
        store = cls(path, create_database(path, key))
        try:
            with transaction(path, store._db):
                store._db.execute(SCHEMA)
                store._db.execute(shared_mailboxes.SCHEMA)
        except BaseException:
            store.close()
            raise
        return store

    @classmethod
    def open(cls, path: Path, key: bytes) -> Self:
        store = cls(path, open_database(path, key, FORMAT))
        with sqlite_errors(path, store._db):
            store._db.execute(shared_mailboxes.SCHEMA)
        store._count()
        return store

    def close(self) -> None:
        with sqlite_errors(self.path, self._db):
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: committed when the context ends, rolled back when it raises.

        Every batch writes something, so that disk latency does not reveal whether a message was stored or dropped. The
        remaining CPU time (some 100 microseconds, up to one millisecond for a large message) is visible only to a
        nearby observer that already knows the name.
        """
        try:
            with transaction(self.path, self._db):
                self._inside = True
                self._db.execute(TOUCH)
                yield
        except BaseException:
            with suppress(LocalError):  # an unreadable disk fails the next batch anyway
                self._count()
            raise
        finally:
            self._inside = False

    # --- meta -------------------------------------------------------------------------------------------------------

    def meta_get(self, key: str) -> bytes | None:
        rows = self._rows("SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else None

    def meta_set(self, key: str, value: bytes) -> None:
        self._write(SET_META, (key, value))

    # --- recipients -------------------------------------------------------------------------------------------------

    def recipients(self) -> int:
        """Number of recipients."""
        return int(self._rows("SELECT count(*) FROM recipients")[0][0])

    def recipient(self, did: str) -> Recipient | None:
        """The recipient with this DID (short form)."""
        rows = self._rows(f"{RECIPIENT} WHERE did = ?", (did,))
        return recipient_of(rows[0]) if rows else None

    def recipient_numbered(self, number: int) -> Recipient | None:
        rows = self._rows(f"{RECIPIENT} WHERE id = ?", (number,))
        return recipient_of(rows[0]) if rows else None

    def is_own(self, did: str) -> bool:
        """Whether this is one of our pairwise DIDs."""
        return bool(self._rows("SELECT 1 FROM recipients WHERE pairwise_did = ?", (did,)))

    def seats(self, invitation: str) -> int:
        """Number of recipients that came with this invitation."""
        return int(self._rows("SELECT count(*) FROM recipients WHERE invitation = ?", (invitation,))[0][0])

    def grant(self, did: str, long_did: str, pairwise_did: str, now_s: int, invitation: str) -> None:
        """Add a recipient, with our pairwise DID for it."""
        self._write(
            "INSERT INTO recipients (did, long_did, last_seen, pairwise_did, rotated_at, rotation_confirmed,"
            " invitation) VALUES (?, ?, ?, ?, ?, 0, ?)",
            (did, long_did, now_s, pairwise_did, now_s, invitation),
        )

    def confirm_rotation(self, recipient: int, *, confirmed: bool) -> None:
        """Record whether the recipient has addressed its pairwise DID."""
        self._write("UPDATE recipients SET rotation_confirmed = ? WHERE id = ?", (confirmed, recipient))

    def rotate(self, recipient: int, did: str, long: str) -> None:
        """Change the recipient's DID to an unused one."""
        self._write("UPDATE recipients SET did = ?, long_did = ? WHERE id = ?", (did, long, recipient))

    def touch(self, recipient: int, now_s: int) -> None:
        self._write("UPDATE recipients SET last_seen = ? WHERE id = ?", (now_s, recipient))

    # --- their DIDs -------------------------------------------------------------------------------------------------

    def registration(self, name: str) -> Registration | None:
        """The registration of a name; None: not registered."""
        rows = self._rows(
            "SELECT recipient, dids.id, long_did, relay, proven FROM names JOIN dids ON dids.id = names.did"
            " WHERE name = ?",
            (name,),
        )
        return registration_of(rows[0]) if rows else None

    def dids(self, recipient: int) -> int:
        """Number of its registered DIDs."""
        query = "SELECT count(DISTINCT dids.id) FROM dids JOIN names ON names.did = dids.id WHERE recipient = ?"
        return int(self._rows(query, (recipient,))[0][0])

    def shares(self, recipient: int) -> int:
        """Number of its DIDs that are registered, or have messages left."""
        return int(self._rows("SELECT count(*) FROM dids WHERE recipient = ?", (recipient,))[0][0])

    def listing(self, recipient: int, offset: int, limit: int) -> list[str]:
        """The registered DIDs as written by the recipient, in order of registration."""
        query = (
            "SELECT long_did FROM dids WHERE recipient = ? AND EXISTS (SELECT 1 FROM names WHERE did = dids.id)"
            " ORDER BY id LIMIT ? OFFSET ?"
        )
        return [row[0] for row in self._rows(query, (recipient, limit, offset))]

    def register(
        self, recipient: int, did: str, long: str, names: Sequence[str], relay: bool, *, proven: bool = False
    ) -> None:
        """Register an unregistered DID: under its short form `did`, and further unused names. `proven`: the recipient
        has proved possession of the key of `did`."""
        self._write(
            "INSERT INTO dids (recipient, did, long_did, relay) VALUES (?, ?, ?, ?) ON CONFLICT (did)"
            " DO UPDATE SET recipient = excluded.recipient, long_did = excluded.long_did, relay = excluded.relay",
            (recipient, did, long, relay),
        )
        number = self._rows("SELECT id FROM dids WHERE did = ?", (did,))[0][0]
        for name in (did, *names):
            self._write(
                "INSERT INTO names VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING",
                (name, number, proven and name == did),
            )

    def prove(self, name: str) -> None:
        """The recipient has proved possession of this name's key."""
        self._write("UPDATE names SET proven = 1 WHERE name = ?", (name,))

    def evict(self, name: str) -> None:
        """Unregister a name whose recipient has no right to it. Stored messages stay."""
        self._write("UPDATE dids SET did = did || ' ' || id WHERE did = ?", (name,))
        self._write("DELETE FROM names WHERE name = ?", (name,))

    def unregister(self, registration: Registration) -> None:
        """Unregister. Stored messages stay until they are fetched."""
        self._write("DELETE FROM names WHERE did = ?", (registration.did,))

    def is_fresh(self, recipient: int, name: str, now_s: int) -> bool:
        """Whether a recipient's message is no replay of one of its last REPLAY_DIGESTS_MAX."""
        digest = hashlib.sha256(name.lower().encode()).digest()[:16]
        if self._rows("SELECT 1 FROM replay_digests WHERE recipient = ? AND digest = ?", (recipient, digest)):
            return False
        self._write("INSERT INTO replay_digests VALUES (?, ?, ?)", (recipient, digest, now_s))
        if (
            self._rows("SELECT count(*) FROM replay_digests WHERE recipient = ?", (recipient,))[0][0]
            > REPLAY_DIGESTS_MAX
        ):
            self._write(
                "DELETE FROM replay_digests WHERE recipient = ?1 AND digest IN"
                " (SELECT digest FROM replay_digests WHERE recipient = ?1 ORDER BY at LIMIT ?2)",
                (recipient, REPLAY_DIGESTS_MAX // 8),
            )
        return True

    # --- messages ---------------------------------------------------------------------------------------------------

    def is_known(self, registration: Registration, envelope: bytes) -> bool:
        """Whether this envelope is a duplicate for the same DID: stored, or delivered recently."""
        digest = digest_of(registration, envelope)
        query = (
            "SELECT 1 FROM messages WHERE digest = ?1 UNION ALL SELECT 1 FROM delayed WHERE digest = ?1"
            " UNION ALL SELECT 1 FROM delivered WHERE digest = ?1 LIMIT 1"
        )
        return bool(self._rows(query, (digest,)))

    def store(self, registration: Registration, name: str, envelope: bytes, now_s: int, expires: int) -> None:
        """Store a new envelope in the recipient's queue, as the message `name`."""
        self._write(
            "INSERT INTO messages (id, recipient, did, envelope, digest, received, expires) VALUES (?,?,?,?,?,?,?)",
            (
                name,
                registration.recipient,
                registration.did,
                envelope,
                digest_of(registration, envelope),
                now_s,
                expires,
            ),
        )
        self._added(registration, len(envelope))

    def evict_oldest(self, registration: Registration) -> bool:
        """Delete the oldest stored message of a DID; False: there is none. Its digest is kept for as long as the
        message would have been, so that a repeated forward reveals no eviction."""
        return self._evict_oldest(registration.recipient, registration.did)

    def evict_from_largest(self, recipient: int, *, delayed: bool) -> bool:
        """The same for the DID of a recipient, registered or not, that has most bytes stored; `delayed`: the oldest of
        its delayed and relayed messages, for the DID that has most bytes of these."""
        usage = self.usage

        def stored(did: int) -> tuple[int, int]:
            both, aside = usage.of_did(did), usage.delayed_of_did(did)
            return (
                (aside.bytes, aside.messages) if delayed else (both.bytes - aside.bytes, both.messages - aside.messages)
            )

        dids = [did for (did,) in self._rows("SELECT id FROM dids WHERE recipient = ?", (recipient,))]
        return bool(dids) and self._evict_oldest(recipient, max(dids, key=stored), delayed=delayed)

    def _evict_oldest(self, recipient: int, did: int, *, delayed: bool = False) -> bool:
        rows = self._rows(EVICT_DELAYED if delayed else EVICT_MESSAGE, (did, recipient))
        for digest, size, expires in rows:
            self.note(digest, expires)
            self.usage.add(recipient, did, -1, -size, delayed=delayed)
        return bool(rows)

    def delay(
        self,
        registration: Registration,
        target: str | None,
        envelope: bytes,
        due_ms: int,
        expires: int,
        digest: bytes | None = None,
    ) -> None:
        """Store an envelope until it is due. `digest`: its identity for duplicates, if not its own digest."""
        self._write(
            "INSERT INTO delayed (recipient, did, target, envelope, digest, due, expires) VALUES (?,?,?,?,?,?,?)",
            (
                registration.recipient,
                registration.did,
                target,
                envelope,
                digest or digest_of(registration, envelope),
                due_ms,
                expires,
            ),
        )
        self._added(registration, len(envelope), delayed=True)

    def latest(self) -> int:
        """The number of the last stored message."""
        return int(self._rows("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'messages'")[0][0])

    def fetch(self, recipient: int, limit: int, *, after: int = 0, did: int | None = None) -> list[QueuedMessage]:
        """The oldest messages of a recipient (or of one of its DIDs), after the number `after`."""
        query = "SELECT seq, id, length(envelope) FROM messages WHERE recipient = ?1 AND seq > ?2"
        query += " ORDER BY seq LIMIT ?3" if did is None else " AND did = ?4 ORDER BY seq LIMIT ?3"
        bindings = (recipient, after, limit) if did is None else (recipient, after, limit, did)
        return [QueuedMessage(*row) for row in self._rows(query, bindings)]

    def envelope(self, kept: QueuedMessage) -> bytes:
        """The envelope of a stored message."""
        return bytes(self._rows("SELECT envelope FROM messages WHERE seq = ?", (kept.seq,))[0][0])

    def queue_status(self, recipient: int, did: int | None = None) -> tuple[int, int, int | None, int | None]:
        """Number and bytes of stored messages, and the arrival (UTC seconds) of the oldest and newest."""
        if did is not None:
            query = "SELECT count(*), coalesce(sum(length(envelope)), 0), min(received), max(received) FROM messages"
            row = self._rows(query + " WHERE recipient = ? AND did = ?", (recipient, did))[0]
            return row[0], row[1], row[2], row[3]
        query = "SELECT received FROM messages WHERE recipient = ? ORDER BY seq"
        oldest = self._rows(query + " LIMIT 1", (recipient,))
        if not oldest:
            return 0, 0, None, None
        [[newest]] = self._rows(query + " DESC LIMIT 1", (recipient,))
        used, waiting = self.usage.recipients[recipient], self.usage.delayed[recipient]
        return used.messages - waiting.messages, used.bytes - waiting.bytes, oldest[0][0], newest

    def acknowledge(self, recipient: int, names: Iterable[str], until_s: int) -> int:
        """Delete acknowledged messages, keep their digests until `until_s`; their number."""
        gone = 0
        for name in names:
            rows = self._rows(
                "DELETE FROM messages WHERE id = ? AND recipient = ? RETURNING did, digest, length(envelope)",
                (name, recipient),
            )
            for did, digest, size in rows:
                self.note(digest, until_s)
                self.usage.add(recipient, did, -1, -size)
                gone += 1
        return gone

    # --- delayed envelopes -----------------------------------------------------------------------------------------

    def due(self, now_ms: int, limit: int, *, sending: bool = True, busy: Collection[int] = ()) -> list[DelayedMessage]:
        """The delayed envelopes that are due, oldest first; without `sending` only those to store, and none to relay
        for the recipients in `busy`."""
        where, bindings = sendable(sending, busy)
        query = f"{DELAYED} WHERE due <= ?{where} ORDER BY due LIMIT ?"
        return [due_of(row) for row in self._rows(query, (now_ms, *bindings, limit))]

    def delayed(self, seq: int) -> DelayedMessage | None:
        """The delayed envelope with this number, if any."""
        rows = self._rows(f"{DELAYED} WHERE delayed.seq = ?", (seq,))
        return due_of(rows[0]) if rows else None

    def next_due(self, *, sending: bool = True, busy: Collection[int] = ()) -> int | None:
        """When the next delayed envelope is due, UTC ms; `sending` and `busy` as for `due`."""
        where, bindings = sendable(sending, busy)
        return self._rows(f"SELECT min(due) FROM delayed WHERE 1{where}", bindings)[0][0]  # type: ignore[no-any-return] # noqa: S608

    def postpone(self, seq: int, due_ms: int, tries: int) -> None:
        self._write("UPDATE delayed SET due = ?, tries = ? WHERE seq = ?", (due_ms, tries, seq))

    def done(self, seq: int, until_s: int | None) -> None:
        """Delete a delayed envelope; keep its digest until `until_s`, or (None) not at all."""
        query = "DELETE FROM delayed WHERE seq = ? RETURNING recipient, did, digest, length(envelope)"
        for recipient, did, digest, size in self._rows(query, (seq,)):
            if until_s is not None:
                self.note(digest, until_s)
            self.usage.add(recipient, did, -1, -size, delayed=True)

    # --- short links ------------------------------------------------------------------------------------------------

    def link_counts(self, recipient: int) -> tuple[int, int]:
        """Number of short links of a recipient, and in total."""
        query = "SELECT coalesce(sum(recipient = ?), 0), count(*) FROM short_links"
        own, total = self._rows(query, (recipient,))[0]
        return own, total

    def link_owner(self, oobid: str) -> int | None:
        """The recipient that has published a short link; None: it does not exist."""
        rows = self._rows("SELECT recipient FROM short_links WHERE oobid = ?", (oobid,))
        return rows[0][0] if rows else None

    def put_link(self, recipient: int, oobid: str, sealed: bytes, expires: int) -> None:
        self._write(
            "INSERT INTO short_links VALUES (?, ?, ?, ?) ON CONFLICT (oobid)"
            " DO UPDATE SET sealed = excluded.sealed, expires = excluded.expires",
            (oobid, recipient, sealed, expires),
        )

    def keep_links(self, recipient: int, oobids: Collection[str]) -> list[str]:
        """Delete all short links of a recipient but these; the deleted ones."""
        rows = self._rows("SELECT oobid FROM short_links WHERE recipient = ?", (recipient,))
        gone = [oobid for (oobid,) in rows if oobid not in oobids]
        for oobid in gone:
            self._write("DELETE FROM short_links WHERE oobid = ?", (oobid,))
        return gone

    def links(self) -> list[tuple[str, bytes, int]]:
        """Id, sealed bytes and expiry (UTC seconds) of all short links."""
        return self._rows("SELECT oobid, sealed, expires FROM short_links")

    # --- cleanup ----------------------------------------------------------------------------------------------------

    def sweep(self, now_s: int, idle_s: int, unused_idle_s: int) -> tuple[int, bool]:
        """Delete expired messages, and recipients inactive for `idle_s`, or `unused_idle_s` if they never had a
        message. The number of deleted messages, and whether there may be more."""
        gone, more = 0, False
        for table in ("messages", "delayed"):
            rows = self._rows(
                f"DELETE FROM {table} WHERE seq IN (SELECT seq FROM {table} WHERE expires <= ? LIMIT {SWEEP_MAX})"  # noqa: S608
                " RETURNING recipient, did, length(envelope)",
                (now_s,),
            )
            for recipient, did, size in rows:
                self.usage.add(recipient, did, -1, -size, delayed=table == "delayed")
            gone += len(rows)
            more = more or len(rows) == SWEEP_MAX
        forgotten = self._rows(
            f"DELETE FROM delivered WHERE digest IN"  # noqa: S608
            f" (SELECT digest FROM delivered WHERE until <= ? LIMIT {DELIVERED_SWEEP_MAX}) RETURNING 1",
            (now_s,),
        )
        self._delivered -= len(forgotten)
        self._write("DELETE FROM short_links WHERE expires <= ?", (now_s,))
        for used, after_s in ((1, idle_s), (0, unused_idle_s)):
            query = "SELECT id FROM recipients WHERE used = ? AND last_seen <= ? LIMIT 16"
            for (idle,) in self._rows(query, (used, now_s - after_s)):
                self._drop(idle)
        self._write(
            "DELETE FROM dids WHERE NOT EXISTS (SELECT 1 FROM names WHERE names.did = dids.id)"
            " AND NOT EXISTS (SELECT 1 FROM messages WHERE messages.did = dids.id)"
            " AND NOT EXISTS (SELECT 1 FROM delayed WHERE delayed.did = dids.id)",
            (),
        )
        return gone, more or len(forgotten) == DELIVERED_SWEEP_MAX

    def _drop(self, recipient: int) -> None:
        self._write("DELETE FROM names WHERE did IN (SELECT id FROM dids WHERE recipient = ?)", (recipient,))
        for table in ("messages", "delayed", "replay_digests", "short_links"):
            self._write(f"DELETE FROM {table} WHERE recipient = ?", (recipient,))  # noqa: S608
        self.shared_mailboxes.forget(recipient)
        self._write("DELETE FROM recipients WHERE id = ?", (recipient,))
        dids = self._rows("SELECT id FROM dids WHERE recipient = ?", (recipient,))
        self.usage.forget(recipient, [did for (did,) in dids])

    # --- internals --------------------------------------------------------------------------------------------------

    def _added(self, registration: Registration, size: int, *, delayed: bool = False) -> None:
        self.usage.add(registration.recipient, registration.did, 1, size, delayed=delayed)
        self.usage.work[registration.recipient].written += size
        self._write("UPDATE recipients SET used = 1 WHERE id = ? AND used = 0", (registration.recipient,))

    def is_noted(self, digest: bytes) -> bool:
        """Whether this is the digest of a message that was delivered, or `note`d."""
        return bool(self._rows("SELECT 1 FROM delivered WHERE digest = ?", (digest,)))

    def note(self, digest: bytes, until_s: int) -> None:
        """Recognise duplicates of a message until then."""
        if self._delivered < DELIVERED_MAX:
            self._delivered += 1
            self._write(ADD_DELIVERED, (digest, until_s))

    def _count(self) -> None:
        """Recompute the usage from disk."""
        self.usage.clear()
        self._delivered = self._rows("SELECT count(*) FROM delivered")[0][0]
        for table in ("messages", "delayed"):
            query = f"SELECT recipient, did, count(*), sum(length(envelope)) FROM {table} GROUP BY recipient, did"  # noqa: S608
            for recipient, did, messages, size in self._rows(query):
                self.usage.add(recipient, did, messages, size, delayed=table == "delayed")

    def _rows(self, query: str, bindings: Sequence[object] = ()) -> list[Any]:
        with sqlite_errors(self.path, self._db):
            return list(self._db.execute(query, bindings))

    def _write(self, query: str, bindings: Sequence[object]) -> None:
        assert self._inside
        with sqlite_errors(self.path, self._db):
            self._db.execute(query, bindings)
