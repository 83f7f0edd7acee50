"""Peer sampling: pull only, bounded, and by trust; and the state of one peer in a small exchange."""

import random

import pytest

from zerochat.overlay.cyclon import EXCHANGE, LIFE_MS, VIEW, Descriptor
from zerochat.overlay.local_trust import SAME_GROUP, STRANGER
from zerochat.overlay.peer_sampling import PUSHED, PeerSampling
from zerochat.overlay.stream_sampler import MEMORY, StreamSampler

NOW = 1_000_000


def peer(me="me", trust=lambda one: STRANGER, seed=1):
    rng = random.Random(seed)
    return PeerSampling(me, StreamSampler(rng.randbytes(32), rng.randbytes), rng.randbytes, trust)


def descriptors(count, first=0, issued_at=NOW):
    return [Descriptor(f"p{at}", issued_at) for at in range(first, first + count)]


def filled(count=100, **given):
    one = peer(**given)
    for first in range(0, count, EXCHANGE):
        one.receive(Descriptor("p1", NOW), descriptors(EXCHANGE, first), NOW)
    return one


def test_the_view_and_the_sample_are_bounded():
    one = filled(400)
    assert len(one.view) == VIEW and len(one.sampled) == MEMORY
    assert all(known.peer == name for name, known in one.view.items()) and "me" not in one.view


def test_an_answer_brings_at_most_its_size():
    one = peer()
    one.receive(Descriptor("p0", NOW), descriptors(1_000), NOW)
    assert len(one.view) == len(one.sampled) == EXCHANGE


def test_the_partner_leaves_the_view_and_is_forgotten_if_it_does_not_answer():
    one = filled()
    for _ in range(6):
        asked = one.ask(NOW)
        assert asked not in one.view
        one.forget(asked)
        assert asked not in one.view and asked not in {known.peer for known in one.sampled}


def test_every_other_round_asks_a_peer_of_the_sample():
    one = filled()
    one.view = {"old": Descriptor("old", NOW - 9)} | one.view
    assert one.ask(NOW) == "old" and one.ask(NOW) in {known.peer for known in one.sampled}


def test_a_peer_that_knows_none_asks_none():
    assert peer().ask(NOW) is None


def test_an_answer_is_bounded_and_leaves_the_requester_out():
    one = filled()
    for at in range(30):
        found = one.answer(Descriptor(f"p{at}", NOW), NOW)
        names = [known.peer for known in found]
        assert len(set(names)) == len(names) == EXCHANGE and f"p{at}" not in names


def test_only_the_requester_itself_enters():
    """An answer changes neither view nor sample at once; in the next round the requester is in."""
    one = filled()
    before = dict(one.view)
    one.answer(Descriptor("new", NOW), NOW)
    assert one.view == before and len(one._pushed) == 1
    empty = peer()
    empty.answer(Descriptor("new", NOW), NOW)
    assert empty.ask(NOW) == "new"


def entered(rounds, early, repeats):
    """How often one honest requester of 40 enters, if the others come first and repeat."""
    found = 0
    for seed in range(rounds):
        one = peer(seed=seed)
        hostile = [Descriptor(f"a{at}", NOW) for at in range(39)]
        for requester in hostile * repeats if early else ():
            one.answer(requester, NOW)
        one.answer(Descriptor("honest", NOW), NOW)
        for requester in () if early else hostile * repeats:
            one.answer(requester, NOW)
        assert len(one._pushed) == PUSHED
        found += "honest" in {known.peer for known in one._pushed.values()}
    return found / rounds


@pytest.mark.parametrize("early", [True, False])
def test_neither_early_nor_repeated_requests_push_others_out(early):
    assert abs(entered(400, early, 3) - PUSHED / 40) < 0.04


def test_expired_descriptors_and_ourselves_do_not_enter():
    one = peer()
    one.receive(
        Descriptor("p0", NOW), [Descriptor("me", NOW), Descriptor("late", NOW - LIFE_MS), Descriptor("p1", NOW)], NOW
    )
    one.answer(Descriptor("late", NOW - LIFE_MS), NOW)
    assert one.view.keys() == {"p1"} and not one._pushed


def test_a_descriptor_never_goes_backward():
    one = peer()
    one.receive(Descriptor("p0", NOW), [Descriptor("p1", NOW)], NOW)
    one.receive(Descriptor("p0", NOW), [Descriptor("p1", NOW - 5)], NOW)
    assert one.view["p1"].issued_at == one.sampled[0].issued_at == NOW
    one.receive(Descriptor("p0", NOW), [Descriptor("p1", NOW + 5)], NOW)
    assert one.view["p1"].issued_at == one.sampled[0].issued_at == NOW + 5


def test_peers_below_the_least_trust_enter_nothing():
    one = filled(trust=lambda name: 0.05 if name in ("p1", "p2") else STRANGER)
    assert not {"p1", "p2"} & (one.view.keys() | {known.peer for known in one.sampled})


def familiar_part(trust):
    """The part of the views that are peers of common groups, which are a fifth of all."""
    found = 0
    for seed in range(10):
        one = filled(400, trust=trust, seed=seed)
        found += sum(int(name[1:]) % 5 == 0 for name in one.view)
    return found / (10 * VIEW)


def test_the_view_prefers_peers_that_we_trust():
    """The ablation is equal trust."""
    trusted = familiar_part(lambda name: SAME_GROUP if int(name[1:]) % 5 == 0 else STRANGER)
    assert trusted > 0.6 > 0.3 > familiar_part(lambda name: STRANGER)
