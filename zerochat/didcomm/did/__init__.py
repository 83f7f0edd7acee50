"""DIDs: creates did:peer:4 and did:peer:2; resolves those, did:peer:0 and did:key.

All of them are self-contained: resolution needs no network. The documents of some others are stored with them
(`pinned.py`).
"""

from zerochat.didcomm.did.document import (
    KEYS_MAX,
    SERVICES_MAX,
    Document,
    Method,
    Service,
    key_names,
    read_document,
)
from zerochat.didcomm.did.forms import DID_CHARS_MAX, peer3_of, same_did, short_form
from zerochat.didcomm.did.identity import (
    AGREEMENT_FRAGMENT,
    AUTHENTICATION_FRAGMENT,
    SECOND_AGREEMENT_FRAGMENT,
    Identity,
    new_peer2,
    new_peer4,
)
from zerochat.didcomm.did.peer2 import peer2
from zerochat.didcomm.did.peer4 import peer4, peer4_document
from zerochat.didcomm.did.pinned import pin, resolve_pinned
from zerochat.didcomm.did.resolver import DOCUMENTS_CACHED, did_key_of, resolve

__all__ = [
    "AGREEMENT_FRAGMENT",
    "AUTHENTICATION_FRAGMENT",
    "DID_CHARS_MAX",
    "DOCUMENTS_CACHED",
    "KEYS_MAX",
    "SECOND_AGREEMENT_FRAGMENT",
    "SERVICES_MAX",
    "Document",
    "Identity",
    "Method",
    "Service",
    "did_key_of",
    "key_names",
    "new_peer2",
    "new_peer4",
    "peer2",
    "peer3_of",
    "peer4",
    "peer4_document",
    "pin",
    "read_document",
    "resolve",
    "resolve_pinned",
    "same_did",
    "short_form",
]
