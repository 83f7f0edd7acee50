"""The dialled half of a link: our DEALER to the peer's ROUTER, and our XSUB to its XPUB, each kept alive.

These are not libzmq's but our own (`session.py`, `curve.py`, `zmtp.py`), for three reasons. libzmq 4.3.5 sends its
greeting in three pieces and waits for an answer to each, which over a wide-area line takes two more round trips for
every connection. It ends the whole process when a host says a key of low order. And what it reads from a host it keeps,
however much that is, where a connection that nobody reads from holds the host back by itself.

A line goes round: it connects, shakes hands, is up, is lost, waits, and connects again. The wait grows with each
failure, except that a peer who was there a moment ago is soon dialled again.
"""

import os
import random
import socket
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.client_session import Session
from zerochat.agent.network.zmq.heartbeat import Pulse
from zerochat.agent.network.zmq.poller import Ears
from zerochat.agent.network.zmq.socks5 import Detour
from zerochat.errors import RemoteError
from zerochat.group.effects import Dial

REDIAL_S = 0.1
"""The first wait, at most, after a failed handshake: a joiner that came too early is let in within a few tries."""
RECONNECT_S = 0.4
"""The same after a loss, or when nobody answers at all. The least is half of it."""
REDIAL_S_MAX = 10.0
NUDGE_S = 1.0
"""A peer who dials us is there, so we dial it at once; but not more often than this, whatever it does."""
CONNECT_S = 5.0
READ_BYTES = 64 * 1024
DRAIN_BYTES = 1024 * 1024


class Line:
    """One dialled connection and its successors. `up` is True from a finished handshake until the connection is lost,
    and `been_up` ever after.

    The line registers its socket with `ears`; whenever it has come up or gone down, or a try has failed, `changed` is
    called with it.
    """

    def __init__(
        self,
        ears: Ears,
        dial: Dial,
        counts: Counter[str],
        now: float,
        hear: Callable[["Line"], int],
        changed: Callable[["Line"], None],
        *,
        queues: tuple[bytes, ...] = (),
        socks: str | None = None,
    ) -> None:
        """A DEALER to `dial.pair`, or, given queues, an XSUB for them at `dial.queue_at`.

        `hear(line)` reads one message with `receive` and gives its size. Endpoints hold literal addresses: to resolve
        a name would stop the agent. `socks`: "address:port" of a SOCKS5 proxy.
        """
        endpoint = dial.queue_at if queues else dial.pair
        assert endpoint is not None
        self.up = self.been_up = False
        self.silent = False
        """It was lost because the host has not answered."""
        self.queues = queues
        self._ears, self._counts, self._changed = ears, counts, changed
        self._ear = partial(hear, self)
        self._endpoint, self._socks = endpoint, socks
        self._keys = dial.server_key, dial.client_secret
        self._socket: socket.socket | None = None
        self._connected = False
        self._detour: Detour | None = None
        self._session: Session | None = None
        self._every_ms = socket_options.QUEUE_HEARTBEAT_MS if queues else socket_options.HEARTBEAT_MS
        self._pulse = Pulse(now, self._every_ms)
        self._emptied = False
        """The last read has given less than it could have: there is nothing more for now."""
        self._writing = True
        """The selector waits for room to write, too."""
        self._failures = 0
        """Attempts in a row without a handshake."""
        self._breaks = 0
        """The same for handshakes after which the peer soon broke the rules."""
        self._dialled_at = self._up_at = now
        self._deadline = now
        """Of this attempt; or, without a socket, when to try again."""
        self._connect(now)

    # --- what the transport asks for ----------------------------------------------------------------------------------

    def observe(self) -> None:
        """The socket can be written to: it is connected, or has room again."""
        now = time.monotonic()
        if self._socket is not None and not self._connected:
            error = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error:
                self._end(now, "dial.unreachable", RECONNECT_S)
                return
            self._connected = True
            if self._detour is None:
                self._allow_a_handshake(now)
        self.flush(now)

    def receive(self, now: float) -> tuple[list[bytes] | None, int]:
        """The frames of the next message, or None for anything else that was said, and the bytes on the wire.

        Raises BlockingIOError when there is nothing for now, also because the connection has ended.
        """
        while self._connected:
            assert self._socket is not None and self._session is not None
            try:
                found = self._session.next() if self._detour is None else None
                if found is not None:
                    self._pulse.heard()
                    if self._session.up and not self.up:
                        self._rise(now)
                    return found
                if self._emptied:
                    self._emptied = False
                    break
                data = self._socket.recv(READ_BYTES)
                if not data:
                    raise ConnectionResetError
                self._emptied = len(data) < READ_BYTES
                self._pulse.felt(len(data))
                self._feed(data, now)
            except BlockingIOError:
                break
            except OSError:
                self._lost(now)
            except RemoteError:
                self._broken(now)
        self.flush(now)
        raise BlockingIOError

    def send(self, message: bytes, now: float, header: bytes = b"") -> bool:
        """Take one message, of one frame or with a header before it, to go out with the next `flush`; or not at all
        (False)."""
        session = self._session
        if session is None or not session.up:
            return False
        if session.send(message, header):
            return True
        self.flush(now)
        return session is self._session and session.send(message, header)

    def flush(self, now: float) -> None:
        """Send what waits, as far as the network takes it: all that one turn has to say in as few packets as it can."""
        talk = self._detour or self._session
        if self._socket is None or not self._connected or talk is None:
            return
        if self.up and talk is self._session and talk.unasked and self._pulse.may_ask(now):
            self._ask(now)
        if talk.outgoing:
            try:
                sent = self._socket.send(talk.outgoing)
                del talk.outgoing[:sent]
            except BlockingIOError:
                pass
            except OSError:
                self._lost(now)
                return
        if self._writing != bool(talk.outgoing):
            self._writing = not self._writing
            self._ears.turn_line(self._socket.fileno(), write=self._writing)

    def tend(self, now: float) -> None:
        """Do what is due: dial again, give an attempt up, or see whether the peer is still there."""
        if self._socket is None:
            if now >= self._deadline:
                self._counts["dial.redialled"] += 1
                self._connect(now)
        elif not self.up:
            if now >= self._deadline:
                if self._connected and self._detour is None:
                    self._end(now, "dial.handshake_failed", REDIAL_S)
                else:
                    self._end(now, "dial.unreachable", RECONNECT_S)
        elif self._pulse.stopped(now):
            if self._has_news():
                self._pulse.heard()  # the silence was ours
            else:
                self.silent = True
                self._lost(now)
        elif self._pulse.must_ask(now):
            self.doubt(now)

    def due(self) -> float:
        """When `tend` has something to do next."""
        return self._pulse.due() if self.up else self._deadline

    def doubt(self, now: float) -> None:
        """Ask the peer now whether it is still there."""
        if self.up:
            self._ask(now)
            self.flush(now)

    def nudge(self, now: float) -> None:
        """The peer has shown that it is there: do not wait for the next try."""
        if self._socket is None and now - self._dialled_at >= NUDGE_S:
            self._deadline = now

    def close(self, now: float) -> None:
        """Send what can be sent, and end it. The kernel goes on delivering what it has taken."""
        self._changed = lambda line: None
        self.flush(now)
        self.up = False
        if self._socket is not None:
            with suppress(OSError):
                self._socket.recv(DRAIN_BYTES)  # what is left unread makes the kernel drop what it has still to deliver
        self._hang()

    # --- round and round ----------------------------------------------------------------------------------------------

    def _connect(self, now: float) -> None:
        self._dialled_at = now
        self._deadline = now + (CONNECT_S if self._socks is None else socket_options.HANDSHAKE_ONION_MS / 1000)
        host, port = self._endpoint.host, self._endpoint.port
        if self._socks is not None:
            self._detour = Detour(self._endpoint)
            host, _, digits = self._socks.rpartition(":")
            host, port = host.strip("[]"), int(digits)
        kind, words = (b"XSUB", [b"\1" + queue for queue in self.queues]) if self.queues else (b"DEALER", [b""])
        try:
            self._session = Session(kind, *self._keys, words, os.urandom)
            self._socket = dialled(host)
            self._ears.open_line(self._socket.fileno(), self._ear, self.observe)
            self._writing = True
            self._socket.connect((host, port))
        except BlockingIOError:
            pass
        except OSError:
            self._end(now, "dial.unreachable", RECONNECT_S)
        except RemoteError:
            self._end(now, "dial.handshake_failed", REDIAL_S)

    def _feed(self, data: bytes, now: float) -> None:
        assert self._session is not None
        if self._detour is None:
            self._session.feed(data)
            return
        rest = self._detour.feed(data)
        if rest is not None:
            self._detour = None
            self._allow_a_handshake(now)
            self._session.feed(rest)

    def _allow_a_handshake(self, now: float) -> None:
        self._deadline = now + socket_options.handshake_ms(proxied=self._socks is not None) / 1000

    def _rise(self, now: float) -> None:
        self.silent = False
        self.up = self.been_up = True
        self._up_at = now
        self._failures = self._breaks
        self._pulse = Pulse(now, self._every_ms)
        self.flush(now)
        self._changed(self)

    def _lost(self, now: float) -> None:
        """The connection is gone."""
        if not self.up:
            self._end(now, "dial.handshake_failed", REDIAL_S)
            return
        self._breaks = 0
        self._end(now, "dial.lost", RECONNECT_S)
        self._failures = 0

    def _broken(self, now: float) -> None:
        """The peer has said what it may not, or what was damaged on the way."""
        if not self.up:
            self._end(now, "dial.handshake_failed", REDIAL_S)
            return
        if now - self._up_at > REDIAL_S_MAX:
            self._failures = self._breaks = 0
        self._end(now, "dial.broken", REDIAL_S)
        self._breaks = self._failures

    def _end(self, now: float, count: str, first_s: float) -> None:
        """Give this connection up, and wait: up to `first_s` after the first failure, and longer after each."""
        self._counts[count] += 1
        delay = min(REDIAL_S_MAX, first_s * 2.0 ** min(self._failures, 16))
        self._failures += 1
        self._deadline = now + delay * random.uniform(0.5, 1.0)  # noqa: S311  # only to spread the load
        self.up = False
        self._hang()
        self._changed(self)

    def _hang(self) -> None:
        if self._socket is not None:
            self._ears.shut_line(self._socket.fileno(), self._ear)
            self._socket.close()
        self._socket = self._session = self._detour = None
        self._connected = self._emptied = False

    def _ask(self, now: float) -> None:
        assert self._session is not None
        self._session.ping(self._every_ms + socket_options.HEARTBEAT_TIMEOUT_MS)
        self._pulse.asked(now)

    def _has_news(self) -> bool:
        """Whether something has come that was not read yet."""
        assert self._socket is not None
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK))
        except OSError:
            return False


def dialled(host: str) -> socket.socket:
    """A socket that is about to connect to a literal address. Raises OSError."""
    new = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    new.setblocking(False)
    new.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        new.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, socket_options.TCP_SILENCE_MS)
    return new
