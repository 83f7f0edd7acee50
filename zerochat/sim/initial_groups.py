"""Existing groups that episodes start with: built once per process, used by thousands of seeds."""

import random
from functools import lru_cache

from msgspec import Struct, structs

from zerochat.group.inputs import CreateGroup
from zerochat.group.key_modes import MODES
from zerochat.group.membership import Policy
from zerochat.sim.actions import Users, random_accountability, random_policy
from zerochat.sim.fast_crypto import TransparentPacker
from zerochat.sim.world import Faults, Violation, World

GROUPS = 24
"""Number of groups; a tenth of the seeds use others, with real encryption."""
ENCRYPTED_EVERY, ENCRYPTED_GROUPS = 10, 4
SETTLE_MS = 5_000


class InitialGroup(Struct, frozen=True):
    """The configuration of a group."""

    members: int
    keys: str
    policy: Policy
    envelope: str
    accountability: str = "acks"

    def describe(self) -> str:
        """The configuration as a sentence."""
        rules = {name.replace("_", " "): value for name, value in structs.asdict(self.policy).items() if value}
        told = ", ".join(f"{name} {value}" for name, value in rules.items())
        log = ", transparency log" if self.accountability != "acks" else ""
        return (
            f"{self.members} members, keys {self.keys}{log}, envelopes {self.envelope};"
            f" {told}. Times are simulated seconds."
        )


def initial_group_for(seed: int) -> InitialGroup:
    """The group that this seed starts with."""
    real = seed % ENCRYPTED_EVERY == 0
    number = seed // ENCRYPTED_EVERY % ENCRYPTED_GROUPS if real else seed % GROUPS
    rng = random.Random(f"beginning {number}")
    keys = list(MODES)[number % len(MODES)]
    policy = Policy() if number % 3 == 0 else random_policy(rng)
    members = rng.choice((2, 2, 2, 3, 3, 4))
    envelope = f"didcomm/v{1 + number % 2}" if real else TransparentPacker.name
    return InitialGroup(members, keys, policy, envelope, random_accountability(keys, f"beginning {number}"))


@lru_cache(maxsize=GROUPS + ENCRYPTED_GROUPS)
def build_world(beginning: InitialGroup) -> World:
    """A converged world with this group and one more node that has not joined. Do not modify it: use
    `FaultyWorld.fork`."""
    world = World(0, beginning.members + 1, Faults(loss=0, duplication=0, delay_ms_max=20), beginning.envelope)
    names = list(world.nodes)[: beginning.members]
    people = Users(world, random.Random(0), names)
    world.on_notification = people.on_notification
    made = beginning.envelope, beginning.keys, beginning.policy, beginning.accountability
    world.run_command(names[0], CreateGroup("sim", names[0], *made))
    for name in names[1:]:
        people.join(name, names)
        if not world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=60_000):  # type: ignore[misc]
            raise Violation(f"{name} never joined a group without faults")
    people.stop()
    world.run(for_ms=2 * 60_000)  # lets pending join attempts end
    for name in names:
        people.rng = random.Random(name)
        people.post()
    world.run(for_ms=SETTLE_MS)
    return world
