"""DID rotation: an old DID's signature that from now on a new DID speaks in its place (DIDComm v2.1, "DID Rotation").

It is a JWT in the header `from_prior` of the first message from the new DID. zerochat rotates once in every exchange:
from an invitation's public DID to one that nobody else has seen.
"""

from dataclasses import dataclass, field

from zerochat.crypto.encoding import INTEGER_MAX, b64url, b64url_bytes, compact_json, strict_json
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify
from zerochat.didcomm.did import Document, same_did
from zerochat.didcomm.message import FROM_PRIOR_CHARS_MAX
from zerochat.errors import Malformed, Unauthentic


@dataclass(frozen=True, slots=True)
class Prior:
    """A DID of ours that is to be replaced, with the Ed25519 key that may say so."""

    did: str
    kid: str
    """The absolute id of the key, in the DID's authentication section."""
    seed: bytes = field(repr=False)


def from_prior(prior: Prior, new_did: str, now_s: int) -> str:
    """The JWT (compact, EdDSA) by which `prior` hands over to `new_did`; `now_s` in UTC seconds."""
    header = compact_json({"typ": "JWT", "alg": "EdDSA", "kid": prior.kid})
    payload = compact_json({"sub": new_did, "iss": prior.did, "iat": now_s})
    signed = b64url(header) + "." + b64url(payload)
    return signed + "." + b64url(ed25519_sign(prior.seed, signed.encode()))


def verify_from_prior(jwt: str, prior: Document, new_did: str) -> int:
    """The time (UTC seconds) at which the owner of `prior` handed over to `new_did`.

    Raises Malformed for what is no such JWT, Unauthentic unless the prior DID itself signed it, for exactly this DID.
    That later rotations have later times is for the caller to see to. Of the other claims none is enforced: published
    vectors carry an `exp` of 1970 and are meant to verify.
    """
    if len(jwt) > FROM_PRIOR_CHARS_MAX or "=" in jwt or jwt.count(".") != 2:
        raise Malformed(why="from_prior: not a compact JWT")
    header_text, payload_text, signature_text = jwt.split(".")
    header, payload = _object(header_text), _object(payload_text)
    if header.get("alg") != "EdDSA" or header.get("typ", "JWT") != "JWT" or header.keys() & {"crit", "b64"}:
        raise Malformed(why="from_prior: a JWT of a kind that is not supported")
    kid, issuer, subject, issued = header.get("kid"), payload.get("iss"), payload.get("sub"), payload.get("iat")
    if not isinstance(kid, str) or not isinstance(issuer, str) or not isinstance(subject, str):
        raise Malformed(why="from_prior: no kid, iss or sub")
    if type(issued) is not int or not 0 <= issued <= INTEGER_MAX:
        raise Malformed(why="from_prior: no time")
    if "#" in issuer + subject or not same_did(kid.partition("#")[0], issuer) or same_did(issuer, subject):
        raise Malformed(why="from_prior: iss and sub are not two DIDs, or kid is not of iss")
    if not same_did(issuer, prior.did) or not same_did(subject, new_did):
        raise Unauthentic()
    public = prior.authentication_key(kid)
    ed25519_verify(public, f"{header_text}.{payload_text}".encode(), b64url_bytes(signature_text))
    return issued


def _object(text: str) -> dict[str, object]:
    tree = strict_json(b64url_bytes(text), FROM_PRIOR_CHARS_MAX)
    if not isinstance(tree, dict):
        raise Malformed(why="from_prior: not an object")
    return tree
