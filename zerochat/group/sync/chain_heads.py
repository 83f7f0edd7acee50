"""Chain head digests: two salted bytes per author reveal equivocation between members at equal heights.

Each event names its predecessor by its hash, so a chain's head stands for the whole chain, and equal heights with
different heads mean different histories. Every `sync` carries two bytes per author: a hash over the head and the
message's own id, which no author can predict, so no collision can be prepared. One difference in 65,535 is missed, and
found the next time; equal heads never differ. Unknown and unconfirmed heads are not compared, so only an equivocating
author or a lying member makes honest members differ.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import sha256
from zerochat.group.state import Chain, Group
from zerochat.group.wire.messages import HAVE_MAX

DIGEST_BYTES = 2
UNKNOWN = bytes(DIGEST_BYTES)


def head_digests(group: Group, salt: str, first: int = 0) -> str:
    """The digests of all chain heads for a message with the id `salt`, in the order of `have`, which begins at the
    `first` member; base64url."""
    return b64url(b"".join(_digest(salt, group.chain(did)) for did in islice(group.members_from(first), HAVE_MAX)))


def differing_authors(
    group: Group, member: str, salt: str, have: Sequence[int], digests: str, first: int = 0
) -> Iterator[str]:
    """The authors whose chain differs from ours at equal height, by the digests `digests` of a member's message with
    the id `salt`. The member's own chain is not compared. Raises Malformed."""
    their_digests = b64url_bytes(digests)
    for place, (author, upto) in enumerate(zip(group.members_from(first), have, strict=False)):
        chain = group.chain(author)
        if author == member or upto != chain.seq:
            continue
        our_digest, their_digest = (
            _digest(salt, chain),
            their_digests[place * DIGEST_BYTES : (place + 1) * DIGEST_BYTES],
        )
        if UNKNOWN != our_digest != their_digest != UNKNOWN and len(their_digest) == DIGEST_BYTES:
            yield author


def _digest(salt: str, chain: Chain) -> bytes:
    if chain.confirmed is not None or not chain.confirmed_seq or not chain.head_id:
        return UNKNOWN
    number = int.from_bytes(sha256(f"{salt} {chain.head_id}".encode())[:8], "big")
    return (1 + number % 0xFFFF).to_bytes(DIGEST_BYTES, "big")
