"""Mentions: the members that a message names, resolved by its author's agent."""

import pytest

from zerochat.agent.api.post_commands import mentions
from zerochat.group.messages.bodies import MENTIONS_MAX

NAMES = {
    "a": "Ann",
    "b": "Bob",
    "ab": "Ann Bee",
    "j": "José",
    "x": "twin",
    "y": "Twin",
    "r": "r.*",
    "e": "a@b",
    "ß": "Straße",
}


@pytest.mark.parametrize(
    ("text", "called"),
    [
        ("hello @Bob", "b"),
        ("hello @bob, and @ANN!", "b a"),
        ("@Ann Bee: look", "ab"),
        ("@Ann Beetle", "a"),
        ("Ann Bee, look", "ab"),
        ("Bob: look, @Ann", "b a"),
        ("  bob, yes", "b"),
        ("so Bob: look", ""),
        ("Bobby: look", ""),
        ("@Bobby", ""),
        ("@Bob's", "b"),
        ("mail ann@bob.example", ""),
        ("@@Bob (@Bob)", "b"),
        ("@twin @Twin twin: yes", ""),
        ("@Jose\u0301", "j"),
        ("@r.* and @rxx", "r"),
        ("@a@b", "e"),
        ("@STRASSE", "ß"),
        ("line\n@Bob\nAnn: no", "b"),
        ("", ""),
    ],
)
def test_members_mentioned_in_a_text(text: str, called: str) -> None:
    assert mentions(text, NAMES) == tuple(called.split())


def test_mentions_are_bounded() -> None:
    many = {f"d{n}": f"n{n}" for n in range(64)}
    text = " ".join(f"@n{n}" for n in range(64))
    assert mentions(text, many) == tuple(f"d{n}" for n in range(MENTIONS_MAX))
    assert mentions("@" * 65_536 + "n1" * 10, {**many, "z": "@" * 64}) is not None
    assert mentions("hello @n1", {}) == ()
