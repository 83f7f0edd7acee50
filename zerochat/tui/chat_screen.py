"""The chat screen's controller: key bindings, submitted lines, dispatch to `actions`.

Actions are imported when they run, so that the first frame does not wait for them.
"""

from collections.abc import Mapping
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType

from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.base_app import app_of
from zerochat.tui.chat_view import ChatView
from zerochat.tui.composer.composer import Composer
from zerochat.tui.panels.lists import GroupList, MemberList
from zerochat.tui.state.agent_link import AgentLink
from zerochat.tui.state.feed_listener import (
    GroupNotification,
    LogNotification,
    PeerRelatedNotification,
    TlogNotification,
)
from zerochat.tui.state.hints import NO_MESSAGES
from zerochat.tui.style.keymaps import LETTER_KEYMAPS, is_letter

RECORD_THEMSELVES = ("reply", "edit", "send")
"""Commands that record their own text for Ctrl+Up."""
REPEAT_S = 3.0
"""Interval in which a second Ctrl+C or Ctrl+Q quits."""


def _key(keys: str, action: str, description: str, name: str) -> Binding:
    return Binding(keys, action, description, show=False, id=name)


class ChatScreen(ChatView):
    """The main screen: a `ChatView` that handles keys and submitted lines."""

    BINDING_GROUP_TITLE = "Everywhere"
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("f3", "invite", "Invite to this group", "group.invite"),
        _key("f4", "requests", "Answer join requests", "group.requests"),
        _key("f7", "new", "Create a group", "group.new"),
        _key("f8", "join", "Join a group", "group.join"),
        _key("alt+up", "go_beside(-1)", "Previous conversation", "go.previous"),
        _key("alt+down,ctrl+n", "go_beside(1)", "Next conversation", "go.next"),
        _key("alt+a", "go_unread", "Next unread conversation", "go.unread"),
        _key("alt+r", "read_all", "Mark all conversations as read", "go.read_all"),
        _key("ctrl+k,alt+g", "switch", "Find a conversation", "go.switch"),
        *(
            _key(f"alt+{number}", f"go_number({number})", f"Conversation {number}", f"go.{number}")
            for number in range(1, 10)
        ),
        _key("pageup", "page(-1)", "Page up", "messages.page_up"),
        _key("pagedown", "page(1)", "Page down", "messages.page_down"),
        _key("ctrl+home", "oldest", "Oldest loaded message", "messages.oldest"),
        _key("ctrl+end", "newest", "Newest message", "messages.newest"),
        _key("alt+u", "first_unread", "First unread message, or where the badge points", "messages.unread"),
        _key("ctrl+f,f5", "search", "Search messages", "go.search"),
        _key("alt+m", "mention", "Previous mention of me", "go.mention"),
        _key("alt+left", "back", "Back to before the last jump", "go.back"),
        _key("f2,ctrl+b", "members", "Show or hide the members", "view.members"),
        _key("alt+l", "sidebar", "Show or hide the conversations", "view.conversations"),
        _key("alt+shift+left", "resize_sidebar(-1)", "Narrower list of conversations", "view.narrower"),
        _key("alt+shift+right", "resize_sidebar(1)", "Wider list of conversations", "view.wider"),
        _key("f9", "delivery", "Delivery of my last message", "group.delivery"),
        _key("f10", "leave", "Leave this group", "group.leave"),
        _key("f12", "status", "Status of the agent", "agent.status"),
        _key("f6", "messages", "Select messages; letters act on them", "view.messages"),
        _key("escape", "compose", "Switch between messages and composer", "view.composer"),
        _key("alt+x", "command", "Start a command", "view.command"),
        _key("alt+e", "editor", "Write in an external editor ($VISUAL, $EDITOR)", "composer.editor"),
        _key("ctrl+c", "interrupt", "Copy the selection; else clear the draft; twice: quit", "composer.clear"),
    ]

    def __init__(self, link: AgentLink, *, open_group: str = "", drafts: Mapping[str, str] | None = None) -> None:
        super().__init__(link, self, open_group=open_group, drafts=drafts)
        self._draft_stashed = False
        """A draft was moved to the history of sent texts to make room for a command."""

    def on_mount(self) -> None:
        self.bindings_updated_signal.subscribe(self, lambda _: self._show_keys())

    def _show_keys(self) -> None:
        """Show the key hints of the selected message in the status line."""
        row = self.pane.selected_row if self.focused is self.pane else None
        keys: tuple[str, ...] = ()
        if row is not None:
            from zerochat.tui.actions import messages

            keys = messages.key_hints(self, row)
        if keys != self.status_line.keys:
            self.status_line.keys = keys
            self.redraw_hints()

    # --- writing ---------------------------------------------------------------------------------------------------

    def on_peer_notification(self, notification: PeerRelatedNotification) -> None:
        from zerochat.tui.actions import peers

        peers.on_notification(self, notification)

    def on_group_notification(self, notification: GroupNotification) -> None:
        from zerochat.tui.actions import members

        members.on_notification(self, notification)

    def on_log_notification(self, notification: LogNotification) -> None:
        from zerochat.tui.actions import delivery

        delivery.on_notification(self, notification)

    def on_tlog_notification(self, notification: TlogNotification) -> None:
        from zerochat.tui.actions import evidence

        evidence.on_notification(self, notification)

    def run_message_action(self, name: str) -> None:
        from zerochat.tui.actions import messages

        messages.run(self, name)

    def submit(self, text: str) -> None:
        """Send a message, run a command, or report why not."""
        from zerochat.tui.actions import sending

        self.unflash()

        from zerochat.slash_commands import Command, Post, Refusal, parse

        match parse(text):
            case Post(message, action):
                sending.send(self, message, action=action, line=text if text.startswith("/") else "")
            case Command(name, argument):
                self.composer.set_text("")
                if name not in RECORD_THEMSELVES and (conversation := self.conversations.open) is not None:
                    draft = conversation.sent_texts[-1:] if self._draft_stashed else []
                    for each in (text.strip(), *draft):  # Ctrl+Up recalls the draft first
                        conversation.remember_text(each)
                self._draft_stashed = False
                self.running_line = text.strip()
                try:
                    self.run_command(name, argument)
                finally:
                    self.running_line = ""
            case Refusal(sentence):
                self.rejected_line = text
                self.report_error(sentence)
            case None:
                pass

    @on(MemberList.Chosen)
    def _choose_member(self, event: MemberList.Chosen) -> None:
        from zerochat.tui.actions import members

        members.show_member(self, event.did)

    @on(MemberList.Find)
    def _find_member(self) -> None:
        from zerochat.tui.actions import members

        members.find(self)

    @on(MemberList.RequestChosen)
    def _choose_request(self) -> None:
        self.action_requests()

    @on(Composer.Pasted)
    def _pasted(self, event: Composer.Pasted) -> None:
        from zerochat.tui.actions import pasting

        pasting.choose(self, event.text)

    def on_paste(self, event: events.Paste) -> None:
        """Pasted text goes to the composer wherever the focus is."""
        if not self.input_locked and self.focused is not self.composer:
            event.stop()
            self.set_focus(self.composer)
            self.composer.take_pasted(event.text)

    @on(Composer.Rejected)
    def _on_rejected(self, event: Composer.Rejected) -> None:
        self.report_error(event.sentence)

    def on_key(self, event: events.Key) -> None:
        self.type_key(event)

    def type_key(self, event: events.Key) -> None:
        """Unbound letters go to the composer wherever the focus is; with a letter keymap they are rejected instead."""
        if self.input_locked or not is_letter(event) or not event.character:
            return
        typing = self.focused is self.pane and not self.pane.letters_act
        if not typing and event.key in self.active_bindings:
            return
        event.stop()
        event.prevent_default()
        if app_of(self).settings_store.current.keymap in LETTER_KEYMAPS:
            from zerochat.tui.dialogs.help import first_keys

            back = first_keys(self)["view.composer"]
            self.report_error(
                Printable(f"No action for key {printable_line(event.character)} here. Press {back} to write.")
            )
        else:
            if (
                self.focused is not self.composer and event.character != "/"
            ):  # a command may apply to the selected message
                self.pane.select(None)
            self.set_focus(self.composer)
            self.composer.insert(event.character)

    def run_command(self, command: str, argument: str = "") -> None:
        """Run a slash command."""
        from zerochat.tui.actions import commands

        commands.run(self, command, argument)

    # --- actions ---------------------------------------------------------------------------------------------------

    def action_go_beside(self, step: int) -> None:
        self.open_group(self.conversations.beside(step))

    def action_go_number(self, number: int) -> None:
        self.open_group(self.conversations.numbered(number))

    def action_go_unread(self) -> None:
        unread = self.conversations.next_unread()
        if unread is None:
            self.flash(Printable("No unread messages elsewhere."))
        self.open_group(unread)

    def action_read_all(self) -> None:
        self.run_command("read", "all")

    def action_page(self, direction: int) -> None:
        self.pane.page(direction)

    def action_oldest(self) -> None:
        self.pane.action_top()

    def action_newest(self) -> None:
        self.pane.action_end()

    @on(Composer.BadgePressed)
    def action_first_unread(self) -> None:
        """Go to the first unread message, to where the badge points, or to the unread line."""
        conversation = self.conversations.open
        line = conversation.timeline.unread if conversation is not None else None
        missed = conversation is not None and conversation.place.missed
        if not missed and self.pane.go_to_unseen():
            return
        if conversation is None or line is None:
            self.flash(Printable("No unread messages here."))
        elif conversation.timeline.index(line) is not None:
            self.pane.go_to(line)
        else:
            from zerochat.tui.actions import jumps

            jumps.to_unread(self, conversation.info.id, line[2])

    def action_members(self) -> None:
        self.toggle_members()

    def action_sidebar(self) -> None:
        from zerochat.tui.actions import sidebar

        sidebar.toggle(self)

    def action_resize_sidebar(self, cells: int) -> None:
        from zerochat.tui.actions import sidebar

        sidebar.resize(self, sidebar.width(self) + cells)

    @on(GroupList.Resized)
    def _on_sidebar_resized(self, event: GroupList.Resized) -> None:
        from zerochat.tui.actions import sidebar

        sidebar.resize(self, event.width)
        self.composer.focus()  # the click on the border took it

    def action_messages(self) -> None:
        self.pane.start_selecting()
        self.pane.focus()

    def action_command(self) -> None:
        """Start a command; Ctrl+Up recalls the draft."""
        if not self.composer.text.startswith("/"):
            self.action_begin("")
        self.composer.focus()

    def on_screen_resume(self) -> None:
        self.call_after_refresh(app_of(self).offer_tour)

    def action_compose(self) -> None:
        """Escape: close the completion list, cancel a reply or edit, clear a rejected command (Ctrl+Up restores it), or
        go to the messages; elsewhere, to the composer."""
        selected_text = self.get_selected_text()
        self.clear_selection()
        if not self.composer.has_focus:
            self.leave_messages()
        elif selected_text or self.composer.close_completions():
            return
        elif self.compose_target is not None:
            self.set_compose_target(None)
        elif self.composer.text and self.composer.text == self.rejected_line:
            if (conversation := self.conversations.open) is not None:
                conversation.remember_text(self.rejected_line)
            self.composer.set_text("")
        else:
            self._to_messages()

    def _to_messages(self) -> None:
        if self.pane.ensure_selection():
            self.set_focus(self.pane)
        else:
            self.flash(NO_MESSAGES)

    @on(Composer.LeftUpwards)
    def _on_left_upwards(self) -> None:
        self._to_messages()

    def action_begin(self, command: str) -> None:
        """Insert the start of a command into the composer; Ctrl+Up recalls the draft."""
        if self.composer.text and (conversation := self.conversations.open) is not None:
            conversation.remember_text(self.composer.text)
            self._draft_stashed = True
        self.composer.set_text(f"/{command} " if command else "/")
        self.composer.focus()

    async def action_editor(self) -> None:
        if not self.input_locked:
            from zerochat.tui.actions import sending

            await sending.edit_externally(self)

    def action_switch(self) -> None:
        from zerochat.tui.actions import commands

        commands.open_switcher(self)

    def action_search(self) -> None:
        self.run_command("search")

    def action_mention(self) -> None:
        from zerochat.tui.actions import jumps

        jumps.mention(self)

    def action_back(self) -> None:
        from zerochat.tui.actions import jumps

        jumps.back(self)

    def action_invite(self) -> None:
        self.run_command("invite")

    def action_requests(self) -> None:
        self.run_command("requests")

    def action_new(self) -> None:
        self.run_command("new")

    def action_join(self) -> None:
        self.run_command("join")

    def action_delivery(self) -> None:
        self.run_command("delivery")

    def action_tour(self) -> None:
        self.run_command("tour")

    def action_leave(self) -> None:
        self.run_command("leave")

    def action_status(self) -> None:
        self.run_command("status")

    def action_interrupt(self) -> None:
        """Copy the selection; else clear the draft (Ctrl+Up restores it); else quit at the second press."""
        selected = self.get_selected_text() or self.composer.selected_text
        if selected:
            self.clear_selection()
            from zerochat.tui.actions import messages

            self.run_request(messages.copy_text(self, selected))
        elif self.composer.text:
            if (conversation := self.conversations.open) is not None:
                conversation.remember_text(self.composer.text)
            self.composer.set_text("")
            self.flash(Printable(f"Draft cleared. {app_of(self).key('composer.older')} restores it."))
        elif app_of(self).is_interrupted_again():
            self.call_next(self.app.run_action, "app.quit")
        else:
            self.flash(Printable("Press Ctrl+C again to quit."), seconds=REPEAT_S)

    def unsaved_drafts(self) -> list[Printable]:
        """Names of the conversations whose drafts are not saved on disk."""
        by_id = self.conversations.by_id
        return [by_id[id].name if id in by_id else Printable("a conversation") for id in self.draft_saver.unsaved()]
