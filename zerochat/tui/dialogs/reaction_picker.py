"""The reaction picker: common emoji, and search by name."""

from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, OptionList, Static

from zerochat.terminal_text import Printable, printable_line
from zerochat.tui.composer.composer import LineInput
from zerochat.tui.composer.emoji import COMMON, emoji_named, find
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.messages.row import EMOJI_CELLS_MAX, ReactionCount
from zerochat.tui.panels.lists import QuietList


class ReactionPicker(Dialog[str | None]):
    """Returns an emoji, or None. `there`: the existing reactions of the message."""

    BINDING_GROUP_TITLE = "Reactions"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", id="reaction.close"),
        Binding("down", "move(1)", "Down", show=False, priority=True, id="reaction.down"),
        Binding("up", "move(-1)", "Up", show=False, priority=True, id="reaction.up"),
    ]

    def __init__(self, there: tuple[ReactionCount, ...]) -> None:
        super().__init__()
        self._there = there
        self._list = QuietList(id="matches")
        self._error_text = Static(id="error-text")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog small"):
            yield Static(Content("React with"), classes="title")
            yield LineInput(compact=True, id="filter", placeholder="name (rocket) or emoji")
            yield self._list
            yield self._error_text
            yield Static(Content("Enter adds or removes your reaction, Esc closes"), classes="hint")

    def on_mount(self) -> None:
        self.query_one("#filter").focus()
        self._offer("")

    def _offer(self, letters: str) -> None:
        self._error_text.update(Content(""))
        if letters.strip():
            entries = find(letters)
            if (exact := emoji_named(letters)) is not None and exact not in dict(entries):
                entries.insert(0, (exact, ""))
        else:
            there = [reaction.sign for reaction in self._there]
            entries = [(each, "") for each in dict.fromkeys([*there, *COMMON])]
        mine = {reaction.sign for reaction in self._there if reaction.mine}
        self._list.set_entries((each, self._entry(each, name, each in mine)) for each, name in entries)
        self._list.highlighted = 0 if self._list.option_count else None

    def _entry(self, emoji: str, name: str, mine: bool) -> Content:
        shown = printable_line(emoji, EMOJI_CELLS_MAX)
        return Content(f"{shown}  {printable_line(name, 40)}{' (yours: removes it)' if mine else ''}")

    @on(Input.Changed)
    def _change(self, event: Input.Changed) -> None:
        self._offer(event.value)

    @on(Input.Submitted)
    def _submit(self) -> None:
        option = self._list.highlighted_option
        if option is None:
            self._error_text.update(Content(Printable("No emoji has that name.")))
        else:
            self.dismiss(option.id)

    @on(OptionList.OptionSelected)
    def _select(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_id)

    def action_move(self, step: int) -> None:
        if step > 0:
            self._list.action_cursor_down()
        else:
            self._list.action_cursor_up()

    def action_close(self) -> None:
        self.dismiss(None)
