"""NaCl boxes, sealed boxes and ChaCha20-Poly1305, for Aries RFC 0019 and sender keys.

A box is XSalsa20-Poly1305 under the shared key of two X25519 keys (libsodium's `crypto_box_easy`). A sealed box
(`crypto_box_seal`) is a box from an ephemeral key, prefixed with its public key; it is implemented here because
libsodium would draw the ephemeral key itself. Shared keys of static keys are cached. Sender keys encrypt each message
under its own ChaCha20-Poly1305 key (`group/key_modes/sender_key.py`).
"""

from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from zerochat.crypto.primitives import KEYS_CACHED, x25519_public
from zerochat.errors import Malformed, Unauthentic

KEY_BYTES = 32
MAC_BYTES = 16
BOX_NONCE_BYTES = 24
SEAL_BYTES = KEY_BYTES + MAC_BYTES
"""Overhead of a sealed box, in bytes."""
CHACHA_NONCE_BYTES = 12


def _shared(secret: bytes, public: bytes) -> bytes:
    """The shared key (`crypto_box_beforenm`). Raises Unauthentic for a key of low order, Malformed for a wrong
    length."""
    if len(public) != KEY_BYTES:
        raise Malformed(why="an X25519 key of the wrong length")
    try:
        return bytes(sodium.crypto_box_beforenm(public, secret))
    except (CryptoError, RuntimeError):
        raise Unauthentic() from None


_kept_shared = lru_cache(maxsize=KEYS_CACHED)(_shared)


def box(message: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    """Encrypt for `public` from `secret`, two static X25519 keys. The result is 16 bytes longer; `nonce`: 24 bytes."""
    return bytes(sodium.crypto_box_easy_afternm(message, nonce, _kept_shared(secret, public)))


def box_open(boxed: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    """Decrypt a box for `secret` from `public`. Raises Unauthentic; Malformed for a wrong length."""
    if len(nonce) != BOX_NONCE_BYTES:
        raise Malformed(why="a nonce of the wrong length")
    try:
        return bytes(sodium.crypto_box_open_easy_afternm(boxed, nonce, _kept_shared(secret, public)))
    except (CryptoError, ValueError):
        raise Unauthentic() from None


def seal(message: bytes, public: bytes, ephemeral: bytes) -> bytes:
    """Encrypt anonymously for `public`. The result is 48 bytes longer; `ephemeral`: a fresh X25519 secret."""
    own = x25519_public(ephemeral)
    nonce = sodium.crypto_generichash_blake2b_salt_personal(own + public, digest_size=BOX_NONCE_BYTES)
    return own + bytes(sodium.crypto_box_easy_afternm(message, nonce, _shared(ephemeral, public)))


def seal_open(sealed: bytes, public: bytes, secret: bytes) -> bytes:
    """Decrypt a sealed box with the recipient's key pair. Raises Unauthentic."""
    try:
        return bytes(sodium.crypto_box_seal_open(sealed, public, secret))
    except (CryptoError, TypeError, ValueError, RuntimeError):
        raise Unauthentic() from None


def chacha20_poly1305_seal(key: bytes, nonce: bytes, plain: bytes, aad: bytes) -> bytes:
    """AEAD of RFC 8439, section 2.8: ciphertext and 16-byte tag. `key`: 32 bytes, `nonce`: 12 bytes."""
    return ChaCha20Poly1305(key).encrypt(nonce, plain, aad)


def chacha20_poly1305_open(key: bytes, nonce: bytes, sealed: bytes, aad: bytes) -> bytes:
    """Inverse of `chacha20_poly1305_seal`. Raises Unauthentic; Malformed for a wrong length."""
    if len(key) != KEY_BYTES or len(nonce) != CHACHA_NONCE_BYTES:
        raise Malformed(why="a key or a nonce of the wrong length")
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, sealed, aad)
    except InvalidTag:
        raise Unauthentic() from None
