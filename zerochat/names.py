"""Names that people choose, for themselves and for groups: what may stand in one."""

import unicodedata

from zerochat.errors import BadName

NAME_CHARS_MAX = 64
"""Long enough for every person's name, short enough for one line of a narrow terminal."""


def checked_name(text: str, what: str) -> str:
    """The name in Unicode's composed form (NFC), fit to be shown anywhere. Raises BadName.

    `what` says whose name it is ("name", "group"), for the refusal.
    """
    name = unicodedata.normalize("NFC", text)
    why = _fault(name)
    if why:
        raise BadName(name=ascii(text[:NAME_CHARS_MAX]), why=f"a {what} {why}")
    return name


def _fault(name: str) -> str:
    if not name:
        return "has at least one character"
    if len(name) > NAME_CHARS_MAX:
        return f"has at most {NAME_CHARS_MAX} characters"
    if name != name.strip():
        return "does not begin or end with a space"
    if any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for c in name):
        return "has no control or invisible characters"
    return ""
