"""A bound socket, and the connections that have come in through it.

libzmq's monitor names each connection by its file descriptor when it is accepted and when it ends; the messages on it
carry the same descriptor, and the key that ZAP has let in. Putting the two together tells whose connection each is,
which is what it takes to cut one member off, to notice that an inbound link is gone, and to watch strangers.

The agent thread and the watch (`watch.py`) both ask; a lock keeps them apart. The socket itself is the agent's alone.
"""

import errno
import threading
import time
from collections import Counter, deque
from typing import Any, ClassVar

import zmq

from zerochat.agent.network.file_limit import files_allowed
from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.tcp_control import (
    BACKLOG_BYTES_MAX,
    Connection,
    bytes_received,
    cut,
    hold_back,
    notice,
    wire_bytes,
)
from zerochat.agent.network.zmq.zap import Gatekeeper
from zerochat.errors import LocalError

STRANGER_BYTES_MAX = 8 * 1024
"""What a connection may send, for longer than a moment, without the agent having heard a word. It needs less than
1 KiB: greeting 64 bytes, HELLO 202, INITIATE about 300, a hello or a subscription."""
STRANGER_S_MAX = 1.0
"""That moment, at the end of which the agent must have read all that there was: one that is busy for longer has not
heard a word of anybody."""
STRANGER_AT_ONCE_BYTES_MAX = 1024 * 1024
"""What it may not send at all before the agent has heard a word: a guest who says a hello and then all that the line
takes is a stranger until then."""
CROWD_BYTES_MAX = 4 * 1024 * 1024
"""What all strangers together may send meanwhile."""
SILENCE_S_MAX = 3.0
"""From the end of the handshake to the first word: whoever dials says hello or subscribes at once."""
STRANGERS_MAX = 512
"""Connections at once that have not said anything yet; beyond that the oldest are cut. A group of 256 that comes back
all at once is half of it."""
STRANGERS_SHARE = 4
"""And no more than one in so many of the files that this process may have open: without one to spare, nobody gets in,
and libzmq tries again and again to take in who waits, as fast as it can."""
REST_S = 3.0
"""How long a key is not let in after it has sent more than the agent reads: libzmq still has all that came whole over
the connection that was cut, and with a new connection for each it would have any amount."""
GUEST_BACKLOG_BYTES_MAX, GUEST_BYTES_MAX = 256 * 1024, 16 * 1024
"""Bytes that the agent has not read of all who have one invitation; or, where they are many, for each of their
connections. A joiner says fifteen thousand at a time."""
GUEST_BUFFER_BYTES = 16 * 1024
"""SO_RCVBUF of a guest's connection from its first word on, which a joiner never fills: so the kernel holds back
whoever sends more, until the watch comes round to cutting it."""
ROUTING_BYTES, ROUTING_NEAR = 5, 1 << 16
"""A routing id of libzmq's own making, and how far two of them are apart at most where one soon followed the other."""
SUBSCRIPTIONS_MAX = 64
"""What one subscriber's connection may say in its life. It has two queues to ask for."""
SUBSCRIBER_BACKLOG_BYTES_MAX = 8 * 1024
"""Bytes of a subscriber that the agent has not read. One subscription takes 68."""


class CannotListen(LocalError):
    """Cannot listen on {host}: {why}. Set `network.listen` in config.toml to an address of this machine, such as
    127.0.0.1 for this machine alone or 0.0.0.0 for every network that it is in."""


class Door:
    """Hardened, guarded and monitored, but not bound yet."""

    name: ClassVar[str]
    kind: ClassVar[int]
    backlog_bytes_max: ClassVar[int]

    def __init__(
        self,
        context: socket_options.Context,
        gatekeeper: Gatekeeper,
        counts: Counter[str],
        server_secret: bytes,
        host: str,
        *,
        proxied: bool,
    ) -> None:
        """`host`: a literal address. `proxied`: behind Tor or the like, so that strangers need more patience."""
        self._gatekeeper, self._counts, self._host = gatekeeper, counts, host
        self._silence_s = SILENCE_S_MAX + socket_options.handshake_ms(proxied=proxied) / 1000
        self.socket = context.socket(self.kind)
        socket_options.harden(self.socket, proxied=proxied)
        socket_options.guard(self.socket, server_secret, ipv6=":" in host)
        self.monitor = socket_options.Monitor(context, self.socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.connections: dict[int, Connection] = {}
        self.strangers: dict[int, Connection] = {}
        """Those of `connections` that have not said anything yet, oldest first."""
        self.gone: deque[Connection] = deque()
        """Who has gone or been cut, for the agent thread to take note of."""
        self.dry_at = 0.0
        """When the agent had last read all that there was, on the monotonic clock."""
        self._strangers_max = min(STRANGERS_MAX, files_allowed() // STRANGERS_SHARE)
        self._lock = threading.RLock()
        self._closed = False

    def bind(self, port: int) -> int:
        """Bind to this port, or to any free one when it is 0 or taken; give the port. Raises CannotListen."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        for wanted in (str(port), "*") if port else ("*",):
            try:
                self.socket.bind(f"tcp://{host}:{wanted}")
                break
            except zmq.ZMQError as error:
                if wanted == "*" or error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise CannotListen(host=self._host, why=error.strerror) from error
        bound = self.socket.get(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        return int(bound.rstrip(b"\0").rpartition(b":")[2])

    def observe(self) -> None:
        """Take in who has come and who has gone."""
        with self._lock:
            if self._closed:
                return
            now = time.monotonic()
            for event in self.monitor.events():
                self._forget(event.value)
                if event.kind == zmq.EVENT_ACCEPTED:
                    new = notice(event.value, now, self.backlog_bytes_max)
                    if new is not None:
                        self.connections[new.fd] = self.strangers[new.fd] = new
                if len(self.strangers) > self._strangers_max:
                    self._counts[f"crowd.{self.name}"] += 1
                    self.cut(next(iter(self.strangers.values())), rudely=True)

    def introduce(self, fd: int, user: str, routing: bytes = b"") -> Connection | None:
        """The connection on which `user` has just spoken, by that routing id; None if that one is not alive any more.

        What a connection has said is read after its end too, and its number may be another one's by then. Which of two
        came later, libzmq's routing ids tell; where they do not, the number is nobody's, and whoever is there dials
        again.
        """
        with self._lock:
            self.observe()  # a connection may be newer than the last look, but not than its first word
            connection = self.connections.get(fd)
            if connection is None or _is_earlier(routing, connection.routing):
                return None
            if connection.user not in ("", user):
                if not _is_earlier(connection.routing, routing):
                    self._counts[f"cut.unclear.{self.name}"] += 1
                    self.cut(connection, rudely=True)
                    return None
                self._forget(fd)
                connection = Connection(fd, connection.ends, connection.since, self.backlog_bytes_max)
                self.connections[fd] = connection
            connection.user = user
            admission = self._gatekeeper.admitted.get(user)
            connection.guest = admission is not None and admission.guest
            if connection.guest:
                connection.backlog_bytes_max = min(connection.backlog_bytes_max, GUEST_BACKLOG_BYTES_MAX)
                hold_back(connection, GUEST_BUFFER_BYTES)
            self.strangers.pop(fd, None)
            return connection

    def of(self, user: str) -> list[Connection]:
        """The live connections of one key, oldest first."""
        with self._lock:
            return [connection for connection in self.connections.values() if connection.user == user]

    def guests(self) -> dict[str, list[Connection]]:
        """The live connections of all who have an invitation, oldest first, by its key."""
        found: dict[str, list[Connection]] = {}
        with self._lock:
            for connection in self.connections.values():
                if connection.guest:
                    found.setdefault(connection.user, []).append(connection)
        return found

    def overdue(self, now: float) -> list[Connection]:
        """Who has sent too much, or has been silent for too long; `now` in seconds, monotonic."""
        with self._lock:
            members = [each for each in self.connections.values() if each.user]
            strangers = {each: bytes_received(each) for each in self.strangers.values()}
            crowded = sum(strangers.values()) > CROWD_BYTES_MAX
            unread: Counter[str] = Counter()
            allowed: Counter[str] = Counter()
            for each in members:
                unread[each.user] += each.unread(bytes_received(each), now)
                allowed[each.user] += GUEST_BYTES_MAX if each.guest else 0
            return [each for each in members if unread[each.user] > max(each.backlog_bytes_max, allowed[each.user])] + [
                each
                for each, received in strangers.items()
                if now - each.since > self._silence_s
                or (received > STRANGER_BYTES_MAX and (crowded or self._unheard_s(each, now) > STRANGER_S_MAX))
                or received > STRANGER_AT_ONCE_BYTES_MAX
            ]

    def _unheard_s(self, connection: Connection, now: float) -> float:
        """For how long the agent has read all there was, and heard no word of a stranger, since that one was first seen
        to have sent much: now at the earliest (seconds, monotonic), which is noted."""
        connection.swollen_at = connection.swollen_at or now
        return self.dry_at - connection.swollen_at

    def cut(self, connection: Connection, *, rudely: bool = False) -> None:
        """End one connection and forget it; not one that is forgotten already, for its number may be another one's."""
        with self._lock:
            if self.connections.get(connection.fd) is connection:
                cut(connection, rudely=rudely)
                self._forget(connection.fd)

    def turn_away(self, user: str, now: float) -> None:
        """Let this key in again only after a while; `now` in seconds, monotonic."""
        self._gatekeeper.resting[user] = now + REST_S

    def close(self) -> None:
        """Close the socket. It may linger, but lets nobody in any more."""
        with self._lock:
            self._closed = True
            self.connections.clear()
            self.strangers.clear()
            self.monitor.close()
            self.socket.close()

    def _forget(self, fd: int) -> None:
        self.strangers.pop(fd, None)
        connection = self.connections.pop(fd, None)
        if connection is not None:
            self.gone.append(connection)


def _is_earlier(one: bytes, other: bytes) -> bool:
    """Whether a routing id was given before another one, as far as that is sure: libzmq gives a zero and a number that
    it counts up from one by lot. A peer may say one of its own, but knows none of them."""
    if not (len(one) == len(other) == ROUTING_BYTES and one[0] == other[0] == 0):
        return False
    return 0 < (int.from_bytes(other[1:]) - int.from_bytes(one[1:])) % (1 << 32) < ROUTING_NEAR


class PairDoor(Door):
    """The ROUTER: what goes to one."""

    name = "pair"
    kind = zmq.ROUTER
    backlog_bytes_max = BACKLOG_BYTES_MAX

    def bind(self, port: int) -> int:
        self.socket.router_mandatory = 1  # to send to somebody who has gone is an error, not silence
        socket_options.keep_alive(self.socket)
        return super().bind(port)


class QueueDoor(Door):
    """The XPUB: each subscriber gets the queues that its key was admitted with, and no others."""

    name = "queue"
    kind = zmq.XPUB
    backlog_bytes_max = SUBSCRIBER_BACKLOG_BYTES_MAX
    shifted = False
    """True while libzmq may take one subscriber for another; see `_honour`."""

    def __init__(self, *common: Any, proxied: bool) -> None:
        super().__init__(*common, proxied=proxied)
        self._subscribers: Counter[tuple[bytes, bytes]] = Counter()
        """How many connections have a queue, by queue and link."""

    def bind(self, port: int) -> int:
        self.socket.maxmsgsize = socket_options.SUBSCRIBER_BYTES_MAX
        self.socket.rcvbuf = socket_options.SUBSCRIBER_BUFFER_BYTES
        self.socket.sndhwm = socket_options.PUBLISH_FRAMES_MAX
        self.socket.setsockopt(zmq.XPUB_MANUAL, 1)
        self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        return super().bind(port)

    def hear(self) -> int:
        """Read one word of a subscriber and act on it; give its size. Raises `zmq.Again` when there is none."""
        try:
            frame = self.socket.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self.shifted = False
            raise
        word = frame.bytes
        try:
            user = str(frame["User-Id"])
        except zmq.ZMQError:
            return len(word)  # libzmq's own note that a subscriber has gone
        subscriber = self.introduce(int(frame.get(zmq.SRCFD)), user)
        if word[:1] not in (b"\0", b"\1"):
            self.shifted = True
        if subscriber is not None:
            subscriber.read(wire_bytes(len(word)))
            reason = self._honour(subscriber, word)
            if reason:
                self._counts[reason] += 1
                self.cut(subscriber, rudely=True)
        return len(word)

    def _honour(self, subscriber: Connection, word: bytes) -> str:
        """Subscribe or unsubscribe to a queue that this key was admitted with; or say why to cut the connection.

        With XPUB_MANUAL, `setsockopt` is for the connection that libzmq believes to have been read last. It keeps these
        in a second list, which gets no entry for a message that is no subscription (`xpub.cpp`, 4.3.5): after one the
        two lists are out of step, and one member's subscription would go to another member's connection. They meet
        again when all has been read. Until then nobody is subscribed; they are cut, and come back by themselves.
        """
        admission = self._gatekeeper.admitted.get(subscriber.user)
        if word[:1] not in (b"\0", b"\1"):
            return "cut.not_a_subscription"
        if admission is None:
            return "cut.revoked"
        if admission.guest:
            return "cut.guest"  # there is no queue for it yet, and nothing else would bound how many it holds
        if subscriber.words > SUBSCRIPTIONS_MAX:
            return "cut.subscriptions"
        queue = word[1:]
        if queue not in admission.queues:
            self._counts["refused.subscription"] += 1
        elif self.shifted:
            return "cut.shifted"
        else:
            self.socket.setsockopt(zmq.SUBSCRIBE if word[0] else zmq.UNSUBSCRIBE, queue)
            self._count(subscriber, frozenset())
            subscriber.link = admission.link
            self._count(subscriber, subscriber.queues | {queue} if word[0] else subscriber.queues - {queue})
        return ""

    def has_subscriber(self, queue: bytes, link: bytes) -> bool:
        """Whether the peer behind this link is subscribed to this queue, as far as has been heard."""
        return self._subscribers[queue, link] > 0

    def _count(self, subscriber: Connection, queues: frozenset[bytes]) -> None:
        self._subscribers -= Counter((queue, subscriber.link) for queue in subscriber.queues)
        subscriber.queues = queues
        self._subscribers += Counter((queue, subscriber.link) for queue in queues)

    def _forget(self, fd: int) -> None:
        connection = self.connections.get(fd)
        super()._forget(fd)
        if connection is not None:
            self._count(connection, frozenset())
