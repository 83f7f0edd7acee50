"""The message pane: draws only the lines that are in sight, and never moves what somebody is reading.

A Line API widget over a `Timeline`. One widget per message would cost a second of processor time per arrival after five
thousand of them; this one costs the same at any length. The reader's place is a row and a line inside it, so it
survives late arrivals, older pages and resizes. The end is followed only by those who are at the end; others get a
count of what is below.
"""

from collections.abc import Iterable
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from zerochat.terminal import Printable
from zerochat.tui.paint import LABELS, Palette, nick_styles, note, paint
from zerochat.tui.text import Names, wrap
from zerochat.tui.timeline import Key, Place, Timeline

STRIPS_MAX = 1_024
"""Rows that are kept painted: some screens full, for scrolling to and fro."""


class MessagePane(ScrollView, can_focus=True):
    """Shows one timeline; `show` changes to another, `settle` draws what has changed in it."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"pane--{label}" for label in LABELS}
    BINDING_GROUP_TITLE = "Messages"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll_up", "Line up", show=False, id="pane.up"),
        Binding("down,j", "scroll_down", "Line down", show=False, id="pane.down"),
        Binding("home,g", "top", "Oldest that is loaded", show=False, id="pane.top"),
        Binding("end,G", "end", "Newest", show=False, id="pane.end"),
    ]

    class Older(Message):
        """The reader is near the top of what is loaded, and there is more."""

    class Newest(Message):
        """The reader wants the end, and it is not loaded."""

    class Unseen(Message):
        """The counts of what has come out of sight may be others."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.timeline: Timeline | None = None
        self.names = Names()
        self.place = Place()
        self.tail: tuple[Printable, ...] = ()
        """Sentences of ours below the last row."""
        self._painted: dict[Key, list[Strip]] = {}
        self._palette: Palette | None = None
        self._settling = False

    # --- what is shown ---------------------------------------------------------------------------------------------

    def show(self, timeline: Timeline | None, names: Names, place: Place) -> None:
        """Change to another conversation, at the place where its reader was."""
        self.timeline, self.names, self.place = timeline, names, place
        self.settle()

    def set_tail(self, tail: tuple[Printable, ...]) -> None:
        """Other sentences below the last row."""
        if tail != self.tail:
            self.tail = tail
            self.settle(())

    def settle(self, changed: Iterable[Key] | None = None) -> None:
        """Draw again after the timeline changed, with the reader's place kept. `changed`: only these rows differ."""
        if changed is None:
            self._painted.clear()
        else:
            for key in changed:
                self._painted.pop(key, None)
        width = self.text_width
        if self.timeline is not None and width > 0 and self.timeline.width != width:
            self.timeline.resize(width)
            self._painted.clear()
        self._settling = True
        try:
            self.virtual_size = Size(width, self._line_count())
            self.scroll_to(y=self._wanted_top(), animate=False)
        finally:
            self._settling = False
        self._note_seen()
        self.refresh()

    @property
    def text_width(self) -> int:
        return self.scrollable_content_region.width

    def _line_count(self) -> int:
        return (self.timeline.total if self.timeline else 0) + len(self._tail_lines())

    def _tail_lines(self) -> list[str]:
        return [line for sentence in self.tail for line in wrap(sentence, self.text_width)]

    def _wanted_top(self) -> int:
        if self.timeline is None or self.place.following or self.place.key is None:
            return self.max_scroll_y
        index = self.timeline.index(self.place.key)
        if index is None:
            return self.timeline.top_of(self.place.key)
        lead = self.timeline.lead(index)
        return self.timeline.tops[index] + lead + min(self.place.offset, self.timeline.heights[index] - lead - 1)

    # --- the reader's place ----------------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._settling:
            self._note_place()

    def _note_place(self) -> None:
        if self.timeline is None or not self.timeline.rows:
            return
        top = round(self.scroll_y)
        self.place.following = top >= self.max_scroll_y and not self.timeline.detached
        index = max(self.timeline.row_at(top)[0], 0)
        self.place.key = self.timeline.keys[index]
        self.place.offset = top - self.timeline.tops[index] - self.timeline.lead(index)
        self._note_seen()
        if self.timeline.more and top <= self.size.height:
            self.post_message(self.Older())

    def _note_seen(self) -> None:
        unseen = self.place.unseen
        if self.timeline is not None and unseen and self.size.height:
            first, last = self._keys_in_sight()
            unseen[:] = [key for key in unseen if not first <= key <= last]
        self.post_message(self.Unseen())

    def _keys_in_sight(self) -> tuple[Key, Key]:
        assert self.timeline is not None
        if not self.timeline.rows:
            return (0, "", ""), (0, "", "")
        top = round(self.scroll_y)
        first = max(self.timeline.row_at(top)[0], 0)
        last = max(self.timeline.row_at(top + self.size.height - 1)[0], 0)
        return self.timeline.keys[first], self.timeline.keys[last]

    def unseen_counts(self) -> tuple[int, int]:
        """How many posts have come out of sight: (above, below)."""
        if self.timeline is None or not self.place.unseen:
            return 0, 0
        first, _ = self._keys_in_sight()
        above = sum(key < first for key in self.place.unseen)
        return above, len(self.place.unseen) - above

    @property
    def badge(self) -> str:
        """What has come out of sight, in a few words; empty: nothing."""
        above, below = self.unseen_counts()
        parts = [f"▲ {above} late above"] * (above > 0) + [f"▼ {below} new below"] * (below > 0)
        return f" {'  '.join(parts)} " if parts else ""

    def go_to_unseen(self) -> bool:
        """Go where the badge points: to the end, else to the first of the late ones; False: there is no badge."""
        above, below = self.unseen_counts()
        if below:
            self.action_end()
        elif above:
            self.go_to(min(self.place.unseen))
        return bool(above or below)

    # --- moving ----------------------------------------------------------------------------------------------------

    def page(self, direction: int) -> None:
        """A screen up (-1) or down (1), with one line in common."""
        self.scroll_to(y=round(self.scroll_y) + direction * max(self.size.height - 1, 1), animate=False)
        if direction < 0:
            self._note_place()  # At the very top nothing scrolls, yet it is a wish for older ones.

    def action_scroll_up(self) -> None:
        self.scroll_to(y=round(self.scroll_y) - 1, animate=False)

    def action_scroll_down(self) -> None:
        self.scroll_to(y=round(self.scroll_y) + 1, animate=False)

    def action_top(self) -> None:
        self.scroll_to(y=0, animate=False)
        self._note_place()

    def action_end(self) -> None:
        """Go to the newest post and follow from there."""
        if self.timeline is not None and self.timeline.detached:
            self.post_message(self.Newest())
            return
        self.place.following = True
        self.settle(())

    def go_to(self, key: Key) -> None:
        """Bring a row to the top of the pane."""
        if self.timeline is not None:
            index = self.timeline.index(key)
            lead = 1 if index is None else max(self.timeline.lead(index), 1)
            self.scroll_to(y=self.timeline.top_of(key) - lead + 1, animate=False)
            self._note_place()

    # --- drawing ---------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self.settle()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._palette = None
        self._painted.clear()

    def selection_updated(self, selection: Selection | None) -> None:
        self.refresh()

    @property
    def palette(self) -> Palette:
        if self._palette is None:
            labels = {label: self.get_component_rich_style(f"pane--{label}") for label in LABELS}
            theme = self.app.current_theme
            _, background = self.background_colors
            primary = self.app.theme_variables.get("primary", theme.primary)
            nicks = nick_styles(self.rich_style, background, type(background).parse(primary), theme.ansi)
            self._palette = Palette(self.rich_style, labels, nicks)
        return self._palette

    def render_line(self, y: int) -> Strip:
        line = round(self.scroll_y) + y
        strip = self._strip_at(line).extend_cell_length(self.size.width, self.rich_style).crop(0, self.size.width)
        if (selection := self.text_selection) is not None and (span := selection.get_span(line)) is not None:
            strip = self._highlight(strip, *span)
        return strip.apply_offsets(0, line)

    def _strip_at(self, line: int) -> Strip:
        timeline = self.timeline
        if timeline is not None and line < timeline.total:
            index, offset = timeline.row_at(line)
            if index < 0:
                return note(timeline.head_lines()[line], self.text_width, self.palette["head"])[0]
            return self._strips_of(index)[offset]
        tail = self._tail_lines()
        below = line - (timeline.total if timeline else 0)
        if 0 <= below < len(tail) and tail[below]:
            return note(tail[below], self.text_width, self.palette["head"])[0]
        return Strip.blank(self.size.width, self.rich_style)

    def _strips_of(self, index: int) -> list[Strip]:
        assert self.timeline is not None
        key = self.timeline.keys[index]
        strips = self._painted.get(key)
        if strips is None:
            if len(self._painted) >= STRIPS_MAX:
                self._painted.clear()
            strips = self._painted[key] = paint(self.timeline, index, self.names, self.palette)
        return strips

    def _highlight(self, strip: Strip, start: int, end: int) -> Strip:
        style = self.screen.get_component_rich_style("screen--selection")
        text = strip.text
        end = len(text.rstrip()) if end < 0 else end
        left, right = cell_len(text[:start]), cell_len(text[:end])
        middle = strip.crop(left, right)
        return Strip.join(
            [
                strip.crop(0, left),
                Strip([Segment(part.text, (part.style + style) if part.style else style) for part in middle]),
                strip.crop(right),
            ]
        )

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected lines as they stand in the pane, without the blanks at their ends."""
        first = selection.start.y if selection.start else 0
        last = min(selection.end.y if selection.end else self._line_count() - 1, self._line_count() - 1)
        lines = []
        for line in range(first, last + 1):
            text = self._strip_at(line).text
            span = selection.get_span(line)
            if span is not None:
                start, end = span
                lines.append((text[start:] if end < 0 else text[start:end]).rstrip())
        return "\n".join(lines), "\n"
