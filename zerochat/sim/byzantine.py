"""Histories with malicious members, and the invariants of honest members.

Checked at the end for honest members: no core fails; no honest member is accused; no forgery is accepted; members who
know each other agree on the view and have each other's posts once and in one order; nothing is sent to a member that
was known to be removed; relayed events are never taken for confirmed ones; limits hold; no member is suspended for
long. In a third of the histories, machines and lines of honest members fail too. Every attack is either *detected* (its
author was accused) or *harmless*.
"""

import random
from collections.abc import Callable, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.group.inputs import CreateGroup
from zerochat.group.key_modes import MODES
from zerochat.sim.actions import Users, random_accountability, random_policy, random_rotation
from zerochat.sim.attacks import ATTACKS
from zerochat.sim.byzantine_world import ByzantineWorld
from zerochat.sim.fast_crypto import cached_signatures
from zerochat.sim.low_limits import with_low_limits
from zerochat.sim.world import EPOCH_MS, Faults

CALM_MS_MAX, ROUND_MS = 900_000, 15_000
"""Time for the honest members to converge after the last action, and the interval of the checks."""
AWAY_MS_MAX = 40_000
FAILURES_EVERY, FAILURE_RATE = 3, 0.4
"""In one history of FAILURES_EVERY, machines and lines of honest members fail at this rate."""
HEADING = """\
Attacks in histories without a violation. "alone" counts members who tried only this attack: they were either accused
by an honest member (detected) or caused no violation (harmless)."""


class Tally(Struct):
    """How often each attack was tried, and with which result.

    Results are counted for adversaries who tried only that attack: accused (detected), or not accused while no
    invariant was violated (harmless).
    """

    attempts: dict[str, int] = field(default_factory=dict)
    isolated: dict[str, set[tuple[int, str]]] = field(default_factory=dict)
    """By attack: seed and node of the adversaries who tried nothing else."""
    detected: dict[str, int] = field(default_factory=dict)
    quarantines: int = 0
    """How often an honest node quarantined an unconfirmed member."""

    def merge(self, other: "Tally") -> None:
        """Add the counts of another tally."""
        for mine, theirs in ((self.attempts, other.attempts), (self.detected, other.detected)):
            for attack, count in theirs.items():
                mine[attack] = mine.get(attack, 0) + count
        for attack, alone in other.isolated.items():
            self.isolated.setdefault(attack, set()).update(alone)
        self.quarantines += other.quarantines

    def rows(self) -> dict[str, dict[str, int]]:
        """The counts by attack."""
        told = {}
        for name, tried in sorted(self.attempts.items()):
            alone, seen = len(self.isolated.get(name, ())), self.detected.get(name, 0)
            told[name] = {"tried": tried, "alone": alone, "detected": seen, "harmless": alone - seen}
        return told

    def table(self) -> str:
        lines = [HEADING, f"{'attack':28}{'tried':>8}{'alone':>8}{'detected':>10}{'harmless':>10}"]
        for name, row in self.rows().items():
            lines.append(f"{name:28}{row['tried']:8}{row['alone']:8}{row['detected']:10}{row['harmless']:10}")
        return "\n".join([*lines, f"members quarantined temporarily: {self.quarantines}"])


def _count(world: ByzantineWorld, tally: Tally) -> None:
    kinds = {name: {attack for who, attack in world.attempts if who == name} for name in world.adversaries}
    for name, attack in world.attempts:
        tally.attempts[attack] = tally.attempts.get(attack, 0) + 1
        alone = tally.isolated.setdefault(attack, set())
        if len(kinds[name]) == 1 and (world.seed, name) not in alone:
            alone.add((world.seed, name))
            tally.detected[attack] = tally.detected.get(attack, 0) + (name in world.accused)
    tally.quarantines += len(world.quarantined)


class _History:
    """The random course of one history."""

    def __init__(self, world: ByzantineWorld, rng: random.Random, bad: Sequence[str], attacks: Sequence[str]) -> None:
        self.world, self.rng, self.bad, self.names = world, rng, bad, list(world.nodes)
        self.honest_users, self.bad_users = Users(world, rng, world.honest), Users(world, rng, bad)
        self.isolation_rng = random.Random(f"history {world.seed}")
        self.failure_rng = random.Random(f"mishaps {world.seed}")
        self.upgrade_rng = random.Random(f"upgrades {world.seed}")
        self.failure_rate = FAILURE_RATE if world.seed % FAILURES_EVERY == 1 else 0.0
        world.on_restart = self.honest_users.answer_pending_requests
        world.on_notification = lambda name, notification: self._users(name).on_notification(name, notification)
        self.plans = {name: list(attacks) or rng.sample(list(ATTACKS), rng.choice((1, 1, 2, 3))) for name in bad}
        self.actions_left = 0

    def _users(self, name: str) -> Users:
        return self.bad_users if name in self.world.adversaries else self.honest_users

    def create_group(self) -> None:
        world, rng, creator = self.world, self.rng, self.names[0]
        keys, policy = rng.choice(list(MODES)), random_policy(rng)
        history = self.isolation_rng.choice(("all", "all", "all", "none", "last:2", f"since:{EPOCH_MS + 30_000}"))
        policy = replace(policy, history=history)
        accountability = random_accountability(keys, f"byzantine {world.seed}")
        world.run_command(creator, CreateGroup("sim", creator, world.envelope, keys, policy, accountability))
        self.actions_left = rng.randint(0, 5)

    def act(self, most: int) -> None:
        """Up to this many rounds of posts, other actions, attacks and failures."""
        world, rng = self.world, self.rng
        for _ in range(rng.randint(0, most)):
            (self.bad_users if rng.random() < 0.3 else self.honest_users).post()
            if self.actions_left and rng.random() < 0.3:
                self.actions_left -= 1
                self.honest_users.act()
            (self.bad_users if self.upgrade_rng.random() < 0.3 else self.honest_users).upgrade_rarely(self.upgrade_rng)
            if rng.random() < 0.3:
                adversary = rng.choice(self.bad)
                world.attack(adversary, rng.choice(self.plans[adversary]))
            if self.isolation_rng.random() < 0.1:
                name = self.isolation_rng.choice(world.honest)
                world.isolate(name, self.isolation_rng.randint(1_000, AWAY_MS_MAX))
            if self.failure_rng.random() < self.failure_rate:
                world.random_failure(self.failure_rng, self.failure_rng.choice(world.honest))
            world.run(for_ms=rng.randint(0, 2_000))

    def join_all(self) -> None:
        world, rng = self.world, self.rng
        for name in self.names[1:]:
            self._users(name).join(name, self.names)
            self.act(3)
            if rng.random() < 0.7:
                world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=100_000)  # type: ignore[misc]
        world.run(for_ms=rng.randint(0, 60_000))
        self.act(6)

    def attack_all(self) -> None:
        for adversary in self.bad:
            for attack in self.plans[adversary]:
                for _ in range(2):
                    self.world.attack(adversary, attack)
                    self.world.run(for_ms=self.rng.randint(0, 10_000))
        self.act(4)

    def settle(self) -> None:
        """End all failures and wait until the honest members have converged."""
        self.world.heal()
        self.honest_users.stop()
        self.bad_users.stop()
        for _ in range(CALM_MS_MAX // ROUND_MS):
            self.world.run(for_ms=ROUND_MS)
            if not any(self.world.missing_of_honest()):
                break


@cached_signatures()
@with_low_limits
def play_byzantine(
    seed: int,
    faults: Faults | None = None,
    trace: Callable[[str], None] | None = None,
    tally: Tally | None = None,
    attacks: Sequence[str] = (),
    on_world: Callable[[ByzantineWorld], None] | None = None,
) -> ByzantineWorld:
    """One history with four to seven members, of whom up to all but two are malicious (with these attacks; random ones
    by default). `on_world` receives the world before the run. Raises Violation."""
    rng = random.Random(f"byzantine {seed}")
    count = rng.randint(4, 7)
    names = [f"n{number}" for number in range(count)]
    bad = sorted(rng.sample(names, rng.randint(1, count - 2)))
    world = ByzantineWorld(seed, count, bad, faults, trace)
    if on_world:
        on_world(world)
    world.set_rotation(random_rotation(f"byzantine {seed}"))
    history = _History(world, rng, bad, attacks)
    history.create_group()
    history.join_all()
    history.attack_all()
    history.settle()
    world.check()
    if tally is not None:
        _count(world, tally)
    return world
