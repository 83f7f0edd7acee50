"""Padding: plaintexts are padded to a few fixed sizes before encryption, to hide their lengths.

CURVE does not hide lengths. Up to 4 KiB the sizes are powers of two from 256 bytes. Beyond, each doubling has four
steps, because an initial TCP flight has about 14 KB (RFC 6928) and whole doublings would cost round trips in a joiner's
welcome. From 128 KiB on the sizes are multiples of 16 KiB.

A lone acknowledgement is still recognisable: it lists every chain and the endpoints, so it takes the third size or a
larger one, a short post the first or second. Making them equal would double the cost of each post and hide nothing,
since the two use different sockets.
"""

BUCKET_BYTES_MIN = 256
DOUBLED_BYTES_MAX = 4 * 1024
_STEPS, _STEP_BYTES_MAX = 4, 16 * 1024


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
