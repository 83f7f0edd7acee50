"""Histories of a ring with hostile neighbours: honest members are complete within a bound, and none of them pays.

Checked as well, with each step: a forgery is charged to the neighbour that brings it; at the end, that honest members
are linked to each other, and accuse or throttle none of them. Every attack is either *charged* to the attacker or
*harmless*.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from msgspec import Struct

from zerochat.group.links.neighbours import links_of
from zerochat.sim.fast_crypto import cached_signatures
from zerochat.sim.large.hostile_neighbours import ATTACKS, FORGING, HostileNeighbour, HostileWorld
from zerochat.sim.large.large_world import LargeWorld
from zerochat.sim.large.scenario import QUIET_INTERVAL_MS, LargePlan, Scenario
from zerochat.sim.large.wide_caches import wide_caches
from zerochat.sim.world import Faults

COMPLETE_MS_MAX: Final = 600_000
"""Time from the last message until all honest members have everything, as long as one honest path exists."""
HOSTILE_PART: Final = 3
"""One member of so many may be hostile."""
LAYOUTS: Final = ("scattered", "eclipse", "encircled")
"""Where hostile members are: anywhere; the successors and predecessors of a victim; all of its neighbours but one."""


class HostilePlan(Struct, frozen=True):
    """A simulated group. `attacks`: those of the hostile members; random ones, if empty."""

    members: int = 32
    messages: int = 24
    layout: str = "scattered"
    attacks: tuple[str, ...] = ()
    loss: float = 0.02


class HostileResult(Struct, frozen=True):
    """One history."""

    hostile: int
    complete_ms: int
    """From the last message until all honest members had everything."""
    tried: dict[str, int]
    """By attack: the messages that were replaced."""
    charged: dict[str, int]
    """By attack: the envelopes that were charged to the attacker."""
    digest: str

    @property
    def undetected(self) -> list[str]:
        """Forging attacks that no honest member has charged."""
        return sorted(FORGING & self.tried.keys() - self.charged.keys())


class HostileScenario(Scenario):
    """One run of a plan."""

    world_class: ClassVar[type[LargeWorld]] = HostileWorld
    world: HostileWorld

    def __init__(self, plan: HostilePlan, seed: int) -> None:
        super().__init__(LargePlan(plan.members, plan.messages, plan.loss), seed)
        self.hostile_plan = plan
        self.victim = ""
        self.complete_ms = 0
        """How long completing has taken after the last message."""

    def play(self) -> None:
        """Run the history, and check the invariants. Raises Violation."""
        world, plan = self.world, self.hostile_plan
        self._gather()
        self._turn_hostile()
        world.faults = Faults(plan.loss, duplication=0.05, delay_ms_max=200)
        for number in range(plan.messages):
            world.after(number * QUIET_INTERVAL_MS, self._post)
        # A member that leaves makes the others change their keys: key events and direct messages have to get through.
        world.after(self._rng.randrange(plan.messages * QUIET_INTERVAL_MS), self._leave)
        world.run(for_ms=plan.messages * QUIET_INTERVAL_MS)
        began = world.now
        self._wait(self._is_complete, COMPLETE_MS_MAX, "honest members are not complete")
        self.complete_ms = world.now - began
        world.check_honest()

    def _turn_hostile(self) -> None:
        rng, plan = self._rng, self.hostile_plan
        self.victim = rng.choice(self.first)
        attacks = plan.attacks or tuple(rng.sample(list(ATTACKS), 2))
        for name in self._hostile_names():
            self.world.hostile[name] = HostileNeighbour(self.world, name, rng.choice(attacks))

    def _hostile_names(self) -> Sequence[str]:
        """Hostile members by the layout; the honest ones stay connected to each other over links of the view."""
        world, rng = self.world, self._rng
        owner = {world.group(name).me: name for name in self.first}
        near = {name: links_of(world.group(name), did) for did, name in owner.items()}
        links = {name: {owner[did] for did in own.all} for name, own in near.items()}
        around = near[self.victim]
        match self.hostile_plan.layout:
            case "eclipse":
                wanted = [owner[did] for did in around.successors + around.predecessors]
            case "encircled":
                wanted = [owner[did] for did in around.all]
                wanted.remove(rng.choice(wanted))
            case _:
                others = [name for name in self.first if name != self.victim]
                wanted = rng.sample(others, len(self.first) // HOSTILE_PART)
        found = list[str]()
        for name in wanted:
            rest = links.keys() - {*found, name}
            if _is_connected({one: links[one] & rest for one in sorted(rest)}):
                found.append(name)
        return found

    def _active(self) -> list[str]:
        return [name for name in super()._active() if name not in self.world.hostile]

    def _post(self) -> None:
        """A message of the victim, or of another honest member."""
        if self._rng.random() < 0.3 and self.victim in self._active():
            self._post_of(self.victim)
        else:
            super()._post()

    def _lacks(self) -> Iterator[str]:
        return self.world.missing_of_honest() if self.world.hostile else super()._lacks()


def _is_connected(links: dict[str, set[str]]) -> bool:
    todo, reached = [next(iter(links))], set[str]()
    while todo:
        one = todo.pop()
        if one not in reached:
            reached.add(one)
            todo += links[one]
    return len(reached) == len(links)


@cached_signatures()
def run_hostile(plan: HostilePlan, seed: int) -> HostileResult:
    """Simulate one seed. Raises Violation."""
    with wide_caches(plan.members + 2):
        scenario = HostileScenario(plan, seed)
        scenario.play()
    world = scenario.world
    return HostileResult(
        len(world.hostile), scenario.complete_ms, dict(world.tried), dict(world.charged), world.digest.hexdigest()
    )
