"""Dialled connections: our DEALER to a peer's ROUTER and our XSUB to its XPUB, with reconnection and heartbeats.

They use our own ZMTP client (`client_session.py`, `curve.py`, `zmtp.py`) instead of libzmq for three reasons. libzmq
4.3.5 sends its greeting in three pieces and waits for an answer to each: two more round trips per connection. It aborts
the process when a host presents a key of low order. And it buffers everything that a host sends, while a socket that is
not read throttles the host by itself.

A failed connection is retried with exponential backoff and jitter. A connection that was up a moment ago starts again
at the shortest delay.
"""

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import Final, TypeAlias

from zerochat.agent.network.addresses import split_host_port
from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.client_session import ClientSession
from zerochat.agent.network.zmq.heartbeat import Heartbeat
from zerochat.agent.network.zmq.poller import Poller
from zerochat.agent.network.zmq.socks5 import Socks5Handshake
from zerochat.errors import RemoteError
from zerochat.group.effects import Dial

REDIAL_S = 0.1
"""First backoff delay after a failed handshake: a joiner that connects before its admission succeeds within a few
attempts. The jitter takes up to half of any delay."""
RECONNECT_S = 0.4
"""First backoff delay after a loss, or when the host is unreachable."""
REDIAL_S_MAX = 10.0
NUDGE_S = 1.0
"""Shortest time between two attempts that skip the backoff because the peer has dialled us."""
CONNECT_S = 5.0
Address: TypeAlias = tuple[str, int]
"""A literal IP address, an IPv6 link-local one with its zone, and a TCP port."""
READ_BYTES = 64 * 1024
DRAIN_BYTES = 1024 * 1024


class DialState(Enum):
    """The states of a dialled connection."""

    WAITING = auto()
    """No socket; the backoff delay runs."""
    CONNECTING = auto()
    """TCP handshake."""
    PROXYING = auto()
    """SOCKS5 handshake."""
    HANDSHAKING = auto()
    """ZMTP greeting and CURVE handshake."""
    UP = auto()
    CLOSED = auto()


TRANSITIONS: Final[Mapping[DialState, frozenset[DialState]]] = {
    DialState.WAITING: frozenset({DialState.CONNECTING, DialState.CLOSED}),
    DialState.CONNECTING: frozenset(
        {DialState.PROXYING, DialState.HANDSHAKING, DialState.WAITING, DialState.CLOSED},
    ),
    DialState.PROXYING: frozenset({DialState.HANDSHAKING, DialState.WAITING, DialState.CLOSED}),
    DialState.HANDSHAKING: frozenset({DialState.UP, DialState.WAITING, DialState.CLOSED}),
    DialState.UP: frozenset({DialState.WAITING, DialState.CLOSED}),
    DialState.CLOSED: frozenset(),
}
_CONNECTED: Final = frozenset({DialState.PROXYING, DialState.HANDSHAKING, DialState.UP})
"""States in which TCP data flows."""


class DialedConnection:
    """One dialled connection, reconnected until `close`.

    It registers its socket with the poller. `changed` is called with it when it has come up or gone down, or an attempt
    has failed.
    """

    def __init__(
        self,
        poller: Poller,
        dial: Dial,
        counts: Counter[str],
        now: float,
        read: Callable[["DialedConnection"], int],
        changed: Callable[["DialedConnection"], None],
        *,
        queues: tuple[bytes, ...] = (),
        socks: str | None = None,
        nearby: Callable[[], Sequence[Address]] = tuple,
    ) -> None:
        """A DEALER to `dial.pair`; with `queues`, an XSUB that subscribes to them at `dial.queue_at`.

        `nearby`: where the host was found on a network of ours. Attempts go there and to the endpoint in turn: the host
        that has the server key is the right one wherever it is.

        `read(connection)` reads one message with `receive` and returns its size. Endpoints hold literal addresses: name
        resolution would block the agent. `socks`: "address:port" of a SOCKS5 proxy.
        """
        endpoint = dial.queue_at if queues else dial.pair
        assert endpoint is not None
        self.state = DialState.WAITING
        self.been_up = False
        """Whether it was ever up."""
        self.silent = False
        """Whether it was last lost because the host did not answer a ping."""
        self.queues = queues
        self._poller, self._counts, self._changed = poller, counts, changed
        self._reader = partial(read, self)
        self._endpoint, self._socks, self._nearby = endpoint, socks, nearby
        self._attempts = 0
        """Since it was last up."""
        self._keys = dial.server_key, dial.client_secret
        self.server_key: Final = dial.server_key
        """The public key that the host proves."""
        self._socket: socket.socket | None = None
        self._proxy: Socks5Handshake | None = None
        self._session: ClientSession | None = None
        self._ping_every_ms = socket_options.QUEUE_HEARTBEAT_MS if queues else socket_options.HEARTBEAT_MS
        self._heartbeat = Heartbeat(now, self._ping_every_ms)
        self._drained = False
        """Whether the last read has emptied the kernel's buffer."""
        self._writing = True
        """Whether the poller waits for the socket to be writable."""
        self._failures = 0
        """Consecutive attempts without a handshake."""
        self._violations = 0
        """The same for handshakes soon followed by a protocol violation."""
        self._dialed_at = self._up_at = now
        self._deadline = now
        """End of this attempt, or of the backoff delay."""
        self._connect(now)

    @property
    def up(self) -> bool:
        return self.state is DialState.UP

    # --- used by the transport --------------------------------------------------------------------------------------

    def on_writable(self) -> None:
        """The TCP connection is established, or its send buffer has room again."""
        now = time.monotonic()
        if self.state is DialState.CONNECTING:
            assert self._socket is not None
            if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                self._fail(now, "dial.unreachable", RECONNECT_S)
                return
            if self._proxy is None:
                self._begin_handshake(now)
            else:
                self._enter(DialState.PROXYING)
        self.flush(now)

    def receive(self, now: float) -> tuple[list[bytes] | None, int]:
        """The frames of the next message (None: a command or a part of the handshake), and its bytes on the wire.

        Raises BlockingIOError when there is nothing to read, also because the connection has ended.
        """
        while self.state in _CONNECTED:
            assert self._socket is not None and self._session is not None
            try:
                found = self._session.next() if self._proxy is None else None
                if found is not None:
                    self._heartbeat.frame_received()
                    if self._session.up and not self.up:
                        self._come_up(now)
                    return found
                if self._drained:
                    self._drained = False
                    break
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise ConnectionResetError
                self._drained = len(data) < READ_BYTES
                self._heartbeat.bytes_received(len(data))
                self._feed(data, now)
            except BlockingIOError:
                break
            except OSError:
                self._lose(now)
            except RemoteError:
                self._violate(now)
        self.flush(now)
        raise BlockingIOError

    def send(self, message: bytes, now: float, header: bytes = b"") -> bool:
        """Queue a message of one frame, or two with a header, for the next `flush`; False: no room, or not up."""
        session = self._session
        if session is None or not session.up:
            return False
        if session.send(message, header):
            return True
        self.flush(now)
        return session is self._session and session.send(message, header)

    def flush(self, now: float) -> None:
        """Send the buffer as far as the kernel takes it: everything of one batch in as few packets as possible."""
        sender = self._proxy or self._session
        if self._socket is None or self.state not in _CONNECTED or sender is None:
            return
        if self.up and sender is self._session and sender.needs_ping and self._heartbeat.may_ping(now):
            self._ping(now)
        if sender.outgoing:
            try:
                sent = self._socket.send(sender.outgoing)
                del sender.outgoing[:sent]
            except BlockingIOError:
                pass
            except OSError:
                self._lose(now)
                return
        if self._writing != bool(sender.outgoing):
            self._writing = not self._writing
            self._poller.set_writing(self._socket.fileno(), write=self._writing)

    def run_timers(self, now: float) -> None:
        """Do what is due: reconnect, give an attempt up, ping, or detect a host that does not answer."""
        match self.state:
            case DialState.WAITING:
                if now >= self._deadline:
                    self._counts["dial.retried"] += 1
                    self._connect(now)
            case DialState.UP:
                if self._heartbeat.timed_out(now):
                    if self._has_unread():
                        self._heartbeat.frame_received()  # we were too busy to read the answer
                    else:
                        self.silent = True
                        self._lose(now)
                elif self._heartbeat.must_ping(now):
                    self.probe(now)
            case DialState.HANDSHAKING:
                if now >= self._deadline:
                    self._fail(now, "dial.handshake_failed", REDIAL_S)
            case DialState.CONNECTING | DialState.PROXYING:
                if now >= self._deadline:
                    self._fail(now, "dial.unreachable", RECONNECT_S)

    def due(self) -> float:
        """When `run_timers` has something to do."""
        return self._heartbeat.due() if self.up else self._deadline

    def probe(self, now: float) -> None:
        """Ping the peer now."""
        if self.up:
            self._ping(now)
            self.flush(now)

    def nudge(self, now: float) -> None:
        """Skip the backoff delay: the peer has shown that it is online."""
        if self.state is DialState.WAITING and now - self._dialed_at >= NUDGE_S:
            self._deadline = now

    def found_nearby(self, now: float) -> None:
        """The host was found on a network of ours: try there first, and skip the backoff delay."""
        self._attempts = 0
        if self.state is DialState.CONNECTING:  # elsewhere, where perhaps no host answers
            self._release()
            self._enter(DialState.WAITING)
        if self.state is DialState.WAITING:
            self._deadline = now

    def close(self, now: float) -> None:
        """Send what the kernel takes, and close. The kernel still delivers what it has taken."""
        self._changed = lambda connection: None
        self.flush(now)
        if self._socket is not None:
            with suppress(OSError):
                self._socket.recv(DRAIN_BYTES)  # with unread data the kernel would reset the connection
        self._release()
        self._enter(DialState.CLOSED)

    # --- state machine ----------------------------------------------------------------------------------------------

    def _enter(self, state: DialState) -> None:
        assert state in TRANSITIONS[self.state], (self.state, state)
        self.state = state

    def _connect(self, now: float) -> None:
        self._enter(DialState.CONNECTING)
        self._dialed_at = now
        self._deadline = now + (CONNECT_S if self._socks is None else socket_options.HANDSHAKE_ONION_MS / 1000)
        places = [*self._nearby(), (self._endpoint.host, self._endpoint.port)]
        host, port = places[self._attempts % len(places)]
        self._attempts += 1
        if self._socks is not None:
            self._proxy = Socks5Handshake(self._endpoint)
            host, port = split_host_port(self._socks)
        kind, first = (b"XSUB", [b"\1" + queue for queue in self.queues]) if self.queues else (b"DEALER", [b""])
        try:
            self._session = ClientSession(kind, *self._keys, first, os.urandom)
            self._socket = new_socket(host)
            self._poller.add_dialed(self._socket.fileno(), self._reader, self.on_writable)
            self._writing = True
            self._socket.connect((host, port))
        except BlockingIOError:
            pass
        except OSError:
            self._fail(now, "dial.unreachable", RECONNECT_S)
        except RemoteError:
            self._fail(now, "dial.handshake_failed", REDIAL_S)

    def _feed(self, data: bytes, now: float) -> None:
        assert self._session is not None
        if self._proxy is None:
            self._session.feed(data)
            return
        rest = self._proxy.feed(data)
        if rest is not None:
            self._proxy = None
            self._begin_handshake(now)
            self._session.feed(rest)

    def _begin_handshake(self, now: float) -> None:
        self._enter(DialState.HANDSHAKING)
        self._deadline = now + socket_options.handshake_ms(proxied=self._socks is not None) / 1000

    def _come_up(self, now: float) -> None:
        self._enter(DialState.UP)
        self.silent = False
        self.been_up = True
        self._up_at = now
        self._failures, self._attempts = self._violations, 0
        self._heartbeat = Heartbeat(now, self._ping_every_ms)
        self.flush(now)
        self._changed(self)

    def _lose(self, now: float) -> None:
        """The TCP connection has ended."""
        if not self.up:
            self._fail(now, "dial.handshake_failed", REDIAL_S)
            return
        self._violations = 0
        self._fail(now, "dial.lost", RECONNECT_S)
        self._failures = 0

    def _violate(self, now: float) -> None:
        """The peer has violated the protocol, or data was damaged in transit."""
        if not self.up:
            self._fail(now, "dial.handshake_failed", REDIAL_S)
            return
        if now - self._up_at > REDIAL_S_MAX:
            self._failures = self._violations = 0
        self._fail(now, "dial.broken", REDIAL_S)
        self._violations = self._failures

    def _fail(self, now: float, count: str, first_s: float) -> None:
        """Give this connection up and back off: up to `first_s` after the first failure, doubled with each one."""
        self._counts[count] += 1
        delay = min(REDIAL_S_MAX, first_s * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self._deadline = now + delay * random.uniform(0.5, 1.0)  # noqa: S311  # only to spread the load
        self._release()
        self._enter(DialState.WAITING)
        self._changed(self)

    def _release(self) -> None:
        if self._socket is not None:
            self._poller.remove_dialed(self._socket.fileno(), self._reader)
            self._socket.close()
        self._socket = self._session = self._proxy = None
        self._drained = False

    def _ping(self, now: float) -> None:
        assert self._session is not None
        self._session.ping(self._ping_every_ms + socket_options.HEARTBEAT_TIMEOUT_MS)
        self._heartbeat.ping_sent(now)

    def _has_unread(self) -> bool:
        assert self._socket is not None
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False


def new_socket(host: str) -> socket.socket:
    """A non-blocking TCP socket for connecting to a literal address. Raises OSError."""
    new = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    new.setblocking(False)
    new.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        new.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, socket_options.TCP_SILENCE_MS)
    return new
