"""Whole histories over a bad network: all members converge, and each seed replays exactly."""

from typing import get_args

import pytest

from tests.support.seeds import outputs_elsewhere
from zerochat.cli import main
from zerochat.crypto import primitives
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, ed25519_verify
from zerochat.errors import Unauthentic
from zerochat.group.effects import StoreEvent
from zerochat.group.event_log.event import CONTROL
from zerochat.group.key_modes import MODES
from zerochat.group.membership.bodies import AgreementRule, JoinRule, RemoveRule
from zerochat.group.sync import acknowledgements, backfill, history_requests
from zerochat.sim import Faults, Violation, World, play_history
from zerochat.sim.batch import BatchPlan, run_all
from zerochat.sim.fast_crypto import cached_signatures

EVERYDAY = 60
EVERYTHING = {
    *CONTROL,
    *MODES,
    *get_args(JoinRule),
    *get_args(RemoveRule),
    *get_args(AgreementRule),
    "active",
    "left",
}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, EVERYDAY, 10))
def test_histories_converge(first):
    for seed in range(first, first + 10):
        play_history(seed)


@pytest.mark.sim
def test_histories_converge_many_seeds(budget):
    failed = [one.violation for one in run_all(BatchPlan(), range(EVERYDAY, EVERYDAY + budget(90)), 2) if one.violation]
    assert not failed


@pytest.mark.slow
def test_history_replays_exactly():
    assert len(outputs_elsewhere("[sim.play_history(seed).digest.hexdigest() for seed in range(6)]")) == 1


def test_seed_808_late_request_does_not_readmit():
    play_history(808)


@pytest.mark.slow
def test_histories_cover_all_cases():
    seen = set()
    for seed in range(40):
        world = play_history(seed)
        for node in world.nodes.values():
            for group in node.agent.groups.values():
                seen |= {event.type for event in group.control.values()} | {group.profile.keys, group.state}
                seen |= {group.view.policy.join, group.view.policy.remove, group.view.policy.agreement}
        if seen >= EVERYTHING:
            return
    raise AssertionError(EVERYTHING - seen)


# --- the simulator would notice -------------------------------------------------------------------------------------


def test_without_retransmission_posts_are_lost(monkeypatch):
    monkeypatch.setattr(acknowledgements, "retransmit", lambda tx, name, synced="": None)
    monkeypatch.setattr(history_requests, "request_missing", lambda tx, name: None)
    monkeypatch.setattr(backfill, "request_page", lambda tx, name: None)
    with pytest.raises(Violation, match="lacks a post"):
        play_history(8)


def test_detects_duplicate_delivery(monkeypatch):
    perform = World._perform

    def doubled(world, node, effect):
        perform(world, node, effect)
        if isinstance(effect, StoreEvent):
            perform(world, node, effect)

    monkeypatch.setattr(World, "_perform", doubled)
    with pytest.raises(Violation, match="twice"):
        play_history(1)


def test_an_error_of_the_core_is_told_with_its_place(monkeypatch):
    monkeypatch.setattr(acknowledgements, "record_state", lambda *given: dict[str, None]()["missing"])
    with pytest.raises(Violation, match=r"fails on Received: KeyError\('missing'\) \(test_sim\.py:\d+\)"):
        play_history(1)


@pytest.mark.parametrize("seed", [2, 10])
def test_perfect_network_drops_nothing(seed):
    """Envelopes that overtake the answer they depend on are rejected and retransmitted; none counts as an attack."""
    world = play_history(seed, faults=Faults(loss=0, duplication=0, delay_ms_max=5))
    assert {name for node in world.nodes.values() for name in node.dropped} <= {"dropped Refused"}


# --- faster, and the same -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", [[], ["--histories"], ["--byzantine"]])
def test_parallel_run_gives_the_same_results(capsys, kind):
    def told(*more):
        assert main(["sim", *kind, "--seeds", "3", "--first", "1", *more]) == 0
        return capsys.readouterr().out.rpartition(" in ")[0]  # all but the time that it took

    assert told("--jobs", "2", "--repeat").replace(" twice with equal results", "") == told("--jobs", "1")


def test_only_verified_signatures_are_cached():
    seed, other = bytes(32), bytes(31) + b"x"
    public, signature = ed25519_public(seed), ed25519_sign(seed, b"yes")
    before = primitives.open_signed
    with cached_signatures():
        for _ in range(2):
            ed25519_verify(public, b"yes", signature)
            for wrong in ((public, b"no", signature), (ed25519_public(other), b"yes", signature)):
                with pytest.raises(Unauthentic):
                    ed25519_verify(*wrong)
    assert primitives.open_signed is before
