"""Retention rules: how long messages are kept; parser and sentences."""

import re
from typing import ClassVar, Final

from zerochat.errors import LocalError
from zerochat.limits import KEEP_MS_MAX, KEEP_MS_MIN

FOREVER: Final = "forever"
COPIES: Final = (
    "Others may keep copies: in backups, exports, bots and modified clients, or as pictures of their screens."
)
"""What no retention rule can prevent."""
_UNITS: Final = {"h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_NAMES: Final = (("week", 604_800_000), ("day", 86_400_000), ("hour", 3_600_000))
_SPAN = re.compile(r"(\d{1,5})([hdw])", re.ASCII)


class BadKeep(LocalError):
    """Invalid retention {given}: {why}."""

    exit_code: ClassVar[int] = 2


def read_keep(text: str) -> int:
    """The retention in ms, from 12h, 30d or 4w; 0: `forever`. Raises BadKeep."""
    if text == FOREVER:
        return 0
    match = _SPAN.fullmatch(text)
    if match is None:
        raise BadKeep(given=ascii(text[:32]), why=f"it is a time such as 12h, 30d or 4w, or `{FOREVER}`")
    keep_ms = int(match[1]) * _UNITS[match[2]]
    _check_range(keep_ms, text)
    return keep_ms


def check_keep(keep_ms: int) -> None:
    """Raise BadKeep for a retention (ms) that no group may have."""
    if keep_ms:
        _check_range(keep_ms, f"{keep_ms} ms")


def _check_range(keep_ms: int, given: str) -> None:
    if not KEEP_MS_MIN <= keep_ms <= KEEP_MS_MAX:
        raise BadKeep(given=given, why=f"it is {span_text(KEEP_MS_MIN)} to {span_text(KEEP_MS_MAX)}")


def span_text(keep_ms: int) -> str:
    """A retention (ms) in words: 30 days."""
    if not keep_ms:
        return FOREVER
    name, unit = next((one for one in _NAMES if keep_ms % one[1] == 0 and keep_ms >= 2 * one[1]), _NAMES[-1])
    if name == "week" and keep_ms % (4 * unit):  # 30 days and 2 weeks are usual, 5 weeks are not
        name, unit = ("week", unit) if keep_ms < 4 * unit else _NAMES[1]
    count = keep_ms // unit
    return f"{count:,} {name}" + ("s" if count != 1 else "")


def policy_text(keep_ms: int) -> str:
    """A group's rule, without a full stop."""
    if not keep_ms:
        return "messages do not disappear"
    return f"messages disappear after {span_text(keep_ms)}, for all members; others may keep copies"
