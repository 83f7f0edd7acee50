"""The width of a text in cells, for Rich and Textual: one table and one rule more than Rich has.

Rich gives an Indic vowel sign no cell, and a letter behind a joiner neither. Terminals that draw them in a cell of
their own would have the end of the word overwritten; blanks in the others cost nothing. `install_cell_width` changes
Rich for the whole program.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from unicodedata import category

from rich import cells as rich_cells
from rich._unicode_data import load
from rich.cells import CellTable

ZWNJ, ZWJ = "\u200c", "\u200d"
_letter_joiner = re.compile(f"{ZWJ}(?![\u203c-\u3299\U0001f000-\U0001faff])").sub
"""A joiner in front of a letter; in front of a pictograph it makes one picture of two."""


def install_cell_width() -> None:
    """Make Rich measure so; idempotent."""
    module: Any = rich_cells
    if module.load_cell_table is not _table:
        module.load_cell_table = _table
        module._cell_len = _joining_pictures_only(module._cell_len)
        module.split_graphemes = _joining_pictures_only(module.split_graphemes)
        rich_cells.cached_cell_len.cache_clear()
        rich_cells.get_character_cell_size.cache_clear()


def _joining_pictures_only(measure: Callable[[str, str], Any]) -> Callable[..., Any]:
    def measured(text: str, unicode_version: str = "auto") -> Any:
        return measure(_letter_joiner(ZWNJ, text) if ZWJ in text else text, unicode_version)

    return measured


@cache
def _table(unicode_version: str = "auto") -> CellTable:
    """Rich's table with a cell for each vowel sign."""
    table = load(unicode_version)
    return table._replace(widths=[part for entry in table.widths for part in _with_vowel_signs(*entry)])


def _with_vowel_signs(start: int, end: int, width: int) -> Iterator[tuple[int, int, int]]:
    if width or end - start > 1_024:
        yield start, end, width
        return
    for code in range(start, end + 1):
        if category(chr(code)) != "Mc":
            yield code, code, 0
