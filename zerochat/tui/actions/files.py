"""Files in the chat: sending one, and fetching and saving those that came with messages."""

from collections.abc import Callable, Sequence
from pathlib import Path

from textual.content import Content

from zerochat.presentation.files import line, name_words, parts, standing_words
from zerochat.rpc import (
    Attachment,
    AttachParams,
    FileInfo,
    FileList,
    FileParams,
    FilesParams,
    Picture,
    PictureParams,
    Saved,
    SaveParams,
    Sent,
)
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions.target import message_meant
from zerochat.tui.chat_view import Board
from zerochat.tui.composer.paths import path_of
from zerochat.tui.messages.row import Row
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.hints import NO_GROUP, silenced

NO_FILES = "No file came with this message."
NO_PICTURE = "No picture came with this message."


# --- sending ----------------------------------------------------------------------------------------------------------


def send(chat: Board, rest: str) -> None:
    """`/send PATH`: what the composer's text answers is answered by the file."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return
    if why := silenced(conversation.info, conversation.members):
        chat.complain(why)
        return
    if not rest:
        chat.complain(Printable("/send takes the path of a file, which Tab completes: /send ~/photo.jpg"))
        return
    path, about = path_of(rest), chat.about
    reply_to = about.id if about is not None and about.kind == "reply" else None

    reading = printable_line(f"Reading {Path(path).name}…")

    async def attach() -> None:
        await chat.link.ask("attach", AttachParams(conversation.info.id, [path], "", reply_to), Sent)
        chat.unflash(reading)
        if reply_to is not None and chat.about is about:
            chat.set_about(None)

    conversation.said(f"/send {rest}")
    chat.flash(reading)
    chat.pane.action_end()
    chat.attempt(attach())


# --- fetching and saving ----------------------------------------------------------------------------------------------


def has_files(row: Row) -> bool:
    return bool(row.files)


def save_of(chat: Board, conversation: Conversation, row: Row) -> None:
    """Save what came with a message; what is not here is fetched first."""
    _choose(chat, row.files, lambda file: _save_or_get(chat, conversation, file, ""))


def save(chat: Board, rest: str) -> None:
    """`/save [FILE]`: the file that is called so, or what came with the message that is selected, else the newest."""
    if not rest:
        if (found := message_meant(chat, has_files, NO_FILES)) is not None:
            save_of(chat, *found)
    elif chat.conversations.open is None:
        chat.complain(NO_GROUP)
    else:
        chat.attempt(_save(chat, chat.conversations.open, rest))


def get(chat: Board, rest: str) -> None:
    """`/get [FILE]`."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
    elif rest:
        chat.attempt(_get(chat, conversation, rest))
    elif (found := message_meant(chat, has_files, NO_FILES)) is not None:
        _choose(chat, found[1].files, lambda file: chat.attempt(_get(chat, conversation, file.id)))


def _choose(chat: Board, files: Sequence[Attachment], do: Callable[[Attachment], None]) -> None:
    if len(files) == 1:
        do(files[0])
        return
    from zerochat.tui.dialogs.menu import Pick

    def chosen(key: str | None) -> None:
        if (file := next((each for each in files if each.id == key), None)) is not None:
            do(file)

    chat.app.push_screen(Pick(Printable("Which file"), [(each.id, Content(line(each))) for each in files]), chosen)


def _save_or_get(chat: Board, conversation: Conversation, file: Attachment, to: str) -> None:
    if file.state == "here":
        chat.attempt(_save(chat, conversation, file.id, to))
    elif file.state == "getting" and not file.fault:
        chat.flash(printable_line(f"{name_words(file)}: {standing_words(file)}. It can be saved when it is here."))
    else:
        chat.attempt(_get(chat, conversation, file.id))


async def _save(chat: Board, conversation: Conversation, wanted: str, to: str = "") -> None:
    saved = await chat.link.ask("save", SaveParams(conversation.info.id, wanted, to), Saved)
    chat.tell(printable_line(f"Saved as {saved.path}"))


async def _get(chat: Board, conversation: Conversation, wanted: str) -> None:
    info = await chat.link.ask("get", FileParams(conversation.info.id, wanted), FileInfo)
    if info.file.state == "here":
        chat.flash(printable_line(f"{name_words(info.file)} is here; s saves it."))
    else:
        chat.flash(printable_line(f"Fetching {name_words(info.file)}; s saves it when it is here."))


def picture_of(chat: Board, conversation: Conversation, row: Row) -> None:
    """Show the picture that came with a message, where it is here."""
    _choose(chat, [each for each in row.files if is_picture(each)], lambda file: _picture(chat, conversation, file))


def has_picture(row: Row) -> bool:
    return any(map(is_picture, row.files))


def is_picture(file: Attachment) -> bool:
    """Whether its author says so; what it is, only whoever decodes it can tell."""
    return file.type.startswith("image/")


def _picture(chat: Board, conversation: Conversation, file: Attachment) -> None:
    from zerochat.tui.dialogs.picture import PictureSheet, room

    width, height = room(*chat.app.size)

    async def show() -> None:
        params = PictureParams(conversation.info.id, file.id, width, height)
        picture = await chat.link.ask("picture", params, Picture)
        if len(picture.pixels) == picture.width * picture.height * 3:
            chat.app.push_screen(PictureSheet(printable_line(name_words(file)), picture))

    if file.state == "here":
        chat.attempt(show())
    else:
        _save_or_get(chat, conversation, file, "")


def files(chat: Board, rest: str) -> None:
    """`/files`: all that were sent here, the newest first."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return

    async def ask() -> None:
        page = await chat.link.ask("files", FilesParams(conversation.info.id), FileList)
        _show(chat, conversation, page)

    chat.attempt(ask())


def _show(chat: Board, conversation: Conversation, page: FileList) -> None:
    from zerochat.tui.dialogs.menu import PICK_CELLS, PICK_EDGES, Pick

    if not page.files:
        chat.flash(Printable("No file was sent here yet: /send PATH sends one."))
        return
    known = {one.file.id: one.file for one in page.files}
    me = conversation.info.me
    room = min(PICK_CELLS, chat.app.size.width) - PICK_EDGES

    def entry(one: FileInfo) -> Content:
        name, rest = parts(one.file, one.author.did == me, room)
        return Content.assemble(Content(name), (rest, "$text-muted"))

    entries = [(one.file.id, entry(one)) for one in page.files]

    def chosen(key: str | None) -> None:
        if key is not None:
            _save_or_get(chat, conversation, known[key], "")

    more = ", the newest" if page.more else ""
    title = Printable(f"Files in {conversation.name}{more}: Enter saves one, or fetches it")
    chat.app.push_screen(Pick(title, entries), chosen)
