"""Sizes that say little: what is encrypted is first made as long as a few fixed sizes.

CURVE hides what is in a frame but not how long it is, and how long somebody's words are says more than one would think.
Up to 4 KiB the sizes are 256 bytes and its doublings. Beyond, each doubling has four steps: a flight of TCP is some 14
KB at first (RFC 6928), and what whole doublings would add to a newcomer's welcome costs it round trips on a wide-area
line. From 128 KiB on the sizes are multiples of 16 KiB.

An acknowledgement that goes alone is known by its size all the same: it names how far one has everybody's chain and
where one is reached, so it fits the third size or a later one, where a short remark fits the first or second. To make
these alike would double what each remark costs and hide nothing, since the two go over different sockets.
"""

BUCKET_BYTES_MIN = 256
DOUBLED_BYTES_MAX = 4 * 1024
_STEPS, _STEP_BYTES_MAX = 4, 16 * 1024


def bucket(size: int) -> int:
    """The size to which `size` bytes are padded."""
    doubled = 1 << (size - 1).bit_length()
    if size <= DOUBLED_BYTES_MAX:
        return max(BUCKET_BYTES_MIN, doubled)
    step = min(doubled // (2 * _STEPS), _STEP_BYTES_MAX)
    return -(-size // step) * step


def pad(plain: bytes) -> bytes:
    """A JSON text with spaces behind it, which mean nothing in JSON (RFC 8259, section 2)."""
    return plain.ljust(bucket(len(plain)))
