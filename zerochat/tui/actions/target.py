"""Which message is meant by whoever does something with one: the selected one, else the newest that it fits."""

from collections.abc import Callable

from zerochat.terminal_text import Printable
from zerochat.tui.chat_view import Board
from zerochat.tui.messages.row import Row
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.hints import NO_GROUP, NOTHING_HERE


def message_meant(chat: Board, fits: Callable[[Row], bool], why_not: str) -> tuple[Conversation, Row] | None:
    """The message, with its conversation; None where there is none, or it does not fit, which is said."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return None
    row = chat.pane.selected_row
    if row is None:
        posts = [one for one in reversed(conversation.timeline.rows) if one.kind == "post"]
        row = next((one for one in posts if fits(one)), posts[0] if posts else None)
    if row is None:
        chat.flash(NOTHING_HERE)
        return None
    if not fits(row):
        chat.complain(Printable(why_not))
        return None
    return conversation, row
