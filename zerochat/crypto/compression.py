"""Bounded Zstandard compression (RFC 8878) of plaintexts.

Compress one author's data only: compressing a secret together with attacker-chosen data leaks the secret through the
length (CRIME).
"""

import zstandard

from zerochat.errors import Malformed

LEVEL, SMALL_LEVEL = 3, 1
"""The second level is for short texts, where the first saves almost nothing and takes a quarter longer."""
WINDOW_BYTES_MAX = 1 << 20
SMALL_BYTES_MAX = 4 * 1024
"""Limit for reusing a compressor. Creating one takes longer than compressing a short text; one that compressed longer
texts would retain more than 100 kB."""


_COMPRESSORS: list[zstandard.ZstdCompressor] = []
_DECOMPRESSORS: list[zstandard.ZstdDecompressor] = []
"""Pools of idle contexts; a context belongs to the caller that popped it, so no two threads share one."""


def _compressor(level: int) -> zstandard.ZstdCompressor:
    return zstandard.ZstdCompressor(level=level, write_content_size=True)


def compress(data: bytes) -> bytes:
    """One Zstandard frame with its content size."""
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
    """The content of a single frame that declares at most `size_max` bytes and contains exactly as many.

    Raises Malformed for any other input, before allocating more than `size_max` (decompression bombs).
    """
    try:
        parameters = zstandard.get_frame_parameters(data)
        if (
            not 0 <= parameters.content_size <= size_max
            or parameters.dict_id
            or parameters.window_size > max(WINDOW_BYTES_MAX, size_max)
        ):
            raise Malformed(why="compressed data of an unacceptable size")
        # The buffer has exactly the declared size.
        content = _decompressed(data, size_max)
    except zstandard.ZstdError:
        raise Malformed(why="compressed data that is damaged") from None
    if len(content) != parameters.content_size:
        raise Malformed(why="compressed data that differs from its declared size")
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
