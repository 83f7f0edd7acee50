"""What a post consists of, line by line: what it answers, its text, that it was edited, and what others answered.

Measured and painted from the same lines, so that a height is never another than what is drawn. Nothing here depends on
what anybody is called: names change, heights must not. Where a name stands inside the text, cells are kept for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from zerochat.agent.files.words import line as file_line
from zerochat.terminal import cells
from zerochat.tui.looks.text import SUFFIX_CHARS, clip, wrap
from zerochat.tui.messages.marked import SIGN, Line, lay
from zerochat.tui.messages.row import REACTIONS_SHOWN_MAX, Columns, Row

EDITED, DELETED = "(edited)", "(deleted)"
FILE = "📎 "
"""Before the name of a file; one line for each, whatever there is to say of it."""
QUOTE_BAR = "│ "


@dataclass(frozen=True, slots=True)
class Shown:
    """One line of a post; of a `quote` only that it is there."""

    kind: Literal["quote", "body", "note", "file", "reactions"]
    pieces: Line = ()

    @property
    def cells(self) -> int:
        return sum(cell_len(text) for text, _ in self.pieces)


def lines_of(row: Row, columns: Columns, marked: bool) -> list[Shown]:
    """The lines of a post; `marked`: Markdown in it counts."""
    width = columns.text_width(row)
    lead = name_cells(row, width) if row.action else 0
    if row.deleted:
        return [Shown("note", line) for line in lay(DELETED, width, lead=lead, marked=False)]
    lines = [Shown("quote")] if row.quote is not None else []
    if row.text or row.action or not row.files:
        lines += [Shown("body", line) for line in lay(row.text, width, lead=lead, marked=marked)]
    if row.cut:
        lines += [Shown("note", ((line, 0),)) for line in wrap(row.cut, width)]
    if row.edited:
        if lines and lines[-1].kind == "body" and lines[-1].cells + 1 + len(EDITED) <= width:
            lines[-1] = Shown("body", (*lines[-1].pieces, (" " + EDITED, SIGN)))
        else:
            lines += [Shown("note", ((line, 0),)) for line in wrap(EDITED, width)]
    lines += [
        Shown("file", ((clip(FILE + file_line(one, row.own, width - cell_len(FILE)), width), 0),)) for one in row.files
    ]
    return [*lines, *(Shown("reactions", line) for line in reactions_of(row, width))]


def name_cells(row: Row, width: int) -> int:
    """Cells for a name inside a text, with the letters of a key and the sign that it may get."""
    return min(cells(row.nick) + SUFFIX_CHARS + 2, width)


def reactions_of(row: Row, width: int) -> Iterator[Line]:
    """ "👍 2  [🎉 1]", as many to a line as fit; those in brackets are mine too, and so is their mark (1)."""
    shown = row.reactions[:REACTIONS_SHOWN_MAX]
    parts = [(f"[{one.emoji} {one.count}]" if one.mine else f"{one.emoji} {one.count}", int(one.mine)) for one in shown]
    if others := len(row.reactions) - len(shown):
        parts.append((f"+{others} more", 0))
    line: list[tuple[str, int]] = []
    used = 0
    for text, mine in parts:
        text = clip(text, width)
        size = cell_len(text)
        if line and used + 2 + size > width:
            yield tuple(line)
            line, used = [], 0
        if line:
            line.append(("  ", 0))
            used += 2
        line.append((text, mine))
        used += size
    if line:
        yield tuple(line)
