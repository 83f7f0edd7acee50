"""Sizes that say little: what is encrypted is first made as long as a few fixed sizes.

CURVE hides what is in a frame but not how long it is, and how long somebody's words are says more than one would think.
Up to 64 KiB the sizes are 256 bytes and its doublings; beyond, where doubling would cost too much, multiples of 16 KiB.

An acknowledgement that goes alone is known by its size all the same: it names how far one has everybody's chain and
where one is reached, so it fits the third size or a later one, where a short remark fits the first or second. To make
these alike would double what each remark costs and hide nothing, since the two go over different sockets.
"""

BUCKET_BYTES_MIN = 256
BUCKET_BYTES_MAX = 64 * 1024
_STEP_BYTES = 16 * 1024


def bucket(size: int) -> int:
    """The size to which `size` bytes are padded."""
    if size > BUCKET_BYTES_MAX:
        return -(-size // _STEP_BYTES) * _STEP_BYTES
    return max(BUCKET_BYTES_MIN, 1 << (size - 1).bit_length())


def pad(plain: bytes) -> bytes:
    """A JSON text with spaces behind it, which mean nothing in JSON (RFC 8259, section 2)."""
    return plain.ljust(bucket(len(plain)))
