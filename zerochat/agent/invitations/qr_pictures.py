"""QR codes in picture files: reads invitations from pictures, and writes them as PNG.

Reading needs two optional packages (the extra `pictures`). Writing needs none: a PNG of black and white squares is a
header, zlib-compressed rows and checksums.
"""

import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import ClassVar
from urllib.parse import unquote, urlsplit

from zerochat.agent.files import thumbnail_decoder
from zerochat.agent.storage.paths import user_path
from zerochat.errors import LocalError
from zerochat.qr import qr_modules

SUFFIXES = frozenset([".png", ".jpg", ".jpeg", ".gif", ".webp"])
PICTURE_BYTES_MAX = 32 * 1024 * 1024
SIDE_MAX = 2_000
"""Pixels of the scaled picture: enough for a code that fills a fifth of it."""
CODES_MAX = 16
PATH_CHARS_MAX = 4_096
SQUARE_PIXELS = 8
"""Pixels per module of a code: large enough for a phone to read it from a screen."""


class NoReader(LocalError):
    """Reading a QR code needs two more packages: run `pip install pillow zxing-cpp` in zerochat's environment. Or paste
    the link that came with the picture."""

    exit_code: ClassVar[int] = 2


class NoPicture(LocalError):
    """Cannot read the picture {path}: {why}."""

    exit_code: ClassVar[int] = 2


class NoCodeThere(LocalError):
    """No QR code found in {path}. Take the picture closer and straight on, with the whole white margin; or paste the
    link."""

    exit_code: ClassVar[int] = 2


def picture_path(text: str) -> Path | None:
    """The path of a picture that was pasted, typed or dropped onto the terminal, whether it can be read or not; None:
    not a picture path."""
    text = text.strip()
    if not text or len(text) > PATH_CHARS_MAX or "\n" in text or "\0" in text:
        return None
    if text[0] in "'\"" and text[-1] == text[0]:
        text = text[1:-1]
    elif text.startswith("file://"):
        text = unquote(urlsplit(text).path)
    elif "\\ " in text:  # terminals escape spaces in dropped paths
        text = text.replace("\\ ", " ")
    path = Path(text)
    if path.suffix.lower() not in SUFFIXES or "://" in text:
        return None
    return user_path(path)


def read_code(path: Path) -> str:
    """The texts of the QR codes in a picture, one per line; only likely invitations, if there are any. Blocks. Raises
    NoReader, NoPicture or NoCodeThere.

    The picture is decoded in the sandboxed process (`thumbnail_decoder.py`), because it is untrusted.
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
    """Width, height, and one byte per pixel."""
    try:
        with path.open("rb") as file:
            content = file.read(PICTURE_BYTES_MAX + 1)
    except OSError as error:
        raise NoPicture(path=path, why=error.strerror or "the file cannot be read") from None
    if len(content) > PICTURE_BYTES_MAX:
        raise NoPicture(path=path, why=f"it is larger than {PICTURE_BYTES_MAX >> 20} MiB")
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
        raise NoPicture(path=path, why="decoding it takes too long") from None
    if done.returncode == thumbnail_decoder.NO_PILLOW:
        raise NoReader
    width, height = int.from_bytes(done.stdout[:2]), int.from_bytes(done.stdout[2:4])
    if done.returncode or not width or len(done.stdout) != 4 + width * height * 3:
        raise NoPicture(path=path, why="it is not a JPEG, PNG, GIF or WebP picture, or it is damaged or too large")
    return width, height, done.stdout[5::3]  # the green channel is enough for black and white


def code_png(text: str) -> bytes:
    """A PNG file with the QR code of `text`. Raises ValueError when the text is too long for a code."""
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
