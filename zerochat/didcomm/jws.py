"""JSON Web Signatures (EdDSA, ES256, ES256K): signed messages, attachments and tokens.

A signed message is a JWS in the general or flattened JSON form (RFC 7515, section 7.2), a DID rotation token has the
compact form (section 7.1), and an attachment's signature is detached (Appendix F). Ambiguous input is refused before
any key is used. The caller provides keys by key id; a key embedded in the JWS is ignored.

The key id is written to the unprotected header, as in the specification's examples (Appendix C.2), because older
libraries look only there. That is safe: another id means another key, which verifies nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from zerochat.crypto import keys
from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, strict_json
from zerochat.crypto.keys import ALGORITHM_OF, PublicKey, SecretKey
from zerochat.crypto.structs import Redacted
from zerochat.errors import Malformed, Unauthentic

SIGNATURES_MAX = 16
"""Only the sender's signature counts; others cost parsing."""
SIGNED_BYTES_MAX = 512 * 1024
"""The largest plaintext (256 KiB) in base64, with headers."""
HEADER_BYTES_MAX = 16 * 1024
"""A decoded protected header: a key id with the longest DID, and perhaps a key."""

TYP = "application/didcomm-signed+json"
_TYP_READ = (None, TYP, "didcomm-signed+json", "JWM")
"""The prefix is optional (RFC 7515, section 4.1.9); the specification itself still prints JWM."""
_ALGORITHMS = frozenset(ALGORITHM_OF.values())
_PROTECTED_ONLY = {"alg", "typ", "crit", "b64"}
"""Headers that must be protected, because they change the meaning of a signature."""


class Signature(Struct, frozen=True):
    """An unverified signature of a JWS."""

    kid: str
    algorithm: str
    protected: str
    """The protected header as received."""
    value: bytes


class Jws(Redacted, frozen=True):
    """A well-formed JWS, unverified."""

    REDACTED = ("payload", "signed")

    payload: bytes
    signed: str
    """The payload as it came, in base64url."""
    signatures: tuple[Signature, ...]


class Token(Redacted, frozen=True):
    """A token in the compact form, taken apart and not verified."""

    REDACTED = ("payload", "signed")

    header: Mapping[str, Any]
    payload: bytes
    signed: str
    """The payload as it came, in base64url."""
    signature: Signature


class Signed(Redacted, frozen=True):
    """The payload of a JWS, and the key ids with verified signatures."""

    REDACTED = ("plain",)

    plain: bytes
    kids: tuple[str, ...]


# --- writing --------------------------------------------------------------------------------------------------------


def sign(plain: bytes, signers: Sequence[tuple[str, SecretKey]], *, flattened: bool = False) -> bytes:
    """A signed message with a signature per key id and key, in the general or flattened form.

    Only a single signature can be flattened. Raises Malformed for a payload that is too long.
    """
    if not 1 <= len(signers) <= (1 if flattened else SIGNATURES_MAX):
        raise ValueError("no signers, or too many")
    payload = b64url(plain)
    signatures = [_signature(payload, kid, key, {"typ": TYP}) for kid, key in signers]
    tree = {"payload": payload} | (signatures[0] if flattened else {"signatures": signatures})
    data = compact_json(tree)
    if len(data) > SIGNED_BYTES_MAX:
        raise Malformed(why=f"a signed message of more than {SIGNED_BYTES_MAX} bytes")
    return data


def sign_detached(content: bytes, signers: Sequence[tuple[str, SecretKey]]) -> dict[str, object]:
    """The `jws` of an attachment: detached signatures over its content."""
    payload = b64url(content)
    signatures = [_signature(payload, kid, key, {}) for kid, key in signers]
    return signatures[0] if len(signatures) == 1 else {"signatures": signatures}


def sign_compact(header: Mapping[str, object], payload: Mapping[str, object], key: SecretKey) -> str:
    """A token in the compact form; `alg` is added to the header."""
    protected = b64url(compact_json({**header, "alg": ALGORITHM_OF[key.kind]}))
    text = b64url(compact_json(payload))
    return f"{protected}.{text}.{b64url(keys.sign(key, f'{protected}.{text}'.encode()))}"


def _signature(payload: str, kid: str, key: SecretKey, header: dict[str, object]) -> dict[str, object]:
    protected = b64url(compact_json({**header, "alg": ALGORITHM_OF[key.kind]}))
    value = keys.sign(key, f"{protected}.{payload}".encode())
    return {"protected": protected, "signature": b64url(value), "header": {"kid": kid}}


# --- verifying ------------------------------------------------------------------------------------------------------


def verify(data: bytes, public_of: Callable[[str], PublicKey | None]) -> Signed:
    """Verify a signed message from a peer.

    `public_of` returns the key of a key id that may sign for its owner, None to ignore a signer, or raises a
    RemoteError. Raises Malformed for an invalid JWS, Unauthentic unless at least one signature is verified and none of
    those checked is wrong.
    """
    jws = read(data)
    return Signed(jws.payload, check(jws, public_of))


def verify_detached(
    jws: Mapping[str, Any], content: bytes, public_of: Callable[[str], PublicKey | None]
) -> tuple[str, ...]:
    """The key ids that signed an attachment's content. Raises like `verify`."""
    if jws.get("payload") is not None:
        raise Malformed(why="jws: a detached one with a payload")
    return check(_read({**jws, "payload": b64url(content)}, typ_too=False), public_of)


def check_token(token: Token, public: PublicKey) -> None:
    """Raise Unauthentic unless this key signed the token."""
    _check_one(token.signature, token.signed, public)


def check(jws: Jws, public_of: Callable[[str], PublicKey | None]) -> tuple[str, ...]:
    """The key ids with valid signatures. Raises like `verify`."""
    kids = []
    for signature in jws.signatures:
        public = public_of(signature.kid)
        if public is not None:
            _check_one(signature, jws.signed, public)
            kids.append(signature.kid)
    if not kids:
        raise Unauthentic()
    return tuple(kids)


def _check_one(signature: Signature, payload: str, public: PublicKey) -> None:
    if ALGORITHM_OF.get(public.kind) != signature.algorithm:
        raise Unauthentic()
    keys.verify(public, f"{signature.protected}.{payload}".encode(), signature.value)


# --- reading --------------------------------------------------------------------------------------------------------


def read(data: bytes) -> Jws:
    """Parse a signed message without verifying it. Raises Malformed."""
    tree = strict_json(data, SIGNED_BYTES_MAX)
    return _read(_object(tree, "JWS"), typ_too=True)


def read_token(text: str) -> Token:
    """A token in the compact form, taken apart and not verified. Raises Malformed.

    Padding, which the JSON forms may have, is refused: a token has one spelling (RFC 7515, section 2), and may be
    compared as text.
    """
    if "=" in text or text.count(".") != 2 or len(text) > SIGNED_BYTES_MAX:
        raise Malformed(why="jws: not in the compact form")
    protected, payload, value = text.split(".")
    header = _read_header(protected)
    kid = header.get("kid", "")
    if not isinstance(kid, str):
        raise Malformed(why="jws: a key id that is not text")
    signature = Signature(kid, _algorithm(header), protected, b64url_bytes(value))
    return Token(header, b64url_bytes(payload), payload, signature)


def _read(tree: dict[str, Any], *, typ_too: bool) -> Jws:
    tree = _object(tree, "JWS")
    payload, listed = _text(tree, "payload"), tree.get("signatures")
    if listed is None:
        listed = [{name: tree[name] for name in ("protected", "header", "signature") if name in tree}]
    elif tree.keys() & {"protected", "header", "signature"}:
        raise Malformed(why="jws: general and flattened at once")
    if not isinstance(listed, list) or not 1 <= len(listed) <= SIGNATURES_MAX:
        raise Malformed(why="jws: no signatures, or too many")
    signatures = tuple([_read_signature(_object(entry, "signature"), typ_too) for entry in listed])
    if len({signature.kid for signature in signatures}) != len(signatures):
        raise Malformed(why="jws: a duplicate signer")
    return Jws(b64url_bytes(payload), payload, signatures)


def _read_signature(entry: dict[str, Any], typ_too: bool) -> Signature:
    protected = _text(entry, "protected")
    header, loose = _read_header(protected), _object(entry.get("header") or {}, "header")
    if typ_too and header.get("typ") not in _TYP_READ:
        raise Malformed(why="jws: of another media type")
    if loose.keys() & _PROTECTED_ONLY or (loose.keys() & header.keys()) - {"kid"}:
        raise Malformed(why="jws: an unprotected or duplicate header")
    kid = _text(loose, "kid") if "kid" in loose else _text(header, "kid")
    if header.get("kid", kid) != kid:
        raise Malformed(why="jws: two key ids")
    return Signature(kid, _algorithm(header), protected, b64url_bytes(_text(entry, "signature")))


def _read_header(protected: str) -> dict[str, Any]:
    return _object(strict_json(b64url_bytes(protected), HEADER_BYTES_MAX), "protected header")


def _algorithm(header: dict[str, Any]) -> str:
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS or "crit" in header or "b64" in header:
        raise Malformed(why="jws: a signature algorithm that is not supported")
    return algorithm


def _object(value: object, what: str) -> dict[str, Any]:
    """The non-null members of an object: common libraries write null for absent."""
    if not isinstance(value, dict):
        raise Malformed(why=f"jws: the {what} is not an object")
    return {name: member for name, member in value.items() if member is not None}


def _text(tree: dict[str, Any], name: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str):
        raise Malformed(why=f"jws: no {name}")
    return value
