"""The pinned messages of a group: `/pin`, `/unpin` and `/pins`."""

from textual.content import Content

from zerochat.rpc import Event, GroupParams, PinParams, Sent
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions import jumps
from zerochat.tui.actions.targets import open_conversation, target_message
from zerochat.tui.chat_view import ChatView
from zerochat.tui.state.hints import why_read_only
from zerochat.tui.style.text import Names, clip

TEXT_CELLS_MAX = 50


def pin(chat: ChatView, pinned: bool) -> None:
    """Pin or unpin the selected message, or else the newest."""
    found = target_message(chat, lambda row: row.kind == "post" and not row.deleted, "Only messages can be pinned.")
    if found is None:
        return
    conversation, row = found
    if why := why_read_only(conversation.info, conversation.members.myself):
        chat.report_error(why)
        return
    chat.run_request(chat.link.request("pin_message", PinParams(conversation.info.id, row.key[2], pinned), Sent))


def show(chat: ChatView, argument: str) -> None:
    """List the pinned messages; Enter jumps to one."""
    from zerochat.tui.dialogs.menu import MenuDialog

    if (conversation := open_conversation(chat)) is None:
        return
    group = conversation.info.id

    async def load() -> None:
        found = await chat.link.request("list_pins", GroupParams(group), list[Event])
        if not found:
            chat.flash(Printable("No message is pinned here. /pin pins the selected message, or the newest."))
            return

        def chosen(id: str | None) -> None:
            if id is not None:
                jumps.to_message(chat, group, id)

        entries = [(event.id, Content(_line(event, conversation.names))) for event in found]
        chat.app.push_screen(MenuDialog(Printable("Pinned messages"), entries), chosen)

    chat.run_request(load())


def _line(event: Event, names: Names) -> str:
    text = printable_line(str(event.body.get("text", ""))[:200]) or "a file"
    return clip(f"{names.byline(event.author.did)}: {text}", TEXT_CELLS_MAX)
