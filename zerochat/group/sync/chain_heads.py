"""Whether two members who have an author's chain up to the same place have the same chain.

Each event names the one before it by its hash, so the id of the last one stands for all that leads up to it, and equal
heights with different ids mean different histories. Each `sync` says two bytes for each author: of a hash over the id
and the id of the message itself, which no author can foresee, so nobody can make two events that look the same here. A
difference is overlooked once in 65,535 times, and then not the next time; what is equal never looks different. Authors
of whom the one or the other does not know the last id are not compared, nor those whose last word somebody else has
handed over: so nothing else than an author with two histories, or a member who lies, can make honest members differ.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import sha256
from zerochat.group.state import Chain, Group
from zerochat.group.wire.messages import HAVE_MAX

TIP_BYTES = 2
UNKNOWN = bytes(TIP_BYTES)


def tips(group: Group, salt: str) -> str:
    """What a message with the id `salt` says of all chains, in the order of `have`; base64url."""
    return b64url(b"".join(_short(salt, group.chain(did)) for did in islice(group.view.members, HAVE_MAX)))


def differing(group: Group, member: str, salt: str, have: Sequence[int], told: str) -> Iterator[str]:
    """The authors of whom a member with our view has something else than we up to the same place: by what its message
    with the id `salt` has `told` of their chains. Of itself it may say what it likes. Raises Malformed."""
    theirs = b64url_bytes(told)
    for place, (author, upto) in enumerate(zip(group.view.members, have, strict=False)):
        chain = group.chain(author)
        if author == member or upto != chain.seq:
            continue
        mine, their = _short(salt, chain), theirs[place * TIP_BYTES : (place + 1) * TIP_BYTES]
        if UNKNOWN != mine != their != UNKNOWN and len(their) == TIP_BYTES:
            yield author


def _short(salt: str, chain: Chain) -> bytes:
    if chain.own is not None or not chain.sure or not chain.tip:
        return UNKNOWN
    number = int.from_bytes(sha256(f"{salt} {chain.tip}".encode())[:8], "big")
    return (1 + number % 0xFFFF).to_bytes(TIP_BYTES, "big")
