"""The composer: a text area that grows, sends with Enter, and remembers what was sent."""

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input, TextArea

from zerochat.terminal import Printable, printable, printable_line
from zerochat.tui.commands import complete

PASTE_CHARS_MAX = 32_768
"""More does not fit into a message anyway, and a text area of a megabyte stops the screen."""


class Composer(TextArea):
    """Where a person writes. What is pasted is made printable first: it goes to this terminal too."""

    BINDING_GROUP_TITLE = "Composer"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "send", "Send", show=False, priority=True, id="composer.send"),
        Binding(
            "ctrl+j,alt+enter,shift+enter", "newline", "New line", show=False, priority=True, id="composer.newline"
        ),
        Binding("ctrl+up", "recall(1)", "What you said before", show=False, id="composer.older"),
        Binding("ctrl+down", "recall(-1)", "What you said after", show=False, id="composer.newer"),
        Binding("tab", "complete", "Complete a command", show=False, id="composer.complete"),
        Binding("alt+b", "cursor_word_left", "Word left", show=False, id="composer.word_left"),
        Binding("alt+f", "cursor_word_right", "Word right", show=False, id="composer.word_right"),
        Binding("alt+d", "delete_word_right", "Delete word", show=False, id="composer.delete_word"),
    ]

    class Submitted(Message):
        """Enter was pressed; the text is still in the composer."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Complained(Message):
        """Something was not taken."""

        def __init__(self, sentence: Printable) -> None:
            super().__init__()
            self.sentence = sentence

    def __init__(self, recall: Callable[[int, str], str | None], *, id: str | None = None) -> None:
        super().__init__(id=id, compact=True, soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False)
        self._recall = recall

    def render_line(self, y: int) -> Strip:
        """Textual cannot wrap the placeholder into no width at all, which a window may have for a moment."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(self.size.width)

    def put(self, text: str) -> None:
        """Replace everything, with the cursor at the end; made printable, wherever it comes from."""
        self.text = printable(text, lines_max=PASTE_CHARS_MAX, chars_max=PASTE_CHARS_MAX)
        self.move_cursor(self.document.end)

    def action_send(self) -> None:
        self.post_message(self.Submitted(self.text))

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_recall(self, step: int) -> None:
        if (text := self._recall(step, self.text)) is not None:
            self.put(text)

    def action_complete(self) -> None:
        completed = complete(self.text)
        if completed is None:
            raise SkipAction
        self.put(completed)

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()  # Textual's own handler would put the text in as it came.
        event.stop()
        if len(event.text) > PASTE_CHARS_MAX:
            sentence = f"This is too much to paste: {len(event.text)} characters, and at most {PASTE_CHARS_MAX} fit."
            self.post_message(self.Complained(Printable(sentence)))
            return
        text = printable(
            event.text.replace("\r\n", "\n").replace("\r", "\n"), lines_max=PASTE_CHARS_MAX, chars_max=PASTE_CHARS_MAX
        )
        self._replace_via_keyboard(text, *self.selection)


class LineInput(Input):
    """A line to type in; what is pasted becomes one printable line."""

    def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.insert_text_at_cursor(printable_line(event.text.strip()))
