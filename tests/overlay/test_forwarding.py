"""The forwarding rule of RingCast, and the bounded memory of message ids."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerochat.overlay.forwarding import FAN_OUT, SeenMessages, sample, targets
from zerochat.overlay.ring import Links, Ring

LINKS = Links(("s1", "s2"), ("p1", "p2"), tuple(f"x{at}" for at in range(8)))
SHORTCUTS = set(LINKS.shortcuts)
RING = {"s1", "s2", "p1", "p2"}


def randomness(seed=0):
    return random.Random(seed).randbytes


@pytest.mark.parametrize("fan_out", [2, 3, 4, 6])
@pytest.mark.parametrize(
    ("bearer", "ring"),
    [
        (None, {"s1", "p1"}),
        ("p1", {"s1"}),
        ("s1", {"p1"}),
        ("x3", {"s1", "p1"}),
        ("p2", {"s1", "p1"}),  # its link to p1 may be down
        ("s2", {"s1", "p1"}),
        ("unknown here", {"s1", "p1"}),
    ],
)
def test_the_rule(bearer, ring, fan_out):
    for seed in range(20):
        chosen = targets(LINKS, bearer, randomness(seed), fan_out)
        assert len(chosen) == len(set(chosen)) == fan_out
        assert set(chosen) & RING == ring and set(chosen) - RING <= SHORTCUTS - {bearer}


@given(
    st.lists(st.integers(0, 11), unique=True, max_size=12),
    st.tuples(st.integers(0, 2), st.integers(0, 2)),
    st.integers(-1, 12),
    st.integers(2, 6),
    st.integers(0, 9),
)
def test_copies_go_to_different_links_and_never_back(members, ways, bearer, fan_out, seed):
    names = [str(one) for one in members]
    nexts, before = names[: ways[0]], names[ways[0] : sum(ways)]
    own = Links(tuple(nexts), tuple(before), tuple(names[sum(ways) :]))
    chosen = targets(own, None if bearer < 0 else str(bearer), randomness(seed), fan_out)
    able = {*names} - {str(bearer)}
    assert len(chosen) == len(set(chosen)) == min(fan_out, len(able)) and set(chosen) <= able
    assert {*nexts[:1], *before[:1]} - {str(bearer)} <= set(chosen)


def test_the_direction_does_not_depend_on_where_the_ring_wraps():
    """At each of the members, so also at the least and the greatest position."""
    members = [f"m{at}" for at in range(60)]
    ring = Ring("g", members)
    for member in members:
        own = ring.links(member)
        for bearer, goes, stays in (
            (own.predecessors[0], own.successors[0], own.predecessors[0]),
            (own.successors[0], own.predecessors[0], own.successors[0]),
        ):
            chosen = targets(own, bearer, randomness())
            assert goes in chosen and stays not in chosen and len(chosen) == FAN_OUT


def test_in_a_mesh_only_the_author_sends():
    own = Ring("g", [f"m{at}" for at in range(24)]).links("m3")
    assert set(targets(own, None, randomness())) == {f"m{at}" for at in range(24)} - {"m3"}
    assert targets(own, "m5", randomness(), direct=True) == targets(LINKS, "p1", randomness(), direct=True) == ()


def test_a_member_that_sees_a_mesh_forwards_for_an_author_that_sees_a_ring():
    own = Ring("g", [f"m{at}" for at in range(24)]).links("m3")
    [successor] = own.successors[:1]
    chosen = targets(own, successor, randomness())
    assert len(chosen) == FAN_OUT and own.predecessors[0] in chosen and successor not in chosen


def test_the_second_neighbour_stands_in_for_the_first():
    assert set(targets(LINKS.without({"s1"}), "p1", randomness())) & RING == {"s2"}
    # Without shortcuts, second neighbours make up the number.
    assert set(targets(LINKS.without(SHORTCUTS), None, randomness(), 4)) == RING
    assert targets(LINKS.without({*SHORTCUTS, "s1", "s2", "p2"}), "p1", randomness()) == ()


@pytest.mark.parametrize("fan_out", [1, 0, -3])
def test_a_fan_out_that_leaves_a_direction_out_is_refused(fan_out):
    with pytest.raises(ValueError, match="both directions"):
        targets(LINKS, None, randomness(), fan_out)


def test_shortcuts_are_chosen_evenly():
    rng, rounds = randomness(1), 8_000
    counts = dict.fromkeys(LINKS.shortcuts, 0)
    for _ in range(rounds):
        for one in targets(LINKS, "p1", rng):
            if one in counts:
                counts[one] += 1
    expected = 2 * rounds / 8
    assert all(abs(count - expected) < 0.08 * expected for count in counts.values()), counts


@given(st.lists(st.integers(), unique=True, max_size=20), st.integers(0, 25), st.integers(0, 9))
def test_a_sample_is_a_part_without_repetition(pool, count, seed):
    found = sample(list(pool), count, randomness(seed))
    assert len(found) == len(set(found)) == min(count, len(pool)) and set(found) <= set(pool)


# --- duplicates -----------------------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 40)), max_size=80))
def test_ids_are_remembered_for_their_time_and_number(arrivals):
    """As a list that is searched from its beginning."""
    seen, model, now = SeenMessages(most=4, keep_ms=100), [], 0
    for message, later in arrivals:
        now += later
        model = [(one, until) for one, until in model if until > now]
        assert seen.holds(message, now) == any(one == message for one, _ in model)
        new = all(one != message for one, _ in model)
        assert seen.remember(message, now) == new
        if new:
            model = [*model, (message, now + 100)][-4:]
        assert len(seen) == len(model)


def test_the_memory_is_bounded_by_default():
    seen = SeenMessages()
    assert all(seen.remember(str(number), 0) for number in range(70_000))
    assert len(seen) == 65_536
    assert not seen.remember("69999", 599_999) and seen.remember("69999", 600_000)
