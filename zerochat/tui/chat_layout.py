"""The chat screen's widgets, their layout, and drawing the conversations into them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from textual import events
from textual._context import active_message_pump
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.content import Content
from textual.dom import DOMNode
from textual.screen import Screen

from zerochat.rpc import (
    InvitationNotification,
    JoinStatus,
    Status,
)
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.base_app import app_of
from zerochat.tui.composer.composer import CompletionList, Composer
from zerochat.tui.composer.drafts import DraftSaver
from zerochat.tui.host.notify import Notification, NotificationPolicy, Notifier
from zerochat.tui.messages.selectable_pane import SelectablePane
from zerochat.tui.panels.bars import FLASH_S, Banner, JoinRequestNotice, StatusLine, TopBar, activity
from zerochat.tui.panels.lists import GroupList, MemberList
from zerochat.tui.state.agent_link import AgentError, AgentLink
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.conversations import Conversations
from zerochat.tui.state.ephemeral import EphemeralState
from zerochat.tui.state.feed import Feed
from zerochat.tui.state.feed_listener import FeedListener
from zerochat.tui.state.held_reports import HeldReports
from zerochat.tui.state.hints import banner_text, join_progress, join_request_notice, placeholder
from zerochat.tui.state.jump_history import JumpHistory
from zerochat.tui.state.pending_requests import PendingRequests
from zerochat.tui.state.read_marks import ReadMarks
from zerochat.tui.style.keymaps import LETTER_KEYMAPS
from zerochat.tui.style.text import clip, name_of

if TYPE_CHECKING:
    from zerochat.tui.composer.completion import BotCommand
    from zerochat.tui.messages.reply_bar import ComposeTarget


BREAKPOINTS = [(0, "-tiny"), (60, "-narrow"), (80, "-medium"), (100, "-wide")]
DAMAGED = "JournalDamaged"
"""Error code whose sentence stays in the banner."""
READING_S = 0.06
"""Display time of a sentence for each of its characters."""
SIDEBAR_CELLS_MIN = 8
"""Minimum width of the list of conversations with its border."""
CANCEL_HINT = " (Esc cancels)"
EMPTY = (
    Printable(""),
    Printable("No conversations yet."),
    Printable("/new NAME creates a group, /join INVITATION joins one."),
)


@runtime_checkable
class ErrorLine(Protocol):
    """A dialog that shows errors of its own actions."""

    def show_error(self, sentence: Printable) -> None: ...

    def clear_error(self) -> None: ...


class Controller(FeedListener, Protocol):
    """Handlers of input, and of notifications that are not part of the view."""

    def run_message_action(self, name: str) -> None:
        """Run an action on the selected message."""

    def submit(self, text: str) -> None:
        """Handle the composer's text on Enter."""

    def type_key(self, event: events.Key) -> None:
        """Handle a key that is not bound where the focus is."""


class ChatLayout(Screen[None]):
    """Conversations left, messages centre, members right, composer and status line below."""

    HORIZONTAL_BREAKPOINTS = BREAKPOINTS
    awaits_conversation = 0.0
    """Until when a private conversation opens once we have joined it, for its invitation was accepted here; on the
    monotonic clock."""

    def __init__(
        self, link: AgentLink, controller: Controller, *, open_group: str = "", drafts: Mapping[str, str] | None = None
    ) -> None:
        """`drafts`: unsent texts by group id, kept while the profile was locked."""
        super().__init__()
        self.link = link
        self.pending_drafts = dict(drafts or {})
        """Drafts whose conversations are not loaded yet, by group id."""
        self.draft_saver = DraftSaver(link, self.unsent, self.report_error)
        self._save_scheduled = False
        self.notification_policy = NotificationPolicy(
            lambda: app_of(self).settings_store.current, self._notify, self.set_timer
        )
        self._notifier: Notifier | None = None
        self.input_locked = True
        """No input until the profile is open: early keys may be the passphrase."""
        self._journal_fault = Printable("")
        self.conversations = Conversations()
        self.feed = Feed(link, self.conversations, controller)
        self.read_marks = ReadMarks(link, lambda: self.feed.seq, self.set_timer, self.run_worker)
        self.nick = Printable("")
        self._initial_group = open_group
        self._status: Status | None = None
        self._draining = False
        self._flashes = 0
        self._causes: dict[asyncio.Task[Any] | None, Screen[Any]] = {}
        """The screens from which the running requests were made."""
        self._held = HeldReports()
        self.running_line = ""
        """The command line whose handler runs."""
        self.rejected_line = ""
        """The command line that was rejected last, and is back in the composer. Escape clears it there."""
        self.pending_requests = PendingRequests()
        self.jump_history = JumpHistory()
        self.ephemeral = EphemeralState(link, self.set_timer, self.run_worker)
        self.join_listener: Callable[[JoinStatus], None] | None = None
        """Receives join statuses while the join dialog is open."""
        self.invitation_listener: Callable[[InvitationNotification], bool] | None = None
        """Receives invitation uses while the invitation dialog is open; returns whether it handled them."""
        self.joins: dict[str, JoinStatus] = {}
        """Running joins by id."""
        self._dialog_refreshers: list[Callable[[], None]] = []
        """Refresh callbacks of the open dialogs, called when groups or members change."""
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self.top_bar = TopBar(id="top")
        self.banner = Banner(id="banner")
        self.notice = JoinRequestNotice(id="join-requests")
        self.group_list = GroupList(id="groups")
        self.pane = SelectablePane(controller.run_message_action, self.leave_downwards, controller.type_key, id="pane")
        self.member_list = MemberList(id="members")
        self.reply_bar = Banner(id="reply-bar")
        """Shows what the composer replies to or edits."""
        self.completion_list = CompletionList(id="completions")
        self.connections: list[str] = []
        candidates = (self.member_names, lambda: self.connections, self._bot_commands, self._file_names)
        self.composer = Composer(controller.submit, self._recall, *candidates, id="composer")
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
        yield self.reply_bar
        yield self.completion_list
        yield self.composer
        yield self.status_line

    def run_request(self, request: Coroutine[Any, Any, object]) -> None:
        """Run a request in a worker and report an AgentError, with the command that caused it back in the composer."""
        line, group, cause = self.running_line, self.conversations.open_id, self._origin()
        if isinstance(cause, ErrorLine):
            cause.clear_error()

        async def guarded() -> None:
            task = asyncio.current_task()
            self._causes[task] = cause
            try:
                await request
            except AgentError as error:
                if error.name == DAMAGED:
                    self._journal_fault = printable_line(str(error))
                    self.show_banner()
                    self.report(Printable("Not done: the journal is damaged."), trouble=True)
                else:
                    self.report_error(printable(str(error)))
                if group == self.conversations.open_id:
                    self.give_back(line)
            finally:
                del self._causes[task]

        self.run_worker(guarded())

    # --- drawing ------------------------------------------------------------------------------------------------------

    def show_banner(self) -> None:
        state, conversation = self.link.state, self.conversations.open
        if state.up:
            alarms = conversation.warnings if conversation else []
            alarms += [self._journal_fault] if self._journal_fault and self._journal_fault not in alarms else []
            self.banner.show_text(banner_text(self._status, alarms), trouble=True)
        else:
            self.banner.show_text(printable(state.text), trouble=state.trouble)

    def draw_lists(self) -> None:
        conversation = self.conversations.open
        holding = app_of(self).settings_store.current.read_trigger == "sent"
        for each in self.conversations.by_id.values():
            each.notify_mark, each.read_on_send = self.notification_policy.mark(each.info), holding
        self.group_list.show_groups(self.conversations)
        self.top_bar.info = conversation.info if conversation else None
        self.top_bar.disambiguator = conversation.disambiguator if conversation else ""
        self.draw_typing()
        self.ephemeral.schedule_read_report(self.visible_conversation)
        self.status_line.elsewhere = self.conversations.unread_elsewhere()
        self.status_line.activity = activity(self.conversations)
        self.status_line.mentions = self.conversations.mentions_elsewhere()
        self.status_line.join_requests = len(self.conversations.requests_elsewhere())
        self.status_line.invitations = self.conversations.invitations_elsewhere()
        self.status_line.me = name_of(conversation.info.nick) if conversation else self.nick
        self.pane.set_tail(conversation.tail if conversation else EMPTY)
        self.redraw_hints()

    def redraw_hints(self) -> None:
        """Draw the join request notice and the composer's placeholder."""
        conversation = self.conversations.open
        asks = join_request_notice(conversation.info, app_of(self).key) if conversation else Printable("")
        self.notice.show_text(asks, trouble=False)
        nothing = Printable("/new NAME or /join INVITATION")
        hint = placeholder(conversation.info, conversation.members.myself) if conversation else nothing
        if keys := self.status_line.keys:  # shown here too, since the status line may show another text
            hint = Printable(f"A message is selected ({keys[-1]})")
        self.composer.placeholder = Content(hint)

    def draw_joins(self) -> None:
        self.status_line.joining = join_progress(list(self.joins.values()), app_of(self).key)

    def draw_typing(self) -> None:
        conversation = self.conversations.open
        self.status_line.typing = self.ephemeral.typing_text(conversation) if conversation else ""

    def draw_reply_bar(self) -> None:
        conversation = self.conversations.open
        target = conversation.compose_target if conversation else None
        sentence = Printable("")
        if conversation is not None and target is not None:
            width = self.app.size.width - len(CANCEL_HINT) - 2
            sentence = Printable(clip(target.sentence(conversation.names), width) + CANCEL_HINT)
        self.reply_bar.show_text(sentence, trouble=False)

    def toggle_members(self) -> None:
        """Show or hide the member list regardless of the width."""
        shown = self.member_list.display
        self.set_class(not shown, "-members-on")
        self.set_class(shown, "-members-off")

    def toggle_sidebar(self) -> bool:
        """Show or hide the list of conversations, regardless of the width; returns whether it is shown now."""
        shown = self.group_list.display
        self.set_class(not shown, "-list-on")
        self.set_class(shown, "-list-off")
        return not shown

    def show_sidebar(self, shown: bool, width: int) -> None:
        """Show the list of conversations, where the window is wide enough; `width` 0: by the width of the window."""
        if self.has_class("-list-off") == shown:
            self.set_class(not shown, "-list-off")
            self.remove_class("-list-on")
        styles = self.group_list.styles
        styles.width = width or None
        styles.min_width, styles.max_width = (SIDEBAR_CELLS_MIN, "50%") if width else (None, None)

    # --- messages to the user -----------------------------------------------------------------------------------------

    def report_error(self, sentence: Printable) -> None:
        """Show an error; the command that caused it is put back into the composer."""
        self.report(sentence, trouble=True)
        self.give_back(self.running_line)

    def give_back(self, line: str) -> None:
        """Put a rejected line back into the composer, unless another text is in it; empty: none."""
        if line and not self.composer.text:
            self.composer.set_text(line)
            self.rejected_line = line

    def report(self, sentence: Printable, *, trouble: bool = False) -> None:
        """Show a sentence in the status line, which grows for it; an error that an open dialog caused, in its line."""
        origin = self._origin() if trouble else None
        if origin in self.app.screen_stack and isinstance(origin, ErrorLine):
            origin.show_error(sentence)
        else:
            self.flash(sentence, trouble=trouble, seconds=max(FLASH_S, READING_S * len(sentence)))

    def _origin(self) -> Screen[Any]:
        """The screen that caused what runs now: that of the request, of the widget, or the one that gets the keys."""
        if (known := self._causes.get(asyncio.current_task())) is not None:
            return known
        pump = active_message_pump.get(None)
        return pump.screen if isinstance(pump, DOMNode) and pump is not self.app else self.app.screen

    def flash(self, sentence: Printable, *, trouble: bool = False, seconds: float = FLASH_S) -> None:
        """Show a sentence in the status line for some seconds, or until the next line is sent or another conversation
        is opened. While a dialog is open it waits there, behind earlier errors."""
        if self.app.is_running and not self.on_top:
            if self._held.add(sentence, trouble):
                self._flashes += 1  # no timer ends it
                self.status_line.trouble = trouble
                self.status_line.flash = self._held.text
                self.status_line.fit_flash()
            return
        self._held.take()
        self._show_flash(sentence, trouble, seconds)

    def on_screen_resume(self) -> None:
        """The dialog was closed: what waited is shown as if it came now."""
        trouble = self._held.trouble
        if sentence := self._held.take():
            self._show_flash(sentence, trouble, max(FLASH_S, READING_S * len(sentence)))

    def _show_flash(self, sentence: Printable, trouble: bool, seconds: float) -> None:
        self._flashes += 1
        number = self._flashes
        self.status_line.trouble = trouble
        self.status_line.flash = sentence
        self.status_line.fit_flash()

        def over() -> None:
            if self._flashes == number:
                self.unflash()

        self.set_timer(seconds, over)

    def unflash(self, sentence: Printable | None = None) -> None:
        """Clear the status line; `sentence`: only if it shows this."""
        if sentence is None or self.status_line.flash == sentence:
            self._held.take()
            self.status_line.flash = ""
            self.status_line.fit_flash()

    def _notify(self, notification: Notification) -> None:
        app = app_of(self)
        if self._notifier is None:
            places = app.settings_store.places
            self._notifier = Notifier(app.write_raw, self.report_error, places.profile if places else "")
        app.run_worker(self._notifier.notify(notification, app.settings_store.current), group="notify")

    # --- visibility ---------------------------------------------------------------------------------------------------

    @property
    def on_top(self) -> bool:
        """Whether no dialog covers this screen; `is_current` is also true under a dialog."""
        return self.app.is_running and bool(self.app.screen_stack) and self.app.screen_stack[-1] is self

    def is_visible_now(self) -> bool:
        """Whether arriving messages of the open conversation count as read."""
        trigger = app_of(self).settings_store.current.read_trigger
        return trigger != "sent" and self.is_current and (self.app.app_focus or trigger == "visible")

    def visible_conversation(self) -> Conversation | None:
        """The open conversation, where its messages are visible to the user."""
        conversation = self.conversations.open
        return (
            conversation if conversation is not None and (self.is_visible_now() or conversation.read_on_send) else None
        )

    # --- composer -----------------------------------------------------------------------------------------------------

    def unsent(self) -> dict[str, str]:
        """Unsent texts by group id."""
        here = self.conversations.open
        found = dict(self.pending_drafts)
        for id, each in self.conversations.by_id.items():
            text = self.composer.text if each is here and each.recalled == 0 else each.draft
            text = each.compose_target.unsent(text) if each.compose_target is not None else text
            if text.strip():
                found[id] = text
        return found

    def _recall(self, step: int, present: str) -> str | None:
        conversation = self.conversations.open
        return conversation.recall(step, present) if conversation else None

    def member_names(self) -> Sequence[str]:
        """Labels of the other members of the open group, for completion."""
        conversation = self.conversations.open
        return conversation.completion_names() if conversation is not None else []

    def _bot_commands(self) -> "list[BotCommand]":
        """Commands of the bots in the open group."""
        from zerochat.tui.composer.completion import bot_commands

        here = self.conversations.open
        return bot_commands(here.members.bots.values()) if here is not None else []

    def _file_names(self) -> list[str]:
        """File names in the open conversation, newest first."""
        here = self.conversations.open
        rows = reversed(here.timeline.rows) if here is not None else ()
        names = dict.fromkeys(file.name for row in rows for file in row.files)
        return [name for name in names if name == printable_line(name)]

    @property
    def compose_target(self) -> "ComposeTarget | None":
        """The message that the composer replies to or edits; None: a new message."""
        conversation = self.conversations.open
        return conversation.compose_target if conversation else None

    def leave_downwards(self) -> None:
        """Moving below the last message leads to the composer, except with a letter keymap."""
        if app_of(self).settings_store.current.keymap not in LETTER_KEYMAPS:
            self.leave_messages()

    def leave_messages(self) -> None:
        """Clear the selection and focus the composer."""
        self.pane.select(None)
        self.set_focus(self.composer)  # synchronously: the next key may be queued
