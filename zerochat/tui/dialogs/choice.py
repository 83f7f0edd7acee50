"""A one-line selector between several values."""

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget

from zerochat.tui.dialogs.dialog import hang

LABEL_CELLS = 11


class Choice(Widget, can_focus=True):
    """A selector changed by Left, Right and Space. `words` returns the display text of a value."""

    BINDING_GROUP_TITLE = "Choices"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space", "step(1)", "Next choice", id="choice.next"),
        Binding("left", "step(-1)", "Previous choice", id="choice.before"),
        Binding("down", "line(1)", "Next line", show=False, id="choice.down"),
        Binding("up", "line(-1)", "Previous line", show=False, id="choice.up"),
    ]

    at: reactive[int] = reactive(0)

    class Changed(Message):
        """The value changed."""

    def __init__(self, label: str, values: Sequence[str], words: Callable[[str], str], *, id: str) -> None:
        super().__init__(id=id)
        self._label = label
        self._values = list(values)
        self._words = words

    @property
    def value(self) -> str:
        return self._values[self.at]

    def set_values(self, values: Sequence[str]) -> None:
        """Replace the values; if they differ, select the first."""
        if list(values) != self._values:
            self._values, self.at = list(values), 0
            self.refresh(layout=True)

    def render(self) -> Content:
        return self._laid_out(self.content_size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._laid_out(width).get_height({}, width)

    def _laid_out(self, width: int) -> Content:
        label = f"{self._label:<{LABEL_CELLS}} " if self._label else ""
        return hang(Content(f"{label}‹ \t{self._words(self.value)} ›"), width)

    def action_step(self, step: int) -> None:
        self.at = (self.at + step) % len(self._values)
        self.refresh(layout=True)
        self.post_message(self.Changed())

    def action_line(self, by: int) -> None:
        """Focus the line below or above; stay at the ends."""
        lines = self.screen.focus_chain
        at = lines.index(self) + by
        if 0 <= at < len(lines):
            lines[at].focus()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_step(1)
