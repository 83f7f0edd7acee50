"""Names that people choose, for themselves and for groups: what may stand in one, and which are told apart by an id.

The same name must be good or bad at every member, or their views of a group would part: so the rule is a fixed list of
code points, and not whatever the Unicode tables of this or that Python say of characters that were added later.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping

from zerochat.errors import BadName, beginnings

NAME_CHARS_MAX = 64
"""Long enough for every person's name, short enough for one line of a narrow terminal."""
BEGINNING_CHARS = 4
"""Of an id: as few letters of it as may stand for all of it."""

_HIDDEN = (
    (0x0000, 0x001F),  # controls
    (0x007F, 0x009F),  # DEL and more controls
    (0x00AD, 0x00AD),  # soft hyphen
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x061C, 0x061C),  # Arabic letter mark
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer vowels without a shape
    (0x180B, 0x180F),  # Mongolian selectors
    (0x200B, 0x200F),  # no width, joiners, direction marks
    (0x2028, 0x202E),  # separators, embeddings, overrides
    (0x2060, 0x206F),  # word joiner, invisible operators, isolates
    (0x3164, 0x3164),  # Hangul filler
    (0xD800, 0xF8FF),  # surrogates and private use
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # half-width Hangul filler
    (0xFFF0, 0xFFFB),  # specials
    (0xFFFE, 0xFFFF),  # no characters at all
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D173, 0x1D17A),  # musical format controls
    (0xE0000, 0x10FFFF),  # tags, selectors, private use
)
"""What nobody can see, or what hides something: first and last code point."""
_HIDDEN_PATTERN = re.compile("[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in _HIDDEN) + "]")


def checked_name(text: str, what: str) -> str:
    """The name in Unicode's composed form (NFC), fit to be shown anywhere. Raises BadName.

    `what` says whose name it is ("name", "group's name"), for the refusal.
    """
    name = unicodedata.normalize("NFC", text)
    if hidden := _first_hidden(name):
        raise BadName(name="This", why=f"{_called(hidden)} may not stand in one, as nobody could see it")
    if why := fault_of(name):
        raise BadName(name=ascii(text[:NAME_CHARS_MAX]), why=f"a {what} {why}")
    return name


def fault_of(name: str) -> str:
    """What is wrong with a name as it stands, or nothing. For peers' names, which are not composed anew."""
    if not name:
        return "has at least one character"
    if len(name) > NAME_CHARS_MAX:
        return f"has at most {NAME_CHARS_MAX} characters"
    if name != name.strip():
        return "does not begin or end with a space"
    if _first_hidden(name):
        return "has no control or invisible characters"
    return ""


def without_hidden(text: str) -> str:
    """A text without the characters that nobody can see."""
    return _HIDDEN_PATTERN.sub("", text)


def _first_hidden(name: str) -> str:
    """The first character in a name that nobody can see, if there is one."""
    found = _HIDDEN_PATTERN.search(name)
    return found[0] if found else ""


def _called(character: str) -> str:
    """What a character is called that cannot be shown."""
    return f"{unicodedata.name(character, 'the character')} (U+{ord(character):04X})"


def told_apart(shown: Mapping[str, str]) -> dict[str, str]:
    """By id, the first letters of the ids of all whose name another one is shown under too. `shown`: names by id."""
    count = Counter(name.casefold() for name in shown.values())
    letters = dict(zip(sorted(shown), beginnings(shown, BEGINNING_CHARS), strict=True))
    return {id: letters[id] for id, name in shown.items() if count[name.casefold()] > 1}
