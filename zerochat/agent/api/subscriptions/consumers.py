"""Named consumers: whoever reads the stream with a durable cursor, and says how far it has come.

A consumer is told in the order of the numbers, as much at a time as it has credit for. Acknowledgements are written in
the transaction of the turn in which they come, and answered behind that: one `fsync` serves all of a burst. What was
told and not acknowledged when a connection ends is told again to the next one.
"""

import re
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict, replace

from zerochat import rpc
from zerochat.agent.api.server import ControlServer, RequestId
from zerochat.agent.api.subscriptions.live import FEED_BACKLOG_MAX, FEED_ROWS, Wanted, beginning, wanted
from zerochat.agent.api.subscriptions.notifications import AS_ITEMS, body_of
from zerochat.agent.api.subscriptions.store import HEARD, Consumer, Happening
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views.completeness import completeness
from zerochat.agent.views.current_messages import Fed
from zerochat.errors import LocalError, Retry
from zerochat.group.state import Agent, Group
from zerochat.rpc.subscriptions import CONSUMERS_MAX, CREDIT_MAX

NAME: Final = re.compile(r"[a-z0-9._-]{1,64}")
DROPPED: Final = "dropped"

Stretch: TypeAlias = tuple[list[rpc.Item], int, bool]
"""Items behind some number, the number up to which they go, and whether there may be more."""


class BadConsumer(LocalError):
    """{name} is no name for a consumer: it has 1 to 64 of the letters a to z, digits, dots, dashes and underscores."""

    exit_code: ClassVar[int] = 2


class BadCredit(LocalError):
    """A consumer can have 1 to {limit} items on their way, and not {credit}."""

    exit_code: ClassVar[int] = 2


class TooManyConsumers(LocalError):
    """There are {limit} consumers already, and no more fit. Forget one that nobody uses any more."""


class NoSuchConsumer(LocalError):
    """There is no consumer called {name}."""


class ConsumerBusy(LocalError):
    """The consumer {name} is in use by another program. Stop that, or take the consumer over."""

    retry: ClassVar[Retry] = "later"
    retry_after_s: ClassVar[int] = 1


class NeverTold(LocalError):
    """The consumer {name} was never told anything with the number {seq}, so it cannot have handled it."""


class _Reader(Struct):
    """A consumer as this agent has seen it since it started."""

    name: str
    told: int
    """The highest number that it was ever told."""
    attempts: dict[int, int]
    """By number, how often it was told what it has not acknowledged."""
    client: int | None = None
    """None: it is not connected, and the rest means nothing."""
    wanted: Wanted = field(default_factory=Wanted)
    credit: int = 0
    cursor: int = 0
    """Everything up to this was told, or is not wanted."""
    retold_to: int = 0
    """What has this number or a lower one was told before this connection."""
    replayed_to: int = 0
    out: deque[int] = field(default_factory=deque)
    """What was told on this connection and is not acknowledged."""
    warned: bool = False

    def passed(self, acked: int) -> int:
        """Up to where it has nothing left to acknowledge, when it has acknowledged up to a number."""
        return acked if self.out and self.out[-1] > acked else max(acked, self.cursor)


class Consumers(Struct):
    """Owned by the desk."""

    server: ControlServer
    journal: Journal
    fed: Callable[[Agent, list[Row]], list[Fed]]
    """What there is to tell of rows of the log."""
    clock: Callable[[], int]
    """UTC milliseconds."""
    _readers: dict[str, _Reader] = field(default_factory=dict)
    _acks: dict[str, tuple[int, list[tuple[int, RequestId]]]] = field(default_factory=dict)
    """By consumer: up to where it has acknowledged, and who waits for that to be on disk."""
    _ended: set[str] = field(default_factory=set)
    """Whose connection has ended, and nothing was written of that yet."""

    # --- requests ---------------------------------------------------------------------------------------------------

    def subscribe(self, client: int, name: str, params: rpc.SubscribeParams, agent: Agent) -> rpc.Subscribed:
        """Give a consumer to a connection. Raises BadConsumer, BadCredit, TooManyConsumers or ConsumerBusy, or what
        the journal raises."""
        if NAME.fullmatch(name) is None:
            raise BadConsumer(name=ascii(name[:64]))
        if not 1 <= params.credit <= CREDIT_MAX:
            raise BadCredit(credit=params.credit, limit=CREDIT_MAX)
        heard, store = wanted(agent, params), self.journal.stream
        known, latest, now = store.consumers.get(name), store.latest(), self.clock()
        if known is None and len(store.consumers) >= CONSUMERS_MAX:
            raise TooManyConsumers(limit=CONSUMERS_MAX)
        self._see_who_has_gone()
        reader = self._readers.get(name)
        other = reader.client if reader is not None and reader.client != client else None
        if other is not None and not params.take:
            raise ConsumerBusy(name=name)
        groups, types = (tuple(sorted(each)) if each is not None else None for each in (heard.groups, heard.types))
        if known is None or params.since not in (None, "last_acked"):
            begin = beginning(params.since, latest)
            one = Consumer(name, begin, begin, known.made if known else now, now, groups, types)
            self._acks_fail(name, NeverTold(name=name, seq=self._acks.get(name, (0, []))[0]))
            reader = None
        else:
            one = replace(known, groups=groups, types=types)
        if one != known:
            store.put(one)
        if other is not None:
            self.server.notify([other], "taken", rpc.Taken(name))
        self.leave(client)
        reader = reader or _Reader(name, one.told, dict(one.attempts))
        self._readers[name] = _Reader(
            name,
            reader.told,
            {seq: count for seq, count in reader.attempts.items() if seq > one.acked and count != HEARD},
            client,
            heard,
            params.credit,
            cursor=one.acked,
            retold_to=reader.told,
            replayed_to=latest,
        )
        return rpc.Subscribed(latest, self._info(one))

    def leave(self, client: int) -> None:
        """This connection reads no more."""
        for reader in self._readers.values():
            if reader.client == client:
                reader.client = None
                self._ended.add(reader.name)

    def ack(self, client: int, request: RequestId, name: str, seq: int) -> None:
        """Note that a consumer has handled everything up to a number. Raises NoSuchConsumer or NeverTold."""
        known = self.journal.stream.consumers.get(name)
        if known is None:
            raise NoSuchConsumer(name=ascii(name[:64]))
        if seq <= known.acked:
            self.server.respond(client, request, rpc.Acked(name, known.acked))
            return
        reader = self._readers.get(name)
        if seq > (reader.told if reader is not None else known.told):
            raise NeverTold(name=name, seq=seq)
        upto, waiting = self._acks.get(name, (0, []))
        self._acks[name] = max(upto, seq), [*waiting, (client, request)]

    def forget(self, name: str) -> None:
        """Raises NoSuchConsumer or ConsumerBusy, or what the journal raises."""
        self._see_who_has_gone()
        if name not in self.journal.stream.consumers:
            raise NoSuchConsumer(name=ascii(name[:64]))
        if name in self._readers and self._readers[name].client is not None:
            raise ConsumerBusy(name=name)
        self.journal.stream.drop(name)
        self._acks_fail(name, NoSuchConsumer(name=name))
        self._readers.pop(name, None)
        self._ended.discard(name)

    def infos(self) -> list[rpc.ConsumerInfo]:
        self._see_who_has_gone()
        return [self._info(one) for one in self.journal.stream.consumers.values()]

    def listeners(self, method: str, group: str) -> list[int]:
        """Who wants to hear this kind of news of a group (empty: of none), which is no item."""
        if method in AS_ITEMS:
            return []
        heard = (one for one in self._readers.values() if one.wanted.has(group, method))
        return [one.client for one in heard if one.client is not None]

    # --- a turn -----------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        """Whether there is something to write, though nothing else happens."""
        return bool(self._acks or self._ended)

    def notes(self, *, writing: bool) -> tuple[Consumer, ...]:
        """The consumers that are to be written with this turn; `writing`: it writes something of the stream anyway."""
        if not (self._acks or self._ended or writing):
            return ()
        store, found, now = self.journal.stream, [], self.clock()
        for name, known in store.consumers.items():
            reader = self._readers.get(name)
            if reader is None:
                continue
            acked = max(known.acked, self._acks[name][0] if name in self._acks else 0)
            acked = reader.passed(acked)
            if acked == known.acked and name not in self._ended:
                continue
            found.append(self._moved(known, reader, acked, now if acked > known.acked else known.updated))
        return tuple(found)

    def _moved(self, known: Consumer, reader: _Reader, acked: int, now: int) -> Consumer:
        attempts = reader.attempts if reader.client is None else known.attempts
        left = {**{seq: count for seq, count in attempts.items() if seq > acked}, **known.heard(acked)}
        one = replace(known, acked=acked, told=max(reader.told, acked), updated=now, attempts=left)
        return replace(one, lost_from=0, lost_to=0, lost=0) if known.lost and acked >= known.lost_to else one

    def kept(self, written: tuple[Consumer, ...]) -> None:
        """This is on disk, and whoever waits for it is told."""
        for one in written:
            self._ended.discard(one.name)
            reader = self._readers[one.name]
            while reader.out and reader.out[0] <= one.acked:
                reader.out.popleft()
            for seq in [seq for seq in reader.attempts if seq <= one.acked]:
                del reader.attempts[seq]
            _, waiting = self._acks.pop(one.name, (0, []))
            for client, request in waiting:
                self.server.respond(client, request, rpc.Acked(one.name, one.acked))

    def undone(self, error: LocalError) -> None:
        """Nothing was written. Who has acknowledged something may do so again."""
        for name in list(self._acks):
            self._acks_fail(name, error)
        self._ended.clear()  # it is only how often something was told

    def _acks_fail(self, name: str, error: LocalError) -> None:
        _, waiting = self._acks.pop(name, (0, []))
        for client, request in waiting:
            self.server.refuse_error(client, request, error)

    # --- telling ----------------------------------------------------------------------------------------------------

    def feed(self, agent: Agent) -> bool:
        """Give every consumer what is next for it, as much as it can take. True: there is more for somebody."""
        if not self._readers:
            return False
        self._see_who_has_gone()
        found: dict[tuple[int, int], Stretch] = {}  # those who are equally far are told the same
        whole: dict[str, bool] = {}
        more = False
        for reader in self._readers.values():
            if reader.client is None or self.server.backlog(reader.client) > FEED_BACKLOG_MAX:
                continue
            try:
                more = self._feed_one(agent, reader, reader.client, found, whole) or more
            except LocalError:  # the status says why; it gets no further, and everybody else does
                continue
        return more

    def _feed_one(
        self, agent: Agent, reader: _Reader, client: int, found: dict[tuple[int, int], Stretch], whole: dict[str, bool]
    ) -> bool:
        known, more = self.journal.stream.consumers[reader.name], False
        if (room := min(reader.credit - len(reader.out), FEED_ROWS)) > 0:
            place = reader.cursor, room
            if place not in found:
                found[place] = self._stretch(agent, *place, whole)
            items, upto, more = self._with_losses(*found[place], known, reader.cursor)
            heard = known.heard(known.acked)
            for item in items:
                if item.seq not in heard:
                    self._tell(reader, client, item)
                if self.server.backlog(client) > FEED_BACKLOG_MAX:  # a hundred long messages are too much at a time
                    reader.cursor = item.seq
                    return False
            reader.cursor = upto
        if not more:
            self._warn(reader, client, known)
        return more

    def _stretch(self, agent: Agent, after: int, limit: int, whole: dict[str, bool]) -> Stretch:
        rows, happened = self.journal.by_seq(after, limit), self.journal.stream.happenings(after, limit)
        if not rows and not happened:
            return [], after, False
        both: list[Row | Happening] = [*rows, *happened]
        chosen = sorted(both, key=lambda one: one.seq)[:limit]
        events = {one.row.seq: one.event for one in self.fed(agent, [one for one in chosen if isinstance(one, Row)])}
        items = []
        for one in chosen:
            group = agent.groups.get(one.group)
            if one.group not in whole:
                whole[one.group] = _is_whole(group)
            if isinstance(one, Happening):
                items.append(self._happened(one, group, whole[one.group]))
            elif (event := events.get(one.seq)) is not None:
                items.append(rpc.Item(**asdict(event), complete=whole[one.group]))
        return items, chosen[-1].seq, len(rows) + len(happened) >= limit

    def _happened(self, one: Happening, group: Group | None, whole: bool) -> rpc.Item:
        return rpc.Item(
            seq=one.seq,
            type=one.type,
            group=one.group,
            id=f"h{one.seq}",
            body=body_of(self.journal, one, group),
            received_at=timestamp(one.at),
            complete=whole,
        )

    def _with_losses(
        self, items: list[rpc.Item], upto: int, more: bool, known: Consumer, after: int
    ) -> tuple[list[rpc.Item], int, bool]:
        """With what this consumer has lost in its place, if that is here."""
        if not known.lost or known.lost_to <= after or (known.lost_to > upto and more):
            return items, upto, more
        body = {"from_seq": known.lost_from, "to_seq": known.lost_to, "count": known.lost}
        at = timestamp(self.clock())
        seq = known.lost_to
        lost = rpc.Item(seq=seq, type=DROPPED, group="", id=f"h{seq}", body=body, received_at=at)
        return sorted([*items, lost], key=lambda one: one.seq), max(upto, seq), more

    def _tell(self, reader: _Reader, client: int, item: rpc.Item) -> None:
        if item.type != DROPPED and not reader.wanted.has(item.group, item.type):
            return
        seq = item.seq
        attempt = reader.attempts.get(seq, 1 if seq <= reader.retold_to else 0) + 1
        reader.attempts[seq] = attempt
        reader.out.append(seq)
        reader.told = max(reader.told, seq)
        replayed = seq <= reader.replayed_to
        told = replace(item, replayed=replayed, redelivered=attempt > 1, attempt=attempt)
        self.server.notify([client], "item", told)

    def _warn(self, reader: _Reader, client: int, known: Consumer) -> None:
        """Say once that what is unread will not be kept much longer."""
        risk = self.journal.stream.at_risk(reader.passed(known.acked), self.clock())
        if risk is not None and not reader.warned:
            unread, left, until = risk
            self.server.notify([client], "overflow", rpc.Overflow(known.name, unread, left, timestamp(until)))
        reader.warned = risk is not None

    # --- inside -----------------------------------------------------------------------------------------------------

    def _see_who_has_gone(self) -> None:
        here = self.server.clients
        for reader in self._readers.values():
            if reader.client is not None and reader.client not in here:
                self.leave(reader.client)

    def _info(self, one: Consumer) -> rpc.ConsumerInfo:
        reader, store = self._readers.get(one.name), self.journal.stream
        connected = reader is not None and reader.client is not None
        acked = reader.passed(one.acked) if reader is not None else one.acked
        return rpc.ConsumerInfo(
            consumer=one.name,
            acked=one.acked,
            behind=store.behind(acked),
            connected=connected,
            since=timestamp(one.made),
            updated=timestamp(one.updated),
            credit=reader.credit if reader is not None and connected else 0,
            unread=store.unread(acked),
        )


def _is_whole(group: Group | None) -> bool:
    """Nothing is known to be missing there."""
    known = completeness(group, (), 0) if group is not None else None
    return known is None or known.complete
