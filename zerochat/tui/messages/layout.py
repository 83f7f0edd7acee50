"""What a post consists of, line by line: what it answers, its text, that it was edited, and what others answered.

Measured and painted from the same lines, so that a height is never another than what is drawn. Nothing here depends on
what anybody is called: names change, heights must not. Where a name stands inside the text, cells are kept for it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from zerochat.presentation.files import line as file_line
from zerochat.terminal_text import cells
from zerochat.tui.messages.markdown import NAME, SIGN, Line, lay
from zerochat.tui.messages.row import MARGIN, REACTIONS_SHOWN_MAX, Columns, Row
from zerochat.tui.style.text import SUFFIX_CHARS, clip, wrap

EDITED, DELETED = "(edited)", "(deleted)"
FILE = "📎 "
"""Before the name of a file; one line for each, whatever there is to say of it."""
QUOTE_BAR = "│ "
BESIDE_MIN = 16
"""Cells that a file or a reaction needs to be told beside a mark; where there are fewer, the mark stands below."""


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
    width = columns.text_width
    room = max(width - MARGIN, 0) if row.marked else width
    lead = name_cells(row, width) if row.action else 0
    if row.deleted:
        return _beside_mark([Shown("note", line) for line in lay(DELETED, width, lead=lead, marked=False)], room)
    lines = [Shown("quote")] if row.quote is not None else []
    if row.text or row.action or not row.files:
        lines += [Shown("body", line) for line in lay(row.text, width, lead=lead, marked=marked)]
    if row.cut:
        lines += [Shown("note", ((line, 0),)) for line in wrap(row.cut, width)]
    if row.edited:
        free = width if row.files or row.reactions else room
        if lines and lines[-1].kind == "body" and lines[-1].cells + 1 + len(EDITED) <= free:
            lines[-1] = Shown("body", (*lines[-1].pieces, (" " + EDITED, SIGN)))
        else:
            lines += [Shown("note", ((line, 0),)) for line in wrap(EDITED, width)]
    for number, one in enumerate(row.files, 1):
        free = room if number == len(row.files) and not row.reactions and room >= BESIDE_MIN else width
        said = clip(FILE + file_line(one, row.own, free - cell_len(FILE)), free)
        lines.append(Shown("file", ((said, 0),)))
    reactions = list(reactions_of(row, width))
    if reactions and Shown("reactions", reactions[-1]).cells > room >= BESIDE_MIN:
        reactions = list(reactions_of(row, room))
    return _beside_mark([*lines, *(Shown("reactions", line) for line in reactions)], room)


def _beside_mark(lines: list[Shown], room: int) -> list[Shown]:
    """The same with a last line of at most `room` cells: its last word goes to one of its own, or an empty one follows,
    where that would help nobody. What a mark says changes, so its room does not depend on it."""
    last = lines[-1]
    if last.cells <= room:
        return lines
    text = "".join(piece for piece, _ in last.pieces)
    at = text.rstrip(" ").rfind(" ")
    starts = last.pieces[0][1]
    lead = len(last.pieces[0][0]) if starts & NAME else 0
    word = text[at + 1 :]
    if (
        last.kind in ("file", "reactions")
        or starts & SIGN
        or not text[lead : max(at, lead)].strip()
        or cell_len(word) > room
    ):
        return [*lines, Shown("note")]
    return [
        *lines[:-1],
        Shown(last.kind, _part(last.pieces, 0, at)),
        Shown(last.kind, _part(last.pieces, at + 1, None)),
    ]


def _part(line: Line, start: int, end: int | None) -> Line:
    """The letters of a line from `start` up to `end`, with their marks."""
    found, at = [], 0
    for text, marks in line:
        if part := text[max(start - at, 0) : None if end is None else max(end - at, 0)]:
            found.append((part, marks))
        at += len(text)
    return tuple(found)


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
