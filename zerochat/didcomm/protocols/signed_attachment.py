"""Signed attachments of DIDComm v1 (Aries RFC 0017), as used by DID Exchange.

`data.base64` uses the standard alphabet (some implementations accept no other), while the signature covers the same
bytes in base64url without padding. The signer is named three times, for different implementations: as did:key in the
unprotected header, and in the protected header as `jwk` with its own `kid`. Where a `jwk` gives the key, a key id is
opaque (credo-ts names its key store's entry), except a did:key; contradicting keys are refused. A signature that is
repeated counts once (credo-ts signs for each service of its invitation, with the one key of all). The signature proves
the key only: callers compare it with the one that their protocol demands.

Specified in: Aries RFC 0017, "Signing Attachments"; RFC 7515, Appendix F.
"""

from binascii import b2a_base64
from collections.abc import Mapping
from typing import Any, Final

from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, strict_json
from zerochat.crypto.keys import ALGORITHM_OF, PublicKey, SecretKey, jwk_public, public_jwk, public_of, sign
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.attachment import attachment_bytes
from zerochat.didcomm.did import did_key_of
from zerochat.didcomm.jws import HEADER_BYTES_MAX, SIGNATURES_MAX, verify_detached
from zerochat.didcomm.protocols.bodies import read_attachment
from zerochat.didcomm.service import verkey
from zerochat.errors import Malformed, Refused

CONTENT_BYTES_MAX: Final = 64 * 1024
"""DID documents have one or two kB."""


class SignedContent(Redacted, frozen=True):
    """Verified content of an attachment and its Ed25519 signers."""

    REDACTED = ("content",)

    content: bytes
    signers: tuple[PublicKey, ...]


def signed_attachment(content: bytes, signer: SecretKey, media_type: str) -> dict[str, Any]:
    """A v1 attachment signed with an Ed25519 key."""
    key = public_of(signer)
    kid = did_key_of(key)
    protected = b64url(compact_json({"alg": ALGORITHM_OF[key.kind], "jwk": {**public_jwk(key), "kid": kid}}))
    signature = sign(signer, f"{protected}.{b64url(content)}".encode())
    return {
        "mime-type": media_type,
        "data": {
            "base64": b2a_base64(content, newline=False).decode(),
            "jws": {"header": {"kid": kid}, "protected": protected, "signature": b64url(signature)},
        },
    }


def read_signed(tree: Mapping[str, Any]) -> SignedContent:
    """Decode and verify a signed v1 attachment from a body.

    Raises Malformed for an invalid attachment, Refused for one without a signature, Unauthentic for any wrong
    signature.
    """
    attachment = read_attachment(tree)
    if attachment.jws is None or attachment.base64 is None:
        raise Refused(why="an attachment that is not signed")
    if len(attachment.base64) > CONTENT_BYTES_MAX * 4 // 3 + 4:
        raise Malformed(why="a signed attachment that is too long")
    content = attachment_bytes(attachment)
    jws, signers = _named(attachment.jws)
    kids = verify_detached(jws, content, signers.get)
    return SignedContent(content, tuple(dict.fromkeys(signers[kid] for kid in kids)))


def _named(jws: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, PublicKey]]:
    """The signatures with the key id in the unprotected header, and the key of each key id."""
    listed = jws.get("signatures")
    if listed is None:
        entry, kid, key = _named_one(dict(jws))
        return entry, {kid: key}
    if not isinstance(listed, list) or len(listed) > SIGNATURES_MAX:
        raise Malformed(why="jws: no signatures, or too many")
    named = [_named_one(entry) for n, entry in enumerate(listed) if entry not in listed[:n]]
    return {**jws, "signatures": [entry for entry, _, _ in named]}, {kid: key for _, kid, key in named}


def _named_one(entry: object) -> tuple[dict[str, Any], str, PublicKey]:
    """A signature with its key id, which is opaque if a `jwk` gives the key, and that key."""
    if not isinstance(entry, dict) or not isinstance(text := entry.get("protected"), str):
        raise Malformed(why="jws: a signature without its protected header")
    header, protected = entry.get("header") or {}, strict_json(b64url_bytes(text), HEADER_BYTES_MAX)
    if not isinstance(header, dict) or not isinstance(protected, dict):
        raise Malformed(why="jws: a header that is not an object")
    jwk = protected.get("jwk") or {}
    if not isinstance(jwk, dict):
        raise Malformed(why="jws: a jwk that is not an object")
    kids = [kid for kid in (header.get("kid"), protected.get("kid"), jwk.get("kid")) if kid is not None]
    if not all(isinstance(kid, str) for kid in kids):
        raise Malformed(why="jws: a key id that is not text")
    keys = {verkey(kid) for kid in kids if not jwk or kid.startswith("did:key:")} | (
        {jwk_public(jwk, "sig")} if jwk else set()
    )
    if len(keys) != 1:
        raise Malformed(why="jws: a signature that names no signer, or more than one")
    key = keys.pop()
    if key.kind != "Ed25519":
        raise Malformed(why="jws: a signer whose key is not Ed25519")
    kid = protected.get("kid") or did_key_of(key)
    return {**entry, "header": {**header, "kid": kid}}, kid, key
