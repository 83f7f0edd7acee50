"""Padding: plaintexts are padded to a few fixed sizes before encryption, to hide their lengths.

CURVE does not hide lengths. Up to 4 KiB the sizes are powers of two from 256 bytes. Beyond, each doubling has four
steps, because an initial TCP flight has about 14 KB (RFC 6928) and whole doublings would cost round trips in a joiner's
welcome. From 128 KiB on the sizes are multiples of 16 KiB.

A lone acknowledgement is still recognisable: it lists every chain and the endpoints, so it takes the third size or a
larger one, a short post the first or second. Making them equal would double the cost of each post and hide nothing,
since the two use different sockets.

A payload for several recipients is compressed first, if that reaches a smaller size:

    size (4) | kind (1) | content | zeros
"""

from zerochat.crypto.compression import compress, decompress
from zerochat.errors import Malformed

BUCKET_BYTES_MIN = 256
DOUBLED_BYTES_MAX = 4 * 1024
_STEPS, _STEP_BYTES_MAX = 4, 16 * 1024
CONTENT_BYTES_MAX = 256 * 1024
_SIZE_BYTES = 4
_PLAIN, _ZSTD = b"\0", b"\1"
_HEAD_BYTES = _SIZE_BYTES + len(_PLAIN)
_HOPELESS = range(360, 2 * BUCKET_BYTES_MIN - _HEAD_BYTES + 1)
"""Contents of these sizes fit the second padding size and would have to shrink by three tenths for the first: rarely
possible, and a try costs a fifth of a signature."""


def padded_size(size: int) -> int:
    """The size to which `size` bytes are padded."""
    doubled = 1 << (size - 1).bit_length()
    if size <= DOUBLED_BYTES_MAX:
        return max(BUCKET_BYTES_MIN, doubled)
    step = min(doubled // (2 * _STEPS), _STEP_BYTES_MAX)
    return -(-size // step) * step


def pad(plain: bytes) -> bytes:
    """A JSON text padded with spaces, which JSON ignores (RFC 8259, section 2)."""
    return plain.ljust(padded_size(len(plain)))


# --- payloads for several recipients ----------------------------------------------------------------------------------


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
