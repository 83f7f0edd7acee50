"""The member secrets of an update: a puncturable pseudorandom function (the GGM tree, Goldreich et al. 1986).

The seed is the root of a binary tree, each node gives its two children keys of their own, and each member has a leaf,
in the order of their public keys:

    left child, right child  =  KDF(node)              member secret of X  =  KDF(leaf of X, X)

Every derivation is one-way. To erase the secret of one member, the nodes on the way to its leaf are replaced by their
other children. So an update takes 32 bytes until members adopt it, and never more than 32 for two members.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from msgspec import field
from msgspec.structs import replace

from zerochat.crypto.encoding import did_key_bytes
from zerochat.crypto.primitives import blake2b_keyed
from zerochat.crypto.structs import Redacted
from zerochat.group.key_agreement.key_schedule import KEY_BYTES

TAG_BYTES: Final = 8
"""How a member is named: the beginning of its public key. Two members with the same beginning share a leaf, and the one
that is the first to adopt the update is followed."""
_ROOT: Final = 1
_ORDERS_CACHED: Final = 64


class MemberSecrets(Redacted, frozen=True):
    """What is left of the secrets of one update."""

    REDACTED = ("nodes",)

    order: bytes = b""
    """The members that have leaves, in `TAG_BYTES` each."""
    nodes: dict[int, bytes] = field(default_factory=dict)
    """Keys of the roots of subtrees. The root is 1, the children of node n are 2 n and 2 n + 1."""

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return len(self.order) + KEY_BYTES * len(self.nodes)

    def of(self, member: str) -> bytes:
        """The secret of a member; empty: it is erased, or there never was one."""
        leaf = self._leaf(member)
        top = _holder(self.nodes, leaf)
        return member_key(_descend(self.nodes[top], leaf, _levels(leaf, top)), member) if top else b""

    def holds(self, member: str) -> bool:
        return bool(_holder(self.nodes, self._leaf(member)))

    def without(self, members: Iterable[str]) -> "MemberSecrets":
        """The same without the secrets of these members."""
        nodes = dict(self.nodes)
        for member in members:
            leaf = self._leaf(member)
            if top := _holder(nodes, leaf):
                key = nodes.pop(top)
                for level in reversed(range(_levels(leaf, top))):
                    way = leaf >> level
                    halves = children(key)
                    key = halves[way & 1]
                    if self._has_members(way ^ 1, level):
                        nodes[way ^ 1] = halves[way & 1 ^ 1]
        if nodes.keys() == self.nodes.keys():
            return self
        return replace(self, nodes=nodes) if nodes else MemberSecrets()

    @property
    def _first_leaf(self) -> int:
        return 1 << (len(self.order) // TAG_BYTES - 1).bit_length()

    def _leaf(self, member: str) -> int:
        """The leaf of a member; 0: it has none."""
        tag = did_key_bytes(member)[:TAG_BYTES]
        count = len(self.order) // TAG_BYTES
        at = bisect_left(range(count), tag, key=self._tag)
        return self._first_leaf + at if at < count and self._tag(at) == tag else 0

    def _tag(self, at: int) -> bytes:
        return self.order[TAG_BYTES * at : TAG_BYTES * (at + 1)]

    def _has_members(self, node: int, level: int) -> bool:
        """Whether there are leaves of members below a node, so many levels above the leaves."""
        return (node << level) - self._first_leaf < len(self.order) // TAG_BYTES


def secrets_of(seed: bytes, members: frozenset[str]) -> MemberSecrets:
    """The secrets of an update with this seed for these members."""
    return MemberSecrets(_order(members), {_ROOT: seed})


def children(key: bytes) -> tuple[bytes, bytes]:
    """The keys of the two children of a node."""
    both = blake2b_keyed(key, b"zerochat/node", length=2 * KEY_BYTES)
    return both[:KEY_BYTES], both[KEY_BYTES:]


def member_key(leaf: bytes, member: str) -> bytes:
    """The secret of a member with this leaf."""
    return blake2b_keyed(leaf, b"zerochat/member", member.encode())


@lru_cache(maxsize=_ORDERS_CACHED)
def _order(members: frozenset[str]) -> bytes:
    return b"".join(sorted(did_key_bytes(member)[:TAG_BYTES] for member in members))


def _holder(nodes: Mapping[int, bytes], leaf: int) -> int:
    """The node above a leaf, or the leaf, whose key is there; 0: there is none."""
    while leaf and leaf not in nodes:
        leaf >>= 1
    return leaf


def _levels(leaf: int, top: int) -> int:
    return leaf.bit_length() - top.bit_length()


def _descend(key: bytes, leaf: int, levels: int) -> bytes:
    for level in reversed(range(levels)):
        key = children(key)[leaf >> level & 1]
    return key
