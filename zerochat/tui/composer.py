"""The composer: a text area that grows, sends with Enter, and remembers what was sent."""

from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.widgets import Input, TextArea

from zerochat.terminal import Printable, printable, printable_line
from zerochat.tui.commands import candidates, complete, names_for

TEXT_BYTES_MAX = 65_536
"""UTF-8 of one message: the protocol's own limit, POST_BYTES_MAX in zerochat/group/event.py, which no face imports."""
TEXT_CHARS_MAX = 4 * TEXT_BYTES_MAX
"""What that can become by being made printable: a tab is four spaces."""


def _key(keys: str, action: str, description: str, name: str) -> Binding:
    return Binding(keys, action, description, show=False, id=name)


class Composer(TextArea, inherit_bindings=False):
    """Where a person writes. What is pasted is made printable first: it goes to this terminal too.

    `submit` gets the text when Enter is pressed, `recall(step, text)` answers what to show for Ctrl+Up and Ctrl+Down.
    Both are called at once, between one key and the next: a message would arrive after keys that were pressed later,
    and a line could end up in the wrong conversation. `names` answers who a command can be about.
    """

    BINDING_GROUP_TITLE = "Composer"
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("enter", "send", "Send", "composer.send"),
        _key("ctrl+j,alt+enter,shift+enter", "newline", "New line", "composer.newline"),
        _key("ctrl+up", "recall(1)", "What you said before", "composer.older"),
        _key("ctrl+down", "recall(-1)", "What you said after", "composer.newer"),
        _key("tab", "complete", "Complete a command or a name; else go to the next part", "composer.complete"),
        _key("home,ctrl+a", "cursor_line_start", "Start of the line", "composer.line_start"),
        _key("end,ctrl+e", "cursor_line_end", "End of the line", "composer.line_end"),
        _key("ctrl+left,alt+b", "cursor_word_left", "Word left", "composer.word_left"),
        _key("ctrl+right,alt+f", "cursor_word_right", "Word right", "composer.word_right"),
        _key("ctrl+w,ctrl+backspace,alt+backspace", "delete_word_left", "Delete word left", "composer.delete_left"),
        _key("alt+d,alt+delete", "delete_word_right", "Delete word right", "composer.delete_right"),
        _key("ctrl+u", "delete_to_start_of_line", "Delete to the start of the line", "composer.delete_start"),
        _key("ctrl+z", "undo", "Undo", "composer.undo"),
        _key("ctrl+y", "redo", "Redo", "composer.redo"),
        _key("ctrl+x", "cut", "Cut what is selected", "composer.cut"),
        _key("ctrl+v", "paste", "Paste what was cut or copied here", "composer.paste"),
        _key("up", "cursor_up", "Line up", "edit.up"),
        _key("down", "cursor_down", "Line down", "edit.down"),
        _key("left", "cursor_left", "Left", "edit.left"),
        _key("right", "cursor_right", "Right", "edit.right"),
        _key("backspace", "delete_left", "Delete left", "edit.delete_left"),
        _key("delete,ctrl+d", "delete_right", "Delete right", "edit.delete_right"),
        _key("shift+up", "cursor_up(True)", "Select up", "edit.select_up"),
        _key("shift+down", "cursor_down(True)", "Select down", "edit.select_down"),
        _key("shift+left", "cursor_left(True)", "Select left", "edit.select_left"),
        _key("shift+right", "cursor_right(True)", "Select right", "edit.select_right"),
        _key("shift+home", "cursor_line_start(True)", "Select to the start", "edit.select_start"),
        _key("shift+end", "cursor_line_end(True)", "Select to the end", "edit.select_end"),
    ]
    """Readline's keys and the plain ones; TextArea's own list would take keys that the screen needs."""

    class Complained(Message):
        """Something was not taken."""

        def __init__(self, sentence: Printable) -> None:
            super().__init__()
            self.sentence = sentence

    class BadgePressed(Message):
        """The title in the border above was clicked."""

    def __init__(
        self,
        submit: Callable[[str], None],
        recall: Callable[[int, str], str | None],
        names: Callable[[], Iterable[str]] = tuple,
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id, compact=True, soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False)
        self._submit = submit
        self._recall_text = recall
        self._names = names

    def put(self, text: str) -> None:
        """Replace everything, with the cursor at the end; made printable, wherever it comes from."""
        self.text = printable(text, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX)
        self.move_cursor(self.document.end)

    # --- keys ------------------------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        """Do what a key is bound to here and now.

        Textual runs bindings in the application's own queue, while letters wait in this widget's: in a burst (a fast
        hand, a slow machine, a terminal that pastes as keys) Enter would overtake the words before it.
        """
        if is_letter(event):
            return
        event.prevent_default()
        event.stop()
        active = self.screen.active_bindings.get(event.key)
        if active is not None and active.enabled:
            await self.app.run_action(active.binding.action, active.node)

    def action_send(self) -> None:
        self._submit(self.text)

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_recall(self, step: int) -> None:
        if (text := self._recall_text(step, self.text)) is not None:
            self.put(text)

    def action_complete(self) -> None:
        names = list(self._names())
        completed = complete(self.text, names)
        if completed is not None:
            self.put(completed)
        elif (others := candidates(self.text)) is not None:
            said = " ".join(f"/{each}" for each in others) or f"No command begins with {printable_line(self.text, 24)}."
            self.post_message(self.Complained(printable_line(said)))
        elif (named := names_for(self.text, names)) is not None:
            self.post_message(self.Complained(printable_line(", ".join(named) or "Nobody here is called that.")))
        else:
            self.screen.focus_next()

    def on_click(self, event: events.Click) -> None:
        if event.y == 0 and self.border_title:
            self.post_message(self.BadgePressed())

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()  # Textual's own handler would put the text in as it came.
        event.stop()
        size = len(event.text.encode(errors="replace"))
        if size > TEXT_BYTES_MAX:
            sentence = f"Too much to paste: {size:,} bytes, and a message has at most {TEXT_BYTES_MAX:,}."
            self.post_message(self.Complained(Printable(sentence)))
            return
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        text = printable(text, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX)
        self._replace_via_keyboard(text, *self.selection)

    # --- drawing ---------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Textual cannot wrap the placeholder into no width at all, which a window may have for a moment."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(self.size.width)


def is_letter(event: events.Key) -> bool:
    """Whether a key types its character. Alt+A carries an "a" too, and must not type it."""
    return event.is_printable and not event.key.startswith(("alt+", "ctrl+", "super+", "hyper+", "meta+"))


class LineInput(Input):
    """A line to type in; what is pasted becomes one printable line."""

    def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.insert_text_at_cursor(printable_line(event.text.strip()))
