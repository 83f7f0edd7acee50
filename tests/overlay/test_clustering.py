"""VICINITY's selection: the most similar first, by trust, and never a filter that matches everything."""

import random

from tests.support.interests import ALIKE, KNOWN, NOW, OWN, PEERS, descriptor
from zerochat.overlay.blip import BITS
from zerochat.overlay.clustering import EXCHANGE, VIEW, answer, most_similar, partner, updated
from zerochat.overlay.cyclon import Descriptor


def test_the_most_similar_come_first():
    found = [one.peer for one in most_similar(OWN, PEERS, 20)]
    assert len(found) == len(set(found)) == 20 and set(found) <= ALIKE
    backwards = [one.peer for one in most_similar(OWN, PEERS[::-1], 100)]
    assert backwards[:20] == found
    assert not {*backwards[-20:]} & ALIKE  # the least similar come last


def test_trust_orders_among_the_similar_and_does_not_replace_interest():
    trusted = {"p4", "p8", "p1", "p2"}
    found = most_similar(OWN, PEERS, 20, lambda peer: 1.0 if peer in trusted else 0.1)
    assert {one.peer for one in found[:2]} == {"p4", "p8"}
    assert sum(one.peer in ALIKE for one in found) >= 18


def test_filters_that_match_everything_are_left_out():
    full, empty = Descriptor("full", NOW, (1 << BITS) - 1), Descriptor("empty", NOW, 0)
    found = {one.peer for one in most_similar(OWN, [full, empty, *PEERS], 200)}
    assert len(found) == 100 and not found & {"full", "empty"}


def test_an_answer_suits_the_requester_and_is_bounded():
    requester, rng = descriptor(8), random.Random(2).randbytes
    cluster = {peer: KNOWN[peer] for peer in ("p4", "p8", "p12", "p16")}
    found = [one.peer for one in answer(requester, cluster, KNOWN, rng)]
    assert len(set(found)) == len(found) == EXCHANGE and "p8" not in found
    assert {"p4", "p12", "p16"} <= {*found} and sum(peer in ALIKE for peer in found) >= 7


def test_the_view_keeps_the_best_of_all_and_is_bounded():
    cluster = {f"p{number}": KNOWN[f"p{number}"] for number in (1, 2, 4)}
    stale = [descriptor(number, NOW - 900_000) for number in range(104, 140, 4)]
    found = updated("p8", OWN, cluster, [*stale, KNOWN["p8"], KNOWN["p12"]], {}, NOW)
    assert list(found)[:2] in (["p4", "p12"], ["p12", "p4"]) and found.keys() == {"p1", "p2", "p4", "p12"}
    assert len(updated("p8", OWN, cluster, [], KNOWN, NOW)) == VIEW


def test_the_oldest_and_a_random_peer_are_asked_in_turns():
    rng = random.Random(3).randbytes
    cluster = {"a": Descriptor("a", 5), "b": Descriptor("b", 4)}
    assert partner(cluster, KNOWN, 1, rng) == "b" and partner(cluster, KNOWN, 2, rng) in KNOWN
    assert partner({}, KNOWN, 1, rng) in KNOWN and partner({}, {}, 1, rng) is None
