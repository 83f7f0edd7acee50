"""The message pane with a selection, moved by keys and clicks.

The selection is a message's key, not a line, so it survives arrivals, older pages and edits. When the selected
message disappears, the nearest one is selected. Actions on messages are in `actions/messages.py`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from zerochat.tui.messages.pane import MessagePane
from zerochat.tui.messages.row import Key, Row
from zerochat.tui.messages.timeline import Timeline
from zerochat.tui.style.keymaps import is_letter

RIGHT_BUTTON = 3


def _key(keys: str, action: str, description: str, name: str) -> Binding:
    return Binding(keys, action, description, show=False, id=name)


def nearest(timeline: Timeline, key: Key) -> Key | None:
    """The message with this key, else the next one, else the previous one."""
    at = bisect_left(timeline.keys, key)
    rows = timeline.rows
    behind = next((row.key for row in rows[at:] if row.kind == "post"), None)
    return behind or next((row.key for row in reversed(rows[:at]) if row.kind == "post"), None)


def beside(timeline: Timeline, key: Key, step: int) -> Key | None:
    """The next message below (1) or above (-1)."""
    at = bisect_left(timeline.keys, key)
    rows = timeline.rows[at + 1 :] if step > 0 else reversed(timeline.rows[:at])
    return next((row.key for row in rows if row.kind == "post"), None)


class SelectablePane(MessagePane, inherit_bindings=False):
    """`act` runs an action on the selected message, `leave` returns to the composer, `write` types an unbound letter
    there.

    All are called synchronously between two keys: a letter typed after `r` belongs to the reply.
    """

    BINDING_GROUP_TITLE = "Messages"
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("up,k", "step(-1)", "Message above", "pane.up"),
        _key("down,j", "step(1)", "Message below; after the last one, the composer", "pane.down"),
        _key("home", "first", "Oldest loaded message", "pane.top"),
        _key("end,G", "last", "Newest message", "pane.end"),
        _key("f", "act('view')", "View the full message", "message.view"),
        _key("r", "act('reply')", "Reply to the message", "message.reply"),
        _key("plus", "act('react')", "React to the message", "message.react"),
        _key("e", "act('edit')", "Edit my message", "message.edit"),
        _key("d", "act('delete')", "Delete my message", "message.delete"),
        _key("y", "act('copy')", "Copy the message", "message.copy"),
        _key("g", "act('original')", "Go to the original message", "message.original"),
        _key("o", "act('open')", "Open a link in the message", "message.open"),
        _key("s", "act('save')", "Save the file of the message; download it first", "message.save"),
        _key("p", "act('picture')", "View the picture of the message", "message.picture"),
        _key("i", "act('info')", "Message info", "message.info"),
        _key("w", "act('why')", "Delivery details", "message.why"),
        _key("E", "act('evidence')", "Evidence for the message", "message.evidence"),
        _key("v", "act('verify')", "Verify the author of the message", "message.verify"),
        _key("m,enter", "act('menu')", "Message menu", "message.menu"),
    ]

    def __init__(
        self,
        act: Callable[[str], None],
        leave: Callable[[], None],
        write: Callable[[events.Key], None],
        *,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._write = write
        self._act = act
        self._leave = leave
        self._wants_last = False
        self.letters_always = False
        """Letters act on any selected message; else only in the selection mode, and are typed in the composer."""
        self._selecting = False

    # --- selection ---------------------------------------------------------------------------------------------------

    @property
    def letters_act(self) -> bool:
        """Whether letters are keys here, and not text for the composer."""
        return self.letters_always or self._selecting

    def start_selecting(self) -> bool:
        """Start the selection mode, in which letters act, until nothing is selected; False: there are no messages."""
        self._selecting = self.ensure_selection()
        self.refresh_bindings()
        return self._selecting

    @property
    def selected_row(self) -> Row | None:
        if self.timeline is None or self.selected is None:
            return None
        index = self.timeline.index(self.selected)
        return None if index is None else self.timeline.rows[index]

    def select(self, key: Key | None, *, reveal: bool = True) -> None:
        """Select a loaded message; None: none."""
        for changed in (self.selected, key):
            if changed is not None:
                self.repaint(changed)
        self.selected = key
        self._selecting = self._selecting and key is not None
        if key is not None and reveal:
            self._reveal(key)
        self.refresh()
        self.refresh_bindings()

    def ensure_selection(self) -> bool:
        """Select the last visible message unless one is selected; False: there are no messages."""
        if self.selected_row is None:
            self.select(self._last_in_sight())
        return self.selected is not None

    def _last_in_sight(self) -> Key | None:
        timeline = self.timeline
        if timeline is None or not timeline.rows:
            return None
        _, last = self._keys_in_sight()
        at = bisect_left(timeline.keys, last)
        above = next((row.key for row in reversed(timeline.rows[: at + 1]) if row.kind == "post"), None)
        return above or nearest(timeline, last)

    def redraw(self, changed: Iterable[Key] | None = None) -> None:
        timeline = self.timeline
        if timeline is not None and timeline.rows and self._wants_last and not timeline.detached:
            self._wants_last = False
            self.selected = nearest(timeline, timeline.keys[-1])
            changed = None
        elif timeline is not None and self.selected is not None and timeline.index(self.selected) is None:
            self.selected = nearest(timeline, self.selected)
            changed = None
            self.refresh_bindings()
        super().redraw(changed)

    def _reveal(self, key: Key, step: int = -1) -> None:
        """Scroll a message into view; of a tall one, the end from which the selection came."""
        timeline, height = self.timeline, self.size.height
        index = timeline.index(key) if timeline is not None else None
        if timeline is None or index is None or not height:
            return
        top, bottom = timeline.tops[index], timeline.tops[index + 1]
        if index == 0:
            top = 0
        y = round(self.scroll_y)
        if bottom - top > height:
            start = top + timeline.lead(index)
            self.scroll_to(y=start - self._covered(start) if step > 0 else bottom - height, animate=False)
        elif top < y + self._covered(y):
            self.scroll_to(y=top - self._covered(top), animate=False)
        elif bottom > y + height:
            self.scroll_to(y=bottom - height, animate=False)

    # --- keys --------------------------------------------------------------------------------------------------------

    def action_step(self, step: int) -> None:
        timeline = self.timeline
        if timeline is None or self.selected is None:
            self.ensure_selection()
            return
        if self._scroll_inside(step):
            return
        beside_it = beside(timeline, self.selected, step)
        if beside_it is not None:
            self.select(beside_it, reveal=False)
            self._reveal(beside_it, step)
        elif step > 0 and timeline.detached:
            self.action_end()
        elif step > 0:
            self._leave()
        else:
            self.action_top()

    def _scroll_inside(self, step: int) -> bool:
        """Scroll inside a tall selected message; False: it is completely visible in that direction."""
        assert self.timeline is not None and self.selected is not None
        index = self.timeline.index(self.selected)
        if index is None:
            return False
        y, height = round(self.scroll_y), self.size.height
        top, bottom = self.timeline.tops[index], self.timeline.tops[index + 1]
        hidden = bottom - y - height if step > 0 else y + self._covered(y) - top
        if bottom - top <= height or hidden <= 0 or bottom <= y or top >= y + height:
            return False
        self.scroll_to(y=y + step * min(hidden, max(height - 1, 1)), animate=False)
        return True

    def action_first(self) -> None:
        if self.selected is not None and self.timeline is not None and self.timeline.rows:
            self.select(nearest(self.timeline, self.timeline.keys[0]), reveal=False)
        self.action_top()

    def action_last(self) -> None:
        self.action_end()

    def action_end(self) -> None:
        """Go to the newest message, moving the selection if there is one."""
        timeline = self.timeline
        if self.selected is not None and timeline is not None and timeline.rows:
            if timeline.detached:
                self._wants_last = True
            else:
                self.select(nearest(timeline, timeline.keys[-1]), reveal=False)
        super().action_end()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters are actions only while a message is selected."""
        return self.selected is not None if action == "act" else True

    def action_act(self, name: str) -> None:
        self._act(name)

    async def _on_key(self, event: events.Key) -> None:
        """Run a key's binding synchronously, so that later keys go to the new focus."""
        if self.screen.focused is not self:
            self._write(event)  # typed before this widget lost the focus
            return
        active = self.screen.active_bindings.get(event.key)
        if active is None or (is_letter(event) and not self.letters_act):
            self._write(event)
        elif active.enabled and active.node is self:
            event.prevent_default()
            event.stop()
            await self.app.run_action(active.binding.action, self)

    # --- the mouse ---------------------------------------------------------------------------------------------------

    def post_at(self, y: int) -> Key | None:
        """The message at line `y` of the pane."""
        timeline, line = self.timeline, round(self.scroll_y) + y
        if timeline is None or not 0 <= line < timeline.total:
            return None
        index, _ = timeline.row_at(line)
        return timeline.keys[index] if index >= 0 and timeline.rows[index].kind == "post" else None

    def on_click(self, event: events.Click) -> None:
        """A click selects; a click on the selection, or with the right button, opens the menu."""
        if self.text_selection is not None:
            return  # a text selection ended
        key = self.post_at(event.y)
        if key is None:
            self.unfold(event.y)
            return
        event.prevent_default()
        again = key == self.selected
        self.select(key)
        if again or event.button == RIGHT_BUTTON:
            self._act("menu")
