"""The bytes that a process has sent over TCP, as Linux counts them for each of its connections.

The kernel's socket diagnostics (sock_diag(7)) give every connection's `tcp_info`; /proc lists a process's connections.
Retransmitted segments count again, headers do not. Outside Linux there is no result.
"""

import contextlib
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLMSG_ERROR, NLMSG_DONE = 2, 3
REQUEST_DUMP = 0x301
INET_DIAG_INFO = 2
HEADER, REQUEST, ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=BBBxI48x"), struct.Struct("=HH")
DIAG_BYTES, INODE_AT = 72, 68
"""`struct inet_diag_msg`, and where its `idiag_inode` is."""
BYTES_SENT_AT = 200
"""Where `tcp_info` has `tcpi_bytes_sent` (64 bits, since Linux 4.19)."""


def bytes_sent(pid: int) -> int | None:
    """Bytes that the process has sent over the TCP connections that it has now; None where that cannot be known."""
    if sys.platform != "linux":
        return None
    try:
        own = inodes(pid)
        return sum(sent for inode, sent in connections() if inode in own)
    except OSError:
        return None


def inodes(pid: int) -> set[int]:
    """The sockets that a process holds."""
    found = set()
    for entry in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            name = str(Path(entry.path).readlink())
            if name.startswith("socket:["):
                found.add(int(name[8:-1]))
    return found


def connections() -> Iterator[tuple[int, int]]:
    """Every TCP connection over IPv4: its inode, and the bytes that were sent over it."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        asked = REQUEST.pack(socket.AF_INET, socket.IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0xFFFFFFFF)
        kernel.settimeout(5.0)
        kernel.send(HEADER.pack(HEADER.size + len(asked), SOCK_DIAG_BY_FAMILY, REQUEST_DUMP, 1, 0) + asked)
        while True:
            data = kernel.recv(1 << 18)
            at = 0
            while at + HEADER.size <= len(data):
                length, kind, *_ = HEADER.unpack_from(data, at)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    raise OSError("the kernel does not tell")
                yield from connection(data[at + HEADER.size : at + length])
                at += length + 3 & ~3


def connection(answer: bytes) -> Iterator[tuple[int, int]]:
    (inode,) = struct.unpack_from("=I", answer, INODE_AT)
    at = DIAG_BYTES
    while at + ATTRIBUTE.size <= len(answer):
        length, kind = ATTRIBUTE.unpack_from(answer, at)
        if kind == INET_DIAG_INFO and length >= ATTRIBUTE.size + BYTES_SENT_AT + 8:
            yield inode, struct.unpack_from("=Q", answer, at + ATTRIBUTE.size + BYTES_SENT_AT)[0]
        at += max(length + 3 & ~3, ATTRIBUTE.size)
