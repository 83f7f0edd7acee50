"""Small versions of pictures, for terminals: decoded in a process of its own (`decoder.py`), with limits."""

import sys
from collections.abc import Iterable
from typing import Final

from zerochat.agent.files import thumbnail_decoder
from zerochat.agent.files.thumbnail_decoder import CPU_S, NO_PILLOW
from zerochat.errors import LocalError

PICTURE_BYTES_MAX: Final = 24 << 20
"""What is larger is saved and looked at with something else."""
SIDE_MAX: Final = 240
"""Pixels: two stand above each other in each cell of a terminal. With that many it is a third of a line of the control
socket."""


class NoDecoder(LocalError):
    """Showing pictures here needs one more package: `pip install pillow` into zerochat's environment. Or save the
    file and open it with something else."""


class NoPictureHere(LocalError):
    """{name} cannot be shown here: {why}. It can be saved, and opened with something else."""


def small_picture(name: str, size: int, parts: Iterable[bytes], width: int, height: int) -> tuple[int, int, bytes]:
    """Its width, its height, and three bytes for each pixel; not larger than was asked for.

    Raises NoDecoder, NoPictureHere, or whatever the parts do.
    """
    import subprocess  # which nobody loads who is shown no picture

    if size > PICTURE_BYTES_MAX:
        raise NoPictureHere(name=name, why=f"it has more than {PICTURE_BYTES_MAX >> 20} MiB")
    asked = [str(max(1, min(side, SIDE_MAX))) for side in (width, height)]
    command = [sys.executable, "-I", thumbnail_decoder.__file__, *asked]
    try:
        done = subprocess.run(
            command, input=b"".join(parts), capture_output=True, timeout=3 * CPU_S, env={}, cwd="/", check=False
        )
    except subprocess.TimeoutExpired:
        raise NoPictureHere(name=name, why="it takes too long") from None
    if done.returncode == NO_PILLOW:
        raise NoDecoder
    found = done.stdout
    wide, high = int.from_bytes(found[:2]), int.from_bytes(found[2:4])
    fits = 0 < wide <= int(asked[0]) and 0 < high <= int(asked[1]) and len(found) == 4 + wide * high * 3
    if done.returncode or not fits:
        raise NoPictureHere(name=name, why="it is no JPEG, PNG, GIF or WebP picture, or a damaged or enormous one")
    return wide, high, found[4:]
