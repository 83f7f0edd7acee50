"""The watch over inbound and outbound TCP connections: know each by its file descriptor, and cut it when it must go.

libzmq has no way to end one connection, and none to bound what one connection may send before a message is complete:
its frame limit counts frames, its high-water mark counts whole messages, and an unfinished multipart message is
neither. So we ask the kernel how many bytes a connection has sent (`TCP_INFO`, Linux), and shut its socket down when
that has grown too far. libzmq then sees an ended connection, and gives back all that it held for it.

Descriptors belong to libzmq and may be closed, and their numbers used again, at any moment; so every touch works on a
duplicate, and cutting compares both ends' addresses first.
"""

import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass

STRANGER_BYTES_MAX = 8 * 1024
"""Before its first complete message a connection needs less than 1 KiB: greeting 64 bytes, HELLO 202, INITIATE about
330, a hello or a subscription."""
UNFINISHED_BYTES_MAX = 8 * 1024 * 1024
"""Bytes since the last complete message: one envelope, what the kernel may hold (6 MiB by default), and room."""
HEARTBEAT_BYTES_PER_S = 128
"""Heartbeats are no messages. PING and PONG, encrypted, take about 90 bytes a second."""
TCP_INFO_BYTES_RECEIVED = 128
"""Offset of `tcpi_bytes_received`, 64 bits, in Linux's `struct tcp_info` (since 4.1)."""


@dataclass(slots=True, eq=False)
class Connection:
    """One live TCP connection, and what is known of whom it belongs to."""

    fd: int
    ends: tuple[object, object]
    """Our address and the peer's, as the kernel gives them: they tell this connection from a later one on `fd`."""
    since: float
    user: str = ""
    """The Z85 client key that speaks here; empty until its first complete message."""
    link: bytes = b""
    """The link that it belongs to, on the pair socket."""
    routing: bytes = b""
    """The name under which our ROUTER reaches it."""
    heard: int = 0
    """Complete messages so far. Whoever reads the socket counts them."""
    marked_heard: int = 0
    marked_bytes: int = 0
    marked_at: float = 0.0
    overdue: bool = False

    def too_much(self, received: int, now: float) -> bool:
        """Judge one reading of the byte counter; `now` in seconds. Call it after the socket has been read."""
        if not self.user:
            # Twice in a row, because its first message may have come in since the socket was read.
            before, self.overdue = self.overdue, received > STRANGER_BYTES_MAX
            return before and self.overdue
        if self.heard != self.marked_heard:
            self.marked_heard, self.marked_bytes, self.marked_at = self.heard, received, now
            return False
        allowed = UNFINISHED_BYTES_MAX + HEARTBEAT_BYTES_PER_S * (now - self.marked_at)
        return received - self.marked_bytes > allowed


def notice(fd: int, now: float) -> Connection | None:
    """The connection behind a descriptor that libzmq has just named; None if it has gone already."""
    try:
        with socket.fromfd(fd, socket.AF_INET, socket.SOCK_STREAM) as copy:
            return Connection(fd, (copy.getsockname(), copy.getpeername()), now, marked_at=now)
    except OSError:
        return None


def bytes_received(connection: Connection) -> int:
    """How much the peer has sent so far, as its kernel delivered it; 0 where this kernel does not say."""
    if sys.platform != "linux":
        return 0
    try:
        with socket.fromfd(connection.fd, socket.AF_INET, socket.SOCK_STREAM) as copy:
            info = copy.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES_RECEIVED + 8)
    except OSError:
        return 0
    if len(info) < TCP_INFO_BYTES_RECEIVED + 8:
        return 0
    (received,) = struct.unpack_from("=Q", info, TCP_INFO_BYTES_RECEIVED)
    return int(received)


def cut(connection: Connection) -> None:
    """End this connection now, for both sides. libzmq notices, cleans up, and leaves all others alone."""
    with suppress(OSError), socket.fromfd(connection.fd, socket.AF_INET, socket.SOCK_STREAM) as copy:
        if (copy.getsockname(), copy.getpeername()) == connection.ends:
            copy.shutdown(socket.SHUT_RDWR)
