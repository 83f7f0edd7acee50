"""TCP connection control by file descriptor: who is connected, how much was received, and how to cut it.

libzmq can neither close a single connection nor bound what a peer sends: its size limit is per frame, its high-water
mark counts whole messages (an unfinished multipart message grows forever), and where the mark holds a peer back, libzmq
4.3.5 may abort the process (`socket_options.py`). So the kernel reports how many bytes a connection has received
(`TCP_INFO`), and a connection with too many unread bytes is shut down. libzmq then sees an ordinary loss and frees
everything that it held for it.

The descriptors are libzmq's, which may close one at any moment, and the kernel may reuse its number. So every access
uses a duplicate, and cutting compares the addresses of both ends first. One spare descriptor is always reserved for
this, so that clients that exhaust the process's descriptors can still be seen and cut.
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
"""Unread bytes of one connection: twenty-three of the largest envelopes, or eight thousand chat messages. libzmq needs
as much memory for them, or four times as much when all are tiny."""
HEARTBEAT_BYTES_PER_S = 128
"""Allowance for heartbeats, which the agent never reads. An encrypted PING takes 42 bytes (`heartbeat.py`)."""
TCP_INFO_BYTES_ACKED, TCP_INFO_BYTES_RECEIVED = 120, 128
"""Offsets of `tcpi_bytes_acked` and `tcpi_bytes_received`, 64 bits each, in Linux's `struct tcp_info` (since 4.1)."""


class Connection(Struct, eq=False):
    """One live inbound TCP connection."""

    fd: int
    ends: tuple[object, object]
    """Our address and the peer's, from the kernel: they tell this connection from a later one with the same `fd`."""
    since: float
    """Time of the accept; seconds, monotonic."""
    backlog_bytes_max: int = BACKLOG_BYTES_MAX
    user: str = ""
    """The authenticated client key in Z85; empty until the first complete message."""
    link: bytes = b""
    """The link of that key."""
    routing: bytes = b""
    """The routing id of our ROUTER for it."""
    queues: frozenset[bytes] = frozenset()
    """Its subscriptions, on the queue socket."""
    messages: int = 0
    """Complete messages that the agent has read."""
    read_bytes: int = 0
    """Wire bytes of these messages."""
    guest: bool = False
    """The key belongs to an invitation."""
    sent_bytes: int = 0
    """Wire bytes handed to libzmq for this connection."""
    swollen_at: float = 0.0
    """Time at which it first exceeded the limit for unauthenticated connections; seconds, monotonic; 0: never."""
    backlogged: tuple[int, bool] = (0, False)
    """Number of the poll in which its send backlog was last checked, and the result."""
    _forgiven: int = 0
    _checked_at: float = 0.0

    def message_read(self, wire_bytes: int) -> None:
        """The agent has read one message of so many bytes."""
        self.messages += 1
        self.read_bytes += wire_bytes

    def unread(self, received: int, now: float) -> int:
        """Bytes that the agent has not read, given the kernel's counter; `now` in seconds, monotonic."""
        unread = received - self.read_bytes - self._forgiven
        allowed = int(HEARTBEAT_BYTES_PER_S * (now - (self._checked_at or self.since)))
        self._forgiven += min(max(unread, 0), allowed)
        self._checked_at = now
        return unread

    def unacked(self, acked: int) -> int:
        """Bytes sent that the peer's machine has not acknowledged, given the kernel's counter. The counter includes
        libzmq's own traffic, which must not count as room for more."""
        self.sent_bytes = max(self.sent_bytes, acked)
        return self.sent_bytes - acked

    def exceeds_backlog(self, received: int, now: float) -> bool:
        """Whether the unread bytes exceed `backlog_bytes_max`."""
        return self.unread(received, now) > self.backlog_bytes_max


def wire_bytes(size: int) -> int:
    """Size on the wire of a frame of `size` bytes in a CURVE connection (RFC 26 MESSAGE in RFC 37 framing)."""
    return size + (35 if size + 33 <= 255 else 42)


def identify(fd: int, now: float, backlog_bytes_max: int = BACKLOG_BYTES_MAX) -> Connection | None:
    """The connection behind a descriptor that libzmq has reported; None: it is closed already."""
    try:
        with duplicate(fd) as copy:
            return Connection(fd, (copy.getsockname(), copy.getpeername()), now, backlog_bytes_max)
    except OSError:
        return None


def bytes_received(connection: Connection) -> int:
    """Bytes received from the peer by the kernel's count; 0 where the kernel does not report it."""
    return _tcp_info(connection, TCP_INFO_BYTES_RECEIVED) or 0


def bytes_acked(connection: Connection) -> int | None:
    """Bytes that the peer's machine has acknowledged by the kernel's count; None where it does not report it."""
    return _tcp_info(connection, TCP_INFO_BYTES_ACKED)


def _tcp_info(connection: Connection, offset: int) -> int | None:
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


def cut(connection: Connection, *, reset: bool = False) -> None:
    """Shut this connection down in both directions. libzmq notices and cleans up; all others continue.

    Data just sent still arrives, unless `reset`: then the peer gets a TCP reset and stops sending.
    """
    with suppress(OSError), duplicate(connection.fd) as copy:
        if (copy.getsockname(), copy.getpeername()) == connection.ends:
            if reset:
                copy.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            copy.shutdown(socket.SHUT_RDWR)


def limit_receive_buffer(connection: Connection, buffer_bytes: int) -> None:
    """Limit the bytes that the kernel buffers for this connection until libzmq reads them."""
    with suppress(OSError), duplicate(connection.fd) as copy:
        copy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer_bytes)


_null, _spare = (os.open(os.devnull, os.O_RDONLY) for _ in range(2))
"""The spare descriptor, which takes a duplicate when no other is left, and its content at other times."""
_spare_lock = threading.Lock()


@contextmanager
def duplicate(fd: int) -> Iterator[socket.socket]:
    """The same TCP connection under another descriptor, for the duration of the context. Raises OSError when it is
    closed."""
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
    with _spare_lock:
        os.dup2(fd, _spare, inheritable=False)
        try:
            copy = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, _spare)
            try:
                yield copy
            finally:
                copy.detach()
        finally:
            os.dup2(_null, _spare, inheritable=False)  # otherwise the connection would stay open
