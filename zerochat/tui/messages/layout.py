"""Layout of a post in lines: quote, text, edit mark, files, reactions.

Measuring and painting use the same lines, so heights always match. The layout does not depend on names, which
may change: a name inside a text gets reserved cells.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from zerochat.presentation.files import file_line
from zerochat.presentation.lookalikes import SUFFIX_CHARS
from zerochat.tui.messages.markdown import NAME, SIGN, Line, lay_out
from zerochat.tui.messages.row import MARGIN, REACTIONS_SHOWN_MAX, Columns, Row
from zerochat.tui.style.text import clip, wrap

EDITED, DELETED = "(edited)", "(deleted)"
FILE = "📎 "
"""Prefix of a file name; each file takes one line."""
QUOTE_BAR = "│ "
BESIDE_MIN = 16
"""Minimum width of a file or reaction line beside a mark; below, the mark gets its own line."""


@dataclass(frozen=True, slots=True)
class LayoutLine:
    """One line of a post; a `quote` has no pieces."""

    kind: Literal["quote", "body", "note", "file", "reactions"]
    pieces: Line = ()

    @property
    def cells(self) -> int:
        return sum(cell_len(text) for text, _ in self.pieces)


def lines_of(row: Row, columns: Columns, marked: bool) -> list[LayoutLine]:
    """The lines of a post; `marked`: with Markdown."""
    width = columns.text_width
    room = max(width - MARGIN, 0) if row.has_mark else width
    lead = name_cells(row, width) if row.action else 0
    if row.deleted:
        return _beside_mark(
            [LayoutLine("note", line) for line in lay_out(DELETED, width, lead=lead, marked=False)], room
        )
    lines = [LayoutLine("quote")] if row.quote is not None else []
    if row.text or row.action or not row.files:
        lines += [LayoutLine("body", line) for line in lay_out(row.text, width, lead=lead, marked=marked)]
    if row.truncation:
        lines += [LayoutLine("note", ((line, 0),)) for line in wrap(row.truncation, width)]
    if row.edited:
        free = width if row.files or row.reactions else room
        if lines and lines[-1].kind == "body" and lines[-1].cells + 1 + len(EDITED) <= free:
            lines[-1] = LayoutLine("body", (*lines[-1].pieces, (" " + EDITED, SIGN)))
        else:
            lines += [LayoutLine("note", ((line, 0),)) for line in wrap(EDITED, width)]
    for number, file in enumerate(row.files, 1):
        free = room if number == len(row.files) and not row.reactions and room >= BESIDE_MIN else width
        label = clip(FILE + file_line(file, row.own, free - cell_len(FILE)), free)
        lines.append(LayoutLine("file", ((label, 0),)))
    reactions = list(reactions_of(row, width))
    if reactions and LayoutLine("reactions", reactions[-1]).cells > room >= BESIDE_MIN:
        reactions = list(reactions_of(row, room))
    return _beside_mark([*lines, *(LayoutLine("reactions", line) for line in reactions)], room)


def _beside_mark(lines: list[LayoutLine], room: int) -> list[LayoutLine]:
    """Make the last line at most `room` cells wide, by wrapping its last word or appending an empty line. The mark's
    text changes, so its room is constant."""
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
        return [*lines, LayoutLine("note")]
    return [
        *lines[:-1],
        LayoutLine(last.kind, _part(last.pieces, 0, at)),
        LayoutLine(last.kind, _part(last.pieces, at + 1, None)),
    ]


def _part(line: Line, start: int, end: int | None) -> Line:
    """The characters `start` to `end` of a line, with their marks."""
    found, at = [], 0
    for text, marks in line:
        if part := text[max(start - at, 0) : None if end is None else max(end - at, 0)]:
            found.append((part, marks))
        at += len(text)
    return tuple(found)


def name_cells(row: Row, width: int) -> int:
    """Cells reserved for a name inside a text, including key suffix and warning sign."""
    return min(cell_len(row.nick) + SUFFIX_CHARS + 2, width)


def reactions_of(row: Row, width: int) -> Iterator[Line]:
    """ "👍 2  [🎉 1]" in lines; brackets and mark 1 for reactions that include mine."""
    shown = row.reactions[:REACTIONS_SHOWN_MAX]
    parts = [
        (f"[{entry.emoji} {entry.count}]" if entry.mine else f"{entry.emoji} {entry.count}", int(entry.mine))
        for entry in shown
    ]
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
