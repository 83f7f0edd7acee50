"""Thumbnails for terminals, decoded in a sandboxed process (`thumbnail_decoder.py`)."""

import sys
from collections.abc import Iterable
from typing import Final

from zerochat.agent.files import thumbnail_decoder
from zerochat.agent.files.thumbnail_decoder import CPU_S, NO_PILLOW
from zerochat.errors import LocalError

PICTURE_BYTES_MAX: Final = 24 << 20
"""Largest picture file that is decoded."""
SIDE_MAX: Final = 240
"""Largest side in pixels; a terminal cell shows two pixels. The result takes a third of a line of the control
socket."""


class NoDecoder(LocalError):
    """Showing pictures needs one more package: run `pip install pillow` in zerochat's environment. Or save the file and
    open it with another program."""


class NoPictureHere(LocalError):
    """{name} cannot be shown here: {why}. Save it, and open it with another program."""


def small_picture(name: str, size: int, parts: Iterable[bytes], width: int, height: int) -> tuple[int, int, bytes]:
    """Width, height, and three bytes per pixel, within the requested size.

    Raises NoDecoder, NoPictureHere, or what iterating over `parts` raises.
    """
    import subprocess  # rarely needed

    if size > PICTURE_BYTES_MAX:
        raise NoPictureHere(name=name, why=f"it is larger than {PICTURE_BYTES_MAX >> 20} MiB")
    asked = [str(max(1, min(side, SIDE_MAX))) for side in (width, height)]
    command = [sys.executable, "-I", thumbnail_decoder.__file__, *asked]
    try:
        done = subprocess.run(
            command, input=b"".join(parts), capture_output=True, timeout=3 * CPU_S, env={}, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        raise NoPictureHere(name=name, why="decoding it takes too long") from None
    if done.returncode == NO_PILLOW:
        raise NoDecoder
    found = done.stdout
    wide, high = int.from_bytes(found[:2]), int.from_bytes(found[2:4])
    fits = 0 < wide <= int(asked[0]) and 0 < high <= int(asked[1]) and len(found) == 4 + wide * high * 3
    if done.returncode or not fits:
        raise NoPictureHere(name=name, why="it is not a JPEG, PNG, GIF or WebP picture, or it is damaged or too large")
    return wide, high, found[4:]
