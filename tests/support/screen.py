"""A minimal terminal emulator: the text on the screen after Textual's output.

Enough of ECMA-48 for Textual: cursor movement, erasing, printing with cell widths. Colours, modes and titles are
ignored.
"""

import re
from collections.abc import Callable

from zerochat.terminal_text import cells

_PIECES = re.compile(
    r"\x1b\[([0-?]*)[ -/]*([@-~])"  # control sequences
    r"|\x1b[\]PX^_].*?(?:\x07|\x1b\\)"  # strings that the terminal keeps to itself
    r"|\x1b[ -/]*[0-~]"  # everything else with an escape
    r"|[\x00-\x1f]|[^\x00-\x1f\x1b]+",
    re.DOTALL,
)


class Picture:
    """A screen of so many lines and columns. `width`: what the terminal takes a character for."""

    def __init__(self, lines: int, columns: int, width: Callable[[str], int] = cells) -> None:
        self._lines, self._columns, self._width = lines, columns, width
        self._saved = (0, 0)
        self._cells = [[" "] * columns for _ in range(lines)]
        self._row = self._column = 0

    def write(self, text: str) -> None:
        """Whole sequences only."""
        for piece in _PIECES.finditer(text):
            said = piece[0]
            if piece[2]:
                self._control(piece[1], piece[2])
            elif said == "\x1b7":
                self._saved = (self._row, self._column)
            elif said == "\x1b8":
                self._row, self._column = self._saved
            elif said == "\r":
                self._column = 0
            elif said == "\n":
                self._row, self._column = min(self._row + 1, self._lines - 1), 0
            elif said[0] > "\x1f":
                for letter in said:
                    self._print(letter)

    @property
    def text(self) -> list[str]:
        return ["".join(line) for line in self._cells]

    def _control(self, numbers: str, final: str) -> None:
        given = [int(one) if one.isdecimal() else 0 for one in numbers.split(";")]
        if final in "Hf":
            row, column = (*given, 0, 0)[:2]
            self._row = min(max(row, 1), self._lines) - 1
            self._column = min(max(column, 1), self._columns) - 1
        elif final == "J" and given[0] == 2:
            self._cells = [[" "] * self._columns for _ in range(self._lines)]
        elif final == "K":
            self._cells[self._row][self._column :] = [" "] * (self._columns - self._column)
        elif final == "C":
            self._column = min(self._column + max(given[0], 1), self._columns - 1)

    def _print(self, letter: str) -> None:
        width = self._width(letter)
        if self._column + width <= self._columns and width:
            self._cells[self._row][self._column : self._column + width] = [letter, *[""] * (width - 1)]
            self._column += width
