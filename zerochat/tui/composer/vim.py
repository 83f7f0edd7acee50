"""Vim's normal mode for the composer: a small set of motions and edits, as pure functions of text and cursor offset."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from unicodedata import category


@dataclass(frozen=True, slots=True)
class Change:
    """`text` replaces the characters from `start` to `end`; then the cursor is at `cursor`."""

    start: int
    end: int
    text: str
    cursor: int
    insert: bool = False
    """Whether insert mode follows."""
    killed: str | None = None
    """Deleted text for `p`; a whole line ends with a newline."""


def _kind(char: str) -> int:
    """0: blank, 1: part of a word, 2: other."""
    if char.isspace():
        return 0
    return 1 if char.isalnum() or char == "_" or category(char)[0] == "M" or category(char) == "Cf" else 2


def _line(text: str, at: int) -> tuple[int, int]:
    """Start and end of the line, without its newline."""
    end = text.find("\n", at)
    return text.rfind("\n", 0, at) + 1, len(text) if end < 0 else end


def _right(text: str, at: int) -> int:
    return min(at + 1, _line(text, at)[1])


def _next_word(text: str, at: int) -> int:
    kind = _kind(text[at]) if at < len(text) else 0
    while kind and at < len(text) and _kind(text[at]) == kind:
        at += 1
    while at < len(text) and _kind(text[at]) == 0:
        at += 1
    return at


def _previous_word(text: str, at: int) -> int:
    at -= 1
    while at > 0 and _kind(text[at]) == 0:
        at -= 1
    while at > 0 and _kind(text[at - 1]) == _kind(text[at]):
        at -= 1
    return max(at, 0)


def _word_end(text: str, at: int) -> int:
    at += 1
    while at < len(text) and _kind(text[at]) == 0:
        at += 1
    while at + 1 < len(text) and _kind(text[at + 1]) == _kind(text[at]):
        at += 1
    return max(min(at, len(text) - 1), 0)


MOTIONS: Final[Mapping[str, Callable[[str, int], int]]] = {
    "h": lambda text, at: max(at - 1, _line(text, at)[0]),
    "l": _right,
    "w": _next_word,
    "b": _previous_word,
    "e": _word_end,
    "0": lambda text, at: _line(text, at)[0],
    "$": lambda text, at: _line(text, at)[1],
}
ACTIONS: Final = {"j": "cursor_down", "k": "cursor_up", "u": "undo"}
"""Keys that are actions of the composer."""


def clamp(text: str, at: int) -> int:
    """In normal mode the cursor stands on a character, not behind the last one."""
    start, end = _line(text, at)
    return max(start, end - 1) if at >= end else at


class NormalMode:
    """`press` returns what a key does: a change, the name of an action (empty: no such key), or nothing yet."""

    def __init__(self) -> None:
        self.on = False
        self.operator = ""
        """`d` or `c`, waiting for its motion."""

    def press(self, key: str, text: str, at: int, killed: str) -> Change | str | None:
        operator, self.operator = self.operator, ""
        if operator:
            return self._operate(operator, key, text, at)
        if key in ACTIONS:
            return ACTIONS[key]
        if key in MOTIONS:
            to = clamp(text, MOTIONS[key](text, at))
            return Change(to, to, "", to)
        if key in ("d", "c"):
            self.operator = key
            return None
        if key in ("D", "C", "x"):
            return self._operate("c" if key == "C" else "d", "l" if key == "x" else "$", text, at)
        return _insertion(key, text, at, killed)

    def _operate(self, operator: str, key: str, text: str, at: int) -> Change | None:
        start, end = _line(text, at)
        if key == operator == "d":  # with its newline, or the one before the last line
            end = min(end + 1, len(text))
            first = start - 1 if end == len(text) and start > 0 and text[end - 1] != "\n" else start
            left = text[:first] + text[end:]
            to = _line(left, min(first, len(left)))[0]
            return Change(first, end, "", to, killed=text[start:end].removesuffix("\n") + "\n")
        if key == operator:
            return Change(start, end, "", start, insert=True, killed=text[start:end])
        if key not in MOTIONS:
            return None
        motion = "e" if operator == "c" and key == "w" and _kind(text[at : at + 1] or " ") else key  # as vim has it
        to = min(MOTIONS[motion](text, at) + (motion == "e"), len(text))
        if key == "w":
            to = min(to, end)  # not across the line
        first, last = min(at, to), max(at, to)
        left = text[:first] + text[last:]
        insert = operator == "c"
        return Change(first, last, "", first if insert else clamp(left, first), insert, text[first:last])


def _insertion(key: str, text: str, at: int, killed: str) -> Change | str:
    """Keys that start insert mode, and `p`."""
    start, end = _line(text, at)
    blanks = len(text[start:end]) - len(text[start:end].lstrip())
    places = {"i": at, "a": min(at + 1, end), "A": end, "I": start + blanks}
    if key in places:
        return Change(places[key], places[key], "", places[key], insert=True)
    if key == "o":
        return Change(end, end, "\n", end + 1, insert=True)
    if key == "p" and killed.endswith("\n"):
        return Change(end, end, "\n" + killed[:-1], end + 1)
    if key == "p":
        place = min(at + 1, end)
        return Change(place, place, killed, max(place + len(killed) - 1, 0))
    return ""
