"""The message pane: a line-based widget that draws only visible lines and keeps the reading position.

One widget per message would cost a second per arrival at 5,000 messages; this one has constant cost. The reading
position is a row and a line inside it, so it survives late arrivals, older pages and resizes. The pane follows the
end only while the reader is there; otherwise a badge counts the new messages.
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
from zerochat.tui.messages.paint import LABELS, Palette, nick_styles_of, note, paint, with_name
from zerochat.tui.messages.row import DEFAULT_LOOK
from zerochat.tui.messages.timeline import Key, Place, Timeline
from zerochat.tui.style.text import Names, wrap

PREFETCH_SCREENS = 3
"""Screens from the edge of the loaded rows at which the next page is loaded."""
NAMED_LINES_MIN = 4
"""Minimum height at which the author may cover the first line."""
STRIPS_MAX = 256
"""Rows in the paint cache."""


class MessagePane(ScrollView, can_focus=True):
    """Shows one timeline; `show` changes to another, `redraw` draws its changes."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"pane--{label}" for label in LABELS}

    class Older(Message):
        """The reader is near the top of the loaded rows, and older ones exist."""

    class Newer(Message):
        """The reader is near the bottom of the loaded rows, and newer ones exist."""

    class Newest(Message):
        """The reader requests the end, which is not loaded."""

    class Unseen(Message):
        """The counts of unseen messages may have changed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.timeline: Timeline | None = None
        self.names = Names()
        self.place = Place()
        self.tail: tuple[Printable, ...] = ()
        """Sentences of the application below the last row."""
        self.unread_key = "Alt+U"
        """The key that leads to the first unread message."""
        self.selected: Key | None = None
        """The selected message."""
        self.markdown = True
        """Whether Markdown is rendered; applied by `redraw`."""
        self.look = DEFAULT_LOOK
        """The user's columns; applied by `redraw`."""
        self.folded = True
        """Whether consecutive membership changes are folded; applied by `redraw`."""
        self._painted: dict[Key, list[Strip]] = {}
        self._drawn: dict[int, tuple[Strip, Strip]] = {}
        """(strip, strip at full width) by id of the strip. Textual caches its rendering with a strip, so a line that
        only moves costs almost nothing."""
        self._in_sight: list[Strip] = []
        """The strips of the last complete drawing, by line."""
        self._named: tuple[Strip, Strip] | None = None
        """(line, the same with its author) of the first visible line."""
        self._palette: Palette | None = None
        self._redrawing = False

    # --- content ---------------------------------------------------------------------------------------------------

    def show(self, timeline: Timeline | None, names: Names, place: Place) -> None:
        """Change to another conversation at its reading position."""
        self.timeline, self.names, self.place = timeline, names, place
        self.selected = None
        self.redraw()

    def set_tail(self, tail: tuple[Printable, ...]) -> None:
        """Set the sentences below the last row."""
        if tail != self.tail:
            self.tail = tail
            self.redraw(())

    def redraw(self, changed: Iterable[Key] | None = None) -> None:
        """Redraw after the timeline changed, keeping the reading position. `changed`: only these rows differ."""
        timeline = self.timeline
        if timeline is not None and timeline.folding != self.folded:
            timeline.fold(self.folded)
        if changed is None:
            self._painted.clear()
        else:
            for key in (*changed, *(timeline.dirty if timeline is not None else ())):
                self._painted.pop(key, None)
        if timeline is not None:
            timeline.dirty.clear()
        width = self.text_width
        wanted = (width, self.markdown, self.look)
        if timeline is not None and width > 0 and (timeline.width, timeline.markdown, timeline.look) != wanted:
            timeline.markdown, timeline.look = self.markdown, self.look
            timeline.resize(width)
            self._painted.clear()
        held = self._selection_top()
        self._redrawing = True
        try:
            self._set_height(Size(width, self._line_count()))
            top = max(min(self._target_top(), held, self.max_scroll_y), 0)
            still = self._is_unchanged(round(top))
            if still:
                self._renumber_lines(top)
            else:
                self.scroll_to(y=top, animate=False)
        finally:
            self._redrawing = False
        self._note_seen()
        if not still:
            self.refresh()

    def _is_unchanged(self, top: int) -> bool:
        """Whether the visible lines equal those from line `top`, as after a page was inserted above."""
        height = self.size.height
        if not self.is_attached or self.text_selection is not None or len(self._in_sight) != height:
            return False
        return all(self._shown_at(top, y) is self._in_sight[y] for y in range(height))

    def _renumber_lines(self, top: float) -> None:
        """Change the scroll offset without redrawing: the visible lines only got other numbers."""
        self.set_reactive(MessagePane.scroll_y, top)
        self.set_reactive(MessagePane.scroll_target_y, top)
        self.vertical_scrollbar.position = top

    def _set_height(self, size: Size) -> None:
        """Set the virtual size. While the scrollbar stays visible no new layout is needed, which would cost several
        milliseconds per arrival."""
        high = self.container_size.height
        before = self.virtual_size
        if self.show_vertical_scrollbar and size.width == before.width and min(size.height, before.height) > high:
            self.set_reactive(MessagePane.virtual_size, size)
            self.vertical_scrollbar.window_virtual_size = size.height
        else:
            self.virtual_size = size

    def _selection_top(self) -> float:
        """The top line of the visible selection, which following the end must not scroll out of sight; else
        infinity."""
        index = self.timeline.index(self.selected) if self.timeline and self.selected and self.place.following else None
        if self.timeline is None or index is None:
            return inf
        top = self.timeline.tops[index] + self.timeline.lead(index)
        return max(top, 0) if top >= round(self.scroll_y) else inf

    def repaint(self, key: Key) -> None:
        """Repaint a row whose height is unchanged."""
        self._painted.pop(key, None)

    @property
    def text_width(self) -> int:
        return self.scrollable_content_region.width

    def _line_count(self) -> int:
        return (self.timeline.total if self.timeline else 0) + len(self._tail_lines())

    def _tail_lines(self) -> list[str]:
        return [line for sentence in self.tail for line in wrap(sentence, self.text_width)]

    def _target_top(self) -> int:
        if self.timeline is None or self.place.following or self.place.key is None:
            return self.max_scroll_y
        index = self.timeline.index(self.place.key)
        if index is None:
            return self.timeline.top_of(self.place.key)
        lead = self.timeline.lead(index)
        return self.timeline.tops[index] + lead + min(self.place.offset, self.timeline.heights[index] - lead - 1)

    # --- reading position ------------------------------------------------------------------------------------------

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._redrawing:
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
        ahead = PREFETCH_SCREENS * self.size.height
        if self.timeline.more and top <= ahead:
            self.post_message(self.Older())
        if self.timeline.detached and top + self.size.height + ahead >= self.timeline.total:
            self.post_message(self.Newer())

    def _note_seen(self) -> None:
        place = self.place
        if self.timeline is not None and (place.unseen or place.late) and self.size.height:
            first, last = self._keys_in_sight()
            for keys in (place.unseen, place.late):
                keys[:] = [key for key in keys if not first <= key <= last]
        self.post_message(self.Unseen())

    def _keys_in_sight(self) -> tuple[Key, Key]:
        assert self.timeline is not None
        if not self.timeline.rows:
            return (0, "", ""), (0, "", "")
        top = round(self.scroll_y)
        first = max(self.timeline.row_at(top + self._covered(top))[0], 0)
        last = max(self.timeline.row_at(top + self.size.height - 1)[0], 0)
        return self.timeline.keys[first], self.timeline.keys[last]

    def sight_of(self, key: Key) -> int:
        """Whether a row is above (-1), in (0) or below (1) the visible lines."""
        if self.timeline is None or not self.timeline.rows or not self.size.height:
            return 1
        first, last = self._keys_in_sight()
        return -1 if key < first else int(key > last)

    def _unseen(self) -> tuple[list[Key], list[Key]]:
        """Unseen posts: late ones above the visible lines, and those below. What else was pushed out of sight is below
        the unread line."""
        if self.timeline is None or not (self.place.unseen or self.place.late):
            return [], []
        first, _ = self._keys_in_sight()
        late = [key for key in self.place.late if key < first]
        return late, [key for key in (*self.place.unseen, *self.place.late) if key >= first]

    def drop_passed(self) -> None:
        """Everything was read: drop the unseen posts above the visible lines, except late ones."""
        below = set(self._unseen()[1])
        self.place.unseen[:] = [key for key in self.place.unseen if key in below]

    @property
    def badge(self) -> str:
        """The badge text about posts out of sight; empty: none."""
        late, below = self._unseen()
        missed = self.place.missed
        parts = [f"▲ {missed} unread ({self.unread_key})"] * (missed > 0) + [f"▲ {len(late)} late above"] * bool(late)
        parts += [f"▼ {len(below)} new below"] * bool(below)
        return f" {'  '.join(parts)} " if parts else ""

    def go_to_unseen(self) -> bool:
        """Go to the end for new posts, else to the first late one; False: there are none."""
        late, below = self._unseen()
        if below:
            self.action_end()
        elif late:
            self.go_to(min(late))
        return bool(late or below)

    def unfold(self, y: int) -> bool:
        """Unfold the row at line `y` of the pane; False: it is not folded."""
        timeline, line = self.timeline, round(self.scroll_y) + y
        if timeline is None or not 0 <= line < timeline.total:
            return False
        index, _ = timeline.row_at(line)
        if index < 0 or timeline.keys[index] not in timeline.folds:
            return False
        timeline.open(timeline.keys[index])
        self.redraw(())
        return True

    # --- moving ----------------------------------------------------------------------------------------------------

    def page(self, direction: int) -> None:
        """Scroll one screen up (-1) or down (1), with one line in common."""
        self.scroll_to(y=round(self.scroll_y) + direction * max(self.size.height - 1, 1), animate=False)
        self._note_place()  # at either end nothing scrolls, but more may be loaded

    def action_top(self) -> None:
        self.scroll_to(y=0, animate=False)
        self._note_place()

    def action_end(self) -> None:
        """Go to the newest post and follow the end."""
        if self.timeline is not None and self.timeline.detached:
            self.post_message(self.Newest())
            return
        self.place.following = True
        self.redraw(())

    def go_to(self, key: Key, above: int = 0) -> None:
        """Scroll a row to the top of the pane, or `above` lines below it."""
        if self.timeline is not None:
            index = self.timeline.index(key)
            lead = 1 if index is None else max(self.timeline.lead(index), 1)
            top = self.timeline.top_of(key) - lead + 1 - above
            self.scroll_to(y=top - self._covered(top), animate=False)
            self._note_place()

    # --- drawing ---------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        self.redraw()

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
            self._palette = Palette(self.rich_style, labels, nick_styles_of(self), bare=self.app.no_color)
        return self._palette

    def render_lines(self, crop: Region) -> list[Strip]:
        """Render without Textual's per-character offsets and borders, which dominate its cost. During a text selection
        Textual's own way is used."""
        if self.text_selection is not None:
            self._in_sight = []
            return super().render_lines(crop)
        top, region = round(self.scroll_y), self.region
        painted = [self._shown_at(top, y) for y in crop.line_range]
        if crop.height == region.height:
            self._in_sight = painted
        filters, (_, background) = self.get_line_filters(), self.background_colors
        kept = self._cache_size
        lines = []
        for each in painted:
            known = self._drawn.get(id(each))
            if known is None or known[1].cell_length != region.width:
                self._evict_oldest(self._drawn, kept)
                known = self._drawn[id(each)] = (each, self._full_width(each, region.width))
            line = known[1]
            for line_filter in filters:
                line = line.apply_filter(line_filter, background)
            lines.append(line)
        if crop.column_span != (0, region.width):
            return [line.crop(*crop.column_span) for line in lines]
        return lines

    def _full_width(self, painted: Strip, width: int) -> Strip:
        """The line at full width."""
        base, left, used = self.palette.base, self.styles.gutter.left, painted.cell_length
        if left + used > width:
            painted, used = painted.crop(0, width - left), width - left
        blanks = [[Segment(" " * count, base)] if count > 0 else [] for count in (left, width - left - used)]
        return Strip([*blanks[0], *painted, *blanks[1]], width)

    def render_line(self, y: int) -> Strip:
        """Line `y` of the pane with character offsets, for text selection."""
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

    def _shown_at(self, top: int, y: int) -> Strip:
        """Line `y` of the pane from line `top`; the first one names its author, who may be named far above it."""
        strip = self._strip_at(top + y)
        if y or self.timeline is None or not self.timeline.is_nameless(top):
            return strip
        if self.timeline.columns.stacked and not self._covered(top):
            return strip
        if self._named is None or self._named[0] is not strip:
            row = self.timeline.rows[self.timeline.row_at(top)[0]]
            self._named = (strip, with_name(strip, row, self.timeline.columns, self.names, self.palette))
        return self._named[1]

    def _covered(self, top: int) -> int:
        """How many lines from line `top` the author's name covers: a narrow pane has no column for it."""
        timeline = self.timeline
        tall = timeline is not None and timeline.columns.stacked and self.size.height >= NAMED_LINES_MIN
        return int(tall and timeline is not None and timeline.is_nameless(top))

    def _strips_of(self, index: int) -> list[Strip]:
        assert self.timeline is not None
        key = self.timeline.keys[index]
        strips = self._painted.get(key)
        if strips is None:
            self._evict_oldest(self._painted, self._cache_size)
            chosen = key == self.selected
            strips = self._painted[key] = paint(self.timeline, index, self.names, self.palette, selected=chosen)
        return strips

    @property
    def _cache_size(self) -> int:
        return max(STRIPS_MAX, 2 * self.container_size.height)

    def _evict_oldest(self, kept: dict[Any, Any], most: int) -> None:
        """Evict the oldest entry of a full cache."""
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
        """The selected lines without trailing blanks."""
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
