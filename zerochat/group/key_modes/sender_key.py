"""Sender keys: one encryption and one signature for everybody, whatever their number (SUPRA; Signal's and WhatsApp's
groups work alike, without its chain of signatures).

Every author has a key of its own, which it gives to each member who asks to hear it, and each message moves it on by a
hash: who gets it later reads nothing from before, and who keeps one message's key can open that one alone. What it says
is a *stream*: messages that it has signed, each with the signature of the one before (`evidence/messages.py`). So what
is said here cannot be denied. When somebody goes, the next thing that is said is a new key for those who stay.

    sealed   =  1 | commitment (32) | ciphertext and tag        some events of the author's, for all who listen
             or 2 | a frame (`wire/frame.py`)                   the key of what follows, for those who stay

The commitment is a MAC of the content under the message's key (BLAKE2b), and its first bytes are the nonce (a synthetic
one, as in RFC 5297); what encrypts (ChaCha20-Poly1305) follows from the same key. So nobody can make a message that
opens to one text under this key and to another under that one, and a key that is shown to somebody proves what was
said. There is one key for one message, so a nonce of twelve bytes will do; should an older copy of a profile ever say
something else under it, that has another nonce.
"""

from typing import ClassVar, Final

from zerochat.crypto.encoding import compact_msgpack, strict_msgpack
from zerochat.crypto.nacl_boxes import chacha20_poly1305_open, chacha20_poly1305_seal
from zerochat.crypto.primitives import blake2b_keyed, check_length, equal
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.messages import Data, heading
from zerochat.group.key_modes.pairwise import PairwiseSingle
from zerochat.group.wire.payload import CONTENT_BYTES_MAX, emptied, filled

KEY_BYTES: Final = 32
_COMMITMENT_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16
_CONTENT, _KEY = b"\x01", b"\x02"


class SenderKey(PairwiseSingle, frozen=True):
    """What is said stands in streams; all else travels as with pairwise keys, one to one or in a frame for all. Words
    that come that way are not heard (`log.py`)."""

    name: ClassVar[str] = "sender-key"
    signs: ClassVar[bool] = True


def is_signed(envelope: bytes) -> bool:
    """Whether these bytes are a message of a stream, and no DIDComm envelope or frame: it begins with a time, whose
    first byte is zero for some thousand years to come."""
    return envelope[:1] == b"\0"


def moved_on(chain: bytes) -> tuple[bytes, bytes]:
    """The key of the next message, and the one from which all later ones follow, of 32 bytes each."""
    keys = blake2b_keyed(chain, b"zerochat/ratchet", length=2 * KEY_BYTES)
    return keys[:KEY_BYTES], keys[KEY_BYTES:]


def seal_content(key: bytes, body: dict[str, object], bound: bytes) -> bytes:
    """The sealed part of a message with these events (the body of an `events` message). `bound`: what stands before it
    in the message.

    MessagePack: it is a fifth shorter than JSON, and is read in half the time."""
    return seal_padded(key, filled(compact_msgpack(body)), bound)


def seal_padded(key: bytes, content: bytes, bound: bytes) -> bytes:
    """The same of content that is padded already."""
    commitment = _commitment(key, bound, content)
    return _CONTENT + commitment + chacha20_poly1305_seal(_sealing_key(key), commitment[:_NONCE_BYTES], content, bound)


def open_content(key: bytes, message: Data) -> object:
    """The value that `seal_content` has sealed under this message's key. Raises Malformed or Unauthentic."""
    check_length(key, KEY_BYTES)
    sealed = message.sealed
    if sealed[:1] != _CONTENT or len(sealed) <= 1 + _COMMITMENT_BYTES + _TAG_BYTES:
        raise Malformed(why="a signed message without content")
    commitment, bound = sealed[1 : 1 + _COMMITMENT_BYTES], bound_of(message)
    content = chacha20_poly1305_open(
        _sealing_key(key), commitment[:_NONCE_BYTES], sealed[1 + _COMMITMENT_BYTES :], bound
    )
    if not equal(commitment, _commitment(key, bound, content)):
        raise Unauthentic()
    return strict_msgpack(emptied(content), CONTENT_BYTES_MAX)


def bound_of(message: Data) -> bytes:
    """All of a message that stands before its sealed part."""
    return heading(message.time, message.publisher, message.alias)


def _sealing_key(key: bytes) -> bytes:
    return blake2b_keyed(key, b"zerochat/sealing")


def _commitment(key: bytes, bound: bytes, content: bytes) -> bytes:
    return blake2b_keyed(key, b"zerochat/commit", bound + content)


def wrap_key(frame: bytes) -> bytes:
    """The sealed part of a message that brings a new key, in a frame for those who may have it."""
    return _KEY + frame


def wrapped_key(message: Data) -> bytes | None:
    """The frame with a new key, where a message brings one and no events."""
    return message.sealed[1:] if message.sealed[:1] == _KEY else None
