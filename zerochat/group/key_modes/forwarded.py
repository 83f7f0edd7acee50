"""Forwarded messages: a sealed message with its author's signature, so that any member can bring it.

    4 | author (32) | end (8) | signature (64) | sealed message (`dcgka.py`)

The author is the Ed25519 key of its DID, the end the place in its chain of the last event in the message, big-endian.
The signature is over the purpose, the group, the end and the SHA-256 of the sealed message. So a member can tell who
pays for a message, and whether it has its events already, before it has the keys to open it.
"""

from typing import Final

from msgspec import Struct

from zerochat.crypto.encoding import did_key, did_key_bytes
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify, sha256
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed
from zerochat.group.key_modes.dcgka import HEADER_BYTES, is_sealed

_VERSION: Final = b"\x04"
_PURPOSE: Final = b"zerochat/forwarded/1\n"
_KEY_BYTES, _END_BYTES, _SIGNATURE_BYTES = 32, 8, 64
_BEGIN: Final = len(_VERSION) + _KEY_BYTES + _END_BYTES + _SIGNATURE_BYTES


class Forwarded(Struct, frozen=True):
    """A message that its author has signed; unchecked."""

    author: str
    """DID."""
    end: int
    """The place in its chain of the last event in the message."""
    signature: bytes
    sealed: bytes

    @property
    def header(self) -> bytes:
        """Epoch and number of the sealed message."""
        return self.sealed[:HEADER_BYTES]

    def check(self, group: str) -> None:
        """Raise Unauthentic unless the author has signed this."""
        ed25519_verify(did_key_bytes(self.author), _signed(group, self.end, self.sealed), self.signature)


def is_forwarded(envelope: bytes) -> bool:
    """Whether these bytes are a forwarded message, not one of another form."""
    return envelope[:1] == _VERSION


def sign(seed: bytes, author: str, group: str, end: int, sealed: bytes) -> bytes:
    """The message of the author with this seed and DID."""
    signature = ed25519_sign(seed, _signed(group, end, sealed))
    return _VERSION + did_key_bytes(author) + end.to_bytes(_END_BYTES, "big") + signature + sealed


def parse(envelope: bytes) -> Forwarded:
    """Read a forwarded message. Raises Malformed."""
    sealed = envelope[_BEGIN:]
    is_whole = is_sealed(sealed) and len(sealed) > HEADER_BYTES
    if not is_forwarded(envelope) or len(envelope) > ENVELOPE_BYTES_MAX or not is_whole:
        raise Malformed(why="a forwarded message of a wrong form")
    after_key = len(_VERSION) + _KEY_BYTES
    after_end = after_key + _END_BYTES
    author = did_key(envelope[len(_VERSION) : after_key])
    return Forwarded(author, int.from_bytes(envelope[after_key:after_end], "big"), envelope[after_end:_BEGIN], sealed)


def _signed(group: str, end: int, sealed: bytes) -> bytes:
    return _PURPOSE + group.encode() + end.to_bytes(_END_BYTES, "big") + sha256(sealed)
