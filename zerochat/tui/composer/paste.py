"""Pasting: size and path checks, temporary files, timing constants of burst detection.

A terminal without bracketed paste sends a paste as keys, with Enter between the lines. Keys at that speed are treated
as a paste: their Enter inserts a newline.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from zerochat.terminal_text import Printable, printable
from zerochat.tui.composer.paths import path_of
from zerochat.tui.state.conversation import TEXT_BYTES_MAX, TEXT_CHARS_MAX

LINES_MAX = 5
"""A paste with more lines opens a dialog."""
PATH_CHARS_MAX = 4_096
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".heic", ".avif", ".tiff", ".svg"}
BURST_S = 0.004
"""Keys closer together than this were not typed."""
BURST_PAUSE_S = 0.15
"""A shorter pause continues a burst: pastes arrive in pieces, and a busy machine reads them late."""
ENTER_HOLD_S = 0.1
"""How long Enter at the end of a burst waits for more keys."""


def lines_of(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


def normalise_newlines(text: str) -> str:
    """The text with \n line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def composer_text(text: str) -> Printable:
    """The text as the composer accepts it."""
    return printable(text, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX)


def is_long(text: str) -> bool:
    """Whether the paste is long enough to ask before inserting it."""
    return lines_of(text) > LINES_MAX or len(text.encode(errors="replace")) > TEXT_BYTES_MAX


def file_of(text: str) -> str | None:
    """The path of a file dropped on the terminal (a file:// URL, or a picture); None: not such a path."""
    text = text.strip()
    if "\n" in text or len(text) > PATH_CHARS_MAX or not text.startswith(("file://", "/", "~/", "'", '"')):
        return None
    try:
        path = Path(path_of(text))
        there = path.is_file()
    except (OSError, ValueError, RuntimeError):
        return None
    return str(path) if there and (text.startswith("file://") or path.suffix.lower() in PICTURES) else None


# --- temporary files --------------------------------------------------------------------------------------------------


def write_temporary(text: str, name: str = "pasted.txt") -> Path:
    """A file with this text in a private folder, in memory where the system offers that. `erase` it afterwards."""
    place = os.environ.get("XDG_RUNTIME_DIR") or None
    folder = Path(tempfile.mkdtemp(prefix="zerochat-", dir=place if place and os.access(place, os.W_OK) else None))
    path = folder / name
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except BaseException:
        erase(path)
        raise
    return path


def erase(path: Path) -> None:
    """Overwrite and remove the whole folder of `path`: an editor may have written copies there."""
    for each in [*path.parent.iterdir()] if path.parent.is_dir() else []:
        try:
            if each.is_file() and not each.is_symlink():
                with each.open("r+b") as file:
                    file.write(bytes(each.stat().st_size))
                    file.flush()
                    os.fsync(file.fileno())
            each.unlink()
        except OSError:
            continue
    with suppress(OSError):
        path.parent.rmdir()
