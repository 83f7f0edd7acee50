"""Emoji by name: common short names, and Unicode names."""

import unicodedata
from functools import lru_cache

COMMON = ("👍", "👎", "❤️", "😂", "🎉", "😮", "😢", "🙏", "👀", "✅", "🚀", "🔥")
"""The default choices of the reaction picker."""
SHORT = {
    "+1": "👍", "thumbsup": "👍", "-1": "👎", "thumbsdown": "👎",
    "heart": "❤️", "lol": "😂", "joy": "😂", "tada": "🎉", "party": "🎉", "wow": "😮",
    "sad": "😢", "thanks": "🙏", "pray": "🙏", "please": "🙏", "eyes": "👀", "ok": "👌", "yes": "✅", "check": "✅",
    "done": "✅", "no": "❌", "rocket": "🚀", "fire": "🔥", "smile": "😊", "grin": "😁", "wink": "😉", "think": "🤔",
    "thinking": "🤔", "clap": "👏", "wave": "👋", "100": "💯", "shrug": "🤷", "cry": "😢", "angry": "😠",
    "coffee": "☕", "beer": "🍺", "cake": "🎂", "star": "⭐", "question": "❓", "warning": "⚠️", "bug": "🐛",
}  # fmt: skip
"""Short names used in chats; they are not Unicode names."""
FOUND_MAX = 8
RANGES = (range(0x2600, 0x27C0), range(0x2B00, 0x2C00), range(0x1F300, 0x1F650), range(0x1F680, 0x1F700),
          range(0x1F7E0, 0x1F7F0), range(0x1F90C, 0x1FB00))  # fmt: skip
EMOJI_CHARS_MAX = 32
"""Longer than any emoji; the agent enforces the exact limit."""


@lru_cache(maxsize=1)
def _named() -> dict[str, str]:
    """All pictographs of this Python's Unicode version by lower-case name."""
    found = {}
    for codes in RANGES:
        for code in codes:
            name = unicodedata.name(chr(code), "")
            wide = unicodedata.east_asian_width(chr(code)) == "W"
            if name and (wide or code < 0x2700) and unicodedata.category(chr(code)) == "So":
                found[name.lower()] = chr(code)
    return found


def emoji_named(name: str) -> str | None:
    """The emoji of this name, with or without colons; None: unknown. Non-ASCII text is returned for the agent to
    check."""
    wanted = name.strip()
    if wanted and not wanted.isascii():
        return wanted[:EMOJI_CHARS_MAX]
    wanted = wanted.strip(":").lower().replace("_", " ")
    return SHORT.get(wanted) or _named().get(wanted)


def find(text: str, most: int = FOUND_MAX) -> list[tuple[str, str]]:
    """(emoji, name) of the emoji whose names contain all words of `text`, best first."""
    words = text.strip().strip(":").lower().replace("_", " ").split()
    if not words:
        return []
    whole = " ".join(words)
    found: dict[str, str] = {}
    ranked = [
        *((short, emoji) for short, emoji in SHORT.items() if short.startswith(whole)),
        *sorted(
            ((name, emoji) for name, emoji in _named().items() if all(word in name for word in words)),
            key=lambda each: (not _begins(each[0], words), len(each[0])),
        ),
    ]
    for name, emoji in ranked:
        found.setdefault(emoji, name)
        if len(found) >= most:
            break
    return list(found.items())


def _begins(name: str, words: list[str]) -> bool:
    """Whether every word is a prefix of a word of the name."""
    return all(any(part.startswith(word) for part in name.split()) for word in words)
