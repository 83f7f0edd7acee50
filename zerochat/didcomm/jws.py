"""JSON Web Signatures as DIDComm uses them: EdDSA, ES256 and ES256K; signed messages, attachments and tokens.

A signed message is a JWS in the general or the flattened JSON form (RFC 7515, section 7.2); a token of a DID rotation
has the compact form (section 7.1); the signature of an attachment leaves the payload out (Appendix F). Reading is
strict: whatever could be taken in two ways is refused before any key is touched. The key comes from the caller, who
says by the key's id whose it is; a key that the JWS brings along itself proves nothing and is ignored.

Written is the key id in the unprotected header, where the specification's own examples (Appendix C.2) have it and older
libraries alone look for it; there it is as safe, because another id is another key, which verifies nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from zerochat.crypto import keys
from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, strict_json
from zerochat.crypto.keys import ALGORITHM_OF, PublicKey, SecretKey
from zerochat.crypto.redacted import Veiled
from zerochat.errors import Malformed, Unauthentic

SIGNATURES_MAX = 16
"""Only the sender's signature counts, and it costs little; each of the others costs parsing."""
SIGNED_BYTES_MAX = 512 * 1024
"""A plaintext of the greatest size (256 KiB) after base64, and generous headers."""
HEADER_BYTES_MAX = 16 * 1024
"""A protected header, decoded: a key id with a DID of the greatest length, and perhaps a key."""

TYP = "application/didcomm-signed+json"
_TYP_READ = (None, TYP, "didcomm-signed+json", "JWM")
"""The prefix may be left out (RFC 7515, section 4.1.9); JWM is what the specification itself still prints."""
_ALGORITHMS = frozenset(ALGORITHM_OF.values())
_PROTECTED_ONLY = {"alg", "typ", "crit", "b64"}
"""What changes the meaning of a signature is not taken from a header that nothing protects."""


class Signature(Struct, frozen=True):
    """One signature of a JWS, not verified."""

    kid: str
    algorithm: str
    protected: str
    """The protected header as it came."""
    value: bytes


class Jws(Veiled, frozen=True):
    """A JWS whose every part has the right shape; nothing of it is trusted yet."""

    VEILED = ("payload", "signed")

    payload: bytes
    signed: str
    """The payload as it came, in base64url."""
    signatures: tuple[Signature, ...]


class Token(Veiled, frozen=True):
    """A token in the compact form, taken apart and not verified."""

    VEILED = ("payload", "signed")

    header: Mapping[str, Any]
    payload: bytes
    signed: str
    """The payload as it came, in base64url."""
    signature: Signature


class Signed(Veiled, frozen=True):
    """What a JWS held, and the ids of the keys whose signatures have been verified."""

    VEILED = ("plain",)

    plain: bytes
    kids: tuple[str, ...]


# --- writing --------------------------------------------------------------------------------------------------------


def sign(plain: bytes, signers: Sequence[tuple[str, SecretKey]], *, flattened: bool = False) -> bytes:
    """A signed message: the payload with a signature for each id and key, in the general form or flattened.

    Only a single signature can be flattened. Raises Malformed for a payload that its reader would refuse as too long.
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
    """The `jws` of an attachment: signatures over its content, which is not repeated in it."""
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
    """What a signed message from a peer holds.

    `public_of` gives the key of a key id, which must be one that may sign for its owner; None for a signer of no
    interest, whose signature is left aside; and it raises a RemoteError where it knows or wants none. Raises Malformed
    for what is no JWS, Unauthentic unless at least one signature is verified and none of those looked at is wrong.
    """
    jws = read(data)
    return Signed(jws.payload, check(jws, public_of))


def verify_detached(
    jws: Mapping[str, Any], content: bytes, public_of: Callable[[str], PublicKey | None]
) -> tuple[str, ...]:
    """The ids of the keys that signed an attachment's content. Raises like `verify`."""
    if jws.get("payload") is not None:
        raise Malformed(why="jws: a detached one with a payload")
    return check(_read({**jws, "payload": b64url(content)}, typ_too=False), public_of)


def check_token(token: Token, public: PublicKey) -> None:
    """Raise Unauthentic unless the token was signed by this key."""
    _check_one(token.signature, token.signed, public)


def check(jws: Jws, public_of: Callable[[str], PublicKey | None]) -> tuple[str, ...]:
    """The ids of the keys whose signatures are right. Raises like `verify`."""
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
    """A signed message taken apart and not verified. Raises Malformed."""
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
        raise Malformed(why="jws: a signer twice")
    return Jws(b64url_bytes(payload), payload, signatures)


def _read_signature(entry: dict[str, Any], typ_too: bool) -> Signature:
    protected = _text(entry, "protected")
    header, loose = _read_header(protected), _object(entry.get("header") or {}, "header")
    if typ_too and header.get("typ") not in _TYP_READ:
        raise Malformed(why="jws: of another media type")
    if loose.keys() & _PROTECTED_ONLY or (loose.keys() & header.keys()) - {"kid"}:
        raise Malformed(why="jws: a header that nothing protects, or one twice")
    kid = _text(loose, "kid") if "kid" in loose else _text(header, "kid")
    if header.get("kid", kid) != kid:
        raise Malformed(why="jws: two key ids")
    return Signature(kid, _algorithm(header), protected, b64url_bytes(_text(entry, "signature")))


def _read_header(protected: str) -> dict[str, Any]:
    return _object(strict_json(b64url_bytes(protected), HEADER_BYTES_MAX), "protected header")


def _algorithm(header: dict[str, Any]) -> str:
    algorithm = header.get("alg")
    if not isinstance(algorithm, str) or algorithm not in _ALGORITHMS or "crit" in header or "b64" in header:
        raise Malformed(why="jws: a signature of a kind that is not supported")
    return algorithm


def _object(value: object, what: str) -> dict[str, Any]:
    """The members of an object that are not null: real libraries write null for absent."""
    if not isinstance(value, dict):
        raise Malformed(why=f"jws: the {what} is not an object")
    return {name: member for name, member in value.items() if member is not None}


def _text(tree: dict[str, Any], name: str) -> str:
    value = tree.get(name)
    if not isinstance(value, str):
        raise Malformed(why=f"jws: no {name}")
    return value
