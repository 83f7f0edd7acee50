"""The primitives: X25519, Ed25519, SHA-256, BLAKE2b, HKDF and AES key wrap.

X25519 and Ed25519 come from libsodium (PyNaCl), AES, SHA-2 and HMAC from OpenSSL (cryptography), BLAKE2b from
Python itself, whose `hashlib` and `hmac` would load a second OpenSSL beside that one: 3.4 MB in every agent. Nothing
here rolls dice: every key, nonce and initialisation vector is passed in. Whatever fails on a peer's bytes fails with
the same `Unauthentic`, so that no answer tells which step it was; only lengths, which anybody can see, fail with
`Malformed`.
"""

from _blake2 import blake2b  # what `hashlib` has, without the OpenSSL that comes with that
from _operator import _compare_digest  # and what `hmac` has
from collections.abc import Callable
from functools import lru_cache

from cryptography.hazmat.primitives.hashes import SHA256, SHA512, Hash
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap
from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from zerochat.errors import Malformed, Unauthentic

KEYS_CACHED = 1024
"""Expanded keys kept at hand: more than one agent's relationships, few enough (some 100 kB) not to matter."""


_SHA256, _SHA512 = SHA256(), SHA512()
_NOTHING = Hash(_SHA256)
"""Hashed nothing yet: to copy one takes half the time of making one."""


def sha256(data: bytes) -> bytes:
    state = _NOTHING.copy()
    state.update(data)
    return state.finalize()


def hmac_sha512(key: bytes, data: bytes) -> bytes:
    """HMAC with SHA-512 (RFC 2104); 64 bytes."""
    state = HMAC(key, _SHA512)
    state.update(data)
    return state.finalize()


def blake2b_keyed(key: bytes, purpose: bytes, data: bytes = b"", length: int = 32) -> bytes:
    """BLAKE2b with a key of 32 bytes (RFC 7693, section 2.9), at most 64 bytes: a MAC that nobody finds two keys or two
    texts for, and a key derivation (libsodium's `crypto_kdf` works alike). `purpose`: its personalisation, at most 16
    bytes. It takes a third of the time of HMAC with SHA-256, and is one call."""
    return blake2b(data, key=key, person=purpose, digest_size=length).digest()


def equal(one: bytes, other: bytes) -> bool:
    """Whether both are the same, in a time that does not tell where they differ."""
    return _compare_digest(one, other)


def hkdf_sha256(ikm: bytes, info: bytes, length: int = 32, salt: bytes = b"") -> bytes:
    """HKDF with SHA-256 (RFC 5869); at most 8160 bytes."""
    assert 0 < length <= 255 * 32
    return HKDF(_SHA256, length, salt, info).derive(ikm)


# --- X25519 (RFC 7748) ----------------------------------------------------------------------------------------------


def x25519_public(secret: bytes) -> bytes:
    """The public key of a 32-byte X25519 secret."""
    return bytes(sodium.crypto_scalarmult_base(secret))


def x25519(secret: bytes, public: bytes) -> bytes:
    """The 32-byte secret that `secret` shares with a peer's `public` key.

    Raises Unauthentic for a public key of low order, with which everybody shares the same secret.
    """
    check_length(public, 32)
    try:
        return bytes(sodium.crypto_scalarmult(secret, public))
    except (CryptoError, RuntimeError, ValueError):
        raise Unauthentic() from None


@lru_cache(maxsize=KEYS_CACHED)
def x25519_static(secret: bytes, public: bytes) -> bytes:
    """Like `x25519`, for two keys that meet again and again: the result is kept."""
    return x25519(secret, public)


_LOW_ORDER = frozenset(
    point.to_bytes(32, "little")
    for point in (
        0,
        1,
        325606250916557431795983626356110631294008115727848805560023387167927233504,
        39382357235489614581723060781553021112529911719440698176882885853963445705823,
        2**255 - 20,
        2**255 - 19,
        2**255 - 18,
    )
)
"""The X25519 keys with which every secret agrees to nothing (all points of order 1, 2, 4 and 8, on the curve and on its
twist, in every spelling), without the highest bit, which does not count (RFC 7748, section 5)."""


def check_x25519_public(public: bytes) -> None:
    """Raise Malformed for what is no X25519 public key, or one of low order."""
    check_length(public, 32)
    if public[:31] + bytes([public[31] & 0x7F]) in _LOW_ORDER:
        raise Malformed(why="an X25519 key of low order")


# --- Ed25519 (RFC 8032) ---------------------------------------------------------------------------------------------


@lru_cache(maxsize=KEYS_CACHED)
def _signing_key(seed: bytes) -> tuple[bytes, bytes]:
    """The public key, and libsodium's 64-byte form of the secret one (the seed and the public key)."""
    public, secret = sodium.crypto_sign_seed_keypair(seed)
    return bytes(public), bytes(secret)


def ed25519_public(seed: bytes) -> bytes:
    """The public key of a 32-byte Ed25519 seed."""
    return _signing_key(seed)[0]


def ed25519_sign(seed: bytes, message: bytes) -> bytes:
    """The 64-byte signature of a message."""
    return bytes(sodium.crypto_sign(message, _signing_key(seed)[1])[:64])


open_signed: Callable[[bytes, bytes], bytes] = sodium.crypto_sign_open
"""What verifies: a simulation of many members replaces it by one that remembers what it has verified."""


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> None:
    """Raise Unauthentic unless this is the signature of the message by the key."""
    if len(public) != 32 or len(signature) != 64:
        raise Unauthentic()
    try:
        open_signed(signature + message, public)
    except (CryptoError, ValueError):
        raise Unauthentic() from None


@lru_cache(maxsize=KEYS_CACHED)
def ed25519_to_x25519_public(public: bytes) -> bytes:
    """The X25519 public key at the same point of the curve. Raises Malformed where that is no safe point."""
    check_length(public, 32)
    try:
        return bytes(sodium.crypto_sign_ed25519_pk_to_curve25519(public))
    except (CryptoError, RuntimeError, ValueError):
        raise Malformed(why="an Ed25519 key that is not a point of the curve") from None


def ed25519_to_x25519_secret(seed: bytes) -> bytes:
    """The X25519 secret of an Ed25519 seed: SHA-512 of the seed, its first half, clamped."""
    return bytes(sodium.crypto_sign_ed25519_sk_to_curve25519(_signing_key(seed)[1]))


# --- AES key wrap (RFC 3394) ----------------------------------------------------------------------------------------


def key_wrap(kek: bytes, key: bytes) -> bytes:
    """A key wrapped under a 32-byte key-encryption key (A256KW); 8 bytes longer than the key."""
    return aes_key_wrap(kek, key)


def key_unwrap(kek: bytes, wrapped: bytes) -> bytes:
    try:
        return aes_key_unwrap(kek, wrapped)
    except (InvalidUnwrap, ValueError):
        raise Unauthentic() from None


def check_length(data: bytes, size: int) -> None:
    """Raise Malformed for bytes of another length: that is nobody's secret."""
    if len(data) != size:
        raise Malformed(why=f"{len(data)} bytes where {size} belong")
