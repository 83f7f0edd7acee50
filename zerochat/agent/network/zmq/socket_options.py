"""Options and monitor of the bound libzmq sockets: limits, timeouts, CURVE, and connection events.

Most of libzmq's defaults are unfit for an open network: no size limit, no heartbeat, thirty seconds for a handshake, an
endless linger. Options must be set before `bind`, when libzmq copies them. Dialled connections (`dialer.py`) do not use
libzmq, but the same limits and timeouts.
"""

import struct
from collections.abc import Iterator
from itertools import count
from typing import TypeAlias

import zmq
from msgspec import Struct
from zmq.utils import z85

from zerochat.agent.network.zmq.tcp_control import wire_bytes
from zerochat.agent.network.zmq.zap import ZAP_DOMAIN
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import LocalError

Context: TypeAlias = zmq.Context[zmq.Socket[bytes]]
Socket: TypeAlias = zmq.Socket[bytes]

LIBZMQ_MIN = (4, 3, 5)
FRAME_BYTES_MAX = ENVELOPE_BYTES_MAX + 1024
"""Largest frame, which also bounds the memory that an unauthenticated client can make libzmq allocate. CURVE and ZMTP
add 42 bytes to a frame (RFC 26); the rest is a margin."""
SUBSCRIBER_BYTES_MAX = 320
"""The same on the queue socket, where a subscriber sends INITIATE (276 bytes, RFC 26) and subscriptions of 33 bytes.
libzmq keeps every requested topic, accepted or not, in a tree with a node for each byte."""
SUBSCRIBER_BUFFER_BYTES = 1024
"""SO_RCVBUF of a subscriber's connection, the kernel's minimum (2,304 on Linux), so that the kernel throttles a flood:
with four times as much a flood of topics made the agent grow by 190 MB before the cut, with this by 4 MB."""
RECEIVE_FRAMES_MAX = 0
"""No receive high-water mark: when a connection ends while this mark holds its peer back, libzmq 4.3.5 aborts the
process at the next heartbeat (`!_io_error`, `stream_engine_base.cpp`; see also zeromq/libzmq#3937). The flood guard
limits bytes instead (`flood_guard.py`)."""

SEND_FRAMES_MAX = 256
"""Send queue of one pair connection, in messages; further ones are dropped and retransmitted later."""
PUBLISH_FRAMES_MAX = 1000
"""The same per subscriber of a queue, where a burst of posts should fit."""

HEARTBEAT_MS = 1500
"""Ping interval of dialled pair connections (`heartbeat.py`). Without heartbeats a vanished peer is never noticed, and
a flipped byte in a CURVE stream leaves a dead connection open."""
HEARTBEAT_TIMEOUT_MS = 2400
"""Time for the PONG. Together with the interval, a vanished peer is noticed within four seconds."""
QUEUE_HEARTBEAT_MS = 12_000
"""Ping interval of queue connections. They are probed at once when the pair connection to the host is lost, and lost
messages are retransmitted over the link."""
SPARE_HEARTBEAT_MS = 60_000
"""Ping interval of libzmq on inbound connections. The dialling side pings more often; this covers a peer that vanishes
between a message and its ping, and other programs."""
KEEPALIVE_IDLE_S, KEEPALIVE_S, KEEPALIVES_MAX = 2, 1, 2
"""TCP keepalive: idle time, interval and number of probes."""
TCP_SILENCE_MS = 4000
"""TCP_MAXRT: how long the kernel retransmits unacknowledged data before it closes the connection."""
HANDSHAKE_MS = 2000
"""From the TCP connection to the end of the CURVE handshake (three round trips)."""
HANDSHAKE_ONION_MS = 20_000
"""The same behind a SOCKS proxy such as Tor, where a round trip may take seconds."""
LINGER_MS = 300
"""How long a closing socket may deliver pending messages: enough for a goodbye, short enough for exit."""
BACKLOG = 1024

monitors = count()


class OldLibzmq(LocalError):
    """libzmq {found} is too old; zerochat needs {wanted} or newer. Reinstall it with
    `pip install --force-reinstall pyzmq`."""


def new_context() -> Context:
    """A libzmq context. Raises OldLibzmq."""
    if zmq.zmq_version_info() < LIBZMQ_MIN:
        raise OldLibzmq(found=zmq.zmq_version(), wanted=".".join(map(str, LIBZMQ_MIN)))
    context: Context = zmq.Context()
    return context


def handshake_ms(*, proxied: bool) -> int:
    """Handshake timeout in milliseconds."""
    return HANDSHAKE_ONION_MS if proxied else HANDSHAKE_MS


def harden(socket: Socket, *, proxied: bool) -> None:
    """Set the limits and timeouts common to both sockets."""
    socket.linger = LINGER_MS
    socket.maxmsgsize = FRAME_BYTES_MAX
    socket.sndhwm = SEND_FRAMES_MAX
    socket.rcvhwm = RECEIVE_FRAMES_MAX
    socket.handshake_ivl = handshake_ms(proxied=proxied)
    socket.heartbeat_ivl = SPARE_HEARTBEAT_MS
    socket.heartbeat_timeout = HEARTBEAT_TIMEOUT_MS
    socket.tcp_maxrt = TCP_SILENCE_MS


def keep_alive(socket: Socket) -> None:
    """Enable TCP keepalive for inbound connections, in case a peer's machine vanishes between a message and its ping.
    It costs nothing while the peer pings; it does not detect a program that hangs."""
    socket.tcp_keepalive = 1
    socket.tcp_keepalive_idle = KEEPALIVE_IDLE_S
    socket.tcp_keepalive_intvl = KEEPALIVE_S
    socket.tcp_keepalive_cnt = KEEPALIVES_MAX


def guard(socket: Socket, server_secret: bytes, *, ipv6: bool) -> None:
    """Make the socket a CURVE server that accepts only keys admitted by ZAP, and none without ZAP."""
    socket.curve_secretkey = server_secret
    socket.curve_server = 1
    socket.zap_domain = ZAP_DOMAIN
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.ipv6 = ipv6
    socket.backlog = BACKLOG


def public_key(secret: bytes) -> bytes:
    """The CURVE public key of a secret key; 32 bytes each."""
    return z85.decode(zmq.curve_public(z85.encode(secret)))


def receive(socket: Socket) -> tuple[list[zmq.Frame], int]:
    """One whole message and its size on the wire. Raises `zmq.Again`.

    Only the first four frames are kept; valid messages have at most three.
    """
    frame = socket.recv(zmq.NOBLOCK, copy=False)
    frames, size = [frame], wire_bytes(len(frame))
    while frame.more:
        frame = socket.recv(copy=False)
        size += wire_bytes(len(frame))
        if len(frames) < 4:
            frames.append(frame)
    return frames, size


def send(socket: Socket, frames: list[bytes]) -> bool:
    """Send one message without blocking; False: the send queue is full."""
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True


# --- the monitor ----------------------------------------------------------------------------------------------------


class Event(Struct, frozen=True):
    """A monitor event: a `zmq.Event`, and a file descriptor, errno or interval."""

    kind: int
    value: int


class Monitor:
    """Reads the connection events of one socket, in the order of libzmq's I/O thread.

    The pipe is unbounded: libzmq writes to it from the I/O thread with a blocking send, so with a bound, clients could
    stop all traffic of the context while the agent is busy, and block its termination.
    """

    def __init__(self, context: Context, socket: Socket, kinds: int) -> None:
        self._watched = socket
        address = f"inproc://monitor-{next(monitors)}"
        socket.monitor(address, kinds)
        self.socket = context.socket(zmq.PAIR)
        self.socket.linger = 0
        self.socket.rcvhwm = 0
        self.socket.connect(address)

    def events(self) -> Iterator[Event]:
        """The events since the last call."""
        while True:
            try:
                frame, _ = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield Event(*struct.unpack("=Hi", frame))

    def close(self) -> None:
        """Stop libzmq from writing before the reader closes: its blocking send would never return."""
        self._watched.disable_monitor()
        self.socket.close()
