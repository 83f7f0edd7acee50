"""One line that is one of several values, for dialogs that would be forms of many questions otherwise."""

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
    """One of several values; Left, Right and the space bar change it. `words` says a value in plain words."""

    BINDING_GROUP_TITLE = "Choices"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,space", "step(1)", "Next choice", id="choice.next"),
        Binding("left", "step(-1)", "Choice before", id="choice.before"),
        Binding("down", "app.focus_next", "Next line", show=False, id="choice.down"),
        Binding("up", "app.focus_previous", "Line before", show=False, id="choice.up"),
    ]

    at: reactive[int] = reactive(0)

    class Changed(Message):
        """Another value was chosen."""

    def __init__(self, label: str, values: Sequence[str], words: Callable[[str], str], *, id: str) -> None:
        super().__init__(id=id)
        self._label = label
        self._values = list(values)
        self._words = words

    @property
    def value(self) -> str:
        return self._values[self.at]

    def offer(self, values: Sequence[str]) -> None:
        """Other values to choose from; the first of them is chosen where they differ."""
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

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.action_step(1)
