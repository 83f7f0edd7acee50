"""Link table: the dialled and inbound connections of every link, its state, and when to dial.

A link works over either side's connection: our DEALER is used while it is up, otherwise the peer's connection to our
ROUTER. Of two new peers one dials first (`connection_scheduler.py`). Until its own connection is up, a link may be
multiplexed over another one to the same host (`multiplexing.py`).
"""

import time
from collections import Counter, deque
from collections.abc import Callable, Container, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Final, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.agent.network.zmq.connection_scheduler import FIRST_S, FIRST_S_CROWD, SECOND_S, ConnectionScheduler
from zerochat.agent.network.zmq.dialer import Address, DialedConnection
from zerochat.agent.network.zmq.multiplexing import LinkMultiplexer
from zerochat.agent.network.zmq.poller import Poller
from zerochat.agent.network.zmq.tcp_control import Connection
from zerochat.group.effects import Dial
from zerochat.group.inputs import IoInput, LinkDown, LinkUp

LinkReason = Literal["dialled", "accepted", "silent", "closed"]
NearbyPlace: TypeAlias = tuple[str, int, int]
"""A literal IP address, and the ports of its pair and queue socket."""


class LinkState(Enum):
    """By which connection a link works."""

    DOWN = auto()
    MULTIPLEXED = auto()
    """Another link's connection carries its messages to the peer."""
    ACCEPTED = auto()
    """The peer has dialled us."""
    DIALED = auto()
    """We have dialled the peer."""

    @property
    def is_up(self) -> bool:
        return self is not LinkState.DOWN


INPUTS: Final[Mapping[tuple[bool, bool], type[LinkUp] | type[LinkDown]]] = {
    (False, True): LinkUp,
    (True, False): LinkDown,
}
"""The input for the core when a link goes from up to down or back (`LinkState.is_up` before and after)."""


class Link(Struct):
    """The connections of one link."""

    dial: Dial | None = None
    """Where to dial; None: the peer dials us."""
    dialed: list[DialedConnection] = field(default_factory=list)
    """Our DEALER, then our XSUB if the peer has a queue for us."""
    inbound: list[Connection] = field(default_factory=list)
    """The peer's connections to our ROUTER, newest last."""
    state: LinkState = LinkState.DOWN
    dial_not_before: float = 0.0
    """Until then the peer, which dials us too, dials first; seconds, monotonic."""

    @property
    def pair(self) -> DialedConnection | None:
        """Our DEALER; None: not dialled."""
        return self.dialed[0] if self.dialed and not self.dialed[0].queues else None


class LinkTable:
    """All links by name. `due` is when `run_timers` has something to do; seconds, monotonic."""

    def __init__(
        self,
        poller: Poller,
        counts: Counter[str],
        inputs: deque[IoInput],
        banned: Container[bytes],
        *,
        socks: str | None,
        multiplexing: bool,
        read_dialed: Callable[[DialedConnection], int],
        cut_inbound: Callable[[Connection, str], None],
    ) -> None:
        """`inputs` gets LinkUp and LinkDown. `banned`: links that are not dialled. `cut_inbound(connection, reason)`
        cuts an inbound connection and detaches it from its link."""
        self.by_name: dict[bytes, Link] = {}
        self.dialed: dict[DialedConnection, bytes] = {}
        """Every dialled connection, and the name of its link."""
        self.scheduler = ConnectionScheduler()
        self.multiplexer = LinkMultiplexer(allowed=multiplexing)
        self.due = float("inf")
        self._poller, self._counts, self._inputs, self._banned = poller, counts, inputs, banned
        self._socks, self._read_dialed, self._cut_inbound = socks, read_dialed, cut_inbound
        self._unflushed: dict[DialedConnection, None] = {}
        self._nearby: dict[bytes, Sequence[NearbyPlace]] = {}
        """By server key: where hosts were found on a network of ours."""

    # --- dialling ---------------------------------------------------------------------------------------------------

    def dial(self, dial: Dial) -> None:
        """Open the link's connections, or reopen those of which an address or a key has changed."""
        link = self.by_name.setdefault(dial.link, Link())
        if link.dial == dial:
            return
        same_pair = link.dial is not None and (
            replace(link.dial, queue_at=dial.queue_at, queues=dial.queues, defer=dial.defer) == dial
        )
        self.close_dialed(link, keep=1 if same_pair else 0)
        link.dial, now = dial, time.monotonic()
        self.scheduler.met(now)
        first_s = FIRST_S_CROWD if self.scheduler.crowded(now) else FIRST_S
        link.dial_not_before = now + (SECOND_S if link.inbound else first_s) if dial.defer else 0.0
        self.scheduler.cancel(dial.link)
        if dial.link not in self._banned:
            if link.pair is None or not link.pair.been_up:
                self.multiplexer.begin(dial, now)
                self._advance_due(self.multiplexer.due)
            self.open_connections(link)

    def set_nearby(self, server_key: bytes, places: Sequence[NearbyPlace]) -> None:
        """The places of a host on networks of ours have changed; empty: it is not nearby. Links that are down are
        dialled there at once; those that are up stay where they are."""
        if places:
            self._nearby[server_key] = places
        else:
            self._nearby.pop(server_key, None)
        now = time.monotonic()
        for connection in self.dialed if places else ():
            if connection.server_key == server_key and not connection.up:
                connection.found_nearby(now)
                self._advance_due(connection.due())

    def _nearby_addresses(self, server_key: bytes, *, queue: bool) -> list[Address]:
        return [(host, queue_port if queue else pair) for host, pair, queue_port in self._nearby.get(server_key, ())]

    def hang_up(self, name: bytes) -> None:
        """Close the link's dialled connections and dial it no longer."""
        link = self.by_name.get(name)
        if link is not None:
            self.close_dialed(link)
            link.dial = None
            self.scheduler.cancel(name)
            self.update(name)

    def open_connections(self, link: Link) -> None:
        """Dial the pair connection, and the queue connection once either side has reached the other: a peer that is
        offline or has not admitted us yet gets one attempt instead of two. Until a queue is subscribed to, its messages
        come over the link."""
        dial, now = link.dial, time.monotonic()
        if dial is None:
            return
        if link.pair is None and now >= link.dial_not_before:
            self._open(dial, link, 0, ())
        elif link.pair is None:
            self._defer(dial.link, link.dial_not_before)
        reached = link.pair.up if link.pair is not None else bool(link.inbound)
        has_queue = bool(link.dialed) and bool(link.dialed[-1].queues)
        if reached and dial.queue_at is not None and dial.queues and not has_queue:
            if self.scheduler.may_subscribe(dial.link, now):
                self._open(dial, link, len(link.dialed), dial.queues)
            self._advance_due(self.scheduler.due)
        if link.pair is not None:
            self._update_carrier(link.pair)
        self.update(dial.link)

    def close_dialed(self, link: Link, keep: int = 0) -> None:
        """Close the link's dialled connections; `keep=1`: except the pair connection."""
        now, keep = time.monotonic(), keep if link.pair is not None else 0
        for connection in link.dialed[keep:]:
            self.multiplexer.end(self.dialed[connection])
            connection.close(now)
            self._update_carrier(connection)
            del self.dialed[connection]
        del link.dialed[keep:]
        self._nudge(link, now)

    def _open(self, dial: Dial, link: Link, index: int, queues: tuple[bytes, ...]) -> None:
        connection = DialedConnection(
            self._poller,
            dial,
            self._counts,
            time.monotonic(),
            self._read_dialed,
            self._dialed_changed,
            queues=queues,
            socks=self._socks,
            nearby=partial(self._nearby_addresses, dial.server_key, queue=bool(queues)),
        )
        link.dialed.insert(index, connection)
        self.dialed[connection] = dial.link
        self._advance_due(connection.due())

    def _defer(self, name: bytes, until: float) -> None:
        self.scheduler.defer(name, until)
        self._advance_due(until)

    # --- changes ----------------------------------------------------------------------------------------------------

    def attach(self, connection: Connection, name: bytes) -> None:
        """An inbound connection belongs to this link: skip the backoff of its dialled ones, and defer ours."""
        connection.link = name
        link, now = self.by_name.setdefault(name, Link()), time.monotonic()
        link.inbound.append(connection)
        self._nudge(link, now)
        if link.dial is not None and link.pair is None and name not in self._banned:
            link.dial_not_before = now + SECOND_S
            self.scheduler.cancel(name)
            self.open_connections(link)
        self.update(name)

    def detach(self, connection: Connection) -> None:
        """An inbound connection has ended or moved to another link: dial at once if it was the only one."""
        link = self.by_name.get(connection.link)
        if link is None or connection not in link.inbound:
            return
        link.inbound.remove(connection)
        if link.dial is not None and link.pair is None and not link.inbound:
            link.dial_not_before = 0.0
            self._defer(connection.link, 0.0)
            self._probe(link)
        self.update(connection.link)

    def _dialed_changed(self, connection: DialedConnection) -> None:
        """A dialled connection has come up or gone down, or an attempt has failed."""
        self._advance_due(connection.due())
        if connection not in self.dialed:
            return
        name = self.dialed[connection]
        if connection.up and not connection.queues:
            self.open_connections(self.by_name[name])
            return
        if not connection.queues:
            self._probe(self.by_name[name])
            if connection.silent:  # a host that does not answer is not believed to be alive; if it is, it dials again
                for inbound in self.by_name[name].inbound.copy():
                    self._cut_inbound(inbound, "cut.silent")
        self._update_carrier(connection)
        self.update(name)

    def _update_carrier(self, connection: DialedConnection) -> None:
        """Let other links use this pair connection while it is up; its own link is then no longer multiplexed."""
        dial = self.by_name[self.dialed[connection]].dial
        if connection.queues or dial is None:
            return
        if connection.up:
            self.multiplexer.end(dial.link)
        change = self.multiplexer.add_carrier if connection.up else self.multiplexer.remove_carrier
        for name in change(dial, connection):
            self.update(name)

    def update(self, name: bytes) -> None:
        """Recompute a link's state, report a change between up and down, and drop a link without connections."""
        link = self.by_name.get(name)
        if link is None:
            return
        before, link.state = link.state, self._state_of(name, link)
        change = INPUTS.get((before.is_up, link.state.is_up))
        if change is not None:
            self._inputs.append(change(name))
        if link.dial is None and not link.inbound:
            del self.by_name[name]

    def _state_of(self, name: bytes, link: Link) -> LinkState:
        if link.pair is not None and link.pair.up:
            return LinkState.DIALED
        if link.inbound:
            return LinkState.ACCEPTED
        return LinkState.MULTIPLEXED if self.multiplexer.route(name) is not None else LinkState.DOWN

    def reason(self, name: bytes) -> LinkReason:
        """Why a link is up or down."""
        link = self.by_name.get(name)
        if link is None or not link.state.is_up:
            return "silent" if link is not None and link.pair is not None and link.pair.silent else "closed"
        return "accepted" if link.state is LinkState.ACCEPTED else "dialled"

    # --- sending and timers -----------------------------------------------------------------------------------------

    def send_dialed(self, link: Link, envelope: bytes, now: float) -> bool:
        """Send over our DEALER; False: it is not up, or its buffer is full."""
        if link.pair is None or not link.pair.send(envelope, now):
            return False
        self._unflushed[link.pair] = None
        return True

    def send_multiplexed(self, name: bytes, envelope: bytes, now: float) -> bool:
        """Send over another link's connection; False: there is none, or its buffer is full."""
        route = self.multiplexer.route(name)
        if route is None or not route[0].send(envelope, now, header=route[1]):
            return False
        self._unflushed[route[0]] = None
        return True

    def flush(self) -> None:
        """Send the buffers of the dialled connections, as far as the kernel takes them."""
        now = time.monotonic()
        for connection in self._unflushed:
            connection.flush(now)
        self._unflushed.clear()

    def run_timers(self, now: float) -> None:
        """Do what is due, and compute `due` anew."""
        for name in self.multiplexer.expire(now):
            self.update(name)
        for name in self.scheduler.take_due(now):
            if name in self.by_name and name not in self._banned:
                self.open_connections(self.by_name[name])
        self.due = min(self.multiplexer.due, self.scheduler.due)
        for connection in self.dialed:
            if now >= connection.due():
                connection.run_timers(now)
            self._advance_due(connection.due())

    def note_activity(self, connection: DialedConnection) -> None:
        """A dialled connection was read, which may have changed when it is due."""
        self._advance_due(connection.due())

    def close(self) -> None:
        now = time.monotonic()
        for connection in self.dialed:
            connection.close(now)

    def _advance_due(self, due: float) -> None:
        self.due = min(self.due, due)

    def _nudge(self, link: Link, now: float) -> None:
        for connection in link.dialed:
            connection.nudge(now)
            self._advance_due(connection.due())

    def _probe(self, link: Link) -> None:
        """The pair connection is lost: ping over the peer's other connections, which ping rarely by themselves."""
        now = time.monotonic()
        for connection in link.dialed if link.pair is None else link.dialed[1:]:
            connection.probe(now)
            self._advance_due(connection.due())
