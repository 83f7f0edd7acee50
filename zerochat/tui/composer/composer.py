"""The composer: a growing text area that sends with Enter; burst detection, history, completion."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Input, Static, TextArea

from zerochat.names import hidden_in
from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.composer import paste
from zerochat.tui.state.conversation import TEXT_CHARS_MAX
from zerochat.tui.style.keymaps import is_letter

if TYPE_CHECKING:  # loaded when they are needed, after the first frame
    from zerochat.tui.composer import completion
    from zerochat.tui.composer.vim import NormalMode

PADDING = 2
WIDTH_MIN = 16


def _key(keys: str, action: str, description: str, name: str) -> Binding:
    return Binding(keys, action, description, show=False, id=name)


class Composer(TextArea, inherit_bindings=False):
    """The message input. Pasted text is sanitised, because this terminal displays it too.

    `submit` receives the text on Enter; `recall(step, text)` returns the text for Ctrl+Up and Ctrl+Down. Both are
    called synchronously between two keys: a posted message could arrive after later keys, and a line could end up
    in the wrong conversation. `names`, `connections`, `bots` and `files` return the candidates for completion.
    """

    BINDING_GROUP_TITLE = "Composer"
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("enter", "send", "Send", "composer.send"),
        _key("ctrl+j,alt+enter,shift+enter", "newline", "New line", "composer.newline"),
        _key("ctrl+up", "recall(1)", "Previous text that you sent", "composer.older"),
        _key("ctrl+down", "recall(-1)", "Next text that you sent", "composer.newer"),
        _key(
            "tab",
            "complete",
            "Complete a command or a name; if empty, go to the next part",
            "composer.complete",
        ),
        _key(
            "shift+tab", "complete(-1)", "Previous suggestion; else go to the previous part", "composer.complete_back"
        ),
        _key("home,ctrl+a", "cursor_line_start", "Start of the line", "composer.line_start"),
        _key("end,ctrl+e", "cursor_line_end", "End of the line", "composer.line_end"),
        _key("ctrl+left,alt+b", "cursor_word_left", "Word left", "composer.word_left"),
        _key("ctrl+right,alt+f", "cursor_word_right", "Word right", "composer.word_right"),
        _key("ctrl+w,ctrl+backspace,alt+backspace", "delete_word_left", "Delete word left", "composer.delete_left"),
        _key("alt+d,alt+delete", "delete_word_right", "Delete word right", "composer.delete_right"),
        _key("ctrl+u", "delete_to_start_of_line", "Delete to the start of the line", "composer.delete_start"),
        _key("ctrl+z", "undo", "Undo", "composer.undo"),
        _key("alt+z,ctrl+shift+z", "redo", "Redo", "composer.redo"),
        _key("alt+k", "delete_to_end_of_line", "Delete to the end of the line", "composer.delete_end"),
        _key("ctrl+y", "yank", "Insert the word or line deleted last", "composer.yank"),
        _key("ctrl+x", "cut", "Cut the selection", "composer.cut"),
        _key("ctrl+v", "paste", "Paste text cut or copied here", "composer.paste"),
        _key("up", "cursor_up", "Line up; if empty, go to the messages", "edit.up"),
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
    """Readline's keys and the plain ones; TextArea's own list takes keys that the screen needs."""

    class Rejected(Message):
        """An input was rejected."""

        def __init__(self, sentence: Printable) -> None:
            super().__init__()
            self.sentence = sentence

    class LeftUpwards(Message):
        """Up was pressed in the empty composer."""

    class CompletionsChanged(Message):
        """Completions of the text before the cursor, and the index of the inserted one (-1: none)."""

        def __init__(self, labels: list[Printable], at: int) -> None:
            super().__init__()
            self.labels, self.at = labels, at

    class Pasted(Message):
        """A long text or a file path was pasted; the user chooses what to do with it."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class ModeChanged(Message):
        """Vim's normal mode began (True) or ended."""

        def __init__(self, normal: bool) -> None:
            super().__init__()
            self.normal = normal

    class BadgePressed(Message):
        """The title in the border above was clicked."""

    def __init__(
        self,
        submit: Callable[[str], None],
        recall: Callable[[int, str], str | None],
        names: Callable[[], Sequence[str]] = tuple,
        connections: Callable[[], Iterable[str]] = tuple,
        bots: "Callable[[], Iterable[completion.BotCommand]]" = tuple,
        files: Callable[[], Iterable[str]] = tuple,
        *,
        id: str | None = None,
        field: bool = False,
    ) -> None:
        """`field`: one of several inputs in a dialog, where Tab moves on."""
        super().__init__(id=id, compact=True, soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False)
        self._submit = submit
        self._field = field
        self._recall_text = recall
        self._names = names
        self._connections = connections
        self._bots = bots
        self._files = files
        self._cycle: tuple[list[completion.Completion], str, int] | None = None
        """State of Tab cycling: completions, the resulting text, the index of the inserted one."""
        self._vim: NormalMode | None = None
        self.placed_text = ""
        """The text last set by `set_text`, not typed."""
        self._killed = ""
        self._screen_opened = False
        """The last key opened a dialog."""
        self._read_at = 0.0
        """Time of the last key."""
        self._in_burst = False
        """Keys arrive at paste speed, and Enter was among them."""
        self._before = ("", 0)
        """Text and cursor offset before the burst."""
        self._burst: Timer | None = None
        """Timer that detects the end of a burst."""
        self._held_enter: Timer | None = None
        """Timer of a deferred Enter: it may be a newline inside a paste."""

    def set_text(self, text: str) -> None:
        """Replace the text, sanitised, and move the cursor to its end."""
        self.text = self.placed_text = printable(text, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX)
        self.move_cursor(self.document.end)
        self._set_normal(False)

    # --- vim ---------------------------------------------------------------------------------------------------------

    def use_vim(self, wanted: bool) -> None:
        """Edit with vim's normal and insert mode, or without modes."""
        self._set_normal(False)
        self._vim = None
        if wanted:
            from zerochat.tui.composer.vim import NormalMode

            self._vim = NormalMode()

    def _set_normal(self, on: bool) -> None:
        if self._vim is not None and self._vim.on != on:
            self._vim.on, self._vim.operator = on, ""
            self.post_message(self.ModeChanged(on))

    def on_focus(self) -> None:
        self._set_normal(False)

    async def _vim_key(self, event: events.Key) -> bool:
        """Handle a key of the normal mode, and Esc, which starts it; False: not such a key."""
        vim = self._vim
        if vim is None:
            return False
        if event.key == "escape":
            if self.close_completions() or vim.operator:
                vim.operator = ""
                return True
            if vim.on or not self.text:  # leads to the messages
                return False
            self._set_normal(True)
            row, column = self.cursor_location
            self.move_cursor((row, max(column - 1, 0)))
            return True
        if not vim.on or not is_letter(event) or not event.character:
            return False
        done = vim.press(event.character, self.text, self._offset, self._killed)
        if done == "":  # as among the messages: a command, search
            active = self.screen.active_bindings.get(event.key)
            if active is not None and active.enabled and active.node is not self:
                self._set_normal(False)
                await self.app.run_action(active.binding.action, active.node)
        elif isinstance(done, str):
            await self.app.run_action(done, self)
        elif done is not None:
            if done.killed is not None:
                self._killed = done.killed
            if done.start != done.end or done.text:
                self._replace_via_keyboard(done.text, _place(self.text, done.start), _place(self.text, done.end))
            self.move_cursor(_place(self.text, done.cursor))
            self._set_normal(not done.insert)
        return True

    @property
    def _offset(self) -> int:
        """The cursor as a character offset."""
        return len(self.get_text_range((0, 0), self.cursor_location))

    # --- keys ------------------------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        """Run a key's binding synchronously.

        Textual runs bindings from the application's queue and letters from this widget's: in a burst (fast typing, a
        slow machine, a terminal that pastes as keys) Enter would overtake the letters before it.
        """
        if self._screen_opened and self.app.screen is not self.screen:
            # queued here before the dialog opened, and meant for it
            event.prevent_default()
            event.stop()
            again = events.Key(event.key, event.character)
            again.time = event.time
            self.app.post_message(again)
            return
        self._screen_opened = False
        if await self._vim_key(event):
            event.prevent_default()
            event.stop()
            return
        least = paste.BURST_PAUSE_S if self._in_burst or self._held_enter is not None else paste.BURST_S
        close, self._read_at = event.time - self._read_at < least, event.time
        if not close:
            self._extract_burst()
            self._before = self.text, len(self.get_text_range((0, 0), self.cursor_location))
        self._in_burst = self._in_burst and close
        active = None if is_letter(event) else self.screen.active_bindings.get(event.key)
        sends = active is not None and active.binding.action == "send"
        if self._held_enter is not None:
            if is_letter(event) or (sends and close):  # the paste continues, possibly with an empty line
                self._drop_held_enter()
                self._in_burst = True
                self._wait_for_more()
                self.action_newline()
            else:
                self._send_held_enter()
        if is_letter(event) and event.is_printable:
            return
        event.prevent_default()
        event.stop()
        if is_letter(event) and event.character:
            self._replace_via_keyboard(event.character, *self.selection)
            return
        if close and self.text and sends:
            if self._in_burst:
                self.action_newline()
            else:
                self._held_enter = self.set_timer(paste.ENTER_HOLD_S, self._send_held_enter)
            return
        if active is not None and active.enabled:
            await self.app.run_action(active.binding.action, active.node)
            self._screen_opened = self.app.screen is not self.screen

    def _wait_for_more(self) -> None:
        """Poll for the end of the burst."""
        last = self._read_at

        def look() -> None:
            self._burst = None
            if self._read_at != last:
                self._wait_for_more()
            else:
                self._extract_burst()
                self._in_burst = False

        if self._burst is None:
            self._burst = self.set_timer(paste.BURST_PAUSE_S, look)

    def _extract_burst(self) -> None:
        """Treat a burst like a paste: a long one is removed from the text and posted as `Pasted`."""
        if not self._in_burst:
            return
        before, at = self._before
        behind, text = len(before) - at, self.text
        pasted = text[at : len(text) - behind]
        if text == before[:at] + pasted + before[at:] and paste.is_long(pasted):
            self._replace_via_keyboard("", _place(text, at), _place(text, len(text) - behind))
            self.post_message(self.Pasted(pasted))

    def _drop_held_enter(self) -> None:
        if self._held_enter is not None:
            self._held_enter.stop()
            self._held_enter = None

    def _send_held_enter(self) -> None:
        self._drop_held_enter()
        self.action_send()

    def action_send(self) -> None:
        self._submit(self.text)

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and not self.text:
            self.post_message(self.LeftUpwards())
        else:
            super().action_cursor_up(select)

    def get_cursor_line_start_location(self, smart_home: bool = False) -> tuple[int, int]:
        """The start of the line, as in a shell: where it wraps does not matter."""
        return self.cursor_location[0], 0

    def get_cursor_line_end_location(self) -> tuple[int, int]:
        row = self.cursor_location[0]
        return row, len(self.document.get_line(row))

    def action_newline(self) -> None:
        self._replace_via_keyboard("\n", *self.selection)

    def action_delete_word_left(self) -> None:
        self._kill(super().action_delete_word_left)

    def action_delete_word_right(self) -> None:
        self._kill(super().action_delete_word_right)

    def action_delete_to_start_of_line(self) -> None:
        self._kill(super().action_delete_to_start_of_line)

    def action_delete_to_end_of_line(self) -> None:
        self._kill(super().action_delete_to_end_of_line)

    def _kill(self, delete: Callable[[], None]) -> None:
        """Delete, and store the deleted text for yank."""
        before = self.text
        delete()
        after = self.text
        if len(after) < len(before):
            at = len(self.get_text_range((0, 0), self.cursor_location))
            self._killed = before[at : at + len(before) - len(after)]

    def action_yank(self) -> None:
        self._replace_via_keyboard(self._killed, *self.selection)

    def action_recall(self, step: int) -> None:
        if (text := self._recall_text(step, self.text)) is not None:
            self.set_text(text)

    def action_complete(self, step: int = 1) -> None:
        """Complete the text before the cursor; repeated: cycle through the completions."""
        if self._cycle is not None and self._cycle[1] == self.text:
            offers, _, at = self._cycle
            at = (at + step) % len(offers) if at >= 0 or step > 0 else len(offers) - 1
            self._take_completion(offers, at)
            return
        from zerochat.tui.composer import completion

        before = self.get_text_range((0, 0), self.cursor_location)
        names, connections = self._names(), list(self._connections())
        found = completion.completions(before, names, connections, list(self._bots()), list(self._files()))
        if found is None and step > 0 and self.text and not self._field:  # focus stays while there is text
            self.post_message(self.Rejected(Printable("Nothing to complete here.")))
        elif found is None:
            self.screen.focus_next() if step > 0 else self.screen.focus_previous()
        elif not found:
            self.post_message(self.Rejected(completion.no_completion_text(before)))
        else:
            self._replace_before_cursor(found[0].text if len(found) == 1 else completion.common_prefix(before, found))
            if len(found) > 1:
                self._show_completions(found, -1)

    def _take_completion(self, offers: "list[completion.Completion]", at: int) -> None:
        self._replace_before_cursor(offers[at].text)
        self._show_completions(offers, at)

    def _show_completions(self, offers: "list[completion.Completion]", at: int) -> None:
        self._cycle = (offers, self.text, at)
        self.post_message(self.CompletionsChanged([each.label for each in offers], at))

    def _replace_before_cursor(self, text: str) -> None:
        """Replace the text before the cursor, keeping the common prefix."""
        before = self.get_text_range((0, 0), self.cursor_location)
        kept = 0
        while kept < min(len(before), len(text)) and before[kept] == text[kept]:
            kept += 1
        self._replace_via_keyboard(text[kept:], _place(before, kept), self.cursor_location)

    def completions_stale(self) -> bool:
        """Whether the completion list no longer belongs to the text."""
        if self._cycle is not None and self._cycle[1] != self.text:
            self._cycle = None
        return self._cycle is None

    def close_completions(self) -> bool:
        """Close the completion list without changing the text; False: it was not open."""
        if self.completions_stale():
            return False
        self._cycle = None
        self.post_message(self.CompletionsChanged([], -1))
        return True

    def on_click(self, event: events.Click) -> None:
        if event.y == 0 and self.border_title:
            self.post_message(self.BadgePressed())

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()  # Textual's handler would insert the raw text
        event.stop()
        self.take_pasted(event.text)

    def take_pasted(self, text: str) -> None:
        """Insert the text; a long text or a file path is posted as `Pasted` instead."""
        text = paste.normalise_newlines(text)
        if paste.is_long(text) or paste.file_of(text) is not None:
            self.post_message(self.Pasted(text))
        else:
            self.insert_pasted(text)

    def insert_pasted(self, text: str) -> None:
        self._replace_via_keyboard(paste.composer_text(text), *self.selection)

    # --- drawing ---------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Textual cannot wrap the placeholder at width 0, which a window may have for a moment."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(self.size.width)


def _place(text: str, at: int) -> tuple[int, int]:
    """(line, column) of a character offset."""
    return text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1


class LineInput(Input):
    """A single-line input; pasted text becomes one printable line."""

    class Cleaned(Message):
        """A pasted text had invisible characters, which were removed or replaced."""

    async def _on_key(self, event: events.Key) -> None:
        if is_letter(event) and not event.is_printable and event.character:  # Textual would drop it
            event.prevent_default()
            event.stop()
            self.replace(event.character, *self.selection)

    def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        text = event.text.strip()
        line = printable_line(text)
        self.insert_text_at_cursor(line)
        if hidden_in(text, f"{line}\t\r\n"):
            self.post_message(self.Cleaned())


class CompletionList(Static):
    """The completion list above the composer; hidden while empty."""

    def show(self, labels: Sequence[Printable], at: int) -> None:
        """Show the labels with index `at` (-1: none) highlighted."""
        self.set_class(bool(labels), "-shown")
        if not labels:
            return
        from zerochat.tui.composer.completion import window

        width = max(self.app.size.width - PADDING - len(" …"), WIDTH_MIN)
        first, lines, more = window(labels, at, width)
        rows: list[Content] = []
        number = first
        for line in lines:
            parts: list[Content | tuple[str, str] | str] = []
            for label in line:
                parts += ["  "] if parts else []
                parts.append((label, "reverse") if number == at else label)
                number += 1
            rows.append(Content.assemble(*parts))
        rows[-1] = Content.assemble(rows[-1], " …") if more else rows[-1]
        self.update(Content("\n").join(rows))
