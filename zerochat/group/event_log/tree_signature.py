"""Merkle batch signatures: one signature for all posts of a message, and each of them verifiable by itself.

Wong and Lam, "Digital signatures for flows and multicasts" (1998), tree chaining: the author signs the root of a Merkle
tree (RFC 6962) over the events' ids, and each event has the path to it:

    signed   =  context | number of events | "\\n" | root          in base64url
    leaf     =  an event's id (32)
    `sig`    =  signature (64) | last index (1) | index (1) | path (32 for each level)          in base64url

The number is signed too, so each event has one valid path. A single event keeps the plain form of `Event.signed`: 64
bytes, under another context.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct

from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify
from zerochat.errors import Malformed, Unauthentic
from zerochat.evidence.merkle import HASH_BYTES, path_length, range_paths, range_proof, root_of_inclusion

LEAVES_MAX: Final = 256
"""Events under one signature, as in one message."""
PLAIN_CHARS: Final = 86
"""The form of a single event."""
CHARS_MAX: Final = 430
"""The longest form."""
_CONTEXT: Final = b"zerochat/event-tree/1\n"
_SIGNATURE_BYTES: Final = 64
_HEADER_BYTES: Final = _SIGNATURE_BYTES + 2
_VERIFIED_MAX: Final = 256


class SignedRoot(Struct, frozen=True):
    """The root of a tree of events, with its signature."""

    signature: bytes
    size: int
    """Events: at least two."""
    root: bytes


class Leaf(Struct, frozen=True):
    """The place of an event among those with one signature."""

    root: SignedRoot
    index: int


class TreeSignature(Struct, frozen=True):
    """The signature of one event of several, or of consecutive ones among them."""

    signature: bytes
    size: int
    index: int
    """Of the event, or of the first one."""
    hashes: tuple[bytes, ...]
    """The path from the event to the root; of consecutive events, the subtrees without any of them, from left to
    right."""

    def text(self) -> str:
        """base64url."""
        return b64url(self.signature + bytes((self.size - 1, self.index)) + b"".join(self.hashes))


def parse(text: str) -> TreeSignature:
    """The signature in this text. Raises Malformed."""
    data = b64url_bytes(text)
    if len(data) < _HEADER_BYTES or len(data) % HASH_BYTES != _HEADER_BYTES % HASH_BYTES:
        raise Malformed(why="a signature of a wrong length")
    signature, last, index = data[:_SIGNATURE_BYTES], data[_SIGNATURE_BYTES], data[_SIGNATURE_BYTES + 1]
    if not 0 < last >= index:
        raise Malformed(why="a signature of too few events")
    hashes = [data[at : at + HASH_BYTES] for at in range(_HEADER_BYTES, len(data), HASH_BYTES)]
    return TreeSignature(signature, last + 1, index, tuple(hashes))


def check_form(text: str) -> None:
    """Raise Malformed unless this is a signature of one event among several."""
    found = parse(text)
    if len(found.hashes) != path_length(found.index, found.size):
        raise Malformed(why="a signature with a path of another length")


def leaf_of(text: str, id_: str) -> Leaf:
    """The place of the event with this id and signature. Raises Malformed, or Unauthentic for a path of another
    length."""
    found = parse(text)
    root = root_of_inclusion(b64url_bytes(id_), found.index, found.size, found.hashes)
    return Leaf(SignedRoot(found.signature, found.size, root), found.index)


def sign(seed: bytes, ids: Sequence[str]) -> list[tuple[str, Leaf]]:
    """The signature and the place of each of these events, 2 to `LEAVES_MAX`, with this Ed25519 seed."""
    assert 1 < len(ids) <= LEAVES_MAX
    root, paths = range_paths([b64url_bytes(id_) for id_ in ids], 0, len(ids))
    return _leaves(SignedRoot(ed25519_sign(seed, _signed_bytes(len(ids), root)), len(ids), root), 0, paths)


def _leaves(root: SignedRoot, begin: int, paths: Sequence[bytes]) -> list[tuple[str, Leaf]]:
    header = root.signature + bytes((root.size - 1,))
    return [(b64url(header + bytes((index,)) + path), Leaf(root, index)) for index, path in enumerate(paths, begin)]


def joined(first: str, last: str) -> str:
    """The signature of consecutive events, by those of the first and the last one."""
    one, other = parse(first), parse(last)
    hashes = range_proof(one.hashes, other.hashes, one.index, other.index + 1, one.size)
    return TreeSignature(one.signature, one.size, one.index, tuple(hashes)).text()


def split(text: str, ids: Sequence[str]) -> list[tuple[str, Leaf]]:
    """The signature and the place of each of the consecutive events with these ids (`joined`). Raises Malformed."""
    found = parse(text)
    if found.index + len(ids) > found.size:
        raise Malformed(why="more events than the signature is of")
    try:
        root, paths = range_paths([b64url_bytes(id_) for id_ in ids], found.index, found.size, found.hashes)
    except Unauthentic:
        raise Malformed(why="a signature with too few or too many hashes") from None
    return _leaves(SignedRoot(found.signature, found.size, root), found.index, paths)


@lru_cache(maxsize=_VERIFIED_MAX)
def verify(public: bytes, root: SignedRoot) -> None:
    """Raise Unauthentic unless the signature of this root is valid. Valid ones are cached, so a message costs one
    verification."""
    ed25519_verify(public, _signed_bytes(root.size, root.root), root.signature)


def _signed_bytes(size: int, root: bytes) -> bytes:
    return _CONTEXT + f"{size}\n{b64url(root)}".encode()
