"""Sixteen agents under constant faults: nothing is lost or duplicated, one order, no memory growth.

A slice takes a minute; `--budget` sets a longer run.
"""

import random
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest

from tests.support.chaos_proxy import Chaos
from tests.support.machines import GROUP, check, everybody_has, machines, meet, names, until
from zerochat.agent.api.client_protocol import AgentError

MEMBERS = 15
"""Who stay, besides the guest, who comes and goes."""
MORTAL = 7
"""So many of them are killed now and then; the others say how an agent does in the long run."""
RECORDING = 5
"""So many of those who are never killed record how their messages fare, and one of those who are."""
SECONDS = 60
TICK_S = 0.5
"""Between two messages."""
SAMPLE_TICKS = 10
WARM_UP = 0.2
"""So much of the time an agent may still grow to its size."""
GROWTH_MB_MAX, FILES_MORE_MAX = 48.0, 12
QUIET_S = 10.0
"""Of two who have met one dials first, and the other some seconds later: so long nothing changes once both have."""
WORDS = 3
"""What the guest says before it leaves."""
VISIT_TICKS_MAX = 60


class Guest:
    """An agent that joins, says a few words, sees that somebody has them, leaves, forgets all about it, and joins again
    under another name."""

    def __init__(self, machine, rng):
        self.machine, self.rng = machine, rng
        self.visits = []
        self.does = self.come
        self.hosts = []
        self.ticks = 0

    def tick(self, hosts):
        self.hosts, self.ticks = hosts, self.ticks + 1
        self.does()

    def then(self, does):
        self.does, self.ticks = does, 0

    def state(self):
        return next((group.state for group in self.machine.client.list_groups() if group.name == GROUP), "")

    def come(self):
        if self.hosts:
            self.visits.append(SimpleNamespace(name=f"guest{len(self.visits)}", said=[]))
            invitation = self.rng.choice(self.hosts).client.create_invitation(GROUP)
            self.machine.client.join_group(invitation.url, name=self.visits[-1].name)
            self.then(self.arrive)

    def arrive(self):
        if self.state() == "active":
            self.then(self.talk)
        elif self.ticks > VISIT_TICKS_MAX:  # whoever has invited it may be gone
            with suppress(AgentError):
                self.machine.client.cancel_join()
            self.then(self.come)

    def talk(self):
        visit = self.visits[-1]
        text = f"{visit.name} says {len(visit.said)}"
        visit.said.append(text)
        sent = self.machine.client.send_message(GROUP, text)
        if len(visit.said) == WORDS:
            self.last = sent.id
            self.then(self.see)

    def see(self):
        if self.machine.client.get_delivery(GROUP, self.last).delivered:
            self.machine.client.leave_group(GROUP)
            self.then(self.go)

    def go(self):
        if self.state():
            with suppress(AgentError):  # it is still saying goodbye
                self.machine.client.forget_group(GROUP)
        else:
            self.then(self.come)

    @property
    def is_out(self):
        return self.does == self.come and not self.state()


class Weather:
    """What goes wrong, one thing after the other, and what becomes of it later."""

    def __init__(self, rng, chaos, members):
        self.rng, self.chaos, self.members = rng, chaos, members
        self.later = []
        self.faults = Counter()

    def after(self, seconds, work, *arguments):
        self.later.append((time.monotonic() + seconds, work, arguments))

    def tick(self):
        now = time.monotonic()
        for one in [one for one in self.later if one[0] <= now]:
            self.later.remove(one)
            one[1](*one[2])
        kinds, weights = ("calm", "cut", "cut all", "part", "slow", "freeze", "kill"), (12, 4, 1, 2, 2, 2, 1)
        kind = self.rng.choices(kinds, weights)[0]
        one, other = self.rng.sample(self.members, 2)
        seconds = self.rng.uniform(1.0, 8.0)
        match kind:
            case "cut":
                self.chaos.cut(one.name, other.name)
            case "cut all":
                self.chaos.cut(one.name)
            case "part":
                self.chaos.part(one.name, other.name)
                self.after(seconds, self.chaos.join, one.name, other.name)
            case "slow":
                way = self.chaos.way(one.name, other.name)
                way.delay_s = self.rng.uniform(0.01, 0.3)
                self.after(seconds, setattr, way, "delay_s", 0.0)
            case "freeze" if one.awake:
                one.stop()
                self.after(seconds, one.go_on)
            case "kill" if (mortal := self.rng.choice(self.members[-MORTAL:])).awake:
                mortal.killed_while_saying(f"{mortal.name} dies after {len(mortal.said)}", self.rng.uniform(0.0, 0.01))
                self.after(seconds, mortal.resume)
            case _:
                kind = "calm"
        self.faults[kind] += 1

    def clear(self):
        self.chaos.heal()
        for _, work, arguments in self.later:
            work(*arguments)
        self.later.clear()


def slope(samples):
    """Least squares over (seconds, value), per hour."""
    count = len(samples)
    mean_x, mean_y = (sum(sample[n] for sample in samples) / count for n in (0, 1))
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return 3600 * sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0


def recorded(machine, on):
    status = machine.client.call("get_telemetry")
    return machine.client.call("set_telemetry", on=on, consent=status.consent)


def settled(everybody):
    """How many descriptors each has once all of these are connected both ways."""

    def counts():
        return {machine: machine.files() for machine in everybody}

    before = {}

    def unchanged():
        nonlocal before
        earlier, before = before, counts()
        return earlier == before

    until(unchanged, "the last connection", every_s=QUIET_S)
    return before


def _has_no_more_files(machine, count):
    return machine.files() <= count


@pytest.mark.soak
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc to measure")
def test_sixteen_agents_survive_faults(tmp_path, budget):
    rng, seconds = random.Random(16), budget(SECONDS)
    begun = time.monotonic()
    with Chaos() as chaos, machines(tmp_path, [*names(MEMBERS), "guest"], chaos) as made:
        *members, visitor = made
        meet(*members, within_s=300)
        print(f"{MEMBERS} agents have met after {time.monotonic() - begun:.0f} s")
        for machine in [*members[:RECORDING], members[-1]]:
            recorded(machine, on=True)
        guest, weather = Guest(visitor, rng), Weather(rng, chaos, members)
        steady = members[:-MORTAL]
        met = settled(steady)
        memory, files = ({machine: [] for machine in steady} for _ in range(2))
        begun = time.monotonic()
        tick = 0
        while (now := time.monotonic() - begun) < seconds:
            awake = [machine for machine in members if machine.awake]
            speaker = rng.choice(awake)
            speaker.say(f"{speaker.name} says {len(speaker.said)}")
            guest.tick(awake)
            weather.tick()
            if tick % SAMPLE_TICKS == 0 and now > WARM_UP * seconds:
                for machine in steady:
                    memory[machine].append((now, machine.rss_mb()))
                    files[machine].append((now, machine.files()))
            tick += 1
            time.sleep(max(0.0, begun + tick * TICK_S - time.monotonic()))
        weather.clear()
        deadline = time.monotonic() + 120
        while not guest.is_out and time.monotonic() < deadline:
            guest.tick([])
            time.sleep(TICK_S)
        said = sum(len(one.said) for one in (*members, *guest.visits))
        healed = time.monotonic()
        everybody_has(members, said, 300)
        print(f"{said} messages in {seconds} s by {MEMBERS} and {len(guest.visits)} guests, {dict(weather.faults)};")
        print(f"all is everywhere {time.monotonic() - healed:.1f} s after the last fault")
        check(members, *guest.visits)
        growth = max(samples[-1][1] - samples[0][1] for samples in memory.values())
        mb_h = [slope(samples) for samples in memory.values()]
        files_h = [slope(samples) for samples in files.values()]
        print(f"0 violations; memory {sum(mb_h) / len(mb_h):+.1f} MB/h ({growth:+.1f} MB at most),")
        print(f"descriptors {sum(files_h) / len(files_h):+.1f} /h")
        print(f"{max(machine.rss_mb() for machine in steady):.0f} MB for one agent at most")
        assert growth < GROWTH_MB_MAX
        for machine in steady:  # as many as when all had met, once what was parted has met again
            until(partial(_has_no_more_files, machine, met[machine] + FILES_MORE_MAX), "giving descriptors back")
