"""The dialog for a long paste or a dropped file: send as a message or file, or edit."""

from pathlib import Path

from textual.content import Content

from zerochat.agent.storage.paths import path_to_wire
from zerochat.rpc import SendFilesParams, Sent
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions import sending
from zerochat.tui.chat_view import ChatView
from zerochat.tui.composer.paste import composer_text, erase, file_of, lines_of, write_temporary
from zerochat.tui.state.conversation import TEXT_BYTES_MAX, TEXT_CHARS_MAX, Conversation
from zerochat.tui.state.hints import NO_GROUP, why_read_only


def choose(chat: ChatView, text: str) -> None:
    """Ask what to do with the raw pasted `text`."""
    from zerochat.tui.dialogs.menu import MenuDialog

    path = file_of(text)
    if path is not None:
        title = printable_line(f"You pasted the path of {Path(path).name}.")
        store = [("file", "Send the file"), ("edit", "Insert the path as text")]
    else:
        count, size = lines_of(text), len(text.encode(errors="replace"))
        title = Printable(f"You pasted {count:,} line{'s' * (count > 1)} ({size:,} bytes).")
        store = []
        if size <= TEXT_BYTES_MAX and not chat.composer.text:
            store.append(("send", "Send as one message"))
        store.append(("file", "Send as a file"))
        if len(text) <= TEXT_CHARS_MAX:
            store.append(("edit", "Edit before sending"))
    store.append(("", "Cancel"))

    def chosen(what: str | None) -> None:
        chat.composer.focus()
        if what == "send":
            sending.send(chat, composer_text(text.rstrip("\n")))
        elif what == "edit":
            chat.composer.insert_pasted(text)
        elif what == "file":
            _send_file(chat, path, text)

    chat.app.push_screen(MenuDialog(title, [(key, Content(words)) for key, words in store]), chosen)


def _send_file(chat: ChatView, path: str | None, text: str) -> None:
    conversation = chat.conversations.open
    if conversation is None:
        chat.report_error(NO_GROUP)
    elif why := why_read_only(conversation.info, conversation.members.myself):
        chat.report_error(why)
    else:
        chat.run_request(_attach(chat, conversation, path, text))


async def _attach(chat: ChatView, conversation: Conversation, path: str | None, text: str) -> None:
    """Send a file. The agent has its own copy when it responds, so the temporary file can go."""
    made: Path | None = None
    try:
        if path is None:
            try:
                made = write_temporary(text)
            except OSError as error:
                chat.report_error(printable_line(f"Not sent: {(error.strerror or str(error)).lower()}."))
                return
        await chat.link.request(
            "send_files", SendFilesParams(conversation.info.id, [path_to_wire(path or str(made))]), Sent
        )
    finally:
        if made is not None:
            erase(made)
