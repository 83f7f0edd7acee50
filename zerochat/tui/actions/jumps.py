"""Going somewhere in what was said: to a message, to a date, to who has called me, and back to where I was.

The window of a conversation is put where it is wanted, in the middle of a long history too, and from there it is read
up and down in pages. What one comes from is kept, so that a look at something costs nobody their place.
"""

import time
from typing import Final

from zerochat.rpc import Found, SearchParams
from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.chat_view import Board
from zerochat.tui.messages.row import Key
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.hints import NO_GROUP
from zerochat.tui.state.jump_history import spot_of

CALLED: Final = "to:me"


def to_message(chat: Board, group: str, event: str) -> None:
    """Go to a message, wherever it is."""
    chat.attempt(_jump(chat, group, event=event))


async def _jump(chat: Board, group: str, *, event: str = "", at: int | None = None) -> None:
    spot = spot_of(chat.conversations.open)
    if await stand(chat, group, event=event, at=at):
        chat.trail.keep(spot)


async def stand(chat: Board, group: str, *, event: str = "", at: int | None = None, select: bool = True) -> bool:
    """Put the window where this event is, or a time begins, and select the message there; False: it is not here."""
    conversation = chat.conversations.by_id.get(group)
    if conversation is None:
        chat.complain(Printable("This group is not here any more."))
        return False
    key = await chat.feed.load_around(conversation, event=event, at=at)
    if conversation.info.id not in chat.conversations.by_id:
        return False
    chat.go(group)
    if key is None:
        chat.complain(Printable("That is not among the messages that are here."))
        return False
    _show(chat, key, select=select)
    return True


def _show(chat: Board, key: Key, *, select: bool) -> None:
    """A third of the pane above it shows what led to it."""
    pane = chat.pane
    pane.go_to(key, above=pane.size.height // 3 if select else 0)
    if select:
        pane.focus()
        pane.select(key, reveal=False)


def goto(chat: Board, rest: str) -> None:
    """`/goto 2026-03-01`, `/goto 14:00`, `/goto yesterday`."""
    from zerochat.presentation.search_query import BadSearch, read_time

    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return
    try:
        at = read_time(rest.strip() or "today", int(time.time() * 1000))
    except BadSearch as error:
        chat.complain(printable_line(error.sentence()))
        return
    chat.attempt(_jump(chat, conversation.info.id, at=at))


def back(chat: Board) -> None:
    """To where the last jump came from."""
    while (spot := chat.trail.back()) is not None:
        if spot.group in chat.conversations.by_id:
            break
    if spot is None:
        chat.flash(Printable("There is nothing to go back to."))
    elif spot.event:
        chat.attempt(stand(chat, spot.group, event=spot.event, select=False))
    else:
        chat.go(spot.group)
        chat.pane.select(None)
        chat.pane.action_end()
        chat.composer.focus()


def mention(chat: Board) -> None:
    """To the last message before this place that calls me by name: from the end upwards, one after the other."""
    conversation = chat.conversations.open
    if conversation is None:
        chat.complain(NO_GROUP)
        return
    chat.attempt(_to_mention(chat, conversation))


async def _to_mention(chat: Board, conversation: Conversation) -> None:
    selected = chat.pane.selected
    before = selected[2] if selected is not None else None
    query = SearchParams(query=CALLED, group=conversation.info.id, limit=1, older_than=before)
    found = await chat.link.ask("search", query, Found)
    if not found.hits:
        nobody = "Nobody has called you by name here." if selected is None else "Nobody has before that."
        chat.flash(Printable(nobody))
        return
    spot = spot_of(conversation) if selected is None else None
    if await stand(chat, conversation.info.id, event=found.hits[0].id):
        chat.trail.keep(spot)
