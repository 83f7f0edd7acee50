"""Routing over the ring: shortest paths, no loops, detours around dead members, and differing views."""

import random
from collections import deque
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerochat.overlay.ring import LINKS_MAX, Ring
from zerochat.overlay.routing import HOPS_MAX, Routes

SIZES = (1, 2, 3, 24, 25, 26, 40, 90)
DEAD = 0.05


def names(size):
    return [f"m{at}" for at in range(size)]


def ring_of(size):
    return Ring("g", names(size))


def distances_from(ring, start):
    """Breadth-first search, as a reference."""
    found, waiting = {start: 0}, deque([start])
    while waiting:
        for near in ring.links(here := waiting.popleft()).all:
            if near not in found:
                found[near] = found[here] + 1
                waiting.append(near)
    return found


def walk(rings, routes, author, recipient, dead=(), seed=0, detour=0):
    """The members that a message passes, to the recipient or to where it ends. `rings`, `routes`: by member; each
    member is connected to its own links that are up."""
    passed, draw = [author], random.Random(seed)
    while passed[-1] != recipient and len(passed) <= HOPS_MAX:
        here = passed[-1]
        peers = [peer for peer in rings(here).links(here).all if peer not in dead]
        after = routes(here).next_hop(recipient, peers, passed, draw.randbytes, detour if here == author else 0)
        if after is None:
            break
        passed.append(after)
    assert len(set(passed)) == len(passed) <= HOPS_MAX + 1
    return passed


def walks_of(size, pairs, **options):
    """Walks in one view of all members."""
    ring = ring_of(size)
    routes = Routes(ring)
    return [walk(lambda _: ring, lambda _: routes, *pair, **options) for pair in pairs]


def random_pairs(size, count, seed, dead=()):
    draw = random.Random(seed)
    alive = [one for one in names(size) if one not in dead]
    return [draw.sample(alive, 2) for _ in range(count)]


@pytest.mark.parametrize("size", SIZES)
def test_distances_are_those_of_breadth_first_search(size):
    ring = ring_of(size)
    routes = Routes(ring)
    for one in names(size):
        assert {other: routes.distance(one, other) for other in names(size)} == distances_from(ring, one)
    assert "m0" in routes and "x" not in routes
    assert routes.distance("m0", "x") is routes.distance("x", "m0") is None


@pytest.mark.parametrize("size", SIZES)
def test_every_pair_is_reached_on_a_shortest_path(size):
    ring, pairs = ring_of(size), [(one, other) for one in names(size) for other in names(size)]
    routes = Routes(ring)
    for (author, recipient), passed in zip(pairs, walks_of(size, pairs), strict=True):
        assert passed[-1] == recipient and len(passed) - 1 == routes.distance(author, recipient)
        assert all(after in ring.links(before).all for before, after in pairwise(passed))


@given(st.integers(2, 300), st.integers(0, 999))
@settings(max_examples=30)
def test_paths_of_any_size(size, seed):
    pairs = random_pairs(size, 10, seed)
    assert all(passed[-1] == pair[1] for pair, passed in zip(pairs, walks_of(size, pairs, seed=seed), strict=True))


def test_paths_are_short_among_a_thousand():
    routes = Routes(ring_of(1_000))
    assert routes.diameter <= 5
    lengths = [routes.distance("m0", other) or 0 for other in names(1_000)]
    assert sum(lengths) / len(lengths) < 3.2


@pytest.mark.parametrize(("size", "seed"), [(40, 1), (200, 2), (1_000, 3)])
def test_dead_members_are_passed_by(size, seed):
    """Each pair that is connected is reached; few paths are longer."""
    dead = set(random.Random(seed).sample(names(size), max(2, int(size * DEAD))))
    pairs = random_pairs(size, 400, seed, dead)
    found = walks_of(size, pairs, dead=dead, seed=seed)
    assert all(passed[-1] == recipient for (_, recipient), passed in zip(pairs, found, strict=True))
    assert not any(dead & set(passed) for passed in found)
    lengths, routes = [len(passed) - 1 for passed in found], Routes(ring_of(size))
    shortest = [routes.distance(*pair) or 0 for pair in pairs]
    assert sum(lengths) <= sum(shortest) * 1.1 and max(lengths) < HOPS_MAX


@pytest.mark.parametrize(("share", "arrive"), [(0.5, 0.97), (0.7, 0.7)])
def test_no_loop_forms_where_most_members_are_dead(share, arrive):
    """Three attempts. Not every message arrives, and each ends: `walk` checks that no member has it twice."""
    dead = set(names(200)[: int(200 * share)])
    pairs, arrived = random_pairs(200, 300, 1, dead), set()
    for attempt in range(3):
        found = walks_of(200, pairs, dead=dead, seed=attempt, detour=attempt // 2)
        arrived.update(at for at, passed in enumerate(found) if passed[-1] == pairs[at][1])
    assert len(arrived) >= arrive * len(pairs)


@pytest.mark.parametrize("seed", range(3))
def test_members_with_different_views_deliver(seed):
    """Each knows the whole group without up to 5 % of the others, another 5 % at each member."""
    size, draw = 150, random.Random(seed)
    rings = {}
    for me in names(size):
        missing = set(draw.sample(names(size), draw.randrange(int(size * DEAD) + 1))) - {me}
        rings[me] = Ring("g", [one for one in names(size) if one not in missing])
    routes = {me: Routes(ring) for me, ring in rings.items()}
    pairs = [pair for pair in random_pairs(size, 400, seed) if pair[1] in rings[pair[0]]]
    arrived = [
        any(walk(rings.get, routes.get, *pair, seed=attempt, detour=min(attempt, 1))[-1] == pair[1]
            for attempt in range(3))
        for pair in pairs
    ]  # fmt: skip
    assert len(pairs) > 300 and sum(arrived) >= 0.98 * len(arrived), sum(arrived)


def test_equally_near_peers_share_the_load():
    ring = ring_of(300)
    routes = Routes(ring)
    peers = ring.links("m0").all
    far = next(one for one in names(300) if routes.distance("m0", one) == 4)
    near = [peer for peer in peers if routes.distance(peer, far) == 3]
    draws = random.Random(1)
    assert {routes.next_hop(far, peers, ("m0",), draws.randbytes) for _ in range(200)} == set(near)
    wider = {routes.next_hop(far, peers, ("m0",), draws.randbytes, 1) for _ in range(500)}
    assert wider == {peer for peer in peers if routes.distance(peer, far) in range(5)} and len(wider) > len(near)


def test_a_message_ends_without_another_peer():
    ring = ring_of(60)
    routes, random_ = Routes(ring), random.Random(1).randbytes
    peers = ring.links("m0").all
    far = next(one for one in names(60) if one not in peers and one != "m0")
    assert routes.next_hop(far, (), ("m0",), random_) is None
    assert routes.next_hop(far, peers, ("m0", *peers), random_) is None
    assert routes.next_hop("x", peers, ("m0",), random_) is None
    assert routes.next_hop(peers[3], peers, ("m0",), random_) == peers[3]
    assert routes.next_hop(peers[3], peers, ("m0", peers[3]), random_) not in (None, peers[3])
    assert routes.next_hop(far, ["x", peers[0]], ("m0",), random_) == peers[0]


def test_a_connected_member_need_not_be_a_ring_neighbour():
    ring = ring_of(300)
    routes = Routes(ring)
    far = next(one for one in names(300) if routes.distance("m0", one) == 4)
    assert routes.next_hop(far, [*ring.links("m0").all, far], ("m0",), random.Random(1).randbytes) == far


def test_rows_are_bounded_by_links():
    assert Routes(ring_of(26)).diameter <= 3 and LINKS_MAX < 26
    assert Routes(Ring("g")).diameter == Routes(Ring("g", ["m0"])).diameter == 0
