"""The announcement: the only thing that an agent says on a network without being asked.

It names no profile, group or long-term key: the key is random, and changes with the day, the network and the process.
UPSYCLE announces the long-term key instead, which makes its users trackable in every café.
"""

from typing import Final

from msgspec import Struct

from zerochat.crypto.primitives import check_x25519_public
from zerochat.errors import Malformed

MAGIC: Final = b"zcn\x01"
"""With the version: an agent of another version is not understood."""
KEY_BYTES: Final = 32
ANNOUNCEMENT_BYTES: Final = len(MAGIC) + 2 + KEY_BYTES


class Announcement(Struct, frozen=True):
    """Where an agent accepts sessions on the network on which it was heard."""

    port: int
    """TCP."""
    key: bytes
    """X25519, 32 bytes: the listener of a session proves it."""

    def encode(self) -> bytes:
        """`ANNOUNCEMENT_BYTES` bytes."""
        return MAGIC + self.port.to_bytes(2, "big") + self.key


def decode(packet: bytes) -> Announcement:
    """Raises Malformed."""
    if len(packet) != ANNOUNCEMENT_BYTES or not packet.startswith(MAGIC):
        raise Malformed(why="no announcement of this version")
    port = int.from_bytes(packet[len(MAGIC) : len(MAGIC) + 2], "big")
    key = packet[len(MAGIC) + 2 :]
    if port == 0:
        raise Malformed(why="an announcement without a port")
    check_x25519_public(key)
    return Announcement(port, key)
