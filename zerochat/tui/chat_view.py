"""The chat screen's showing half: lays the widgets out and keeps them true to the conversations.

It holds no data of its own: the `Feed` keeps `Conversations` true to the agent, and this draws them. What keys and
commands do is in `chat` and `actions`.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.screen import Screen

from zerochat.agent.settings.client_preferences import Preferences
from zerochat.errors import AmbiguousGroup
from zerochat.rpc import ConnectionInfo, Event, Hello, InvitationNews, JoinStatus, NoParams, Status, TypingNews
from zerochat.terminal_text import Printable, cells, printable, printable_line
from zerochat.tui.composer.completion_list import Offers
from zerochat.tui.composer.composer import Composer
from zerochat.tui.composer.drafts import KEEP_S, DraftKeeper
from zerochat.tui.host.notify import Crier, Herald, Tidings
from zerochat.tui.messages.pane import MessagePane
from zerochat.tui.messages.selectable_pane import Messages
from zerochat.tui.messages.timeline import Key
from zerochat.tui.panels.bars import SAID_S, Banner, Notice, StatusLine, TopBar, activity
from zerochat.tui.panels.lists import GroupList, MemberList
from zerochat.tui.state.agent_link import AgentError, Link, LinkState
from zerochat.tui.state.conversation import Conversation, Conversations
from zerochat.tui.state.ephemeral import TYPING_S, Passing
from zerochat.tui.state.feed import Feed, Watcher
from zerochat.tui.state.hints import asks, attention, placeholder, under_way
from zerochat.tui.state.jump_history import Trail
from zerochat.tui.state.pending_requests import Answers
from zerochat.tui.style.keymaps import LETTERS_STAY
from zerochat.tui.style.text import name_of

if TYPE_CHECKING:
    from zerochat.tui.app import ZerochatApp
    from zerochat.tui.composer.completion import Asking
    from zerochat.tui.messages.reply_bar import About

FRAME_S = 1 / 60
STATUS_EVERY_S = 20.0
"""How often the agent is asked whether something needs attention (a full disk, say)."""
BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (80, "-medium"), (100, "-wide")]
DAMAGED = "JournalDamaged"
"""What the agent cannot read or write any more: its sentence stays where it can be read."""
EMPTY = (
    Printable(""),
    Printable("No conversations yet."),
    Printable("/new NAME creates a group, /join INVITATION joins one."),
)


def app_of(screen: Screen[None]) -> "ZerochatApp":
    """The application that the chat is the screen of; there is no other."""
    return cast("ZerochatApp", screen.app)


class Doing(Watcher, Protocol):
    """The chat screen's doing half: what becomes of keys and lines, and of news that are no part of the view."""

    def act(self, name: str) -> None:
        """Do this with the message that is selected."""

    def submit(self, text: str) -> None:
        """Enter was pressed in the composer, with this in it."""

    def write(self, event: events.Key) -> None:
        """Take a key that stands for nothing where the focus is."""


class Board(Screen[None]):
    """Conversations on the left, messages, members on the right, the composer and the status line below."""

    HORIZONTAL_BREAKPOINTS = BREAKPOINTS

    def __init__(
        self, link: Link, doing: Doing, *, open_group: str = "", drafts: Mapping[str, str] | None = None
    ) -> None:
        """`doing`: the other half. `drafts`: what is unsent in which group, by its id, from before it was locked."""
        super().__init__()
        self.link = link
        self.kept = dict(drafts or {})
        """The drafts that wait for their conversations."""
        self.keeper = DraftKeeper(link, self.unsent, self.complain)
        self._keeping = False
        self.herald = Herald(lambda: app_of(self).choices.now, self._cry, self.set_timer)
        self._crier: Crier | None = None
        self.closed = True
        """Until the profile is open the composer takes nothing: somebody may be typing its passphrase."""
        self._damage = Printable("")
        self.conversations = Conversations()
        self.feed = Feed(link, self.conversations, doing)
        self.nick = Printable("")
        self._wanted = open_group
        self._status: Status | None = None
        self._draining = False
        self._flashes = 0
        self.answers = Answers()
        self.trail = Trail()
        self.passing = Passing(link, self.set_timer, self.run_worker)
        self.tell_join: Callable[[JoinStatus], None] | None = None
        """Set while a screen is open that shows how a join gets on."""
        self.tell_invitation: Callable[[InvitationNews], bool] | None = None
        """Set while an invitation is shown; answers whether the news were about it."""
        self.joins: dict[str, JoinStatus] = {}
        """The joins that are under way, by their ids."""
        self._sheets: list[Callable[[], None]] = []
        """What the open sheets want done when groups or members have changed."""
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self.top_bar = TopBar(id="top")
        self.banner = Banner(id="banner")
        self.notice = Notice(id="notice")
        self.group_list = GroupList(id="groups")
        self.pane = Messages(doing.act, self.step_out, doing.write, id="pane")
        self.member_list = MemberList(id="members")
        self.above = Banner(id="above")
        """What the composer's text is about."""
        self.offers = Offers(id="offers")
        """What Tab can make of the composer's text."""
        self.connections: list[str] = []
        self.composer = Composer(
            doing.submit, self._recall, self.names, lambda: self.connections, self._bots, self._files, id="composer"
        )
        self.composer.disabled = True
        self.status_line = StatusLine(id="status")

    def compose(self) -> ComposeResult:
        yield self.top_bar
        yield self.banner
        yield self.notice
        with Horizontal(id="middle"):
            yield self.group_list
            yield self.pane
            yield self.member_list
        yield self.above
        yield self.offers
        yield self.composer
        yield self.status_line

    def on_mount(self) -> None:
        self._show_banner()
        self.watch(self.app, "app_focus", self._look, init=False)
        self.prefer(app_of(self).choices.now)
        self.set_interval(STATUS_EVERY_S, self._ask_status)

    # --- the line to the agent -------------------------------------------------------------------------------------

    async def up(self, hello: Hello) -> None:
        """The agent is there: read what it has, and open a conversation."""
        self.nick = name_of(hello.nick)
        self._damage = Printable("")
        self.kept = {**await self.keeper.read(), **self.kept}
        try:
            await self.feed.up(hello)
        finally:
            self.open()
            self.keep_drafts()

    def open(self) -> None:
        """The profile is open: the composer takes what is typed."""
        if self.closed:
            self.closed = self.composer.disabled = False
            self.composer.focus()

    def close(self) -> None:
        """The composer takes nothing until the profile is open again."""
        self.closed = self.composer.disabled = True

    def news_came(self) -> None:
        if not self._draining:
            self._draining = True
            self.call_later(self._drain)

    def _drain(self) -> None:
        if self.feed.drain():
            self.set_timer(FRAME_S, self._drain)
            return
        self._draining = False
        if self.feed.stale or self.link.overflowed:
            self.run_worker(self.feed.catch_up(), group="catch up")

    def link_told(self, state: LinkState) -> None:
        """The line went up or down."""
        if self.is_mounted:
            self._show_banner()
            self.status_line.me = self.nick

    def _show_banner(self) -> None:
        state, conversation = self.link.state, self.conversations.open
        if state.up:
            alarms = conversation.warnings if conversation else []
            alarms += [self._damage] if self._damage and self._damage not in alarms else []
            self.banner.tell(attention(self._status, alarms), trouble=True)
        else:
            self.banner.tell(printable(state.text), trouble=not state.text.startswith("Starting"))

    def _ask_status(self) -> None:
        async def ask() -> None:
            self.status_told(await self.feed.status())

        if self.link.state.up:
            self.attempt(ask())

    # --- what the feed tells (Watcher) -----------------------------------------------------------------------------

    def rows_changed(self, conversation: Conversation, keys: Sequence[Key] | None) -> None:
        if conversation is not self.conversations.open:
            return
        self.pane.tail = conversation.tail
        whole = keys is None or conversation.timeline.width != self.pane.text_width
        self.pane.settle(None if whole else self._with_neighbours(conversation, keys or ()))

    def _with_neighbours(self, conversation: Conversation, keys: Sequence[Key]) -> list[Key]:
        """The row behind a new one may lose or gain its name and its day."""
        timeline = conversation.timeline
        touched = []
        for key in keys:
            index = timeline.index(key)
            if index is not None:
                touched += timeline.keys[index : index + 2]
        return touched

    def groups_changed(self) -> None:
        for id in self.kept.keys() & self.conversations.by_id.keys():
            self.conversations.by_id[id].draft = self.kept.pop(id)
        if self.conversations.open is None:
            self._open_something()
        self.open()
        self._draw_lists()
        self.alarms_changed()
        self._renew_sheets()

    def members_changed(self) -> None:
        conversation = self.conversations.open
        self.member_list.tell(conversation)
        self.top_bar.verified = conversation.verified if conversation else None
        self.top_bar.changed = len(conversation.names.changed) if conversation else 0
        self.redraw_hints()
        self.alarms_changed()
        self._renew_sheets()

    def alarms_changed(self) -> None:
        """There is something else to be careful with."""
        self._show_banner()

    def open_sheet(self, sheet: Screen[None], renew: Callable[[], None]) -> None:
        """Open a sheet that shows what may change meanwhile."""

        def closed(_: None) -> None:
            self._sheets.remove(renew)

        self._sheets.append(renew)
        self.app.push_screen(sheet, closed)

    def _renew_sheets(self) -> None:
        for renew in list(self._sheets):
            renew()

    def join_told(self, status: JoinStatus) -> None:
        if status.phase in ("joined", "failed"):
            self.joins.pop(status.join, None)
        else:
            self.joins[status.join] = status
        self._draw_joins()
        if self.tell_join is not None:
            self.tell_join(status)
        elif status.phase in ("joined", "failed"):
            self.tell(printable(status.text), trouble=status.error not in ("", "JoinCancelled"))

    def invitation_told(self, news: InvitationNews) -> None:
        if self.tell_invitation is None or not self.tell_invitation(news):
            self.flash(printable_line(f"{name_of(news.nick)} used your invitation."))

    def names(self) -> list[str]:
        """What the others in the open group are called, for whoever types a name."""
        conversation = self.conversations.open
        if conversation is None:
            return []
        return [conversation.names.label(each.did) for each in conversation.members if each.connection != "self"]

    def status_told(self, status: Status) -> None:
        self._status = status
        self.passing.learn(status)
        self.joins = {one.join: one for one in status.joins if one.phase != "failed"}
        self._draw_joins()
        self._show_banner()

    def complain(self, sentence: Printable) -> None:
        self.tell(sentence, trouble=True)

    def tell(self, sentence: Printable, *, trouble: bool = False) -> None:
        """Say it in the status line where it fits and can be seen, else in a toast, which the next key takes away."""
        if self.on_top and "\n" not in sentence and cells(sentence) <= self.status_line.content_size.width:
            self.flash(sentence, trouble=trouble)
        else:
            self.app.notify(sentence, severity="error" if trouble else "information", markup=False, timeout=8)

    def typing_told(self, news: TypingNews) -> None:
        if self.passing.heard(news):
            self.draw_typists()
            self.set_timer(TYPING_S, self.draw_typists)

    def draw_typists(self) -> None:
        conversation = self.conversations.open
        self.status_line.typing = self.passing.typists(conversation) if conversation else ""

    def _seen_conversation(self) -> Conversation | None:
        """The one in which what is not unread has been seen."""
        conversation = self.conversations.open
        return conversation if conversation is not None and (self.is_seen() or conversation.holding) else None

    @property
    def on_top(self) -> bool:
        """Whether no other screen lies over this one; `is_current` is true under a sheet as well."""
        return self.app.is_running and bool(self.app.screen_stack) and self.app.screen_stack[-1] is self

    def is_seen(self) -> bool:
        """Whether what arrives in the open conversation counts as read at once."""
        trigger = app_of(self).choices.now.read_trigger
        return trigger != "sent" and self.is_current and (self.app.app_focus or trigger == "visible")

    # --- what the person has chosen --------------------------------------------------------------------------------

    def prefer(self, preferences: Preferences) -> None:
        """Go by these from now on."""
        self.pane.markdown, self.pane.folded = preferences.markdown, preferences.folded
        self.pane.settle()
        self.status_line.hints = StatusLine.HINTS
        if preferences.keys or preferences.keymap != "default":
            from zerochat.tui.dialogs.help import hints, keys_of_all

            self.status_line.hints = hints(keys_of_all(self, self.app), StatusLine.HINTS)
        if self.conversations.by_id:
            self.redraw_lists()

    def redraw_lists(self) -> None:
        self._draw_lists()

    def arrived(self, conversation: Conversation, events: Sequence[Event]) -> None:
        """Tell whoever does not look at it."""
        self.passing.ended(conversation.info.id, [event.author.did for event in events])
        looking = conversation is self.conversations.open and self.is_current and self.app.app_focus
        if not looking:
            self.herald.hear(conversation.info, events)

    def _cry(self, tidings: Tidings) -> None:
        app = app_of(self)
        if self._crier is None:
            places = app.choices.places
            self._crier = Crier(app.write_outside, self.complain, places.profile if places else "")
        app.run_worker(self._crier.tell(tidings, app.choices.now), group="notify")

    # --- drawing ---------------------------------------------------------------------------------------------------

    def _draw_lists(self) -> None:
        conversation = self.conversations.open
        holding = app_of(self).choices.now.read_trigger == "sent"
        for each in self.conversations.by_id.values():
            each.muted, each.holding = self.herald.mark(each.info), holding
        self.group_list.tell(self.conversations)
        self.top_bar.info = conversation.info if conversation else None
        self.top_bar.apart = conversation.apart if conversation else ""
        self.draw_typists()
        self.passing.seen(self._seen_conversation)
        self.status_line.elsewhere = self.conversations.unread_elsewhere()
        self.status_line.activity = activity(self.conversations)
        self.status_line.called = self.conversations.mentions_elsewhere()
        self.status_line.asking = len(self.conversations.asking_elsewhere())
        self.status_line.me = name_of(conversation.info.nick) if conversation else self.nick
        self.pane.set_tail(conversation.tail if conversation else EMPTY)
        self.redraw_hints()

    def redraw_hints(self) -> None:
        """What the open group asks of its reader: who wants in, and what can be said."""
        conversation = self.conversations.open
        self.notice.tell(asks(conversation.info) if conversation else Printable(""), trouble=False)
        nothing = Printable("/new NAME or /join INVITATION")
        hint = placeholder(conversation.info, conversation.members) if conversation else nothing
        if keys := self.status_line.keys:  # the way back stands here too: the last line may just now say something else
            hint = Printable(f"A message is selected ({keys[-1]})")
        self.composer.placeholder = Content(hint)

    def _draw_joins(self) -> None:
        self.status_line.joining = under_way(list(self.joins.values()))

    def toggle_members(self) -> None:
        """Show the members, or hide them, whatever the width would say."""
        shown = self.member_list.display
        self.set_class(not shown, "-members-on")
        self.set_class(shown, "-members-off")

    def _look(self, focus: bool) -> None:
        """The terminal's window got the focus or lost it; what is in sight counts as read again."""
        if focus and (conversation := self.conversations.open) is not None and not conversation.holding:
            conversation.read()
            self._draw_lists()

    def flash(self, sentence: Printable, *, trouble: bool = False, seconds: float = SAID_S) -> None:
        """Say something in the status line for some seconds, or until the next line is sent or another conversation is
        opened."""
        self._flashes += 1
        number = self._flashes
        self.status_line.trouble = trouble
        self.status_line.flash = sentence

        def over() -> None:
            if self._flashes == number:
                self.status_line.flash = ""

        self.set_timer(seconds, over)

    def unflash(self, sentence: Printable | None = None) -> None:
        """What the status line says is over; `sentence`: if it is this."""
        if sentence is None or self.status_line.flash == sentence:
            self.status_line.flash = ""

    # --- conversations ---------------------------------------------------------------------------------------------

    def _open_something(self) -> None:
        """Open the group that was asked for at the start, or the first."""
        meant = self.conversations.meant(self._wanted) if self._wanted else []
        if len(meant) > 1:
            self.complain(Printable(AmbiguousGroup(group=printable_line(self._wanted), ids=meant).sentence()))
        first = next(iter(meant or self.conversations.by_id), None)
        if first is None:
            self.pane.tail = EMPTY
            self.pane.show(None, self.pane.names, self.pane.place)
        else:
            self.go(first)

    def go(self, group: str | None) -> None:
        """Open a conversation; the draft of the other one stays with it."""
        if group is None or group == self.conversations.open_id or group not in self.conversations.by_id:
            return
        if (before := self.conversations.open) is not None:
            before.draft = self.composer.text if before.recalled == 0 else before.draft
            before.recalled = 0
            before.leave()
        self.unflash()
        self.conversations.open_id = group
        conversation = self.conversations.by_id[group]
        conversation.enter()
        self.composer.put(conversation.draft)
        self.draw_about()
        self.pane.tail = conversation.tail
        self.pane.show(conversation.timeline, conversation.names, conversation.place)
        self.members_changed()
        self._draw_lists()
        self.run_worker(self.keeper.keep())
        self.attempt(self._read(conversation))

    async def _read(self, conversation: Conversation) -> None:
        if not conversation.loaded:
            await self.feed.load(conversation)
        await self.feed.read_members(conversation)

    def unsent(self) -> dict[str, str]:
        """What is unsent in which group, by its id."""
        here = self.conversations.open
        found = dict(self.kept)
        for id, each in self.conversations.by_id.items():
            text = self.composer.text if each is here and each.recalled == 0 else each.draft
            text = each.about.unsent(text) if each.about is not None else text
            if text.strip():
                found[id] = text
        return found

    @on(Composer.Changed)
    def _edited(self) -> None:
        if (conversation := self.conversations.open) is not None:
            conversation.edited(self.composer.text)
            if self.composer.text != self.composer.placed:
                self.passing.typed(conversation.info.id, self.composer.text)
        if self.composer.offers_over():
            from zerochat.tui.composer.completion import hints

            goes_on = hints(self.composer.text, self._bots())
            self.offers.tell(goes_on, -1)
        if self.composer.text in ("/tell ", "/letters "):
            self.attempt(self._read_connections())
        self.keep_drafts()

    def _bots(self) -> "list[Asking]":
        """What can be asked of the bots of the open group."""
        from zerochat.tui.composer.completion import asking

        here = self.conversations.open
        return asking(here.members) if here is not None else []

    def _files(self) -> list[str]:
        """What the files are called that came with the messages here, the newest first."""
        here = self.conversations.open
        rows = reversed(here.timeline.rows) if here is not None else ()
        names = dict.fromkeys(file.name for row in rows for file in row.files)
        return [name for name in names if name == printable_line(name)]

    async def _read_connections(self) -> None:
        found = await self.link.ask("connections", NoParams(), list[ConnectionInfo])
        self.connections = [one.label for one in found if printable_line(one.label) == one.label != ""]

    @on(Composer.Offered)
    def _offered(self, event: Composer.Offered) -> None:
        self.offers.tell(event.labels, event.at)

    def keep_drafts(self) -> None:
        """Have what is unsent kept, half a second after the first change."""
        if not self._keeping:
            self._keeping = True
            self.set_timer(KEEP_S, self._keep_drafts)

    async def _keep_drafts(self) -> None:
        self._keeping = False
        self.run_worker(self.keeper.keep())

    # --- messages as things ----------------------------------------------------------------------------------------

    def step_out(self) -> None:
        """Behind the last message comes the composer, but where letters mean something among the messages."""
        if app_of(self).choices.now.keymap not in LETTERS_STAY:
            self.leave_messages()

    def leave_messages(self) -> None:
        """From the messages to the composer; none is selected any more."""
        self.pane.select(None)
        self.set_focus(self.composer)  # At once: the next key may be waiting.

    @property
    def about(self) -> "About | None":
        """What the composer's text is about; None: it is a message of its own."""
        conversation = self.conversations.open
        return conversation.about if conversation else None

    def set_about(self, about: "About | None") -> None:
        """Let the composer's text be about this, and go there; a message that was to be changed gives place again to
        what had been begun."""
        if (conversation := self.conversations.open) is None:
            return
        before, conversation.about = conversation.about, about
        if before is not None and before.kind == "edit":
            self.composer.put(before.stash)
            if about is not None and about.kind == "edit":
                conversation.about = replace(about, stash=before.stash)
        self.draw_about()
        self.leave_messages()

    def draw_about(self) -> None:
        conversation = self.conversations.open
        about = conversation.about if conversation else None
        sentence = about.sentence(conversation.names) if conversation and about else Printable("")
        self.above.tell(Printable(f"Esc: no. {sentence}") if sentence else sentence, trouble=False)

    def _recall(self, step: int, present: str) -> str | None:
        conversation = self.conversations.open
        return conversation.recall(step, present) if conversation else None

    @on(GroupList.Chosen)
    def _choose_group(self, event: GroupList.Chosen) -> None:
        self.go(event.group)
        self.composer.focus()

    @on(MessagePane.Older)
    def _older(self) -> None:
        if (conversation := self.conversations.open) is not None and not conversation.paging:
            self.attempt(self.feed.load_older(conversation))

    @on(MessagePane.Newer)
    def _newer(self) -> None:
        if (conversation := self.conversations.open) is not None and not conversation.paging:
            self.attempt(self.feed.load_newer(conversation))

    @on(MessagePane.Unseen)
    def _unseen(self) -> None:
        self.composer.border_title = self.pane.badge
        self.passing.seen(self._seen_conversation)

    @on(Composer.BadgePressed)
    def _go_to_unseen(self) -> None:
        self.pane.go_to_unseen()

    @on(MessagePane.Newest)
    def _newest(self) -> None:
        if (conversation := self.conversations.open) is not None:
            self.attempt(self.feed.load_newest(conversation))

    def attempt(self, deed: Coroutine[Any, Any, object]) -> None:
        """Do something with the agent; when it refuses, its sentence is shown."""

        async def guarded() -> None:
            try:
                await deed
            except AgentError as error:
                if error.name == DAMAGED:
                    self._damage = printable_line(str(error))
                    self._show_banner()
                    self.flash(Printable("This cannot be done: the journal is damaged."), trouble=True)
                else:
                    self.complain(printable(str(error)))

        self.run_worker(guarded())
