"""Peer sampling among thousands of nodes in discrete events: `zerochat/overlay` with churn, latency and attackers.

What a node asks, answers and keeps is decided by `PeerSampling`, the state machine of the agent. Attackers issue fresh
descriptors at any time, announce themselves once a round to each target, and answer with accomplices only; they know
all nodes. The targets of a hub attack are all honest nodes, those of an eclipse attack a few victims.
"""

import random
from collections import Counter
from collections.abc import Collection, Iterable
from math import log
from typing import Literal, TypeAlias

from msgspec import Struct

from zerochat.overlay.cyclon import EXCHANGE, JITTER, PERIOD_MS, Descriptor
from zerochat.overlay.local_trust import STRANGER
from zerochat.overlay.peer_sampling import PeerSampling
from zerochat.overlay.stream_sampler import StreamSampler
from zerochat.sim.overlay.events import Events, Latency, lognormal
from zerochat.sim.overlay.graphs import largest_part, undirected

Attack: TypeAlias = Literal["hub", "eclipse"]
CONTACTS = 5
"""Random nodes that a node knows in the beginning."""
VICTIMS = 5
"""Of an eclipse attack."""
TIMEOUT_MS = 2_000
SESSION_SHAPE, SESSION_MEDIAN_MS = 0.6, 3_600_000
"""Sessions have a Weibull distribution: most are short, a few very long."""


class SamplingPlan(Struct, frozen=True):
    """What is simulated."""

    nodes: int = 1_000
    """Attackers included."""
    attackers: float = 0.0
    """The part of the nodes that are attackers."""
    attack: Attack = "hub"
    rounds: int = 60
    churn: bool = False
    """Whether nodes leave, each for a new one."""
    columns: int = 1_024
    """Of the sketch of each node."""


class SamplingFigures(Struct, frozen=True):
    """The figures of live honest nodes at one moment.

    `fair`: attackers per live node. `view_share` and `sample_share`: attackers per entry of all views, and samples.
    `eclipsed`: the part of the nodes whose sample holds attackers only. `dead_share`: dead nodes per entry of the
    views. In-degree: in how many views of honest nodes an honest node stands. `connected`: the part of the nodes in
    the largest component of the graph of views, without directions, attackers and dead nodes."""

    fair: float
    view_share: float
    sample_share: float
    eclipsed: float
    dead_share: float
    in_degree_mean: float
    in_degree_deviation: float
    in_degree_max: int
    connected: float


class SamplingWorld:
    """One run."""

    def __init__(self, plan: SamplingPlan, seed: int, latency: Latency | None = None) -> None:
        self.plan, self.rng = plan, random.Random(f"sampling {seed}")
        self.latency = latency or lognormal(random.Random(f"latency {seed}"))
        self.events = Events()
        names = [f"n{at}" for at in range(plan.nodes)]
        self.attackers = names[len(names) - round(plan.attackers * len(names)) :]
        self._hostile = frozenset(self.attackers)
        self._born = len(names)
        self.asked = self.answered = 0
        self.nodes: dict[str, PeerSampling] = {}
        """Live honest nodes."""
        for name in names:
            if name not in self._hostile:
                self._start(name, self.rng.sample(names, min(CONTACTS, len(names))))
        self.victims = list(self.nodes)[:VICTIMS]
        for name in self.attackers:
            self.events.after(self.rng.random() * PERIOD_MS, self._attack, name)

    def run(self, rounds: int) -> None:
        """Run so many periods more."""
        self.events.run(self.events.now + rounds * PERIOD_MS)

    def trust(self, name: str, peer: str) -> float:
        """The trust of a node in another node."""
        return STRANGER

    def shown(self, name: str) -> int:
        """The filter of a node."""
        return 0

    def descriptor(self, name: str) -> Descriptor:
        """A fresh one of a node."""
        return Descriptor(name, int(self.events.now), self.shown(name))

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _start(self, name: str, contacts: Iterable[str]) -> None:
        sampler = StreamSampler(self.rng.randbytes(32), self.rng.randbytes, columns=self.plan.columns)
        node = PeerSampling(name, sampler, self.rng.randbytes, lambda peer: self.trust(name, peer))
        self.nodes[name] = node
        node.receive(self.descriptor(name), map(self.descriptor, contacts), self.events.now)
        self.events.after(self.rng.random() * PERIOD_MS, self._round, name)
        if self.plan.churn:
            self.events.after(self._session_ms(), self._leave, name)

    def _session_ms(self) -> float:
        scale = SESSION_MEDIAN_MS / log(2) ** (1 / SESSION_SHAPE)
        return self.rng.weibullvariate(scale, SESSION_SHAPE)

    def _leave(self, name: str) -> None:
        """A node dies without a word, and another one comes."""
        if self.nodes.pop(name, None):
            self._born += 1
            self._start(f"n{self._born}", self.rng.sample([*self.nodes, *self.attackers], CONTACTS))

    def kill(self, names: Iterable[str]) -> None:
        for name in names:
            self.nodes.pop(name, None)

    def _round(self, name: str) -> None:
        if (node := self.nodes.get(name)) is None:
            return
        partner = node.ask(self.events.now)
        if partner is not None:
            self.asked += 1
            self.events.after(self.latency(), self._answer, partner, self.descriptor(name))
        self.events.after(PERIOD_MS * self.rng.uniform(1 - JITTER, 1 + JITTER), self._round, name)

    def _answer(self, name: str, requester: Descriptor) -> None:
        if node := self.nodes.get(name):
            found = node.answer(requester, self.events.now)
        elif name in self._hostile:
            found = self.accomplices()
        else:
            self.events.after(TIMEOUT_MS, self._give_up, requester.peer, name)
            return
        if requester.peer in self.nodes:
            self.events.after(self.latency(), self._receive, requester.peer, self.descriptor(name), found)

    def _receive(self, name: str, partner: Descriptor, found: Collection[Descriptor]) -> None:
        if node := self.nodes.get(name):
            self.answered += 1
            node.receive(partner, found, self.events.now)

    def _give_up(self, name: str, partner: str) -> None:
        if node := self.nodes.get(name):
            node.forget(partner)

    # --- attackers --------------------------------------------------------------------------------------------------

    def accomplices(self) -> tuple[Descriptor, ...]:
        """What an attacker answers."""
        return tuple(map(self.descriptor, self.rng.sample(self.attackers, min(EXCHANGE, len(self.attackers)))))

    def _attack(self, name: str) -> None:
        """Announce this attacker to each target."""
        for target in list(self.nodes) if self.plan.attack == "hub" else self.victims:
            if node := self.nodes.get(target):
                node.answer(self.descriptor(name), self.events.now)
        self.events.after(PERIOD_MS, self._attack, name)

    # --- measuring --------------------------------------------------------------------------------------------------

    def figures(self, of: Collection[str] = ()) -> SamplingFigures:
        """The figures of these nodes, or of all."""
        chosen = [self.nodes[name] for name in of or self.nodes if name in self.nodes]
        views = [peer for node in chosen for peer in node.view]
        samples = [[one.peer for one in node.sampled] for node in chosen]
        in_degrees = self.in_degrees()
        mean = sum(in_degrees) / max(1, len(in_degrees))
        variance = sum((degree - mean) ** 2 for degree in in_degrees) / max(1, len(in_degrees))
        return SamplingFigures(
            fair=len(self.attackers) / max(1, len(self.nodes) + len(self.attackers)),
            view_share=self._hostile_part(views),
            sample_share=self._hostile_part([peer for sample in samples for peer in sample]),
            eclipsed=sum(self._hostile_part(sample) == 1 for sample in samples) / max(1, len(samples)),
            dead_share=sum(peer not in self.nodes and peer not in self._hostile for peer in views) / max(1, len(views)),
            in_degree_mean=mean,
            in_degree_deviation=variance**0.5,
            in_degree_max=max(in_degrees, default=0),
            connected=largest_part(undirected({name: node.view for name, node in self.nodes.items()})),
        )

    def in_degrees(self) -> list[int]:
        counts = Counter(peer for node in self.nodes.values() for peer in node.view)
        return [counts[name] for name in self.nodes]

    def _hostile_part(self, peers: Collection[str]) -> float:
        return sum(peer in self._hostile for peer in peers) / max(1, len(peers))
