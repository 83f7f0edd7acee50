"""One message as a whole, over the chat, with all of Markdown.

Textual's own widget draws it, from a parser that is told to leave out what a peer must not have: entities (`&#8238;`
would turn a line round behind the back of the sanitiser), HTML, pictures, and the names of languages, which would
choose a highlighter. A link opens nothing by itself. What is too long for a widget per paragraph is shown as it is.
"""

from collections.abc import Callable
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Markdown, Static

from zerochat.terminal_text import Printable, printable
from zerochat.tui.dialogs.overlay import Over
from zerochat.tui.messages.row import WHOLE_CHARS_MAX

MARKDOWN_LINES_MAX, MARKDOWN_CHARS_MAX = 40, 8_192
"""Beyond them a widget for each paragraph, line of a list and cell of a table would stop the screen."""
LINES_MAX = 1_000
"""Of a message that is shown as it is; what is left out is counted."""
NESTING_MAX = 8
_UNWANTED = ["entity", "html_inline", "html_block", "image", "autolink"]


def parser() -> MarkdownIt:
    """CommonMark with tables, without what is unwanted."""
    made = MarkdownIt("commonmark", {"maxNesting": NESTING_MAX, "html": False, "linkify": False})
    made.enable(["table", "strikethrough"])
    made.disable(_UNWANTED)
    made.core.ruler.push("plain_code", _forget_languages)
    return made


def _forget_languages(state: StateCore) -> None:
    for token in state.tokens:
        token.info = ""


def suits(text: str, lines_max: int = MARKDOWN_LINES_MAX) -> bool:
    return len(text) <= MARKDOWN_CHARS_MAX and text.count("\n") < lines_max


class WholeMessage(Over[None]):
    """`source`: the text as its author wrote it. `follow` is asked about a link that was clicked."""

    BINDING_GROUP_TITLE = "A whole message"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "close", "Close", id="whole.close"),
        Binding("up,k", "move(-1)", "Line up", show=False, id="whole.up"),
        Binding("down,j", "move(1)", "Line down", show=False, id="whole.down"),
        Binding("pageup", "page(-1)", "Page up", show=False, id="whole.page_up"),
        Binding("pagedown,space", "page(1)", "Page down", show=False, id="whole.page_down"),
    ]

    def __init__(self, title: Printable, source: str, follow: Callable[[str], None], *, markdown: bool = True) -> None:
        super().__init__()
        self._title = title
        text = printable(source, lines_max=WHOLE_CHARS_MAX, chars_max=WHOLE_CHARS_MAX)
        lines = text.split("\n")
        more = len(lines) - LINES_MAX
        self._text = text if more <= 0 else "\n".join([*lines[:LINES_MAX], "", f"… {more:,} more lines: y copies all"])
        self._follow = follow
        self._markdown = markdown and suits(self._text)

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet"):
            yield Static(Content(self._title), classes="title")
            with VerticalScroll():
                if self._markdown:
                    yield Markdown(self._text, parser_factory=parser, open_links=False)
                else:
                    yield Static(Content(self._text), classes="body")
            yield Static(Content("Esc closes, Up and Down scroll"), classes="hint")

    @on(Markdown.LinkClicked)
    def _click(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        self._follow(event.href)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        self.query_one(VerticalScroll).scroll_relative(y=step, animate=False)

    def action_page(self, direction: int) -> None:
        scroll = self.query_one(VerticalScroll)
        scroll.scroll_relative(y=direction * max(scroll.size.height - 1, 1), animate=False)
