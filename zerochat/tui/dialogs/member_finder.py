"""The member finder: search in the members of the open group by name or key."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static

from zerochat.tui.composer.composer import LineInput
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.panels.lists import MORE, MemberList
from zerochat.tui.state.conversation import Conversation


class MemberFinder(Dialog[str | None]):
    """Returns the DID of the chosen member."""

    BINDING_GROUP_TITLE = "Member finder"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", id="finder.close"),
        Binding("up", "move(-1)", "Up", show=False, priority=True, id="finder.up"),
        Binding("down", "move(1)", "Down", show=False, priority=True, id="finder.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, priority=True, id="finder.pageup"),
        Binding("pagedown", "page(1)", "Page down", show=False, priority=True, id="finder.pagedown"),
    ]

    def __init__(self, conversation: Conversation, word: str = "") -> None:
        """`word`: what is searched at first."""
        super().__init__()
        self._conversation = conversation
        self._word = word
        self._title = Static(classes="title")
        self._found = MemberList(id="found")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield self._title
            yield LineInput(self._word, compact=True, id="filter", select_on_focus=False)
            yield self._found
            yield Static(Content("A part of the name, or the end of the key. Enter opens, Esc closes."), classes="hint")

    def on_mount(self) -> None:
        self.query_one("#filter").focus()
        self._find(self._word)

    @on(Input.Changed)
    def _change(self, event: Input.Changed) -> None:
        self._find(event.value.strip())

    def _find(self, word: str) -> None:
        self._word, conversation = word, self._conversation
        self._found.show_members(conversation, word)
        self._found.highlighted = 0 if self._found.option_count else None
        _, found = conversation.members.page(word, 0)
        count = f"{found:,} of " if word else ""
        self._title.update(Content(f"Members of {conversation.name}: {count}{len(conversation.members):,}"))

    def refresh_content(self) -> None:
        """Draw the found members again, as members have changed."""
        self._found.show_members(self._conversation, self._word)

    def action_move(self, step: int) -> None:
        if step > 0:
            self._found.action_cursor_down()
        else:
            self._found.action_cursor_up()

    def action_page(self, step: int) -> None:
        if step > 0:
            self._found.action_page_down()  # type: ignore[no-untyped-call]
        else:
            self._found.action_page_up()  # type: ignore[no-untyped-call]

    @on(Input.Submitted)
    def _submit(self) -> None:
        option = self._found.highlighted_option
        if option is not None and option.id == MORE:
            self._found.show_more()
        else:
            self.dismiss(option.id if option else None)

    @on(MemberList.Chosen)
    def _select(self, event: MemberList.Chosen) -> None:
        event.stop()
        self.dismiss(event.did)

    def action_close(self) -> None:
        self.dismiss(None)
