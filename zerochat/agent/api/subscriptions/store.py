"""Durable notifications, consumers and idempotency keys in the journal.

A batch writes its records in its own transaction (`write`). Notifications are stored once the first consumer exists.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.subscriptions import tables
from zerochat.rpc.subscriptions import KEYS_MAX, KEYS_MS_MAX, NOTIFICATIONS_MAX, NOTIFICATIONS_MS_MAX, OVERFLOW_PERCENT

BEHIND_MAX: Final = 10_000
"""The most events that are counted for a consumer's lag."""
ALREADY_ACKED: Final = -1
"""In `Consumer.attempts`: acknowledged under an earlier number."""
BATCH: Final = 20
"""Retention drops this fraction (1/20) of the limit at a time, which is cheaper than one by one."""


class DurableNotification(Struct, frozen=True):
    """A notification that consumers receive as an item."""

    group: str
    """Empty: of no group."""
    type: str
    at: int
    """UTC milliseconds."""
    body: str
    """JSON."""
    seq: int = 0
    """Local and monotone, in one sequence with the events of the log; 0 before it is written."""


class Consumer(Struct, frozen=True):
    """A named consumer as it is stored."""

    name: str
    acked: int
    """Items up to this number are acknowledged."""
    sent_to: int
    """The highest number sent, as far as it was written; at least `acked`."""
    created: int
    """UTC milliseconds."""
    updated: int
    groups: tuple[str, ...] | None = None
    """The groups of its last subscription; None: all."""
    types: tuple[str, ...] | None = None
    attempts: Mapping[int, int] = field(default_factory=dict)
    """By number, how often an item was sent that was not acknowledged when the connection ended, or `ALREADY_ACKED`."""
    lost_from: int = 0
    lost_to: int = 0
    lost: int = 0
    """How many of its notifications were dropped unacknowledged, and the range of their numbers."""

    def already_acked(self, acked: int) -> dict[int, int]:
        """The entries of `attempts` after a number that were acknowledged under an earlier number."""
        return {seq: count for seq, count in self.attempts.items() if count == ALREADY_ACKED and seq > acked}


class StoredAnswer(Struct, frozen=True):
    """The result of a request with an idempotency key."""

    group: str
    key: str
    at: int
    """UTC milliseconds."""
    digest: bytes
    """Of the request."""
    answer: str
    """JSON."""


class SubscriptionRecords(Struct, frozen=True):
    """What a batch writes for subscriptions."""

    notifications: tuple[DurableNotification, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    """Their new state."""
    answers: tuple[StoredAnswer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.notifications or self.consumers or self.answers)


class _Cache(Struct):
    """The content of the tables, read once."""

    consumers: dict[str, Consumer]
    numbers: list[int]
    """Of the notifications, in order."""
    times: list[int]
    """Their times in UTC milliseconds, never decreasing."""
    keys: int
    refuted_unacked: int
    """Events that were refuted before every consumer had acknowledged them."""


class SubscriptionStore:
    """Subscriptions in one journal. Every method raises what the journal raises."""

    def __init__(
        self,
        db: apsw.Connection,
        faults: Callable[[], AbstractContextManager[None]],
        transaction: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._db, self._faults, self._transaction = db, faults, transaction
        self._cache: _Cache | None = None

    # --- reading ----------------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> Mapping[str, Consumer]:
        """By name."""
        return self._known().consumers

    @property
    def refuted_unacked(self) -> int:
        """How many events were refuted before every consumer had acknowledged them, and were not stored again."""
        return self._known().refuted_unacked

    def latest(self) -> int:
        """The number of the last event or notification ever written; 0: none."""
        with self._faults():
            return self._latest()

    def notifications(self, after: int, limit: int) -> list[DurableNotification]:
        """The first `limit` notifications after a number."""
        if not self._known().numbers or self._known().numbers[-1] <= after:
            return []
        with self._faults():
            rows: Iterable[Any] = self._db.execute(tables.NOTIFICATIONS, (after, limit))
            return [DurableNotification(group, kind, at, body, seq) for seq, group, kind, at, body in rows]

    def behind(self, acked: int) -> int:
        """How many events and notifications follow a number; at most `BEHIND_MAX` events are counted."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(tables.BEHIND, (acked, BEHIND_MAX)).fetchall()
            return min(int(rows[0][0]), BEHIND_MAX)

    def unread(self, acked: int) -> int:
        """How many notifications follow a number."""
        numbers = self._known().numbers
        return len(numbers) - bisect_right(numbers, acked)

    def at_risk(self, acked: int, now: int) -> tuple[int, int, int] | None:
        """Where unread notifications will soon be dropped: how many are unread, how many more fit before the first is
        dropped, and when it is dropped at the latest (UTC milliseconds, as `now`)."""
        known = self._known()
        first = bisect_right(known.numbers, acked)
        unread = len(known.numbers) - first
        if not unread:
            return None
        until = known.times[first] + NOTIFICATIONS_MS_MAX
        soon = until - now < NOTIFICATIONS_MS_MAX * (100 - OVERFLOW_PERCENT) // 100
        if unread * 100 < NOTIFICATIONS_MAX * OVERFLOW_PERCENT and not soon:
            return None
        return unread, NOTIFICATIONS_MAX - unread, until

    def key(self, group: str, key: str, now: int) -> tuple[bytes, str] | None:
        """The request's digest and the result as JSON of a key; None: the key is unused or has expired."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(tables.KEY, (group, key, now - KEYS_MS_MAX)).fetchall()
            return (rows[0][0], rows[0][1]) if rows else None

    def posts_in(self, group: str, author: str, after: int, upto: int, limit: int) -> list[tuple[str, int]]:
        """The ids and positions of an author's last `limit` messages in a range of its chain, in order."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(tables.POSTS_IN, (group, author, after, upto, limit)).fetchall()
            return [(event, position) for event, position in reversed(rows)]

    def announcements(self, group: str) -> dict[str, rpc.AnnounceParams]:
        """What each consumer has announced in a group, by its name."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(tables.ANNOUNCEMENTS, (group,)).fetchall()
        return {name: msgspec.json.decode(body, type=rpc.AnnounceParams) for name, body in rows}

    # --- writing ----------------------------------------------------------------------------------------------------

    def put(self, consumer: Consumer) -> None:
        """Write one consumer; it is on disk when this returns."""
        with self._transaction():
            self._put(consumer)
        self._known().consumers[consumer.name] = consumer

    def announce(self, group: str, wanted: rpc.AnnounceParams) -> None:
        """Store what a consumer announces; on disk when this returns."""
        with self._transaction():
            if wanted.bot or wanted.commands:
                body = msgspec.json.encode(wanted).decode()
                self._db.execute(tables.PUT_ANNOUNCEMENT, (group, wanted.consumer, body))
            else:
                self._db.execute(tables.DROP_ANNOUNCEMENT, (group, wanted.consumer))

    def drop(self, name: str) -> None:
        """Delete a consumer, and with the last one all notifications."""
        known = self._known()
        left = {other: one for other, one in known.consumers.items() if other != name}
        with self._transaction():
            self._db.execute(tables.DROP_CONSUMER, (name,))
            self._db.execute(tables.DROP_ANNOUNCEMENTS, (name,))
            if not left:
                self._db.execute("DELETE FROM notifications")
        known.consumers = left
        if not left:
            known.numbers, known.times = [], []

    def write(self, records: SubscriptionRecords) -> None:
        """Write the records of a batch, in its transaction. Call `rolled_back` where that fails."""
        after = self._known()
        for consumer in records.consumers:
            if consumer.name in after.consumers:  # else it was deleted meanwhile
                # This batch may have renumbered events already.
                noted = after.consumers[consumer.name].already_acked(consumer.acked)
                consumer = replace(consumer, attempts={**consumer.attempts, **noted})
                after.consumers[consumer.name] = consumer
                self._put(consumer)
        if records.notifications and after.consumers:
            self._append(records.notifications, after)
        for one in records.answers:
            self._db.execute(tables.PUT_KEY, (one.group, one.key, one.at, one.digest, one.answer))
            after.keys += 1
        if after.keys > KEYS_MAX:
            after.keys = self._key_count()
            if after.keys > KEYS_MAX:
                surplus = after.keys - KEYS_MAX + KEYS_MAX // BATCH
                self._db.execute(tables.DROP_KEYS, (surplus - 1,))
                after.keys -= surplus

    def note_refuted(self, group: str, author: str, after: int, upto: int) -> None:
        """Note, in this transaction, that a range of a chain is refuted. Consumers that have not reached it skip it;
        if it is stored again, it gets new numbers (`renumber`)."""
        known = self._known()
        if known.consumers:
            for note in (tables.NOTE_REFUTED, tables.NOTE_ACKED):
                self._db.execute(note, (group, author, after, upto))
                known.refuted_unacked += self._db.changes()

    def renumber(self, event: str) -> tuple[int, int] | None:
        """Give an event that is stored again, and was refuted before every consumer had acknowledged it, the next
        number, in this transaction: its old and new number. Consumers that had acknowledged it skip the new one."""
        rows: Sequence[Any] = self._db.execute(tables.REFUTED, (event,)).fetchall()
        if not rows:
            return None
        before, now = int(rows[0][0]), self._latest() + 1
        self._db.execute(tables.RENUMBER, (now, before))
        self._db.execute(tables.TAKE_NUMBERS, (now,))
        acked: Sequence[Any] = self._db.execute(tables.ACKED_BY, (event,)).fetchall()
        known = self._known()
        for name in [name for (name,) in acked if name in known.consumers]:
            consumer = known.consumers[name]
            known.consumers[name] = replace(consumer, attempts={**consumer.attempts, now: ALREADY_ACKED})
            self._put(known.consumers[name])
        self._db.execute(tables.DROP_REFUTED, (event,))
        known.refuted_unacked -= self._db.changes()
        return before, now

    def rolled_back(self) -> None:
        """The last transaction was not committed: read the tables again."""
        self._cache = None

    def forget(self, group: str) -> None:
        """Delete what belongs to a group, within the transaction of a batch."""
        self._db.execute(tables.FORGET_NOTIFICATIONS, (group,))
        self._db.execute(tables.FORGET_KEYS, (group,))
        self._db.execute(tables.FORGET_ANNOUNCEMENTS, (group,))
        self._db.execute(tables.FORGET_REFUTED, (group,))
        self._cache = None

    # --- inside -----------------------------------------------------------------------------------------------------

    def _known(self) -> _Cache:
        if self._cache is None:
            with self._faults():
                rows: Iterable[Any] = self._db.execute(tables.CONSUMERS)
                consumers = {row[0]: _consumer(row) for row in rows}
                numbers: Sequence[Any] = self._db.execute(tables.NUMBERS).fetchall()
                keys = self._key_count()
                refuted: Sequence[Any] = self._db.execute("SELECT count(*) FROM refuted_unacked").fetchall()
            self._cache = _Cache(
                consumers, [seq for seq, _ in numbers], [at for _, at in numbers], keys, int(refuted[0][0])
            )
        return self._cache

    def _key_count(self) -> int:
        rows: Sequence[Any] = self._db.execute(tables.KEYS).fetchall()
        return int(rows[0][0])

    def _latest(self) -> int:
        rows: Sequence[Any] = self._db.execute(tables.LATEST).fetchall()
        return int(rows[0][0]) if rows else 0

    def _put(self, one: Consumer) -> None:
        filter_ = msgspec.json.encode([one.groups, one.types]).decode()
        attempts = msgspec.json.encode({str(seq): count for seq, count in one.attempts.items()}).decode()
        stored = (one.name, one.acked, one.sent_to, one.created, one.updated, filter_, attempts)
        self._db.execute(tables.PUT_CONSUMER, (*stored, one.lost_from, one.lost_to, one.lost))

    def _append(self, notifications: Sequence[DurableNotification], after: _Cache) -> None:
        last = self._latest()
        rows = [(last + n, one.group, one.type, one.at, one.body) for n, one in enumerate(notifications, 1)]
        self._db.executemany(tables.PUT_NOTIFICATION, rows)
        self._db.execute(tables.TAKE_NUMBERS, (last + len(rows),))
        if not self._db.changes():
            self._db.execute(tables.BEGIN_NUMBERS, (last + len(rows),))
        after.numbers += [row[0] for row in rows]
        for one in notifications:
            after.times.append(max(one.at, after.times[-1]) if after.times else one.at)
        if surplus := self._surplus(after):
            self._drop_oldest(surplus, after)

    def _surplus(self, after: _Cache) -> int:
        """How many of the oldest must be dropped."""
        count, now = len(after.numbers), after.times[-1]
        old = (
            bisect_right(after.times, now - NOTIFICATIONS_MS_MAX) if after.times[0] <= now - NOTIFICATIONS_MS_MAX else 0
        )
        many = count - NOTIFICATIONS_MAX + NOTIFICATIONS_MAX // BATCH if count > NOTIFICATIONS_MAX else 0
        return min(max(old, many), count)

    def _drop_oldest(self, surplus: int, after: _Cache) -> None:
        """Drop the oldest, and note for each consumer which of them it has lost."""
        border = after.numbers[surplus - 1]
        for name, one in list(after.consumers.items()):
            if one.acked >= border:
                continue
            groups, types = (msgspec.json.encode(each).decode() if each else None for each in (one.groups, one.types))
            rows: Sequence[Any] = self._db.execute(tables.LOST, (one.acked, border, groups, types)).fetchall()
            count, first = rows[0]
            if count:
                begun = one.lost_from if one.lost else int(first)
                lost = replace(one, lost_from=begun, lost_to=border, lost=one.lost + int(count))
                after.consumers[name] = lost
                self._put(lost)
        self._db.execute(tables.DROP_NOTIFICATIONS, (border,))
        del after.numbers[:surplus], after.times[:surplus]


def _consumer(row: Any) -> Consumer:
    name, acked, sent_to, created, updated, filter_, attempts, lost_from, lost_to, lost = row
    groups, types = msgspec.json.decode(filter_, type=tuple[tuple[str, ...] | None, tuple[str, ...] | None])
    counts = msgspec.json.decode(attempts, type=dict[int, int])
    return Consumer(name, acked, sent_to, created, updated, groups, types, counts, lost_from, lost_to, lost)
