"""A Merkle tree over the parts of a file (RFC 6962, section 2.1): each part is verified when it comes.

With the root and the number of parts, a part can be verified at its position by one hash for each level of the tree. So
a wrong part spoils nothing, and parts may come from several members.
"""

from collections.abc import Sequence

from zerochat.crypto.primitives import sha256

PART_BYTES = 22 * 1024
"""The size of all parts but the last: with its path, as base64 in JSON, a part fits a padded message of 32 KiB; on a
slow line a chat message does not wait long behind it."""
PATH_MAX = 16
"""Levels of the tree above the parts of the largest file."""


def parts_in(size: int) -> int:
    """The number of parts of a file of this many bytes."""
    return -(-size // PART_BYTES)


def part_size(size: int, number: int) -> int:
    """The bytes of the part with this number (from 0), in a file of `size` bytes."""
    return min(PART_BYTES, size - number * PART_BYTES)


def leaf(part: bytes) -> bytes:
    """The hash of one part."""
    return sha256(b"\x00" + part)


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\x01" + left + right)


def levels_over(leaves: Sequence[bytes]) -> list[list[bytes]]:
    """The hashes of the parts, of pairs of them, and so on up to the root. A node without a neighbour is promoted
    unchanged, which is equivalent to RFC 6962's split at the largest power of two."""
    levels = [list(leaves)]
    while len(levels[-1]) > 1:
        below = levels[-1]
        pairs = [_node(below[place], below[place + 1]) for place in range(0, len(below) - 1, 2)]
        levels.append(pairs + below[len(pairs) * 2 :])
    return levels


def path_in(levels: Sequence[Sequence[bytes]], number: int) -> tuple[bytes, ...]:
    """The audit path from the part with this number to the root, bottom up."""
    path = []
    for level in levels[:-1]:
        if number ^ 1 < len(level):
            path.append(level[number ^ 1])
        number //= 2
    return tuple(path)


def leads_to(root: bytes, part: bytes, number: int, parts: int, path: Sequence[bytes]) -> bool:
    """Whether this is the part with this number, of `parts`, of the file with this root."""
    if not 0 <= number < parts:
        return False
    found, left = leaf(part), list(path)
    while parts > 1:
        if number ^ 1 < parts:
            if not left:
                return False
            other = left.pop(0)
            found = _node(other, found) if number & 1 else _node(found, other)
        number, parts = number // 2, (parts + 1) // 2
    return not left and found == root
