"""The message pane: draws only the lines that are in sight, and never moves what somebody is reading.

A Line API widget over a `Timeline`. One widget per message would cost a second of processor time per arrival after five
thousand of them; this one costs the same at any length. The reader's place is a row and a line inside it, so it
survives late arrivals, older pages and resizes. The end is followed only by those who are at the end; others get a
count of what is below.
"""

from collections.abc import Iterable
from math import inf
from typing import Any, ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from zerochat.terminal_text import Printable
from zerochat.tui.messages.paint import LABELS, Palette, nick_styles, note, paint
from zerochat.tui.messages.timeline import Key, Place, Timeline
from zerochat.tui.style.text import Names, wrap

SCREENS_AHEAD = 3
"""So far from the edge of what is loaded the next page is asked for: it is there before the edge is reached."""
STRIPS_MAX = 256
"""Rows that are kept painted: some screens full, for scrolling to and fro."""


class MessagePane(ScrollView, can_focus=True):
    """Shows one timeline; `show` changes to another, `settle` draws what has changed in it."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"pane--{label}" for label in LABELS}

    class Older(Message):
        """The reader is near the top of what is loaded, and there is more."""

    class Newer(Message):
        """The reader is near the bottom of what is loaded, and that is not the end."""

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
        self.selected: Key | None = None
        """The message that is selected (`selecting` says which)."""
        self.markdown = True
        """Whether Markdown in messages counts; `settle` draws them accordingly."""
        self.folded = True
        """Whether joins, leaves and new names that follow each other stand in one line; the same."""
        self._painted: dict[Key, list[Strip]] = {}
        self._drawn: dict[int, tuple[Strip, Strip]] = {}
        """By the identity of what was painted: that, and the same as wide as the pane. What Textual makes of a strip it
        keeps with the strip, so a line that only moves on the screen costs next to nothing."""
        self._in_sight: list[Strip] = []
        """What was painted, line by line, when all of the pane was drawn last."""
        self._palette: Palette | None = None
        self._settling = False

    # --- what is shown ---------------------------------------------------------------------------------------------

    def show(self, timeline: Timeline | None, names: Names, place: Place) -> None:
        """Change to another conversation, at the place where its reader was."""
        self.timeline, self.names, self.place = timeline, names, place
        self.selected = None
        self.settle()

    def set_tail(self, tail: tuple[Printable, ...]) -> None:
        """Other sentences below the last row."""
        if tail != self.tail:
            self.tail = tail
            self.settle(())

    def settle(self, changed: Iterable[Key] | None = None) -> None:
        """Draw again after the timeline changed, with the reader's place kept. `changed`: only these rows differ."""
        timeline = self.timeline
        if timeline is not None and timeline.folding != self.folded:
            timeline.fold(self.folded)
        if changed is None:
            self._painted.clear()
        else:
            for key in (*changed, *(timeline.refolded if timeline is not None else ())):
                self._painted.pop(key, None)
        if timeline is not None:
            timeline.refolded.clear()
        width = self.text_width
        if timeline is not None and width > 0 and (timeline.width, timeline.marked) != (width, self.markdown):
            timeline.marked = self.markdown
            timeline.resize(width)
            self._painted.clear()
        held = self._held()
        self._settling = True
        try:
            self._be_high(Size(width, self._line_count()))
            top = max(min(self._wanted_top(), held, self.max_scroll_y), 0)
            still = self._looks_the_same(round(top))
            if still:
                self._count_lines_from(top)
            else:
                self.scroll_to(y=top, animate=False)
        finally:
            self._settling = False
        self._note_seen()
        if not still:
            self.refresh()

    def _looks_the_same(self, top: int) -> bool:
        """Whether what is drawn is what would be drawn from line `top` on: so it is when a page comes in above."""
        height = self.size.height
        if not self.is_attached or self.text_selection is not None or len(self._in_sight) != height:
            return False
        return all(self._strip_at(top + y) is self._in_sight[y] for y in range(height))

    def _count_lines_from(self, top: float) -> None:
        """The lines in sight have other numbers now, and that is all."""
        self.set_reactive(MessagePane.scroll_y, top)
        self.set_reactive(MessagePane.scroll_target_y, top)
        self.vertical_scrollbar.position = top

    def _be_high(self, size: Size) -> None:
        """Have so many lines. As long as the scrollbar stays, nothing moves on the screen by that, so nothing is laid
        out anew: that would cost several milliseconds for each arrival."""
        high = self.container_size.height
        before = self.virtual_size
        if self.show_vertical_scrollbar and size.width == before.width and min(size.height, before.height) > high:
            self.set_reactive(MessagePane.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
        else:
            self.virtual_size = size

    def _held(self) -> float:
        """The line that is to stay in sight while the end is followed: of what is selected, if it was in sight."""
        index = self.timeline.index(self.selected) if self.timeline and self.selected and self.place.following else None
        if self.timeline is None or index is None:
            return inf
        top = self.timeline.tops[index] + self.timeline.lead(index)
        return max(top, 0) if top >= round(self.scroll_y) else inf

    def repaint(self, key: Key) -> None:
        """This row looks otherwise now; its height is the same."""
        self._painted.pop(key, None)

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
        ahead = SCREENS_AHEAD * self.size.height
        if self.timeline.more and top <= ahead:
            self.post_message(self.Older())
        if self.timeline.detached and top + self.size.height + ahead >= self.timeline.total:
            self.post_message(self.Newer())

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

    def unfold(self, y: int) -> bool:
        """Show one by one what is folded into line `y` of the pane; False: nothing is."""
        timeline, line = self.timeline, round(self.scroll_y) + y
        if timeline is None or not 0 <= line < timeline.total:
            return False
        index, _ = timeline.row_at(line)
        if index < 0 or timeline.keys[index] not in timeline.folds:
            return False
        timeline.open(timeline.keys[index])
        self.settle(())
        return True

    # --- moving ----------------------------------------------------------------------------------------------------

    def page(self, direction: int) -> None:
        """A screen up (-1) or down (1), with one line in common."""
        self.scroll_to(y=round(self.scroll_y) + direction * max(self.size.height - 1, 1), animate=False)
        self._note_place()  # At either end nothing scrolls, yet it is a wish for what comes there.

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

    def go_to(self, key: Key, above: int = 0) -> None:
        """Bring a row to the top of the pane, or below so many lines of what comes before it."""
        if self.timeline is not None:
            index = self.timeline.index(key)
            lead = 1 if index is None else max(self.timeline.lead(index), 1)
            self.scroll_to(y=self.timeline.top_of(key) - lead + 1 - above, animate=False)
            self._note_place()

    # --- drawing ---------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self.settle()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._palette = None
        self._painted.clear()
        self._in_sight = []

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
            self._palette = Palette(self.rich_style, labels, nicks, bare=self.app.no_color)
        return self._palette

    def render_lines(self, crop: Region) -> list[Strip]:
        """What is drawn. Textual's own way gives each line's letters their places, for a mouse that selects, and looks
        for borders; that would be most of what a page costs. While letters are selected it is taken."""
        if self.text_selection is not None:
            self._in_sight = []
            return super().render_lines(crop)
        top, region = round(self.scroll_y), self.region
        painted = [self._strip_at(top + y) for y in crop.line_range]
        if crop.height == region.height:
            self._in_sight = painted
        filters, (_, background) = self.get_line_filters(), self.background_colors
        kept = self._kept
        lines = []
        for each in painted:
            known = self._drawn.get(id(each))
            if known is None or known[1].cell_length != region.width:
                self._forget_first(self._drawn, kept)
                known = self._drawn[id(each)] = (each, self._whole(each, region.width))
            line = known[1]
            for one in filters:
                line = line.apply_filter(one, background)
            lines.append(line)
        if crop.column_span != (0, region.width):
            return [line.crop(*crop.column_span) for line in lines]
        return lines

    def _whole(self, painted: Strip, width: int) -> Strip:
        """The line from edge to edge."""
        base, left, used = self.palette.base, self.styles.gutter.left, painted.cell_length
        if left + used > width:
            painted, used = painted.crop(0, width - left), width - left
        blanks = [[Segment(" " * count, base)] if count > 0 else [] for count in (left, width - left - used)]
        return Strip([*blanks[0], *painted, *blanks[1]], width)

    def render_line(self, y: int) -> Strip:
        """Line `y` of the pane, with the places of its letters."""
        line, width = round(self.scroll_y) + y, self.size.width
        drawn = self._strip_at(line).extend_cell_length(width, self.palette.base).crop(0, width).apply_offsets(0, line)
        if (selection := self.text_selection) is not None and (span := selection.get_span(line)) is not None:
            return self._highlight(drawn, *span).apply_offsets(0, line)
        return drawn

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
        return Strip.blank(self.size.width, self.palette.base)

    def _strips_of(self, index: int) -> list[Strip]:
        assert self.timeline is not None
        key = self.timeline.keys[index]
        strips = self._painted.get(key)
        if strips is None:
            self._forget_first(self._painted, self._kept)
            chosen = key == self.selected
            strips = self._painted[key] = paint(self.timeline, index, self.names, self.palette, selected=chosen)
        return strips

    @property
    def _kept(self) -> int:
        return max(STRIPS_MAX, 2 * self.container_size.height)

    def _forget_first(self, kept: dict[Any, Any], most: int) -> None:
        """Make room for one more, by what was drawn first."""
        if len(kept) >= most:
            del kept[next(iter(kept))]

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
