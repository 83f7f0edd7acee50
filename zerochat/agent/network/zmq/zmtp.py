"""ZMTP 3.1 on the wire (RFC 37): the greeting, frames, commands and metadata. Bytes in, bytes out.

What comes in comes from a host that may be anybody: every length is checked before anything is kept for it, and what
is not as it should be raises Malformed.
"""

import struct

from zerochat.errors import Malformed

GREETING_BYTES = 64
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM = b"CURVE".ljust(20, b"\0")
GREETING = _SIGNATURE + b"\x03\x01" + _MECHANISM + bytes(32)
"""Ours: signature, version 3.1, mechanism, not a server, filler."""

LARGE, COMMAND = 2, 4
"""Flags of a frame: its size takes eight bytes; it is a command. (`more` stands inside of CURVE's boxes, RFC 26.)"""
CONTEXT_BYTES_MAX = 16
"""What a PING may ask to be sent back."""


def check_greeting(greeting: bytes) -> None:
    """Raise Malformed unless these 64 bytes are those of a peer that speaks ZMTP 3 with CURVE."""
    if greeting[0] != 0xFF or greeting[9] != 0x7F or greeting[10] < 3 or greeting[12:32] != _MECHANISM:
        raise Malformed(why="not a greeting of ZMTP 3 with CURVE")


def frame(flags: int, body: bytes) -> bytes:
    """One frame, ready to be sent."""
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | LARGE,)) + len(body).to_bytes(8) + body


class Frames:
    """What has come in and not been taken out: never more than one frame that may be so large, and one piece more."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add what was read. Take everything out with `next` before adding more."""
        del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def take(self, size: int) -> bytes | None:
        """So many bytes outside of any frame, or None while there are less."""
        end = self._at + size
        if end > len(self._buffer):
            return None
        start, self._at = self._at, end
        return bytes(self._buffer[start:end])

    def next(self) -> tuple[int, bytes] | None:
        """The flags and the body of the next frame, or None until more has come. Raises Malformed."""
        buffer, at = self._buffer, self._at
        have = len(buffer) - at
        if have < 2:
            return None
        flags = buffer[at]
        if flags & ~(LARGE | COMMAND):
            raise Malformed(why="a frame with flags that CURVE has no use for")
        if flags & LARGE:
            if have < 9:
                return None
            start = at + 9
            size = int.from_bytes(buffer[at + 1 : start])
        else:
            start = at + 2
            size = buffer[at + 1]
        if size > self.size_max:
            raise Malformed(why="a frame that is too large")
        end = start + size
        if end > len(buffer):
            return None
        self._at = end
        return flags, bytes(memoryview(buffer)[start:end])


# --- commands and metadata ------------------------------------------------------------------------------------------


def command(name: bytes, data: bytes = b"") -> bytes:
    """The body of a command."""
    return bytes((len(name),)) + name + data


def split_command(body: bytes) -> tuple[bytes, bytes]:
    """The name of a command, and what follows it. Raises Malformed."""
    end = 1 + (body[0] if body else 0)
    if not 1 < end <= len(body):
        raise Malformed(why="a command without a name")
    return body[1:end], body[end:]


def ping(ttl_ms: int) -> bytes:
    """Ask for a PONG. `ttl_ms`: when the peer may give us up after it, if it hears nothing more."""
    return command(b"PING", struct.pack(">H", ttl_ms // 100))


def pong(data: bytes) -> bytes:
    """The answer to what followed a PING's name. Raises Malformed."""
    if not 2 <= len(data) <= 2 + CONTEXT_BYTES_MAX:
        raise Malformed(why="a PING of the wrong length")
    return command(b"PONG", data[2:])


def metadata(properties: dict[bytes, bytes]) -> bytes:
    """Properties, as READY and INITIATE hold them."""
    return b"".join(
        bytes((len(name),)) + name + struct.pack(">I", len(value)) + value for name, value in properties.items()
    )


def split_metadata(data: bytes) -> dict[bytes, bytes]:
    """The properties by their names in lower case, in which case does not count. Raises Malformed."""
    properties: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        value_at = at + 1 + data[at] + 4
        end = value_at + int.from_bytes(data[value_at - 4 : value_at])
        if data[at] == 0 or value_at > len(data) or end > len(data):
            raise Malformed(why="metadata that ends too early")
        properties[data[at + 1 : value_at - 4].lower()] = data[value_at:end]
        at = end
    return properties
