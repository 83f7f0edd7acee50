"""The cost of strangers: hardly any memory, no lasting descriptor, no delay.

Two real agents talk; a crowd in a process of its own (`tests/support/stranger_crowd.py`) attacks one of them. The
figures are printed (`pytest -m chaos -rP`).
"""

import sys
import time

import pytest

from tests.support.load_gauge import (
    PACE_S,
    STRANGERS_MB_MAX,
    WARM,
    Gauge,
    ears,
    p99,
    ports_of,
    server_key_of,
    word,
)
from tests.support.machines import GROUP, acknowledged, check, machines, meet, until
from tests.support.stranger_crowd import IDLE, KINDS, Crowd

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to measure, and TCP_INFO to defend"),
]

FILES_MAX = 120


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with machines(tmp_path_factory.mktemp("strangers"), ("alice", "bob"), gauged=True) as (alice, bob):
        meet(alice, bob)
        with ears(alice) as ear:
            for _ in range(WARM):
                word(bob, ear)
        with Crowd("push", 1, server_key_of(alice), ports_of(alice)):  # loads what is loaded once
            pass
        yield alice, bob


@pytest.mark.parametrize("kind", KINDS)
def test_a_crowd_of_strangers_costs_hardly_anything(pair, kind, budget):
    alice, bob = pair
    crowd = Crowd(kind, budget(3), server_key_of(alice), ports_of(alice))
    gauge = Gauge(alice)
    with ears(alice) as ear:
        quiet_s = p99(gauge.deliver_words(bob, ear, lambda: False))
        with crowd:
            times = gauge.deliver_words(bob, ear, lambda: crowd.at_work)
    grown_mb = gauge.look()
    print(f"{kind}: {crowd.did}; {len(times)} words, p99 {p99(times) * 1000:.0f} ms, quiet {quiet_s * 1000:.0f} ms;")
    print(
        f"grown by {grown_mb:.1f} MB (at most {STRANGERS_MB_MAX:.0f}), {gauge.files} descriptors, then {alice.files()}"
    )
    assert crowd.did["connections"] and not crowd.did.get("let in")
    assert grown_mb < STRANGERS_MB_MAX
    gauge.nothing_is_left()
    acknowledged((alice, bob))
    check((alice, bob))


def test_members_are_served_with_few_descriptors(tmp_path):
    """Strangers want more descriptors than the agent may have; members come and go meanwhile."""
    with machines(tmp_path, ("alice", "bob", "carol"), files_max=FILES_MAX, gauged=True) as everybody:
        alice, bob, carol = everybody
        meet(alice, bob)
        with ears(alice) as ear:
            for _ in range(10):
                word(bob, ear)
        gauge = Gauge(alice)
        crowd = Crowd("idle", 4, server_key_of(alice), ports_of(alice))
        highest, cpu_s, begun = 0, alice.cpu(), time.monotonic()
        with crowd:
            until(lambda: alice.files() > gauge.files + 10, "the crowd")
            carol.client.join_group(alice.client.create_invitation(GROUP).url)
            until(lambda: alice.group().connected == 2, "coming in among strangers")
            came_s = time.monotonic() - begun
            while crowd.at_work:
                highest = max(highest, alice.files())
                bob.say(f"meanwhile {len(bob.said)}")
                alice.say(f"and back {len(alice.said)}")
                time.sleep(PACE_S)
        cpu_s = alice.cpu() - cpu_s
        gauge.words = len(alice.said) + len(bob.said)
        gauge.nothing_is_left()
        print(f"{crowd.did}; {highest} of {FILES_MAX} descriptors taken; a newcomer was in after {came_s:.1f} s;")
        print(f"{cpu_s:.1f} s of CPU in {time.monotonic() - begun:.1f} s, +{gauge.look():.1f} MB")
        assert crowd.did["connections"] >= IDLE
        acknowledged(everybody)
        alice.kill()
        alice.resume()
        check(everybody)
