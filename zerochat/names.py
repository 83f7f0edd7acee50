"""Validation and disambiguation of display names and group names.

All members must agree on which names are valid, or their views of a group diverge: a rule may not depend on the Unicode
version of the running Python.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Mapping

from zerochat.errors import BadName, unique_prefixes
from zerochat.ink import has_ink

NAME_CHARS_MAX = 64
"""Long enough for personal names, short enough for one line of a narrow terminal."""
PREFIX_CHARS_MIN = 4
"""Minimum length of an id prefix."""

_SPACES = re.compile("[\u0020\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]+")
_SELECTORS = re.compile("[\ufe00-\ufe0f]")
"""They choose between the shapes of the character before, as in most emoji."""
MARKS = "§✓●◎◐○≈▸"
"""What the chat draws beside names, and no name of a person needs: a name cannot imitate a mark."""
_MARK = re.compile(f"^@|[{MARKS}]|(?<![lL])·|·(?![lL])")
"""Also the @ of private conversations, and the dot before a key suffix, except in the Catalan l·l."""


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
    """The name in Unicode's composed form (NFC), with plain spaces. Raises BadName.

    `what`: kind of name for the error message ("name", "group's name").
    """
    name = _SPACES.sub(" ", unicodedata.normalize("NFC", text))
    if hidden := _first_hidden(name):
        raise BadName(name="This", why=f"it contains the invisible character {_character_name(hidden)}")
    if why := fault_of(name):
        raise BadName(name=f"'{name[:NAME_CHARS_MAX]}'", why=f"a {what} {why}")
    return name


def fault_of(name: str) -> str:
    """Why a name is invalid; empty if it is valid. For names of peers, which are not normalised."""
    if not name:
        return "must have at least one character"
    if len(name) > NAME_CHARS_MAX:
        return f"must have at most {NAME_CHARS_MAX} characters"
    if name != name.strip():
        return "must not begin or end with a space"
    if "  " in name:
        return "must not have two spaces in a row"
    if _first_hidden(name) or not has_ink(name):
        return "must not contain control or invisible characters"
    if mark := _MARK.search(name):
        return f"must not {'begin with' if mark[0] == '@' else 'contain'} {mark[0]}, which the chat uses as a mark"
    return ""


def hidden_in(text: str, allowed: Collection[str]) -> str:
    """The name of the first invisible character of a text that is not among the allowed ones, or empty."""
    found = filter(_is_hidden, _SPACES.sub(" ", text))
    return next((_character_name(char) for char in found if char not in allowed), "")


def without_hidden(text: str) -> str:
    """A text without invisible characters, and with plain spaces."""
    return "".join(char for char in _SPACES.sub(" ", text) if not _is_hidden(char))


def _is_hidden(char: str) -> bool:
    return char != " " and not has_ink(char) and not _SELECTORS.match(char)


def _first_hidden(name: str) -> str:
    """The first invisible character of a name, or empty."""
    return next(filter(_is_hidden, name), "")


def _character_name(character: str) -> str:
    name, code = unicodedata.name(character, ""), f"U+{ord(character):04X}"
    return f"{name} ({code})" if name else code


def ambiguous_prefixes(shown: Mapping[str, str], likeness: Callable[[str], str]) -> dict[str, str]:
    """Id prefixes of all entries whose displayed name is not unique, by id. `shown`: displayed names by id. `likeness`:
    equal for names that look alike."""
    count = Counter(map(likeness, shown.values()))
    prefixes = dict(zip(sorted(shown), unique_prefixes(shown, PREFIX_CHARS_MIN), strict=True))
    return {id: prefixes[id] for id, name in shown.items() if count[likeness(name)] > 1}
