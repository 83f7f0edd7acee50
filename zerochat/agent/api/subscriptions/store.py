"""Happenings, consumers and idempotency keys, as the journal has them.

What a turn has to say of them is written in the turn's own transaction (`write`). Happenings are kept from the moment
when the first consumer is made: before, nobody could miss one.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import apsw
import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.agent.api.subscriptions import tables
from zerochat.rpc.subscriptions import HAPPENINGS_MAX, HAPPENINGS_MS_MAX, KEYS_MAX, KEYS_MS_MAX, OVERFLOW_PERCENT

BEHIND_MAX: Final = 10_000
"""How many events are counted to say how far a consumer is behind."""
HEARD: Final = -1
BATCH: Final = 20
"""One in so many of what may be kept goes at a time, for what is dropped one by one costs more."""


class Happening(Struct, frozen=True):
    """Something that faces are told besides the log."""

    group: str
    """Empty: no group's."""
    type: str
    at: int
    """UTC milliseconds."""
    body: str
    """JSON."""
    seq: int = 0
    """Local and monotone, one row of numbers with the events of the log; 0 before it is written."""


class Consumer(Struct, frozen=True):
    """A named reader of the stream."""

    name: str
    acked: int
    """Everything up to this number is handled."""
    told: int
    """The highest number that it was told, as far as that was written; not smaller than `acked`."""
    made: int
    """UTC milliseconds."""
    updated: int
    groups: tuple[str, ...] | None = None
    """Whose stream it has last asked for; None: that of all."""
    types: tuple[str, ...] | None = None
    attempts: Mapping[int, int] = field(default_factory=dict)
    """By number, how often something was told that was not acknowledged when the connection ended; `HEARD`: it was
    acknowledged under another number, and is not told again."""
    lost_from: int = 0
    lost_to: int = 0
    lost: int = 0
    """How many happenings it wanted are gone without its acknowledgement, and between which numbers."""

    def heard(self, acked: int) -> dict[int, int]:
        """The part of `attempts` behind a number that says what it had heard under another one."""
        return {seq: count for seq, count in self.attempts.items() if count == HEARD and seq > acked}


class Kept(Struct, frozen=True):
    """What was said under an idempotency key."""

    group: str
    key: str
    at: int
    """UTC milliseconds."""
    asked: bytes
    """A digest of what was asked."""
    answer: str
    """JSON."""


class Notes(Struct, frozen=True):
    """What a turn has to say of the stream."""

    happenings: tuple[Happening, ...] = ()
    consumers: tuple[Consumer, ...] = ()
    """As they are from now on."""
    keys: tuple[Kept, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.happenings or self.consumers or self.keys)


class _Now(Struct):
    """What is in the tables, as far as it is not worth asking each time."""

    consumers: dict[str, Consumer]
    numbers: list[int]
    """Of the happenings, in order."""
    times: list[int]
    """Theirs, in UTC milliseconds; a clock that goes back counts as standing still."""
    keys: int
    unheard: int
    """How many events were refuted before every consumer had acknowledged them."""


class Store:
    """The stream's part of one journal. Every method raises what the journal raises."""

    def __init__(
        self,
        db: apsw.Connection,
        faults: Callable[[], AbstractContextManager[None]],
        transaction: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._db, self._faults, self._transaction = db, faults, transaction
        self._now: _Now | None = None

    # --- what there is ----------------------------------------------------------------------------------------------

    @property
    def consumers(self) -> Mapping[str, Consumer]:
        """By name."""
        return self._known().consumers

    @property
    def unheard(self) -> int:
        """How many events were refuted before every consumer had acknowledged them, and have not come anew."""
        return self._known().unheard

    def latest(self) -> int:
        """The number of the last event or happening that there ever was; 0: there was none."""
        with self._faults():
            return self._latest()

    def happenings(self, after: int, limit: int) -> list[Happening]:
        """The first `limit` happenings behind a number."""
        if not self._known().numbers or self._known().numbers[-1] <= after:
            return []
        with self._faults():
            rows: Iterable[Any] = self._db.execute(tables.HAPPENINGS, (after, limit))
            return [Happening(group, kind, at, body, seq) for seq, group, kind, at, body in rows]

    def behind(self, acked: int) -> int:
        """How many events and happenings there are behind a number; of events, at most `BEHIND_MAX` are counted."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(tables.BEHIND, (acked, BEHIND_MAX)).fetchall()
            return min(int(rows[0][0]), BEHIND_MAX)

    def unread(self, acked: int) -> int:
        """How many happenings there are behind a number."""
        numbers = self._known().numbers
        return len(numbers) - bisect_right(numbers, acked)

    def at_risk(self, acked: int, now: int) -> tuple[int, int, int] | None:
        """Where something unread will be gone soon: how many happenings are unread, how many more may come before the
        first of them goes, and when that goes at the latest (UTC milliseconds). `now`: the same."""
        known = self._known()
        first = bisect_right(known.numbers, acked)
        unread = len(known.numbers) - first
        if not unread:
            return None
        until = known.times[first] + HAPPENINGS_MS_MAX
        soon = until - now < HAPPENINGS_MS_MAX * (100 - OVERFLOW_PERCENT) // 100
        if unread * 100 < HAPPENINGS_MAX * OVERFLOW_PERCENT and not soon:
            return None
        return unread, HAPPENINGS_MAX - unread, until

    def key(self, group: str, key: str, now: int) -> tuple[bytes, str] | None:
        """The digest of what was asked under a key, and the answer as JSON; None: nothing was, or too long ago."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(tables.KEY, (group, key, now - KEYS_MS_MAX)).fetchall()
            return (rows[0][0], rows[0][1]) if rows else None

    def posts_in(self, group: str, author: str, after: int, upto: int, limit: int) -> list[tuple[str, int]]:
        """The ids and positions of an author's last `limit` messages in a stretch of its chain, in its order."""
        with self._faults():
            rows: Sequence[Any] = self._db.execute(tables.POSTS_IN, (group, author, after, upto, limit)).fetchall()
            return [(event, position) for event, position in reversed(rows)]

    # --- what changes it --------------------------------------------------------------------------------------------

    def put(self, consumer: Consumer) -> None:
        """Write one consumer; it is on disk when this returns."""
        with self._transaction():
            self._put(consumer)
        self._known().consumers[consumer.name] = consumer

    def drop(self, name: str) -> None:
        """Forget one consumer, and with the last one the happenings."""
        known = self._known()
        left = {other: one for other, one in known.consumers.items() if other != name}
        with self._transaction():
            self._db.execute(tables.DROP_CONSUMER, (name,))
            if not left:
                self._db.execute("DELETE FROM happenings")
        known.consumers = left
        if not left:
            known.numbers, known.times = [], []

    def write(self, notes: Notes) -> None:
        """Write what a turn has to say, in its transaction; where that fails, `undone` comes next."""
        after = self._known()
        for consumer in notes.consumers:
            if consumer.name in after.consumers:  # it may have been forgotten since
                # What came anew in this very turn is noted there already.
                noted = after.consumers[consumer.name].heard(consumer.acked)
                consumer = replace(consumer, attempts={**consumer.attempts, **noted})
                after.consumers[consumer.name] = consumer
                self._put(consumer)
        if notes.happenings and after.consumers:
            self._happen(notes.happenings, after)
        for one in notes.keys:
            self._db.execute(tables.PUT_KEY, (one.group, one.key, one.at, one.asked, one.answer))
            after.keys += 1
        if after.keys > KEYS_MAX:
            after.keys = self._key_count()
            if after.keys > KEYS_MAX:
                surplus = after.keys - KEYS_MAX + KEYS_MAX // BATCH
                self._db.execute(tables.DROP_KEYS, (surplus - 1,))
                after.keys -= surplus

    def refuted(self, group: str, author: str, after: int, upto: int) -> None:
        """A stretch of a chain is about to be refuted, in this transaction. A consumer that had not come to it passes
        over it from now on; so should it come anew, it comes with new numbers (`anew`)."""
        known = self._known()
        if known.consumers:
            for note in (tables.NOTE_UNHEARD, tables.NOTE_HEARD):
                self._db.execute(note, (group, author, after, upto))
                known.unheard += self._db.changes()

    def anew(self, event: str) -> tuple[int, int] | None:
        """An event is about to be written, in this transaction. Where it was refuted before everybody had heard it, it
        gets the next number; the one that it had, and the one that it has. Who had heard it passes over that."""
        rows: Sequence[Any] = self._db.execute(tables.UNHEARD, (event,)).fetchall()
        if not rows:
            return None
        before, now = int(rows[0][0]), self._latest() + 1
        self._db.execute(tables.RENUMBER, (now, before))
        self._db.execute(tables.TAKE_NUMBERS, (now,))
        heard: Sequence[Any] = self._db.execute(tables.HEARD_BY, (event,)).fetchall()
        known = self._known()
        for name in [name for (name,) in heard if name in known.consumers]:
            consumer = known.consumers[name]
            known.consumers[name] = replace(consumer, attempts={**consumer.attempts, now: HEARD})
            self._put(known.consumers[name])
        self._db.execute(tables.DROP_UNHEARD, (event,))
        known.unheard -= self._db.changes()
        return before, now

    def undone(self) -> None:
        """What was written last is not on disk: what is there is read anew."""
        self._now = None

    def forget(self, group: str) -> None:
        """Delete what is a group's, within a turn's transaction."""
        self._db.execute(tables.FORGET_HAPPENINGS, (group,))
        self._db.execute(tables.FORGET_KEYS, (group,))
        self._db.execute(tables.FORGET_UNHEARD, (group,))
        self._now = None

    # --- inside -----------------------------------------------------------------------------------------------------

    def _known(self) -> _Now:
        if self._now is None:
            with self._faults():
                rows: Iterable[Any] = self._db.execute(tables.CONSUMERS)
                consumers = {row[0]: _consumer(row) for row in rows}
                numbers: Sequence[Any] = self._db.execute(tables.NUMBERS).fetchall()
                keys = self._key_count()
                unheard: Sequence[Any] = self._db.execute("SELECT count(*) FROM unheard").fetchall()
            self._now = _Now(
                consumers, [seq for seq, _ in numbers], [at for _, at in numbers], keys, int(unheard[0][0])
            )
        return self._now

    def _key_count(self) -> int:
        rows: Sequence[Any] = self._db.execute(tables.KEYS).fetchall()
        return int(rows[0][0])

    def _latest(self) -> int:
        rows: Sequence[Any] = self._db.execute(tables.LATEST).fetchall()
        return int(rows[0][0]) if rows else 0

    def _put(self, one: Consumer) -> None:
        wanted = msgspec.json.encode([one.groups, one.types]).decode()
        attempts = msgspec.json.encode({str(seq): count for seq, count in one.attempts.items()}).decode()
        kept = (one.name, one.acked, one.told, one.made, one.updated, wanted, attempts)
        self._db.execute(tables.PUT_CONSUMER, (*kept, one.lost_from, one.lost_to, one.lost))

    def _happen(self, happenings: Sequence[Happening], after: _Now) -> None:
        last = self._latest()
        rows = [(last + n, one.group, one.type, one.at, one.body) for n, one in enumerate(happenings, 1)]
        self._db.executemany(tables.HAPPEN, rows)
        self._db.execute(tables.TAKE_NUMBERS, (last + len(rows),))
        if not self._db.changes():
            self._db.execute(tables.BEGIN_NUMBERS, (last + len(rows),))
        after.numbers += [row[0] for row in rows]
        for one in happenings:
            after.times.append(max(one.at, after.times[-1]) if after.times else one.at)
        if surplus := self._surplus(after):
            self._shed(surplus, after)

    def _surplus(self, after: _Now) -> int:
        """How many of the oldest have to go."""
        count, now = len(after.numbers), after.times[-1]
        old = bisect_right(after.times, now - HAPPENINGS_MS_MAX) if after.times[0] <= now - HAPPENINGS_MS_MAX else 0
        many = count - HAPPENINGS_MAX + HAPPENINGS_MAX // BATCH if count > HAPPENINGS_MAX else 0
        return min(max(old, many), count)

    def _shed(self, surplus: int, after: _Now) -> None:
        """Drop the oldest, and note for each consumer what of it nobody will tell it any more."""
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
        self._db.execute(tables.DROP_HAPPENINGS, (border,))
        del after.numbers[:surplus], after.times[:surplus]


def _consumer(row: Any) -> Consumer:
    name, acked, told, made, updated, wanted, attempts, lost_from, lost_to, lost = row
    groups, types = msgspec.json.decode(wanted, type=tuple[tuple[str, ...] | None, tuple[str, ...] | None])
    counts = msgspec.json.decode(attempts, type=dict[int, int])
    return Consumer(name, acked, told, made, updated, groups, types, counts, lost_from, lost_to, lost)
