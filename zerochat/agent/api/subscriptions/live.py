"""Those who have subscribed without a name: faces that follow the log for as long as they are connected.

Each has a cursor into the log and is fed from there alone, at its own pace; so an event that is read back after a
restart and one that has just come take the same road, in the same order, once.
"""

from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat import rpc
from zerochat.agent.api.server import ControlServer
from zerochat.agent.storage.journal import Journal, Row
from zerochat.agent.views import core_state
from zerochat.agent.views.current_messages import Fed, Standings
from zerochat.errors import LocalError
from zerochat.group.lookup import find_group
from zerochat.group.state import Agent, Group

FEED_BACKLOG_MAX = 256 * 1024
"""A subscriber that has this much unread is fed no further until it reads."""
FEED_ROWS = 100
"""Events that a subscriber is fed at once."""


class Wanted(Struct, frozen=True):
    """What a subscriber wants to hear."""

    groups: frozenset[str] | None = None
    types: frozenset[str] | None = None

    def has(self, group: str, kind: str) -> bool:
        """`group` is empty for what is no group's."""
        here = self.groups is None or not group or group in self.groups
        return here and (self.types is None or kind in self.types)


def wanted(agent: Agent, params: rpc.SubscribeParams) -> Wanted:
    """Raises UnknownGroup or AmbiguousGroup."""
    groups = None if params.groups is None else frozenset(find_group(agent, one).id for one in params.groups)
    return Wanted(groups, None if params.types is None else frozenset(params.types))


def beginning(since: int | rpc.Since | None, latest: int) -> int:
    """The number behind which somebody begins who has no cursor."""
    if since == "start":
        return 0
    return min(max(since, 0), latest) if isinstance(since, int) else latest


class _Follower(Struct):
    cursor: int
    wanted: Wanted
    replayed_to: int
    """What has this local seq or a lower one was there before the subscription."""
    dry: int = -1
    """`Journal.grown` when nothing was found behind the cursor; as long as that stands, nothing is there."""


class Followers(Struct):
    """Owned by the desk."""

    server: ControlServer
    journal: Journal
    log: Standings
    labels: Callable[[Group], Mapping[str, str]]
    """What a group's members are called."""
    _followers: dict[int, _Follower] = field(default_factory=dict)

    def subscribe(self, client: int, params: rpc.SubscribeParams, agent: Agent) -> rpc.Subscribed:
        heard, latest = wanted(agent, params), self.journal.latest()
        begin = params.since if isinstance(params.since, int) else beginning(params.since, latest)
        self._followers[client] = _Follower(begin, heard, latest)
        return rpc.Subscribed(latest)

    def leave(self, client: int) -> None:
        self._followers.pop(client, None)

    def listeners(self, method: str, group: str) -> list[int]:
        """Who wants to hear this kind of news of a group (empty: of none)."""
        return [client for client, one in self._followers.items() if one.wanted.has(group, method)]

    def feed(self, agent: Agent) -> bool:
        """Give everybody what is new in the log, as much as it can take. True: there is more for somebody."""
        here, more, grown = self.server.clients, False, self.journal.grown
        self._followers = {client: one for client, one in self._followers.items() if client in here}
        by_cursor: dict[int, dict[int, _Follower]] = {}  # those who are equally far are told together
        for client, follower in self._followers.items():
            if follower.dry != grown and self.server.backlog(client) <= FEED_BACKLOG_MAX:
                by_cursor.setdefault(follower.cursor, {})[client] = follower
        for cursor, followers in by_cursor.items():
            try:
                rows = self.journal.by_seq(cursor, FEED_ROWS)
                fed = self.fed(agent, rows)
            except LocalError:  # the status says why; they get no further, and everybody else does
                continue
            for one in fed:
                self._feed_one(one, followers)
                for client in [each for each in followers if self.server.backlog(each) > FEED_BACKLOG_MAX]:
                    followers.pop(client).cursor = one.row.seq  # a hundred long messages are too much at a time
            for follower in followers.values():
                follower.cursor = rows[-1].seq if rows else cursor
                if len(rows) < FEED_ROWS:
                    follower.dry = grown
            more = more or len(rows) == FEED_ROWS
        return more

    def fed(self, agent: Agent, rows: Iterable[Row]) -> list[Fed]:
        """Rows of the log in the order of delivery, each with what there is to tell of it."""
        by_group: dict[str, list[Row]] = {}
        for row in rows:
            by_group.setdefault(row.group, []).append(row)
        here = ((agent.groups[name], found) for name, found in by_group.items() if name in agent.groups)
        told = (one for group, found in here for one in self.log.feed(group, found, self.labels(group)))
        return sorted(told, key=lambda one: one.row.seq)

    def _feed_one(self, one: Fed, followers: Mapping[int, _Follower]) -> None:
        for row, event in ((one.row, one.event), *one.amended):
            if event is None:
                continue
            heard = {c: each for c, each in followers.items() if each.wanted.has(row.group, event.type)}
            for replayed in (False, True):
                clients = [client for client, each in heard.items() if (row.seq <= each.replayed_to) is replayed]
                if clients:
                    self._tell(clients, row is one.row, replace(event, replayed=replayed))

    def _tell(self, clients: list[int], new: bool, event: rpc.Event) -> None:
        """An event of the log, or (not `new`) a message as it stands now."""
        if not new:
            self.server.notify(clients, "amended", rpc.Amended(event))
            return
        self.server.notify(clients, "event", event)
        if event.late and not event.replayed:
            self.server.notify(clients, "late", core_state.late(event))
