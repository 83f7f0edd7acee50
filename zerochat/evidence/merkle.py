"""Merkle tree of a transparency log: roots and inclusion proofs (RFC 6962 §2.1).

Leaves and inner nodes have different hash prefixes (domain separation).
"""

from collections.abc import Iterable, Sequence

from msgspec import Struct

from zerochat.crypto.primitives import sha256
from zerochat.errors import Unauthentic

HASH_BYTES = 32
HASHES_MAX = 63
"""Hashes in an inclusion proof, for at most 2**63 entries."""
EMPTY_ROOT = sha256(b"")


def leaf_hash(entry: bytes) -> bytes:
    return sha256(b"\x00" + entry)


def node_hash(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right)


class Frontier(Struct, frozen=True):
    """Compact state of a log: its size and the roots of its complete subtrees (Merkle mountain range), the largest
    first; one per set bit of the size."""

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
    """An append-only tree that stores every complete node: about 64 bytes per entry."""

    def __init__(self, entries: Iterable[bytes] = ()) -> None:
        self._levels: list[list[bytes]] = [[]]
        """Hashes of complete subtrees by height, from the left."""
        for entry in entries:
            self.append(entry)

    def __len__(self) -> int:
        return len(self._levels[0])

    def append(self, entry: bytes) -> int:
        """Append an entry; return its index from 0."""
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
        """Inclusion proof of entry `index` in the first `size` entries, bottom up (RFC 6962 §2.1.1)."""
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
        """The hash of the subtree over a non-empty range of entries."""
        count = end - start
        if count & (count - 1) == 0 and start % count == 0:
            return self._levels[count.bit_length() - 1][start // count]
        middle = start + _split(count)
        return node_hash(self._hash(start, middle), self._hash(middle, end))


def _split(count: int) -> int:
    """Entries in the left subtree: the largest power of two below `count`."""
    return 1 << (count - 1).bit_length() - 1


def root_of_inclusion(entry: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes:
    """The root of a tree of `size` entries implied by an inclusion proof (RFC 9162 §2.1.3.2). Raises Unauthentic for an
    invalid proof."""
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


def path_length(index: int, size: int) -> int:
    """Hashes in the inclusion proof of entry `index` in a tree of `size` entries: those within the smallest subtree
    that also has the last entry, and the left siblings above it."""
    within = (index ^ (size - 1)).bit_length()
    return within + (index >> within).bit_count()


def range_proof(first: Sequence[bytes], last: Sequence[bytes], begin: int, end: int, size: int) -> list[bytes]:
    """The subtrees outside of the entries `begin` to `end` (exclusive), from left to right: what `range_paths` needs
    beside these entries. `first`, `last`: the inclusion proofs of the first and the last of them."""
    left = [one for one, is_left in zip(first, _sides(begin, size), strict=True) if is_left]
    return left[::-1] + [one for one, is_left in zip(last, _sides(end - 1, size), strict=True) if not is_left]


def _sides(index: int, size: int) -> list[bool]:
    """Whether each hash of an inclusion proof is a left sibling, bottom up."""
    start, end, sides = 0, size, []
    while end - start > 1:
        middle = start + _split(end - start)
        sides.append(index >= middle)
        start, end = (middle, end) if index >= middle else (start, middle)
    return sides[::-1]


def range_paths(
    entries: Sequence[bytes], begin: int, size: int, proof: Sequence[bytes] = ()
) -> tuple[bytes, list[bytes]]:
    """The root of a tree of `size` entries that has these from `begin` on, and the inclusion proof of each, its hashes
    joined. `proof`: as of `range_proof`; none for a whole tree. Raises Unauthentic for a proof of another length."""
    stop, rest, nodes = begin + len(entries), iter(proof), dict[tuple[int, int], bytes]()

    def node(start: int, end: int) -> bytes:
        if end <= begin or start >= stop:
            found = next(rest)
        elif end - start == 1:
            found = leaf_hash(entries[start - begin])
        else:
            middle = start + _split(end - start)
            found = node_hash(node(start, middle), node(middle, end))
        nodes[start, end] = found
        return found

    def descend(start: int, end: int, above: bytes) -> None:
        if end - start == 1:
            paths.append(above)
            return
        middle = start + _split(end - start)
        if begin < middle:
            descend(start, middle, nodes[middle, end] + above)
        if middle < stop:
            descend(middle, end, nodes[start, middle] + above)

    paths = list[bytes]()
    try:
        root = node(0, size)
    except StopIteration:
        raise Unauthentic() from None
    if next(rest, None) is not None:
        raise Unauthentic()
    descend(0, size, b"")
    return root, paths
