"""The options that both bound sockets get before they bind, and the monitor that says what becomes of them.

Most of libzmq's defaults are wrong for an open network: no size limit, no heartbeat, half a minute for a handshake, an
endless wait at the end. Each value here says what it is for. Everything must be set before `bind`; libzmq copies the
options at that moment. What we dial is not libzmq's (`dial.py`), but is held to the same limits and times.
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
"""What libzmq accepts as one frame, which also bounds what it allocates for a stranger before the handshake. CURVE
and ZMTP add 42 bytes to a frame (RFC 26); the rest is room."""
SUBSCRIBER_BYTES_MAX = 320
"""The same for the queue socket, where a subscriber needs no more than INITIATE (276 bytes, RFC 26) and subscriptions
of 33. libzmq keeps every topic that is asked for, honoured or not, in a tree with a node for each byte."""
SUBSCRIBER_BUFFER_BYTES = 1024
"""SO_RCVBUF of a subscriber's connection, the least there is (Linux makes it 2,304). A subscriber has next to nothing
to say, and so the kernel holds it back: with four times as much, a flood of topics made the agent grow by 190 MB before
it was cut; with this, by 4 MB."""
RECEIVE_FRAMES_MAX = 0
"""No limit here, for a bad reason: a connection whose peer is held back by this mark, and which then ends, makes libzmq
4.3.5 abort the process at the next heartbeat, its own or one that it has received (`!_io_error`,
`stream_engine_base.cpp`; zeromq/libzmq#3937 is of the same family). The limit is in bytes, and the watch keeps it
(`watch.py`)."""

SEND_FRAMES_MAX = 256
"""Messages that wait for one peer's network on a pair link; beyond that they are dropped, and the log repairs."""
PUBLISH_FRAMES_MAX = 1000
"""The same for each subscriber of a queue, where a burst of posts should pass whole."""

HEARTBEAT_MS = 1500
"""Without heartbeats a vanished peer is never noticed, and one flipped byte in a CURVE stream leaves a dead connection
standing for ever. Whoever has dialled a pair link asks this often (`pulse.py`)."""
HEARTBEAT_TIMEOUT_MS = 2400
"""With the time until it is asked less than four seconds: within that a peer who vanishes is seen to be gone."""
QUEUE_HEARTBEAT_MS = 12_000
"""The same for a queue: it is asked at once when the pair link to its host is lost, and what is lost while nobody has
noticed is repaired over that link."""
SPARE_HEARTBEAT_MS = 60_000
"""How often libzmq itself asks those who have dialled us. Mostly they ask first, and more often; but one may vanish
between a word and its question, or be another program."""
KEEPALIVE_IDLE_S, KEEPALIVE_S, KEEPALIVES_MAX = 2, 1, 2
"""After a longer silence than there is between two questions, TCP asks too, so often and so many times in vain."""
TCP_SILENCE_MS = 4000
"""TCP_MAXRT: how long the kernel may retransmit unacknowledged data before the connection counts as dead."""
HANDSHAKE_MS = 2000
"""From the TCP connection to the end of the CURVE handshake (three round trips); then an idle stranger is cut."""
HANDSHAKE_ONION_MS = 20_000
"""The same when we sit behind a SOCKS proxy such as Tor, where a round trip may take seconds."""
LINGER_MS = 300
"""How long a closing socket may still try to hand over what was sent: enough for a goodbye, short enough for exit."""
BACKLOG = 1024

monitors = count()


class OldLibzmq(LocalError):
    """libzmq {found} is too old for an open network; {wanted} or newer is needed. Reinstall it with
    `pip install --force-reinstall pyzmq`."""


def new_context() -> Context:
    """A context of libzmq. Raises OldLibzmq."""
    if zmq.zmq_version_info() < LIBZMQ_MIN:
        raise OldLibzmq(found=zmq.zmq_version(), wanted=".".join(map(str, LIBZMQ_MIN)))
    context: Context = zmq.Context()
    return context


def handshake_ms(*, proxied: bool) -> int:
    """How long a handshake may take."""
    return HANDSHAKE_ONION_MS if proxied else HANDSHAKE_MS


def harden(socket: Socket, *, proxied: bool) -> None:
    """Set what both sockets have in common."""
    socket.linger = LINGER_MS
    socket.maxmsgsize = FRAME_BYTES_MAX
    socket.sndhwm = SEND_FRAMES_MAX
    socket.rcvhwm = RECEIVE_FRAMES_MAX
    socket.handshake_ivl = handshake_ms(proxied=proxied)
    socket.heartbeat_ivl = SPARE_HEARTBEAT_MS
    socket.heartbeat_timeout = HEARTBEAT_TIMEOUT_MS
    socket.tcp_maxrt = TCP_SILENCE_MS


def keep_alive(socket: Socket) -> None:
    """Have TCP ask whoever has dialled us and is silent, in case their machine has vanished between a word and its
    question. It costs nothing while they ask; of a program that stands still, TCP knows nothing."""
    socket.tcp_keepalive = 1
    socket.tcp_keepalive_idle = KEEPALIVE_IDLE_S
    socket.tcp_keepalive_intvl = KEEPALIVE_S
    socket.tcp_keepalive_cnt = KEEPALIVES_MAX


def guard(socket: Socket, server_secret: bytes, *, ipv6: bool) -> None:
    """Make a socket that is about to bind a CURVE server that lets in only whom ZAP admits, and nobody without ZAP."""
    socket.curve_secretkey = server_secret
    socket.curve_server = 1
    socket.zap_domain = ZAP_DOMAIN
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
    socket.ipv6 = ipv6
    socket.backlog = BACKLOG


def public_key(secret: bytes) -> bytes:
    """The CURVE public key of a secret key; 32 bytes both."""
    return z85.decode(zmq.curve_public(z85.encode(secret)))


def receive(socket: Socket) -> tuple[list[zmq.Frame], int]:
    """One whole message, and the bytes of all its frames on the wire. Raises `zmq.Again`.

    Of the frames only the first four are kept, as none of our messages has more than three.
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
    """Send one message now, or not at all (False)."""
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        return False
    return True


# --- the monitor ----------------------------------------------------------------------------------------------------


class Event(Struct, frozen=True):
    """One line of libzmq's diary of a socket: an event of `zmq.Event`, and a file descriptor, errno or interval."""

    kind: int
    value: int


class Monitor:
    """Reads the events of one socket. They come in the order in which libzmq's I/O thread saw them.

    Its reading end takes any number of events: libzmq writes them from the I/O thread with a blocking send, so a bound
    here would let strangers stop all traffic of the context while the agent is busy, and would lock up its end.
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
        """Everything that has happened since the last call."""
        while True:
            try:
                frame, _ = self.socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            yield Event(*struct.unpack("=Hi", frame))

    def close(self) -> None:
        """Stop libzmq from writing before there is nobody to read: its blocking send would never return."""
        self._watched.disable_monitor()
        self.socket.close()
