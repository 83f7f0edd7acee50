"""The process that decodes one picture of somebody else's: `python -I decoder.py WIDTH HEIGHT`.

Decoders of pictures are large, and what comes here was chosen by somebody else, perhaps to break one. So each picture
gets a process of its own, with little memory and time, that may write no file, open nothing more (no file, no socket)
and start no other process; the agent, its keys and its sockets are elsewhere. Whatever it takes is loaded before that,
and all of it holds before any byte is decoded. It ends with 0 and the pixels (width and height in two bytes each, then
three bytes for each pixel), or with something else.
"""

import resource
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

MEMORY_BYTES: Final = 1 << 29
CPU_S: Final = 10
PIXELS_MAX: Final = 40_000_000
"""More than phones' cameras make; a picture that unfolds into more is a bomb."""
FORMATS: Final = ("JPEG", "PNG", "GIF", "WEBP")
"""What people send each other. The others of Pillow's fifty decoders are not even asked."""
LOADED: Final = (
    "copy",
    "PIL.ImageColor",
    "PIL.ImagePalette",
    "PIL.MpoImagePlugin",
    "PIL.TiffImagePlugin",
    "PIL.WebPImagePlugin",
)
"""What Pillow would load when it meets certain pictures, and cannot any more by then: a phone's JPEG may be an MPO with
the tags of TIFF."""
NO_PILLOW: Final = 3


def main() -> int:
    try:
        from PIL import Image

        for name in LOADED:
            import_module(name)
        Image.preinit()
    except ImportError:
        return NO_PILLOW
    from io import BytesIO

    width, height = map(int, sys.argv[1:3])
    content = sys.stdin.buffer.read()
    for what, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_S),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, 0),  # standard input and output are open
        (resource.RLIMIT_NPROC, 0),  # root's processes are not counted
    ):
        with suppress(ValueError, OSError):  # macOS does not know how to limit memory
            resource.setrlimit(what, (most, most))
    Image.MAX_IMAGE_PIXELS = PIXELS_MAX
    with Image.open(BytesIO(content), formats=FORMATS) as picture:
        if picture.width * picture.height > PIXELS_MAX:
            return 1
        picture.draft("RGB", (width, height))
        small = picture.convert("RGBA")
        small.thumbnail((width, height))
        ground = Image.new("RGBA", small.size, (128, 128, 128, 255))
        pixels = Image.alpha_composite(ground, small).convert("RGB")
    head = pixels.width.to_bytes(2) + pixels.height.to_bytes(2)
    sys.stdout.buffer.write(head + pixels.tobytes())
    return 0


if __name__ == "__main__":
    sys.exit(main())
