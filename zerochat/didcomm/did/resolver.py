"""From a DID to its document. The methods read here carry it inside, so nothing is ever looked up anywhere.

Documents are kept, as many and as large as fit a bound: every message names two DIDs, and reading one costs as much as
opening an envelope.
"""

from collections.abc import Mapping
from functools import lru_cache

from zerochat.didcomm.did import key, peer2, peer4
from zerochat.didcomm.did.document import Document
from zerochat.didcomm.did.forms import check_size, short_form
from zerochat.errors import Malformed

DOCUMENTS_CACHED = 512
"""More than one agent has peers."""
COMMON_CHARS_MAX = 1536
"""Most DIDs are shorter: ours have about 900 characters."""
LARGE_DOCUMENTS_CACHED = 64
"""JSON that is made to be large in memory grows some thirtyfold, so all that is kept stays under some 30 MB even when
every peer is hostile."""


def resolve(did: str, known: Mapping[str, str] | None = None) -> Document:
    """The document of a DID. Raises Malformed.

    The short form of a did:peer:4 is looked up in `known`, which has the long forms by the short ones. A document need
    not have keys for every use, nor any at all.
    """
    if known is not None and did in known:
        long = known[did]
        if short_form(long) != did:
            raise Malformed(why="a long form that belongs to another DID")
        did = long
    return _common(did) if len(did) <= COMMON_CHARS_MAX else _large(did)


def _read(did: str) -> Document:
    check_size(did)
    if did.startswith(peer4.PREFIX):
        return peer4.resolve_peer4(did)
    if did.startswith(peer2.PREFIX):
        return peer2.resolve_peer2(did)
    for prefix in ("did:key:", "did:peer:0"):
        if did.startswith(prefix):
            return key.resolve_key(did, did[len(prefix) :])
    raise Malformed(why="a DID of a method that cannot be read here")


_common = lru_cache(maxsize=DOCUMENTS_CACHED)(_read)
_large = lru_cache(maxsize=LARGE_DOCUMENTS_CACHED)(_read)
