"""Makes text from others safe and short enough to show in a terminal, and draws QR codes there.

A terminal obeys what it is sent: an escape sequence in a nickname can move the cursor, rename the window or write the
clipboard, a bidi override can turn a sentence round, and sixty thousand newlines can stop a screen. Widget libraries
pass all of it on. So text is kept exactly as its author wrote it, and everything on its way to a screen goes through
`printable` or `printable_line`; the type `Printable` lets the type checker find the places that forgot.

What comes out: newlines, and characters that a terminal draws and does not obey. Applying it twice changes nothing.
"""

import unicodedata
from typing import Final, NewType

Printable = NewType("Printable", str)

LINES_MAX = 400
"""Lines of one message on a screen: more than any screen shows at once, few enough to wrap within a frame."""
CHARS_MAX = 16_384
"""Characters of one message on a screen, about six printed pages."""
LINE_CHARS_MAX = 1_024
"""Characters of a one-line text (a name, a title) that are looked at, however wide the place is."""
KEY_CHARS_MAX, KEY_CELLS_MAX = 24, 40
"""A DID with more characters is shortened; so is a key's id with more cells."""
MARKS_MAX = 3
"""Combining marks on one base character: enough for every living script in practice, too few for a tower."""
JOINS_MAX = 4
"""Zero-width joiners in one emoji: the longest in use need three."""

REPLACEMENT: Final = "\ufffd"
ELLIPSIS: Final = "…"
BASE: Final = "\u25cc"
"""A dotted circle carries a mark that would else land on whatever the screen drew before."""

_ZWNJ, _ZWJ = "\u200c", "\u200d"
_BIDI: Final = frozenset([0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)])
_BLANK_LETTERS: Final = frozenset([0x115F, 0x1160, 0x3164, 0xFFA0])
"""Letters without ink: names made of them look empty."""
_INKED_FORMAT: Final = frozenset([*range(0x0600, 0x0606), 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD])
"""Format characters that are drawn: the number and verse signs of Arabic, Syriac and Kaithi."""
_PICTOGRAPHS: Final = range(0x1F000, 0x1FB00)
"""Unicode promises that only pictographs come here, so that next year's emoji need no newer Python."""
_KEYCAPS: Final = frozenset("0123456789#*")


def _is_selector(char: str) -> bool:
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _without_context(code: int) -> str:
    """What becomes of a character wherever it stands; marks, selectors and joiners are then judged in their place."""
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
    if code in _BIDI or code in _BLANK_LETTERS:
        return REPLACEMENT
    char = chr(code)
    if char in (_ZWNJ, _ZWJ) or code in _INKED_FORMAT:
        return char
    category = unicodedata.category(char)
    if category == "Cf":
        return ""
    if category == "Cn" and code in _PICTOGRAPHS:
        return char
    if category in ("Cc", "Cs", "Co", "Cn"):
        return REPLACEMENT
    return char


_contextual: set[str] = set()
"""The marks, selectors and joiners met so far: texts without any of them need no second look."""


class _Table(dict[int, str]):
    """A `str.translate` table that works each character out when it first occurs."""

    SIZE_MAX = 8_192
    """Somebody who sends all of Unicode must not make us keep it: 8,192 entries cover what people write."""

    def __missing__(self, code: int) -> str:
        shown = _without_context(code)
        if shown in (_ZWNJ, _ZWJ) or (len(shown) == 1 and unicodedata.category(shown) in ("Mn", "Me")):
            _contextual.add(shown)
        if len(self) < self.SIZE_MAX:
            self[code] = shown
        return shown


_table: Final = _Table()


def _in_context(text: str) -> str:
    """Bound the marks on each base and the joins of each emoji, and keep selectors and joiners where they belong.

    Every decision looks only at what was already put out, so a text that comes out is one that stays.
    """
    out: list[str] = []
    base = "\n"  # the character that marks would land on
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
    """`text` as a terminal may show it: at most `lines_max` lines and `chars_max` characters, cut with an ellipsis.

    Control characters become their pictures, tabs four spaces; bidi controls, private and unassigned characters and
    lone surrogates become U+FFFD; what has no ink is dropped, except the joiners that emoji and Persian need.
    """
    cleaned = _clean(_cut(text, 2 * chars_max))
    cleaned = _cut(cleaned, chars_max)
    if cleaned.count("\n") >= lines_max:
        cleaned = "\n".join([*cleaned.split("\n", lines_max - 1)[:-1], ELLIPSIS])
    return Printable(cleaned)


def printable_line(text: str, width: int | None = None) -> Printable:
    """`text` for a one-line place of `width` cells (None: as long as it is, within reason); newlines become ⏎."""
    cleaned = _cut(_clean(_cut(text, LINE_CHARS_MAX).replace("\r\n", "\n").replace("\n", "⏎")), LINE_CHARS_MAX)
    cleaned = cleaned.replace("\n", "⏎")
    if width is not None and cells(cleaned) > width:
        room = width - 1
        kept: list[str] = []
        for char in cleaned:
            room -= _char_cells(char)
            if room < 0:
                break
            kept.append(char)
        cleaned = "".join(kept) + ELLIPSIS
    return Printable(cleaned)


def _char_cells(char: str) -> int:
    if char.isascii():
        return 1
    if char in (_ZWNJ, _ZWJ) or unicodedata.category(char) in ("Mn", "Me"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def cells(text: str) -> int:
    """How many terminal cells a cleaned one-line text takes; an emoji made of several counts each of its parts."""
    return len(text) if text.isascii() else sum(map(_char_cells, text))


# --- QR codes -------------------------------------------------------------------------------------------------------

QUIET_ZONE = 2
"""Light modules around a code. The standard asks for four; scanners are content with two, and 80x24 has no room."""
_HALF_BLOCKS: Final = " ▀▄█"
_ALPHANUMERIC: Final = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ $%*+-./:")


def printable_key(key_id: str) -> Printable:
    """A DID or the id of a key by its beginning and its end, for a line that has other things to say too."""
    did, mark, fragment = printable_line(key_id).partition("#")
    if len(did) > KEY_CHARS_MAX:
        did = f"{did[:14]}{ELLIPSIS}{did[-6:]}"
    return printable_line(did + mark + fragment, KEY_CELLS_MAX)


def qr_modules(text: str) -> list[list[bool]]:
    """`text` as a QR code (ISO/IEC 18004, level L), quiet zone included: rows of modules, True where one is dark.

    Raises ValueError when the text does not fit any QR code.
    """
    from qrcode.constants import ERROR_CORRECT_L
    from qrcode.exceptions import DataOverflowError
    from qrcode.main import QRCode
    from qrcode.util import MODE_8BIT_BYTE, MODE_ALPHA_NUM, QRData

    code = QRCode(error_correction=ERROR_CORRECT_L, border=QUIET_ZONE)
    mode = MODE_ALPHA_NUM if _ALPHANUMERIC.issuperset(text) else MODE_8BIT_BYTE
    code.add_data(QRData(text.encode(), mode=mode))
    try:
        matrix = code.get_matrix()
    except (DataOverflowError, ValueError) as error:
        raise ValueError("this text is too long for a QR code") from error
    return [[bool(module) for module in row] for row in matrix]


def qr_half_blocks(text: str) -> list[str]:
    """`text` as a QR code, two modules to a character cell.

    Ink is a dark module: paint the rows black on bright white, or a dark theme turns the code inside out. Raises
    ValueError when the text does not fit any QR code.
    """
    rows = qr_modules(text)
    if len(rows) % 2:
        rows.append([False] * len(rows[0]))
    return [
        "".join(_HALF_BLOCKS[top + 2 * bottom] for top, bottom in zip(upper, lower, strict=True))
        for upper, lower in zip(rows[::2], rows[1::2], strict=True)
    ]


def qr_ansi(text: str) -> str:
    """The rows of `qr_half_blocks` in black on bright white, for plain output; scans on dark and light terminals."""
    return "\n".join(f"\x1b[30;107m{row}\x1b[0m" for row in qr_half_blocks(text))
