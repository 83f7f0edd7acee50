"""The side lists: conversations and members."""

from collections.abc import Callable, Iterable, Iterator
from typing import ClassVar

from rich.cells import cell_len as cells
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual import on
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.events import MouseDown, MouseMove, MouseUp
from textual.message import Message
from textual.strip import Strip
from textual.style import Style
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import JoinRequestInfo, MemberInfo, VoteInfo
from zerochat.terminal_text import Printable
from zerochat.tui.messages.paint import nick_styles_of
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.conversations import Conversations
from zerochat.tui.style.text import CONVICTED, clip, clock_of, key_suffix, name_of

UNREAD_SHOWN_MAX = 999
GROUP_NAME_CELLS_MIN = 5
"""Cells of a group's name, with the dot of its disambiguator, that the list shows before anything behind it."""


class QuietList(OptionList, inherit_bindings=False):
    """An option list that is rebuilt only on changes and keeps its highlight."""

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
    """OptionList's bindings with ids for keymaps."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id, markup=False, compact=True)
        self._shown: dict[str, Content] = {}
        self.rebuild: Callable[[], None] | None = None
        """Rebuilds the entries for a new width."""

    def on_resize(self) -> None:
        """Rebuild the entries for the new width."""
        if self.rebuild is not None:
            self.rebuild()

    def watch_show_vertical_scrollbar(self) -> None:
        """The scroll bar takes a cell of each entry; an entry one cell too wide would wrap."""
        self.call_after_refresh(self.on_resize)

    def room(self, least: int) -> int:
        """Width of an entry, excluding a scroll bar."""
        return max(self.scrollable_content_region.width - 2, least)

    def set_entries(self, entries: Iterable[tuple[str, Content]]) -> None:
        """Show `entries`, pairs of an id and content."""
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
    """The conversations with numbers, unread counts and states."""

    BINDING_GROUP_TITLE = "Conversations"

    class Chosen(Message):
        def __init__(self, group: str) -> None:
            super().__init__()
            self.group = group

    class Resized(Message):
        """The border was dragged: the new width, with the border."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.width = width

    _dragged_to = 0
    """The width of the list while its border is dragged, which is shown at once and kept at the end."""

    def on_mouse_down(self, event: MouseDown) -> None:
        if event.x == self.outer_size.width - 1:
            event.stop()
            self._dragged_to = self.outer_size.width
            self.capture_mouse()

    def on_mouse_move(self, event: MouseMove) -> None:
        if not self._dragged_to:
            return
        event.stop()
        if not event.button:  # The release came before the list had captured the mouse.
            self._drop()
        else:
            self._dragged_to = max(event.screen_x + 1 - self.region.x, 1)
            self.styles.min_width, self.styles.max_width = 1, "50%"
            self.styles.width = self._dragged_to

    def on_mouse_up(self, event: MouseUp) -> None:
        if self._dragged_to:
            event.stop()
            self._drop()

    def _drop(self) -> None:
        self.release_mouse()
        width, self._dragged_to = self._dragged_to, 0
        self.post_message(self.Resized(width))

    def show_groups(self, conversations: Conversations) -> None:
        self.rebuild = lambda: self.show_groups(conversations)
        width = self.room(8)
        self.set_entries(
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
    """ "2 weekend  ?1 @2 14": number, name, requests, unread mentions, unread posts; or "left", "removed"."""
    label = f"{number} " if number <= 9 else "  "
    least = min(cells(conversation.name), GROUP_NAME_CELLS_MIN + cells(conversation.disambiguator))
    unread = _badge(conversation, width - len(label) - 1 - least, is_open=is_open)
    name = conversation.labelled(width - len(label) - cells(unread) - 1)
    gap = " " * max(width - len(label) - cells(name) - cells(unread), 1)
    style = "$text-muted" if not conversation.active else "bold" if is_open or unread else ""
    return Content.assemble((label, "$text-muted"), (name, style), gap, (unread, "bold $text-accent"))


def _badge(conversation: Conversation, room: int, *, is_open: bool) -> str:
    """What stands behind the name; in less than `room` cells, only what has no other sign."""
    counts = []
    if asked := len(conversation.info.requests) + len(conversation.info.private_invitations):
        counts.append(f"?{asked}")
    if conversation.mentions:
        counts.append(f"@{min(conversation.mentions, UNREAD_SHOWN_MAX)}")
    if conversation.unread:
        counts.append(str(min(conversation.unread, UNREAD_SHOWN_MAX)))
    draft = ["✎"] if conversation.draft.strip() and not is_open else []
    mark = [conversation.notify_mark] if conversation.notify_mark else []
    state = []
    if conversation.info.state == "left":
        state = ["removed" if conversation.info.removed_by else "left"]
    choices = ([*mark, *draft, *counts, *state], [*mark, *draft, *counts], [*draft, *counts])
    return next((" ".join(one) for one in choices if cells(" ".join(one)) <= room), " ".join(counts))


SYMBOLS = {"self": "●", "connected": "●", "mailed": "◎", "connecting": "◐", "indirect": "◦", "unreachable": "○"}
"""`mailed`: reached via a mediator; `indirect`: over other members. Whether the member is online is unknown."""
STYLES = {
    "self": "$text-muted",
    "connected": "$text-success",
    "mailed": "$text-muted",
    "connecting": "$text-warning",
    "indirect": "$text-muted",
    "unreachable": "$text-muted",
}


MARKS = {"verified": ("✓", "$text-success"), "changed": ("!", "bold $text-error"), "unverified": ("", "")}
"""Marks before the key suffix."""
REQUEST_PREFIX = "?"
"""Prefix of the entry id of a join request in the member list."""
MORE = "+"
"""The entry id of the line that shows more members."""


class MemberList(QuietList):
    """Join requests and members of the open group, with connection states. It shows the first ones; choosing its last
    line shows more."""

    BINDING_GROUP_TITLE = "Members"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "find", "Find a member", key_display="/", id="members.find"),
    ]

    class Chosen(Message):
        def __init__(self, did: str) -> None:
            super().__init__()
            self.did = did

    class RequestChosen(Message):
        """A join request was chosen."""

    class Find(Message):
        """The user wants to find a member by name."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.shown_max = MEMBER_PAGE_MAX
        """How many members are shown at most."""
        self._group = ""

    def on_mount(self) -> None:
        self.app.theme_changed_signal.subscribe(self, lambda _: self.call_after_refresh(self.on_resize))

    def show_members(self, conversation: Conversation | None, word: str = "") -> None:
        """Show the members of a conversation; `word`: only those that it finds, without join requests."""
        self.rebuild = lambda: self.show_members(conversation, word)
        if conversation is None:
            self.set_entries([])
            return
        if conversation.info.id != self._group:
            self._group, self.shown_max = conversation.info.id, MEMBER_PAGE_MAX
        width = self.room(8)
        page, more = conversation.members.page(word, self.shown_max)
        votes = {vote.did: vote for vote in conversation.info.votes}
        waiting = conversation.info.requests if not word else []
        styles = [Style(foreground=Style.from_rich_style(style).foreground) for style in nick_styles_of(self)]

        def line(entry: MemberInfo) -> Content:
            doubtful = bool(conversation.members.name_warning(entry))
            style = styles[conversation.names.hue(entry.did)]
            nick = name_of(entry.nick)
            return member_line(entry, nick, width, style, doubtful=doubtful, vote=votes.get(entry.did))

        self.set_entries(
            [
                *((REQUEST_PREFIX + request.did, request_line(request, width)) for request in waiting),
                *((entry.did, line(entry)) for entry in page),
                *([(MORE, more_line(more, width))] if more else []),
            ]
        )

    def show_more(self) -> None:
        """Show another page, with the highlight at its first line."""
        at = self.highlighted
        self.shown_max += MEMBER_PAGE_MAX
        if self.rebuild is not None:
            self.rebuild()
        self.highlighted = at

    def action_find(self) -> None:
        self.post_message(self.Find())

    def _get_option_render(self, option: Option, style: Style) -> list[Strip]:
        """Below the cursor, a name's colour could be that of the cursor."""
        strips = super()._get_option_render(option, style)
        if not self.has_focus or option is not self.highlighted_option:
            return strips
        colour = RichStyle(color=style.rich_style.color)
        return [Strip([Segment(text, (each or colour) + colour) for text, each, _ in strip]) for strip in strips]

    @on(OptionList.OptionSelected)
    def _choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        if event.option_id is not None:
            if event.option_id == MORE:
                self.show_more()
                return
            asked = event.option_id.startswith(REQUEST_PREFIX)
            self.post_message(self.RequestChosen() if asked else self.Chosen(event.option_id))


def more_line(more: int, width: int) -> Content:
    """The entry that shows more members."""
    return Content.styled(clip(f"↓ {more:,} more (Enter)", width), "$text-accent")


def request_line(request: JoinRequestInfo, width: int) -> Content:
    """The entry of a join request."""
    key = key_suffix(request.did)
    room = max(width - 2 - cells(key) - 1, 6)
    text = clip(f"{name_of(request.nick)} asks to join", room)
    gap = " " * max(room - cells(text) + 1, 1)
    return Content.assemble(("? ", "bold $text-accent"), (text, "bold"), gap, (key, "$text-muted"))


def _notes(member: MemberInfo, vote: VoteInfo | None) -> Iterator[str]:
    """Notes about a member, most important first."""
    if member.connection == "self":
        yield "(you)"
    if member.bot:
        yield "bot"
    if member.ignored:
        yield "ignored"
    if member.trust == "changed":
        yield "changed"
    if member.verdicts:
        yield f"{CONVICTED} convicted"
    if member.forked:
        yield "forked"
    if vote is not None and vote.votes:
        yield f"{vote.votes}/{vote.needed} votes"
    if member.role != "writer":
        yield member.role
    if not member.arrived:
        yield "never seen"
    elif member.no_mediator:
        yield "no mediator"
    elif member.connection == "unreachable" and member.last_seen:
        yield f"since {clock_of(member.last_seen)}"
    elif member.connection in ("connecting", "unreachable"):
        yield member.connection
    elif member.via == "mediator":
        yield f"mail {clock_of(member.last_seen)}" if member.last_seen else "mail, never seen"
    if member.nearby:
        yield "nearby"
    if member.view_matches is False:
        yield "≠ view"
    if member.keeps_history:
        yield "keeps history"


def member_line(
    member: MemberInfo,
    nick: Printable,
    width: int,
    style: Style | str = "",
    *,
    doubtful: bool = False,
    vote: VoteInfo | None = None,
) -> Content:
    """Symbol, name, notes in words (not by colour alone), and at the right edge, where no name can imitate it, the
    verification mark and key suffix. `doubtful`: the name mixes scripts or looks like another. `vote`: the votes to
    remove the member. `style`: the member's colour, as in the messages."""
    state = "mailed" if (member.connection, member.via) == ("connected", "mediator") else member.connection
    words = list(_notes(member, vote))
    tail = (" " + ", ".join(words)) if words else ""
    sign = "≈" if doubtful else ""
    key = key_suffix(member.did)
    mark, mark_style = MARKS[member.trust]
    room = max(width - 2 - len(sign) - cells(mark) - cells(key) - 1, 6)
    name = clip(nick, max(room - len(tail), min(cells(nick), room * 3 // 5), 6))
    tail = clip(tail, room - cells(name))
    gap = " " * max(room - cells(name) - cells(tail) + 1, 1)
    return Content.assemble(
        (SYMBOLS[state] + " ", STYLES[state]),
        (sign, "bold $text-warning"),
        (name, style),
        (tail, "$text-muted"),
        gap,
        (mark, mark_style),
        (key, "$text-muted"),
    )
