"""Allowed characters in names, independent of the Python version."""

import sys
import unicodedata

import pytest

from zerochat.errors import BadName
from zerochat.names import NAME_CHARS_MAX, checked_name


@pytest.mark.parametrize(
    "name", ["alice", "Zoë", "李雷", "R2-D2", "me & you", "❤\ufe0f", "\U0001fae9", "x" * NAME_CHARS_MAX]
)
def test_names_that_people_have(name):
    assert checked_name(name, "name") == unicodedata.normalize("NFC", name)


def test_the_composed_form_is_kept():
    assert checked_name("Zoe\u0308", "name") == "Zoë"


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


@pytest.mark.slow
def test_control_and_format_characters_are_refused():
    known = {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    visible = {0x0600, 0x0601, 0x0602, 0x0603, 0x0604, 0x0605, 0x06DD, 0x070F, 0x0890, 0x0891, 0x08E2, 0x110BD, 0x110CD}
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)) in known and code not in visible and not 0x13430 <= code <= 0x1343F:
            try:  # 100,000 names: pytest.raises would take longer than the check
                checked_name(f"a{chr(code)}b", "name")
            except BadName:
                continue
            raise AssertionError(hex(code))
