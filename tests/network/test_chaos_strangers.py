"""What strangers cost an agent that people use: next to no memory, no descriptor for long, and nobody any time.

Two real agents talk; a crowd in a process of its own (`tests/support/stranger_crowd.py`) does its worst to the one of them. The figures
are printed (`pytest -m chaos -rP`).
"""

import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.machines import GROUP, acknowledged, check, machines, meet, until
from tests.support.stranger_crowd import IDLE, KINDS, Crowd
from zerochat.agent.api.client import connect
from zerochat.didcomm.invitation import parse_invitation
from zerochat.rpc import Event

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to measure, and TCP_INFO to defend"),
]

GROWTH_MB_MAX = 8.0
P99_S, SLACK = 0.25, 3
"""What a member's word may take while strangers are at it; and how much longer on a machine that is busy."""
PACE_S = 0.01
WARM = 100
FILES_MAX = 120


class Gauge:
    """How much a process grows from now on, and its descriptors."""

    def __init__(self, machine):
        self.machine, self.files = machine, machine.files()
        self.before_mb = self.highest_mb = machine.rss_mb()
        self._peak = Path(f"/proc/{machine.process.pid}/status")
        with suppress(OSError):
            Path(f"/proc/{machine.process.pid}/clear_refs").write_text("5")

    def look(self):
        self.highest_mb = max(self.highest_mb, self.machine.rss_mb())
        peak_mb = next(int(line.split()[1]) for line in self._peak.read_text().splitlines() if "VmHWM" in line) / 1024
        if peak_mb < self.before_mb + 2000:  # else it could not be reset
            self.highest_mb = max(self.highest_mb, peak_mb)
        return self.highest_mb - self.before_mb

    def files_are_back(self):
        return self.machine.files() <= self.files + 4


def server_key_of(machine):
    invitation = parse_invitation(machine.client.invite(GROUP).url, int(time.time()))
    return invitation.server_key


def ports_of(machine):
    status = machine.client.status()
    return tuple(int(where.rpartition(":")[2]) for where in (status.pair, status.queue))


@contextmanager
def ears(machine):
    with connect(machine.places, "test") as ear:
        ear.subscribe()
        yield ear


def word(speaker, ear):
    """One word, and how long it took until the other one's face was told of it; seconds."""
    text = f"word {len(speaker.said)}"
    begun = time.monotonic()
    speaker.say(text)
    for news in ear.news(30):
        if isinstance(news.item, Event) and news.item.body.get("text") == text:
            return time.monotonic() - begun
    raise AssertionError(f"nobody heard {text!r}")


def p99(times):
    return sorted(times)[int(0.99 * (len(times) - 1))]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    with machines(tmp_path_factory.mktemp("strangers"), ("alice", "bob")) as (alice, bob):
        meet(alice, bob)
        with ears(alice) as ear:
            for _ in range(WARM):
                word(bob, ear)
        yield alice, bob


@pytest.mark.parametrize("kind", KINDS)
def test_a_crowd_of_strangers_costs_next_to_nothing(pair, kind, budget):
    alice, bob = pair
    crowd = Crowd(kind, budget(3), server_key_of(alice), ports_of(alice))
    gauge = Gauge(alice)
    times = []
    with ears(alice) as ear:
        quiet_s = p99([word(bob, ear) for _ in range(WARM)])
        with crowd:
            while crowd.at_work:
                times.append(word(bob, ear))
                gauge.look()
                time.sleep(PACE_S)
        until(gauge.files_are_back, "that their descriptors are given back")
    grown_mb = gauge.look()
    print(f"{kind}: {crowd.did}; {len(times)} words, p99 {p99(times) * 1000:.0f} ms, quiet {quiet_s * 1000:.0f} ms;")
    print(f"grown by {grown_mb:.1f} MB (aim: {GROWTH_MB_MAX:.0f}), {gauge.files} descriptors, then {alice.files()}")
    assert crowd.did["connections"] and not crowd.did.get("let in")
    assert grown_mb < GROWTH_MB_MAX
    assert p99(times) < SLACK * P99_S
    acknowledged((alice, bob))
    check((alice, bob))


def test_with_few_descriptors_everybody_is_served_all_the_same(tmp_path):
    """Strangers want more descriptors than the agent may have; members come and go meanwhile."""
    with machines(tmp_path, ("alice", "bob", "carol"), files_max=FILES_MAX) as everybody:
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
            carol.client.join(alice.client.invite(GROUP).url)
            until(lambda: alice.group().connected == 2, "coming in among strangers")
            came_s = time.monotonic() - begun
            while crowd.at_work:
                highest = max(highest, alice.files())
                bob.say(f"meanwhile {len(bob.said)}")
                alice.say(f"and back {len(alice.said)}")
                time.sleep(PACE_S)
        cpu_s = alice.cpu() - cpu_s
        until(gauge.files_are_back, "that their descriptors are given back")
        print(f"{crowd.did}; {highest} of {FILES_MAX} descriptors taken; a newcomer was in after {came_s:.1f} s;")
        print(f"{cpu_s:.1f} s of CPU in {time.monotonic() - begun:.1f} s, +{gauge.look():.1f} MB")
        assert crowd.did["connections"] >= IDLE
        acknowledged(everybody)
        alice.kill()
        alice.resume()
        check(everybody)
