"""The ring: links are mutual, bounded, and follow a view by the smallest change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zerochat.overlay.ring import LINKS_MAX, MESH_MEMBERS_MAX, Links, Ring, positions

POSITIONS = ["b331bd16d10b6e14", "590b85802a2d3c77", "e34161e894d93bb4", "bc8b3215efd7ed3f", "e3c9cddaba5b80b4"]
SIZES = (1, 2, 3, 4, 5, 6, 23, 24, 25, 26, 40, 300)


def names(size):
    return [f"m{at}" for at in range(size)]


def links_of(ring, members):
    return {member: ring.links(member) for member in members}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("group", ["a", "b"])
def test_links_are_mutual_distinct_and_few(size, group):
    found = links_of(Ring(group, names(size)), names(size))
    pairs = {(one, other) for one, own in found.items() for other in own.all}
    for member, own in found.items():
        assert member not in own.all and len(set(own.all)) == len(own.all)
        assert len(own.all) <= max(LINKS_MAX, MESH_MEMBERS_MAX - 1)
    assert pairs == {(other, one) for one, other in pairs}
    if size > MESH_MEMBERS_MAX:
        assert max(len(own.all) for own in found.values()) <= LINKS_MAX == 12
    else:
        assert all(own.mesh and len(own.all) == size - 1 for own in found.values())


@pytest.mark.parametrize("size", [25, 26, 300])
def test_the_ring_is_one_circle_in_the_order_of_positions(size):
    members = names(size)
    ring, order = Ring("g", members), sorted(members, key=lambda one: positions(one, "g")[0])
    for at, member in enumerate(order):
        own = ring.links(member)
        assert own.successors == tuple(order[(at + step) % size] for step in (1, 2))
        assert own.predecessors == tuple(order[(at - step) % size] for step in (1, 2))


@pytest.mark.parametrize(("size", "ways"), [(1, (0, 0)), (2, (1, 0)), (3, (1, 1)), (4, (2, 1)), (5, (2, 2))])
def test_in_a_small_ring_no_member_is_linked_twice(size, ways):
    for own in links_of(Ring("g", names(size)), names(size)).values():
        assert (len(own.successors), len(own.predecessors)) == ways


def test_shortcuts_are_spread_evenly():
    found = links_of(Ring("g", names(2_000)), names(2_000))
    shortcuts = [len(own.shortcuts) for own in found.values()]
    assert max(shortcuts) == 8 and sum(shortcuts) / len(shortcuts) > 7.9


@pytest.mark.parametrize("leaves", [False, True])
def test_a_change_moves_only_neighbours(leaves):
    members = names(200)
    ring = Ring("g", members)
    before = links_of(ring, members)
    if leaves:
        ring.discard("m7")
        after, touched = links_of(ring, [one for one in members if one != "m7"]), before["m7"].all
    else:
        ring.add("new")
        after, touched = links_of(ring, members), ring.links("new").all
    changed = {member for member, own in after.items() if own != before[member]}
    assert changed and changed <= set(touched)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=150))
def test_the_index_follows_a_view(changes):
    ring, view = Ring("g"), set()
    for joins, at in changes:
        (ring.add if joins else ring.discard)(f"m{at}")
        (view.add if joins else view.discard)(f"m{at}")
    assert len(ring) == len(view) and all(f"m{at}" in ring for at in range(61) if f"m{at}" in view)
    assert links_of(ring, view) == links_of(Ring("g", sorted(view)), view)


def test_links_of_a_stranger():
    with pytest.raises(KeyError):
        Ring("g", names(30)).links("stranger")


def test_positions_are_those_of_every_version():
    """All members must compute the same links."""
    assert [f"{position:016x}" for position in positions("did:key:z6Mk", "hikers")] == POSITIONS
    assert positions("did:key:z6Mk", "hikers") != positions("did:key:z6Mk", "hiker")
    assert positions("a", "bc") != positions("ab", "c")


def test_links_that_are_down():
    own = Links(("a", "b"), ("c", "d"), ("e", "f"))
    assert own.without({"a", "d", "e", "x"}) == Links(("b",), ("c",), ("f",))
    assert Links(shortcuts=("a", "b"), mesh=True).without({"a"}) == Links(shortcuts=("b",), mesh=True)
