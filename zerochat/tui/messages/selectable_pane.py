"""The message pane with a cursor: which message is selected, and the keys and clicks that say so.

The cursor is a message's key, not a line: it stays where it is when others arrive, when older pages come in above, and
when the message itself changes. Where the message goes away (somebody else has spoken in its author's name, or the
window has moved along) the nearest one is selected. What can be done with a message is in `actions/messages`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from zerochat.tui.messages.pane import MessagePane
from zerochat.tui.messages.row import Key, Row
from zerochat.tui.messages.timeline import Timeline

RIGHT_BUTTON = 3


def _key(keys: str, action: str, description: str, name: str) -> Binding:
    return Binding(keys, action, description, show=False, id=name)


def nearest(timeline: Timeline, key: Key) -> Key | None:
    """The message with this key; else the one behind its place, else the one before it."""
    at = bisect_left(timeline.keys, key)
    rows = timeline.rows
    behind = next((row.key for row in rows[at:] if row.kind == "post"), None)
    return behind or next((row.key for row in reversed(rows[:at]) if row.kind == "post"), None)


def beside(timeline: Timeline, key: Key, step: int) -> Key | None:
    """The next message below (1) or above (-1)."""
    at = bisect_left(timeline.keys, key)
    rows = timeline.rows[at + 1 :] if step > 0 else reversed(timeline.rows[:at])
    return next((row.key for row in rows if row.kind == "post"), None)


class Messages(MessagePane, inherit_bindings=False):
    """`act` does what a key stands for with the selected message, `leave` goes back to the composer, `write` takes a
    letter there that stands for nothing here.

    All are called at once, between one key and the next: a letter that was typed behind `r` belongs to the answer.
    """

    BINDING_GROUP_TITLE = "Messages"
    BINDINGS: ClassVar[list[BindingType]] = [
        _key("up,k", "step(-1)", "Message above", "pane.up"),
        _key("down,j", "step(1)", "Message below; behind the last one, the composer", "pane.down"),
        _key("home", "first", "Oldest that is loaded", "pane.top"),
        _key("end,G", "last", "Newest", "pane.end"),
        _key("enter", "act('view')", "The whole message", "message.view"),
        _key("r", "act('reply')", "Answer the message", "message.reply"),
        _key("plus", "act('react')", "React to the message", "message.react"),
        _key("e", "act('edit')", "Edit my message", "message.edit"),
        _key("d", "act('delete')", "Delete my message", "message.delete"),
        _key("y", "act('copy')", "Copy the message", "message.copy"),
        _key("g", "act('original')", "Go to what the message answers", "message.original"),
        _key("o", "act('open')", "Open a link of the message", "message.open"),
        _key("s", "act('save')", "Save the file of the message; fetch it first", "message.save"),
        _key("p", "act('picture')", "See the picture of the message", "message.picture"),
        _key("i", "act('info')", "About the message, and who has it", "message.info"),
        _key("w", "act('why')", "What became of the message", "message.why"),
        _key("E", "act('evidence')", "What can be proven of the message", "message.evidence"),
        _key("v", "act('verify')", "The message's author, to be verified", "message.verify"),
        _key("m", "act('menu')", "What can be done with the message", "message.menu"),
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

    # --- which one ---------------------------------------------------------------------------------------------------

    @property
    def selected_row(self) -> Row | None:
        if self.timeline is None or self.selected is None:
            return None
        index = self.timeline.index(self.selected)
        return None if index is None else self.timeline.rows[index]

    def select(self, key: Key | None, *, reveal: bool = True) -> None:
        """Put the cursor on a message that is loaded; None: nowhere."""
        for changed in (self.selected, key):
            if changed is not None:
                self.repaint(changed)
        self.selected = key
        if key is not None and reveal:
            self._reveal(key)
        self.refresh()
        self.refresh_bindings()

    def begin(self) -> bool:
        """Put the cursor on the last message in sight, unless it is on one; False: there is none at all."""
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

    def settle(self, changed: Iterable[Key] | None = None) -> None:
        timeline = self.timeline
        if timeline is not None and timeline.rows and self._wants_last and not timeline.detached:
            self._wants_last = False
            self.selected = nearest(timeline, timeline.keys[-1])
            changed = None
        elif timeline is not None and self.selected is not None and timeline.index(self.selected) is None:
            self.selected = nearest(timeline, self.selected)
            changed = None
            self.refresh_bindings()
        super().settle(changed)

    def _reveal(self, key: Key, step: int = -1) -> None:
        """Bring a message into sight; of one that is higher than the pane, the end from which the cursor came."""
        timeline, height = self.timeline, self.size.height
        index = timeline.index(key) if timeline is not None else None
        if timeline is None or index is None or not height:
            return
        top, bottom = timeline.tops[index], timeline.tops[index + 1]
        if index == 0:
            top = 0
        y = round(self.scroll_y)
        if bottom - top > height:
            self.scroll_to(y=top + timeline.lead(index) if step > 0 else bottom - height, animate=False)
        elif top < y:
            self.scroll_to(y=top, animate=False)
        elif bottom > y + height:
            self.scroll_to(y=bottom - height, animate=False)

    # --- keys --------------------------------------------------------------------------------------------------------

    def action_step(self, step: int) -> None:
        timeline = self.timeline
        if timeline is None or self.selected is None:
            self.begin()
            return
        if self._reads_on(step):
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

    def _reads_on(self, step: int) -> bool:
        """Scroll inside a message that goes on out of sight; False: it does not."""
        assert self.timeline is not None and self.selected is not None
        index = self.timeline.index(self.selected)
        if index is None:
            return False
        y, height = round(self.scroll_y), self.size.height
        top, bottom = self.timeline.tops[index], self.timeline.tops[index + 1]
        hidden = bottom - y - height if step > 0 else y - top
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
        """Go to the newest message, with the cursor if there is one."""
        timeline = self.timeline
        if self.selected is not None and timeline is not None and timeline.rows:
            if timeline.detached:
                self._wants_last = True
            else:
                self.select(nearest(timeline, timeline.keys[-1]), reveal=False)
        super().action_end()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Letters mean something only while a message is selected; else they are text."""
        return self.selected is not None if action == "act" else True

    def action_act(self, name: str) -> None:
        self._act(name)

    async def _on_key(self, event: events.Key) -> None:
        """Do what a key is bound to here and now, so that what is typed behind it goes where it leads."""
        if self.screen.focused is not self:
            self._write(event)  # It was typed before this lost the focus.
            return
        active = self.screen.active_bindings.get(event.key)
        if active is None:
            self._write(event)
        elif active.enabled and active.node is self:
            event.prevent_default()
            event.stop()
            await self.app.run_action(active.binding.action, self)

    # --- the mouse ---------------------------------------------------------------------------------------------------

    def post_at(self, y: int) -> Key | None:
        """The message in line `y` of the pane."""
        timeline, line = self.timeline, round(self.scroll_y) + y
        if timeline is None or not 0 <= line < timeline.total:
            return None
        index, _ = timeline.row_at(line)
        return timeline.keys[index] if index >= 0 and timeline.rows[index].kind == "post" else None

    def on_click(self, event: events.Click) -> None:
        """A click selects, one on what is selected, or with the right button, asks what to do with it."""
        if self.text_selection is not None:
            return  # Letters were selected, and no message.
        key = self.post_at(event.y)
        if key is None:
            self.unfold(event.y)
            return
        event.prevent_default()
        again = key == self.selected
        self.select(key)
        if again or event.button == RIGHT_BUTTON:
            self._act("menu")
