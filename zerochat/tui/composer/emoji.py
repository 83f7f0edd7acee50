"""Emoji by their names: those that people answer with, and the rest as Unicode names them."""

import unicodedata
from functools import lru_cache

COMMON = ("👍", "👎", "❤️", "😂", "🎉", "😮", "😢", "🙏", "👀", "✅", "🚀", "🔥")
"""A dozen that are enough nearly always."""
SHORT = {
    "+1": "👍", "-1": "👎", "heart": "❤️", "lol": "😂", "joy": "😂", "tada": "🎉", "party": "🎉", "wow": "😮",
    "sad": "😢", "thanks": "🙏", "pray": "🙏", "please": "🙏", "eyes": "👀", "ok": "👌", "yes": "✅", "check": "✅",
    "done": "✅", "no": "❌", "rocket": "🚀", "fire": "🔥", "smile": "😊", "grin": "😁", "wink": "😉", "think": "🤔",
    "thinking": "🤔", "clap": "👏", "wave": "👋", "100": "💯", "shrug": "🤷", "cry": "😢", "angry": "😠",
    "coffee": "☕", "beer": "🍺", "cake": "🎂", "star": "⭐", "question": "❓", "warning": "⚠️", "bug": "🐛",
}  # fmt: skip
"""Names that chats know and Unicode does not."""
FOUND_MAX = 8
RANGES = (range(0x2600, 0x27C0), range(0x2B00, 0x2C00), range(0x1F300, 0x1F650), range(0x1F680, 0x1F700),
          range(0x1F7E0, 0x1F7F0), range(0x1F90C, 0x1FB00))  # fmt: skip
EMOJI_CHARS_MAX = 32
"""More than any has; the agent has the exact limit."""


@lru_cache(maxsize=1)
def _named() -> dict[str, str]:
    """Every pictograph of this Python's Unicode by its name, in small letters."""
    found = {}
    for codes in RANGES:
        for code in codes:
            name = unicodedata.name(chr(code), "")
            wide = unicodedata.east_asian_width(chr(code)) == "W"
            if name and (wide or code < 0x2700) and unicodedata.category(chr(code)) == "So":
                found[name.lower()] = chr(code)
    return found


def named(name: str) -> str | None:
    """The emoji with this name, with colons or without; what is no word names itself, and the agent judges it. None:
    there is no such."""
    wanted = name.strip()
    if wanted and not wanted.isascii():
        return wanted[:EMOJI_CHARS_MAX]
    wanted = wanted.strip(":").lower().replace("_", " ")
    return SHORT.get(wanted) or _named().get(wanted)


def find(text: str, most: int = FOUND_MAX) -> list[tuple[str, str]]:
    """(emoji, name) of those whose names have all the words of `text`, the best first."""
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
    """Whether the words begin words of the name."""
    return all(any(part.startswith(word) for part in name.split()) for word in words)
