"""Base class of dialogs, and the generic ones: text, confirmation, one-line input, feedback line."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar, TypeVar

from rich.cells import cell_len as cells
from textual import events, on
from textual.app import App, ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Input, Static
from textual.worker import Worker

from zerochat.terminal_text import Printable, printable
from zerochat.tui.composer.composer import LineInput
from zerochat.tui.panels.bars import FLASH_S
from zerochat.tui.state.agent_link import AgentError
from zerochat.tui.style.keymaps import is_letter
from zerochat.tui.style.text import wrap

REFRESH_S = 2.0
"""Refresh interval of an open dialog."""
COLUMN_MIN = 16
"""Minimum width of a second column; below, its lines continue at the left edge."""


Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A modal dialog that can be dismissed only once.

    On a fast double Enter Textual would also dismiss the screen below, and end the application where there is none.
    """

    BINDING_GROUP_TITLE = "All dialogs"
    BINDINGS: ClassVar[list[BindingType]] = [
        # a modal screen hides the application's bindings
        Binding("ctrl+c", "app.interrupt", "Copy the selection; twice: quit", show=False, id="dialog.interrupt"),
        Binding("ctrl+q", "app.quit", "Quit", show=False, id="app.quit"),
        Binding("f1", "app.help", "Keys of the dialog", show=False, id="app.help"),
    ]

    def dismiss(self, result: Answer | None = None) -> AwaitComplete:
        return super().dismiss(result) if self in self.app.screen_stack else AwaitComplete()

    def set_focus(self, widget: Widget | None, scroll_visible: bool = True, from_app_focus: bool = False) -> None:
        """Scroll to it once the layout is known: in a low window Textual would scroll to its place in a high one."""
        super().set_focus(widget, False, from_app_focus)
        if scroll_visible:
            self.call_after_refresh(self._show_focused)

    def on_resize(self, event: events.Resize) -> None:
        self.call_after_refresh(self._show_focused)

    def _show_focused(self) -> None:
        if self.focused is not None:
            self.focused.scroll_visible(animate=False)

    @on(LineInput.Cleaned)
    def _cleaned(self) -> None:
        self.show_error(Printable("The pasted text had invisible characters, which were removed or replaced."))

    def show_error(self, sentence: Printable) -> None:
        """Show an error of one of the dialog's actions in its feedback line, or in a line above its last one."""
        line = next(iter(self.query(Feedback)), None)
        if line is None and (boxes := self.query(".dialog")):
            line = Feedback(id="dialog-error")
            boxes.first().mount(line, before=-1)
        if line is not None:
            line.show_briefly(sentence, trouble=True)

    def clear_error(self) -> None:
        """Clear the error of an earlier action."""
        for line in self.query(Feedback):
            line.clear_error()


class TextDialog(Dialog[None]):
    """Scrollable text. `reload` returns title and body while the dialog is open."""

    BINDING_GROUP_TITLE = "Text dialogs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter,f1", "close", "Close", id="dialog.close"),
        Binding("up,k", "move(-1)", "Line up", show=False, id="dialog.up"),
        Binding("down,j", "move(1)", "Line down", show=False, id="dialog.down"),
    ]

    def __init__(
        self, title: Printable, body: Content, reload: Callable[[], Awaitable[tuple[Printable, Content]]] | None = None
    ) -> None:
        super().__init__()
        self._reload = reload
        self._shown = body
        self._head, self._body = Static(Content(title), classes="title"), HangingText(body, classes="body")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield self._head
            with VerticalScroll():
                yield self._body
            yield Static(Content("Esc closes, Up and Down scroll"), classes="hint")

    def on_mount(self) -> None:
        if self._reload is not None:
            self.set_interval(REFRESH_S, self._start_refresh)

    def _start_refresh(self) -> None:
        # Pass the function: a coroutine created while the application ends would never be awaited.
        _: Worker[None] = self.run_worker(self._refresh_content, exclusive=True)

    async def _refresh_content(self) -> None:
        assert self._reload is not None
        with suppress(AgentError):  # the chat shows the error; keep the last content
            title, body = await self._reload()
            self._head.update(Content(title))
            if not body.is_same(self._shown):  # keeps a text selection
                self._shown = body
                self._body.update(body)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)


async def open_live(app: App[Any], load: Callable[[], Awaitable[tuple[Printable, Content]]]) -> None:
    """Open a text dialog whose title and body are reloaded by `load`. Raises the error of the first load."""
    app.push_screen(TextDialog(*await load(), reload=load))


def rows(pairs: Sequence[tuple[str, str]], width: int = 16) -> Content:
    """Two columns for a `HangingText`; every string in them printable already, so that a tab is nothing but their
    border."""
    parts: list[Content] = []
    for left, right in pairs:
        parts.append(Content.assemble((left + " " * max(width - cells(left), 0) + " ", "bold"), "\t", right))
    return Content("\n").join(parts)


class HangingText(Static):
    """Text whose second column (after a tab) wraps within its column."""

    def render(self) -> Content:
        return self._laid_out(self.content_size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._laid_out(width).get_height({}, width)

    def _laid_out(self, width: int) -> Content:
        content = self.content
        assert isinstance(content, Content)
        return hang(content, width)


def hang(content: Content, width: int) -> Content:
    """`content` wrapped to `width` with a hanging second column instead of tabs."""
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


class ConfirmDialog(Dialog[bool]):
    """A yes/no question; the safe answer has the focus. `about`: explanatory text above it."""

    BINDING_GROUP_TITLE = "Confirmations"
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
        with Vertical(classes="dialog" if self._about else "dialog small"):
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
        """Any unbound letter cancels: the user is typing, and a later `y` must not confirm."""
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


class InputDialog(Dialog[str]):
    """A one-line input; an empty answer cancels.

    `submit` runs with the answer while the dialog is open; its error is shown inside, and the answer can be corrected.
    `answer` is filled in and submitted at once, `prefill` only filled in.
    """

    BINDING_GROUP_TITLE = "Input dialogs"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "Close", id="ask.close"),
    ]

    def __init__(
        self,
        question: Printable,
        hint: Printable,
        *,
        secret: bool = False,
        submit: Callable[[str], Awaitable[None]] | None = None,
        answer: Printable | None = None,
        prefill: Printable | None = None,
    ) -> None:
        super().__init__()
        self._question, self._hint = question, hint
        self._prefill = answer or prefill or ""
        self._secret = secret
        self._on_submit = submit
        self._answer = answer
        self._busy = False
        # Attributes instead of queries: a response may arrive while the screen is being removed.
        self._error_text = Static(id="error-text")

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog small"):
            yield Static(Content(self._question), classes="title")
            yield LineInput(self._prefill, compact=True, id="answer", password=self._secret, select_on_focus=False)
            yield self._error_text
            yield Static(Content(self._hint), classes="hint")

    def on_mount(self) -> None:
        if self._answer:
            self._take(self._answer)

    def type_ahead(self, text: str) -> None:
        """Insert text typed before the dialog was visible."""
        line = self.query_one("#answer", LineInput)
        self.set_focus(line)
        line.insert_text_at_cursor(text)

    @on(Input.Changed)
    def _typed(self) -> None:
        """Clear the error of the previous input."""
        self._error_text.update(Content(""))

    @on(Input.Submitted)
    def _submit(self, event: Input.Submitted) -> None:
        self._take(event.value if self._secret else event.value.strip())

    def _take(self, answer: str) -> None:
        if self._on_submit is None or not answer:
            self.dismiss(answer)
        elif not self._busy:
            self._busy = True
            self._error_text.update(Content(""))
            self.run_worker(self._do(self._on_submit, answer))

    async def _do(self, submit: Callable[[str], Awaitable[None]], answer: str) -> None:
        try:
            await submit(answer)
        except AgentError as error:
            self._busy = False
            self._error_text.update(Content(printable(str(error))))
            return
        self.dismiss(answer)

    def action_close(self) -> None:
        self.dismiss("")


class Feedback(Static):
    """The feedback line of a dialog: a brief message for some seconds, then the default text again; errors stay."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self._default_text = ""
        self._ends: Timer | None = None

    def set_default(self, sentence: str) -> None:
        """Set and show the default text, a printable sentence or empty."""
        self._default_text = sentence
        self._show(sentence)

    def show_briefly(self, sentence: str, *, trouble: bool = False) -> None:
        """Show a printable sentence for some seconds; an error until the next message."""
        self._show(sentence, trouble=trouble)
        if not trouble:
            self._ends = self.set_timer(FLASH_S, lambda: self._show(self._default_text))

    def clear_error(self) -> None:
        """Show the default text instead of an error."""
        if self.has_class("-trouble"):
            self._show(self._default_text)

    def _show(self, sentence: str, *, trouble: bool = False) -> None:
        if self._ends is not None:
            self._ends.stop()
            self._ends = None
        self.set_class(trouble, "-trouble")
        self.update(Content(sentence))
