"""Fingers: dissimilar, bounded, refreshed; filters made for it gain their owners little."""

import random

from tests.support.interests import ALIKE, NOW, OWN, PEERS
from zerochat.overlay.blip import BITS, SET_MAX, is_plausible, similarity
from zerochat.overlay.cyclon import Descriptor
from zerochat.overlay.fingers import CHOICES, FINGERS, refreshed
from zerochat.overlay.forwarding import sample

ROUNDS = 200


def test_fingers_are_dissimilar_bounded_and_the_oldest_goes():
    rng, seen = random.Random(1).randbytes, set()
    fingers: tuple[Descriptor, ...] = ()
    for at in range(50):
        before, fingers = fingers, refreshed(fingers, OWN, PEERS, rng)
        assert len({one.peer for one in fingers}) == len(fingers) == min(at + 1, FINGERS)
        assert fingers[:-1] == before[-FINGERS + 1 :]
        seen |= {one.peer for one in fingers}
    assert len(seen) > 20 and len(seen & ALIKE) <= 2  # one of four peers is alike


def test_without_new_peers_nothing_changes():
    rng = random.Random(2).randbytes
    fingers = refreshed((), OWN, PEERS[:1], rng)
    assert refreshed(fingers, OWN, PEERS[:1], rng) == fingers
    assert refreshed((), OWN, [], rng) == refreshed((), OWN, [Descriptor("empty", NOW, 0)], rng) == ()


def attackers(count):
    """With the bits that the victim has not, as many as are plausible."""
    free = [at for at in range(BITS) if not OWN >> at & 1]
    made = [sum(1 << at for at in random.Random(number).sample(free, SET_MAX)) for number in range(count)]
    assert all(is_plausible(one) and similarity(OWN, one) < -0.15 for one in made)
    return [Descriptor(f"attacker{at}", NOW, one) for at, one in enumerate(made)]


def hostile_share(rule):
    """The attackers' part of the fingers: ten of 110 peers, and samples of 20 peers."""
    rng, found = random.Random(3).randbytes, 0
    fingers: tuple[Descriptor, ...] = ()
    every = [*PEERS, *attackers(10)]
    for _ in range(ROUNDS):
        fingers = rule(fingers, OWN, sample(list(every), 20, rng), rng)
        found += sum(one.peer.startswith("attacker") for one in fingers)
    return found / (ROUNDS * FINGERS)


def least_similar_of_all(fingers, own, sampled, random):
    """The usual rule, the ablation."""
    held = {one.peer: one for one in (*fingers, *sampled)}
    return tuple(sorted(held.values(), key=lambda one: (similarity(own, one.filter), one.peer))[:FINGERS])


def test_dissimilar_filters_gain_little():
    fair = 10 / 110
    assert hostile_share(refreshed) <= CHOICES * fair
    assert hostile_share(least_similar_of_all) > 0.9
