"""The simulator's caches: more documents than an agent keeps, and only within the block."""

import os

from zerochat.didcomm.did import DOCUMENTS_CACHED, new_peer4, resolver
from zerochat.sim.fast_crypto import cached_signatures


def test_documents_of_all_members_are_kept_within_the_block() -> None:
    dids = [new_peer4(os.urandom, []).did for _ in range(DOCUMENTS_CACHED + 1)]
    before = resolver.common_document
    with cached_signatures():
        first = [resolver.resolve(did) for did in dids]
        assert all(resolver.resolve(did) is document for did, document in zip(dids, first, strict=True))
    assert resolver.common_document is before
    assert resolver.resolve(dids[0]) is not first[0], "an agent's own cache is as small as it was"
