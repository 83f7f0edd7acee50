"""Sandboxed picture decoder process: `python -I thumbnail_decoder.py WIDTH HEIGHT`.

Picture decoders are large, and pictures are untrusted. So each is decoded in its own process, with limits on memory and
CPU time, which cannot write or open files, open sockets or start processes. All modules are loaded, and all limits set,
before any byte is decoded. The process exits with 0 and writes the pixels (width and height in two bytes each, then
three bytes per pixel), or exits with another code.
"""

import resource
import sys
from contextlib import suppress
from importlib import import_module
from typing import Final

MEMORY_BYTES: Final = 1 << 29
CPU_S: Final = 10
PIXELS_MAX: Final = 40_000_000
"""More than phone cameras have; larger pictures are decompression bombs."""
FORMATS: Final = ("JPEG", "PNG", "GIF", "WEBP")
"""Supported formats; Pillow's other fifty decoders are disabled."""
LOADED: Final = (
    "copy",
    "PIL.ImageColor",
    "PIL.ImagePalette",
    "PIL.MpoImagePlugin",
    "PIL.TiffImagePlugin",
    "PIL.WebPImagePlugin",
)
"""Modules that Pillow imports lazily for certain pictures, which the sandbox prevents: a phone's JPEG may be an MPO
with TIFF tags."""
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
