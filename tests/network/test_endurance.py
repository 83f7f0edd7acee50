"""Agent processes over a faulty network: no loss, no duplicates, one order.

Each test has a small variant for every day, and one under `chaos` that runs for as long as its budget allows. Faults
are drawn from a seed, by the number of the message; their effects depend on the machine.
"""

import random
import time
from itertools import product

import pytest

from tests.support.chaos_proxy import Chaos
from tests.support.machines import GROUP, acknowledged, check, everybody_has, machines, meet, names, until
from zerochat.group.key_modes import MODES

CUT_S = 0.1
PACE_S = 0.01
MEMBERS, BURST = 64, 100
GROWTH_MB_MAX = 64.0
"""What a member may make another one grow by."""


@pytest.fixture
def chaos():
    with Chaos() as chaos:
        yield chaos


def talk(everybody, until_number):
    """Everybody who is awake says what it has to say up to this number."""
    for machine in everybody:
        while machine.awake and len(machine.said) < until_number:
            machine.say(f"{machine.name} says {len(machine.said)}")


@pytest.mark.slow
def test_two_members_whose_link_is_cut_repeatedly(tmp_path, chaos):
    two_whose_link_is_cut(tmp_path, chaos, 60, 1.0)


@pytest.mark.chaos
def test_two_members_whose_link_is_cut_for_long(tmp_path, chaos, budget):
    two_whose_link_is_cut(tmp_path, chaos, budget(150), 3.0)


def two_whose_link_is_cut(folder, chaos, count, freeze_s):
    with machines(folder, ("alice", "bob"), chaos) as (alice, bob):
        meet(alice, bob)
        chaos.cut_every_s = CUT_S
        thaw_at = 0.0
        for number in range(count):
            if number == count // 4:
                bob.stop()
                thaw_at = time.monotonic() + freeze_s
            if bob.stopped and time.monotonic() > thaw_at:
                bob.go_on()
            if number == count // 2:
                alice.killed_while_saying("alice dies", 0.002)
            if number == count * 2 // 3:
                alice.resume()
            talk((alice, bob), number)
            time.sleep(PACE_S)
        if bob.stopped:
            time.sleep(max(0.0, thaw_at - time.monotonic()))
            bob.go_on()
        talk((alice, bob), count)
        everybody_has((alice, bob), 2 * count, 300)  # and it is still being cut
        check((alice, bob))
        assert chaos.cuts > count / 20  # fewer on a fast machine, which is through sooner
        chaos.heal()
        acknowledged((alice, bob))


# --- several members, and chance ------------------------------------------------------------------------------------


def weather(dice, chaos, everybody):
    """What happens to the network at one moment: mostly nothing; a pair is cut, or parted until further notice, or is
    far apart; or all that is mended."""
    one, other = (machine.name for machine in dice.sample(everybody, 2))
    match dice.choices(("calm", "cut", "part", "slow", "mend"), (10, 6, 2, 2, 1))[0]:
        case "cut":
            chaos.cut(one, other)
        case "part":
            chaos.part(one, other)
        case "slow":
            chaos.way(one, other).delay_s = dice.uniform(0.01, 0.2)
        case "mend":
            chaos.heal()


@pytest.mark.slow
def test_five_members_with_cut_links_and_random_crashes(tmp_path, chaos):
    five_who_die(tmp_path, chaos, 15, 2, seed=1)


@pytest.mark.chaos
def test_five_members_that_crash_repeatedly(tmp_path, chaos, budget):
    five_who_die(tmp_path, chaos, budget(25), budget(2), seed=2)


def five_who_die(folder, chaos, count, deaths, seed):
    dice = random.Random(seed)
    with machines(folder, names(5), chaos) as everybody:
        meet(*everybody)
        dies_at = dice.sample(range(1, count), deaths)
        for number in range(count):
            dead = [machine for machine in everybody if not machine.awake]
            if number in dies_at and len(dead) < 3:
                mortal = dice.choice([machine for machine in everybody if machine.awake])
                mortal.killed_while_saying(f"{mortal.name} dies at {number}", dice.uniform(0.0, 0.01))
            elif dead and dice.random() < 0.2:
                dice.choice(dead).resume()
            weather(dice, chaos, everybody)
            talk(everybody, number)
            time.sleep(PACE_S)
        chaos.heal()
        for machine in everybody:
            if not machine.awake:
                machine.resume()
        talk(everybody, count)
        everybody_has(everybody, sum(len(machine.said) for machine in everybody), 300)
        check(everybody)
        acknowledged(everybody)


@pytest.mark.slow
@pytest.mark.parametrize("goodbye", [False, True], ids=["killed", "left"])
def test_relayed_events_of_an_author_gone_for_good(tmp_path, chaos, goodbye):
    """`goodbye`: it leaves the group before its machine is gone."""
    with machines(tmp_path, ("author", "witness", "carol", "dave"), chaos) as everybody:
        author, witness, carol, dave = everybody
        meet(*everybody)
        author.say("everybody hears this")
        everybody_has(everybody, 1, 60)
        for one, other in product((author, witness), (carol, dave)):
            chaos.part(one.name, other.name)
        for number in range(20):
            author.say(f"last words {number}")
        everybody_has([witness], 21, 60)
        if goodbye:
            author.client.leave_group(GROUP)
            until(lambda: len(witness.client.list_members(GROUP)) == 3, "the leaving")
        author.kill()
        assert not carol.has(2) and not dave.has(2), "they have met nobody who has it"
        chaos.heal()
        witness.say("did you hear?")
        everybody_has([witness, carol, dave], 22, 20)
        check([witness, carol, dave], author)


# --- one who is too slow --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_one_slow_member_costs_the_others_nothing(tmp_path, chaos):
    one_slow_member(tmp_path, chaos, 80, 20_000, 5.0)


@pytest.mark.chaos
def test_one_slow_member_delays_no_other_with_much_to_fetch(tmp_path, chaos, budget):
    """With `--budget 10` it has 1,500 long messages to fetch, over a line on which they take long."""
    one_slow_member(tmp_path, chaos, budget(150), 60_000, budget(3))


def one_slow_member(folder, chaos, count, bytes_per_s, slow_s):
    """`slow_s`: how long the slow one is left alone with what it has to fetch."""
    dice = random.Random(3)
    with machines(folder, ("sender", "fast", "also-fast", "slow"), chaos) as everybody:
        sender, fast, also_fast, slow = everybody
        meet(*everybody)
        sender.say("warm up")
        everybody_has(everybody, 1, 60)
        chaos.way("sender", "slow").bytes_per_s = bytes_per_s
        before_mb = highest_mb = sender.rss_mb()
        for number in range(count):
            sender.say(f"{number} {dice.randbytes(1500).hex()}")
        everybody_has([fast, also_fast], count + 1, 120)
        assert not slow.has(count + 1), "the others have not waited for it"
        deadline = time.monotonic() + slow_s
        while time.monotonic() < deadline and not slow.has(count + 1):
            highest_mb = max(highest_mb, sender.rss_mb())
            time.sleep(0.2)
        progress, passed = len(slow.texts()), chaos.way("sender", "slow").passed
        print(f"{progress} of {count + 1} in {slow_s:.0f} s, {passed} bytes; {before_mb:.0f} to {highest_mb:.0f} MB")
        chaos.heal()
        everybody_has(everybody, count + 1, 120)
        check(everybody)
        assert highest_mb - before_mb < GROWTH_MB_MAX
        acknowledged(everybody)


# --- many -----------------------------------------------------------------------------------------------------------


@pytest.mark.chaos
@pytest.mark.parametrize("keys", MODES)
def test_all_members_of_a_large_group_receive_a_burst(tmp_path, keys, budget):
    """With `--budget 16`, the size at which the thesis' implementation delivered 42 to 99 of 100 messages."""
    members, burst = min(MEMBERS, budget(MEMBERS / 16)), BURST
    begun = time.monotonic()
    with machines(tmp_path, names(members)) as everybody:

        def lap(what):
            nonlocal begun
            cpu_s = sum(machine.cpu() for machine in everybody)
            print(f"{keys}: {what}: {time.monotonic() - begun:.1f} s, {cpu_s:.1f} s of CPU so far")
            begun = time.monotonic()

        host, *others = everybody
        lap("started")
        meet(host, *others, wave=8, within_s=600, keys=keys)
        lap("met")
        for number in range(burst):
            host.say(f"{host.name} says {number}")
        for other in others:
            other.say(f"{other.name} was here")
        lap("said")
        everybody_has(everybody, burst + len(others), 600)
        lap("delivered")
        acknowledged(everybody, 600)
        lap("acknowledged")
        print(f"{max(machine.rss_mb() for machine in everybody):.0f} MB for one agent at most")
        check(everybody)
