"""Detection of confusable names: mixed scripts, or equal skeletons (a subset of Unicode UTS 39).

A hint, not a proof: the key identifies a member, and the full UTS 39 table has many more lookalikes.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache

from zerochat.ink import has_ink
from zerochat.terminal_text import REPLACEMENT

_EAST_ASIAN = frozenset(["CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"])
_LOOK_LATIN = str.maketrans("аеорсухіјѕԁһԛԝгвкмнтαειορτυν01iı|ǀӏ", "aeopcyxljsdhqwrbkmhtaeloptuvollllll")
"""Cyrillic and Greek letters, and digits, that look Latin, after case folding; capital I, small l and 1 are alike."""
SUFFIX_CHARS = 4
"""Characters of a key that disambiguate names that look alike: 58⁴ = 11 million possibilities."""
_DECORATION = re.compile(r"(?:\s*\(you\)|[.#~·•∙⋅・･‧․]\w{4})$", re.IGNORECASE)
"""What the chat, or an imitation of it, puts behind a name, without punctuation."""


@lru_cache(maxsize=4_096)
def skeleton(name: str) -> str:
    """The confusable skeleton of a name: names with equal skeletons look alike. Without punctuation, if it has letters
    or symbols."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    inked = [char for char in unicodedata.normalize("NFD", plain) if has_ink(char) and char != REPLACEMENT]
    parts = [(char, category) for char in inked if (category := unicodedata.category(char)) != "Mn"]
    worded = [char for char, category in parts if not category.startswith("P")]
    return "".join(worded or [char for char, _ in parts]).translate(_LOOK_LATIN)


@lru_cache(maxsize=4_096)
def likenesses(name: str, did: str) -> frozenset[str]:
    """The skeletons of what a member may be shown as: its name alone, without a decoration that it imitates, and with
    the suffix of its key. Two members with a common one look alike."""
    bare = name
    while len(shorter := _DECORATION.sub("", bare)) < len(bare) and has_ink(shorter):
        bare = shorter
    return frozenset({skeleton(name), skeleton(bare), skeleton(name + did[-SUFFIX_CHARS:])})


@lru_cache(maxsize=4_096)
def is_mixed(name: str) -> bool:
    """Whether a name mixes scripts as no language does; East Asian ones go together, and with Latin."""
    scripts = set()
    for char in unicodedata.normalize("NFKC", name):
        if char.isalpha():
            script = unicodedata.name(char, "?").partition(" ")[0].partition("-")[0]
            scripts.add("EAST ASIAN" if script in _EAST_ASIAN else script)
    scripts.discard("MODIFIER")  # modifier letters belong to the preceding script
    return len(scripts) > 1 and scripts != {"EAST ASIAN", "LATIN"}


def deceptive(nicks: Mapping[str, str]) -> dict[str, str]:
    """The deceptive names among `nicks` (DID to name), each with its problem as the end of a sentence."""
    bearers = Counter(one for did, nick in nicks.items() for one in likenesses(nick, did))
    found = {
        did: warning_text(is_mixed(nick), any(bearers[one] > 1 for one in likenesses(nick, did)))
        for did, nick in nicks.items()
    }
    return {did: text for did, text in found.items() if text}


def warning_text(mixed: bool, shared: bool) -> str:
    """The problem of a name that mixes scripts, or looks like another's, as the end of a sentence; empty: none."""
    problems = ["looks like another member's"] * shared + ["mixes letters of several scripts"] * mixed
    return ", and ".join(problems)
