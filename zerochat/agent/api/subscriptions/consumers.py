"""Named consumers: durable cursors with credit-based flow control and at-least-once delivery.

A consumer receives items in the order of their numbers, at most as many unacknowledged as it has credit for. The batch
in which an acknowledgement arrives writes it and then answers it: one `fsync` serves a burst. Items that were not
acknowledged when a connection ended are delivered again.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from zerochat import rpc
from zerochat.agent.api.server import Call, ControlServer
from zerochat.agent.api.subscriptions.live import FEED_BACKLOG_MAX, FEED_ROWS, Filter, filter_of, start_seq
from zerochat.agent.api.subscriptions.notifications import AS_ITEMS, body_of
from zerochat.agent.api.subscriptions.store import ALREADY_ACKED, Consumer, DurableNotification
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views.completeness import completeness
from zerochat.agent.views.current_messages import FeedEntry
from zerochat.errors import LocalError, Retry
from zerochat.group.state import Agent, Group
from zerochat.rpc.common import timestamp
from zerochat.rpc.subscriptions import CONSUMERS_MAX, CREDIT_MAX

NAME: Final = re.compile(r"[a-z0-9._-]{1,64}")
DROPPED: Final = "dropped"

Page: TypeAlias = tuple[list[rpc.Item], int, bool]
"""Items after a number, the number up to which they go, and whether there may be more."""


class BadConsumer(LocalError):
    """{name} is not a valid consumer name. A name has 1 to 64 of the characters a-z, 0-9, dot, hyphen, underscore."""

    exit_code: ClassVar[int] = 2


class BadCredit(LocalError):
    """The credit of a consumer is between 1 and {limit}, not {credit}."""

    exit_code: ClassVar[int] = 2


class TooManyConsumers(LocalError):
    """There are already {limit} consumers, which is the limit. Delete one that is not used."""


class NoSuchConsumer(LocalError):
    """There is no consumer called {name}."""


class ConsumerBusy(LocalError):
    """Another program uses the consumer {name}. Stop it, or take the consumer over."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class ConsumerTaken(LocalError):
    """Another program has taken over the consumer {name}. This connection can no longer change anything; subscribe
    again."""


class NeverSent(LocalError):
    """The item {seq} was never sent to the consumer {name}, so it cannot be acknowledged."""


class _Reader(Struct):
    """A consumer's state since the agent started."""

    name: str
    sent_to: int
    """The highest number that was ever sent."""
    attempts: dict[int, int]
    """By number of an unacknowledged item: how often it was sent."""
    client: int | None = None
    """The client that uses the consumer; None: the remaining fields are unused."""
    filter: Filter = field(default_factory=Filter)
    credit: int = 0
    cursor: int = 0
    """Items up to this number were sent or filtered out."""
    redelivered_to: int = 0
    """Items up to this number were sent before this connection."""
    replayed_to: int = 0
    """Items up to this number existed before this subscription."""
    in_flight: deque[int] = field(default_factory=deque)
    """The unacknowledged items of this connection."""
    warned: bool = False

    def acked_to(self, acked: int) -> int:
        """The number up to which nothing is left to acknowledge, once `acked` is."""
        return acked if self.in_flight and self.in_flight[-1] > acked else max(acked, self.cursor)


class Consumers(Struct):
    """All named consumers."""

    server: ControlServer
    journal: Journal
    entries: Callable[[Agent, list[Row]], list[FeedEntry]]
    """Rows of the log with their events."""
    clock: Callable[[], int]
    """UTC milliseconds."""
    _readers: dict[str, _Reader] = field(default_factory=dict)
    _acks: dict[str, tuple[int, list[Call]]] = field(default_factory=dict)
    """By consumer: the highest acknowledged number that is not written, and the calls that wait for the commit."""
    _ended: set[str] = field(default_factory=set)
    """The consumers whose connection has ended and whose attempts are not written."""

    _taken: dict[int, str] = field(default_factory=dict)
    """By client whose consumer was taken over: its name."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def subscribe(self, client: int, name: str, params: rpc.SubscribeParams, agent: Agent) -> rpc.Subscribed:
        """Connect a client to a consumer. Raises BadConsumer, BadCredit, TooManyConsumers, ConsumerBusy, or what the
        journal raises."""
        known = self._check(name, params)
        store = self.journal.stream
        chosen, latest, now = filter_of(agent, params), store.latest(), self.clock()
        self._detach_disconnected()
        reader = self._readers.get(name)
        other = reader.client if reader is not None and reader.client != client else None
        if other is not None and not params.take_over:
            raise ConsumerBusy(name=name)
        groups, types = (tuple(sorted(each)) if each is not None else None for each in (chosen.groups, chosen.types))
        if known is None or params.since not in (None, "last_acked"):
            start = start_seq(params.since, latest)
            consumer = Consumer(name, start, start, known.created if known else now, now, groups, types)
            self._refuse_acks(name, NeverSent(name=name, seq=self._acks.get(name, (0, []))[0]))
            reader = None
        else:
            consumer = replace(known, groups=groups, types=types)
        if consumer != known:
            store.put(consumer)
        if other is not None:
            self.server.notify([other], "consumer_taken", rpc.ConsumerTakenNotification(name))
            self._taken[other] = name
        self.leave(client)
        reader = reader or _Reader(name, consumer.sent_to, dict(consumer.attempts))
        self._readers[name] = _Reader(
            name,
            reader.sent_to,
            {seq: n for seq, n in reader.attempts.items() if seq > consumer.acked and n != ALREADY_ACKED},
            client,
            chosen,
            params.credit,
            cursor=consumer.acked,
            redelivered_to=reader.sent_to,
            replayed_to=latest,
        )
        return rpc.Subscribed(latest, self._info(consumer))

    def _check(self, name: str, params: rpc.SubscribeParams) -> Consumer | None:
        """The stored consumer of this name; None: a new one."""
        if NAME.fullmatch(name) is None:
            raise BadConsumer(name=ascii(name[:64]))
        if not 1 <= params.credit <= CREDIT_MAX:
            raise BadCredit(credit=params.credit, limit=CREDIT_MAX)
        known = self.journal.stream.consumers.get(name)
        if known is None and len(self.journal.stream.consumers) >= CONSUMERS_MAX:
            raise TooManyConsumers(limit=CONSUMERS_MAX)
        return known

    def require_current(self, client: int) -> None:
        """Raises ConsumerTaken if the client's consumer was taken over: it must not act beside its successor."""
        if client in self._taken:
            raise ConsumerTaken(name=self._taken[client])

    def leave(self, client: int) -> None:
        """Disconnect a client from its consumer."""
        self._taken.pop(client, None)
        for reader in self._readers.values():
            if reader.client == client:
                reader.client = None
                self._ended.add(reader.name)

    def acknowledge(self, call: Call, name: str, seq: int) -> None:
        """Acknowledge all items up to a number; the commit answers. Raises NoSuchConsumer, ConsumerTaken
        or NeverSent."""
        known = self.journal.stream.consumers.get(name)
        if known is None:
            raise NoSuchConsumer(name=ascii(name[:64]))
        reader = self._readers.get(name)
        if reader is not None and reader.client not in (None, call.client):
            raise ConsumerTaken(name=name)
        if seq <= known.acked:
            self.server.respond(call, rpc.AcknowledgeResult(name, known.acked))
            return
        if seq > (reader.sent_to if reader is not None else known.sent_to):
            raise NeverSent(name=name, seq=seq)
        upto, waiting = self._acks.get(name, (0, []))
        self._acks[name] = max(upto, seq), [*waiting, call]

    def delete(self, name: str) -> None:
        """Raises NoSuchConsumer, ConsumerBusy, or what the journal raises."""
        self._detach_disconnected()
        if name not in self.journal.stream.consumers:
            raise NoSuchConsumer(name=ascii(name[:64]))
        if name in self._readers and self._readers[name].client is not None:
            raise ConsumerBusy(name=name)
        self.journal.stream.drop(name)
        self._refuse_acks(name, NoSuchConsumer(name=name))
        self._readers.pop(name, None)
        self._ended.discard(name)

    def infos(self) -> list[rpc.ConsumerInfo]:
        self._detach_disconnected()
        return [self._info(consumer) for consumer in self.journal.stream.consumers.values()]

    def listeners(self, method: str, group: str) -> list[int]:
        """The clients that subscribe to this notification, which is not an item, of a group (empty: of no group)."""
        if method in AS_ITEMS:
            return []
        matching = (reader for reader in self._readers.values() if reader.filter.matches(group, method))
        return [reader.client for reader in matching if reader.client is not None]

    # --- one batch --------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether there is something to write although the core has no input."""
        return bool(self._acks or self._ended)

    def records(self, *, writing: bool) -> tuple[Consumer, ...]:
        """The consumers to write with this batch; `writing`: it writes other records of subscriptions anyway."""
        if not (self._acks or self._ended or writing):
            return ()
        store, found, now = self.journal.stream, [], self.clock()
        for name, known in store.consumers.items():
            reader = self._readers.get(name)
            if reader is None:
                continue
            acked = reader.acked_to(max(known.acked, self._acks[name][0] if name in self._acks else 0))
            if acked == known.acked and name not in self._ended:
                continue
            found.append(self._advanced(known, reader, acked, now if acked > known.acked else known.updated))
        return tuple(found)

    def _advanced(self, known: Consumer, reader: _Reader, acked: int, now: int) -> Consumer:
        attempts = reader.attempts if reader.client is None else known.attempts
        left = {**{seq: n for seq, n in attempts.items() if seq > acked}, **known.already_acked(acked)}
        one = replace(known, acked=acked, sent_to=max(reader.sent_to, acked), updated=now, attempts=left)
        return replace(one, lost_from=0, lost_to=0, lost=0) if known.lost and acked >= known.lost_to else one

    def committed(self, written: tuple[Consumer, ...]) -> None:
        """These are on disk: answer the calls that wait for it."""
        for consumer in written:
            self._ended.discard(consumer.name)
            reader = self._readers[consumer.name]
            while reader.in_flight and reader.in_flight[0] <= consumer.acked:
                reader.in_flight.popleft()
            for seq in [seq for seq in reader.attempts if seq <= consumer.acked]:
                del reader.attempts[seq]
            _, waiting = self._acks.pop(consumer.name, (0, []))
            for call in waiting:
                self.server.respond(call, rpc.AcknowledgeResult(consumer.name, consumer.acked))

    def rolled_back(self, error: LocalError) -> None:
        """Nothing was written: the acknowledgements are refused, and clients may repeat them."""
        for name in list(self._acks):
            self._refuse_acks(name, error)
        self._ended.clear()  # the attempt counts are not essential

    def _refuse_acks(self, name: str, error: LocalError) -> None:
        _, waiting = self._acks.pop(name, (0, []))
        for call in waiting:
            self.server.refuse_error(call, error)

    # --- delivery ---------------------------------------------------------------------------------------------------

    def feed(self, agent: Agent) -> bool:
        """Send each consumer its next items, as far as its credit and backlog allow. True: there is more."""
        if not self._readers:
            return False
        self._detach_disconnected()
        pages: dict[tuple[int, int], Page] = {}  # consumers at the same cursor share one read
        complete: dict[str, bool] = {}
        more = False
        for reader in self._readers.values():
            if reader.client is None or self.server.backlog(reader.client) > FEED_BACKLOG_MAX:
                continue
            try:
                more = self._feed_one(agent, reader, reader.client, pages, complete) or more
            except LocalError:  # the status reports it
                continue
        return more

    def _feed_one(
        self,
        agent: Agent,
        reader: _Reader,
        client: int,
        pages: dict[tuple[int, int], Page],
        complete: dict[str, bool],
    ) -> bool:
        known, more = self.journal.stream.consumers[reader.name], False
        if (room := min(reader.credit - len(reader.in_flight), FEED_ROWS)) > 0:
            place = reader.cursor, room
            if place not in pages:
                pages[place] = self._page(agent, *place, complete)
            items, upto, more = self._with_losses(*pages[place], known, reader.cursor)
            already_acked = known.already_acked(known.acked)
            for item in items:
                if item.seq not in already_acked:
                    self._send(reader, client, item)
                if self.server.backlog(client) > FEED_BACKLOG_MAX:
                    reader.cursor = item.seq
                    return False
            reader.cursor = upto
        if not more:
            self._warn(reader, client, known)
        return more

    def _page(self, agent: Agent, after: int, limit: int, complete: dict[str, bool]) -> Page:
        rows, durable = self.journal.by_seq(after, limit), self.journal.stream.notifications(after, limit)
        if not rows and not durable:
            return [], after, False
        both: list[Row | DurableNotification] = [*rows, *durable]
        chosen = sorted(both, key=lambda one: one.seq)[:limit]
        entries = self.entries(agent, [one for one in chosen if isinstance(one, Row)])
        events = {entry.row.seq: entry.event for entry in entries}
        items = []
        for one in chosen:
            group = agent.groups.get(one.group)
            if one.group not in complete:
                complete[one.group] = _is_complete(group)
            if isinstance(one, DurableNotification):
                items.append(self._item(one, group, complete[one.group]))
            elif (event := events.get(one.seq)) is not None:
                items.append(rpc.Item(**asdict(event), complete=complete[one.group]))
        return items, chosen[-1].seq, len(rows) + len(durable) >= limit

    def _item(self, one: DurableNotification, group: Group | None, complete: bool) -> rpc.Item:
        return rpc.Item(
            seq=one.seq,
            type=one.type,
            group=one.group,
            id=f"h{one.seq}",
            body=body_of(self.journal, one, group),
            received_at=timestamp(one.at),
            complete=complete,
        )

    def _with_losses(
        self, items: list[rpc.Item], upto: int, more: bool, known: Consumer, after: int
    ) -> tuple[list[rpc.Item], int, bool]:
        """The page with an item `dropped` where this consumer has lost notifications."""
        if not known.lost or known.lost_to <= after or (known.lost_to > upto and more):
            return items, upto, more
        body = {"from_seq": known.lost_from, "to_seq": known.lost_to, "count": known.lost}
        at = timestamp(self.clock())
        seq = known.lost_to
        lost = rpc.Item(seq=seq, type=DROPPED, group="", id=f"h{seq}", body=body, received_at=at)
        return sorted([*items, lost], key=lambda item: item.seq), max(upto, seq), more

    def _send(self, reader: _Reader, client: int, item: rpc.Item) -> None:
        if item.type != DROPPED and not reader.filter.matches(item.group, item.type):
            return
        seq = item.seq
        attempt = reader.attempts.get(seq, 1 if seq <= reader.redelivered_to else 0) + 1
        reader.attempts[seq] = attempt
        reader.in_flight.append(seq)
        reader.sent_to = max(reader.sent_to, seq)
        sent = replace(item, replayed=seq <= reader.replayed_to, redelivered=attempt > 1, attempt=attempt)
        self.server.notify([client], "item", sent)

    def _warn(self, reader: _Reader, client: int, known: Consumer) -> None:
        """Warn once that unread notifications will soon be dropped."""
        risk = self.journal.stream.at_risk(reader.acked_to(known.acked), self.clock())
        if risk is not None and not reader.warned:
            unread, left, until = risk
            overflow = rpc.OverflowNotification(known.name, unread, left, timestamp(until))
            self.server.notify([client], "overflow", overflow)
        reader.warned = risk is not None

    def _detach_disconnected(self) -> None:
        connected = self.server.clients
        self._taken = {client: name for client, name in self._taken.items() if client in connected}
        for reader in self._readers.values():
            if reader.client is not None and reader.client not in connected:
                self.leave(reader.client)

    def _info(self, one: Consumer) -> rpc.ConsumerInfo:
        reader, store = self._readers.get(one.name), self.journal.stream
        connected = reader is not None and reader.client is not None
        acked = reader.acked_to(one.acked) if reader is not None else one.acked
        return rpc.ConsumerInfo(
            consumer=one.name,
            acked=one.acked,
            behind=store.behind(acked),
            connected=connected,
            since=timestamp(one.created),
            updated=timestamp(one.updated),
            credit=reader.credit if reader is not None and connected else 0,
            unread=store.unread(acked),
        )


def _is_complete(group: Group | None) -> bool:
    """Whether no event of the group is known to be missing."""
    known = completeness(group, (), 0) if group is not None else None
    return known is None or known.complete
