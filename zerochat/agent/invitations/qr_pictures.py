"""Invitations as pictures of their QR codes: found in a picture that somebody has, and drawn into one.

Reading needs two packages that not everybody wants (`pictures` among the extras); drawing needs none: a PNG of black
and white squares is a header, the rows through zlib, and three checksums.
"""

import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from zerochat.agent.files import thumbnail_decoder
from zerochat.errors import LocalError
from zerochat.terminal_text import qr_modules

SUFFIXES = frozenset([".png", ".jpg", ".jpeg", ".gif", ".webp"])
PICTURE_BYTES_MAX = 32 * 1024 * 1024
SIDE_MAX = 2_000
"""Pixels that a picture is made smaller to: enough for a code that fills a fifth of it."""
CODES_MAX = 16
PATH_CHARS_MAX = 4_096
SQUARE_PIXELS = 8
"""Of one square of a code in a picture of ours: large enough to be read off a screen by a phone."""


class NoReader(LocalError):
    """Reading a code off a picture needs two more packages: `pip install pillow zxing-cpp` into zerochat's environment.
    Or paste the link that came with the picture."""

    exit_code: ClassVar[int] = 2


class NoPicture(LocalError):
    """{path} cannot be read as a picture: {why}."""

    exit_code: ClassVar[int] = 2


class NoCodeThere(LocalError):
    """No QR code can be found in {path}. Take the picture from nearer and straight on, with all of the white margin; or
    paste the link."""

    exit_code: ClassVar[int] = 2


def picture_path(text: str) -> Path | None:
    """The picture whose path somebody has pasted, typed or dropped onto a terminal; None: it is something else."""
    text = text.strip()
    if not text or len(text) > PATH_CHARS_MAX or "\n" in text or "\0" in text:
        return None
    if text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    elif text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif "\\ " in text:  # what terminals make of a space when a file is dropped onto them
        text = text.replace("\\ ", " ")
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES:
        return None
    try:
        path = path.expanduser()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None


def read_code(path: Path) -> str:
    """What the QR codes in a picture say, a line each, the likely invitations alone where there are some. Blocks for as
    long as reading takes. Raises NoReader, NoPicture, NoCodeThere.

    The picture is decoded in the process that all pictures are: somebody may have sent it for another end.
    """
    try:
        import zxingcpp
    except ImportError:
        raise NoReader from None
    width, height, grey = _decoded(path)
    picture = memoryview(grey).cast("B", (height, width))
    found = zxingcpp.read_barcodes(picture, formats=zxingcpp.BarcodeFormats(zxingcpp.BarcodeFormat.QRCode))
    texts = list(dict.fromkeys(code.text.strip() for code in found[:CODES_MAX] if code.text.strip()))
    ours = [text for text in texts if text.upper().startswith("ZC:") or "_oob" in text]
    if not texts:
        raise NoCodeThere(path=path)
    return "\n".join(ours or texts)


def _decoded(path: Path) -> tuple[int, int, bytes]:
    """Its width, its height, and a byte for each pixel."""
    try:
        with path.open("rb") as file:
            content = file.read(PICTURE_BYTES_MAX + 1)
    except OSError as error:
        raise NoPicture(path=path, why=error.strerror or "the disk says no") from None
    if len(content) > PICTURE_BYTES_MAX:
        raise NoPicture(path=path, why=f"it has more than {PICTURE_BYTES_MAX >> 20} MiB")
    command = [sys.executable, "-I", thumbnail_decoder.__file__, str(SIDE_MAX), str(SIDE_MAX)]
    try:
        done = subprocess.run(
            command,
            input=content,
            capture_output=True,
            timeout=3 * thumbnail_decoder.CPU_S,
            env={},
            cwd="/",
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoPicture(path=path, why="it takes too long") from None
    if done.returncode == thumbnail_decoder.NO_PILLOW:
        raise NoReader
    width, height = int.from_bytes(done.stdout[:2]), int.from_bytes(done.stdout[2:4])
    if done.returncode or not width or len(done.stdout) != 4 + width * height * 3:
        raise NoPicture(path=path, why="it is no JPEG, PNG, GIF or WebP picture, or a damaged or enormous one")
    return width, height, done.stdout[5::3]  # of red, green and blue the green: a code is black and white


def code_png(text: str) -> bytes:
    """A picture of the QR code of `text`, as a PNG file. Raises ValueError where it fits no code."""
    squares = qr_modules(text)
    side = len(squares) * SQUARE_PIXELS
    rows = bytearray()
    for row in squares:
        bits = "".join("01"[not dark] * SQUARE_PIXELS for dark in row)
        line = b"\0" + int(bits.ljust(-(-side // 8) * 8, "0"), 2).to_bytes(-(-side // 8), "big")
        rows += line * SQUARE_PIXELS

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 1, 0, 0, 0, 0)  # one bit each, grey
    end = chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(rows), 9)) + end
