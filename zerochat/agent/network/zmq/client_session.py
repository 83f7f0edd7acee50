"""ZMTP client session without I/O: bytes in, messages and bytes out, from the greeting to the last message.

The greeting and HELLO are sent together, and the first messages as soon as READY has arrived: with TCP's handshake, the
first message reaches the host after three and a half round trips. It cannot follow INITIATE directly: a libzmq host
queries ZAP in between, and closes a connection on which data arrives before the answer.

Memory is bounded by one frame of the allowed size, the first frames of one message, and the send buffer.
"""

from collections.abc import Callable, Sequence

from zerochat.agent.network.zmq import curve, socket_options, zmtp
from zerochat.agent.network.zmq.tcp_control import wire_bytes
from zerochat.errors import Malformed, Refused

HANDSHAKE_FRAME_BYTES_MAX = 2048
"""WELCOME takes 168 bytes; READY some 80, and its metadata may have further properties."""
FRAMES_KEPT = 3
"""Frames kept of one message: valid ones have at most two, and a third one marks it as invalid."""
SEND_BYTES_MAX = 8 * 1024 * 1024
"""Send buffer; further messages are dropped and retransmitted later. Sixteen of the largest envelopes, and less than
the backlog that a busy peer tolerates (`tcp_control.BACKLOG_BYTES_MAX`)."""
PONG_BYTES_MAX = 64 * 1024
"""With a larger send buffer, PINGs are not answered: the host does not read."""

HOSTS = {b"DEALER": b"ROUTER", b"XSUB": b"XPUB"}
"""Our socket type, and the one that the host must have."""


class ClientSession:
    """The state of one connection. `outgoing`: the send buffer, emptied by the caller. `up`: READY has arrived.
    `needs_ping`: something was sent after the last PING, so the host has forgotten its TTL."""

    def __init__(
        self,
        kind: bytes,
        server_key: bytes,
        secret: bytes,
        first_messages: Sequence[bytes],
        random: Callable[[int], bytes],
    ) -> None:
        """`kind`: DEALER or XSUB. `first_messages`: sent as soon as the handshake is over. Raises Unauthentic for a
        server key of low order."""
        self.up = self.needs_ping = False
        self._kind, self._first_messages = kind, first_messages
        self._client = curve.Client(server_key, secret, random)
        self.outgoing = bytearray(zmtp.GREETING + zmtp.frame(zmtp.COMMAND, self._client.hello()))
        self._frames = zmtp.Frames(HANDSHAKE_FRAME_BYTES_MAX)
        self._step: Callable[[], int] = self._read_greeting
        """Reads the next part of the handshake and returns its size; 0: not received yet."""
        self._message: list[bytes] = []
        self._message_bytes = 0

    def feed(self, data: bytes) -> None:
        """Add received bytes, after `next` has returned None."""
        self._frames.feed(data)

    def next(self) -> tuple[list[bytes] | None, int] | None:
        """The frames of the next message (None: a command or an incomplete message) and its bytes on the wire; None:
        not received yet. Raises Malformed, Unauthentic or Refused; the connection must then be closed."""
        if not self.up:
            size = self._step()
            return (None, size) if size else None
        found = self._frames.next()
        if found is None:
            return None
        flags, plain = self._client.open(found[1])
        size = wire_bytes(len(plain))
        if flags & curve.COMMAND:
            self._handle_command(plain)
            return None, size
        self._message_bytes += size
        if len(self._message) < FRAMES_KEPT:
            self._message.append(plain)
        if flags & curve.MORE:
            if self._message_bytes > socket_options.FRAME_BYTES_MAX:
                raise Malformed(why="an oversized message")
            return None, size
        message, self._message, self._message_bytes = self._message, [], 0
        return message, size

    def send(self, message: bytes, header: bytes = b"") -> bool:
        """Append a message to `outgoing`: one frame, or two with a header. False: the send buffer is full."""
        if len(self.outgoing) + len(header) + len(message) > SEND_BYTES_MAX:
            return False
        if header:
            self.outgoing += zmtp.frame(0, self._client.seal(curve.MORE, header))
        self.outgoing += zmtp.frame(0, self._client.seal(0, message))
        self.needs_ping = True
        return True

    def ping(self, ttl_ms: int) -> None:
        """Send a PING. `ttl_ms`: silence after which the host may close the connection."""
        self._command(zmtp.ping(ttl_ms))
        self.needs_ping = False

    def _handle_command(self, plain: bytes) -> None:
        name, data = zmtp.split_command(plain)
        if name == b"PING" and len(self.outgoing) <= PONG_BYTES_MAX:
            self._command(zmtp.pong(data))

    def _command(self, body: bytes) -> None:
        self.outgoing += zmtp.frame(0, self._client.seal(curve.COMMAND, body))
        self.needs_ping = True

    # --- the handshake ----------------------------------------------------------------------------------------------

    def _read_greeting(self) -> int:
        greeting = self._frames.take(zmtp.GREETING_BYTES)
        if greeting is None:
            return 0
        zmtp.check_greeting(greeting)
        self._step = self._read_welcome
        return len(greeting)

    def _read_welcome(self) -> int:
        data, size = self._expect(b"WELCOME")
        if size:
            about = zmtp.metadata({b"Socket-Type": self._kind, b"Identity": b""})
            self.outgoing += zmtp.frame(zmtp.COMMAND, self._client.initiate(data, about))
            self._step = self._read_ready
        return size

    def _read_ready(self) -> int:
        data, size = self._expect(b"READY")
        if size:
            properties = zmtp.split_metadata(self._client.ready(data))
            if properties.get(b"socket-type") != HOSTS[self._kind]:
                raise Refused(why="a host with another socket type")
            self.up = True
            self._frames.size_max = socket_options.FRAME_BYTES_MAX
            for message in self._first_messages:
                self.send(message)
        return size

    def _expect(self, name: bytes) -> tuple[bytes, int]:
        """The data of this command, and the size of the command; 0: not received yet. Raises Malformed or Refused."""
        found = self._frames.next()
        if found is None:
            return b"", 0
        flags, body = found
        received, data = zmtp.split_command(body)
        if received == b"ERROR":
            raise Refused(why="the host refuses our key")
        if received != name or not flags & zmtp.COMMAND:
            raise Malformed(why="an unexpected command in the handshake")
        return data, len(body)
