"""Validation and disambiguation of display names and group names.

All members must agree on which names are valid, or their views of a group diverge. The rule is therefore a fixed list
of code points, independent of the Unicode version of the running Python.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Mapping

from zerochat.errors import BadName, unique_prefixes

NAME_CHARS_MAX = 64
"""Long enough for personal names, short enough for one line of a narrow terminal."""
PREFIX_CHARS_MIN = 4
"""Minimum length of an id prefix."""

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
    (0x2800, 0x2800),  # Braille pattern without a dot
    (0x3164, 0x3164),  # Hangul filler
    (0xD800, 0xF8FF),  # surrogates and private use
    (0xFEFF, 0xFEFF),  # byte order mark
    (0xFFA0, 0xFFA0),  # half-width Hangul filler
    (0xFFF0, 0xFFFC),  # specials, object replacement
    (0xFFFE, 0xFFFF),  # no characters at all
    (0x1BCA0, 0x1BCA3),  # shorthand format controls
    (0x1D159, 0x1D159),  # musical notehead without a shape
    (0x1D173, 0x1D17A),  # musical format controls
    (0xE0000, 0x10FFFF),  # tags, selectors, private use
)
"""Ranges of invisible characters and of characters that hide text: first and last code point."""
_HIDDEN_PATTERN = re.compile("[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in _HIDDEN) + "]")


def matching_ids(known: Mapping[str, Collection[str]], wanted: str) -> list[str]:
    """The ids that a reference may mean, with the names of each: the id itself, else all with that name or prefix.

    A peer chooses names, so a name does not take precedence over the prefix of another's id: both match, and the
    reference is ambiguous.
    """
    if wanted in known:
        return [wanted]
    is_prefix = len(wanted) >= PREFIX_CHARS_MIN
    return [id_ for id_, names in known.items() if wanted in names or (is_prefix and id_.startswith(wanted))]


def checked_name(text: str, what: str) -> str:
    """The name in Unicode's composed form (NFC). Raises BadName.

    `what`: kind of name for the error message ("name", "group's name").
    """
    name = unicodedata.normalize("NFC", text)
    if hidden := _first_hidden(name):
        raise BadName(name="This", why=f"it contains the invisible character {_character_name(hidden)}")
    if why := fault_of(name):
        raise BadName(name=ascii(text[:NAME_CHARS_MAX]), why=f"a {what} {why}")
    return name


def fault_of(name: str) -> str:
    """Why a name is invalid; empty if it is valid. For names of peers, which are not normalised."""
    if not name:
        return "must have at least one character"
    if len(name) > NAME_CHARS_MAX:
        return f"must have at most {NAME_CHARS_MAX} characters"
    if name != name.strip():
        return "must not begin or end with a space"
    if _first_hidden(name):
        return "must not contain control or invisible characters"
    return ""


def without_hidden(text: str) -> str:
    """A text without invisible characters."""
    return _HIDDEN_PATTERN.sub("", text)


def _first_hidden(name: str) -> str:
    """The first invisible character of a name, or empty."""
    found = _HIDDEN_PATTERN.search(name)
    return found[0] if found else ""


def _character_name(character: str) -> str:
    name, code = unicodedata.name(character, ""), f"U+{ord(character):04X}"
    return f"{name} ({code})" if name else code


def ambiguous_prefixes(shown: Mapping[str, str]) -> dict[str, str]:
    """Id prefixes of all entries whose displayed name is not unique, by id. `shown`: displayed names by id."""
    count = Counter(name.casefold() for name in shown.values())
    prefixes = dict(zip(sorted(shown), unique_prefixes(shown, PREFIX_CHARS_MIN), strict=True))
    return {id: prefixes[id] for id, name in shown.items() if count[name.casefold()] > 1}
