"""Hops of messages among real cores, to compare with those of the event simulator (`sim/overlay/`).

Both decide by `overlay/forwarding.py` to whom a member sends a message. What differs is all the rest: here, links are
those that cores have made, and a member forwards events new to its log, opened or not.
"""

import random
from collections import Counter
from collections.abc import Mapping
from typing import Final

from zerochat.group.inputs import CreateGroup, Input, Received, SendPost
from zerochat.group.key_modes import forwarded
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.links.neighbours import links_of
from zerochat.overlay.ring import Links
from zerochat.sim.fast_crypto import cached_signatures
from zerochat.sim.large.founding import found
from zerochat.sim.large.large_world import LargeWorld
from zerochat.sim.large.wide_caches import wide_caches
from zerochat.sim.world import Faults, Violation, World

DELAY_MS_MAX: Final = 20
"""Delays are uniform, from 1 ms."""
INTERVAL_MS: Final = 400
"""Between two messages; each has reached all members by then."""
JOINED_MS: Final = 300_000
NO_FAULTS: Final = Faults(loss=0, duplication=0, delay_ms_max=DELAY_MS_MAX)


class HopWorld(LargeWorld):
    """Counts how many members have forwarded a message when it first reaches a member."""

    hops: dict[bytes, dict[str, int]]
    """By message and node."""

    @classmethod
    def fork(cls, begun: World, seed: int, faults: Faults) -> "HopWorld":
        world = super().fork(begun, seed, faults)
        assert isinstance(world, HopWorld)
        world.hops = {}
        return world

    def process(self, name: str, input_: Input) -> None:
        if isinstance(input_, Received) and is_forwarded(input_.envelope):
            one, sender = forwarded.parse(input_.envelope), self._sender(input_)
            reached = self.hops.setdefault(one.signature, {sender: 0})
            reached.setdefault(name, reached[sender] + 1)
        super().process(name, input_)


@cached_signatures()
def core_hops(members: int, authors: int, messages: int, seed: int) -> tuple[list[Counter[int]], Mapping[str, Links]]:
    """By message, how many members its first copy reached over so many hops; and the links of all members by the view.
    The messages are those of some random authors. Raises Violation unless each has reached all members."""
    world = HopWorld.fork(World(seed, members, NO_FAULTS), seed, NO_FAULTS)
    names, rng = list(world.nodes), random.Random(f"hops {seed}")
    with wide_caches(members):
        group = found(world, names, CreateGroup("sim", names[0], world.envelope, "dcgka", path="ring"))
        if not world.run(world.fully_connected, JOINED_MS, INTERVAL_MS):
            raise Violation(f"seed {seed}: the members are not linked")
        chosen = rng.sample(names, authors)
        for number in range(messages):
            world.run_command(chosen[number % authors], SendPost(group, f"message {number}"))
            world.run(for_ms=INTERVAL_MS)
        links = {world.group(name).me: links_of(world.group(name), world.group(name).me) for name in names}
    if [len(reached) for reached in world.hops.values()] != [members] * messages:
        raise Violation(f"seed {seed}: not all members have all messages")
    return [Counter(hops for hops in reached.values() if hops) for reached in world.hops.values()], links
