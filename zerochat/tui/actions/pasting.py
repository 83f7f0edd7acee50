"""The question what to do with what was pasted, and what then becomes of it."""

from pathlib import Path

from textual.content import Content

from zerochat.rpc import AttachParams, Sent
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions import sending
from zerochat.tui.chat_view import Board
from zerochat.tui.composer.paste import file_of, forget, lines_of, shown, written
from zerochat.tui.state.conversation import TEXT_BYTES_MAX, TEXT_CHARS_MAX, Conversation
from zerochat.tui.state.hints import NO_GROUP, silenced


def ask(chat: Board, text: str) -> None:
    """Ask what to do with `text`, which is as it was pasted."""
    from zerochat.tui.dialogs.menu import Pick

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
            sending.say(chat, shown(text.rstrip("\n")))
        elif what == "edit":
            chat.composer.insert_pasted(text)
        elif what == "file":
            _send_file(chat, path, text)

    chat.app.push_screen(Pick(title, [(key, Content(words)) for key, words in choices]), chosen)


def _send_file(chat: Board, path: str | None, text: str) -> None:
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
    elif why := silenced(conversation.info, conversation.members):
        chat.complain(why)
    else:
        chat.attempt(_attach(chat, conversation, path, text))


async def _attach(chat: Board, conversation: Conversation, path: str | None, text: str) -> None:
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
