"""Chain head digests: two salted bytes per author reveal equivocation between members at equal heights.

Each event names its predecessor by its hash, so a chain's head stands for the whole chain, and equal heights with
different heads mean different histories. Every `sync` carries two bytes for each author whose position it reports: a
hash over the head and the message's own id, which no author can predict, so no collision can be prepared. One
difference in 65,535 is missed, and found the next time; equal heads never differ. Unknown and unconfirmed heads are not
compared, so only an equivocating author or a lying member makes honest members differ.
"""

from collections.abc import Iterable, Iterator

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import sha256
from zerochat.group.state import Chain, Group

DIGEST_BYTES = 2
UNKNOWN = bytes(DIGEST_BYTES)


def head_digests(group: Group, salt: str, authors: Iterable[str]) -> str:
    """The digests of the heads of these authors' chains for a message with the id `salt`; base64url."""
    chains, prefix = group.log.chains, f"{salt} ".encode()
    known = [chains.get(did) for did in authors]
    return b64url(b"".join([UNKNOWN if chain is None else _digest(prefix, chain) for chain in known]))


def differing_authors(
    group: Group, member: str, salt: str, positions: Iterable[tuple[str, int]], digests: str
) -> Iterator[str]:
    """The authors whose chain differs from ours at equal height, by the digests `digests` of a member's message with
    the id `salt` and these positions. The member's own chain is not compared. Raises Malformed."""
    theirs, chains, prefix = b64url_bytes(digests), group.log.chains, f"{salt} ".encode()
    ends = range(DIGEST_BYTES, len(theirs) + 1, DIGEST_BYTES)
    for (author, upto), end in zip(positions, ends, strict=False):
        chain = chains.get(author)
        if chain is None or upto != chain.seq or author == member:
            continue
        their_digest = theirs[end - DIGEST_BYTES : end]
        if UNKNOWN != their_digest != _digest(prefix, chain) != UNKNOWN:
            yield author


def _digest(prefix: bytes, chain: Chain) -> bytes:
    """`prefix`: the salt and a space."""
    if chain.confirmed is not None or not chain.head_id or not chain.seq or chain.is_unannounced:
        return UNKNOWN
    number = int.from_bytes(sha256(prefix + chain.head_id.encode())[:8], "big")
    return (1 + number % 0xFFFF).to_bytes(DIGEST_BYTES, "big")
