"""What is encrypted for several at once: compressed where that is shorter, and padded.

size (4) | kind (1) | content | zeros, up to a size of `padding.py`
"""

from zerochat.crypto.compression import compress, decompress
from zerochat.errors import Malformed
from zerochat.group.wire.padding import BUCKET_BYTES_MIN, bucket

CONTENT_BYTES_MAX = 256 * 1024
_SIZE_BYTES = 4
_PLAIN, _ZSTD = b"\0", b"\1"


def filled(plain: bytes) -> bytes:
    """This content, at most `CONTENT_BYTES_MAX` of it, as it is encrypted."""
    content = _PLAIN + plain
    if _SIZE_BYTES + len(content) > BUCKET_BYTES_MIN:  # what is shorter would not become smaller
        content = min(content, _ZSTD + compress(plain), key=len)
    content = len(content).to_bytes(_SIZE_BYTES, "big") + content
    return content.ljust(bucket(len(content)), b"\0")


def emptied(padded: bytes) -> bytes:
    """The content again. Raises Malformed."""
    end = _SIZE_BYTES + int.from_bytes(padded[:_SIZE_BYTES], "big")
    content = padded[_SIZE_BYTES:end]
    if len(padded) <= _SIZE_BYTES or len(padded) < end or not content or padded[end:].strip(b"\0"):
        raise Malformed(why="content of another size than it says")
    match content[:1]:
        case kind if kind == _PLAIN:
            return content[1:]
        case kind if kind == _ZSTD:
            return decompress(content[1:], CONTENT_BYTES_MAX)
    raise Malformed(why="content of an unknown kind")
