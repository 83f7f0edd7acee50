"""Real cores forward messages as the event simulator says, member by member."""

import random
from collections import Counter
from functools import lru_cache

import pytest

from zerochat.overlay.forwarding import FAN_OUT
from zerochat.sim.large.core_hops import DELAY_MS_MAX, core_hops
from zerochat.sim.overlay.hop_comparison import compare_hops, pooled
from zerochat.sim.overlay.ring_world import RingPlan, RingWorld

MEMBERS, AUTHORS, MESSAGES, SIMULATED = 60, 10, 40, 200
SIGNIFICANCE = 0.01
cores = lru_cache(core_hops)


def simulated(links, fan_out: int = FAN_OUT) -> list[Counter[int]]:
    """The hops of messages in the event simulator, over the same links and with the same delays."""
    rng = random.Random("delays")
    plan = RingPlan(nodes=len(links), fan_out=fan_out, messages=SIMULATED)
    world = RingWorld(plan, links, 1, lambda: rng.randint(1, DELAY_MS_MAX))
    world.publish_all()
    return list(world.measures.hops.values())


def mean(messages) -> float:
    hops = pooled(messages)
    return sum(number * count for number, count in hops.items()) / sum(hops.values())


@pytest.mark.parametrize(
    "members", [pytest.param(MEMBERS, marks=pytest.mark.slow), pytest.param(100, marks=pytest.mark.sim)]
)
def test_real_cores_have_the_hops_of_the_event_simulator(members, figures):
    found, links = cores(members, AUTHORS, MESSAGES, 1)
    expected = simulated(links)
    same = compare_hops(found, expected, random.Random(1))
    figures(
        f"{members} real cores: {mean(found):.2f} hops; events: {mean(expected):.2f} hops;"
        f" D {same.statistic:.3f}, p {same.p:.3f}"
    )
    assert same.p > SIGNIFICANCE


@pytest.mark.slow
def test_the_comparison_of_cores_finds_another_rule():
    found, links = cores(MEMBERS, AUTHORS, MESSAGES, 1)
    for fan_out in (FAN_OUT - 1, FAN_OUT + 1):
        assert compare_hops(found, simulated(links, fan_out), random.Random(1)).p <= SIGNIFICANCE


def test_hops_of_cores_are_counted_from_the_author():
    found, links = cores(26, 2, 4, 1)
    assert all(sum(message.values()) == 25 and min(message) == 1 for message in found)
    assert all(message[1] <= FAN_OUT for message in found) and len(links) == 26
