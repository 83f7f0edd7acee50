"""Output that keeps to the cell grid on every terminal.

Terminals disagree on the width of Indic vowel signs, skin tones, joined, flagged and new emoji, and of more with each
version of Unicode; a row would shift from such a character on. So behind each run of characters whose width is not
settled, the cursor returns to the start of the run and moves by the width of the layout. Where a terminal draws less
than that, blanks are left; where it draws more, the rest is overwritten.
"""

import re
from functools import lru_cache

from rich import cells as rich_cells

_SETTLED = (
    "\u0020-\u007e\u00a0-\u00ac\u00ae-\u02ff"  # Latin
    "\u0370-\u0482\u048a-\u058a\u05d0-\u05ea"  # Greek, Cyrillic, Armenian, Hebrew
    "\u0621-\u063a\u0641-\u064a\u0671-\u06d3"  # Arabic
    "\u1e00-\u1fff\u2010-\u2027\u2030-\u205e"  # Latin and Greek with accents, punctuation
    "\u2400-\u2426\u2500-\u25fc\u2713"  # control pictures, boxes, shapes, the check mark of delivery
    "\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uff01-\uff60"  # East Asian
)
"""Blocks with the same width everywhere. All other characters, also those that Unicode will add, are placed anew."""
_CONTROL = r"\x00-\x1f\x7f-\x9f"
_unsettled = re.compile(f"[^{_SETTLED}{_CONTROL}]").search
_pieces = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]"  # control sequences: copied
    f"|([{_SETTLED}]?[^{_SETTLED}{_CONTROL}]+)",  # a run, with the base of its first mark
    re.DOTALL,
)


def on_grid(output: str) -> str:
    """Terminal output with the cursor placed anew behind each run of unsettled width."""
    if output.isascii() or _unsettled(output) is None:
        return output
    return _pieces.sub(lambda found: _placed(found[1]) if found[1] else found[0], output)


@lru_cache(4_096)
def _placed(run: str) -> str:
    """Each picture by itself, so that none is overwritten by the one before it; letters together, so that they join."""
    placed, letters = [], ""
    for start, end, width in rich_cells.split_graphemes(run)[0]:
        if width < 2:
            letters += run[start:end]
            continue
        placed += [_at_once(letters), _at_once(run[start:end])]
        letters = ""
    return "".join([*placed, _at_once(letters)])


def _at_once(text: str) -> str:
    if not text:
        return ""
    width = rich_cells.cell_len(text)
    blanks = " " * width  # first: where less is drawn, cells of an earlier frame would stay
    return f"\x1b7{blanks}\x1b8{text}\x1b8" + (f"\x1b[{width}C" if width else "")
