"""Groups that stand already, for episodes to begin with: made once in each process, and used by thousands of seeds."""

import random
from functools import lru_cache

from msgspec import Struct, structs

from zerochat.group.inputs import CreateGroup
from zerochat.group.key_modes import MODES
from zerochat.group.membership import Policy
from zerochat.sim.actions import People, drawn_accountability, drawn_policy
from zerochat.sim.null_packer import TransparentPacker
from zerochat.sim.world import Faults, Violation, World

KINDS = 24
"""So many beginnings there are; a tenth of the seeds has others, with really encrypted envelopes."""
REAL_EVERY, REAL_KINDS = 10, 4
SETTLE_MS = 5_000


class Beginning(Struct, frozen=True):
    """What a group is like before anything goes wrong."""

    members: int
    keys: str
    policy: Policy
    envelope: str
    accountability: str = "acks"

    def sentence(self) -> str:
        """As a person would say it."""
        rules = {name.replace("_", " "): value for name, value in structs.asdict(self.policy).items() if value}
        told = ", ".join(f"{name} {value}" for name, value in rules.items())
        log = ", with a log" if self.accountability != "acks" else ""
        return (
            f"{self.members} members who have talked for a while, keys {self.keys}{log}, envelopes {self.envelope};"
            f" {told}. Times are seconds of simulated time."
        )


def beginning_of(seed: int) -> Beginning:
    """The one that this seed begins with."""
    real = seed % REAL_EVERY == 0
    number = seed // REAL_EVERY % REAL_KINDS if real else seed % KINDS
    dice = random.Random(f"beginning {number}")
    keys = list(MODES)[number % len(MODES)]
    policy = Policy() if number % 3 == 0 else drawn_policy(dice)
    members = dice.choice((2, 2, 2, 3, 3, 4))
    envelope = f"didcomm/v{1 + number % 2}" if real else TransparentPacker.name
    return Beginning(members, keys, policy, envelope, drawn_accountability(keys, f"beginning {number}"))


@lru_cache(maxsize=KINDS + REAL_KINDS)
def begun(beginning: Beginning) -> World:
    """A world in which such a group stands, everybody has everything, and one node more is there who has not joined.

    Nobody may go on with it: take a copy (`Ordeal.fork`).
    """
    world = World(0, beginning.members + 1, Faults(loss=0, duplication=0, delay_ms_max=20), beginning.envelope)
    names = list(world.nodes)[: beginning.members]
    people = People(world, random.Random(0), names)
    world.heed = people.heed
    made = beginning.envelope, beginning.keys, beginning.policy, beginning.accountability
    world.ask(names[0], CreateGroup("sim", names[0], *made))
    for name in names[1:]:
        people.join(name, names)
        if not world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=60_000):  # type: ignore[misc]
            raise Violation(f"{name} never got into a group in which nothing is wrong")
    people.stop()
    world.run(for_ms=2 * 60_000)  # whoever would have asked again for an invitation does not any more
    for name in names:
        people.dice = random.Random(name)
        people.say()
    world.run(for_ms=SETTLE_MS)
    return world
