"""The main screen: what each key does there, and what becomes of a line that was typed.

The actions are imported where they are done: the first frame has none of them.
"""

from collections.abc import Mapping
from time import monotonic
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType

from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.chat_view import Board, app_of
from zerochat.tui.composer.composer import Composer, is_letter
from zerochat.tui.panels.lists import MemberList
from zerochat.tui.state.agent_link import Link
from zerochat.tui.state.feed import GroupNews, KeepingNews, LogNews
from zerochat.tui.state.hints import NOTHING_HERE
from zerochat.tui.state.pending_requests import PeerNews
from zerochat.tui.style.keymaps import LETTERS_STAY

SAY_THEMSELVES = ("me", "reply", "edit", "send")
"""Commands that keep what they say for Ctrl+Up."""
AGAIN_S = 3.0
"""Within this, the second Ctrl+C or Ctrl+Q means it."""


def _key(keys: str, action: str, description: str, name: str) -> Binding:
    return Binding(keys, action, description, show=False, id=name)


class ChatScreen(Board):
    """Where people talk."""

    BINDING_GROUP_TITLE = "Everywhere"
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("f3", "invite", "Invite into this group", "group.invite"),
        _key("f4", "requests", "Answer who asks to join", "group.requests"),
        _key("f7", "new", "Create a group", "group.new"),
        _key("f8", "join", "Join a group", "group.join"),
        _key("alt+up", "go_beside(-1)", "Previous conversation", "go.previous"),
        _key("alt+down,ctrl+n", "go_beside(1)", "Next conversation", "go.next"),
        _key("alt+a", "go_unread", "Next unread conversation", "go.unread"),
        _key("ctrl+k,alt+g", "switch", "Find a conversation", "go.switch"),
        *(
            _key(f"alt+{number}", f"go_number({number})", f"Conversation {number}", f"go.{number}")
            for number in range(1, 10)
        ),
        _key("pageup", "page(-1)", "Page up", "messages.page_up"),
        _key("pagedown", "page(1)", "Page down", "messages.page_down"),
        _key("ctrl+home", "oldest", "Oldest message that is loaded", "messages.oldest"),
        _key("ctrl+end", "newest", "Newest message", "messages.newest"),
        _key("alt+u", "first_unread", "First unread message, or where the badge points", "messages.unread"),
        _key("ctrl+f,f5", "search", "Search what was said", "go.search"),
        _key("alt+m", "mention", "Who has called me by name: the message before this one", "go.mention"),
        _key("alt+left", "back", "Back to where I was before a jump", "go.back"),
        _key("f2,ctrl+b", "members", "Members on or off", "view.members"),
        _key("f9", "delivery", "Who has my last message", "group.delivery"),
        _key("f10", "leave", "Leave this group", "group.leave"),
        _key("f12", "status", "Status of the agent", "agent.status"),
        _key("f6", "messages", "To the messages", "view.messages"),
        _key("escape", "compose", "To the messages, and back to the composer", "view.composer"),
        _key("alt+x", "command", "Begin a command", "view.command"),
        _key("alt+e", "editor", "Write in your own editor ($VISUAL, $EDITOR)", "composer.editor"),
        _key("ctrl+c", "interrupt", "Copy the selection; else clear the draft; twice: quit", "composer.clear"),
    ]

    def __init__(self, link: Link, *, open_group: str = "", drafts: Mapping[str, str] | None = None) -> None:
        super().__init__(link, self, open_group=open_group, drafts=drafts)
        self._interrupted = -AGAIN_S
        self._put_away = False
        """A draft has given place to a command."""

    def on_mount(self) -> None:
        self.bindings_updated_signal.subscribe(self, lambda _: self._show_keys())

    def _show_keys(self) -> None:
        """While a message is selected, letters are its keys: then the status line says which."""
        row = self.pane.selected_row if self.focused is self.pane else None
        keys: tuple[str, ...] = ()
        if row is not None:
            from zerochat.tui.actions import messages

            keys = messages.keys_of(self, row)
        if keys != self.status_line.keys:
            self.status_line.keys = keys
            self.redraw_hints()

    # --- writing ---------------------------------------------------------------------------------------------------

    def peer_told(self, news: PeerNews) -> None:
        from zerochat.tui.actions import peers

        peers.show(self, news)

    def group_told(self, news: GroupNews) -> None:
        from zerochat.tui.actions import members

        members.show(self, news)

    def log_told(self, news: LogNews) -> None:
        from zerochat.tui.actions import delivery

        delivery.show(self, news)

    def keeping_told(self, news: KeepingNews) -> None:
        from zerochat.tui.actions import evidence

        evidence.show(self, news)

    def act(self, name: str) -> None:
        from zerochat.tui.actions import messages

        messages.run(self, name)

    def submit(self, text: str) -> None:
        """Say it, or do it, or say why not."""
        from zerochat.tui.actions import sending

        self.unflash()

        from zerochat.tui.composer.commands import Command, Refusal, Say, parse

        match parse(text):
            case Say(words):
                sending.say(self, words)
            case Command(name, rest):
                self.composer.put("")
                if name not in SAY_THEMSELVES and (conversation := self.conversations.open) is not None:
                    draft = conversation.sent[-1:] if self._put_away else []
                    for each in (text.strip(), *draft):  # Ctrl+Up brings it back, to be mended; the draft goes first.
                        conversation.said(each)
                self._put_away = False
                self.do(name, rest)
            case Refusal(sentence):
                self.complain(sentence)
            case None:
                pass

    @on(MemberList.Chosen)
    def _choose_member(self, event: MemberList.Chosen) -> None:
        from zerochat.tui.actions import members

        members.show_member(self, event.did)

    @on(MemberList.Asked)
    def _choose_request(self) -> None:
        self.action_requests()

    @on(Composer.Pasted)
    def _pasted(self, event: Composer.Pasted) -> None:
        from zerochat.tui.actions import pasting

        pasting.ask(self, event.text)

    def on_paste(self, event: events.Paste) -> None:
        """What is pasted goes to the composer from wherever the focus is, as letters do."""
        if not self.closed and self.focused is not self.composer:
            event.stop()
            self.set_focus(self.composer)
            self.composer.take_pasted(event.text)

    @on(Composer.Complained)
    def _complained(self, event: Composer.Complained) -> None:
        self.complain(event.sentence)

    def on_key(self, event: events.Key) -> None:
        self.write(event)

    def write(self, event: events.Key) -> None:
        """Letters go to the composer from wherever the focus is, unless they are bound there, or the keymap keeps
        them: then it is said that they mean nothing."""
        if self.closed or not is_letter(event) or not event.character or event.key in self.active_bindings:
            return
        event.stop()
        if app_of(self).choices.now.keymap in LETTERS_STAY:
            from zerochat.tui.dialogs.help import keys_of_all

            back = keys_of_all(self)["view.composer"]
            self.complain(Printable(f"{printable_line(event.character)} is no key here: {back} leads to the composer."))
        else:
            if self.focused is not self.composer and event.character != "/":  # a command may be about the message
                self.pane.select(None)
            self.set_focus(self.composer)
            self.composer.insert(event.character)

    def do(self, command: str, rest: str = "") -> None:
        """Do one of the commands."""
        from zerochat.tui.actions import commands

        commands.run(self, command, rest)

    # --- actions ---------------------------------------------------------------------------------------------------

    def action_go_beside(self, step: int) -> None:
        self.go(self.conversations.beside(step))

    def action_go_number(self, number: int) -> None:
        self.go(self.conversations.numbered(number))

    def action_go_unread(self) -> None:
        unread = self.conversations.next_unread()
        if unread is None:
            self.flash(Printable("Nothing is unread elsewhere."))
        self.go(unread)

    def action_page(self, direction: int) -> None:
        self.pane.page(direction)

    def action_oldest(self) -> None:
        self.pane.action_top()

    def action_newest(self) -> None:
        self.pane.action_end()

    def action_first_unread(self) -> None:
        conversation = self.conversations.open
        if self.pane.go_to_unseen():  # The badge asks for it, whatever stood unread before.
            return
        if conversation is None or conversation.timeline.unread is None:
            self.flash(Printable("There is no unread line here."))
        else:
            self.pane.go_to(conversation.timeline.unread)

    def action_members(self) -> None:
        self.toggle_members()

    def action_messages(self) -> None:
        self.pane.begin()
        self.pane.focus()

    def action_command(self) -> None:
        """Begin a command; the draft that was there comes back with Ctrl+Up."""
        if not self.composer.text.startswith("/"):
            self.action_begin("")
        self.composer.focus()

    def on_screen_resume(self) -> None:
        self.call_after_refresh(app_of(self).offer_tour)

    def action_compose(self) -> None:
        """One step back: the list of offers, what the composer's text is about, then the messages; and from anywhere
        else the composer."""
        selected_text = self.get_selected_text()
        self.clear_selection()
        if not self.composer.has_focus:
            self.leave_messages()
        elif selected_text or self.composer.close_offers():
            return
        elif self.about is not None:
            self.set_about(None)
        else:
            self._to_messages()

    def _to_messages(self) -> None:
        if self.pane.begin():
            self.set_focus(self.pane)
        else:
            self.flash(NOTHING_HERE)

    @on(Composer.Upwards)
    def _upwards(self) -> None:
        self._to_messages()

    def action_begin(self, command: str) -> None:
        """Put the beginning of a command into the composer; the draft that was there comes back with Ctrl+Up."""
        if self.composer.text and (conversation := self.conversations.open) is not None:
            conversation.said(self.composer.text)
            self._put_away = True
        self.composer.put(f"/{command} " if command else "/")
        self.composer.focus()

    async def action_editor(self) -> None:
        if not self.closed:
            from zerochat.tui.actions import editing

            await editing.write(self)

    def action_switch(self) -> None:
        from zerochat.tui.actions import commands

        commands.switch(self)

    def action_search(self) -> None:
        self.do("search")

    def action_mention(self) -> None:
        from zerochat.tui.actions import jumps

        jumps.mention(self)

    def action_back(self) -> None:
        from zerochat.tui.actions import jumps

        jumps.back(self)

    def action_invite(self) -> None:
        self.do("invite")

    def action_requests(self) -> None:
        self.do("requests")

    def action_new(self) -> None:
        self.do("new")

    def action_join(self) -> None:
        self.do("join")

    def action_delivery(self) -> None:
        self.do("delivery")

    def action_tour(self) -> None:
        self.do("tour")

    def action_leave(self) -> None:
        self.do("leave")

    def action_status(self) -> None:
        self.do("status")

    def action_interrupt(self) -> None:
        """Copy what is selected; else clear the draft, which Ctrl+Up brings back; else quit at the second press."""
        selected = self.get_selected_text() or self.composer.selected_text
        if selected:
            self.clear_selection()
            from zerochat.tui.actions import messages

            self.attempt(messages.copy_text(self, selected))
        elif self.composer.text:
            if (conversation := self.conversations.open) is not None:
                conversation.said(self.composer.text)
            self.composer.put("")
            self.flash(Printable("Cleared; Ctrl+Up brings it back."))
        elif monotonic() - self._interrupted < AGAIN_S:
            self.call_next(self.app.run_action, "app.quit")
        else:
            self._interrupted = monotonic()
            self.flash(Printable("Ctrl+C again quits."), seconds=AGAIN_S)

    def lost_drafts(self) -> list[Printable]:
        """Names of the conversations that have something unsent in them which is not kept on disk."""
        by_id = self.conversations.by_id
        return [by_id[id].name if id in by_id else Printable("a conversation") for id in self.keeper.lost()]
