"""Modal sheets: something to read, something to confirm, something to type in."""

from collections.abc import Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from zerochat.terminal import Printable
from zerochat.tui.composer import LineInput


class Sheet(ModalScreen[None]):
    """Some paragraphs to read; Esc closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,f1", "close", "Close", id="sheet.close"),
        Binding("up,k", "move(-1)", "Line up", show=False, id="sheet.up"),
        Binding("down,j", "move(1)", "Line down", show=False, id="sheet.down"),
    ]

    def __init__(self, title: Printable, body: Content) -> None:
        super().__init__()
        self._title = title
        self._body = body

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content(self._title), classes="title")
            with VerticalScroll():
                yield Static(self._body, classes="body")
            yield Static(Content("Esc closes"), classes="hint")

    def action_close(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)


def rows(pairs: Sequence[tuple[str, str]], width: int = 16) -> Content:
    """Two columns; every string in them printable already."""
    parts: list[Content] = []
    for left, right in pairs:
        parts.append(Content.assemble((f"{left:<{width}} ", "bold"), right))
    return Content("\n").join(parts)


class Confirm(ModalScreen[bool]):
    """A question with one dangerous answer; the other one has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "No", id="confirm.no"),
        Binding("y", "answer(True)", "Yes", id="confirm.yes"),
        Binding("left,right", "app.focus_next", "Other answer", show=False, id="confirm.other"),
    ]

    def __init__(self, question: Printable, yes: str, no: str) -> None:
        super().__init__()
        self._question = question
        self._yes, self._no = yes, no

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet small"):
            yield Static(Content(self._question), classes="body")
            with Horizontal(classes="buttons"):
                yield Button(Content(self._no), id="no", compact=True)
                yield Button(Content(self._yes), id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)


class Ask(ModalScreen[str]):
    """One line to type in; an empty answer means that the person thought better of it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close", id="ask.close")]

    def __init__(self, question: Printable, hint: Printable, *, secret: bool = False) -> None:
        super().__init__()
        self._question, self._hint = question, hint
        self._secret = secret

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet small"):
            yield Static(Content(self._question), classes="title")
            yield LineInput(compact=True, id="answer", password=self._secret)
            yield Static(Content(self._hint), classes="hint")

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        self.dismiss(event.value if self._secret else event.value.strip())

    def action_close(self) -> None:
        self.dismiss("")
