"""Cryptographic primitives: X25519, Ed25519, SHA-256, BLAKE2b, HKDF, Concat KDF and AES key wrap.

X25519 and Ed25519 come from libsodium (PyNaCl), AES, SHA-2 and HMAC from OpenSSL (cryptography), BLAKE2b from Python's
C module: `hashlib` and `hmac` would load a second OpenSSL, 3.4 MB in every agent. Keys, nonces and initialisation
vectors are parameters. Every failure on a peer's bytes raises the same `Unauthentic`, so an answer does not reveal the
failed step; only wrong lengths, which are public, raise `Malformed`.
"""

from _blake2 import blake2b  # hashlib.blake2b, without a second OpenSSL
from _operator import _compare_digest  # hmac.compare_digest, likewise
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
"""Cached expanded keys: more than an agent's relationships, about 100 kB."""


_SHA256, _SHA512 = SHA256(), SHA512()
_EMPTY = Hash(_SHA256)
"""An empty SHA-256 state: copying takes half the time of creating one."""


def sha256(data: bytes) -> bytes:
    state = _EMPTY.copy()
    state.update(data)
    return state.finalize()


def hmac_sha512(key: bytes, data: bytes) -> bytes:
    """HMAC with SHA-512 (RFC 2104); 64 bytes."""
    state = HMAC(key, _SHA512)
    state.update(data)
    return state.finalize()


def blake2b_keyed(key: bytes, purpose: bytes, data: bytes = b"", length: int = 32) -> bytes:
    """Keyed BLAKE2b (RFC 7693, section 2.9): a key-committing MAC and a KDF, like libsodium's `crypto_kdf`. `key`: 32
    bytes; `purpose`: the personalisation, at most 16 bytes; `length`: of the result, at most 64 bytes. A third of the
    time of HMAC-SHA-256."""
    return blake2b(data, key=key, person=purpose, digest_size=length).digest()


def equal(one: bytes, other: bytes) -> bool:
    """Constant-time comparison."""
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
    """X25519 of `secret` with a peer's `public` key: 32 bytes.

    Raises Unauthentic for a public key of low order, which yields the same secret with every key.
    """
    check_length(public, 32)
    try:
        return bytes(sodium.crypto_scalarmult(secret, public))
    except (CryptoError, RuntimeError, ValueError):
        raise Unauthentic() from None


@lru_cache(maxsize=KEYS_CACHED)
def x25519_static(secret: bytes, public: bytes) -> bytes:
    """Like `x25519`, for two static keys: the result is cached."""
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
"""X25519 keys of low order (1, 2, 4 and 8, on the curve and its twist, in every encoding), without the highest bit,
which is ignored (RFC 7748, section 5)."""


def check_x25519_public(public: bytes) -> None:
    """Raise Malformed for a wrong length or an X25519 key of low order."""
    check_length(public, 32)
    if public[:31] + bytes([public[31] & 0x7F]) in _LOW_ORDER:
        raise Malformed(why="an X25519 key of low order")


# --- Ed25519 (RFC 8032) ---------------------------------------------------------------------------------------------


def _signing_key(seed: bytes) -> tuple[bytes, bytes]:
    """The public key, and libsodium's 64-byte form of the secret key (seed and public key)."""
    public, secret = sodium.crypto_sign_seed_keypair(seed)
    return bytes(public), bytes(secret)


_lasting_key = lru_cache(maxsize=KEYS_CACHED)(_signing_key)


def ed25519_public(seed: bytes, *, erasable: bool = False) -> bytes:
    """The public key of a 32-byte Ed25519 seed. `erasable`: no cache keeps the seed."""
    return (_signing_key if erasable else _lasting_key)(seed)[0]


def ed25519_sign(seed: bytes, message: bytes, *, erasable: bool = False) -> bytes:
    """The 64-byte signature of a message. `erasable`: no cache keeps the seed."""
    return bytes(sodium.crypto_sign(message, (_signing_key if erasable else _lasting_key)(seed)[1])[:64])


open_signed: Callable[[bytes, bytes], bytes] = sodium.crypto_sign_open
"""The verification function; the simulator replaces it by a caching one."""


def ed25519_verify(public: bytes, message: bytes, signature: bytes) -> None:
    """Raise Unauthentic unless the signature (64 bytes) is valid for the key and the message."""
    if len(public) != 32 or len(signature) != 64:
        raise Unauthentic()
    try:
        open_signed(signature + message, public)
    except (CryptoError, ValueError):
        raise Unauthentic() from None


@lru_cache(maxsize=KEYS_CACHED)
def ed25519_to_x25519_public(public: bytes) -> bytes:
    """The X25519 key of an Ed25519 key (birational map). Raises Malformed for an unsafe point."""
    check_length(public, 32)
    try:
        return bytes(sodium.crypto_sign_ed25519_pk_to_curve25519(public))
    except (CryptoError, RuntimeError, ValueError):
        raise Malformed(why="an Ed25519 key that is not a valid point of the curve") from None


def ed25519_to_x25519_secret(seed: bytes) -> bytes:
    """The X25519 secret of an Ed25519 seed: SHA-512 of the seed, its first half, clamped."""
    return bytes(sodium.crypto_sign_ed25519_sk_to_curve25519(_signing_key(seed)[1]))


# --- AES key wrap (RFC 3394) ----------------------------------------------------------------------------------------


def key_wrap(kek: bytes, key: bytes) -> bytes:
    """Wrap a key under a 32-byte key-encryption key (A256KW); the result is 8 bytes longer."""
    return aes_key_wrap(kek, key)


def key_unwrap(kek: bytes, wrapped: bytes) -> bytes:
    """Inverse of `key_wrap`. Raises Unauthentic."""
    try:
        return aes_key_unwrap(kek, wrapped)
    except (InvalidUnwrap, ValueError):
        raise Unauthentic() from None


def check_length(data: bytes, size: int) -> None:
    """Raise Malformed for bytes of another length."""
    if len(data) != size:
        raise Malformed(why=f"{len(data)} bytes instead of {size}")


# --- Concat KDF (NIST SP 800-56A section 5.8.1 with SHA-256; RFC 7518 section 4.6.2) ----------------------------------


def other_info(algorithm: str, apu: bytes, apv: bytes, bits: int = 256) -> bytes:
    """The OtherInfo (RFC 7518, section 4.6.2) for a key of `bits`, without the tag that ECDH-1PU appends."""
    head = algorithm.encode()
    return b"".join((_length(head), head, _length(apu), apu, _length(apv), apv, bits.to_bytes(4, "big")))


def concat_kdf(secret: bytes, info: bytes, tag: bytes | None = None) -> bytes:
    """A key of 32 bytes (one round) from a shared secret. `tag`: the content's tag, which ECDH-1PU with key wrapping
    binds (draft-madden-jose-ecdh-1pu-04, section 2.3)."""
    suffix = b"" if tag is None else _length(tag) + tag
    return sha256(b"\0\0\0\1" + secret + info + suffix)


def _length(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big")
