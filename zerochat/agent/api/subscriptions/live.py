"""Live subscribers: clients without a consumer name, each with a cursor into the log while it is connected.

Every event reaches a subscriber through its cursor, so replayed and new events take the same path, in order and once.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, Final

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.server import ControlServer
from zerochat.agent.api.subscriptions.notifications import AS_ITEMS
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views.current_messages import FeedEntry, MaterialisedMessages
from zerochat.agent.views.events import late_notification
from zerochat.errors import LocalError
from zerochat.group.lookup import find_group
from zerochat.group.state import Agent, Group

FEED_BACKLOG_MAX: Final = 256 * 1024
"""A subscriber with more unsent bytes is fed no further until it reads."""
FEED_ROWS: Final = 100
"""Events per subscriber and batch."""
LIVE_TYPES: Final = sorted({*rpc.EVENT_TYPES, *(rpc.NOTIFICATIONS.keys() - {"event", "item"})})
"""What a live subscriber can choose: types of events, and other notifications."""
CONSUMER_TYPES: Final = sorted({*rpc.EVENT_TYPES, *rpc.ITEM_TYPES, *(rpc.NOTIFICATIONS.keys() - AS_ITEMS - {"item"})})
"""What a consumer can choose: types of items, and notifications that are not items."""
TYPE_CHARS_MAX: Final = 64


class UnknownType(LocalError):
    """There is no event type {type}, so nothing would ever arrive. Use one of: {known}."""

    exit_code: ClassVar[int] = 2


class Filter(Struct, frozen=True):
    """The groups and types that a subscriber receives; None: all."""

    groups: frozenset[str] | None = None
    types: frozenset[str] | None = None

    def matches(self, group: str, type_: str) -> bool:
        """`group` is empty for what belongs to no group."""
        in_group = self.groups is None or not group or group in self.groups
        return in_group and (self.types is None or type_ in self.types)


def _unknown_type(wrong: str, known: list[str]) -> UnknownType:
    from difflib import get_close_matches  # rarely needed

    return UnknownType(type=ascii(wrong), known=", ".join(get_close_matches(wrong, known) or known))


def filter_of(agent: Agent, params: rpc.SubscribeParams) -> Filter:
    """Raises UnknownGroup, AmbiguousGroup or UnknownType."""
    known = LIVE_TYPES if params.consumer is None else CONSUMER_TYPES
    for one in params.types or ():
        if one not in known:
            raise _unknown_type(one[:TYPE_CHARS_MAX], known)
    groups = None if params.groups is None else frozenset(find_group(agent, name).id for name in params.groups)
    return Filter(groups, None if params.types is None else frozenset(params.types))


def start_seq(since: int | rpc.Since | None, latest: int) -> int:
    """The cursor of a new subscription."""
    if since == "start":
        return 0
    return min(max(since, 0), latest) if isinstance(since, int) else latest


class _Subscriber(Struct):
    cursor: int
    filter: Filter
    replayed_to: int
    """Events up to this local seq existed before the subscription."""
    exhausted_at: int = -1
    """`Journal.revision` when nothing was found after the cursor: until it changes, nothing is there."""


class LiveSubscribers(Struct):
    """The clients that have subscribed without a consumer name."""

    server: ControlServer
    journal: Journal
    messages: MaterialisedMessages
    names: Callable[[Group], Mapping[str, str]]
    """The display names of a group, by DID."""
    _subscribers: dict[int, _Subscriber] = field(default_factory=dict)

    def subscribe(self, client: int, params: rpc.SubscribeParams, agent: Agent) -> rpc.Subscribed:
        chosen, latest = filter_of(agent, params), self.journal.last_seq()
        start = params.since if isinstance(params.since, int) else start_seq(params.since, latest)
        self._subscribers[client] = _Subscriber(start, chosen, latest)
        return rpc.Subscribed(latest)

    def leave(self, client: int) -> None:
        self._subscribers.pop(client, None)

    def listeners(self, method: str, group: str) -> list[int]:
        """The clients that subscribe to this notification of a group (empty: of no group)."""
        return [client for client, each in self._subscribers.items() if each.filter.matches(group, method)]

    def feed(self, agent: Agent) -> bool:
        """Send each subscriber the next events of the log, as far as its backlog allows. True: there is more."""
        connected, more, grown = self.server.clients, False, self.journal.revision
        self._subscribers = {client: each for client, each in self._subscribers.items() if client in connected}
        by_cursor: dict[int, dict[int, _Subscriber]] = {}  # subscribers at the same cursor share one read
        for client, each in self._subscribers.items():
            if each.exhausted_at != grown and self.server.backlog(client) <= FEED_BACKLOG_MAX:
                by_cursor.setdefault(each.cursor, {})[client] = each
        for cursor, subscribers in by_cursor.items():
            try:
                rows = self.journal.by_seq(cursor, FEED_ROWS)
                entries = self.entries(agent, rows)
            except LocalError:  # the status reports it
                continue
            for entry in entries:
                self._send_entry(entry, subscribers)
                for client in [client for client in subscribers if self.server.backlog(client) > FEED_BACKLOG_MAX]:
                    subscribers.pop(client).cursor = entry.row.seq
            for each in subscribers.values():
                each.cursor = rows[-1].seq if rows else cursor
                if len(rows) < FEED_ROWS:
                    each.exhausted_at = grown
            more = more or len(rows) == FEED_ROWS
        return more

    def entries(self, agent: Agent, rows: Iterable[Row]) -> list[FeedEntry]:
        """Rows of the log in the order of delivery, each with its event and the messages that it changes."""
        by_group: dict[str, list[Row]] = {}
        for row in rows:
            by_group.setdefault(row.group, []).append(row)
        known = ((agent.groups[name], found) for name, found in by_group.items() if name in agent.groups)
        entries = (entry for group, found in known for entry in self.messages.feed(group, found, self.names(group)))
        return sorted(entries, key=lambda entry: entry.row.seq)

    def _send_entry(self, entry: FeedEntry, subscribers: Mapping[int, _Subscriber]) -> None:
        for row, event in ((entry.row, entry.event), *entry.changed):
            if event is None:
                continue
            matching = {c: each for c, each in subscribers.items() if each.filter.matches(row.group, event.type)}
            for replayed in (False, True):
                clients = [client for client, each in matching.items() if (row.seq <= each.replayed_to) is replayed]
                if clients:
                    self._send(clients, row is entry.row, replace(event, replayed=replayed))

    def _send(self, clients: list[int], new: bool, event: rpc.Event) -> None:
        """Send an event of the log, or (not `new`) a message that it changed."""
        if not new:
            self.server.notify(clients, "message_changed", rpc.MessageChanged(event))
            return
        self.server.notify(clients, "event", event)
        if event.late and not event.replayed:
            self.server.notify(clients, "late_event", late_notification(event))
