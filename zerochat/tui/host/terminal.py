"""Workarounds for terminals: Alt key sequences, mouse reporting at run time, and stable emoji widths.

Terminals disagree on the width of variation selector 16 (U+FE0F): with it a narrow character has two cells by Unicode
and Textual, but one in tmux 3.3, xterm and others, where the rest of the row would shift. `StableEmojiWidths` replaces
it by a space on output; the stored text is unchanged. Joined sequences (U+200D) are left alone.
"""

import os
import re
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from rich.cells import cell_len
from rich.segment import Segment
from textual import _ansi_sequences
from textual.color import Color
from textual.filter import LineFilter

_SEQUENCES = {
    **{f"\x1b{digit}": f"alt+{digit}" for digit in "123456789"},
    "\x1b\r": "alt+enter",
    "\x1b\n": "alt+enter",
}


def register_keys() -> None:
    """Register the sequences in Textual's table; idempotent."""
    table: dict[str, object] = _ansi_sequences.ANSI_SEQUENCES_KEYS  # type: ignore[assignment]
    for sequence, key in _SEQUENCES.items():
        table[sequence] = (SimpleNamespace(value=key),)


def mouse_wanted(setting: bool, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether to use the mouse. Not in GNU screen: with it, screen holds Escape back until the next key."""
    return setting and "STY" not in environ


def set_mouse(driver: Any, wanted: bool) -> None:
    """Turn mouse reporting on or off. Drivers without mouse support are left alone."""
    if not hasattr(driver, "_disable_mouse_support") or driver._mouse == wanted:
        return
    if not wanted:
        driver._disable_mouse_support()
    driver._mouse = wanted
    if wanted:
        driver._enable_mouse_support()


SELECTOR = "\ufe0f"
_selected = re.compile("(.)\ufe0f(\u20e3?)(?!\u200d)").sub


class StableEmojiWidths(LineFilter):
    """Removes the selectors on output, keeping each line's width."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        if not any(SELECTOR in segment.text for segment in segments):
            return segments
        return [
            Segment(stable_width(text), style, control) if SELECTOR in text else Segment(text, style, control)
            for text, style, control in segments
        ]


def stable_width(text: str) -> str:
    """`text` without selectors, padded to the same width."""

    def alone(found: re.Match[str]) -> str:
        sign = found[1] + found[2]
        return sign + " " * (cell_len(found[0]) - cell_len(sign))

    return _selected(alone, text)
