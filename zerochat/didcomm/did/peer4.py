"""did:peer:4: a DID document encoded in the DID (long form), and its hash (short form).

Specified in: did:peer (decentralized-identity/peer-did-method-spec, numalgo 4).
"""

from functools import lru_cache

from zerochat.crypto.encoding import JSON, base58, base58_bytes, strict_json
from zerochat.didcomm.did.document import Document, read_document
from zerochat.didcomm.did.forms import DID_CHARS_MAX, peer4_hash, short_form
from zerochat.errors import Malformed

PREFIX = "did:peer:4"
DOCUMENTS_CACHED = 128
"""A join sends and receives every member's DID without its base58; at most 512 kB of DIDs."""


@lru_cache(maxsize=DOCUMENTS_CACHED)
def peer4(document: bytes) -> str:
    """The long form of a did:peer:4; the hash covers the exact bytes of the document."""
    encoded = "z" + base58(JSON + document)
    return f"{PREFIX}{peer4_hash(encoded)}:{encoded}"


@lru_cache(maxsize=DOCUMENTS_CACHED)
def peer4_document(did: str) -> bytes:
    """The document bytes of a long form; inverse of `peer4`. Raises Malformed."""
    encoded = did[len(short_form(did)) + 1 :]
    if not encoded.startswith("z"):
        raise Malformed(why="the short form of a did:peer:4 with an unknown long form")
    data = base58_bytes(encoded[1:], DID_CHARS_MAX)
    if not data.startswith(JSON):
        raise Malformed(why="a did:peer:4 that is not JSON")
    return data[len(JSON) :]


def resolve_peer4(did: str) -> Document:
    """The document of a did:peer:4 in its long form. Raises Malformed."""
    return read_document(did, strict_json(peer4_document(did), DID_CHARS_MAX))
