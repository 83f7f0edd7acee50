"""Allowed characters in names, independent of the Python version."""

import re
import sys
import unicodedata
from unicodedata import name

import pytest

from zerochat.errors import BadName
from zerochat.ink import has_ink
from zerochat.names import NAME_CHARS_MAX, checked_name, fault_of
from zerochat.presentation.lookalikes import skeleton
from zerochat.terminal_text import printable


@pytest.mark.parametrize(
    "name", ["alice", "Zoë", "李雷", "R2-D2", "me & you", "Gal·la", "❤\ufe0f", "\U0001fae9", "x" * NAME_CHARS_MAX]
)
def test_names_that_people_have(name):
    assert checked_name(name, "name") == unicodedata.normalize("NFC", name)


def test_the_composed_form_is_kept():
    assert checked_name("Zoe\u0308", "name") == "Zoë"
    assert checked_name("山田\u3000太郎", "name") == checked_name("山田 \u00a0太郎", "name") == "山田 太郎"


@pytest.mark.parametrize(
    "name",
    [
        "",
        " alice",
        "alice ",
        "\talice",
        "a\nb",
        "a\x1b[2Jb",
        "a\x9bb",
        "a\u202eb",
        "a\u200bb",
        "\u3164",
        "Bob\u2800",
        "\ufffc",
        "\U0001d159",
        "\ufe0f",
        "\U00013441",
        "x" * 65,
        "a\ud800",
    ],
    ids=ascii,
)
def test_names_that_hide_something(name):
    with pytest.raises(BadName):
        checked_name(name, "name")


def test_invalid_name_characters_are_named_once():
    with pytest.raises(BadName) as refused:
        checked_name("zoë \N{WOMAN}\u200d\N{PERSONAL COMPUTER}\u200d", "name")
    said = refused.value.sentence()
    assert said.count("ZERO WIDTH JOINER (U+200D)") == 1 and "\\u" not in said and "\u200d" not in said
    with pytest.raises(BadName, match=r"invisible character U\+0007\."):
        checked_name("a\ab", "name")
    with pytest.raises(BadName, match="a group's name must have at most 64"):
        checked_name("x" * 65, "group's name")


@pytest.mark.parametrize(
    "name", ["@Alice", "Alice§", "✓ Alice", "Alice·AAAA", "●", "l·", "Bob\u3000", "Bob  Bell", "a\u00a0b"]
)
def test_peers_names_without_marks_and_padding(name):
    """The marks that the chat draws beside names, and spaces that would move them."""
    assert fault_of(name)


# --- ink --------------------------------------------------------------------------------------------------------------

PREPENDED = {*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD}
"""Format characters that are drawn (Prepended_Concatenation_Mark)."""
IGNORABLE = {0x34F, 0x115F, 0x1160, 0x17B4, 0x17B5, *range(0x180B, 0x1810), 0x2065, 0x3164, *range(0xFE00, 0xFE10)}
IGNORABLE |= {0xFFA0, *range(0xFFF0, 0xFFF9), *range(0xE0000, 0xE1000)}
"""Other_Default_Ignorable_Code_Point and Variation_Selector, with those reserved."""
BLANK = {0x2800, 0xFFFC, 0x1D159, 0x16FE4, 0x13439, *range(0x1343A, 0x13443)}
"""Letters, symbols and marks without a shape, and hieroglyphs that only Unicode 15 assigns."""


def test_ink_follows_from_the_properties_of_all_characters():
    def expected(code):
        if code in PREPENDED:
            return True
        category = unicodedata.category(chr(code))
        noncharacter = code & 0xFFFE == 0xFFFE or 0xFDD0 <= code <= 0xFDEF
        return not (category in NO_INK or noncharacter or code in IGNORABLE or code in BLANK)

    NO_INK = {"Cc", "Cf", "Cs", "Co", "Zs", "Zl", "Zp"}
    wrong = [hex(code) for code in range(sys.maxunicode + 1) if has_ink(chr(code)) is not expected(code)]
    assert wrong == []
    called = re.compile("(?<!GAP )(?<!LINE )FILLER|VARIATION SELECTOR|INVISIBLE|ZERO WIDTH|PATTERN BLANK|NULL NOTE")
    assert not [one for one in map(chr, range(sys.maxunicode + 1)) if has_ink(one) and called.search(name(one, ""))]


def test_names_texts_and_skeletons_agree_about_ink():
    """What has no ink is refused in names, drawn as nothing or as a replacement in texts, and ignored in skeletons."""
    blank = [chr(code) for code in range(0x20000) if not has_ink(chr(code))]
    kept = " \ufe0f"
    for char in blank:
        if char in kept or "\ufe00" <= char <= "\ufe0f":
            continue
        assert fault_of(f"a{char}b"), ascii(char)
        category = unicodedata.category(char)
        if category not in ("Zs", "Mn", "Cc") and char not in "\u200c\u200d\u2028\u2029":
            assert printable(char).strip() in ("", "\ufffd"), ascii(char)
        assert not category.startswith(("L", "S", "M")) or skeleton(f"a{char}b") == skeleton("ab"), ascii(char)
