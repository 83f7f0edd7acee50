"""Jumps to a message, a date or a mention, and back.

A jump moves the loaded window of the conversation; paging continues from there in both directions. The reading
position before the jump is pushed on the jump history.
"""

import time
from typing import Final

from zerochat.rpc import Found, SearchParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.actions.targets import open_conversation, report_usage
from zerochat.tui.chat_view import ChatView
from zerochat.tui.messages.row import Key
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.jump_history import position_of

MENTIONS_OF_ME: Final = "to:me"


def to_message(chat: ChatView, group: str, event: str) -> None:
    """Jump to a message, loaded or not."""
    chat.run_request(_jump(chat, group, event=event))


async def _jump(chat: ChatView, group: str, *, event: str = "", at: int | None = None) -> None:
    spot = position_of(chat.conversations.open)
    if await move_to(chat, group, event=event, at=at):
        chat.jump_history.push(spot)


async def move_to(chat: ChatView, group: str, *, event: str = "", at: int | None = None, select: bool = True) -> bool:
    """Move the window to this event or time (UTC ms) and select the message there; False: not available."""
    conversation = chat.conversations.by_id.get(group)
    if conversation is None:
        chat.report_error(Printable("This group no longer exists here."))
        return False
    key = await chat.feed.load_around(conversation, event=event, at=at)
    if conversation.info.id not in chat.conversations.by_id:
        return False
    chat.open_group(group)
    if key is None:
        chat.report_error(Printable("That message is not available here."))
        return False
    _show(chat, key, select=select)
    return True


def _show(chat: ChatView, key: Key, *, select: bool) -> None:
    """Show the row a third down the pane, so that its context is visible."""
    pane = chat.pane
    pane.go_to(key, above=pane.size.height // 3 if select else 0)
    if select:
        pane.focus()
        pane.select(key, reveal=False)


def to_unread(chat: ChatView, group: str, event: str) -> None:
    """Jump to the first unread message, which is not loaded."""
    chat.run_request(move_to(chat, group, event=event, select=False))


def read(chat: ChatView, argument: str) -> None:
    """`/read`, `/read all`."""
    if argument not in ("", "all"):
        report_usage(chat, "read")
    elif not argument:
        if (conversation := open_conversation(chat)) is not None:
            chat.mark_read(conversation)
    elif sum(each.unread or each.mentions for each in chat.conversations.by_id.values()):
        chat.run_request(_read_all(chat))
    else:
        chat.flash(Printable("No unread messages."))


async def _read_all(chat: ChatView) -> None:
    count = sum(each.unread for each in chat.conversations.by_id.values())
    await chat.mark_all_read()
    chat.flash(Printable(f"Marked {count} message{'s' * (count != 1)} as read."))


def goto(chat: ChatView, argument: str) -> None:
    """`/goto 2026-03-01`, `/goto 14:00`, `/goto yesterday`."""
    from zerochat.presentation.search_query import BadSearch, read_time

    if (conversation := open_conversation(chat)) is None:
        return
    try:
        at = read_time(argument.strip() or "today", int(time.time() * 1000))
    except BadSearch as error:
        chat.report_error(printable_line(f"Cannot go there: {error.fields['why']}."))
        return
    chat.run_request(_jump(chat, conversation.info.id, at=at))


def back(chat: ChatView) -> None:
    """Return to the position before the last jump."""
    while (spot := chat.jump_history.pop()) is not None:
        if spot.group in chat.conversations.by_id:
            break
    if spot is None:
        chat.flash(Printable("Nowhere to go back to."))
    elif spot.event:
        chat.run_request(move_to(chat, spot.group, event=spot.event, select=False))
    else:
        chat.open_group(spot.group)
        chat.pane.select(None)
        chat.pane.action_end()
        chat.composer.focus()


def mention(chat: ChatView) -> None:
    """Jump to the previous message that mentions me."""
    if (conversation := open_conversation(chat)) is None:
        return
    chat.run_request(_to_mention(chat, conversation))


async def _to_mention(chat: ChatView, conversation: Conversation) -> None:
    selected = chat.pane.selected
    before = selected[2] if selected is not None else None
    query = SearchParams(query=MENTIONS_OF_ME, group=conversation.info.id, limit=1, older_than=before)
    found = await chat.link.request("search_messages", query, Found)
    if not found.hits:
        none = "No mentions of you here." if selected is None else "No earlier mentions of you."
        chat.flash(Printable(none))
        return
    spot = position_of(conversation) if selected is None else None
    if await move_to(chat, conversation.info.id, event=found.hits[0].id):
        chat.jump_history.push(spot)
