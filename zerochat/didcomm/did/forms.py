"""DID equality: a did:peer:4 has a long form (with its document) and a short form (its hash); a did:peer:3 is the hash
of a did:peer:2.

Comparisons are frequent, so results are cached. The long form is kept verbatim, because the hash covers its encoded
text.

Specified in: did:peer (decentralized-identity/peer-did-method-spec, numalgo 3 and 4).
"""

from functools import lru_cache

from zerochat.crypto.encoding import SHA2_256, base58
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed

DID_CHARS_MAX = 4096
"""A did:peer:4 with two keys and two services has about 900 characters."""
PEER2, PEER3 = "did:peer:2", "did:peer:3"
PIN = " "
"""Between a DID and its document in a pinned DID (`pinned.py`); no DID contains it."""
PINNED_METHODS = ("did:web:", "did:peer:1", "did:sov:")
FORMS_CACHED = 512
"""More than an agent's peers; at most 2 MiB of text."""


def check_size(did: str) -> None:
    """Raise Malformed for a DID that is too long or not ASCII."""
    if len(did) > DID_CHARS_MAX or not did.isascii():
        raise Malformed(why="a DID that is too long, or not ASCII")


@lru_cache(maxsize=FORMS_CACHED)
def short_form(did: str) -> str:
    """The short form of a did:peer:4, or of a pinned DID; any other DID unchanged.

    Raises Malformed for a long form whose hash does not match its document.
    """
    if did.startswith(PINNED_METHODS):
        did = did.partition(PIN)[0]
    check_size(did)
    if not did.startswith("did:peer:4"):
        return did
    digest, colon, encoded = did[len("did:peer:4") :].partition(":")
    if colon and digest != peer4_hash(encoded):
        raise Malformed(why="a did:peer:4 whose hash is not that of its document")
    return "did:peer:4" + digest


def same_did(one: str, other: str) -> bool:
    """Whether two DIDs are equal, or the long and short form of one did:peer:4, or a did:peer:2 and its did:peer:3."""
    if one == other or short_form(one) == short_form(other):
        return True
    return PEER3 in (one[: len(PEER3)], other[: len(PEER3)]) and peer3_of(one) == peer3_of(other)


@lru_cache(maxsize=FORMS_CACHED)
def peer3_of(did: str) -> str:
    """The did:peer:3 of a did:peer:2, which may be used once the peer knows the latter; any other DID unchanged."""
    if not did.startswith(PEER2):
        return did
    return PEER3 + "z" + base58(SHA2_256 + sha256(did.removeprefix(PEER2).encode()))


def peer4_hash(encoded: str) -> str:
    """The multibase multihash of an encoded did:peer:4 document."""
    return "z" + base58(SHA2_256 + sha256(encoded.encode()))
