"""What was pasted and is no word or two: the question what to do with it, and keys that come like a paste.

A terminal that knows bracketed paste says what was pasted; one that does not sends it as keys, with Enter between the
lines. Nobody types that fast, so such an Enter begins a line and sends nothing.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from textual.content import Content

from zerochat.agent.schema import AttachParams, Sent
from zerochat.terminal import Printable, printable, printable_line
from zerochat.tui.conversation import TEXT_BYTES_MAX, TEXT_CHARS_MAX
from zerochat.tui.hints import NO_GROUP, silenced
from zerochat.tui.paths import path_of

if TYPE_CHECKING:
    from zerochat.tui.board import Board
    from zerochat.tui.conversation import Conversation

LINES_ASKED = 5
"""More lines than these are asked about."""
PATH_CHARS_MAX = 4_096
PICTURES = {".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp", ".heic", ".avif", ".tiff", ".svg"}
BURST_S = 0.004
"""Keys that are read with less between them were not pressed one after the other: they came in one piece."""
HELD_S = 0.02
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


# --- the question -----------------------------------------------------------------------------------------------------


def ask(chat: "Board", text: str) -> None:
    """Ask what to do with `text`, which is as it was pasted."""
    from zerochat.tui.pick import Pick

    path = file_of(text)
    if path is not None:
        title = printable_line(f"The path of {Path(path).name} was pasted.")
        choices = [("file", "Send the file"), ("edit", "Put the path into the text")]
    else:
        count, size = lines_of(text), len(text.encode(errors="replace"))
        title = Printable(f"{count:,} line{'s' * (count > 1)} {'were' if count > 1 else 'was'} pasted: {size:,} bytes.")
        choices = []
        if size <= TEXT_BYTES_MAX and not chat.composer.text:
            choices.append(("send", "Send as one message"))
        choices.append(("file", "Send as a file"))
        if len(text) <= TEXT_CHARS_MAX:
            choices.append(("edit", "Edit first"))
    choices.append(("", "Cancel"))

    def chosen(what: str | None) -> None:
        chat.composer.focus()
        if what == "send":
            chat.submit_text(shown(text.rstrip("\n")))
        elif what == "edit":
            chat.composer.insert_pasted(text)
        elif what == "file":
            _send_file(chat, path, text)

    chat.app.push_screen(Pick(title, [(key, Content(words)) for key, words in choices]), chosen)


def _send_file(chat: "Board", path: str | None, text: str) -> None:
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
    elif why := silenced(conversation.info, conversation.members):
        chat.complain(why)
    else:
        chat.attempt(_attach(chat, conversation, path, text))


async def _attach(chat: "Board", conversation: "Conversation", path: str | None, text: str) -> None:
    """The agent has a copy of its own when it answers."""
    made: Path | None = None
    try:
        if path is None:
            try:
                made = written(text)
            except OSError as error:
                chat.complain(printable_line(f"Not sent: {(error.strerror or str(error)).lower()}."))
                return
        await chat.link.ask("attach", AttachParams(conversation.info.id, [path or str(made)]), Sent)
    finally:
        if made is not None:
            forget(made)


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
