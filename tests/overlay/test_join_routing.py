"""Join routing: to the neighbour with the tag's bits, never back, and never further than the limit."""

import random

from tests.support.interests import KNOWN, NOW, PEERS, TOPICS, tags_of
from zerochat.overlay.blip import BITS
from zerochat.overlay.cyclon import Descriptor
from zerochat.overlay.join_routing import HOPS_MAX, next_hop

FINGERS = PEERS[:6]
NEIGHBOURS = PEERS[6:]


def hop(tag, passed=(), neighbours=NEIGHBOURS, fingers=FINGERS, seed=1):
    return next_hop(tag, neighbours, fingers, passed, random.Random(seed).randbytes)


def followers(tag):
    return {f"p{number}" for number in range(1, 101) if tag in tags_of(number)}


def test_a_join_goes_to_followers():
    """Among a hundred filters a few match by their noise, so it goes astray now and then."""
    hits = [hop(tag) in followers(tag) for tag in TOPICS[1][:50]]
    assert sum(hits) > 0.7 * len(hits) > 2 * 0.15 * len(hits)  # 15 % of the peers follow a topic


def test_without_a_lead_it_goes_to_a_finger_or_at_random():
    strangers = [Descriptor(f"q{at}", NOW, one.filter & ~1 & ~2) for at, one in enumerate(NEIGHBOURS)]
    unknown = next(
        tag
        for tag in (b"unknown %d" % at for at in range(10_000))
        if hop(tag, neighbours=strangers[:5], fingers=FINGERS[:1]) == "p1"
    )
    found = {hop(unknown, neighbours=strangers[:5], fingers=FINGERS[:1], seed=seed) for seed in range(20)}
    assert found == {"p1"}
    found = {hop(unknown, neighbours=strangers[:5], fingers=(), seed=seed) for seed in range(40)}
    assert found == {"q0", "q1", "q2", "q3", "q4"}


def test_it_never_returns_and_ends():
    tag, passed = TOPICS[1][0], ["p1"]
    while (one := hop(tag, passed, seed=len(passed))) is not None:
        assert one not in passed and one in KNOWN
        passed.append(one)
    assert len(passed) == HOPS_MAX + 1
    assert hop(tag, ["p1"], neighbours=(), fingers=PEERS[:1]) is None


def test_a_filter_that_matches_everything_attracts_nothing():
    full = Descriptor("full", NOW, (1 << BITS) - 1)
    tags = TOPICS[2][:40]
    assert all(hop(tag, neighbours=[*NEIGHBOURS, full], seed=at) != "full" for at, tag in enumerate(tags))
