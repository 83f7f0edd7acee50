"""Sizes that say little: what is encrypted is first made as long as a few fixed sizes.

CURVE hides what is in a frame but not how long it is, and how long somebody's words are says more than one would think.
Up to 64 KiB the sizes are 256 bytes and its doublings, so that an acknowledgement looks like a short remark; beyond,
where doubling would cost too much, multiples of 16 KiB.
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
