"""Listener: a bound libzmq socket and its inbound connections, with limits for unauthenticated ones.

libzmq's monitor reports each connection by its file descriptor when it is accepted and when it ends; messages carry the
same descriptor and the key that ZAP has admitted. Together they identify every connection, so that one member can be
cut off, the loss of an inbound link is noticed, and unauthenticated connections are limited.

The agent thread and the flood guard (`flood_guard.py`) both use it, under a lock. Only the agent uses the socket
itself.
"""

import errno
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from typing import Any, ClassVar

import zmq

from zerochat.agent.network.descriptors import file_limit
from zerochat.agent.network.port_holder import port_holder
from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.tcp_control import (
    BACKLOG_BYTES_MAX,
    Connection,
    bytes_received,
    cut,
    identify,
    limit_receive_buffer,
    wire_bytes,
)
from zerochat.agent.network.zmq.zap import ZapAuthenticator
from zerochat.errors import LocalError

UNAUTHENTICATED_BYTES_MAX = 8 * 1024
"""Bytes that an unauthenticated connection may send for longer than `UNAUTHENTICATED_S_MAX`. It needs less than 1 KiB:
greeting 64 bytes, HELLO 202, INITIATE about 300, and its first message."""
UNAUTHENTICATED_S_MAX = 1.0
"""Time after which the agent must have read everything: a busy agent has not read any first message yet."""
UNAUTHENTICATED_BURST_BYTES_MAX = 1024 * 1024
"""Bytes that it may not send at all: a joiner that says hello and then floods the line is unauthenticated until its
hello is read."""
UNAUTHENTICATED_TOTAL_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of all unauthenticated connections together."""
SILENCE_S_MAX = 3.0
"""From the end of the handshake to the first message: clients send a hello or a subscription at once."""
UNAUTHENTICATED_MAX = 512
"""Unauthenticated connections at once; beyond that the oldest are cut. A group of 256 that reconnects at once needs
half of it."""
UNAUTHENTICATED_SHARE = 4
"""At most one in so many of the process's file descriptors: with none to spare no client connects, and libzmq retries
accept in a busy loop."""
SUSPEND_S = 3.0
"""How long a key is refused after it has sent more than the agent reads. libzmq still holds everything that came whole
over the cut connection, so immediate reconnects could make it hold any amount."""
GUEST_BACKLOG_BYTES_MAX, GUEST_BYTES_MAX = 256 * 1024, 16 * 1024
"""Unread bytes of all connections of one invitation, or per connection where there are many. A joiner sends fifteen
thousand at a time."""
GUEST_BUFFER_BYTES = 16 * 1024
"""SO_RCVBUF of a joiner's connection from its first message on: the kernel holds a flood back until the flood guard
cuts it."""
ROUTING_BYTES, ROUTING_NEAR = 5, 1 << 16
"""Size of a routing id made by libzmq, and the largest distance of two ids that were made in sequence."""
SUBSCRIPTIONS_MAX = 64
"""Messages that a subscriber may send in the life of its connection. It has two queues to subscribe to."""
SUBSCRIBER_BACKLOG_BYTES_MAX = 8 * 1024
"""Unread bytes of a subscriber. One subscription takes 68."""


class CannotListen(LocalError):
    """Cannot listen on {host}: {why}. Set `network.listen` in config.toml to an address of this machine, such as
    127.0.0.1 (this machine only) or 0.0.0.0 (every network that it is connected to)."""


class PortTaken(LocalError):
    """Cannot listen on {host}: {holder} uses port {port}. Stop that program, choose another port (`--listen`,
    network.listen), or allow any free port instead (network.port_fallback)."""

    exit_code: ClassVar[int] = 6
    facts: ClassVar[tuple[str, ...]] = ("host", "port", "holder")


class Listener:
    """A hardened and monitored socket that is not bound yet."""

    name: ClassVar[str]
    kind: ClassVar[int]
    backlog_bytes_max: ClassVar[int]

    def __init__(
        self,
        context: socket_options.Context,
        zap: ZapAuthenticator,
        counts: Counter[str],
        server_secret: bytes,
        host: str,
        *,
        proxied: bool,
    ) -> None:
        """`host`: a literal address. `proxied`: behind Tor or the like, where handshakes take longer."""
        self._zap, self._counts, self._host = zap, counts, host
        self._silence_s = SILENCE_S_MAX + socket_options.handshake_ms(proxied=proxied) / 1000
        self.socket = context.socket(self.kind)
        socket_options.harden(self.socket, proxied=proxied)
        socket_options.guard(self.socket, server_secret, ipv6=":" in host)
        self.monitor = socket_options.Monitor(context, self.socket, zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED)
        self.connections: dict[int, Connection] = {}
        self.unauthenticated: dict[int, Connection] = {}
        """The `connections` without a complete message so far, oldest first."""
        self.gone: deque[Connection] = deque()
        """Connections that have ended or were cut, for the agent thread to process."""
        self.dry_at = 0.0
        """When the agent had last read everything; seconds, monotonic."""
        self._unauthenticated_max = min(UNAUTHENTICATED_MAX, file_limit() // UNAUTHENTICATED_SHARE)
        self._lock = threading.RLock()
        self._closed = False

    def bind(self, port: int) -> int:
        """Bind to this port, or to any free one when it is 0; the port. Raises CannotListen or PortTaken."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        try:
            self.socket.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            if port and error.errno == errno.EADDRINUSE:
                raise PortTaken(host=self._host, port=port, holder=port_holder(port)) from error
            where = f"{self._host}, port {port}" if port else self._host
            raise CannotListen(host=where, why=error.strerror.lower()) from error
        bound = self.socket.get(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        return int(bound.rstrip(b"\0").rpartition(b":")[2])

    def unbind(self) -> None:
        """Accept no more connections; those that are open continue."""
        bound = self.socket.get(zmq.LAST_ENDPOINT)
        assert isinstance(bound, bytes)
        with suppress(zmq.ZMQError):
            self.socket.unbind(bound.rstrip(b"\0").decode())

    def observe(self) -> None:
        """Process the monitor's events: new connections and ended ones."""
        with self._lock:
            if self._closed:
                return
            now = time.monotonic()
            for event in self.monitor.events():
                self._forget(event.value)
                if event.kind == zmq.EVENT_ACCEPTED:
                    new = identify(event.value, now, self.backlog_bytes_max)
                    if new is not None:
                        self.connections[new.fd] = self.unauthenticated[new.fd] = new
                if len(self.unauthenticated) > self._unauthenticated_max:
                    self._counts[f"unauthenticated.{self.name}"] += 1
                    self.cut(next(iter(self.unauthenticated.values())), reset=True)

    def authenticate(self, fd: int, user: str, routing: bytes = b"") -> Connection | None:
        """The connection on which a message of `user` has arrived, with that routing id; None: it has ended.

        A message may be read after its connection has ended and its descriptor was reused. libzmq's routing ids tell
        which connection is the later one; where they do not, the current one is cut, and the client reconnects.
        """
        with self._lock:
            self.observe()  # the connection may be newer than the last look at the monitor, but not than its message
            connection = self.connections.get(fd)
            if connection is None or _is_earlier(routing, connection.routing):
                return None
            if connection.user not in ("", user):
                if not _is_earlier(connection.routing, routing):
                    self._counts[f"cut.unclear.{self.name}"] += 1
                    self.cut(connection, reset=True)
                    return None
                self._forget(fd)
                connection = Connection(fd, connection.ends, connection.since, self.backlog_bytes_max)
                self.connections[fd] = connection
            connection.user = user
            admission = self._zap.admitted.get(user)
            connection.guest = admission is not None and admission.guest
            if connection.guest:
                connection.backlog_bytes_max = min(connection.backlog_bytes_max, GUEST_BACKLOG_BYTES_MAX)
                limit_receive_buffer(connection, GUEST_BUFFER_BYTES)
            self.unauthenticated.pop(fd, None)
            return connection

    def of(self, user: str) -> list[Connection]:
        """The live connections of one key, oldest first."""
        with self._lock:
            return [connection for connection in self.connections.values() if connection.user == user]

    def guests(self) -> dict[str, list[Connection]]:
        """The live connections with invitation keys, oldest first, by key."""
        found: dict[str, list[Connection]] = {}
        with self._lock:
            for connection in self.connections.values():
                if connection.guest:
                    found.setdefault(connection.user, []).append(connection)
        return found

    def overdue(self, now: float) -> list[Connection]:
        """The connections that have sent too much or were silent for too long; `now` in seconds, monotonic."""
        with self._lock:
            members = [each for each in self.connections.values() if each.user]
            unread: Counter[str] = Counter()
            allowed: Counter[str] = Counter()
            for each in members:
                unread[each.user] += each.unread(bytes_received(each), now)
                allowed[each.user] += GUEST_BYTES_MAX if each.guest else 0
            flooding = [each for each in members if unread[each.user] > max(each.backlog_bytes_max, allowed[each.user])]
            unknown = {each: bytes_received(each) for each in self.unauthenticated.values()}
            crowded = sum(unknown.values()) > UNAUTHENTICATED_TOTAL_BYTES_MAX
            return flooding + [
                each
                for each, received in unknown.items()
                if now - each.since > self._silence_s
                or (
                    received > UNAUTHENTICATED_BYTES_MAX
                    and (crowded or self._unread_s(each, now) > UNAUTHENTICATED_S_MAX)
                )
                or received > UNAUTHENTICATED_BURST_BYTES_MAX
            ]

    def _unread_s(self, connection: Connection, now: float) -> float:
        """Seconds from the moment an unauthenticated connection exceeded its limit to the last time that the agent had
        read everything; negative or zero: not since. `now` in seconds, monotonic."""
        connection.swollen_at = connection.swollen_at or now
        return self.dry_at - connection.swollen_at

    def cut(self, connection: Connection, *, reset: bool = False) -> None:
        """Cut a connection and forget it. A forgotten one is ignored: its descriptor may be reused."""
        with self._lock:
            if self.connections.get(connection.fd) is connection:
                cut(connection, reset=reset)
                self._forget(connection.fd)

    def suspend_key(self, user: str, now: float) -> None:
        """Refuse this key for `SUSPEND_S`; `now` in seconds, monotonic."""
        self._zap.suspended[user] = now + SUSPEND_S

    def close(self) -> None:
        """Close the socket. It may linger, but accepts no connection."""
        with self._lock:
            self._closed = True
            self.connections.clear()
            self.unauthenticated.clear()
            self.monitor.close()
            self.socket.close()

    def _forget(self, fd: int) -> None:
        self.unauthenticated.pop(fd, None)
        connection = self.connections.pop(fd, None)
        if connection is not None:
            self.gone.append(connection)


def _is_earlier(routing: bytes, other: bytes) -> bool:
    """Whether a routing id was certainly assigned before another one: libzmq uses a zero and a counter that starts at
    a random number. A peer may choose an id of its own, but cannot know these."""
    if not (len(routing) == len(other) == ROUTING_BYTES and routing[0] == other[0] == 0):
        return False
    return 0 < (int.from_bytes(other[1:]) - int.from_bytes(routing[1:])) % (1 << 32) < ROUTING_NEAR


class PairListener(Listener):
    """The ROUTER: messages for one peer."""

    name = "pair"
    kind = zmq.ROUTER
    backlog_bytes_max = BACKLOG_BYTES_MAX

    def bind(self, port: int) -> int:
        self.socket.router_mandatory = 1  # sending to a connection that has ended raises an error
        socket_options.keep_alive(self.socket)
        return super().bind(port)


class QueueListener(Listener):
    """The XPUB: each subscriber gets only the queues that its key was admitted for."""

    name = "queue"
    kind = zmq.XPUB
    backlog_bytes_max = SUBSCRIBER_BACKLOG_BYTES_MAX
    out_of_step = False
    """Whether libzmq may attribute a subscription to another subscriber; see `_apply`."""

    def __init__(self, *common: Any, proxied: bool) -> None:
        super().__init__(*common, proxied=proxied)
        self._subscribers: Counter[tuple[bytes, bytes]] = Counter()
        """Number of subscribed connections, by queue and link."""

    def bind(self, port: int) -> int:
        self.socket.maxmsgsize = socket_options.SUBSCRIBER_BYTES_MAX
        self.socket.rcvbuf = socket_options.SUBSCRIBER_BUFFER_BYTES
        self.socket.sndhwm = socket_options.PUBLISH_FRAMES_MAX
        self.socket.setsockopt(zmq.XPUB_MANUAL, 1)
        self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        return super().bind(port)

    def read(self) -> int:
        """Read and apply one message of a subscriber; its size. Raises `zmq.Again` when there is none."""
        try:
            frame = self.socket.recv(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self.out_of_step = False
            raise
        message = frame.bytes
        try:
            user = str(frame["User-Id"])
        except zmq.ZMQError:
            return len(message)  # libzmq's own notice that a subscriber has gone
        subscriber = self.authenticate(int(frame.get(zmq.SRCFD)), user)
        if message[:1] not in (b"\0", b"\1"):
            self.out_of_step = True
        if subscriber is not None:
            subscriber.message_read(wire_bytes(len(message)))
            reason = self._apply(subscriber, message)
            if reason:
                self._counts[reason] += 1
                self.cut(subscriber, reset=True)
        return len(message)

    def _apply(self, subscriber: Connection, message: bytes) -> str:
        """Subscribe or unsubscribe; the counter name of the reason to cut the connection instead, or empty.

        With XPUB_MANUAL, `setsockopt` applies to the connection that libzmq believes to have been read last. It keeps
        these in a second list, which gets no entry for a message that is no subscription (`xpub.cpp`, 4.3.5): after one
        the lists are out of step, and a subscription would be applied to another member's connection. They agree again
        when everything was read. Until then subscribers are cut, and they reconnect.
        """
        admission = self._zap.admitted.get(subscriber.user)
        if message[:1] not in (b"\0", b"\1"):
            return "cut.not_a_subscription"
        if admission is None:
            return "cut.revoked"
        if admission.guest:
            return "cut.guest"  # invitations have no queue, and nothing else would bound these connections
        if subscriber.messages > SUBSCRIPTIONS_MAX:
            return "cut.subscriptions"
        queue = message[1:]
        if queue not in admission.queues:
            self._counts["refused.subscription"] += 1
        elif self.out_of_step:
            return "cut.out_of_step"
        else:
            self.socket.setsockopt(zmq.SUBSCRIBE if message[0] else zmq.UNSUBSCRIBE, queue)
            queues = subscriber.queues | {queue} if message[0] else subscriber.queues - {queue}
            self._set_queues(subscriber, frozenset())
            subscriber.link = admission.link
            self._set_queues(subscriber, queues)
        return ""

    def has_subscriber(self, queue: bytes, link: bytes) -> bool:
        """Whether the peer of this link is known to be subscribed to this queue."""
        return self._subscribers[queue, link] > 0

    def _set_queues(self, subscriber: Connection, queues: frozenset[bytes]) -> None:
        self._subscribers -= Counter((queue, subscriber.link) for queue in subscriber.queues)
        subscriber.queues = queues
        self._subscribers += Counter((queue, subscriber.link) for queue in queues)

    def _forget(self, fd: int) -> None:
        connection = self.connections.get(fd)
        super()._forget(fd)
        if connection is not None:
            self._set_queues(connection, frozenset())
