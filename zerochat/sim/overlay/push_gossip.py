"""Push gossip: each node sends a new message to some random others, without a ring (Demers et al., PODC 1987).

It reaches only the part s of the nodes that solves s = 1 - exp(-b s) for a fan-out of b: 94.0 % for three.
"""

import random
from math import exp

from zerochat.sim.overlay.events import Events, Latency
from zerochat.sim.overlay.measures import Figures, Measures

INTERVAL_MS = 200.0


def fixed_point(fan_out: float) -> float:
    """The expected part of many nodes that push gossip reaches."""
    part = 1.0
    for _ in range(1_000):
        part = 1 - exp(-fan_out * part)
    return part


class PushGossip:
    """A network of nodes that know each other."""

    def __init__(self, nodes: int, messages: int, seed: int, latency: Latency, fan_out: int = 3) -> None:
        self.nodes, self.messages, self.latency, self.fan_out = nodes, messages, latency, fan_out
        self.rng = random.Random(f"push gossip {seed}")
        self.events = Events()
        self.measures = Measures((fan_out + 1) * nodes * messages)
        self._infected: dict[str, set[int]] = {}

    def run(self) -> Figures:
        for number in range(self.messages):
            self.events.after(number * INTERVAL_MS, self._publish, self.rng.randrange(self.nodes), f"m{number}")
        self.events.run()
        return self.measures.figures()

    def _publish(self, author: int, message: str) -> None:
        self.measures.publish(message, self.events.now, self.nodes - 1)
        self._infected[message] = {author}
        self._push(author, message, 1)

    def _push(self, name: int, message: str, hops: int) -> None:
        for other in self.rng.sample(range(self.nodes - 1), self.fan_out):
            self.measures.send()
            # All but itself.
            self.events.after(self.latency(), self._arrive, other + (other >= name), message, hops)

    def _arrive(self, name: int, message: str, hops: int) -> None:
        if name not in self._infected[message]:
            self._infected[message].add(name)
            self.measures.deliver(message, self.events.now, hops)
            self._push(name, message, hops + 1)
