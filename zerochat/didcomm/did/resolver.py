"""DID resolution with a bounded cache; did:key and did:peer:0, whose DID is a single public key.

All methods are self-contained, so resolution needs no network. Documents are cached because every message names two
DIDs, and parsing a document costs as much as opening an envelope.

An Ed25519 key also yields an X25519 key for agreement with its own id; a NIST curve key serves both uses under one id;
a secp256k1 key only signs (did:key, w3c-ccg, "Document Creation Algorithm"; did:peer, numalgo 0).
"""

from collections.abc import Callable, Mapping
from functools import lru_cache

from zerochat.crypto.keys import AGREEMENT_KINDS, PublicKey, checked, ed25519_to_x25519, multikey
from zerochat.didcomm.did import peer2, peer4
from zerochat.didcomm.did.document import VERIFYING_KINDS, Document, Method, known_key
from zerochat.didcomm.did.forms import check_size, short_form
from zerochat.errors import Malformed

DOCUMENTS_CACHED = 512
"""More than an agent's peers."""
COMMON_CHARS_MAX = 1536
"""Most DIDs are shorter: own ones have about 900 characters."""
LARGE_DOCUMENTS_CACHED = 64
"""JSON can expand thirtyfold in memory, so this bounds the cache to about 30 MB with hostile peers."""


def resolve(did: str, known: Mapping[str, str] | None = None) -> Document:
    """The document of a DID. Raises Malformed.

    `known`: long forms by short forms, for the short form of a did:peer:4. A document may lack keys for some uses.
    """
    if known is not None and did in known:
        long = known[did]
        if short_form(long) != did:
            raise Malformed(why="a long form that belongs to another DID")
        did = long
    return common_document(did) if len(did) <= COMMON_CHARS_MAX else _large(did)


def did_key_of(key: PublicKey) -> str:
    """The did:key of a public key of any kind."""
    return "did:key:" + multikey(key)


def resolve_key(did: str, text: str) -> Document:
    """The document of a DID that consists of the multikey `text`. Raises Malformed."""
    key = known_key(text)
    if key is None:
        raise Malformed(why=f"a {did[:8]} of an unsupported type")
    checked(key)
    method = Method(f"{did}#{text}", key)
    agreement = (method,) if key.kind in AGREEMENT_KINDS else ()
    if key.kind == "Ed25519":
        agreement_key = ed25519_to_x25519(key)
        agreement = (Method(f"{did}#{multikey(agreement_key)}", agreement_key),)
    return Document(did, agreement, (method,) if key.kind in VERIFYING_KINDS else (), ())


def _read(did: str) -> Document:
    check_size(did)
    if did.startswith(peer4.PREFIX):
        return peer4.resolve_peer4(did)
    if did.startswith(peer2.PREFIX):
        return peer2.resolve_peer2(did)
    for prefix in ("did:key:", "did:peer:0"):
        if did.startswith(prefix):
            return resolve_key(did, did[len(prefix) :])
    raise Malformed(why="a DID of an unsupported method")


_common = lru_cache(maxsize=DOCUMENTS_CACHED)(_read)
_large = lru_cache(maxsize=LARGE_DOCUMENTS_CACHED)(_read)
common_document: Callable[[str], Document] = _common
"""The document of a DID of at most COMMON_CHARS_MAX characters; the simulator, where one process has all members, puts
a larger cache here. Raises Malformed."""
