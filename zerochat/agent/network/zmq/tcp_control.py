"""One TCP connection, by its file descriptor: whose it is, how much it has sent, and how to end it.

libzmq cannot end one connection, and cannot bound what one may send. Its frame limit is for one frame; its high-water
mark counts whole messages, so an unfinished multipart message grows for ever; and where the mark does hold a peer back,
libzmq 4.3.5 may abort the process (`sockets.py`). So the kernel is asked how many bytes a connection has sent
(`TCP_INFO`), and what has not been read of these is bounded by shutting the connection down. libzmq then sees an
ordinary loss, and gives back all that it held for it.

Descriptors are libzmq's, which may close one, and the kernel use its number again, at any moment. So every touch is on
a duplicate, and cutting compares the addresses of both ends first. There is always room for one: strangers who take
every descriptor that this process may have must not be those whom nobody can see, or cut.
"""

import errno
import os
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

BACKLOG_BYTES_MAX = 12 * 1024 * 1024
"""Bytes of one connection that the agent has not read: twenty-three of the largest envelopes, or eight thousand chat
messages. libzmq holds them in as much memory, or in four times as much when they are all tiny."""
HEARTBEAT_BYTES_PER_S = 128
"""Heartbeats are never read by the agent. A PING takes 42 bytes, encrypted (`pulse.py`)."""
TCP_INFO_BYTES_ACKED, TCP_INFO_BYTES_RECEIVED = 120, 128
"""Offsets of `tcpi_bytes_acked` and `tcpi_bytes_received`, 64 bits each, in Linux's `struct tcp_info` (since 4.1)."""


class Connection(Struct, eq=False):
    """One live TCP connection, and what is known of whom it belongs to."""

    fd: int
    ends: tuple[object, object]
    """Our address and the peer's, as the kernel gives them: they tell this connection from a later one on `fd`."""
    since: float
    """When it was noticed; seconds, monotonic."""
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    user: str = ""
    """The Z85 client key that speaks here; empty until its first complete message."""
    link: bytes = b""
    """The link that it belongs to."""
    routing: bytes = b""
    """The name under which our ROUTER reaches it."""
    queues: frozenset[bytes] = frozenset()
    """The queues that it has subscribed to, on the queue socket."""
    words: int = 0
    """Complete messages that the agent has read."""
    taken: int = 0
    """Bytes of these on the wire."""
    guest: bool = False
    """Whoever speaks here has an invitation, and no more."""
    given: int = 0
    """Bytes that libzmq was given for this connection, on the wire."""
    swollen_at: float = 0.0
    """When it was first seen to have sent much without a word; seconds, monotonic; 0: it was not."""
    refusing: tuple[int, bool] = (0, False)
    """The turn of the transport in which it was last looked whether too much waits for it, and what was found."""
    _forgiven: int = 0
    _judged: float = 0.0

    def read(self, wire_bytes: int) -> None:
        """The agent has read one message."""
        self.words += 1
        self.taken += wire_bytes

    def unread(self, received: int, now: float) -> int:
        """What the agent has not read yet, by one reading of the kernel's counter, in bytes; `now` in seconds,
        monotonic."""
        unread = received - self.taken - self._forgiven
        allowed = int(HEARTBEAT_BYTES_PER_S * (now - (self._judged or self.since)))
        self._forgiven += min(max(unread, 0), allowed)
        self._judged = now
        return unread

    def waiting(self, acked: int) -> int:
        """Bytes that we have for the peer and its machine has not taken, where it says that it has taken so many. These
        include what libzmq says by itself, which must not count as room for more."""
        self.given = max(self.given, acked)
        return self.given - acked

    def too_much(self, received: int, now: float) -> bool:
        """Whether that is too much for one connection."""
        return self.unread(received, now) > self.backlog_bytes_max


def wire_bytes(size: int) -> int:
    """What a frame of this size takes in a CURVE connection (RFC 26 MESSAGE in RFC 37 framing)."""
    return size + (35 if size + 33 <= 255 else 42)


def notice(fd: int, now: float, backlog_bytes_max: int = BACKLOG_BYTES_MAX) -> Connection | None:
    """The connection behind a descriptor that libzmq has just named; None if it has gone already."""
    try:
        with duplicate(fd) as copy:
            return Connection(fd, (copy.getsockname(), copy.getpeername()), now, backlog_bytes_max)
    except OSError:
        return None


def bytes_received(connection: Connection) -> int:
    """How much the peer has sent so far, by the kernel's count; 0 where the kernel does not say."""
    return _count(connection, TCP_INFO_BYTES_RECEIVED) or 0


def bytes_acked(connection: Connection) -> int | None:
    """How much of what we have sent the peer's machine has taken, by the kernel's count; None where it does not say."""
    return _count(connection, TCP_INFO_BYTES_ACKED)


def _count(connection: Connection, offset: int) -> int | None:
    """A number of the kernel's about this connection."""
    if sys.platform != "linux":
        return None
    try:
        with duplicate(connection.fd) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, offset + 8)
    except OSError:
        return None
    if len(info) < offset + 8:
        return None
    (count,) = struct.unpack_from("=Q", info, offset)
    return int(count)


def cut(connection: Connection, *, rudely: bool = False) -> None:
    """End this connection now, for both sides. libzmq notices, cleans up, and leaves all others alone.

    What we have just sent still arrives, unless `rudely`: then the peer is reset, and does not go on sending.
    """
    with suppress(OSError), duplicate(connection.fd) as copy:
        if (copy.getsockname(), copy.getpeername()) == connection.ends:
            if rudely:
                copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            copy.shutdown(socket.SHUT_RDWR)


def hold_back(connection: Connection, buffer_bytes: int) -> None:
    """Have the kernel keep no more than this of what the peer sends, until libzmq takes it."""
    with suppress(OSError), duplicate(connection.fd) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)


nothing, spare = (os.open(os.devnull, os.O_RDONLY) for _ in range(2))
"""A descriptor into which a duplicate can be put when there is no other left, and what is in it otherwise."""
spare_lock = threading.Lock()


@contextmanager
def duplicate(fd: int) -> Iterator[socket.socket]:
    """The same TCP connection under another descriptor, for a moment. Raises OSError when it is gone."""
    try:
        copy = socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        copy = None
    if copy is not None:
        with copy:
            yield copy
        return
    with spare_lock:
        os.dup2(fd, spare, inheritable=False)
        try:
            copy = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, spare)
            try:
                yield copy
            finally:
                copy.detach()
        finally:
            os.dup2(nothing, spare, inheritable=False)  # or the connection would not end
