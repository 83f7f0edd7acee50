"""The composer: a text area that grows, sends with Enter, and remembers what was sent."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip
from textual.timer import Timer
from textual.widgets import Input, TextArea

from zerochat.terminal_text import Printable, printable, printable_line
from zerochat.tui.composer import paste
from zerochat.tui.state.conversation import TEXT_CHARS_MAX

if TYPE_CHECKING:
    from zerochat.tui.composer import completion  # with all the commands, and nobody types before the first frame


def _key(keys: str, action: str, description: str, name: str) -> Binding:
    return Binding(keys, action, description, show=False, id=name)


class Composer(TextArea, inherit_bindings=False):
    """Where a person writes. What is pasted is made printable first: it goes to this terminal too.

    `submit` gets the text when Enter is pressed, `recall(step, text)` answers what to show for Ctrl+Up and Ctrl+Down.
    Both are called at once, between one key and the next: a message would arrive after keys that were pressed later,
    and a line could end up in the wrong conversation. `names` answers who a command can be about,
    `connections` what is connected outside of groups, `bots` what can be asked of bots, `files` what the files here are
    called.
    """

    BINDING_GROUP_TITLE = "Composer"
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("enter", "send", "Send", "composer.send"),
        _key("ctrl+j,alt+enter,shift+enter", "newline", "New line", "composer.newline"),
        _key("ctrl+up", "recall(1)", "What you said before", "composer.older"),
        _key("ctrl+down", "recall(-1)", "What you said after", "composer.newer"),
        _key(
            "tab",
            "complete",
            "Complete a command or a name; where nothing stands, go to the next part",
            "composer.complete",
        ),
        _key("shift+tab", "complete(-1)", "The offer before; else go to the part before", "composer.complete_back"),
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
        _key("ctrl+y", "yank", "Bring back what was deleted last by the word or the line", "composer.yank"),
        _key("ctrl+x", "cut", "Cut what is selected", "composer.cut"),
        _key("ctrl+v", "paste", "Paste what was cut or copied here", "composer.paste"),
        _key("up", "cursor_up", "Line up; in the empty composer, to the messages", "edit.up"),
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

    class Upwards(Message):
        """Up was pressed where nothing is typed."""

    class Offered(Message):
        """What the text before the cursor can become, and which of it was taken (-1: none)."""

        def __init__(self, labels: list[Printable], at: int) -> None:
            super().__init__()
            self.labels, self.at = labels, at

    class Pasted(Message):
        """What to do with this must be asked; as it was pasted."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class BadgePressed(Message):
        """The title in the border above was clicked."""

    def __init__(
        self,
        submit: Callable[[str], None],
        recall: Callable[[int, str], str | None],
        names: Callable[[], Iterable[str]] = tuple,
        connections: Callable[[], Iterable[str]] = tuple,
        bots: "Callable[[], Iterable[completion.Asking]]" = tuple,
        files: Callable[[], Iterable[str]] = tuple,
        *,
        id: str | None = None,
        field: bool = False,
    ) -> None:
        """`field`: it is one of several in a sheet, and Tab always goes on."""
        super().__init__(id=id, compact=True, soft_wrap=True, tab_behavior="focus", highlight_cursor_line=False)
        self._submit = submit
        self._field = field
        self._recall_text = recall
        self._names = names
        self._connections = connections
        self._bots = bots
        self._files = files
        self._cycle: tuple[list[completion.Offer], str, int] | None = None
        """What Tab goes round in, the text that it has left, and which one that is."""
        self.placed = ""
        """What was last put here, and not typed."""
        self._killed = ""
        self._led_over = False
        """The last key has opened a screen over this one."""
        self._read_at = 0.0
        """When the last key was read from the terminal."""
        self._in_burst = False
        """The keys come as a paste does, and Enter has been among them."""
        self._before = ("", 0)
        """The text before such keys, and the cursor's place in it."""
        self._burst: Timer | None = None
        """Looks whether a burst is over."""
        self._held: Timer | None = None
        """Enter was pressed, and waits for a moment: it may be a line's end in a paste."""

    def put(self, text: str) -> None:
        """Replace everything, with the cursor at the end; made printable, wherever it comes from."""
        self.text = self.placed = printable(text, lines_max=TEXT_CHARS_MAX, chars_max=TEXT_CHARS_MAX)
        self.move_cursor(self.document.end)

    # --- keys ------------------------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        """Do what a key is bound to here and now.

        Textual runs bindings in the application's own queue, while letters wait in this widget's: in a burst (a fast
        hand, a slow machine, a terminal that pastes as keys) Enter would overtake the words before it.
        """
        if self._led_over and self.app.screen is not self.screen:
            # It waits here since before the key that has opened that screen was read: it is for that.
            event.prevent_default()
            event.stop()
            again = events.Key(event.key, event.character)
            again.time = event.time
            self.app.post_message(again)
            return
        self._led_over = False
        least = paste.BURST_GOES_ON_S if self._in_burst or self._held is not None else paste.BURST_S
        close, self._read_at = event.time - self._read_at < least, event.time
        if not close:
            self._ask_about_burst()
            self._before = self.text, len(self.get_text_range((0, 0), self.cursor_location))
        self._in_burst = self._in_burst and close
        active = None if is_letter(event) else self.screen.active_bindings.get(event.key)
        sends = active is not None and active.binding.action == "send"
        if self._held is not None:
            if is_letter(event) or (sends and close):  # there is more of a paste, and maybe an empty line in it
                self._drop_held()
                self._in_burst = True
                self._wait_for_more()
                self.action_newline()
            else:
                self._send_held()
        if is_letter(event):
            return
        event.prevent_default()
        event.stop()
        if close and self.text and sends:
            if self._in_burst:
                self.action_newline()
            else:
                self._held = self.set_timer(paste.HELD_S, self._send_held)
            return
        if active is not None and active.enabled:
            await self.app.run_action(active.binding.action, active.node)
            self._led_over = self.app.screen is not self.screen

    def _wait_for_more(self) -> None:
        """Look again and again whether the burst is over."""
        last = self._read_at

        def look() -> None:
            self._burst = None
            if self._read_at != last:
                self._wait_for_more()
            else:
                self._ask_about_burst()
                self._in_burst = False

        if self._burst is None:
            self._burst = self.set_timer(paste.BURST_GOES_ON_S, look)

    def _ask_about_burst(self) -> None:
        """What came as keys is a paste like any other: where it is long, it is taken out again and asked about."""
        if not self._in_burst:
            return
        before, at = self._before
        behind, text = len(before) - at, self.text
        pasted = text[at : len(text) - behind]
        if text == before[:at] + pasted + before[at:] and paste.is_long(pasted):
            self._replace_via_keyboard("", _place(text, at), _place(text, len(text) - behind))
            self.post_message(self.Pasted(pasted))

    def _drop_held(self) -> None:
        if self._held is not None:
            self._held.stop()
            self._held = None

    def _send_held(self) -> None:
        self._drop_held()
        self.action_send()

    def action_send(self) -> None:
        self._submit(self.text)

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and not self.text:
            self.post_message(self.Upwards())
        else:
            super().action_cursor_up(select)

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
        """Delete, and remember what: it is one piece, at the cursor."""
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
            self.put(text)

    def action_complete(self, step: int = 1) -> None:
        """Complete what stands before the cursor; again: the next of what it can be."""
        if self._cycle is not None and self._cycle[1] == self.text:
            offers, _, at = self._cycle
            at = (at + step) % len(offers) if at >= 0 or step > 0 else len(offers) - 1
            self._take_offer(offers, at)
            return
        from zerochat.tui.composer import completion

        before = self.get_text_range((0, 0), self.cursor_location)
        names, connections = list(self._names()), list(self._connections())
        found = completion.offers(before, names, connections, list(self._bots()), list(self._files()))
        if found is None and step > 0 and self.text and not self._field:  # whoever types goes on typing
            self.post_message(self.Complained(Printable("There is nothing to complete here.")))
        elif found is None:
            self.screen.focus_next() if step > 0 else self.screen.focus_previous()
        elif not found:
            self.post_message(self.Complained(completion.nothing(before)))
        else:
            self._put_before(found[0].text if len(found) == 1 else completion.common(before, found))
            if len(found) > 1:
                self._offer(found, -1)

    def _take_offer(self, offers: "list[completion.Offer]", at: int) -> None:
        self._put_before(offers[at].text)
        self._offer(offers, at)

    def _offer(self, offers: "list[completion.Offer]", at: int) -> None:
        self._cycle = (offers, self.text, at)
        self.post_message(self.Offered([each.label for each in offers], at))

    def _put_before(self, text: str) -> None:
        """Let this stand before the cursor."""
        before = self.get_text_range((0, 0), self.cursor_location)
        kept = 0
        while kept < min(len(before), len(text)) and before[kept] == text[kept]:
            kept += 1
        self._replace_via_keyboard(text[kept:], _place(before, kept), self.cursor_location)

    def offers_over(self) -> bool:
        """Whether the list of offers has nothing to do with the text any more."""
        if self._cycle is not None and self._cycle[1] != self.text:
            self._cycle = None
        return self._cycle is None

    def close_offers(self) -> bool:
        """Offer nothing any more, and leave the text as it is; False: nothing was offered."""
        if self.offers_over():
            return False
        self._cycle = None
        self.post_message(self.Offered([], -1))
        return True

    def on_click(self, event: events.Click) -> None:
        if event.y == 0 and self.border_title:
            self.post_message(self.BadgePressed())

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()  # Textual's own handler would put the text in as it came.
        event.stop()
        self.take_pasted(event.text)

    def take_pasted(self, text: str) -> None:
        """Put it in, or ask first: it may be much, or a file's path."""
        text = paste.unified(text)
        if paste.is_long(text) or paste.file_of(text) is not None:
            self.post_message(self.Pasted(text))
        else:
            self.insert_pasted(text)

    def insert_pasted(self, text: str) -> None:
        self._replace_via_keyboard(paste.shown(text), *self.selection)

    # --- drawing ---------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """Textual cannot wrap the placeholder into no width at all, which a window may have for a moment."""
        return super().render_line(y) if self.content_size.width > 0 else Strip.blank(self.size.width)


def _place(text: str, at: int) -> tuple[int, int]:
    """The line and the column of a character."""
    return text.count("\n", 0, at), at - text.rfind("\n", 0, at) - 1


def is_letter(event: events.Key) -> bool:
    """Whether a key types its character. Alt+A carries an "a" too, and must not type it."""
    return event.is_printable and not event.key.startswith(("alt+", "ctrl+", "super+", "hyper+", "meta+"))


class LineInput(Input):
    """A line to type in; what is pasted becomes one printable line."""

    def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self.insert_text_at_cursor(printable_line(event.text.strip()))
