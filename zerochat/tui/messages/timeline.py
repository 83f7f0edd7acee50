"""The window of loaded rows of a conversation in log order, with row heights and their prefix sums.

Finding the row of a line is a bisection, an append is O(1), a late arrival rebuilds the sums after it. No Textual here,
so that order and positions can be tested with plain values.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from zerochat.rpc import Attachment
from zerochat.terminal_text import Printable
from zerochat.tui.messages.folding import FOLD_MIN, can_fold, summary
from zerochat.tui.messages.layout import lines_of
from zerochat.tui.messages.row import (
    DEFAULT_LOOK,
    MARGIN,
    Columns,
    Key,
    Look,
    QuotedMessage,
    Row,
    in_time_zone,
    quote_of,
    row_of,
    with_file,
)
from zerochat.tui.style.text import wrap

__all__ = ["MARGIN", "ROWS_MAX", "ROWS_SPARE", "Columns", "Key", "Place", "Row", "Timeline", "row_of"]

ROWS_MAX = 5_000
"""Maximum rows of a window; measuring them after a resize takes less than 0.2 s."""
ROWS_SPARE = 500
"""Rows evicted at once, so that not every arrival rebuilds the sums."""


@dataclass(slots=True)
class Place:
    """The reading position in a conversation, kept while another is shown."""

    following: bool = True
    key: Key | None = None
    offset: int = 0
    """Lines from the text of row `key` to the top of the pane."""
    unseen: list[Key] = field(default_factory=list)
    """Posts that arrived out of sight."""
    late: list[Key] = field(default_factory=list)
    """Those of them that arrived late, before posts that were read."""
    read_upto: Key | None = None
    """The newest event that was read."""
    missed: int = 0
    """Unread posts while the unread line is above the visible lines and was not visited."""


@dataclass(slots=True)
class Timeline:
    """The window of loaded rows. Its methods keep `keys`, `heights` and `tops` consistent."""

    width: int = 80
    columns: Columns = field(default_factory=lambda: Columns.of(80))
    rows: list[Row] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    heights: list[int] = field(default_factory=list)
    tops: list[int] = field(default_factory=lambda: [0])
    own: dict[int, Key] = field(default_factory=dict)
    """Keys of my posts by chain position, for receipts."""
    head: Printable = Printable("")
    """Sentence above the first row."""
    posts: int = 0
    unread: Key | None = None
    """The row below the unread line."""
    gaps: dict[str, Key] = field(default_factory=dict)
    """Keys of the gap rows by author DID."""
    more: bool = True
    """Older events exist."""
    detached: bool = False
    """Newer events exist that are not loaded: the window has moved back."""
    floor: Key | None = None
    """The oldest loaded event, if it has no row."""
    ceiling: Key | None = None
    """While `detached`: the newest loaded event, if it has no row."""
    markdown: bool = True
    """Whether Markdown is rendered."""
    look: Look = DEFAULT_LOOK
    quoted_by: dict[str, set[Key]] = field(default_factory=dict)
    """Keys of the replies by id of the quoted post."""
    folding: bool = True
    """Whether membership changes are folded."""
    folds: dict[Key, Row] = field(default_factory=dict)
    """Folded rows by key of their first row."""
    hidden: set[Key] = field(default_factory=set)
    """Rows hidden by folding; their height is 0."""
    opened: set[Key] = field(default_factory=set)
    """Rows unfolded by the user."""
    dirty: set[Key] = field(default_factory=set)
    """Rows to repaint because of changes in other rows; the pane clears it."""

    # --- lines and rows --------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Total number of lines, including the head."""
        return self.tops[-1]

    def row_at(self, line: int) -> tuple[int, int]:
        """(index of the row, line inside the row) of a line; index -1 in the head."""
        index = bisect_right(self.tops, line) - 1
        if index < 0:
            return -1, line
        index = min(index, len(self.rows) - 1)
        return index, line - (self.tops[index] if index >= 0 else 0)

    def top_of(self, key: Key) -> int:
        """The first line of row `key`, or of the row after its place."""
        return self.tops[bisect_left(self.keys, key)]

    def index(self, key: Key) -> int | None:
        at = bisect_left(self.keys, key)
        return at if at < len(self.keys) and self.keys[at] == key else None

    def head_lines(self) -> list[str]:
        return wrap(self.head, self.width) if self.head else []

    def starts_day(self, index: int) -> bool:
        day = self.rows[index].day
        return bool(day) and (index == 0 or self.rows[index - 1].day != day)

    def starts_group(self, index: int) -> bool:
        """Whether the author's name is shown: author, kind or day differ from the row above, or the unread line."""
        if index == 0 or self.keys[index] == self.unread:
            return True
        above, row = self.rows[index - 1], self.rows[index]
        other = (above.author, above.kind, above.action) != (row.author, row.kind, row.action)
        return other or above.day != row.day

    def is_nameless(self, line: int) -> bool:
        """Whether a line is of a post and does not have its name, as the first visible line."""
        index, offset = self.row_at(line) if line < self.total else (-1, 0)
        if index < 0 or self.rows[index].kind != "post" or self.rows[index].action:
            return False
        beside = not self.columns.stacked and self.starts_group(index)
        return offset > self.lead(index) or (offset == self.lead(index) and not beside)

    def lead(self, index: int) -> int:
        """Lines above the text of a row: day separator, unread line, stacked name."""
        row = self.rows[index]
        named = self.columns.stacked and row.kind == "post" and not row.action and self.starts_group(index)
        return self.starts_day(index) + (row.key == self.unread) + named

    def shown(self, index: int) -> Row:
        """The displayed row, possibly a folded one."""
        return self.folds.get(self.keys[index]) or self.rows[index]

    def _measure(self, index: int) -> int:
        if self.keys[index] in self.hidden:
            return 0
        row = self.shown(index)
        if row.kind == "quiet":
            return self.lead(index) + len(self.columns.quiet_lines(row))
        return self.lead(index) + len(lines_of(row, self.columns, self.markdown))

    @property
    def oldest(self) -> str | None:
        """Id of the oldest loaded event; None: none is loaded."""
        first = next((row.key for row in self.rows if not row.local), None)
        if self.floor is not None and (first is None or self.floor < first):
            return self.floor[2]
        return first[2] if first is not None else None

    @property
    def newest(self) -> str | None:
        """Id of the newest loaded event of a detached window; None: the window reaches the end."""
        if not self.detached:
            return None
        last = next((row.key for row in reversed(self.rows) if not row.local), None)
        if self.ceiling is not None and (last is None or self.ceiling > last):
            return self.ceiling[2]
        return last[2] if last is not None else None

    # --- changing --------------------------------------------------------------------------------------------------

    def resize(self, width: int) -> None:
        """Measure all rows for a new width."""
        self.width = max(width, 1)
        self.columns = Columns.of(self.width, self.look)
        self.heights = [self._measure(index) for index in range(len(self.rows))]
        self._sum(0)

    def change_time_zone(self) -> None:
        """Show all times in the present local time zone."""
        self.rows[:] = map(in_time_zone, self.rows)
        self.folds.update({key: in_time_zone(row) for key, row in self.folds.items()})
        self.resize(self.width)

    def set_head(self, head: Printable) -> None:
        if head != self.head:
            self.head = head
            self._sum(0)

    def set_unread(self, key: Key | None) -> None:
        before, self.unread = self.unread, key
        for changed in (before, key):
            if changed is not None and (at := self.index(changed)) is not None:
                if self.rows[at].change is not None:
                    self._sum(self._refold(at))
                self._remeasure(at)

    # --- folding ---------------------------------------------------------------------------------------------------

    def fold(self, on: bool) -> None:
        """Turn folding on or off."""
        self.folding = on
        self.opened.clear()
        at = 0
        while at < len(self.rows):
            start, end = self._run(at)
            self._refold_run(start, end)
            at = end
        self._sum(0)

    def open(self, key: Key) -> None:
        """Unfold this row."""
        if key in self.folds and (at := self.index(key)) is not None:
            start, end = self._run(at)
            self.opened |= set(self.keys[start:end])
            self._refold_run(start, end)
            self._sum(start)

    def _run(self, at: int) -> tuple[int, int]:
        """The half-open range of rows foldable together with row `at`."""
        start, end = at, at + 1
        while start > 0 and self._continues(start):
            start -= 1
        while end < len(self.rows) and self._continues(end):
            end += 1
        return start, end

    def _continues(self, at: int) -> bool:
        return self.keys[at] != self.unread and can_fold(self.rows[at - 1], self.rows[at])

    def _refold(self, at: int) -> int:
        """Fold the rows at and beside `at` again. Returns the first row whose height may have changed; the caller
        updates the sums."""
        first, begun = at, max(at - 1, 0)
        while begun < min(at + 2, len(self.rows)):
            start, end = self._run(begun)
            self._refold_run(start, end)
            first, begun = min(first, start), end
        return first

    def _refold_run(self, start: int, end: int) -> None:
        keys = self.keys[start:end]
        if not self.folds.keys().isdisjoint(keys) or not self.hidden.isdisjoint(keys) or end - start >= FOLD_MIN:
            self.dirty.update(keys)
        self.hidden.difference_update(keys)
        for key in keys:
            self.folds.pop(key, None)
        if self.folding and end - start >= FOLD_MIN and self.opened.isdisjoint(keys):
            self.folds[keys[0]] = summary(self.rows[start:end])
            self.hidden.update(keys[1:])
        for index in range(start, end):
            self.heights[index] = self._measure(index)

    # --- rows ------------------------------------------------------------------------------------------------------

    def add(self, rows: Sequence[Row]) -> list[Key]:
        """Insert or update rows; returns the keys of the inserted ones."""
        new: list[Key] = []
        dirty, renewed = len(self.rows), False
        for row in rows:
            at = len(self.keys) if not self.keys or row.key > self.keys[-1] else bisect_left(self.keys, row.key)
            if at < len(self.keys) and self.keys[at] == row.key:
                if row.line > self.rows[at].line:
                    dirty = min(dirty, self._renew(at, replace(row, late=self.rows[at].late)))
                    renewed = True
                continue
            self.rows.insert(at, row)
            self.keys.insert(at, row.key)
            self.heights.insert(at, 0)
            self.posts += row.kind == "post"
            if row.own:
                self.own[row.position] = row.key
            if row.quote is not None:
                self.quoted_by.setdefault(row.quote.id, set()).add(row.key)
            new.append(row.key)
            dirty = min(dirty, at)
        # measure when all neighbours are in place, including the successors
        at_new = {bisect_left(self.keys, key) for key in new}
        for at in at_new | {at + 1 for at in at_new if at + 1 < len(self.rows)}:
            self.heights[at] = self._measure(at)
        for at in sorted(at_new):
            if any(row.change is not None for row in self.rows[max(at - 1, 0) : at + 2]):
                dirty = min(dirty, self._refold(at))
        if new or renewed:
            self._sum(dirty)
        return new

    def update(self, row: Row) -> list[Key]:
        """Update a post and its quotes; returns the changed keys."""
        changed: list[Key] = []
        if (at := self.index(row.key)) is not None:
            if row.line <= self.rows[at].line:
                return []
            self._sum(self._renew(at, replace(row, late=self.rows[at].late)))
            changed.append(row.key)
        quoted = quote_of(row)
        for key in self.quoted_by.get(row.key[2], ()):
            if (at := self.index(key)) is not None and self.rows[at].quote is not None:
                self.rows[at] = replace(self.rows[at], quote=quoted)  # one line in any case
                changed.append(key)
        return changed

    def update_file(self, file: Attachment) -> list[Key]:
        """Update a file in its rows; returns their keys. The heights do not change."""
        changed = []
        for at, row in enumerate(self.rows):
            if row.files and any(entry.id == file.id for entry in row.files):
                self.rows[at] = with_file(row, file)
                changed.append(row.key)
        return changed

    def _renew(self, at: int, row: Row) -> int:
        """Replace a row by one with the same key. Returns the first row whose height may have changed; the caller
        updates the sums."""
        before = self.rows[at].quote
        if before is not None:
            self._forget_quote(before, row.key)
        if row.quote is not None:
            self.quoted_by.setdefault(row.quote.id, set()).add(row.key)
        self.rows[at] = row
        for each in range(at, min(at + 2, len(self.rows))):
            self.heights[each] = self._measure(each)
        return self._refold(at) if row.change is not None else at

    def _forget_quote(self, quote: QuotedMessage, key: Key) -> None:
        keys = self.quoted_by.get(quote.id, set())
        keys.discard(key)
        if not keys:
            self.quoted_by.pop(quote.id, None)

    def add_note(self, author: str, nick: Printable, text: Printable) -> Key | None:
        """Append a note about a member after the last row; None: the last row is this note already."""
        if not self.rows or self.detached:
            return None
        last = self.rows[-1]
        key = (last.key[0], last.key[1], f"{last.key[2]}~")
        row = Row(key, "quiet", author, nick, text, last.day, last.time, local=True, at=last.at)
        if last.local and (last.author, last.text) == (author, text):
            return None
        return next(iter(self.add([row])), None)

    def set_gaps(self, missing: Mapping[str, tuple[int, Printable, Printable]]) -> bool:
        """Set the gap rows, by author: (chain position before the gap, name, text). Returns whether rows changed."""
        wanted = {}
        for author, (after, nick, text) in missing.items():
            of_author = (at for at in reversed(self.rows) if at.author == author and not at.local)
            above = next((row for row in of_author if row.position <= after), None)
            if (above := above or next((row for row in reversed(self.rows) if not row.local), None)) is not None:
                key = (above.key[0], above.key[1], f"{above.key[2]}~{author}")
                wanted[author] = Row(key, "quiet", author, nick, text, above.day, above.time, local=True, at=above.at)
        shown = {author: at for author, key in self.gaps.items() if (at := self.index(key)) is not None}
        if {author: self.rows[at] for author, at in shown.items()} == wanted:
            return False
        self.remove([self.rows[at].key for at in shown.values()])
        self.add(list(wanted.values()))
        self.gaps = {author: row.key for author, row in wanted.items()}
        return True

    def confirm(self, author: str, position: int) -> list[Key]:
        """Confirm all relayed rows of the author before `position`, by an event received from the author. Returns the
        changed keys."""
        rows = (row for row in self.rows if row.relayed and row.author == author)
        changed = [row.key for row in rows if row.position < position]
        self.mark_confirmed(changed)
        return changed

    def mark_confirmed(self, keys: Iterable[Key]) -> None:
        """Mark these rows as confirmed by their author."""
        for key in keys:
            if (at := self.index(key)) is not None:
                self.rows[at] = replace(self.rows[at], relayed=False)
                self._remeasure(at)

    def remove(self, keys: Sequence[Key]) -> None:
        """Remove rows."""
        for key in keys:
            if (at := self.index(key)) is not None:
                self._drop(at, at + 1)
                if at < len(self.rows):
                    self.heights[at] = self._measure(at)
                self._sum(min(self._refold(min(at, len(self.rows) - 1)), at) if self.rows else at)

    def receipt(self, after: int, upto: int, line: int, members: int = 1) -> list[Key]:
        """So many more members have my events with `after` < position <= `upto`; returns the changed keys."""
        changed = []
        for position in self._own_between(after, upto):
            index = self.index(self.own[position])
            if index is None or line <= self.rows[index].line:
                continue
            row = self.rows[index]
            self.rows[index] = replace(row, delivered=min(row.delivered + members, row.of), line=line)
            changed.append(row.key)
        return changed

    def _own_between(self, after: int, upto: int) -> list[int]:
        """My positions in a range; the range comes from a peer and may be huge, so iterate over the smaller set."""
        if upto - after < len(self.own):
            return [position for position in range(after + 1, upto + 1) if position in self.own]
        return [position for position in self.own if after < position <= upto]

    def drop_oldest(self, count: int) -> None:
        self._drop(0, count)
        self.more, self.floor = True, None
        if self.rows:
            self._refold(0)
            self._remeasure(0)
        self._sum(0)

    def drop_newest(self, count: int) -> None:
        self._drop(len(self.rows) - count, len(self.rows))
        self.detached, self.ceiling = True, None
        self._sum(min(self._refold(len(self.rows) - 1), len(self.rows)) if self.rows else 0)

    def clear(self) -> None:
        """Remove all rows."""
        self._drop(0, len(self.rows))
        self.more, self.detached, self.floor, self.ceiling = True, False, None, None
        self._sum(0)

    def _drop(self, start: int, end: int) -> None:
        for row in self.rows[start:end]:
            self.posts -= row.kind == "post"
            if row.own:
                self.own.pop(row.position, None)
            if row.quote is not None:
                self._forget_quote(row.quote, row.key)
            if row.change is not None:
                self.hidden.discard(row.key)
                self.folds.pop(row.key, None)
                self.opened.discard(row.key)
        del self.rows[start:end], self.keys[start:end], self.heights[start:end]

    def _remeasure(self, index: int | None) -> None:
        if index is not None and self.heights[index] != (height := self._measure(index)):
            self.heights[index] = height
            self._sum(index)

    def _sum(self, start: int) -> None:
        """Rebuild `tops` from row `start`."""
        if start == 0:
            self.tops = [len(self.head_lines())]
        del self.tops[start + 1 :]
        top = self.tops[start]
        for height in self.heights[start:]:
            top += height
            self.tops.append(top)
