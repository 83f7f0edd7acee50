"""ZMTP 3.1 wire format (RFC 37): greeting, frames, commands and metadata. Bytes in, bytes out.

The host is untrusted: every length is checked before memory is allocated for it, and violations raise Malformed.
"""

import struct

from zerochat.errors import Malformed

GREETING_BYTES = 64
_SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
_MECHANISM = b"CURVE".ljust(20, b"\0")
GREETING = _SIGNATURE + b"\x03\x01" + _MECHANISM + bytes(32)
"""Our greeting: signature, version 3.1, mechanism, client role, filler."""

LARGE, COMMAND = 2, 4
"""Frame flags: an eight-byte size; a command. (`more` is a flag inside the CURVE boxes, RFC 26.)"""
CONTEXT_BYTES_MAX = 16
"""Size limit of the context that a PONG echoes."""


def check_greeting(greeting: bytes) -> None:
    """Raise Malformed unless these 64 bytes are a greeting of ZMTP 3 with CURVE."""
    if greeting[0] != 0xFF or greeting[9] != 0x7F or greeting[10] < 3 or greeting[12:32] != _MECHANISM:
        raise Malformed(why="not a greeting of ZMTP 3 with CURVE")


def frame(flags: int, body: bytes) -> bytes:
    """An encoded frame."""
    if len(body) < 256:
        return bytes((flags, len(body))) + body
    return bytes((flags | LARGE,)) + len(body).to_bytes(8) + body


class Frames:
    """The receive buffer: at most one frame of the allowed size, and one read more."""

    def __init__(self, size_max: int) -> None:
        self.size_max = size_max
        self._buffer = bytearray()
        self._at = 0

    def feed(self, data: bytes) -> None:
        """Add received bytes. Consume everything with `next` before adding more."""
        del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def take(self, size: int) -> bytes | None:
        """So many bytes outside any frame; None: not received yet."""
        end = self._at + size
        if end > len(self._buffer):
            return None
        start, self._at = self._at, end
        return bytes(self._buffer[start:end])

    def next(self) -> tuple[int, bytes] | None:
        """Flags and body of the next frame; None: not received yet. Raises Malformed."""
        buffer, at = self._buffer, self._at
        have = len(buffer) - at
        if have < 2:
            return None
        flags = buffer[at]
        if flags & ~(LARGE | COMMAND):
            raise Malformed(why="a frame with unknown flags")
        if flags & LARGE:
            if have < 9:
                return None
            start = at + 9
            size = int.from_bytes(buffer[at + 1 : start])
        else:
            start = at + 2
            size = buffer[at + 1]
        if size > self.size_max:
            raise Malformed(why="an oversized frame")
        end = start + size
        if end > len(buffer):
            return None
        self._at = end
        return flags, bytes(memoryview(buffer)[start:end])


# --- commands and metadata ------------------------------------------------------------------------------------------


def command(name: bytes, data: bytes = b"") -> bytes:
    """An encoded command body."""
    return bytes((len(name),)) + name + data


def split_command(body: bytes) -> tuple[bytes, bytes]:
    """Name and data of a command. Raises Malformed."""
    end = 1 + (body[0] if body else 0)
    if not 1 < end <= len(body):
        raise Malformed(why="a command without a name")
    return body[1:end], body[end:]


def ping(ttl_ms: int) -> bytes:
    """A PING. `ttl_ms`: silence after which the peer may close the connection."""
    return command(b"PING", struct.pack(">H", ttl_ms // 100))


def pong(data: bytes) -> bytes:
    """The PONG for the data of a PING. Raises Malformed."""
    if not 2 <= len(data) <= 2 + CONTEXT_BYTES_MAX:
        raise Malformed(why="a PING of the wrong length")
    return command(b"PONG", data[2:])


def metadata(properties: dict[bytes, bytes]) -> bytes:
    """Encoded properties for READY and INITIATE."""
    return b"".join(
        bytes((len(name),)) + name + struct.pack(">I", len(value)) + value for name, value in properties.items()
    )


def split_metadata(data: bytes) -> dict[bytes, bytes]:
    """Properties by name in lower case (names are case-insensitive). Raises Malformed."""
    properties: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        value_at = at + 1 + data[at] + 4
        end = value_at + int.from_bytes(data[value_at - 4 : value_at])
        if data[at] == 0 or value_at > len(data) or end > len(data):
            raise Malformed(why="truncated metadata")
        properties[data[at + 1 : value_at - 4].lower()] = data[value_at:end]
        at = end
    return properties
