"""HPKE (RFC 9180), base mode: DHKEM(X25519, HKDF-SHA256), HKDF-SHA256, ChaCha20-Poly1305.

`cryptography` has this suite too (from 47 on), but draws the ephemeral key itself, and does not show the AEAD key;
it is the oracle of the tests. A complaint about a sealed message discloses its AEAD key, which opens that message
alone (`group/key_agreement/complaint.py`).
"""

from functools import lru_cache
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from zerochat.crypto.nacl_boxes import (
    CHACHA_NONCE_BYTES,
    KEY_BYTES,
    MAC_BYTES,
    chacha20_poly1305_open,
    chacha20_poly1305_seal,
)
from zerochat.crypto.primitives import x25519, x25519_public
from zerochat.errors import Malformed

SEAL_BYTES: Final = KEY_BYTES + MAC_BYTES
"""How much longer a sealed message is than its content, in bytes."""
AEAD_KEY_BYTES: Final = KEY_BYTES + CHACHA_NONCE_BYTES
"""An AEAD key with its nonce."""

_SHA256 = SHA256()
_VERSION = b"HPKE-v1"
_KEM = b"KEM\x00\x20"
_SUITE = b"HPKE\x00\x20\x00\x01\x00\x03"
_BASE = b"\x00"


def _hmac(key: bytes, data: bytes) -> bytes:
    state = HMAC(key, _SHA256)
    state.update(data)
    return state.finalize()


def _extract(suite: bytes, salt: bytes, label: bytes, ikm: bytes) -> bytes:
    """LabeledExtract (section 4); an empty salt is 32 zero bytes (RFC 5869, section 2.2)."""
    return _hmac(salt or bytes(32), _VERSION + suite + label + ikm)


def _expand(suite: bytes, prk: bytes, label: bytes, info: bytes, length: int) -> bytes:
    """LabeledExpand (section 4) of at most 32 bytes: one block of HKDF."""
    return _hmac(prk, length.to_bytes(2, "big") + _VERSION + suite + label + info + b"\x01")[:length]


_NO_PSK_ID = _extract(_SUITE, b"", b"psk_id_hash", b"")


@lru_cache(maxsize=64)
def _schedule_context(info: bytes) -> bytes:
    return _BASE + _NO_PSK_ID + _extract(_SUITE, b"", b"info_hash", info)


def _aead_key(shared: bytes, enc: bytes, public: bytes, info: bytes) -> bytes:
    """The AEAD key by the key schedule (section 5.1); `shared`: the result of X25519."""
    secret = _expand(_KEM, _extract(_KEM, b"", b"eae_prk", shared), b"shared_secret", enc + public, 32)
    secret, context = _extract(_SUITE, secret, b"secret", b""), _schedule_context(info)
    key = _expand(_SUITE, secret, b"key", context, KEY_BYTES)
    return key + _expand(_SUITE, secret, b"base_nonce", context, CHACHA_NONCE_BYTES)


def seal(public: bytes, info: bytes, plain: bytes, ephemeral: bytes) -> bytes:
    """Encrypt for an X25519 public key: the encapsulated key, the ciphertext and its tag, 48 bytes longer.

    `ephemeral`: a fresh X25519 secret; `info`: the context, bound into the key. Raises Unauthentic for a public key of
    low order, Malformed for a wrong length.
    """
    enc = x25519_public(ephemeral)
    key = _aead_key(x25519(ephemeral, public), enc, public, info)
    return enc + chacha20_poly1305_seal(key[:KEY_BYTES], key[KEY_BYTES:], plain, b"")


def aead_key(secret: bytes, info: bytes, sealed: bytes) -> bytes:
    """The 44-byte key that opens this message alone, by its recipient's secret key. Raises Unauthentic or Malformed."""
    if len(sealed) < SEAL_BYTES:
        raise Malformed(why="an HPKE message that is too short")
    enc = sealed[:KEY_BYTES]
    return _aead_key(x25519(secret, enc), enc, x25519_public(secret), info)


def open_with(key: bytes, sealed: bytes) -> bytes:
    """The content of a message by its AEAD key. Raises Unauthentic, Malformed for a wrong length."""
    if len(key) != AEAD_KEY_BYTES or len(sealed) < SEAL_BYTES:
        raise Malformed(why="an HPKE message or its key of the wrong length")
    return chacha20_poly1305_open(key[:KEY_BYTES], key[KEY_BYTES:], sealed[KEY_BYTES:], b"")


def seal_open(secret: bytes, info: bytes, sealed: bytes) -> bytes:
    """Inverse of `seal`, by the recipient's secret key. Raises Unauthentic, Malformed for a short message."""
    return open_with(aead_key(secret, info, sealed), sealed)
