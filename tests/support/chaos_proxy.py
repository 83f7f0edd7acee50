"""A fault-injecting SOCKS5 proxy on loopback, through which agents dial each other.

Every agent dials through a port of its own (`network.socks`), and the proxy knows the owners of all listening ports; so
it knows both ends of each connection. A `Transport` per direction describes the faults; `cut`, `part` and `join` act on
whole connections. One thread does all the work; settings from other threads take effect within milliseconds. Nothing
is random here: the caller provides randomness.
"""

import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Self

HELD_BYTES_MAX = 16 * 1024
"""What one direction of one connection may have in here, besides what is on its way for the sake of its delay."""
BUFFER_BYTES = 32 * 1024
"""SO_RCVBUF of every connection, so that who is held back soon notices."""
CARRIED_BYTES = 4096
"""More than the handshakes of CURVE and SOCKS take, both ways together."""
PIECE_BYTES = 8 * 1024
TICK_S, NAP_S = 0.002, 0.05
"""How often it is looked whether something held may go on; and whether there is something new to do, without that."""
CONNECT_S = 1.0


@dataclass(slots=True, eq=False)
class Way:
    """What becomes of what one agent sends to another, whoever has dialled."""

    frozen: bool = False
    """Nothing is read, so the sender is held back; nothing is lost. New connections wait, too."""
    lost: bool = False
    """Everything is read and thrown away, also that somebody has hung up: the cable is out. A connection that has lost
    something is cut when there is more to pass on."""
    garble: Callable[[bytes], bytes] | None = None
    """What becomes of each piece on its way, if anything does."""
    delay_s: float = 0.0
    bytes_per_s: float = 0.0
    """0: as many as come."""
    passed: int = 0
    """Bytes that have been passed on."""
    _credit: float = 0.0
    _credited_at: float = 0.0

    def allowance(self, now: float) -> int:
        """How many bytes may go now."""
        if not self.bytes_per_s:
            return PIECE_BYTES
        most = max(256.0, self.bytes_per_s / 20)
        self._credit = min(most, self._credit + (now - self._credited_at) * self.bytes_per_s)
        self._credited_at = now
        return int(self._credit)

    def took(self, size: int) -> None:
        self.passed += size
        self._credit -= size


@dataclass(slots=True, eq=False)
class _Pipe:
    """One direction of one connection."""

    source: socket.socket
    sink: socket.socket
    way: Way
    held: deque[tuple[float, bytes]] = field(default_factory=deque)
    """When each piece may go on, and the piece."""
    size: int = 0
    passed: int = 0
    """Bytes that have been passed on."""
    holed: bool = False
    """Something of this stream was lost."""
    ended: bool = False
    """The source has said all that it will."""


@dataclass(slots=True, eq=False)
class _Connection:
    dialler: str
    near: socket.socket
    heard: bytearray = field(default_factory=bytearray)
    """What the dialler has said to the proxy itself."""
    greeted: bool = False
    target: tuple[str, int] | None = None
    host: str = ""
    far: socket.socket | None = None
    pipes: tuple[_Pipe, ...] = ()


class Chaos:
    """The proxy; a context, at whose end all connections are cut."""

    def __init__(self) -> None:
        self.cuts = 0
        """Connections that were cut on purpose, once they led somewhere."""
        self.cut_every_s = 0.0
        """Cut so often all connections that have carried something; 0: leave them alone."""
        self.failures: list[BaseException] = []
        """Faults of the proxy itself; a test that goes on without it proves nothing."""
        self._cut_at = 0.0
        self._ways: dict[tuple[str, str], Way] = {}
        self._parted: set[frozenset[str]] = set()
        self._owners: dict[int, str] = {}
        self._listeners: dict[socket.socket, str] = {}
        self._connections: list[_Connection] = []
        self._selector = selectors.DefaultSelector()
        self._wanted: dict[socket.socket, int] = {}
        self._todo: deque[Callable[[], None]] = deque()
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._selector.register(self._ear, selectors.EVENT_READ)
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="chaos", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended = True
        with suppress(OSError):  # it has seen that by itself, and is gone
            self._bell.send(b"!")
        self._thread.join(10)
        assert not self._thread.is_alive()
        assert not self.failures, self.failures

    # --- for the test's thread --------------------------------------------------------------------------------------

    def socks(self, dialler: str) -> str:
        """Where this agent dials through: the value of its `network.socks`."""
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)  # accepted sockets inherit it
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        listener.setblocking(False)
        self._do(lambda: self._listen(listener, dialler))
        return f"127.0.0.1:{listener.getsockname()[1]}"

    def owns(self, name: str, *ports: int) -> None:
        """These ports are those of this agent, from now on."""
        self._do(lambda: self._owners.update(dict.fromkeys(ports, name)))

    def way(self, sender: str, receiver: str) -> Way:
        """From the one to the other; set its fields."""
        return self._ways.setdefault((sender, receiver), Way())

    def ways(self, one: str, other: str) -> tuple[Way, Way]:
        """Both directions."""
        return self.way(one, other), self.way(other, one)

    def cut(self, one: str = "", other: str = "") -> None:
        """Reset every connection of the one with the other; with an empty name, with or of everybody."""
        self._do(lambda: self._cut(one, other))

    def part(self, one: str, other: str) -> None:
        """Reset their connections, and refuse new ones."""
        self._parted.add(frozenset((one, other)))
        self.cut(one, other)

    def join(self, one: str, other: str) -> None:
        """Refuse no more."""
        self._parted.discard(frozenset((one, other)))

    def heal(self) -> None:
        """From now on the network does no harm."""
        self.cut_every_s = 0.0
        self._parted.clear()
        for way in list(self._ways.values()):
            way.frozen = way.lost = False
            way.garble = None
            way.delay_s = way.bytes_per_s = 0.0

    def _do(self, work: Callable[[], None]) -> None:
        done = threading.Event()

        def both() -> None:
            work()
            done.set()

        self._todo.append(both)
        self._bell.send(b"!")
        assert done.wait(10), self.failures

    # --- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._ended:
                self._turn()
        except Exception as error:  # noqa: BLE001  # the test is told
            self.failures.append(error)
        finally:
            for connection in list(self._connections):
                self._reset(connection)
            for listener in self._listeners:
                listener.close()
            self._selector.close()
            self._ear.close()
            self._bell.close()

    def _turn(self) -> None:
        now = time.monotonic()
        busy = False
        for connection in list(self._connections):
            busy |= self._wish(connection, now)
        ready = self._selector.select(TICK_S if busy or self.cut_every_s else NAP_S)
        for key, _ in ready:
            if key.fileobj is self._ear:
                self._ear.recv(4096)
            elif key.data is not None and key.fileobj in self._listeners:
                self._accept(key.fileobj)
        while self._todo:
            self._todo.popleft()()
        readable = {key.fileobj for key, events in ready if events & selectors.EVENT_READ}
        now = time.monotonic()
        for connection in list(self._connections):
            if connection in self._connections:
                self._serve(connection, readable, now)
        if self.cut_every_s and now >= self._cut_at:
            self._cut_at = now + self.cut_every_s
            # Where no handshake ends within that time, cutting all would be a network without any progress.
            self._cut("", "", CARRIED_BYTES)

    def _listen(self, listener: socket.socket, dialler: str) -> None:
        self._listeners[listener] = dialler
        self._selector.register(listener, selectors.EVENT_READ, listener)

    def _accept(self, listener: object) -> None:
        assert isinstance(listener, socket.socket)
        with suppress(OSError):
            near, _ = listener.accept()
            near.setblocking(False)
            near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._connections.append(_Connection(self._listeners[listener], near))

    def _wish(self, connection: _Connection, now: float) -> bool:
        """Tell the selector what this connection waits for; True if that includes the clock."""
        if connection.far is None:
            self._want(connection.near, selectors.EVENT_READ if connection.target is None else 0)
            return connection.target is not None
        wanted = dict.fromkeys((connection.near, connection.far), 0)
        waiting = False
        for pipe in connection.pipes:
            full = pipe.size >= HELD_BYTES_MAX and not pipe.way.delay_s
            if not (pipe.way.frozen or pipe.ended or full):
                wanted[pipe.source] |= selectors.EVENT_READ
            if pipe.held and not pipe.way.frozen:
                if pipe.held[0][0] <= now and pipe.way.allowance(now) > 0:
                    wanted[pipe.sink] |= selectors.EVENT_WRITE
                else:
                    waiting = True
            waiting |= pipe.way.frozen
        for each, events in wanted.items():
            self._want(each, events)
        return waiting

    def _want(self, one: socket.socket, events: int) -> None:
        before = self._wanted.get(one, 0)
        if events == before:
            return
        if not before:
            self._selector.register(one, events)
        elif events:
            self._selector.modify(one, events)
        else:
            self._selector.unregister(one)
        self._wanted[one] = events

    def _serve(self, connection: _Connection, readable: Container[object], now: float) -> None:
        try:
            if connection.far is None:
                if connection.near in readable:
                    self._hear(connection)
                if connection.target is not None:
                    self._connect(connection)
                return
            for pipe in connection.pipes:
                if pipe.source in readable:
                    self._read(pipe, now)
                self._write(pipe, now)
            if any(pipe.ended and not pipe.held and not pipe.way.lost for pipe in connection.pipes):
                self._reset(connection)
        except BlockingIOError:
            pass
        except OSError:
            self._reset(connection)

    def _hear(self, connection: _Connection) -> None:
        """What the dialler says to the proxy (RFC 1928, no authentication, IPv4)."""
        data = connection.near.recv(512)
        if not data:
            raise ConnectionResetError
        heard = connection.heard
        heard += data
        if not connection.greeted and len(heard) >= 2 and len(heard) >= 2 + heard[1]:
            del heard[: 2 + heard[1]]
            connection.greeted = True
            connection.near.send(b"\5\0")
        if connection.greeted and len(heard) >= 10:
            assert heard[:4] == b"\5\1\0\1"
            connection.target = socket.inet_ntoa(bytes(heard[4:8])), int.from_bytes(heard[8:10])
            connection.host = self._owners.get(connection.target[1], "")

    def _connect(self, connection: _Connection) -> None:
        """Reach the target, unless that takes a network that is not there now."""
        assert connection.target is not None
        up, down = self.way(connection.dialler, connection.host), self.way(connection.host, connection.dialler)
        if frozenset((connection.dialler, connection.host)) in self._parted:
            raise ConnectionRefusedError
        if up.frozen or up.lost or down.frozen or down.lost:
            return
        far = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        connection.far = far
        far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        far.settimeout(CONNECT_S)
        far.connect(connection.target)
        far.setblocking(False)
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.near.send(b"\5\0\0\1" + bytes(6))
        connection.pipes = (_Pipe(connection.near, far, up), _Pipe(far, connection.near, down))

    def _read(self, pipe: _Pipe, now: float) -> None:
        try:
            data = pipe.source.recv(PIECE_BYTES)
        except ConnectionResetError:
            if not pipe.way.lost:
                raise
            data = b""
        if not data:
            pipe.ended = True
        elif pipe.way.lost:
            pipe.holed = True
        elif pipe.holed:
            raise ConnectionResetError
        else:
            if pipe.way.garble is not None:
                data = pipe.way.garble(data)
            pipe.held.append((now + pipe.way.delay_s, data))
            pipe.size += len(data)

    def _write(self, pipe: _Pipe, now: float) -> None:
        while pipe.held and not pipe.way.frozen and pipe.held[0][0] <= now and (most := pipe.way.allowance(now)) > 0:
            due, data = pipe.held[0]
            try:
                sent = pipe.sink.send(data[:most])
            except BlockingIOError:
                return
            pipe.way.took(sent)
            pipe.passed += sent
            pipe.size -= sent
            if sent < len(data):
                pipe.held[0] = due, data[sent:]
                return
            pipe.held.popleft()

    def _cut(self, one: str, other: str, carried_bytes: int = 0) -> None:
        for connection in list(self._connections):
            ends = {connection.dialler, connection.host}
            carried = sum(pipe.passed for pipe in connection.pipes)
            if connection.far is not None and ({one, other} - {""}) <= ends and carried >= carried_bytes:
                self.cuts += 1
                self._reset(connection)

    def _reset(self, connection: _Connection) -> None:
        """End it for both sides, and let the kernel say so with a RST."""
        self._connections.remove(connection)
        for end in (connection.near, connection.far):
            if end is not None:
                self._want(end, 0)
                self._wanted.pop(end, None)
                with suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.close()


class Flips:
    """For `Way.garble`: flips one bit in so many of all pieces."""

    def __init__(self, dice: Random, share: float) -> None:
        self._dice, self._share = dice, share
        self.pieces = self.flipped = 0

    def __call__(self, piece: bytes) -> bytes:
        self.pieces += 1
        if self._dice.random() >= self._share:
            return piece
        self.flipped += 1
        place = self._dice.randrange(len(piece))
        return piece[:place] + bytes([piece[place] ^ 1 << self._dice.randrange(8)]) + piece[place + 1 :]


class Tape:
    """For `Way.garble`: keeps every piece, and changes none."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def __call__(self, piece: bytes) -> bytes:
        self.pieces.append(piece)
        return piece
