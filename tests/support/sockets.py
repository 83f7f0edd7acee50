"""Transports of agents on loopback, pumped in one thread, and bare sockets that attack them."""

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import zmq

from zerochat.agent.network.zmq import socket_options
from zerochat.agent.network.zmq.transport import NetworkEffect, Transport
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.effects import AllowClient, Dial
from zerochat.group.inputs import IoInput, LinkDown, LinkUp, Received

DEADLINE_S = 10.0


class Peer:
    """One transport, and all that it has heard."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        secret: bytes = b"",
        ports: tuple[int, int] = (0, 0),
        socks: str | None = None,
        *,
        multiplexing: bool = False,
    ):
        self.secret = secret or os.urandom(32)
        self.host = host
        self.transport = Transport(self.secret, host, *ports, socks=socks, multiplexing=multiplexing)
        self.ports = self.transport.bind()
        self.heard: list[IoInput] = []

    @property
    def counts(self):
        return self.transport.counts

    @property
    def pair(self) -> Endpoint:
        return Endpoint(self.host, self.ports[0])

    @property
    def queue(self) -> Endpoint:
        return Endpoint(self.host, self.ports[1])

    def do(self, *effects: NetworkEffect) -> None:
        for effect in effects:
            self.transport.perform(effect)

    def dial(self, link: bytes, other: "Peer", secret: bytes, queue: bytes | None = None) -> None:
        """Dial `other` with a client secret, and subscribe to its queue if one is given."""
        at = other.queue if queue else None
        self.do(Dial(link, other.pair, other.transport.server_key, secret, at, (queue,) if queue else ()))

    def envelopes(self, link: bytes | None = None) -> list[bytes]:
        received = [item for item in self.heard if isinstance(item, Received)]
        return [item.envelope for item in received if link in (None, item.link)]

    def is_up(self, link: bytes) -> bool:
        news = [item for item in self.heard if isinstance(item, LinkUp | LinkDown) and item.link == link]
        return bool(news) and isinstance(news[-1], LinkUp)


@contextmanager
def peers(count: int, host: str = "127.0.0.1") -> Iterator[list[Peer]]:
    made = [Peer(host) for _ in range(count)]
    try:
        yield made
    finally:
        for peer in made:
            peer.transport.close()


def pump(*those: Peer, timeout_ms: int = 2) -> None:
    """One poll for each."""
    for peer in those:
        peer.heard += peer.transport.poll(timeout_ms)[0]


def until(condition: Callable[[], object], *those: Peer, seconds: float = DEADLINE_S) -> None:
    """Pump until the condition holds; fail after the deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, [(peer.heard[-5:], dict(peer.counts)) for peer in those]
        pump(*those)


def befriend(a: Peer, b: Peer, link: bytes) -> tuple[bytes, bytes]:
    """Admit and dial both ways, with a queue each way, and wait until both are up; give a's and b's queues."""
    keys, queues = (os.urandom(32), os.urandom(32)), (os.urandom(32), os.urandom(32))
    a.do(AllowClient(link, socket_options.public_key(keys[1]), (queues[0],)))
    b.do(AllowClient(link, socket_options.public_key(keys[0]), (queues[1],)))
    a.dial(link, b, keys[0], queues[1])
    b.dial(link, a, keys[1], queues[0])
    until(lambda: a.is_up(link) and b.is_up(link), a, b)
    return queues


class Stranger:
    """A bare socket with whatever mechanism, and its monitor."""

    def __init__(self, context: zmq.Context, kind: int, options: dict[int, bytes | int]):
        self.socket = context.socket(kind)
        self.socket.linger = 0
        self.socket.sndtimeo = 2000
        self.socket.handshake_ivl = 2000
        for option, value in options.items():
            self.socket.set(option, value)
        self.monitor = socket_options.Monitor(context, self.socket, zmq.EVENT_ALL)
        self.events: list[int] = []

    def connect(self, peer: Peer) -> None:
        """To the queue socket with a subscriber, to the pair socket with anything else."""
        subscribes = self.socket.get(zmq.TYPE) in (zmq.SUB, zmq.XSUB)
        self.socket.connect((peer.queue if subscribes else peer.pair).tcp)

    def saw(self, *kinds: int) -> bool:
        self.events += [event.kind for event in self.monitor.events()]
        return any(kind in self.events for kind in kinds)

    def close(self) -> None:
        if not self.socket.closed:
            self.monitor.close()
            self.socket.close()


@contextmanager
def strangers() -> Iterator[Callable[..., Stranger]]:
    """`make(kind, {option: value})` gives a stranger in a context of its own kind."""
    context: zmq.Context = zmq.Context()
    made: list[Stranger] = []

    def make(kind: int, options: dict[int, bytes | int]) -> Stranger:
        made.append(Stranger(context, kind, options))
        return made[-1]

    try:
        yield make
    finally:
        for stranger in made:
            stranger.close()
        context.term()


def curve(peer: Peer, secret: bytes, server_key: bytes = b"") -> dict[int, bytes | int]:
    """A CURVE client's options."""
    return {
        zmq.CURVE_PUBLICKEY: socket_options.public_key(secret),
        zmq.CURVE_SECRETKEY: secret,
        zmq.CURVE_SERVERKEY: server_key or peer.transport.server_key,
    }


class Relay:
    """A TCP relay in a thread, to one target or, as a SOCKS5 proxy, to whatever it is asked for."""

    def __init__(self, target: tuple[str, int] | None = None):
        self.target = target
        self.asked: list[tuple[str, int]] = []
        self.flip = ""
        """Flip one bit of the next piece that goes "up" to the target or "down" from it, in its first frame."""
        self.closed = self.deaf = False
        """Lose everything, also that an end has hung up, and tell nobody."""
        self.pieces: list[str] = []
        """Which way each piece went that was read."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._open: list[socket.socket] = [self._listener]
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with self._lock:
            self.closed = True
        for one in self._open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _keep(self, one: socket.socket) -> bool:
        """Whether the relay is still open; else the socket is closed, as `close` has not seen it."""
        with self._lock:
            if not self.closed:
                self._open.append(one)
                return True
        one.close()
        return False

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not self._keep(client):
                return
            try:
                server = socket.create_connection(self.target or self._socks(client))
                if not self._keep(server):
                    return
                if self.target is None:
                    client.sendall(b"\5\0\0\1" + bytes(6))
            except OSError:
                continue  # the client is gone
            for way in ((client, server, "up"), (server, client, "down")):
                threading.Thread(target=self._copy, args=way, daemon=True).start()

    def _socks(self, client: socket.socket) -> tuple[str, int]:
        """RFC 1928, no authentication, IPv4."""
        greeting = client.recv(2)
        client.recv(greeting[1] if len(greeting) == 2 else 1)
        client.sendall(b"\5\0")
        request = client.recv(10)
        if len(request) < 10:
            raise ConnectionResetError
        assert request[:4] == b"\5\1\0\1"
        self.asked.append((socket.inet_ntoa(request[4:8]), int.from_bytes(request[8:])))
        return self.asked[-1]

    def _read(self, way: str, piece: bytes) -> None:
        self.pieces.append(way)

    def _copy(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        try:
            while piece := source.recv(65536):
                self._read(way, piece)
                if self.flip == way:
                    self.flip = ""
                    piece = piece[:20] + bytes([piece[20] ^ 1]) + piece[21:]
                if not self.deaf:
                    sink.sendall(piece)
        except OSError:
            pass
        while self.deaf and not self.closed:
            time.sleep(0.01)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
