"""Detection of confusable names: mixed scripts, or equal skeletons (a subset of Unicode UTS 39).

A hint, not a proof: the key identifies a member, and the full UTS 39 table has many more lookalikes.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping

from zerochat.ink import has_ink

_EAST_ASIAN = frozenset(["CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO"])
_LOOK_LATIN = str.maketrans("аеорсухіјѕԁһԛԝгвкмнтαειορτυν01iı|ǀӏ", "aeopcyxljsdhqwrbkmhtaeloptuvollllll")
"""Cyrillic and Greek letters, and digits, that look Latin, after case folding; capital I, small l and 1 are alike."""


def skeleton(name: str) -> str:
    """The confusable skeleton of a name: names with equal skeletons look alike."""
    plain = unicodedata.normalize("NFKC", name).casefold()
    inked = (
        char for char in unicodedata.normalize("NFD", plain) if has_ink(char) and unicodedata.category(char) != "Mn"
    )
    return "".join(inked).translate(_LOOK_LATIN)


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
    skeletons = {did: skeleton(nick) for did, nick in nicks.items()}
    counts = Counter(skeletons.values())
    found = {did: "mixes letters of several scripts" for did, nick in nicks.items() if is_mixed(nick)}
    for did, bare in skeletons.items():
        if counts[bare] > 1:
            found[did] = "looks like another member's" + (f", and {found[did]}" if did in found else "")
    return found
