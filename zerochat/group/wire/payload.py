"""What is encrypted for several at once: compressed where it becomes shorter by that once it is padded, and padded.

size (4) | kind (1) | content | zeros, up to a size of `padding.py`
"""

from zerochat.crypto.compression import compress, decompress
from zerochat.errors import Malformed
from zerochat.group.wire.padding import BUCKET_BYTES_MIN, bucket

CONTENT_BYTES_MAX = 256 * 1024
_SIZE_BYTES = 4
_PLAIN, _ZSTD = b"\0", b"\1"
_HEAD_BYTES = _SIZE_BYTES + len(_PLAIN)
_HOPELESS = range(360, 2 * BUCKET_BYTES_MIN - _HEAD_BYTES + 1)
"""What has so many bytes fits the second size, and would have to lose three tenths for the first. So short a text
hardly ever does, and to try takes as long as a fifth of a signature."""


def may_shrink(size: int) -> bool:
    """Whether it is tried to compress a content of so many bytes."""
    return bucket(_HEAD_BYTES + size) > BUCKET_BYTES_MIN and size not in _HOPELESS


def filled(plain: bytes) -> bytes:
    """This content, at most `CONTENT_BYTES_MAX` of it, as it is encrypted."""
    kind, content, size = _PLAIN, plain, bucket(_HEAD_BYTES + len(plain))
    if may_shrink(len(plain)):
        packed = compress(plain)
        if (smaller := bucket(_HEAD_BYTES + len(packed))) < size:
            kind, content, size = _ZSTD, packed, smaller
    head = (len(kind) + len(content)).to_bytes(_SIZE_BYTES, "big")
    return (head + kind + content).ljust(size, b"\0")


def emptied(padded: bytes) -> bytes:
    """The content again. Raises Malformed."""
    end = _SIZE_BYTES + int.from_bytes(padded[:_SIZE_BYTES], "big")
    if not _HEAD_BYTES <= end <= len(padded) or padded[end:] != bytes(len(padded) - end):
        raise Malformed(why="content of another size than it says")
    kind, content = padded[_SIZE_BYTES:_HEAD_BYTES], padded[_HEAD_BYTES:end]
    if kind == _PLAIN:
        return content
    if kind == _ZSTD:
        return decompress(content, CONTENT_BYTES_MAX)
    raise Malformed(why="content of an unknown kind")
