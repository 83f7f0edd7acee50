"""Lending the terminal to the person's own editor, for the draft."""

from textual.app import SuspendNotSupported

from zerochat.errors import LocalError
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.chat_view import Board
from zerochat.tui.composer.editor import edited


async def write(chat: Board) -> None:
    """Edit what stands in the composer; it is not sent."""
    await chat.keeper.keep()
    before = chat.composer.text
    try:
        with chat.app.suspend():
            found = _tried(before)  # what is raised in here, Textual never comes back from
    except SuspendNotSupported:
        found = Printable("This terminal cannot be lent to an editor."), before
    trouble, text = found
    if trouble:
        chat.complain(trouble)
    else:
        chat.composer.put(text)
    chat.composer.focus()
    chat.keep_drafts()


def _tried(text: str) -> tuple[Printable, str]:
    """Why it could not be edited, or empty; and what it is then."""
    try:
        return Printable(""), edited(text)
    except LocalError as error:
        return printable_line(error.sentence()), text
