"""The tree over the entries of a log, as RFC 6962 §2.1 draws it: who has its root can be shown that an entry is in it.

Leaves and inner nodes are hashed with different first bytes, so that neither passes for the other.
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from zerochat.crypto.primitives import sha256
from zerochat.errors import Unauthentic

HASH_BYTES = 32
HASHES_MAX = 63
"""In one proof: a tree of more than 2**63 entries is none."""
EMPTY_ROOT = sha256(b"")


def leaf_hash(entry: bytes) -> bytes:
    return sha256(b"\x00" + entry)


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right)


class Frontier(Struct, frozen=True):
    """What somebody has to remember of a log to follow it: its length, and the roots of the complete subtrees side by
    side, the largest first; at most one for each bit of the length."""

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    def with_entry(self, entry: bytes) -> "Frontier":
        node, peaks, size = leaf_hash(entry), list(self.peaks), self.size
        while size & 1:
            node, size = node_hash(peaks.pop(), node), size >> 1
        return Frontier(self.size + 1, (*peaks, node))

    def root(self) -> bytes:
        if not self.peaks:
            return EMPTY_ROOT
        *others, node = self.peaks
        for peak in reversed(others):
            node = node_hash(peak, node)
        return node


class Tree:
    """A tree that entries are added to. It keeps a hash for each node that is complete: some 64 bytes an entry."""

    def __init__(self, entries: Iterable[bytes] = ()) -> None:
        self._levels: list[list[bytes]] = [[]]
        """By height: the hashes of the complete subtrees, from the left."""
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, entry: bytes) -> int:
        """Add an entry. Returns its index, counted from 0."""
        node = leaf_hash(entry)
        for height in range(64):
            if height == len(self._levels):
                self._levels.append([])
            level = self._levels[height]
            level.append(node)
            if len(level) % 2:
                break
            node = node_hash(level[-2], level[-1])
        return len(self) - 1

    def root(self, size: int | None = None) -> bytes:
        """The root over the first `size` entries (all); 32 bytes."""
        size = len(self) if size is None else size
        assert 0 <= size <= len(self)
        return self._hash(0, size) if size else EMPTY_ROOT

    def inclusion(self, index: int, size: int | None = None) -> list[bytes]:
        """The hashes that lead from entry `index` to the root over the first `size` entries, from below (§2.1.1)."""
        start, end = 0, len(self) if size is None else size
        assert 0 <= index < end <= len(self)
        path = []
        while end - start > 1:
            middle = start + _split(end - start)
            if index < middle:
                path.append(self._hash(middle, end))
                end = middle
            else:
                path.append(self._hash(start, middle))
                start = middle
        return path[::-1]

    def _hash(self, start: int, end: int) -> bytes:
        """The hash of the subtree over these entries, of which there is at least one."""
        count = end - start
        if count & (count - 1) == 0 and start % count == 0:
            return self._levels[count.bit_length() - 1][start // count]
        middle = start + _split(count)
        return node_hash(self._hash(start, middle), self._hash(middle, end))


def _split(count: int) -> int:
    """How many of so many entries stand on the left: the largest power of two below."""
    return 1 << (count - 1).bit_length() - 1


def root_from(entry: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root of a tree of `size` entries in which the proof puts this one at `index` (RFC 9162 §2.1.3.2). Raises
    Unauthentic where the proof is none."""
    if not 0 <= index < size or len(path) > HASHES_MAX or any(len(one) != HASH_BYTES for one in path):
        raise Unauthentic()
    place, last, node = index, size - 1, leaf_hash(entry)
    for other in path:
        if last == 0:
            raise Unauthentic()
        if place & 1 or place == last:
            node = node_hash(other, node)
            while not place & 1 and place:
                place, last = place >> 1, last >> 1
        else:
            node = node_hash(node, other)
        place, last = place >> 1, last >> 1
    if last:
        raise Unauthentic()
    return node
