"""The lists at the sides: conversations on the left, members on the right."""

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from zerochat.presentation.group_rules import NEVER_ARRIVED
from zerochat.rpc import MemberInfo, RequestInfo, VoteInfo
from zerochat.terminal_text import Printable, cells
from zerochat.tui.state.conversation import Conversation, Conversations
from zerochat.tui.style.lookalikes import deceptive
from zerochat.tui.style.text import CONVICTED, clip, clock_of, key_suffix, name_of

UNREAD_SHOWN_MAX = 999


class QuietList(OptionList, inherit_bindings=False):
    """An option list that is rebuilt only when something in it differs, and keeps its highlight then."""

    BINDING_GROUP_TITLE = "Lists"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor_up", "Line up", show=False, id="list.up"),
        Binding("down", "cursor_down", "Line down", show=False, id="list.down"),
        Binding("pageup", "page_up", "Page up", show=False, id="list.page_up"),
        Binding("pagedown", "page_down", "Page down", show=False, id="list.page_down"),
        Binding("home", "first", "First line", show=False, id="list.first"),
        Binding("end", "last", "Last line", show=False, id="list.last"),
        Binding("enter", "select", "Choose", show=False, id="list.choose"),
    ]
    """OptionList's own, with names that a keymap can say."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False, compact=True)
        self._shown: dict[str, Content] = {}
        self.again: Callable[[], None] | None = None
        """Makes the entries anew, for another width."""

    def on_resize(self) -> None:
        """The entries are made for a width."""
        if self.again is not None:
            self.again()

    def watch_show_vertical_scrollbar(self) -> None:
        """A scroll bar takes a cell of each entry's; one that is a cell too long would take two lines."""
        self.call_after_refresh(self.on_resize)

    def room(self, least: int) -> int:
        """Cells of an entry, beside a scroll bar if there is one."""
        return max(self.scrollable_content_region.width - 2, least)

    def put(self, entries: Iterable[tuple[str, Content]]) -> None:
        """Show `entries`, pairs of an id and what stands there."""
        new = dict(entries)
        if list(new) == list(self._shown):
            for index, (id, content) in enumerate(new.items()):
                if not content.is_same(self._shown[id]):
                    self.replace_option_prompt_at_index(index, content)
        else:
            highlighted = self.highlighted_option.id if self.highlighted_option else None
            self.set_options([Option(content, id=id) for id, content in new.items()])
            self.highlighted = list(new).index(highlighted) if highlighted in new else None
        self._shown = new


class GroupList(QuietList):
    """The conversations with their numbers, what is unread in them, and whether they are over."""

    BINDING_GROUP_TITLE = "Conversations"

    class Chosen(Message):
        def __init__(self, group: str) -> None:
            super().__init__()
            self.group = group

    def tell(self, conversations: Conversations) -> None:
        self.again = lambda: self.tell(conversations)
        width = self.room(8)
        self.put(
            (id, group_line(number, each, width, is_open=id == conversations.open_id))
            for number, (id, each) in enumerate(conversations.by_id.items(), 1)
        )
        ids = list(conversations.by_id)
        if (not self.has_focus or self.highlighted is None) and conversations.open_id in ids:
            self.highlighted = ids.index(conversations.open_id)

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            self.post_message(self.Chosen(event.option_id))


def group_line(number: int, conversation: Conversation, width: int, *, is_open: bool) -> Content:
    """ "2 weekend  ?1 @2 14": number, name, who asks to join, unread posts that call me by name, all that are unread;
    or "left", "out" where we are not in it."""
    unread = str(min(conversation.unread, UNREAD_SHOWN_MAX)) if conversation.unread else ""
    if conversation.mentions:
        unread = f"@{min(conversation.mentions, UNREAD_SHOWN_MAX)} {unread}"
    if conversation.info.requests:
        unread = f"?{len(conversation.info.requests)} {unread}".rstrip()
    if conversation.info.state == "left":
        unread = f"{unread} {'out' if conversation.info.removed_by else 'left'}".lstrip()
    if conversation.draft.strip() and not is_open:
        unread = f"✎ {unread}".rstrip()
    if conversation.muted:
        unread = f"{conversation.muted} {unread}".rstrip()
    label = f"{number} " if number <= 9 else "  "
    name = conversation.labelled(width - len(label) - len(unread) - 1)
    gap = " " * max(width - len(label) - cells(name) - len(unread), 1)
    style = "$text-muted" if not conversation.active else "bold" if is_open or unread else ""
    return Content.assemble((label, "$text-muted"), (name, style), gap, (unread, "bold $text-accent"))


SYMBOLS = {"self": "●", "connected": "●", "mailed": "◎", "connecting": "◐", "unreachable": "○"}
"""`mailed`: a mediator keeps what is said for a member, and nobody knows whether it is there."""
STYLES = {
    "self": "$text-muted",
    "connected": "$text-success",
    "mailed": "$text-muted",
    "connecting": "$text-warning",
    "unreachable": "$text-muted",
}


MARKS = {"verified": ("✓", "$text-success"), "changed": ("!", "bold $text-error"), "unverified": ("", "")}
"""Before the end of the key."""
ASKS = "?"
"""Before the DID of somebody who waits to be let in, in the list of members."""


class MemberList(QuietList):
    """The members of the open group with the state of their connection; Enter shows more about one."""

    BINDING_GROUP_TITLE = "Members"

    class Chosen(Message):
        def __init__(self, did: str) -> None:
            super().__init__()
            self.did = did

    class Asked(Message):
        """Somebody who waits to be let in was chosen."""

    def tell(self, conversation: Conversation | None) -> None:
        self.again = lambda: self.tell(conversation)
        width = self.room(8)
        members = conversation.members if conversation else []
        order = sorted(members, key=_rank)
        nicks = {member.did: name_of(member.nick) for member in order}
        doubtful = deceptive(nicks)
        votes = {vote.did: vote for vote in conversation.info.votes} if conversation else {}
        waiting = conversation.info.requests if conversation else []

        def line(one: MemberInfo) -> Content:
            return member_line(one, nicks[one.did], width, doubtful=one.did in doubtful, vote=votes.get(one.did))

        self.put(
            [
                *((ASKS + one.did, request_line(one, width)) for one in waiting),
                *((one.did, line(one)) for one in order),
            ]
        )

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            asked = event.option_id.startswith(ASKS)
            self.post_message(self.Asked() if asked else self.Chosen(event.option_id))


def request_line(one: RequestInfo, width: int) -> Content:
    """Somebody who is no member yet."""
    key = key_suffix(one.did)
    room = max(width - 2 - cells(key) - 1, 6)
    text = clip(f"{name_of(one.nick)} asks to join", room)
    gap = " " * max(room - cells(text) + 1, 1)
    return Content.assemble(("? ", "bold $text-accent"), (text, "bold"), gap, (key, "$text-muted"))


def _rank(member: MemberInfo) -> tuple[bool, bool, str]:
    """First those to be careful with, then whoever is there, by name."""
    doubtful = member.trust == "changed" or member.forked or bool(member.guilty)
    return not doubtful, member.connection == "unreachable", member.nick.casefold()


def _notes(member: MemberInfo, vote: VoteInfo | None) -> Iterator[str]:
    """What is unusual about a member, in words, the most important first."""
    if member.connection == "self":
        yield "(you)"
    if member.bot:
        yield "bot"
    if member.trust == "changed":
        yield "changed"
    if member.guilty:
        yield f"{CONVICTED} convicted"
    if member.forked:
        yield "forked"
    if vote is not None and vote.votes:
        yield f"{vote.votes}/{vote.needed} out"
    if member.role != "writer":
        yield "reads" if member.role == "reader" else member.role
    if not member.arrived:
        yield NEVER_ARRIVED
    elif member.connection == "unreachable" and member.last_heard:
        yield f"since {clock_of(member.last_heard)}"
    elif member.connection in ("connecting", "unreachable"):
        yield member.connection
    elif member.via == "mediator":
        yield f"mail {clock_of(member.last_heard)}" if member.last_heard else "mail, never heard"
    if member.view_agrees is False:
        yield "≠ view"
    if member.keeper:
        yield "keeps history"


def member_line(
    member: MemberInfo, nick: Printable, width: int, *, doubtful: bool = False, vote: VoteInfo | None = None
) -> Content:
    """Symbol and name, an unusual state in words too, because a colour alone tells some people nothing; and at the
    right edge, where no nick can pretend to be it, whether it was verified, and the end of the key. `doubtful`: the
    nick mixes scripts or looks like another. `vote`: how many want it out."""
    state = "mailed" if (member.connection, member.via) == ("connected", "mediator") else member.connection
    words = list(_notes(member, vote))
    tail = (" " + ", ".join(words)) if words else ""
    sign = "≈" if doubtful else ""
    key = key_suffix(member.did)
    mark, mark_style = MARKS[member.trust]
    room = max(width - 2 - len(sign) - cells(mark) - cells(key) - 1, 6)
    name = clip(nick, max(room - len(tail), 6))
    tail = clip(tail, room - cells(name))
    gap = " " * max(room - cells(name) - cells(tail) + 1, 1)
    return Content.assemble(
        (SYMBOLS[state] + " ", STYLES[state]),
        (sign, "bold $text-warning"),
        name,
        (tail, "$text-muted"),
        gap,
        (mark, mark_style),
        (key, "$text-muted"),
    )
