"""Texts in the form that search compares: UTS 10 at primary strength, simplified; and their words.

`fold` drops what writers omit or type in several ways: compatibility forms and widths (NFKC), case, accents, Arabic and
Hebrew points, nuktas, invisible characters, the forms of digits. It keeps what distinguishes letters: the vowel signs
and viramas of Indic scripts, Thai vowels and tone marks, the voicing marks of kana. Hangul is composed.

Chinese, Japanese, Korean, Thai and others, where a word has no spaces around it or grammatical endings attached, are
indexed character by character (`spaced`).
"""

import re
import unicodedata
from bisect import bisect_right
from functools import cache, lru_cache
from itertools import accumulate, pairwise
from typing import Final

from msgspec import Struct

from zerochat.ink import has_ink

UNSPACED: Final = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u1100-\u11ff\uac00-\ud7af"  # Hangul
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003fffd"
)
"""Scripts without spaces around words, as ranges of a class."""
_SIGNS: Final = "\u00a6\u00a9\u00ae\u00b0\u2190-\u2bff\U0001f000-\U0001faff"
_IGNORED_CLASSES: Final = frozenset([1, 7, *range(10, 37), *range(200, 256)])
"""Combining classes of accents, points and nuktas. Others: voicing marks (8), viramas (9), vowel and tone marks."""
_TATWEEL: Final = "\u0640"
"""The Arabic stroke that lengthens a word."""
_LETTERS: Final = str.maketrans(
    {"ı": "i", "ø": "o", "đ": "d", "ł": "l", "ħ": "h", "ŧ": "t", "æ": "ae", "œ": "oe"}
    | {"\u0649": "\u064a", "\u06cc": "\u064a", "\u06a9": "\u0643", "\u0629": "\u0647", "\u06d5": "\u0647"}
)
"""Letters that have no decomposition, or that Arabic and Persian keyboards type differently."""
CLUSTER_CHARS_MAX: Final = 32
"""Characters that are folded together; a longer run of marks is cut."""


class Folded(Struct, frozen=True):
    """A folded text, and where its characters come from."""

    text: str
    ends: tuple[list[int], list[int]] | None = None
    """For each cluster its ends in `text` and in the original; None: each character is its own."""

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """The range of the original that a range of `text`, not empty, comes from."""
        if self.ends is None:
            return start, end
        folded, original = self.ends
        first, last = bisect_right(folded, start), bisect_right(folded, end - 1)
        return original[first - 1] if first else 0, original[last]


def fold(text: str) -> str:
    """A text in its comparable form."""
    return text.lower() if text.isascii() else "".join(map(_fold_cluster, _clusters(text)))


def fold_with_origin(text: str) -> Folded:
    if text.isascii():
        return Folded(text.lower())
    clusters = _clusters(text)
    folded = [_fold_cluster(cluster) for cluster in clusters]
    return Folded("".join(folded), (list(accumulate(map(len, folded))), list(accumulate(map(len, clusters)))))


def _clusters(text: str) -> list[str]:
    """The parts of a text that can be folded alone: a character and those that combine with it."""
    clusters: list[str] = []
    start = 0
    for index, char in enumerate(text):
        if index > start and (not _combines(char) or index - start >= CLUSTER_CHARS_MAX):
            clusters.append(text[start:index])
            start = index
    clusters.append(text[start:])
    return clusters


@lru_cache(maxsize=4096)
def _combines(char: str) -> bool:
    """Whether a character may combine with the one before it, or is dropped."""
    if char.isascii():
        return False
    first = unicodedata.normalize("NFKD", char)[0]
    return unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff" or _is_ignored(first)


@lru_cache(maxsize=4096)
def _fold_cluster(cluster: str) -> str:
    if cluster.isascii():
        return cluster.lower()
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", cluster).casefold())
    kept = "".join(map(_digit, (char for char in plain if not _is_ignored(char))))
    return unicodedata.normalize("NFC", kept.translate(_LETTERS))


def _is_ignored(char: str) -> bool:
    category = unicodedata.category(char)
    if category == "Mn":
        return unicodedata.combining(char) in _IGNORED_CLASSES or not has_ink(char)
    return category in ("Cf", "Me") or char == _TATWEEL or (category in ("Lo", "So") and not has_ink(char))


def _digit(char: str) -> str:
    return char if char.isascii() or (digit := unicodedata.decimal(char, None)) is None else str(digit)


# --- words ----------------------------------------------------------------------------------------------------------


@cache  # Compiling it takes a hundredth of an agent's start, and ASCII texts do not need it.
def _alone() -> re.Pattern[str]:
    """Characters that are words by themselves."""
    return re.compile(f"[{UNSPACED}{_SIGNS}]")


def is_unspaced(char: str) -> bool:
    """Whether a character belongs to a script without spaces around words, or is a sign such as an emoji."""
    return _alone().match(char) is not None


def spaced(text: str) -> str:
    """A folded text with spaces around characters that are words by themselves."""
    return text if text.isascii() else _alone().sub(r" \g<0> ", text)


@cache
def marks() -> str:
    """The marks that `fold` keeps, as ranges of a class: within words, and no letters for `re`."""
    found: list[list[int]] = []
    for code in range(0x300, 0x1F000):
        char = chr(code)
        if unicodedata.category(char)[0] == "M" and not _is_ignored(char):
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in found)


@cache
def _word() -> re.Pattern[str]:
    return re.compile(rf"(?:[^\W_]|[{marks()}])+")


def words_of(text: str) -> list[str]:
    """The words of a folded text."""
    if text.isascii():
        return re.findall(r"[^\W_]+", text)
    return [
        word
        for part in spaced(text).split()
        for word in ([part] if _alone().fullmatch(part) else _word().findall(part))
    ]


def pattern_of(words: list[str], *, whole: bool) -> str:
    """A pattern for these words, not empty, one after the other in a folded text. `whole`: the last one must match
    completely, not as a prefix."""
    outside = rf"(?![{marks()}])[\W_]"
    parts = [re.escape(words[0])]
    for before, word in pairwise(words):
        adjacent = _alone().match(before) or _alone().match(word)
        parts += [f"(?:{outside}){'*' if adjacent else '+'}", re.escape(word)]
    start = "" if _alone().match(words[0]) else rf"(?:(?<![^\W_])(?<![{marks()}])|(?<=[{UNSPACED}]))"
    end = rf"(?=[{UNSPACED}]|{outside}|\Z)" if whole and not _alone().match(words[-1]) else ""
    return start + "".join(parts) + end
