"""The lines of one conversation: rows in the order of the log, their heights, and where each begins.

Everything the message pane needs to know without drawing: `rows` sorted by (lamport, author, id), the height of each
at the present width, and `tops`, the running sums. The row of a line is a bisection, an append is O(1), a late arrival
rebuilds the sums behind it. No Textual here, so that order and place can be tested with plain values.
"""

import shlex
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from zerochat.agent.schema import Event
from zerochat.terminal import Printable, cells, printable, printable_line
from zerochat.tui.events import text_of
from zerochat.tui.text import SUFFIX_CHARS, day_text, name_of, told_time, wrap

Key: TypeAlias = tuple[int, str, str]
"""(lamport, author's DID, id): the order that every member sees."""

ROWS_MAX = 5_000
"""Rows that one conversation keeps: measuring them again after a resize stays under 0.2 s."""
ROWS_SPARE = 500
"""How many are let go at once when it is full, so that not every arrival rebuilds the sums."""
STACKED_BELOW = 44
"""Narrower than this, the name gets a line of its own: beside it the text would be a column of single words."""
TEXT_CELLS_MAX = 110
"""Longer lines are hard to read, and would put the marks far from what they are about."""
WHOLE_CHARS_MAX = 1 << 18
"""More than a post of 64 KiB can become by being made printable (a tab is four spaces)."""
MARGIN = 8
"""Cells on the right of rows with a mark: "✓12/24", "late", "vouched"."""


@dataclass(frozen=True, slots=True)
class Row:
    """One event as it is shown. `text` is a post's body, or what a quiet line says behind the name."""

    key: Key
    kind: Literal["post", "quiet"]
    author: str
    """The DID; never shown as it is."""
    nick: Printable
    """What the author was called; beside a post stands what it is called now."""
    text: Printable
    day: str
    time: str
    cut: Printable = Printable("")
    """What to say below a text that is not whole here."""
    own: bool = False
    late: bool = False
    vouched: bool = False
    """Somebody else has handed it over, and its author has not confirmed it yet."""
    position: int = 0
    delivered: int = 0
    of: int = 0
    local: bool = False
    """No event: something that only this screen says."""
    line: int = 0
    """Number of the line from the agent that told `delivered`: receipts with a smaller one are in it already."""

    @property
    def marked(self) -> bool:
        """Whether something stands in the right margin."""
        return self.kind == "post" and (self.late or self.vouched or (self.own and self.of > 0))


def row_of(event: Event, line: int, group: str = "") -> Row | None:
    """The row for an event of the group that is called so (empty: its id will do); None for a type that this version
    does not know."""
    text = text_of(event)
    if text is None:
        return None
    group = shlex.quote(printable_line(group or event.group))
    kind: Literal["post", "quiet"] = "post" if event.type == "message" else "quiet"
    text, cut = _cut(text, str(event.body.get("text", "")), group) if kind == "post" else (text, Printable(""))
    moment = told_time(event.sent_at, event.received_at)
    return Row(
        key=(event.lamport, event.author.did, event.id),
        kind=kind,
        author=event.author.did,
        nick=name_of(event.then or event.author.nick),
        text=text,
        cut=cut,
        day=day_text(moment) if moment else "",
        time=f"{moment:%H:%M}" if moment else "--:--",
        own=event.self,
        late=event.late,
        vouched=event.vouched is not None,
        position=event.position,
        delivered=event.delivery.delivered,
        of=event.delivery.of,
        line=line,
    )


def _cut(shown: Printable, text: str, group: str) -> tuple[Printable, Printable]:
    """What is shown of `text` without its bare ellipsis, and a sentence on how much is missing, empty if nothing is."""
    if not shown.endswith("…"):
        return shown, Printable("")  # Nearly all messages.
    whole = printable(text, lines_max=WHOLE_CHARS_MAX, chars_max=WHOLE_CHARS_MAX)
    if whole == shown:
        return shown, Printable("")
    kept = shown.removesuffix("…").removesuffix("\n")
    lines = whole.count("\n") - kept.count("\n")
    missing = f"{lines:,} more line{'s' * (lines != 1)}" if lines else f"{len(whole) - len(kept):,} more characters"
    return Printable(kept), Printable(f"… {missing}: zerochat history {group} --format jsonl has all")


@dataclass(frozen=True, slots=True)
class Columns:
    """How a pane of some width is divided: [time nick │] text [mark]; `stacked` puts time and nick above the text."""

    width: int
    stacked: bool
    nick: int
    gutter: int

    @classmethod
    def of(cls, width: int) -> "Columns":
        if width < STACKED_BELOW:
            return cls(width, True, max(width - 8, 1), 2 if width > 20 else 0)
        nick = max(6, min(14, width // 6))
        return cls(width, False, nick, 6 + nick + 3)

    def text_width(self, row: Row) -> int:
        """Cells for the text of `row`."""
        margin = MARGIN if row.marked else 0
        return max(min(self.width - self.gutter, TEXT_CELLS_MAX) - margin, 4)

    def quiet_lines(self, row: Row) -> tuple[int, list[str]]:
        """The cells for the name in a quiet line, and what stands behind it, in lines. They leave room for the letters
        of a key and the sign that the name may get, so that its height does not change with them."""
        width = max(min(self.width - self.gutter, TEXT_CELLS_MAX), 4)
        name = min(cells(row.nick) + SUFFIX_CHARS + 2, width)
        first, *lines = wrap(f"{'x' * name} {row.text}", width)
        return name, [first[name:], *lines]


@dataclass(slots=True)
class Place:
    """Where somebody reads in one conversation; kept while another one is on the screen."""

    following: bool = True
    key: Key | None = None
    offset: int = 0
    """Lines from the text of the row `key` to the top of the pane: what stands above a text may come and go."""
    unseen: list[Key] = field(default_factory=list)
    """Posts that came while they were out of sight."""


@dataclass(slots=True)
class Timeline:
    """The window onto a conversation. Change it by its methods only; they keep `keys`, `heights` and `tops` true."""

    width: int = 80
    columns: Columns = field(default_factory=lambda: Columns.of(80))
    rows: list[Row] = field(default_factory=list)
    keys: list[Key] = field(default_factory=list)
    heights: list[int] = field(default_factory=list)
    tops: list[int] = field(default_factory=lambda: [0])
    own: dict[int, Key] = field(default_factory=dict)
    """My posts by their position in my chain, for receipts."""
    head: Printable = Printable("")
    """What stands above the first row."""
    posts: int = 0
    unread: Key | None = None
    """The row that has the unread line above it."""
    gaps: dict[str, Key] = field(default_factory=dict)
    """The rows that say that something of an author is missing there, by author."""
    more: bool = True
    """There are older events than the first row."""
    detached: bool = False
    """There are newer events than the last row: the reader went far back and the window moved along."""

    # --- lines and rows --------------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Lines of all rows and of the head."""
        return self.tops[-1]

    def row_at(self, line: int) -> tuple[int, int]:
        """(index of the row, line inside the row) of a line; index -1 in the head."""
        index = bisect_right(self.tops, line) - 1
        if index < 0:
            return -1, line
        index = min(index, len(self.rows) - 1)
        return index, line - (self.tops[index] if index >= 0 else 0)

    def top_of(self, key: Key) -> int:
        """The first line of the row `key`, or of the row that comes behind its place."""
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
        """Whether the author's name is shown again: another author, kind or day than above, or the unread line."""
        if index == 0 or self.keys[index] == self.unread:
            return True
        above, row = self.rows[index - 1], self.rows[index]
        return above.author != row.author or above.kind != row.kind or above.day != row.day

    def lead(self, index: int) -> int:
        """Lines above the text of a row: day separator, unread line, and the name where it stands alone."""
        row = self.rows[index]
        named = self.columns.stacked and row.kind == "post" and self.starts_group(index)
        return self.starts_day(index) + (row.key == self.unread) + named

    def _measure(self, index: int) -> int:
        row = self.rows[index]
        if row.kind == "quiet":
            return self.lead(index) + len(self.columns.quiet_lines(row)[1])
        width = self.columns.text_width(row)
        return self.lead(index) + len(wrap(row.text, width)) + (len(wrap(row.cut, width)) if row.cut else 0)

    @property
    def oldest(self) -> str | None:
        """The id of the first event; None: there is none."""
        return next((row.key[2] for row in self.rows if not row.local), None)

    # --- changing --------------------------------------------------------------------------------------------------

    def resize(self, width: int) -> None:
        """Measure everything for another width."""
        self.width = max(width, 1)
        self.columns = Columns.of(self.width)
        self.heights = [self._measure(index) for index in range(len(self.rows))]
        self._sum(0)

    def set_head(self, head: Printable) -> None:
        if head != self.head:
            self.head = head
            self._sum(0)

    def set_unread(self, key: Key | None) -> None:
        before, self.unread = self.unread, key
        for changed in (before, key):
            if changed is not None:
                self._remeasure(self.index(changed))

    def add(self, rows: Sequence[Row]) -> list[Key]:
        """Put rows in their places; the keys of those that were not there yet. A row that is there is renewed."""
        new: list[Key] = []
        dirty = len(self.rows)
        for row in rows:
            at = len(self.keys) if not self.keys or row.key > self.keys[-1] else bisect_left(self.keys, row.key)
            if at < len(self.keys) and self.keys[at] == row.key:
                if row.line > self.rows[at].line:
                    self.rows[at] = replace(
                        self.rows[at], delivered=row.delivered, of=row.of, vouched=row.vouched, line=row.line
                    )
                    self._remeasure(at)
                continue
            self.rows.insert(at, row)
            self.keys.insert(at, row.key)
            self.heights.insert(at, 0)
            self.heights[at] = self._measure(at)
            if at + 1 < len(self.rows):
                self.heights[at + 1] = self._measure(at + 1)
            self.posts += row.kind == "post"
            if row.own:
                self.own[row.position] = row.key
            new.append(row.key)
            dirty = min(dirty, at)
        if new:
            self._sum(dirty)
        return new

    def remark(self, author: str, nick: Printable, text: Printable) -> Key | None:
        """Say something of ours about somebody behind the last row, once; its key, or None when it stands there."""
        if not self.rows or self.detached:
            return None
        last = self.rows[-1]
        key = (last.key[0], last.key[1], f"{last.key[2]}~")
        row = Row(key, "quiet", author, nick, text, last.day, last.time, local=True)
        if last.local and (last.author, last.text) == (author, text):
            return None
        return next(iter(self.add([row])), None)

    def tell_gaps(self, missing: Mapping[str, tuple[int, Printable, Printable]]) -> bool:
        """Say where something is known to be missing, and only there: by author, the place in its chain after which
        it is, what the author is called and what to say. True: something has changed."""
        wanted = {}
        for author, (after, nick, text) in missing.items():
            of_author = (at for at in reversed(self.rows) if at.author == author and not at.local)
            above = next((row for row in of_author if row.position <= after), None)
            if (above := above or next((row for row in reversed(self.rows) if not row.local), None)) is not None:
                key = (above.key[0], above.key[1], f"{above.key[2]}~{author}")
                wanted[author] = Row(key, "quiet", author, nick, text, above.day, above.time, local=True)
        shown = {author: at for author, key in self.gaps.items() if (at := self.index(key)) is not None}
        if {author: self.rows[at] for author, at in shown.items()} == wanted:
            return False
        self.forget([self.rows[at].key for at in shown.values()])
        self.add(list(wanted.values()))
        self.gaps = {author: row.key for author, row in wanted.items()}
        return True

    def confirm(self, author: str, position: int) -> list[Key]:
        """The author itself has said what stands there in its chain, and so all that leads up to it; the keys of the
        rows that changed."""
        rows = (row for row in self.rows if row.vouched and row.author == author)
        changed = [row.key for row in rows if row.position < position]
        self.settle(changed)
        return changed

    def settle(self, keys: Iterable[Key]) -> None:
        """These rows are their author's own word."""
        for key in keys:
            if (at := self.index(key)) is not None:
                self.rows[at] = replace(self.rows[at], vouched=False)
                self._remeasure(at)

    def forget(self, keys: Sequence[Key]) -> None:
        """Take rows out wherever they stand."""
        for key in keys:
            if (at := self.index(key)) is not None:
                self._drop(at, at + 1)
                if at < len(self.rows):
                    self.heights[at] = self._measure(at)
                self._sum(at)

    def receipt(self, after: int, upto: int, line: int) -> list[Key]:
        """One more member has my events with `after` < position <= `upto`; the keys of the rows that changed."""
        changed = []
        for position in self._own_between(after, upto):
            index = self.index(self.own[position])
            if index is None or line <= self.rows[index].line:
                continue
            row = self.rows[index]
            self.rows[index] = replace(row, delivered=min(row.delivered + 1, row.of), line=line)
            changed.append(row.key)
        return changed

    def _own_between(self, after: int, upto: int) -> list[int]:
        """The range is a peer's word and may be huge: walk whichever of the two is smaller."""
        if upto - after < len(self.own):
            return [position for position in range(after + 1, upto + 1) if position in self.own]
        return [position for position in self.own if after < position <= upto]

    def drop_oldest(self, count: int) -> None:
        self._drop(0, count)
        self.more = True
        if self.rows:
            self._remeasure(0)
        self._sum(0)

    def drop_newest(self, count: int) -> None:
        self._drop(len(self.rows) - count, len(self.rows))
        self.detached = True
        self._sum(len(self.rows))

    def clear(self) -> None:
        """Forget the window, to be filled again from the agent."""
        self._drop(0, len(self.rows))
        self.more, self.detached, self.unread = True, False, None
        self._sum(0)

    def _drop(self, start: int, end: int) -> None:
        for row in self.rows[start:end]:
            self.posts -= row.kind == "post"
            if row.own:
                self.own.pop(row.position, None)
        del self.rows[start:end], self.keys[start:end], self.heights[start:end]

    def _remeasure(self, index: int | None) -> None:
        if index is not None and self.heights[index] != (height := self._measure(index)):
            self.heights[index] = height
            self._sum(index)

    def _sum(self, start: int) -> None:
        """Make `tops` true again from row `start` on."""
        if start == 0:
            self.tops = [len(self.head_lines())]
        del self.tops[start + 1 :]
        top = self.tops[start]
        for height in self.heights[start:]:
            top += height
            self.tops.append(top)
