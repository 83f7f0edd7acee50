"""Modal sheets: something to read, something to confirm, something to type in."""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from zerochat.terminal import Printable, printable
from zerochat.tui.composer import LineInput
from zerochat.tui.link import AgentError


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
    """One line to type in; an empty answer means that the person thought better of it.

    `deed` is done with the answer while the sheet is still open; what the agent refuses is said inside it, with the
    answer still there to be mended. `answer` is put in, and done, at once.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "close", "Close", id="ask.close")]

    def __init__(
        self,
        question: Printable,
        hint: Printable,
        *,
        secret: bool = False,
        deed: Callable[[str], Awaitable[None]] | None = None,
        answer: Printable | None = None,
    ) -> None:
        super().__init__()
        self._question, self._hint = question, hint
        self._secret = secret
        self._deed = deed
        self._answer = answer
        self._busy = False
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._said = Static(id="ask-said")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet small"):
            yield Static(Content(self._question), classes="title")
            yield LineInput(self._answer or "", compact=True, id="answer", password=self._secret, select_on_focus=False)
            yield self._said
            yield Static(Content(self._hint), classes="hint")

    def on_mount(self) -> None:
        if self._answer:
            self._take(self._answer)

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        self._take(event.value if self._secret else event.value.strip())

    def _take(self, answer: str) -> None:
        if self._deed is None or not answer:
            self.dismiss(answer)
        elif not self._busy:
            self._busy = True
            self._said.update(Content(""))
            self.run_worker(self._do(self._deed, answer))

    async def _do(self, deed: Callable[[str], Awaitable[None]], answer: str) -> None:
        try:
            await deed(answer)
        except AgentError as error:
            self._busy = False
            self._said.update(Content(printable(str(error))))
            return
        self.dismiss(answer)

    def action_close(self) -> None:
        self.dismiss("")
