"""Typed keys: key agreement on four curves, three signature schemes, JWK and multikey encodings.

X25519 and Ed25519 come from libsodium (`primitives.py`), the NIST curves and secp256k1 from OpenSSL. A kind is JOSE's
`crv`. Randomness is a parameter. Failures with a peer's key or signature raise `Unauthentic`; publicly visible defects
(a length, a point off its curve) raise `Malformed`.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from zerochat.crypto import encoding, primitives
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.structs import Redacted
from zerochat.errors import Malformed, Unauthentic

KeyKind: TypeAlias = Literal["X25519", "Ed25519", "P-256", "P-384", "P-521", "secp256k1"]
AGREEMENT_KINDS: tuple[KeyKind, ...] = ("X25519", "P-256", "P-384", "P-521")
SIGNING_KINDS: tuple[KeyKind, ...] = ("Ed25519", "P-256", "secp256k1")
"""EdDSA, ES256, ES256K."""

ALGORITHM_OF: Mapping[KeyKind, str] = {"Ed25519": "EdDSA", "P-256": "ES256", "secp256k1": "ES256K"}
"""JOSE signature algorithms by kind of key (RFC 7518, RFC 8037, RFC 8812)."""

_CURVES: Mapping[KeyKind, ec.EllipticCurve] = {
    "P-256": ec.SECP256R1(),
    "P-384": ec.SECP384R1(),
    "P-521": ec.SECP521R1(),
    "secp256k1": ec.SECP256K1(),
}
_KIND_OF_CODEC: Mapping[bytes, KeyKind] = {
    encoding.ED25519: "Ed25519",
    encoding.X25519: "X25519",
    b"\xe7\x01": "secp256k1",
    b"\x80\x24": "P-256",
    b"\x81\x24": "P-384",
    b"\x82\x24": "P-521",
}
"""By the prefix of a multikey (the multicodec table)."""
_PUBLIC_CODECS = ((0xE7, 0xEF), (0x1200, 0x12FF))
"""The ranges of public keys in the multicodec table."""
_CODEC_OF_KIND = {kind: codec for codec, kind in _KIND_OF_CODEC.items()}


class PublicKey(NamedTuple):
    """A public key: 32 bytes for X25519 and Ed25519, a compressed point (SEC 1, section 2.3.3) for the other curves."""

    kind: KeyKind
    data: bytes


class SecretKey(Redacted, frozen=True):
    """A secret key: the 32-byte scalar or seed, or an elliptic curve's scalar, big-endian at the curve's length."""

    REDACTED = ("data",)

    kind: KeyKind
    data: bytes


# --- generation -----------------------------------------------------------------------------------------------------


def new_secret(kind: KeyKind, random: Callable[[int], bytes]) -> SecretKey:
    """A new key. Scalars of an elliptic curve are drawn by rejection sampling, so they are uniform."""
    curve = _CURVES.get(kind)
    if curve is None:
        return SecretKey(kind, random(32))
    size, spare_bits = _size(curve), -curve.key_size % 8
    while True:
        data = random(size)
        data = bytes([data[0] >> spare_bits]) + data[1:]
        if 0 < int.from_bytes(data, "big") < curve.group_order:
            return SecretKey(kind, data)


def public_of(secret: SecretKey) -> PublicKey:
    """The public key of a long-lived secret key; cached."""
    if secret.kind == "Ed25519":
        return PublicKey("Ed25519", primitives.ed25519_public(secret.data))
    return _kept_public(secret)


@lru_cache(maxsize=primitives.KEYS_CACHED)
def _kept_public(secret: SecretKey) -> PublicKey:
    if secret.kind == "X25519":
        return PublicKey("X25519", primitives.x25519_public(secret.data))
    return _compressed(secret.kind, _kept_private(secret).public_key())


def ed25519_to_x25519(public: PublicKey) -> PublicKey:
    """The X25519 key of an Ed25519 key (birational map). Raises Malformed for an unsafe point."""
    assert public.kind == "Ed25519"
    return PublicKey("X25519", primitives.ed25519_to_x25519_public(public.data))


def ed25519_to_x25519_secret(secret: SecretKey) -> SecretKey:
    """The X25519 secret of an Ed25519 seed."""
    assert secret.kind == "Ed25519"
    return SecretKey("X25519", primitives.ed25519_to_x25519_secret(secret.data))


# --- agreement ------------------------------------------------------------------------------------------------------


def agree(secret: SecretKey, public: PublicKey) -> bytes:
    """Diffie-Hellman of a long-lived key with a peer's: 32, 32, 48 or 66 bytes (X25519, P-256, P-384, P-521).

    Raises Unauthentic for a key of another curve or of low order, Malformed for a point off the curve.
    """
    if secret.kind == "X25519" and public.kind == "X25519":
        return primitives.x25519(secret.data, public.data)
    return _exchange(_kept_private(secret), secret.kind, public)


def agree_once(secret: SecretKey, public: PublicKey) -> bytes:
    """Like `agree`, for an ephemeral secret: nothing is cached."""
    return once(secret)[1](public)


def once(secret: SecretKey) -> tuple[PublicKey, Callable[[PublicKey], bytes]]:
    """The public key of an ephemeral secret and its agreement function; nothing is cached.

    Both at once, because on most curves expanding a secret costs as much as using it.
    """
    if secret.kind == "X25519":

        def x25519(public: PublicKey) -> bytes:
            if public.kind != "X25519":
                raise Unauthentic()
            return primitives.x25519(secret.data, public.data)

        return PublicKey("X25519", primitives.x25519_public(secret.data)), x25519

    private = _private(secret)
    return _compressed(secret.kind, private.public_key()), lambda public: _exchange(private, secret.kind, public)


def agree_static(secret: SecretKey, public: PublicKey) -> bytes:
    """Like `agree`, for two static keys: the result is cached."""
    if secret.kind == "X25519" and public.kind == "X25519":
        return primitives.x25519_static(secret.data, public.data)
    return _kept_agreement(secret, public)


@lru_cache(maxsize=primitives.KEYS_CACHED)
def _kept_agreement(secret: SecretKey, public: PublicKey) -> bytes:
    return agree(secret, public)


def _exchange(private: ec.EllipticCurvePrivateKey, kind: KeyKind, public: PublicKey) -> bytes:
    if public.kind != kind or kind not in AGREEMENT_KINDS:
        raise Unauthentic()
    point = _point(public)
    try:
        return private.exchange(ec.ECDH(), point)
    except ValueError:
        raise Unauthentic() from None


def checked(public: PublicKey) -> PublicKey:
    """Validate a public key and return it. Raises Malformed for a wrong length, a point off its curve or low order."""
    if public.kind == "X25519":
        primitives.check_x25519_public(public.data)
    elif public.kind == "Ed25519":
        primitives.ed25519_to_x25519_public(public.data)
    else:
        _point(public)
    return public


# --- elliptic curves ------------------------------------------------------------------------------------------------


def _size(curve: ec.EllipticCurve) -> int:
    """The size of a coordinate or a scalar, in bytes."""
    return (curve.key_size + 7) // 8


def _private(secret: SecretKey) -> ec.EllipticCurvePrivateKey:
    if secret.kind not in _CURVES:
        raise Unauthentic()
    return ec.derive_private_key(int.from_bytes(secret.data, "big"), _CURVES[secret.kind])


_kept_private = lru_cache(maxsize=primitives.KEYS_CACHED)(_private)


def _compressed(kind: KeyKind, public: ec.EllipticCurvePublicKey) -> PublicKey:
    # Imported late: the module loads every key format.
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    return PublicKey(kind, public.public_bytes(Encoding.X962, PublicFormat.CompressedPoint))


@lru_cache(maxsize=primitives.KEYS_CACHED)
def _point(public: PublicKey) -> ec.EllipticCurvePublicKey:
    curve = _CURVES[public.kind]
    if len(public.data) != 1 + _size(curve) or public.data[0] not in (2, 3):
        raise Malformed(why="not a compressed point of its curve")
    try:
        return ec.EllipticCurvePublicKey.from_encoded_point(curve, public.data)
    except ValueError:
        raise Malformed(why="a point that is not on its curve") from None


# --- signatures -----------------------------------------------------------------------------------------------------


def sign(secret: SecretKey, message: bytes) -> bytes:
    """A signature of 64 bytes: EdDSA, or r and s of ES256 and ES256K (RFC 7518, section 3.4), deterministic (RFC 6979)
    where OpenSSL supports it.

    The s of ES256K is the lower of the two valid ones: libraries made for ledgers refuse the other.
    """
    if secret.kind == "Ed25519":
        return primitives.ed25519_sign(secret.data, message)
    assert secret.kind in SIGNING_KINDS
    private = _kept_private(secret)
    try:
        der = private.sign(message, ec.ECDSA(SHA256(), deterministic_signing=True))
    except UnsupportedAlgorithm:
        der = private.sign(message, ec.ECDSA(SHA256()))
    r, s = decode_dss_signature(der)
    if secret.kind == "secp256k1":
        s = min(s, _CURVES[secret.kind].group_order - s)
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def verify(public: PublicKey, message: bytes, signature: bytes) -> None:
    """Raise Unauthentic unless the signature is valid, Malformed for an invalid key. Either s of ES256K is valid."""
    if public.kind == "Ed25519":
        primitives.ed25519_verify(public.data, message, signature)
        return
    if public.kind not in SIGNING_KINDS or len(signature) != 64:
        raise Unauthentic()
    point = _point(public)
    r, s = int.from_bytes(signature[:32], "big"), int.from_bytes(signature[32:], "big")
    try:
        point.verify(encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))
    except InvalidSignature:
        raise Unauthentic() from None


# --- JSON Web Keys (RFC 7517, RFC 7518 section 6.2, RFC 8037, RFC 8812) ---------------------------------------------


def public_jwk(public: PublicKey) -> dict[str, str]:
    """The JWK members of a public key in the usual order: kty, crv, x, y."""
    if public.kind not in _CURVES:
        return {"kty": "OKP", "crv": public.kind, "x": b64url(public.data)}
    numbers, size = _point(public).public_numbers(), _size(_CURVES[public.kind])
    x, y = (b64url(number.to_bytes(size, "big")) for number in (numbers.x, numbers.y))
    return {"kty": "EC", "crv": public.kind, "x": x, "y": y}


KeyUse: TypeAlias = Literal["sig", "enc"]
_OPERATIONS: Mapping[KeyUse, frozenset[str]] = {
    "sig": frozenset({"sign", "verify"}),
    "enc": frozenset({"deriveKey", "deriveBits", "wrapKey", "unwrapKey", "encrypt", "decrypt"}),
}


def jwk_permits(jwk: Mapping[str, object], use: KeyUse) -> bool:
    """Whether a JWK may be used to verify (`sig`) or to agree on keys (`enc`), by its `use` and `key_ops` (RFC 7517,
    sections 4.2 and 4.3). Raises Malformed."""
    stated, operations = jwk.get("use"), jwk.get("key_ops")
    if not isinstance(stated, str | None) or not isinstance(operations, list | None):
        raise Malformed(why="a key whose use or key_ops is of another type")
    permitted = operations is None or any(name in _OPERATIONS[use] for name in operations if isinstance(name, str))
    return stated in (None, use) and permitted


def jwk_public(jwk: Mapping[str, object], use: KeyUse | None = None) -> PublicKey:
    """The public key of a JWK, for this use if given; other members (kid, alg) are ignored. Raises Malformed.

    Points are checked to be on the curve; `agree` and `checked` check the order of X25519 and Ed25519 keys. A JWK with
    a secret part is refused: the secret is compromised.
    """
    if jwk.get("d") is not None:
        raise Malformed(why="a public key together with its secret")
    if use is not None and not jwk_permits(jwk, use):
        raise Malformed(why="a key for another use")
    return _jwk_public(jwk)


def _jwk_public(jwk: Mapping[str, object]) -> PublicKey:
    kind, kty = jwk.get("crv"), jwk.get("kty")
    if (kind == "X25519" or kind == "Ed25519") and kty == "OKP":
        return PublicKey(kind, _octets(jwk, "x"))
    for known, curve in _CURVES.items():
        if kind == known and kty == "EC":
            x, y = (int.from_bytes(_coordinate(jwk, name, _size(curve)), "big") for name in ("x", "y"))
            try:
                return _compressed(known, ec.EllipticCurvePublicNumbers(x, y, curve).public_key())
            except ValueError:
                raise Malformed(why="a point that is not on its curve") from None
    raise Malformed(why="a key of an unsupported type")


def jwk_secret(jwk: Mapping[str, object]) -> SecretKey:
    """The secret key of a JWK with `d`; its public part must match. Raises Malformed."""
    public = _jwk_public(jwk)
    curve = _CURVES.get(public.kind)
    secret = SecretKey(public.kind, _octets(jwk, "d") if curve is None else _coordinate(jwk, "d", _size(curve)))
    try:
        own = public_of(secret)
    except ValueError:
        raise Malformed(why="a secret key out of its range") from None
    if own != public:
        raise Malformed(why="a secret key with another key's public half")
    return secret


def _octets(jwk: Mapping[str, object], name: str) -> bytes:
    """The 32 bytes of an X25519 or Ed25519 key."""
    data = _bytes(jwk, name)
    if len(data) != 32:
        raise Malformed(why="a key of the wrong length")
    return data


def _coordinate(jwk: Mapping[str, object], name: str, size: int) -> bytes:
    """A number at the curve's length, or without the leading zero bytes that widespread libraries omit."""
    data = _bytes(jwk, name)
    if len(data) != size and (len(data) > size or not data or data[0] == 0):
        raise Malformed(why="a key of the wrong length")
    return data.rjust(size, b"\0")


def _bytes(jwk: Mapping[str, object], name: str) -> bytes:
    text = jwk.get(name)
    if not isinstance(text, str):
        raise Malformed(why=f"a key without {name}")
    return b64url_bytes(text)


# --- multikeys (W3C Controlled Identifiers, "Multikey"; did:key) ----------------------------------------------------


def multikey(public: PublicKey) -> str:
    """The key as multibase text, as in a did:key: `z6Mk…`, `z6LS…`, `zDn…`."""
    return encoding.multikey(_CODEC_OF_KIND[public.kind], public.data)


def multikey_public(text: str) -> PublicKey:
    """The public key of a multikey, checked like in `jwk_public`. Raises Malformed."""
    public = multikey_known(text)
    if public is None:
        raise Malformed(why="a key of an unsupported type")
    return public


def is_public_codec(codec: bytes) -> bool:
    """Whether the two-byte prefix of a multikey is that of a public key of any kind, known here or not."""
    number = (codec[0] & 0x7F) | codec[1] << 7
    return codec[0] >= 0x80 > codec[1] and any(first <= number <= last for first, last in _PUBLIC_CODECS)


@lru_cache(maxsize=4096)
def multikey_known(text: str) -> PublicKey | None:
    """Like `multikey_public`, but None for an unknown kind of key, which DID documents may contain."""
    codec, data = encoding.multikey_bytes(text)
    kind = _KIND_OF_CODEC.get(codec)
    if kind is None:
        return None
    public = PublicKey(kind, data)
    if kind in _CURVES:
        _point(public)
    return public
