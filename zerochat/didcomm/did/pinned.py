"""Pinned DIDs: a DID whose document has come from elsewhere, and that document as it was then.

did:web has its document on a server, which nothing here asks again: our user's agent reads it once, with the
invitation. did:peer:1 and did:sov have come with theirs in a DID exchange. It is stored with the DID, as a did:peer:4
has its document in its long form. The short form is the DID.
Only `pin` makes such a text. What peers send is resolved by `resolve`, which refuses it: otherwise a peer could bring
another document for the DID of someone else.
"""

from functools import lru_cache
from typing import Any, Final

from zerochat.crypto.encoding import b64url, b64url_bytes, compact_json, strict_json
from zerochat.didcomm.did.document import Document, read_document
from zerochat.didcomm.did.forms import PIN, PINNED_METHODS, check_size
from zerochat.didcomm.did.resolver import resolve
from zerochat.errors import Malformed

DOCUMENT_BYTES_MAX: Final = 64 * 1024
PINNED_BYTES_MAX: Final = 16 * 1024
"""Of the parts of a document that are used."""
_USED: Final = ("verificationMethod", "publicKey", "keyAgreement", "authentication", "service")


def pin(did: str, document: bytes) -> str:
    """The DID with its document in JSON. Raises Malformed."""
    check_size(did)
    if not did.startswith(PINNED_METHODS) or PIN in did:
        raise Malformed(why="a DID of a method whose documents are not stored")
    tree = strict_json(document, DOCUMENT_BYTES_MAX)
    if not isinstance(tree, dict) or tree.get("id") != did:
        raise Malformed(why="the document of another DID")
    used: dict[str, Any] = {name: tree[name] for name in _USED if name in tree}
    read_document(did, used)
    text = compact_json(used)
    if len(text) > PINNED_BYTES_MAX:
        raise Malformed(why="a DID document that is too long")
    return did + PIN + b64url(text)


def resolve_pinned(did: str) -> Document:
    """The document of a DID that we have stored, pinned or not. Never for a DID as a peer sends it. Raises
    Malformed."""
    return _read(did) if PIN in did else resolve(did)


@lru_cache(maxsize=64)
def _read(pinned: str) -> Document:
    did, _, text = pinned.partition(PIN)
    return read_document(did, strict_json(b64url_bytes(text), PINNED_BYTES_MAX))
