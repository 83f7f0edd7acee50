"""did:key and did:peer:0: a DID that is one public key, written out as a document.

A signing key on the curve of X25519 has a twin to encrypt to, and the twin gets an id of its own; a key on one of
NIST's curves serves for both under one id; a key on secp256k1 only signs.

Specified in: did:key (w3c-ccg, "Document Creation Algorithm"); did:peer, numalgo 0.
"""

from zerochat.crypto.keys import AGREEMENT_KINDS, PublicKey, checked, ed25519_to_x25519, multikey
from zerochat.didcomm.did.document import VERIFYING_KINDS, Document, Method, known_key
from zerochat.errors import Malformed


def did_key_of(key: PublicKey) -> str:
    """The did:key of a public key of any kind."""
    return "did:key:" + multikey(key)


def resolve_key(did: str, text: str) -> Document:
    """The document of a DID that holds nothing but the multikey `text`. Raises Malformed."""
    key = known_key(text)
    if key is None:
        raise Malformed(why=f"a {did[:8]} of a type that cannot be read here")
    checked(key)
    method = Method(f"{did}#{text}", key)
    agreement = (method,) if key.kind in AGREEMENT_KINDS else ()
    if key.kind == "Ed25519":
        twin = ed25519_to_x25519(key)
        agreement = (Method(f"{did}#{multikey(twin)}", twin),)
    return Document(did, agreement, (method,) if key.kind in VERIFYING_KINDS else (), ())
