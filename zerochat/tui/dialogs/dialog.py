"""Modal sheets: something to read, something to confirm, something to type in."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Button, Input, Static
from textual.worker import Worker

from zerochat.terminal_text import Printable, cells, printable
from zerochat.tui.composer.composer import LineInput, is_letter
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.style.text import wrap

AGAIN_S = 2.0
"""How often an open sheet asks what has become of what it shows."""
COLUMN_MIN = 16
"""Cells of a second column; with fewer, its lines go on at the left edge."""


class Sheet(Over[None]):
    """Some paragraphs to read; Esc closes it. `again` is asked while it is open for what has become of them."""

    BINDING_GROUP_TITLE = "Anything to read"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,f1", "close", "Close", id="sheet.close"),
        Binding("up,k", "move(-1)", "Line up", show=False, id="sheet.up"),
        Binding("down,j", "move(1)", "Line down", show=False, id="sheet.down"),
    ]

    def __init__(
        self, title: Printable, body: Content, again: Callable[[], Awaitable[tuple[Printable, Content]]] | None = None
    ) -> None:
        super().__init__()
        self._again = again
        self._shown = body
        self._head, self._body = Static(Content(title), classes="title"), Body(body, classes="body")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield self._head
            with VerticalScroll():
                yield self._body
            yield Static(Content("Esc closes, Up and Down scroll"), classes="hint")

    def on_mount(self) -> None:
        if self._again is not None:
            self.set_interval(AGAIN_S, self._ask_again)

    def _ask_again(self) -> None:
        # Not the coroutine itself: one that is made as the application ends would never be awaited.
        _: Worker[None] = self.run_worker(self._renew, exclusive=True)

    async def _renew(self) -> None:
        assert self._again is not None
        with suppress(AgentError):  # Then the chat says why, and what was true last stays.
            title, body = await self._again()
            self._head.update(Content(title))
            if not body.is_same(self._shown):  # Letters that are being selected stay so.
                self._shown = body
                self._body.update(body)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)


async def open_live(app: App[Any], ask: Callable[[], Awaitable[tuple[Printable, Content]]]) -> None:
    """Open a sheet with the title and the body that `ask` answers now and as long as it is open. Raises what it raises
    the first time."""
    app.push_screen(Sheet(*await ask(), again=ask))


def rows(pairs: Sequence[tuple[str, str]], width: int = 16) -> Content:
    """Two columns for a `Body`; every string in them printable already, so that a tab is nothing but their border."""
    parts: list[Content] = []
    for left, right in pairs:
        parts.append(Content.assemble((left + " " * max(width - cells(left), 0) + " ", "bold"), "\t", right))
    return Content("\n").join(parts)


class Body(Static):
    """Text in which what stands behind a tab goes on below itself, not at the left edge."""

    def render(self) -> Content:
        return self._laid_out(self.content_size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._laid_out(width).get_height({}, width)

    def _laid_out(self, width: int) -> Content:
        content = self.content
        assert isinstance(content, Content)
        return hang(content, width)


def hang(content: Content, width: int) -> Content:
    """`content` without its tabs, and each line with one broken so that its right column stays one."""
    lines: list[Content] = []
    for line in content.split("\n", allow_blank=True):
        border = line.plain.find("\t")
        if border < 0:
            lines.append(line)
            continue
        left, right = line[:border], line[border + 1 :]
        room = width - left.cell_length
        if room < COLUMN_MIN:
            lines.append(left + right)
            continue
        at = 0
        for number, piece in enumerate(wrap(right.plain, room)):
            at = right.plain.index(piece, at)
            lines.append((left if number == 0 else Content(" " * left.cell_length)) + right[at : at + len(piece)])
            at += len(piece)
    return Content("\n").join(lines)


class Confirm(Over[bool]):
    """A question with one dangerous answer; the other one has the focus. `about`: what is to be read before."""

    BINDING_GROUP_TITLE = "Questions"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,n", "answer(False)", "No", id="confirm.no"),
        Binding("y", "answer(True)", "Yes", id="confirm.yes"),
        Binding("left,right", "app.focus_next", "Other answer", show=False, id="confirm.other"),
        Binding("up", "move(-1)", "Line up", show=False, id="confirm.up"),
        Binding("down", "move(1)", "Line down", show=False, id="confirm.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="confirm.pageup"),
        Binding("pagedown", "page(1)", "Page down", show=False, id="confirm.pagedown"),
    ]

    def __init__(self, question: Printable, yes: str, no: str, about: Printable | None = None) -> None:
        super().__init__()
        self._question, self._about = question, about
        self._yes, self._no = yes, no

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet" if self._about else "sheet small"):
            if self._about:
                with VerticalScroll(can_focus=False):
                    yield Static(Content(self._about), classes="body")
                yield Static(Content("Up and Down scroll"), classes="hint")
            yield Static(Content(self._question), classes="body")
            with Horizontal(classes="buttons"):
                yield Button(Content(self._no), id="no", compact=True)
                yield Button(Content(self._yes), id="yes", variant="error", compact=True)

    def on_mount(self) -> None:
        self.query_one("#no").focus()

    def on_key(self, event: events.Key) -> None:
        """Somebody is typing a word, and its next letter must not be a yes."""
        if is_letter(event) and event.key != "space" and event.key not in self.active_bindings:
            event.stop()
            self.dismiss(False)

    @on(Button.Pressed)
    def _press(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        self.dismiss(yes)

    def action_move(self, step: int) -> None:
        for text in self.query(VerticalScroll):
            text.scroll_relative(y=step, animate=False)

    def action_page(self, step: int) -> None:
        for text in self.query(VerticalScroll):
            text.scroll_relative(y=step * max(1, text.size.height - 1), animate=False)


class Ask(Over[str]):
    """One line to type in; an empty answer means that the person thought better of it.

    `deed` is done with the answer while the sheet is still open; what the agent refuses is said inside it, with the
    answer still there to be mended. `answer` is put in, and done, at once; `begun` is put in and waits.
    """

    BINDING_GROUP_TITLE = "Questions with a line to type"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", id="ask.close"),
        Binding("ctrl+q", "app.quit", "Quit", show=False, id="ask.quit"),  # A modal screen hides the application's own.
    ]

    def __init__(
        self,
        question: Printable,
        hint: Printable,
        *,
        secret: bool = False,
        deed: Callable[[str], Awaitable[None]] | None = None,
        answer: Printable | None = None,
        begun: Printable | None = None,
    ) -> None:
        super().__init__()
        self._question, self._hint = question, hint
        self._begun = answer or begun or ""
        self._secret = secret
        self._deed = deed
        self._answer = answer
        self._busy = False
        # Held by name, not looked up: an answer of the agent may come when the screen is being taken down.
        self._said = Static(id="ask-said")

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet small"):
            yield Static(Content(self._question), classes="title")
            yield LineInput(self._begun, compact=True, id="answer", password=self._secret, select_on_focus=False)
            yield self._said
            yield Static(Content(self._hint), classes="hint")

    def on_mount(self) -> None:
        if self._answer:
            self._take(self._answer)

    def type_ahead(self, text: str) -> None:
        """Put in what was typed before the sheet was there, and take the rest."""
        line = self.query_one("#answer", LineInput)
        self.set_focus(line)
        line.insert_text_at_cursor(text)

    @on(Input.Changed)
    def _typed(self) -> None:
        """What was wrong with the line before is said no more."""
        self._said.update(Content(""))

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
