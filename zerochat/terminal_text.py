"""Terminal sanitiser: untrusted text without control sequences, bidi overrides and excessive length.

An escape sequence in a nickname can move the cursor, rename the window or write the clipboard; a bidi override can
reverse a sentence; sixty thousand newlines can freeze a screen. Widget libraries pass all of this on. Text is stored
exactly as its author wrote it, and sanitised by `printable` or `printable_line` when it is displayed; the type
`Printable` lets the type checker find omissions. The functions are idempotent.
"""

import unicodedata
from collections.abc import Iterator
from typing import Final, NewType

from zerochat.ink import has_ink

Printable = NewType("Printable", str)

LINES_MAX = 400
"""Maximum lines of a displayed message: more than a screen shows, few enough to wrap within a frame."""
CHARS_MAX = 16_384
"""Maximum characters of a displayed message, about six printed pages."""
LINE_CHARS_MAX = 1_024
"""Maximum characters of a one-line text (a name, a title) that are processed."""
KEY_CHARS_MAX, KEY_CELLS_MAX = 24, 40
"""A longer DID is shortened, and so is a wider key id."""
MARKS_MAX = 3
"""Maximum combining marks per base character: enough for every living script."""
JOINS_MAX = 4
"""Maximum zero-width joiners per emoji; the longest in use have three."""

REPLACEMENT: Final = "\ufffd"
ELLIPSIS: Final = "…"
BASE: Final = "\u25cc"
"""Dotted circle, the base of a combining mark at the start of a line."""

_ZWNJ, _ZWJ = "\u200c", "\u200d"
_OVERRIDES: Final = range(0x202A, 0x202F)
"""Embeddings and overrides of the direction, which reorder what follows: only old or hostile text has them. Direction
marks and isolates, which phones put around names and numbers, are dropped like other format characters."""
_BLANK_BRAILLE: Final = 0x2800
"""A space in pictures made of Braille patterns."""
_PICTOGRAPHS: Final = range(0x1F000, 0x1FB00)
"""Block reserved by Unicode for pictographs: unassigned characters here are displayed as future emoji."""
_KEYCAPS: Final = frozenset("0123456789#*")
_EMOJI_STYLE: Final = "\ufe0f"
_NARROW_EMOJI: Final = _KEYCAPS | {"©", "®"}
_FIRST_PICTOGRAPH: Final = "\u203c"
_SKIN_TONES: Final = frozenset(map(chr, range(0x1F3FB, 0x1F400)))
_LATER_JAMO: Final = frozenset(map(chr, [*range(0x1160, 0x1200), *range(0xD7B0, 0xD7FC)]))
"""The vowels and finals of a decomposed Korean syllable, which are drawn inside its first letter."""


def _is_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _without_context(code: int) -> str:
    """The context-free replacement of a character; marks, selectors and joiners are then handled in context."""
    if code == 0x0A:
        return "\n"
    if code == 0x09:
        return "    "
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code in (0x2028, 0x2029):
        return "\n"
    if code == _BLANK_BRAILLE:
        return " "
    if code in _OVERRIDES:
        return REPLACEMENT
    char = chr(code)
    if char in (_ZWNJ, _ZWJ):
        return char
    category = unicodedata.category(char)
    if category in ("Cf", "Lo", "So") and not has_ink(char):
        return "" if category == "Cf" else REPLACEMENT
    if category == "Cn" and code in _PICTOGRAPHS:
        return char
    if category in ("Cc", "Cs", "Co", "Cn"):
        return REPLACEMENT
    return char


_contextual: set[str] = set()
"""Marks, selectors and joiners seen so far: texts without them skip the second pass."""


class _Table(dict[int, str]):
    """A `str.translate` table that is filled on demand."""

    SIZE_MAX = 8_192
    """Maximum number of cached characters, so that a peer cannot fill the memory with all of Unicode."""

    def __missing__(self, code: int) -> str:
        shown = _without_context(code)
        if shown in (_ZWNJ, _ZWJ) or (len(shown) == 1 and unicodedata.category(shown) in ("Mn", "Me")):
            _contextual.add(shown)
        if len(self) < self.SIZE_MAX:
            self[code] = shown
        return shown


_table: Final = _Table()


def _in_context(text: str) -> str:
    """Limit the marks per base and the joiners per emoji, and drop misplaced selectors and joiners.

    Every decision depends only on the output so far, which makes the function idempotent.
    """
    out: list[str] = []
    base = "\n"  # the base of the next mark
    marks = joins = 0
    last = "\n"
    for char in text:
        if char not in _contextual:
            if last != _ZWJ:
                joins = 0
            base, marks = char, 0
        elif char in (_ZWNJ, _ZWJ):
            if last.isascii() or last in (_ZWNJ, _ZWJ) or (char == _ZWJ and joins >= JOINS_MAX):
                continue
            joins += char == _ZWJ
        elif _is_selector(char):
            if last != base or (base.isascii() and base not in _KEYCAPS):
                continue
        else:
            if marks >= MARKS_MAX:
                continue
            if base == "\n":
                out.append(BASE)
                base = BASE
            marks += 1
        out.append(char)
        last = char
    return "".join(out)


def _clean(text: str) -> str:
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    text = text.replace("\r\n", "\n").translate(_table)
    return text if _contextual.isdisjoint(text) else _in_context(text)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else text[: chars_max - 1] + ELLIPSIS


def printable(text: str, *, lines_max: int = LINES_MAX, chars_max: int = CHARS_MAX) -> Printable:
    """The sanitised text, truncated with an ellipsis to `lines_max` lines and `chars_max` characters.

    Control characters become control pictures, tabs four spaces; bidi overrides, private and unassigned characters and
    lone surrogates become U+FFFD; other invisible characters are dropped, except the joiners of emoji and Persian.
    """
    cleaned = _clean(_cut(text, 2 * chars_max))
    cleaned = _cut(cleaned, chars_max)
    if cleaned.count("\n") >= lines_max:
        cleaned = "\n".join([*cleaned.split("\n", lines_max - 1)[:-1], ELLIPSIS])
    return Printable(cleaned)


def printable_line(text: str, width: int | None = None) -> Printable:
    """The sanitised text on one line of at most `width` cells (None: at most LINE_CHARS_MAX); newlines become ⏎."""
    cleaned = _cut(_clean(_cut(text, LINE_CHARS_MAX).replace("\r\n", "\n").replace("\n", "⏎")), LINE_CHARS_MAX)
    cleaned = cleaned.replace("\n", "⏎")
    if width is not None and cells(cleaned) > width:
        room = width - 1
        kept: list[str] = []
        for part, part_cells in _parts(cleaned):
            room -= part_cells
            if room < 0:
                break
            kept.append(part)
        cleaned = "".join(kept) + ELLIPSIS
    return Printable(cleaned)


def _char_cells(char: str) -> int:
    if char.isascii():
        return 1
    if char in (_ZWNJ, _ZWJ) or char in _LATER_JAMO or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _parts(text: str) -> Iterator[tuple[str, int]]:
    """What terminals draw as one: a base with its marks, an emoji with all its parts; and its cells, as the chat counts
    them."""
    part, width, last = "", 0, ""
    for char in text:
        joined = char >= _FIRST_PICTOGRAPH and (last == _ZWJ or (char in _SKIN_TONES and last >= _FIRST_PICTOGRAPH))
        own = 0 if joined else _char_cells(char)
        if own and part:
            yield part, width
            part, width = "", 0
        part += char
        width += own
        if char == _EMOJI_STYLE and (last >= _FIRST_PICTOGRAPH or last in _NARROW_EMOJI):
            width = 2
        last = char
    if part:
        yield part, width


def cells(text: str) -> int:
    """The width of a sanitised line in terminal cells."""
    return len(text) if text.isascii() else sum(width for _, width in _parts(text))


def printable_key(key_id: str) -> Printable:
    """A DID or key id, shortened in the middle."""
    did, mark, fragment = printable_line(key_id).partition("#")
    if len(did) > KEY_CHARS_MAX:
        did = f"{did[:14]}{ELLIPSIS}{did[-6:]}"
    return printable_line(did + mark + fragment, KEY_CELLS_MAX)
