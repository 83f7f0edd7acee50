"""Zstandard (RFC 8878) for what is about to be encrypted, and with limits for what comes from others.

Only ever over one author's own words: compressing a secret together with what an attacker chose would tell the secret
by its length.
"""

import zstandard

from zerochat.errors import Malformed

LEVEL = 3
WINDOW_BYTES_MAX = 1 << 20


def compress(data: bytes) -> bytes:
    """One frame, which says how long its content is."""
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)


def decompress(data: bytes, size_max: int) -> bytes:
    """The content of one frame that says of itself that it has at most `size_max` bytes, and holds exactly these.

    Raises Malformed for whatever else, before it takes more memory than that: a few bytes can stand for gigabytes.
    """
    try:
        parameters = zstandard.get_frame_parameters(data)
        if (
            not 0 <= parameters.content_size <= size_max
            or parameters.dict_id
            or parameters.window_size > max(WINDOW_BYTES_MAX, size_max)
        ):
            raise Malformed(why="compressed data of a size that nobody here takes")
        # Into a buffer of the size that was claimed, and not one byte more.
        content = zstandard.ZstdDecompressor(max_window_size=max(WINDOW_BYTES_MAX, size_max)).decompress(
            data, allow_extra_data=False
        )
    except zstandard.ZstdError:
        raise Malformed(why="compressed data that is damaged") from None
    if len(content) != parameters.content_size:
        raise Malformed(why="compressed data of another size than it claims")
    return content
