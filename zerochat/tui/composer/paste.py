"""What was pasted: how much it is, whether a file was meant, and a file to send it as; and keys that come like a paste.

A terminal that knows bracketed paste says what was pasted; one that does not sends it as keys, with Enter between the
lines. Nobody types that fast, so such an Enter begins a line and sends nothing.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from zerochat.terminal_text import Printable, printable
from zerochat.tui.composer.paths import path_of
from zerochat.tui.state.conversation import TEXT_BYTES_MAX, TEXT_CHARS_MAX

LINES_ASKED = 5
"""More lines than these are asked about."""
PATH_CHARS_MAX = 4_096
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".heic", ".avif", ".tiff", ".svg"}
BURST_S = 0.004
"""Keys that are read with less between them were not pressed one after the other: they came in one piece."""
BURST_GOES_ON_S = 0.15
"""Less than that between two keys, and what came so with an Enter in it goes on: a paste comes in pieces, and a busy
machine reads them late."""
HELD_S = 0.1
"""How long Enter behind such keys waits for more of them."""


def lines_of(text: str) -> int:
    return text.rstrip("\n").count("\n") + 1


def unified(text: str) -> str:
    """With one kind of line ends."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def shown(text: str) -> Printable:
    """As the composer takes it."""
    return printable(text, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX)


def is_long(text: str) -> bool:
    """Whether it may be more than somebody meant to say."""
    return lines_of(text) > LINES_ASKED or len(text.encode(errors="replace")) > TEXT_BYTES_MAX


def file_of(text: str) -> str | None:
    """The file that was meant by a path, as a terminal writes it that a file is dropped on: one with file:// before it,
    or a picture's."""
    text = text.strip()
    if "\n" in text or len(text) > PATH_CHARS_MAX or not text.startswith(("file://", "/", "~/", "'", '"')):
        return None
    try:
        path = Path(path_of(text))
        there = path.is_file()
    except (OSError, ValueError, RuntimeError):
        return None
    return str(path) if there and (text.startswith("file://") or path.suffix.lower() in PICTURES) else None


# --- files for a moment -----------------------------------------------------------------------------------------------


def written(text: str, name: str = "pasted.txt") -> Path:
    """A file with this text in a folder of its own, in memory where the system has a place for that; only this user may
    read either. `forget` it afterwards."""
    place = os.environ.get("XDG_RUNTIME_DIR") or None
    folder = Path(tempfile.mkdtemp(prefix="zerochat-", dir=place if place and os.access(place, os.W_OK) else None))
    path = folder / name
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    except BaseException:
        forget(path)
        raise
    return path


def forget(path: Path) -> None:
    """Overwrite what is in the folder of `path`, and remove it: an editor may have put copies beside the file."""
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
