"""Sender keys: one encryption and one signature per message for all members, with a hash ratchet per author.

This is SUPRA; Signal's and WhatsApp's groups are similar, without its chain of signatures. Every author gives its chain
key to each member that subscribes, and ratchets it with each message: a later subscriber cannot decrypt earlier
messages, and one message's key opens that message alone. An author's posts form a *signed stream*: messages that it has
signed, each with the signature of its predecessor (`evidence/messages.py`), so posts are not deniable. After a member
has left, the author distributes a new key to the others before its next post.

    sealed   =  1 | commitment (32) | ciphertext and tag        some events of the author, for all subscribers
             or 2 | a frame (`wire/frame.py`)                   the next chain key, for the remaining members

The commitment is a MAC of the content under the message's key (BLAKE2b), and its first bytes are the nonce (a synthetic
IV, as in RFC 5297); the encryption key (ChaCha20-Poly1305) derives from the same key. The encryption is key-committing:
no message opens to different texts under different keys, so a disclosed key proves the content. Each key is used once,
so a 12-byte nonce suffices; should an older copy of a profile reuse a key, the synthetic nonce differs.
"""

from typing import ClassVar, Final

from zerochat.crypto.encoding import compact_msgpack, strict_msgpack
from zerochat.crypto.nacl_boxes import chacha20_poly1305_open, chacha20_poly1305_seal
from zerochat.crypto.primitives import blake2b_keyed, check_length, equal
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.messages import Data, data_header
from zerochat.group.key_modes.pairwise import PairwiseSingle
from zerochat.group.wire.padding import CONTENT_BYTES_MAX, decode_payload, encode_payload

KEY_BYTES: Final = 32
_COMMITMENT_BYTES, _NONCE_BYTES, _TAG_BYTES = 32, 12, 16
_CONTENT, _KEY = b"\x01", b"\x02"


class SenderKey(PairwiseSingle, frozen=True):
    """Posts are signed stream messages; all else travels as with pairwise keys, one to one or in a frame for all. Posts
    that arrive that way are rejected (`event_log/receiving.py`)."""

    name: ClassVar[str] = "sender-key"
    signs: ClassVar[bool] = True


def is_signed(envelope: bytes) -> bool:
    """Whether these bytes are a stream message rather than a DIDComm envelope or frame: it begins with a time whose
    first byte is zero for some thousand years."""
    return envelope[:1] == b"\0"


def ratchet(chain: bytes) -> tuple[bytes, bytes]:
    """The key of the next message, and the chain key after it, of 32 bytes each."""
    keys = blake2b_keyed(chain, b"zerochat/ratchet", length=2 * KEY_BYTES)
    return keys[:KEY_BYTES], keys[KEY_BYTES:]


def seal_content(key: bytes, body: dict[str, object], bound: bytes) -> bytes:
    """The sealed part of a message with these events (the body of an `events` message). `bound`: the message's bytes
    before it, authenticated as associated data.

    MessagePack: a fifth shorter than JSON, and parsed in half the time.
    """
    return seal_padded(key, encode_payload(compact_msgpack(body)), bound)


def seal_padded(key: bytes, content: bytes, bound: bytes) -> bytes:
    """The sealed part with content that is already padded."""
    commitment = _commitment(key, bound, content)
    return _CONTENT + commitment + chacha20_poly1305_seal(_sealing_key(key), commitment[:_NONCE_BYTES], content, bound)


def open_content(key: bytes, message: Data) -> object:
    """The value that `seal_content` has sealed under this message's key. Raises Malformed or Unauthentic."""
    return open_sealed(key, message.sealed, associated_data(message))


def open_sealed(key: bytes, sealed: bytes, bound: bytes) -> object:
    """The value in a sealed part. `bound`: as in `seal_content`. Raises Malformed or Unauthentic."""
    check_length(key, KEY_BYTES)
    if sealed[:1] != _CONTENT or len(sealed) <= 1 + _COMMITMENT_BYTES + _TAG_BYTES:
        raise Malformed(why="a sealed message without content")
    commitment = sealed[1 : 1 + _COMMITMENT_BYTES]
    content = chacha20_poly1305_open(
        _sealing_key(key), commitment[:_NONCE_BYTES], sealed[1 + _COMMITMENT_BYTES :], bound
    )
    if not equal(commitment, _commitment(key, bound, content)):
        raise Unauthentic()
    return strict_msgpack(decode_payload(content), CONTENT_BYTES_MAX)


def associated_data(message: Data) -> bytes:
    """The bytes of a message before its sealed part."""
    return data_header(message.time, message.publisher, message.alias)


def _sealing_key(key: bytes) -> bytes:
    return blake2b_keyed(key, b"zerochat/sealing")


def _commitment(key: bytes, bound: bytes, content: bytes) -> bytes:
    return blake2b_keyed(key, b"zerochat/commit", bound + content)


def wrap_key(frame: bytes) -> bytes:
    """The sealed part of a message that distributes a new key, in a frame for its recipients."""
    return _KEY + frame


def wrapped_key(message: Data) -> bytes | None:
    """The frame with a new key; None: the message carries events."""
    return message.sealed[1:] if message.sealed[:1] == _KEY else None
