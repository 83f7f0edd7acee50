"""`/overlay`: the links of the open group, in a dialog that refreshes."""

from textual.content import Content

from zerochat.presentation import overlay
from zerochat.rpc import GroupParams, OverlayInfo
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions.targets import open_conversation
from zerochat.tui.chat_view import ChatView
from zerochat.tui.style.text import clock_text


def show_overlay(chat: ChatView, argument: str) -> None:
    from zerochat.tui.dialogs.dialog import open_live, rows

    conversation = open_conversation(chat)
    if conversation is None:
        return

    async def load() -> tuple[Printable, Content]:
        info = await chat.link.request("get_overlay", GroupParams(conversation.info.id), OverlayInfo)
        pairs: list[tuple[str, str]] = []
        place = ""
        for one in info.links:
            if info.forwards and one.place != place:
                place = one.place
                pairs.append((f"{place}s", ""))
            pairs.append((conversation.names.label(one.did), overlay.traffic(one, clock_text, forwards=info.forwards)))
        head = [overlay.structure(info), overlay.load(info, clock_text), ""]
        title = Printable(f"Overlay of {conversation.name}")
        return title, Content("\n").join([*(Content(printable_line(line)) for line in head), rows(pairs, 14)])

    chat.run_request(open_live(chat.app, load))
