"""DID rotation: an old DID's signature that from now on a new DID speaks in its place (DIDComm v2.1, "DID Rotation").

It is a JWT in the header `from_prior` of every message from the new DID until one has come back to that. zerochat
rotates once in every exchange, from an invitation's public DID to one that nobody else has seen, and on demand. A
rotation to nothing ends the relationship: a JWT without `sub`, in a message without `from`.

What needs a memory is the caller's: that a relationship's rotations have later and later times, that messages from the
old DID are ignored afterwards, and that the message which brought the JWT was encrypted.
"""

from msgspec import Struct

from zerochat.crypto.encoding import INTEGER_MAX, strict_json
from zerochat.crypto.keys import KeyKind, SecretKey
from zerochat.crypto.redacted import Veiled
from zerochat.didcomm.did import Document, same_did
from zerochat.didcomm.jws import Token, check_token, read_token, sign_compact
from zerochat.didcomm.message import FROM_PRIOR_CHARS_MAX
from zerochat.errors import Malformed, Unauthentic


class Prior(Veiled, frozen=True):
    """A DID of ours that is to be replaced, with the key that may say so."""

    VEILED = ("seed",)

    did: str
    kid: str
    """The absolute id of the key, in the DID's authentication section."""
    seed: bytes
    """The secret key: an Ed25519 seed, or the scalar of another kind."""
    kind: KeyKind = "Ed25519"


class Rotation(Struct, frozen=True):
    """What a valid `from_prior` says."""

    issued: int
    """When the DID was rotated, in UTC seconds."""
    new_did: str | None
    """The new DID as the old one spelled it; None where the relationship ends."""


def from_prior(prior: Prior, new_did: str | None, now_s: int) -> str:
    """The JWT by which `prior` hands over to `new_did`, or ends the relationship; `now_s` in UTC seconds."""
    claims: dict[str, object] = {} if new_did is None else {"sub": new_did}
    claims |= {"iss": prior.did, "iat": now_s}
    return sign_compact({"typ": "JWT", "kid": prior.kid}, claims, SecretKey(prior.kind, prior.seed))


def prior_did(jwt: str) -> str:
    """The DID that a `from_prior` claims to come from, to find out whom it is about; nothing is verified yet.

    Raises Malformed.
    """
    return _did(_claims(_token(jwt)), "iss")


def verify_from_prior(jwt: str, prior: Document, new_did: str | None) -> Rotation:
    """What the owner of `prior` says in the `from_prior` of a message from `new_did` (None: a message without `from`).

    Raises Malformed for what is no such JWT, Unauthentic unless the prior DID itself signed it, for exactly this DID or
    for none. Of the other claims none is enforced: published vectors carry an `exp` of 1970 and are meant to verify.
    Nor does `crv` in the header matter, because a key says itself which curve it is on.
    """
    token = _token(jwt)
    claims = _claims(token)
    issuer, issued = _did(claims, "iss"), claims.get("iat")
    subject = None if claims.get("sub") is None else _did(claims, "sub")
    kid = token.signature.kid
    if type(issued) is not int or not 0 <= issued <= INTEGER_MAX:
        raise Malformed(why="from_prior: no time")
    if not same_did(kid.partition("#")[0], issuer) or (subject is not None and same_did(issuer, subject)):
        raise Malformed(why="from_prior: iss and sub are not two DIDs, or kid is not of iss")
    if not same_did(issuer, prior.did) or (subject is None) != (new_did is None):
        raise Unauthentic()
    if subject is not None and new_did is not None and not same_did(subject, new_did):
        raise Unauthentic()
    check_token(token, prior.authentication_key(kid))
    return Rotation(issued, subject)


def _token(jwt: str) -> Token:
    if len(jwt) > FROM_PRIOR_CHARS_MAX:
        raise Malformed(why="from_prior: a JWT that is too long")
    token = read_token(jwt)
    if token.header.get("typ", "JWT") != "JWT":
        raise Malformed(why="from_prior: not a JWT")
    return token


def _claims(token: Token) -> dict[str, object]:
    tree = strict_json(token.payload, FROM_PRIOR_CHARS_MAX)
    if not isinstance(tree, dict):
        raise Malformed(why="from_prior: not an object")
    return tree


def _did(claims: dict[str, object], name: str) -> str:
    did = claims.get(name)
    if not isinstance(did, str) or "#" in did:
        raise Malformed(why=f"from_prior: no {name}, or not a DID alone")
    return did
