"""The main screen: what each key does there, and what becomes of a line that was typed."""

from time import monotonic
from typing import ClassVar

from textual import events, on
from textual.binding import Binding, BindingType

from zerochat.terminal import Printable
from zerochat.tui import deeds, fates, peers, people
from zerochat.tui.answers import PeerNews
from zerochat.tui.board import Board
from zerochat.tui.commands import Command, Refusal, Say, parse
from zerochat.tui.composer import Composer, is_letter
from zerochat.tui.feed import GroupNews, LogNews
from zerochat.tui.lists import MemberList

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
        _key("f2,ctrl+b", "members", "Members on or off", "view.members"),
        _key("f9", "delivery", "Who has my last message", "group.delivery"),
        _key("f10", "leave", "Leave this group", "group.leave"),
        _key("f12", "status", "Status of the agent", "agent.status"),
        _key("escape", "compose", "Back to the composer", "view.composer"),
        _key("ctrl+c", "interrupt", "Copy the selection; else clear the draft; twice: quit", "composer.clear"),
    ]

    _interrupted = -AGAIN_S

    # --- writing ---------------------------------------------------------------------------------------------------

    def peer_told(self, news: PeerNews) -> None:
        peers.show(self, news)

    def group_told(self, news: GroupNews) -> None:
        people.show(self, news)

    def log_told(self, news: LogNews) -> None:
        fates.show(self, news)

    def submit(self, text: str) -> None:
        """Say it, or do it, or say why not."""
        match parse(text):
            case Say(words):
                deeds.say(self, words)
            case Command(name, rest):
                self.composer.put("")
                deeds.run(self, name, rest)
            case Refusal(sentence):
                self.complain(sentence)
            case None:
                pass

    @on(MemberList.Chosen)
    def _choose_member(self, event: MemberList.Chosen) -> None:
        people.show_member(self, event.did)

    @on(MemberList.Asked)
    def _choose_request(self) -> None:
        self.action_requests()

    @on(Composer.Complained)
    def _complained(self, event: Composer.Complained) -> None:
        self.complain(event.sentence)

    def on_key(self, event: events.Key) -> None:
        """Letters go to the composer from wherever the focus is, unless they are bound there."""
        if not self.closed and is_letter(event) and event.character and event.key not in self.active_bindings:
            self.composer.focus()
            self.composer.insert(event.character)
            event.stop()

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

    def action_compose(self) -> None:
        self.clear_selection()
        self.composer.focus()

    def action_begin(self, command: str) -> None:
        """Put the beginning of a command into the composer; the draft that was there comes back with Ctrl+Up."""
        if self.composer.text and (conversation := self.conversations.open) is not None:
            conversation.said(self.composer.text)
        self.composer.put(f"/{command} ")
        self.composer.focus()

    def action_switch(self) -> None:
        deeds.switch(self)

    def action_invite(self) -> None:
        deeds.run(self, "invite", "")

    def action_requests(self) -> None:
        deeds.run(self, "requests", "")

    def action_new(self) -> None:
        deeds.run(self, "new", "")

    def action_join(self) -> None:
        deeds.run(self, "join", "")

    def action_delivery(self) -> None:
        deeds.run(self, "delivery", "")

    def action_leave(self) -> None:
        deeds.run(self, "leave", "")

    def action_status(self) -> None:
        deeds.run(self, "status", "")

    def action_interrupt(self) -> None:
        """Copy what is selected; else clear the draft, which Ctrl+Up brings back; else quit at the second press."""
        selected = self.get_selected_text() or self.composer.selected_text
        if selected:
            self.app.copy_to_clipboard(selected)
            self.clear_selection()
            self.flash(Printable(f"{len(selected)} characters copied (OSC 52)."))
        elif self.composer.text:
            if (conversation := self.conversations.open) is not None:
                conversation.said(self.composer.text)
            self.composer.put("")
            self.flash(Printable("Cleared; Ctrl+Up brings it back."))
        elif monotonic() - self._interrupted < AGAIN_S:
            self.app.exit()
        else:
            self._interrupted = monotonic()
            self.flash(Printable("Ctrl+C again quits."))

    def drafts(self) -> list[Printable]:
        """Names of the conversations that have something unsent in them."""
        by_id = self.conversations.by_id
        return [by_id[id].name if id in by_id else Printable("a conversation") for id in self.unsent()]

    def unsent(self) -> dict[str, str]:
        """What is unsent in which group, by its id."""
        here = self.conversations.open
        found = dict(self.kept)
        for id, each in self.conversations.by_id.items():
            text = self.composer.text if each is here and each.recalled == 0 else each.draft
            if text.strip():
                found[id] = text
        return found
