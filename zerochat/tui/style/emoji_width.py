"""Emoji whose width terminals do not agree on, drawn so that a row never shifts.

A narrow sign with variation selector 16 behind it (U+2764 U+FE0F, a red heart; the keycaps) is two cells wide to
Unicode and to the toolkit, and one to tmux 3.3, xterm and others, where all that stands behind it would move to the
left. What goes to the terminal is the sign alone, which is one cell to everybody, and a space. Only what is drawn
changes: what is typed, sent, copied and kept has its selector. Signs that are joined to others (U+200D) are left alone:
how wide these are depends on what a terminal can draw.
"""

import re

from rich.cells import cell_len
from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

SELECTOR = "\ufe0f"
_selected = re.compile("(.)\ufe0f(\u20e3?)(?!\u200d)").sub


class AgreedWidths(LineFilter):
    """Takes the selectors out of what is about to be drawn; no line becomes longer or shorter by it."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if not any(SELECTOR in segment.text for segment in segments):
            return segments
        return [
            Segment(agreed(text), style, control) if SELECTOR in text else Segment(text, style, control)
            for text, style, control in segments
        ]


def agreed(text: str) -> str:
    """`text` in as many cells as before, of which everybody counts as many."""

    def alone(found: re.Match[str]) -> str:
        sign = found[1] + found[2]
        return sign + " " * (cell_len(found[0]) - cell_len(sign))

    return _selected(alone, text)
