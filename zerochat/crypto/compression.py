"""Zstandard (RFC 8878) for what is about to be encrypted, and with limits for what comes from others.

Only ever over one author's own words: compressing a secret together with what an attacker chose would tell the secret
by its length.
"""

import zstandard

from zerochat.errors import Malformed

LEVEL, SMALL_LEVEL = 3, 1
"""The second one for short texts, of which the first makes hardly smaller ones, in a quarter more time."""
WINDOW_BYTES_MAX = 1 << 20
SMALL_BYTES_MAX = 4 * 1024
"""Up to here a compressor is used again: to make one takes longer than to compress a remark. One that has seen more
would keep more memory than the hundred kilobytes that it takes for these."""


_COMPRESSORS: list[zstandard.ZstdCompressor] = []
_DECOMPRESSORS: list[zstandard.ZstdDecompressor] = []
"""What nobody uses at present. Whoever takes one out is the only one who has it: none may be in two threads at once."""


def _compressor(level: int) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=level, write_content_size=True)


def compress(data: bytes) -> bytes:
    """One frame, which says how long its content is."""
    if len(data) > SMALL_BYTES_MAX:
        return _compressor(LEVEL).compress(data)
    try:
        compressor = _COMPRESSORS.pop()
    except IndexError:
        compressor = _compressor(SMALL_LEVEL)
    packed = compressor.compress(data)
    _COMPRESSORS.append(compressor)
    return packed


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
        content = _decompressed(data, size_max)
    except zstandard.ZstdError:
        raise Malformed(why="compressed data that is damaged") from None
    if len(content) != parameters.content_size:
        raise Malformed(why="compressed data of another size than it claims")
    return content


def _decompressed(data: bytes, size_max: int) -> bytes:
    if size_max > WINDOW_BYTES_MAX:
        return zstandard.ZstdDecompressor(max_window_size=size_max).decompress(data, allow_extra_data=False)
    try:
        decompressor = _DECOMPRESSORS.pop()
    except IndexError:
        decompressor = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    content = decompressor.decompress(data, allow_extra_data=False)
    _DECOMPRESSORS.append(decompressor)
    return content
