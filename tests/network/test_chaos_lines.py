"""Agents over bad lines: loss, duplication, delay, corruption, cuts, vanished machines.

The duration of each test is printed (`pytest -m chaos -rP`) beside its goal. The tests assert three times the goal,
because the machine that runs them has other work.
"""

import random
import time
from contextlib import contextmanager

import pytest

from tests.support.bad_line import BadLine, needs_line
from tests.support.chaos_proxy import Chaos, Flips
from tests.support.machines import Machine, acknowledged, check, everybody_has, machines, meet, until

NOTICED_S, RECOVERED_S = 4.0, 5.0
SLACK = 3
"""How much longer than aimed at something may take on a machine that is busy."""
CUT_S = 0.1
LOSS, TWICE, DELAY_S, JITTER_S = 0.20, 0.10, 0.020, 0.030
FLIPPED = 0.01


@pytest.fixture
def chaos():
    with Chaos() as chaos:
        yield chaos


@pytest.fixture
def line():
    with BadLine(("alice", "bob"), seed=5) as line:
        yield line


@contextmanager
def on_hosts(folder, line):
    """An agent on each host."""
    made = [Machine(folder, name, host=host) for name, host in line.hosts.items()]
    try:
        for machine in made:
            machine.spawn()
        for machine in made:
            machine.attend()
        yield made
    finally:
        for machine in made:
            if machine.process is not None:
                machine.kill()


@contextmanager
def taking(what, aim_s):
    """Print how long it takes; it may take three times as long as is aimed at."""
    begun = time.monotonic()
    yield
    took_s = time.monotonic() - begun
    print(f"{what}: {took_s:.2f} s (aim: {aim_s:.0f} s)")
    assert took_s < SLACK * aim_s


def gone(looker, other):
    return lambda: looker.member(other).connection != "connected"


def there(*everybody):
    return lambda: all(one.group().connected == len(everybody) - 1 for one in everybody)


def to_say(everybody, count):
    """Everybody says so many things, in turns."""
    for number in range(count):
        for machine in everybody:
            machine.say(f"{machine.name} says {number}")


# --- packets --------------------------------------------------------------------------------------------------------


def lossy(folder, line, count):
    with on_hosts(folder, line) as everybody:
        meet(*everybody)
        line.loss, line.twice, line.delay_s, line.jitter_s = LOSS, TWICE, DELAY_S, JITTER_S
        begun = time.monotonic()
        to_say(everybody, count // 2)
        everybody_has(everybody, count, 60 + count / 10)
        print(
            f"{count} messages over {LOSS:.0%} loss, {TWICE:.0%} twice and {JITTER_S * 1000:.0f} ms jitter: "
            f"{time.monotonic() - begun:.1f} s; {line.lost} of {line.packets} packets lost, {line.doubled} twice"
        )
        assert line.lost and line.doubled
        line.heal()
        acknowledged(everybody)
        check(everybody)


@pytest.mark.slow
@needs_line
def test_a_few_messages_arrive_over_a_lossy_line(tmp_path, line):
    lossy(tmp_path, line, 20)


@pytest.mark.chaos
@needs_line
def test_all_messages_arrive_at_twenty_percent_packet_loss(tmp_path, line, budget):
    lossy(tmp_path, line, budget(200))


@pytest.mark.chaos
@needs_line
def test_a_vanished_machine_is_noticed_and_reconnected(tmp_path, line):
    """Nothing leaves it and nothing reaches it; no connection is closed."""
    with on_hosts(tmp_path, line) as everybody:
        alice, bob = everybody
        meet(alice, bob)
        to_say(everybody, 1)
        acknowledged(everybody)
        for speaking in (False, True):
            line.gone.add("bob")
            with taking(f"gone while {'somebody speaks' if speaking else 'all are silent'}, noticed", NOTICED_S):
                for number in range(10 * speaking):
                    alice.say(f"into the void {number}")
                until(gone(alice, bob), "noticing", every_s=0.01)
            until(gone(bob, alice), "noticing")
            bob.say(f"and from there, {speaking}")
            line.heal()
            with taking("all is there after the heal", RECOVERED_S):
                until(there(alice, bob), "the return", every_s=0.01)
                everybody_has(everybody, sum(len(one.said) for one in everybody), 60)
        check(everybody)


# --- bytes ----------------------------------------------------------------------------------------------------------


def flipped(folder, chaos, count):
    dice = random.Random(7)
    flips = Flips(dice, FLIPPED)
    with machines(folder, ("alice", "bob"), chaos) as everybody:
        alice, bob = everybody
        meet(alice, bob)
        for way in chaos.ways("alice", "bob"):
            way.garble = flips
        begun = time.monotonic()
        to_say(everybody, count // 2)
        print(
            f"{flips.flipped} of {flips.pieces} segments with a flipped bit; said in {time.monotonic() - begun:.1f} s"
        )
        chaos.heal()
        with taking("all is there after the heal", RECOVERED_S):
            until(there(alice, bob), "the return", every_s=0.01)
            everybody_has(everybody, count, 60)
        check(everybody)  # nothing else than what was said, and in whole
        acknowledged(everybody)
    return flips


@pytest.mark.chaos
def test_no_changed_byte_is_ever_shown(tmp_path, chaos, budget):
    assert flipped(tmp_path, chaos, budget(400)).flipped


# --- connections ----------------------------------------------------------------------------------------------------


@pytest.mark.chaos
def test_all_messages_arrive_while_connections_are_cut(tmp_path, chaos, budget):
    """Only one speaks, as fast as it may. With `--budget 50` these are 30,000 messages."""
    count = budget(600)
    with machines(tmp_path, ("alice", "bob"), chaos) as everybody:
        alice, bob = everybody
        meet(alice, bob)
        chaos.cut_every_s = CUT_S
        begun = time.monotonic()
        for number in range(count):
            alice.say(f"{number}")
        said_s = time.monotonic() - begun
        acknowledged(everybody, 60 + count / 50)  # and it is still being cut
        took_s = time.monotonic() - begun
        print(f"{count} messages said in {said_s:.1f} s, there after {took_s:.1f} s; {chaos.cuts} connections cut")
        assert chaos.cuts
        check(everybody)
