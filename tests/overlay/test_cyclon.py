"""CYCLON: the oldest is asked, answers are bounded, and only a subject makes its descriptor younger."""

import random

from hypothesis import given
from hypothesis import strategies as st

from zerochat.overlay.cyclon import EXCHANGE, LIFE_MS, SKEW_MS, Descriptor, answer, is_valid, merged, oldest

NOW = 10_000_000
DESCRIPTORS = st.lists(st.builds(Descriptor, st.sampled_from("abcdefgh"), st.integers(NOW - LIFE_MS, NOW)), max_size=20)


def view_of(*ages):
    return {f"p{at}": Descriptor(f"p{at}", NOW - age) for at, age in enumerate(ages)}


def test_the_oldest_is_asked():
    assert oldest(view_of(3, 9, 9, 1)) == "p1" and oldest({}) is None


def test_descriptors_expire_and_must_not_be_from_the_future():
    assert is_valid(Descriptor("p", NOW), NOW) and is_valid(Descriptor("p", NOW + SKEW_MS), NOW)
    assert not is_valid(Descriptor("p", NOW - LIFE_MS), NOW)
    assert not is_valid(Descriptor("p", NOW + SKEW_MS + 1), NOW)


def test_an_answer_is_a_bounded_sample_without_the_requester():
    known, rng, found = view_of(*range(20)), random.Random(1).randbytes, set()
    for _ in range(100):
        answered = answer(known, "p3", rng)
        assert len({one.peer for one in answered}) == EXCHANGE and "p3" not in {one.peer for one in answered}
        found |= {one.peer for one in answered}
    assert found == known.keys() - {"p3"}


@given(st.lists(DESCRIPTORS, max_size=4))
def test_the_newest_descriptor_of_each_peer_stays(views):
    every = [one for view in views for one in view if one.peer != "a" and is_valid(one, NOW)]
    expected = {one.peer: max(other.issued_at for other in every if other.peer == one.peer) for one in every}
    assert {peer: one.issued_at for peer, one in merged("a", views, NOW).items()} == expected
