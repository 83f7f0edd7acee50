"""DID rotation: a JWT by which an old DID hands over to a new one (DIDComm v2.1, "DID Rotation").

The JWT is in the `from_prior` header of every message from the new DID until the peer has used that. zerochat rotates
once in every exchange, from the invitation's public DID to a private one, and on demand. A JWT without `sub`, in a
message without `from`, ends the relationship.

Stateful checks are the caller's: increasing rotation times, ignoring the old DID afterwards, and that the message with
the JWT was encrypted.
"""

from msgspec import Struct

from zerochat.crypto.encoding import INTEGER_MAX, strict_json
from zerochat.crypto.keys import KeyKind, SecretKey
from zerochat.crypto.structs import Redacted
from zerochat.didcomm.did import Document, same_did
from zerochat.didcomm.jws import Token, check_token, read_token, sign_compact
from zerochat.didcomm.message import FROM_PRIOR_CHARS_MAX
from zerochat.errors import Malformed, Unauthentic


class Prior(Redacted, frozen=True):
    """An own DID to be replaced, with the key that signs the rotation."""

    REDACTED = ("seed",)

    did: str
    kid: str
    """Absolute key id in the DID's authentication section."""
    seed: bytes
    """Secret key: an Ed25519 seed, or a scalar of another kind."""
    kind: KeyKind = "Ed25519"


class Rotation(Struct, frozen=True):
    """Content of a valid `from_prior`."""

    issued: int
    """Time of the rotation, UTC seconds."""
    new_did: str | None
    """The new DID as spelled in the JWT; None: the relationship ends."""


def from_prior(prior: Prior, new_did: str | None, now_s: int) -> str:
    """The JWT that hands over from `prior` to `new_did`, or ends the relationship (None); `now_s` in UTC seconds."""
    claims: dict[str, object] = {} if new_did is None else {"sub": new_did}
    claims |= {"iss": prior.did, "iat": now_s}
    return sign_compact({"typ": "JWT", "kid": prior.kid}, claims, SecretKey(prior.kind, prior.seed))


def prior_did(jwt: str) -> str:
    """The claimed issuer of a `from_prior`, unverified. Raises Malformed."""
    return _did(_claims(_token(jwt)), "iss")


def verify_from_prior(jwt: str, prior: Document, new_did: str | None) -> Rotation:
    """Verify the `from_prior` of a message from `new_did` (None: a message without `from`).

    Raises Malformed for an invalid JWT, Unauthentic unless the prior DID signed it for exactly this DID, or for none.
    Other claims are not enforced: published vectors carry an `exp` of 1970 and have to verify. `crv` in the header is
    ignored, because a key states its own curve.
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
