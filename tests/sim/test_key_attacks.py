"""Keys that heal, in simulations with faults and insiders; and seeded defects, which the checks must find."""

import random

import pytest

from zerochat.group.dcgka import publisher, receiver
from zerochat.group.key_modes import MODES
from zerochat.sim import byzantine, initial_groups
from zerochat.sim.byzantine import Tally, play_byzantine
from zerochat.sim.episode import play_episode
from zerochat.sim.key_attacks import KEY_ATTACKS
from zerochat.sim.world import Violation

NAMES = [attack.__name__.replace("_", " ") for attack in KEY_ATTACKS]
HEALING = {"dcgka": MODES["dcgka"]}
HISTORIES = 40
"""In which a seeded defect must show: it does in about one of six."""


@pytest.fixture
def healing(monkeypatch):
    """Every simulated group has keys that heal."""
    monkeypatch.setattr(byzantine, "MODES", HEALING)
    monkeypatch.setattr(initial_groups, "MODES", HEALING)
    initial_groups.build_world.cache_clear()
    yield
    initial_groups.build_world.cache_clear()


def plan(seed):
    """The attacks of one history: mostly one."""
    lot = random.Random(seed)
    return lot.sample(NAMES, lot.choice((1, 1, 2)))


def test_insiders_leave_no_member_unable_to_read(healing):
    tally = Tally()
    for seed in range(6):
        play_byzantine(seed, attacks=plan(seed), tally=tally)
    assert sum(tally.attempts.values()) > 20


@pytest.mark.sim
@pytest.mark.parametrize("attack", NAMES)
def test_each_key_attack_violates_nothing(healing, attack, budget):
    tally = Tally()
    for seed in range(budget(20)):
        play_byzantine(seed, attacks=[attack], tally=tally)
    assert tally.attempts[attack]


@pytest.mark.sim
def test_many_episodes_with_keys_that_heal(healing, budget):
    for seed in range(budget(300)):
        play_episode(seed)


def test_different_seeds_convict_their_author(healing):
    tally = Tally()
    for seed in range(4):
        play_byzantine(seed, attacks=["different seeds"], tally=tally)
    assert tally.detected["different seeds"]


# --- it would notice ------------------------------------------------------------------------------------------------


def no_loss_is_recorded(monkeypatch):
    def record(tx, name, member, upto, *, lost):
        was(tx, name, member, upto, lost=False)

    was = publisher.record_ack
    monkeypatch.setattr(publisher, "record_ack", record)


def no_end_of_waiting(monkeypatch):
    monkeypatch.setattr(receiver, "HOLD_MS", 10**12)


def withhold_keys():
    for seed in range(HISTORIES):
        play_byzantine(seed, attacks=["withheld keys"])


@pytest.mark.slow
@pytest.mark.parametrize("defect", [no_loss_is_recorded, no_end_of_waiting], ids=lambda defect: defect.__name__)
def test_a_defect_is_found(healing, defect, monkeypatch):
    defect(monkeypatch)
    with pytest.raises(Violation, match="lacks the present keys"):
        withhold_keys()
