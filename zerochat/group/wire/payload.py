"""Payloads for several recipients: compressed if that reaches a smaller padding size, then padded.

size (4) | kind (1) | content | zeros, up to a size of `padding.py`
"""

from zerochat.crypto.compression import compress, decompress
from zerochat.errors import Malformed
from zerochat.group.wire.padding import BUCKET_BYTES_MIN, padded_size

CONTENT_BYTES_MAX = 256 * 1024
_SIZE_BYTES = 4
_PLAIN, _ZSTD = b"\0", b"\1"
_HEAD_BYTES = _SIZE_BYTES + len(_PLAIN)
_HOPELESS = range(360, 2 * BUCKET_BYTES_MIN - _HEAD_BYTES + 1)
"""Contents of these sizes fit the second padding size and would have to shrink by three tenths for the first: rarely
possible, and a try costs a fifth of a signature."""


def is_worth_compressing(size: int) -> bool:
    """Whether compression is tried for a content of this size."""
    return padded_size(_HEAD_BYTES + size) > BUCKET_BYTES_MIN and size not in _HOPELESS


def encode_payload(plain: bytes) -> bytes:
    """The padded encoding of this content, of at most `CONTENT_BYTES_MAX` bytes."""
    kind, content, size = _PLAIN, plain, padded_size(_HEAD_BYTES + len(plain))
    if is_worth_compressing(len(plain)):
        packed = compress(plain)
        if (smaller := padded_size(_HEAD_BYTES + len(packed))) < size:
            kind, content, size = _ZSTD, packed, smaller
    head = (len(kind) + len(content)).to_bytes(_SIZE_BYTES, "big")
    return (head + kind + content).ljust(size, b"\0")


def decode_payload(padded: bytes) -> bytes:
    """The content of a padded encoding. Raises Malformed."""
    end = _SIZE_BYTES + int.from_bytes(padded[:_SIZE_BYTES], "big")
    if not _HEAD_BYTES <= end <= len(padded) or padded[end:] != bytes(len(padded) - end):
        raise Malformed(why="content of a wrong size")
    kind, content = padded[_SIZE_BYTES:_HEAD_BYTES], padded[_HEAD_BYTES:end]
    if kind == _PLAIN:
        return content
    if kind == _ZSTD:
        return decompress(content, CONTENT_BYTES_MAX)
    raise Malformed(why="content of an unknown kind")
