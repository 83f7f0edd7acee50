"""The full view of one message, with complete Markdown.

Textual's Markdown widget draws it from a restricted parser: no entities (`&#8238;` would bypass the sanitiser), no
HTML, no images, no language names (they select a highlighter). Links do not open by themselves. Long messages are
shown as plain text.
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
from zerochat.tui.dialogs.dialog import Dialog
from zerochat.tui.messages.row import WHOLE_CHARS_MAX

MARKDOWN_LINES_MAX, MARKDOWN_CHARS_MAX = 40, 8_192
"""Beyond these limits one widget per paragraph, list item and table cell would block the screen."""
LINES_MAX = 1_000
"""Lines shown of a plain message; the rest is counted."""
NESTING_MAX = 8
_UNWANTED = ["entity", "html_inline", "html_block", "image", "autolink"]


def parser() -> MarkdownIt:
    """A CommonMark parser with tables, without the unwanted rules."""
    made = MarkdownIt("commonmark", {"maxNesting": NESTING_MAX, "html": False, "linkify": False})
    made.enable(["table", "strikethrough"])
    made.disable(_UNWANTED)
    made.core.ruler.push("plain_code", _forget_languages)
    return made


def _forget_languages(state: StateCore) -> None:
    for token in state.tokens:
        token.info = ""


def fits_markdown(text: str, lines_max: int = MARKDOWN_LINES_MAX) -> bool:
    return len(text) <= MARKDOWN_CHARS_MAX and text.count("\n") < lines_max


class FullMessageDialog(Dialog[None]):
    """`source`: the raw text. `follow` handles a clicked link."""

    BINDING_GROUP_TITLE = "Full message"
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
        self._markdown = markdown and fits_markdown(self._text)

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
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
