"""Which characters are drawn: Unicode's general category, Default_Ignorable_Code_Point, and a list of blanks.

All members must agree on which names are valid, or their views of a group diverge. The answer is therefore a fixed list
of code points, independent of the Unicode version of the running Python; a test derives it from the properties.
"""

import re

_WITHOUT_INK = (
    (0x0000, 0x0020),  # controls, space
    (0x007F, 0x00A0),  # DEL, more controls, no-break space
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x1680, 0x1680),  # Ogham space
    (0x17B4, 0x17B5),  # Khmer vowels without a shape
    (0x180B, 0x180F),  # Mongolian selectors
    (0x2000, 0x200F),  # spaces, no width, joiners, direction marks
    (0x2028, 0x202F),  # separators, embeddings, overrides, narrow space
    (0x205F, 0x206F),  # space, word joiner, invisible operators, isolates
    (0x2800, 0x2800),  # blank: Braille pattern without a dot
    (0x3000, 0x3000),  # ideographic space
    (0x3164, 0x3164),  # Hangul filler
    (0xD800, 0xF8FF),  # surrogates and private use
    (0xFDD0, 0xFDEF),  # no characters at all, like the last two of each plane
    (0xFE00, 0xFE0F),  # selectors of the style of the character before
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # half-width Hangul filler
    (0xFFF0, 0xFFFC),  # specials; blank: object replacement
    (0xFFFE, 0xFFFF),
    (0x13430, 0x13442),  # format controls of hieroglyphs; blanks: a mirror sign, and two blanks
    (0x16FE4, 0x16FE4),  # blank: Khitan filler
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D159, 0x1D159),  # blank: musical notehead without a shape
    (0x1D173, 0x1D17A),  # musical format controls
    *((plane + 0xFFFE, plane + 0xFFFF) for plane in range(0x10000, 0xE0000, 0x10000)),
    (0xE0000, 0xE0FFF),  # tags, selectors
    (0xEFFFE, 0x10FFFF),  # private use
)
"""Ranges, first and last code point: of the categories Cc, Cf, Cs, Co, Zs, Zl and Zp all but the number and verse signs
of Arabic, Syriac and Kaithi (Prepended_Concatenation_Mark); the ignorable characters; and the blanks, which are letters
and symbols by category and have no shape in any font. An unassigned character has ink: it may be next year's emoji."""
_CLASS = "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in _WITHOUT_INK)
_INK = re.compile(f"[^{_CLASS}]")


def has_ink(text: str) -> bool:
    """Whether any character of the text is drawn."""
    return _INK.search(text) is not None
