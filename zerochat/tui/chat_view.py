"""The chat screen's view: handlers of feed events, of the composer and of the message pane.

The `Feed` keeps the `Conversations` in sync with the agent; `ChatLayout` draws them. Key and command handlers are in
`chat_screen` and `actions`.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from textual import on
from textual.screen import Screen

from zerochat.agent.settings.client_preferences import Preferences
from zerochat.errors import AmbiguousGroup
from zerochat.presentation import group_rules
from zerochat.rpc import (
    ConnectionInfo,
    Event,
    Hello,
    InvitationNotification,
    JoinStatus,
    NoParams,
    Status,
    TypingNotification,
)
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.composer.composer import Composer
from zerochat.tui.composer.drafts import SAVE_DELAY_S
from zerochat.tui.host.time_zone import time_zone_changed
from zerochat.tui.messages.pane import MessagePane
from zerochat.tui.messages.row import Look
from zerochat.tui.messages.timeline import Key
from zerochat.tui.panels.bars import StatusLine
from zerochat.tui.panels.lists import GroupList
from zerochat.tui.state.agent_link import LinkState
from zerochat.tui.state.conversation import Conversation
from zerochat.tui.state.ephemeral import TYPING_S
from zerochat.tui.style.keymaps import LETTER_KEYMAPS
from zerochat.tui.style.text import name_of

if TYPE_CHECKING:
    from zerochat.tui.messages.reply_bar import ComposeTarget

from zerochat.tui.base_app import app_of
from zerochat.tui.chat_layout import EMPTY, ChatLayout

FRAME_S = 1 / 60
STATUS_EVERY_S = 20.0
"""Polling interval of the agent's status (warnings such as a full disk)."""


class ChatView(ChatLayout):
    """The chat screen without its keys and commands."""

    def on_mount(self) -> None:
        self.show_banner()
        self.watch(self.app, "app_focus", self._on_app_focus, init=False)
        self.apply_preferences(app_of(self).settings_store.current)
        self.set_interval(STATUS_EVERY_S, self._poll_status)

    # --- connection to the agent --------------------------------------------------------------------------------------

    async def on_connected(self, hello: Hello) -> None:
        """Load the agent's state and open a conversation."""
        self.nick = name_of(hello.nick)
        self._journal_fault = Printable("")
        self.pending_drafts = {**await self.draft_saver.read(), **self.pending_drafts}
        try:
            await self.feed.on_connected(hello)
        finally:
            self.unlock_input()
            self.schedule_draft_save()

    def unlock_input(self) -> None:
        """Enable the composer."""
        if self.input_locked:
            self.input_locked = self.composer.disabled = False
            self.composer.focus()

    def lock_input(self) -> None:
        """Disable the composer until the profile is open again."""
        self.input_locked = self.composer.disabled = True

    def on_notifications(self) -> None:
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

    def on_link_state(self, state: LinkState) -> None:
        """The connection to the agent changed."""
        if self.is_mounted:
            self.show_banner()
            self.status_line.me = self.nick

    def _poll_status(self) -> None:
        if time_zone_changed():
            for conversation in self.conversations.by_id.values():
                conversation.timeline.change_time_zone()
            self.pane.redraw()

        async def poll() -> None:
            self.on_status(await self.feed.status())
            if self.feed.members.is_overdue(self.conversations.open_id):
                await self.feed.refresh()

        if self.link.state.up:
            self.run_request(poll())

    # --- FeedListener -------------------------------------------------------------------------------------------------

    def rows_changed(self, conversation: Conversation, keys: Sequence[Key] | None) -> None:
        if conversation is not self.conversations.open:
            return
        self.pane.tail = conversation.tail
        whole = keys is None or conversation.timeline.width != self.pane.text_width
        self.pane.redraw(None if whole else self._with_neighbours(conversation, keys or ()))

    def _with_neighbours(self, conversation: Conversation, keys: Sequence[Key]) -> list[Key]:
        """The keys with their successors: the row after a new one may lose or gain its name and day."""
        timeline = conversation.timeline
        touched = []
        for key in keys:
            index = timeline.index(key)
            if index is not None:
                touched += timeline.keys[index : index + 2]
        return touched

    def groups_changed(self) -> None:
        for id in self.pending_drafts.keys() & self.conversations.by_id.keys():
            self.conversations.by_id[id].draft = self.pending_drafts.pop(id)
        if self.conversations.open is None:
            self._open_initial()
        self.unlock_input()
        self.draw_lists()
        self.warnings_changed()
        self._refresh_dialogs()

    def read_changed(self, conversation: Conversation) -> None:
        if conversation is self.conversations.open:
            self.note_read()
        elif not conversation.unread:
            conversation.forget_unseen()

    def note_read(self) -> None:
        """Mark the open conversation as read where its first unread message is visible; else set the unread line above
        it, and the badge."""
        conversation = self.conversations.open
        if conversation is None or not conversation.loaded:
            return
        visible, first = self.is_visible_now(), conversation.first_unread
        conversation.seen_once |= visible
        sight = self.pane.sight_of(first) if first is not None else 0
        conversation.place.missed = conversation.unread if sight < 0 and conversation.timeline.unread == first else 0
        if not conversation.unread and not conversation.mentions:
            self.pane.drop_passed()
        elif visible and not sight:
            self.mark_read(conversation)
        elif first != conversation.timeline.unread and not conversation.only_late:
            before = conversation.timeline.unread
            conversation.timeline.set_unread(first)
            conversation.place.missed = conversation.unread if sight < 0 else 0
            self.pane.redraw(self._with_neighbours(conversation, [key for key in (before, first) if key is not None]))

    def mark_read(self, conversation: Conversation) -> None:
        """Everything that arrived in a conversation is read."""
        conversation.mark_read()
        if conversation is self.conversations.open:
            self.pane.drop_passed()
            self.composer.border_title = self.pane.badge
        self.read_marks.mark(conversation.info.id)
        self.draw_lists()

    async def mark_all_read(self) -> None:
        """Mark all conversations as read. Raises AgentError."""
        await self.read_marks.mark_all()
        for conversation in self.conversations.by_id.values():
            conversation.mark_read()
            conversation.forget_unseen()
        self.composer.border_title = self.pane.badge
        self.draw_lists()

    def members_changed(self) -> None:
        conversation = self.conversations.open
        self.member_list.show_members(conversation)
        self.top_bar.verified = conversation.verified if conversation else None
        self.top_bar.changed = len(conversation.names.changed) if conversation else 0
        self.redraw_hints()
        self.warnings_changed()
        self._refresh_dialogs()

    def warnings_changed(self) -> None:
        """The warnings changed."""
        self.show_banner()

    def on_join_status(self, status: JoinStatus) -> None:
        if status.phase in ("joined", "failed"):
            self.joins.pop(status.join, None)
        else:
            self.joins[status.join] = status
        self.draw_joins()
        if self.join_listener is not None:
            self.join_listener(status)
        elif status.phase == "joined" and monotonic() < self.awaits_conversation:
            self.run_request(self._open_joined(status))
        elif status.phase in ("joined", "failed"):
            self.report(printable(status.text), trouble=status.error not in ("", "JoinCancelled"))

    async def _open_joined(self, status: JoinStatus) -> None:
        """Open the private conversation that we have joined, unless the user is writing elsewhere."""
        await self.feed.refresh()
        conversation = self.conversations.by_id.get(status.group)
        if conversation is None or conversation.info.private is None:
            self.report(printable(status.text))
            return
        self.awaits_conversation = 0.0
        if not self.composer.text:
            self.open_group(status.group)
        self.flash(printable_line(f"You are in {conversation.name}."))

    def on_invitation_used(self, notification: InvitationNotification) -> None:
        conversation = self.conversations.by_id.get(notification.group)
        if conversation is not None and conversation.info.private is not None:
            self.flash(printable_line(f"{name_of(notification.nick)} has accepted the private conversation."))
        elif self.invitation_listener is None or not self.invitation_listener(notification):
            self.flash(
                printable_line(f"{name_of(notification.nick)} used {group_rules.your_invitation(notification.name)}.")
            )

    def on_status(self, status: Status) -> None:
        self._status = status
        self.ephemeral.set_shared(status)
        self.joins = {join.join: join for join in status.joins if join.phase != "failed"}
        self.draw_joins()
        self.show_banner()

    def on_typing(self, notification: TypingNotification) -> None:
        if self.ephemeral.typing_received(notification):
            self.draw_typing()
            self.set_timer(TYPING_S, self.draw_typing)

    def on_events(self, conversation: Conversation, events: Sequence[Event]) -> None:
        """Notify about new messages that the user is not looking at."""
        self.ephemeral.typing_ended(conversation.info.id, [event.author.did for event in events])
        looking = conversation is self.conversations.open and self.is_current and self.app.app_focus
        if not looking:
            self.notification_policy.add(conversation.info, events, conversation.names)

    # --- dialogs and settings -----------------------------------------------------------------------------------------

    def open_dialog(self, dialog: Screen[None], refresh: Callable[[], None]) -> None:
        """Open a dialog and call `renew` whenever groups or members change."""

        def closed(_: None) -> None:
            self._dialog_refreshers.remove(refresh)

        self._dialog_refreshers.append(refresh)
        self.app.push_screen(dialog, closed)

    def _refresh_dialogs(self) -> None:
        for refresh in list(self._dialog_refreshers):
            refresh()

    def apply_preferences(self, preferences: Preferences) -> None:
        """Apply the preferences."""
        self.composer.use_vim(preferences.keymap in LETTER_KEYMAPS)
        self.pane.letters_always = preferences.letters == "act" or preferences.keymap in LETTER_KEYMAPS
        self.pane.markdown, self.pane.folded = preferences.markdown, preferences.folded
        self.pane.look = Look(preferences.time_format, preferences.nick_width)
        self.show_sidebar(preferences.sidebar, preferences.sidebar_width)
        self.pane.redraw()
        self.status_line.hints = StatusLine.HINTS
        if preferences.keys or preferences.keymap != "default":
            from zerochat.tui.dialogs.help import first_keys, hints

            keys = first_keys(self, self.app)
            self.status_line.hints, self.status_line.unread_key = hints(keys, StatusLine.HINTS), keys["go.unread"]
            self.pane.unread_key = keys["messages.unread"]
        if self.conversations.by_id:
            self.draw_lists()

    def _on_app_focus(self, focus: bool) -> None:
        """The terminal window gained or lost focus; on focus, visible messages count as read."""
        if focus:
            self.note_read()

    # --- conversations ------------------------------------------------------------------------------------------------

    def _open_initial(self) -> None:
        """Open the group requested at startup, or the first."""
        matches = self.conversations.find(self._initial_group) if self._initial_group else []
        wanted, first = self._initial_group, next(iter(matches or self.conversations.by_id), None)
        if first is None:
            self.pane.tail = EMPTY
            self.pane.show(None, self.pane.names, self.pane.place)
            self.members_changed()
        else:
            self.open_group(first)
        if len(matches) > 1:  # opening a group clears the status line
            self.report_error(Printable(AmbiguousGroup(group=printable_line(wanted), ids=matches).sentence()))

    def open_group(self, group: str | None) -> None:
        """Open a conversation; the draft of the previous one stays there."""
        if group is None or group == self.conversations.open_id or group not in self.conversations.by_id:
            return
        if (before := self.conversations.open) is not None:
            before.draft = self.composer.text if before.recalled == 0 else before.draft
            before.recalled = 0
            if before.loaded and before.unread and self.is_visible_now():
                self.mark_read(before)
            before.leave()
        self.unflash()
        self.conversations.open_id = self._initial_group = group  # opened again when it is joined anew
        conversation = self.conversations.by_id[group]
        conversation.enter()
        self.composer.set_text(conversation.draft)
        self.draw_reply_bar()
        self.pane.tail = conversation.tail
        self.pane.show(conversation.timeline, conversation.names, conversation.place)
        self.members_changed()
        self.draw_lists()
        self.run_worker(self.draft_saver.save())
        self.run_request(self._read(conversation))

    def conversation_moved(self, former: str, group: str) -> None:
        """A private conversation is part of another one now: show the other in its place, with the unsent text."""
        if (conversation := self.conversations.by_id.get(former)) is None:
            return
        shown = former == self.conversations.open_id
        if text := self.composer.text if shown else conversation.draft:
            self.pending_drafts[group] = text
        if shown:
            self._initial_group = group  # opened when the lists are loaded

    async def _read(self, conversation: Conversation) -> None:
        if not conversation.loaded:
            await self.feed.load(conversation)
        await self.feed.read_members(conversation)

    @on(GroupList.Chosen)
    def _choose_group(self, event: GroupList.Chosen) -> None:
        self.open_group(event.group)
        self.composer.focus()

    @on(MessagePane.Older)
    def _older(self) -> None:
        if (conversation := self.conversations.open) is not None and not conversation.paging:
            self.run_request(self.feed.load_older(conversation))

    @on(MessagePane.Newer)
    def _newer(self) -> None:
        if (conversation := self.conversations.open) is not None and not conversation.paging:
            self.run_request(self.feed.load_newer(conversation))

    @on(MessagePane.Newest)
    def _newest(self) -> None:
        if (conversation := self.conversations.open) is not None:
            self.run_request(self.feed.load_newest(conversation))

    @on(MessagePane.Unseen)
    def _unseen(self) -> None:
        self.note_read()
        self.composer.border_title = self.pane.badge
        self.ephemeral.schedule_read_report(self.visible_conversation)

    # --- composer -----------------------------------------------------------------------------------------------------

    @on(Composer.Changed)
    def _edited(self) -> None:
        if (conversation := self.conversations.open) is not None:
            conversation.composer_changed(self.composer.text)
            if self.composer.text != self.composer.placed_text:
                self.ephemeral.report_typing(conversation.info.id, self.composer.text)
        if self.composer.completions_stale():
            from zerochat.tui.composer.completion import hints

            goes_on = hints(self.composer.text, self._bot_commands())
            self.completion_list.show(goes_on, -1)
        if self.composer.text in ("/message ", "/messages "):
            self.run_request(self._read_connections())
        self.schedule_draft_save()

    async def _read_connections(self) -> None:
        found = await self.link.request("list_connections", NoParams(), list[ConnectionInfo])
        self.connections = [entry.label for entry in found if printable_line(entry.label) == entry.label != ""]

    @on(Composer.CompletionsChanged)
    def _on_completions(self, event: Composer.CompletionsChanged) -> None:
        self.completion_list.show(event.labels, event.at)

    @on(Composer.ModeChanged)
    def _on_mode(self, event: Composer.ModeChanged) -> None:
        self.status_line.mode = "NORMAL" if event.normal else ""

    def schedule_draft_save(self) -> None:
        """Save the drafts half a second after the first change."""
        if not self._save_scheduled:
            self._save_scheduled = True
            self.set_timer(SAVE_DELAY_S, self._save_drafts)

    async def _save_drafts(self) -> None:
        self._save_scheduled = False
        self.run_worker(self.draft_saver.save())

    def set_compose_target(self, target: "ComposeTarget | None") -> None:
        """Set what the composer replies to or edits, and focus it; ending an edit restores the stashed draft."""
        if (conversation := self.conversations.open) is None:
            return
        before, conversation.compose_target = conversation.compose_target, target
        if before is not None and before.kind == "edit":
            self.composer.set_text(before.stash)
            if target is not None and target.kind == "edit":
                conversation.compose_target = replace(target, stash=before.stash)
        self.draw_reply_bar()
        self.leave_messages()
