"""Keys that two members share: static X25519 of the DIDs of their relationship, for one purpose, author and reader.

They change with every rotation of a DID. Both members know the key, so what one has made with it, the other could have
made for itself.
"""

from collections.abc import Iterator
from functools import lru_cache

from msgspec.structs import replace

from zerochat.crypto.primitives import hkdf_sha256, x25519_static
from zerochat.didcomm.did import Identity, resolve
from zerochat.group.links.relationship import Relationship


@lru_cache(maxsize=8192)
def _pair_key(purpose: str, secret: bytes, public: bytes, group: str, author: str, reader: str) -> bytes:
    shared = x25519_static(secret, public)
    return hkdf_sha256(shared, f"zerochat/{purpose}\n{group}\n{author}\n{reader}".encode())


@lru_cache(maxsize=8192)
def _agreement_key(did: str) -> bytes:
    return next(method.key.data for method in resolve(did).agreement if method.key.kind == "X25519")


def key_to(purpose: str, group: str, me: str, reader: Relationship) -> bytes:
    """Our key towards this member, 32 bytes."""
    secret, public = reader.mine.agreement_secret, _agreement_key(reader.theirs)
    return _pair_key(purpose, secret, public, group, me, reader.member)


def keys_from(purpose: str, group: str, me: str, author: Relationship) -> Iterator[tuple[Identity, bytes]]:
    """The keys that this member may use towards us, by the DID of ours that it has: two of them during a rotation."""
    public = _agreement_key(author.theirs)
    for mine in (author.mine, author.rotation.old) if author.rotation else (author.mine,):
        yield mine, _pair_key(purpose, mine.agreement_secret, public, group, author.member, me)


def confirmed(author: Relationship, mine: Identity) -> Relationship:
    """The relationship after something authentic came under the key of this DID of ours."""
    if mine is author.mine and not (author.acknowledged and author.rotation is None):
        return replace(author, acknowledged=True, rotation=None)  # it was addressed to our present DID
    return author
