"""Whole histories of the real core over a bad network: everybody agrees in the end, and each seed replays exactly."""

from typing import get_args

import pytest

from tests.support.seeds import told_elsewhere
from zerochat.cli import main
from zerochat.crypto import primitives
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify
from zerochat.errors import Unauthentic
from zerochat.group.effects import Remember
from zerochat.group.event_log.event import CONTROL
from zerochat.group.key_modes import MODES
from zerochat.group.membership.bodies import AgreementRule, JoinRule, RemoveRule
from zerochat.group.sync import acknowledgements, backfill, history_requests
from zerochat.sim import Faults, Violation, World, play
from zerochat.sim.batch import Plan, play_all
from zerochat.sim.crypto_cache import remembering

EVERYDAY = 60
EVERYTHING = {*CONTROL, *MODES, *get_args(JoinRule), *get_args(RemoveRule), *get_args(AgreementRule), "active", "left"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, EVERYDAY, 10))
def test_everybody_converges(first):
    for seed in range(first, first + 10):
        play(seed)


@pytest.mark.sim
def test_everybody_converges_in_many_more(budget):
    failed = [one.violation for one in play_all(Plan(), range(EVERYDAY, EVERYDAY + budget(90)), 2) if one.violation]
    assert not failed


@pytest.mark.slow
def test_a_seed_replays_exactly_in_another_process_too():
    assert len(told_elsewhere("[sim.play(seed).digest.hexdigest() for seed in range(6)]")) == 1


def test_seed_808_a_late_copy_of_a_request_does_not_bring_a_leaver_back():
    play(808)


@pytest.mark.slow
def test_the_histories_have_everything_in_them():
    seen = set()
    for seed in range(40):
        world = play(seed)
        for node in world.nodes.values():
            for group in node.agent.groups.values():
                seen |= {event.type for event in group.control.values()} | {group.profile.keys, group.state}
                seen |= {group.view.policy.join, group.view.policy.remove, group.view.policy.agreement}
        if seen >= EVERYTHING:
            return
    raise AssertionError(EVERYTHING - seen)


# --- the simulator would notice -------------------------------------------------------------------------------------


def test_without_repair_something_is_lost(monkeypatch):
    monkeypatch.setattr(acknowledgements, "repair", lambda turn, name: None)
    monkeypatch.setattr(history_requests, "seek", lambda turn, name: None)
    monkeypatch.setattr(backfill, "fetch", lambda turn, name: None)
    with pytest.raises(Violation, match="lacks a post"):
        play(8)


def test_with_everything_delivered_twice_it_would_notice(monkeypatch):
    perform = World._perform

    def doubled(world, node, effect):
        perform(world, node, effect)
        if isinstance(effect, Remember):
            perform(world, node, effect)

    monkeypatch.setattr(World, "_perform", doubled)
    with pytest.raises(Violation, match="twice"):
        play(1)


def test_on_a_perfect_network_nothing_looks_forged():
    """What overtakes the answer that it builds on is refused and sent again; nothing is ever taken for an attack."""
    world = play(3, faults=Faults(loss=0, duplication=0, delay_ms_max=5))
    assert {name for node in world.nodes.values() for name in node.dropped} <= {"dropped Refused"}


# --- faster, and the same -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--histories"], ["--byzantine"]])
def test_several_at_a_time_tell_the_same(capsys, kind):
    def told(*more):
        assert main(["sim", *kind, "--seeds", "3", "--first", "1", *more]) == 0
        return capsys.readouterr().out.rpartition(" in ")[0]  # all but the time that it took

    assert told("--jobs", "2", "--twice").replace(" twice each, the same way", "") == told("--jobs", "1")


def test_what_is_remembered_was_verified():
    seed, other = bytes(32), bytes(31) + b"x"
    public, signature = ed25519_public(seed), ed25519_sign(seed, b"yes")
    before = primitives.open_signed
    with remembering():
        for _ in range(2):
            ed25519_verify(public, b"yes", signature)
            for wrong in ((public, b"no", signature), (ed25519_public(other), b"yes", signature)):
                with pytest.raises(Unauthentic):
                    ed25519_verify(*wrong)
    assert primitives.open_signed is before
