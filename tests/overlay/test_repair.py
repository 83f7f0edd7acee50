"""Pull-based repair: who is asked, when, and for what."""

import random

import pytest

from zerochat.overlay.repair import PARTNERS, SILENCE_MS, WANTED_MAX, is_due, partners, wanted
from zerochat.overlay.ring import Links, Ring


@pytest.mark.parametrize(
    ("heard", "asked", "due"),
    [(0, 0, True), (1, 0, False), (0, 1, False), (1, 1, False), (-5, 0, True), (SILENCE_MS, 0, False)],
)
def test_a_member_asks_after_silence(heard, asked, due):
    assert is_due(heard, asked, SILENCE_MS) == due


def test_partners_are_shortcuts_that_are_up():
    own = Ring("g", [f"m{at}" for at in range(100)]).links("m0")
    down, rng, found = set(own.shortcuts[:3]), random.Random(0).randbytes, set()
    for _ in range(300):
        some = partners(own.without(down), rng)
        assert len(some) == len(set(some)) == PARTNERS
        found |= set(some)
    assert found == set(own.shortcuts) - down


def test_ring_neighbours_are_asked_where_there_are_too_few_shortcuts():
    rng = random.Random(0).randbytes
    assert set(partners(Links(("a",), ("b",), ("c",)), rng, 3)) == {"a", "b", "c"}
    assert partners(Links(("a",)), rng) == ["a"] and partners(Links(), rng) == []


def test_what_is_missing_is_requested_once():
    assert wanted({"a", "b"}, ["c", "a", "d", "c"], {"d"}) == ("c",)
    assert wanted(set(), []) == ()
    assert wanted(set(), map(str, range(1_000))) == tuple(map(str, range(WANTED_MAX)))
