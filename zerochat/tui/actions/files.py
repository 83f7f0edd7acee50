"""Files: sending, downloading, saving, listing, and showing pictures."""

from collections.abc import Callable, Sequence
from pathlib import Path

from textual.content import Content

from zerochat.agent.storage.paths import path_to_wire
from zerochat.presentation.files import file_line, name_and_state, short_name, transfer_state
from zerochat.rpc import (
    Attachment,
    FileInfo,
    FileList,
    FileParams,
    ListFilesParams,
    Picture,
    RenderPictureParams,
    Saved,
    SaveParams,
    SendFilesParams,
    Sent,
)
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions.targets import open_conversation, report_usage, target_message, writable_conversation
from zerochat.tui.chat_view import ChatView
from zerochat.tui.composer.paths import path_of
from zerochat.tui.messages.row import Row
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.hints import NO_GROUP

NO_FILES = "This message has no file."
NO_PICTURE = "This message has no picture."


# --- sending ----------------------------------------------------------------------------------------------------------


def send(chat: ChatView, argument: str) -> None:
    """`/send PATH`: send a file, as a reply where the composer is replying."""
    if (conversation := writable_conversation(chat)) is None:
        return
    if not argument:
        report_usage(chat, "send", "~/photo.jpg")
        return
    path, about = path_of(argument), chat.compose_target
    reply_to = about.id if about is not None and about.kind == "reply" else None

    reading = printable_line(f"Reading {Path(path).name}…")

    async def attach() -> None:
        await chat.link.request(
            "send_files", SendFilesParams(conversation.info.id, [path_to_wire(path)], "", reply_to), Sent
        )
        chat.unflash(reading)
        if reply_to is not None and chat.compose_target is about:
            chat.set_compose_target(None)

    conversation.remember_text(f"/send {argument}")
    chat.flash(reading)
    chat.pane.action_end()
    chat.run_request(attach())


# --- fetching and saving ----------------------------------------------------------------------------------------------


def has_files(row: Row) -> bool:
    return bool(row.files)


def save_files_of(chat: ChatView, conversation: Conversation, row: Row) -> None:
    """Save the file of a message; download it first if it is not here."""
    _choose(chat, row.files, lambda file: _save_or_get(chat, conversation, file, ""))


def save(chat: ChatView, argument: str) -> None:
    """`/save [FILE]`: the file of that name, or of the selected message, else the newest."""
    if not argument:
        if (found := target_message(chat, has_files, NO_FILES)) is not None:
            save_files_of(chat, *found)
    elif chat.conversations.open is None:
        chat.report_error(NO_GROUP)
    else:
        chat.run_request(_save(chat, chat.conversations.open, argument))


def get(chat: ChatView, argument: str) -> None:
    """`/get [FILE]`."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.report_error(NO_GROUP)
    elif argument:
        chat.run_request(_get(chat, conversation, argument))
    elif (found := target_message(chat, has_files, NO_FILES)) is not None:
        _choose(chat, found[1].files, lambda file: chat.run_request(_get(chat, conversation, file.id)))


def _choose(chat: ChatView, files: Sequence[Attachment], do: Callable[[Attachment], None]) -> None:
    if len(files) == 1:
        do(files[0])
        return
    from zerochat.tui.dialogs.menu import MenuDialog

    def chosen(key: str | None) -> None:
        if (file := next((each for each in files if each.id == key), None)) is not None:
            do(file)

    chat.app.push_screen(
        MenuDialog(Printable("Choose a file"), [(each.id, Content(file_line(each))) for each in files]), chosen
    )


def _save_or_get(chat: ChatView, conversation: Conversation, file: Attachment, to: str) -> None:
    if file.state == "here":
        chat.run_request(_save(chat, conversation, file.id, to))
    elif file.state == "getting" and not file.fault:
        chat.flash(
            printable_line(f"{short_name(file)}: {transfer_state(file)}. You can save it once it is downloaded.")
        )
    else:
        chat.run_request(_get(chat, conversation, file.id))


async def _save(chat: ChatView, conversation: Conversation, wanted: str, to: str = "") -> None:
    saved = await chat.link.request(
        "save_file", SaveParams(conversation.info.id, wanted, path_to_wire(to) if to else ""), Saved
    )
    chat.report(printable_line(f"Saved as {saved.path}"))


async def _get(chat: ChatView, conversation: Conversation, wanted: str) -> None:
    info = await chat.link.request("fetch_file", FileParams(conversation.info.id, wanted), FileInfo)
    if info.file.state == "here":
        chat.flash(printable_line(f"{short_name(info.file)} is downloaded; /save saves it."))
    else:
        chat.flash(printable_line(f"Downloading {short_name(info.file)}; /save saves it when it is done."))


def show_picture_of(chat: ChatView, conversation: Conversation, row: Row) -> None:
    """Show the picture of a message; download it first if it is not here."""
    _choose(chat, [each for each in row.files if is_picture(each)], lambda file: _picture(chat, conversation, file))


def has_picture(row: Row) -> bool:
    return any(map(is_picture, row.files))


def is_picture(file: Attachment) -> bool:
    """Whether its author declares it a picture; only decoding verifies that."""
    return file.type.startswith("image/")


def _picture(chat: ChatView, conversation: Conversation, file: Attachment) -> None:
    from zerochat.tui.dialogs.picture import PictureDialog, room

    width, height = room(*chat.app.size)

    async def show() -> None:
        params = RenderPictureParams(conversation.info.id, file.id, width, height)
        picture = await chat.link.request("render_picture", params, Picture)
        if len(picture.pixels) == picture.width * picture.height * 3:
            chat.app.push_screen(PictureDialog(printable_line(short_name(file)), picture))

    if file.state == "here":
        chat.run_request(show())
    else:
        _save_or_get(chat, conversation, file, "")


def files(chat: ChatView, argument: str) -> None:
    """`/files`: the files of the open group, newest first."""
    if (conversation := open_conversation(chat)) is None:
        return

    async def load() -> None:
        page = await chat.link.request("list_files", ListFilesParams(conversation.info.id), FileList)
        _show_list(chat, conversation, page)

    chat.run_request(load())


def _show_list(chat: ChatView, conversation: Conversation, page: FileList) -> None:
    from zerochat.tui.dialogs.menu import PICK_CELLS, PICK_EDGES, MenuDialog

    if not page.files:
        chat.flash(Printable("No files here yet. /send PATH sends one."))
        return
    known = {file.file.id: file.file for file in page.files}
    me = conversation.info.me
    room = min(PICK_CELLS, chat.app.size.width) - PICK_EDGES

    def entry(file: FileInfo) -> Content:
        name, argument = name_and_state(file.file, file.author.did == me, room)
        return Content.assemble(Content(name), (argument, "$text-muted"))

    entries = [(file.file.id, entry(file)) for file in page.files]

    def chosen(key: str | None) -> None:
        if key is not None:
            _save_or_get(chat, conversation, known[key], "")

    more = " (newest only)" if page.more else ""
    title = Printable(f"Files in {conversation.name}{more}: Enter saves or downloads one")
    chat.app.push_screen(MenuDialog(title, entries), chosen)
