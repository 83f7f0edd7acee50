"""One dialled connection from its first byte to its last, without the socket: bytes in, messages and bytes out.

The greeting and HELLO go out together, and so do the first messages with whatever else there is when READY has come:
with the three-way handshake of TCP, the first message is at the host after three and a half round trips. It may not go
earlier, right behind INITIATE: a libzmq host asks its doorkeeper (ZAP) in between, and ends a connection on which
anything more comes before it has the answer.

Memory is bounded by one frame of the size allowed, the first frames of one message, and what waits to be sent.
"""

from collections.abc import Callable, Sequence

from zerochat.agent.network.zmq import curve, socket_options, zmtp
from zerochat.agent.network.zmq.tcp_control import wire_bytes
from zerochat.errors import Malformed, Refused

HANDSHAKE_FRAME_BYTES_MAX = 2048
"""WELCOME takes 168; READY some 80, and its metadata may name more than we ask for."""
FRAMES_KEPT = 3
"""Of one message: none that a host sends has more than two, and a third shows that it has too many."""
SEND_BYTES_MAX = 8 * 1024 * 1024
"""What waits for one peer's network; beyond that messages are dropped, and the log repairs. Sixteen of the largest
envelopes, and no more than a busy peer lets lie unread (`cut.py`)."""
PONG_BYTES_MAX = 64 * 1024
"""With more than this waiting, a PING stays unanswered: who asks without reading needs no answer."""

HOSTS = {b"DEALER": b"ROUTER", b"XSUB": b"XPUB"}
"""What we are, and what the host must be."""


class Session:
    """`outgoing` is to be sent as it grows, and whoever sends takes it away. `up` is True from READY on, and `unasked`
    while something was said to the host, but no question after it."""

    def __init__(
        self,
        kind: bytes,
        server_key: bytes,
        secret: bytes,
        first_words: Sequence[bytes],
        random: Callable[[int], bytes],
    ) -> None:
        """`kind`: DEALER or XSUB. `first_words`: messages to send as soon as the handshake is over. Raises
        Unauthentic for a server key of low order."""
        self.up = self.unasked = False
        self._kind, self._first_words = kind, first_words
        self._client = curve.Client(server_key, secret, random)
        self.outgoing = bytearray(zmtp.GREETING + zmtp.frame(zmtp.COMMAND, self._client.hello()))
        self._frames = zmtp.Frames(HANDSHAKE_FRAME_BYTES_MAX)
        self._step: Callable[[], int] = self._greet
        """What takes the next thing of the handshake, and gives its size; 0 when it is not all there."""
        self._message: list[bytes] = []
        self._message_bytes = 0

    def feed(self, data: bytes) -> None:
        """Add what was read, when `next` has given all that there was."""
        self._frames.feed(data)

    def next(self) -> tuple[list[bytes] | None, int] | None:
        """The next thing said, or None until more has come: the frames of a message, or None for what is none, and
        the bytes on the wire. Raises Malformed, Unauthentic or Refused: then the connection must end."""
        if not self.up:
            size = self._step()
            return (None, size) if size else None
        found = self._frames.next()
        if found is None:
            return None
        flags, plain = self._client.open(found[1])
        size = wire_bytes(len(plain))
        if flags & curve.COMMAND:
            self._obey(plain)
            return None, size
        self._message_bytes += size
        if len(self._message) < FRAMES_KEPT:
            self._message.append(plain)
        if flags & curve.MORE:
            if self._message_bytes > socket_options.FRAME_BYTES_MAX:
                raise Malformed(why="a message without an end")
            return None, size
        message, self._message, self._message_bytes = self._message, [], 0
        return message, size

    def send(self, message: bytes, header: bytes = b"") -> bool:
        """Put one message into `outgoing`: one frame, or two if there is a header; False if there is no room."""
        if len(self.outgoing) + len(header) + len(message) > SEND_BYTES_MAX:
            return False
        if header:
            self.outgoing += zmtp.frame(0, self._client.seal(curve.MORE, header))
        self.outgoing += zmtp.frame(0, self._client.seal(0, message))
        self.unasked = True
        return True

    def ping(self, ttl_ms: int) -> None:
        """Ask the host for a sign of life. `ttl_ms`: when it may give us up after it, if it hears nothing more."""
        self._command(zmtp.ping(ttl_ms))
        self.unasked = False

    def _obey(self, plain: bytes) -> None:
        name, data = zmtp.split_command(plain)
        if name == b"PING" and len(self.outgoing) <= PONG_BYTES_MAX:
            self._command(zmtp.pong(data))

    def _command(self, body: bytes) -> None:
        self.outgoing += zmtp.frame(0, self._client.seal(curve.COMMAND, body))
        self.unasked = True

    # --- the handshake ----------------------------------------------------------------------------------------------

    def _greet(self) -> int:
        greeting = self._frames.take(zmtp.GREETING_BYTES)
        if greeting is None:
            return 0
        zmtp.check_greeting(greeting)
        self._step = self._enter
        return len(greeting)

    def _enter(self) -> int:
        data, size = self._expect(b"WELCOME")
        if size:
            about = zmtp.metadata({b"Socket-Type": self._kind, b"Identity": b""})
            self.outgoing += zmtp.frame(zmtp.COMMAND, self._client.initiate(data, about))
            self._step = self._begin
        return size

    def _begin(self) -> int:
        data, size = self._expect(b"READY")
        if size:
            properties = zmtp.split_metadata(self._client.ready(data))
            if properties.get(b"socket-type") != HOSTS[self._kind]:
                raise Refused(why="a host of another kind")
            self.up = True
            self._frames.size_max = socket_options.FRAME_BYTES_MAX
            for word in self._first_words:
                self.send(word)
        return size

    def _expect(self, name: bytes) -> tuple[bytes, int]:
        """What follows the name of this command, and the size of both; nothing and 0 when it is not all there."""
        found = self._frames.next()
        if found is None:
            return b"", 0
        flags, body = found
        said, data = zmtp.split_command(body)
        if said == b"ERROR":
            raise Refused(why="the host does not let us in")
        if said != name or not flags & zmtp.COMMAND:
            raise Malformed(why="not the command that comes next in the handshake")
        return data, len(body)
