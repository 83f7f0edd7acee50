"""NaCl's boxes and ChaCha20-Poly1305: what the envelopes of Aries RFC 0019 are made of. With the second goes what
members say in streams (`group/key_modes/sender_key.py`), where each message has a key of its own.

A box is XSalsa20-Poly1305 under what two X25519 keys share (libsodium's `crypto_box_easy`). A sealed box is one from a
key that is used once, whose public half goes in front (`crypto_box_seal`); libsodium throws the dice for that key
itself, so sealing is spelt out here and the key comes in. What two long-lived keys share is kept.
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
"""How much longer a sealed box is than what it holds."""
CHACHA_NONCE_BYTES = 12


def _shared(secret: bytes, public: bytes) -> bytes:
    """The key of the boxes between two X25519 keys. Raises Unauthentic for one of low order."""
    if len(public) != KEY_BYTES:
        raise Malformed(why="an X25519 key of the wrong length")
    try:
        return bytes(sodium.crypto_box_beforenm(public, secret))
    except (CryptoError, RuntimeError):
        raise Unauthentic() from None


_kept_shared = lru_cache(maxsize=KEYS_CACHED)(_shared)


def box(message: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    """A box for the owner of `public` from the owner of `secret`, two long-lived X25519 keys; 16 bytes longer."""
    return bytes(sodium.crypto_box_easy_afternm(message, nonce, _kept_shared(secret, public)))


def box_open(boxed: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    """What a box holds, for the owner of `secret`, from the owner of `public`. Raises Unauthentic."""
    if len(nonce) != BOX_NONCE_BYTES:
        raise Malformed(why="a nonce of the wrong length")
    try:
        return bytes(sodium.crypto_box_open_easy_afternm(boxed, nonce, _kept_shared(secret, public)))
    except (CryptoError, ValueError):
        raise Unauthentic() from None


def seal(message: bytes, public: bytes, ephemeral: bytes) -> bytes:
    """A sealed box for the owner of `public`: 48 bytes longer. `ephemeral` is an X25519 secret for this once."""
    own = x25519_public(ephemeral)
    nonce = sodium.crypto_generichash_blake2b_salt_personal(own + public, digest_size=BOX_NONCE_BYTES)
    return own + bytes(sodium.crypto_box_easy_afternm(message, nonce, _shared(ephemeral, public)))


def seal_open(sealed: bytes, public: bytes, secret: bytes) -> bytes:
    """What a sealed box holds, for the owner of both keys. Raises Unauthentic."""
    try:
        return bytes(sodium.crypto_box_seal_open(sealed, public, secret))
    except (CryptoError, TypeError, ValueError, RuntimeError):
        raise Unauthentic() from None


def chacha20_poly1305_seal(key: bytes, nonce: bytes, plain: bytes, aad: bytes) -> bytes:
    """RFC 8439, section 2.8: the ciphertext and, as its last 16 bytes, the tag. 32-byte key, 12-byte nonce."""
    return ChaCha20Poly1305(key).encrypt(nonce, plain, aad)


def chacha20_poly1305_open(key: bytes, nonce: bytes, sealed: bytes, aad: bytes) -> bytes:
    """The plaintext of ciphertext and tag together. Raises Unauthentic."""
    if len(key) != KEY_BYTES or len(nonce) != CHACHA_NONCE_BYTES:
        raise Malformed(why="a key or a nonce of the wrong length")
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, sealed, aad)
    except InvalidTag:
        raise Unauthentic() from None
