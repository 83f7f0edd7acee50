"""A short list to choose from."""

from collections.abc import Sequence
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import OptionList, Static

from zerochat.terminal_text import Printable
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.panels.lists import QuietList

PICK_CELLS, PICK_EDGES = 60, 8
"""Maximum width of the dialog, and the cells of its edges."""


class MenuDialog(Dialog[str | None]):
    """Returns the id of the chosen entry, or None. `keys`: keys that choose an entry directly, with its id."""

    BINDING_GROUP_TITLE = "Menus"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "close", "Close", id="pick.close"),
        Binding("down,j", "move(1)", "Down", show=False, priority=True, id="pick.down"),
        Binding("up,k", "move(-1)", "Up", show=False, priority=True, id="pick.up"),
    ]

    def __init__(
        self, title: Printable, entries: Sequence[tuple[str, Content]], keys: dict[str, str] | None = None
    ) -> None:
        super().__init__()
        self._title = title
        self._entries = entries
        self._keys = keys or {}
        self._list = QuietList(id="matches")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog small"):
            yield Static(Content(self._title), classes="title")
            yield self._list
            yield Static(Content("Enter chooses, Esc closes"), classes="hint")

    def on_mount(self) -> None:
        self._list.set_entries(self._entries)
        self._list.highlighted = 0 if self._entries else None
        self._list.focus()

    def on_key(self, event: events.Key) -> None:
        if (chosen := self._keys.get(event.key)) is not None:
            event.stop()
            self.dismiss(chosen)

    def action_move(self, step: int) -> None:
        if step > 0:
            self._list.action_cursor_down()
        else:
            self._list.action_cursor_up()

    @on(OptionList.OptionSelected)
    def _select(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_id)

    def action_close(self) -> None:
        self.dismiss(None)
