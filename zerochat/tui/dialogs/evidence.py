"""The evidence dialog of a group or message; it can save a proof of the message."""

from collections.abc import Awaitable, Callable
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static

from zerochat.terminal_text import Printable
from zerochat.tui.dialogs.dialog import TextDialog
from zerochat.tui.dialogs.help import first_keys


class EvidenceDialog(TextDialog):
    """`write` starts saving a proof; None: there is nothing to prove."""

    BINDING_GROUP_TITLE = "Evidence"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("w", "write", "Save a proof of the message to a file", id="evidence.write"),
    ]

    def __init__(
        self,
        title: Printable,
        body: Content,
        reload: Callable[[], Awaitable[tuple[Printable, Content]]],
        write: Callable[[], None] | None,
    ) -> None:
        super().__init__(title, body, reload=reload)
        self._write = write

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield self._head
            with VerticalScroll():
                yield self._body
            if self._write is not None:
                with Horizontal(classes="buttons"):
                    keys = first_keys(self)
                    yield Button(Content(f"{keys['evidence.write']} save proof"), id="write", compact=True)
                    yield Button(Content("Esc close"), id="close", compact=True)
            yield Static(Content("Esc closes, Up and Down scroll"), classes="hint")

    def on_mount(self) -> None:
        super().on_mount()
        self.query_one(VerticalScroll).focus()

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        event.stop()
        if event.button.id == "write":
            self.action_write()
        else:
            self.action_close()

    def action_write(self) -> None:
        if self._write is not None:
            self._write()
