"""Clustering and joins among thousands of nodes: VICINITY, fingers and join routing over peer sampling, in events.

Nodes belong to communities. A node follows topics of its community mostly, and some of all; a few nodes follow those
of two communities, and are all that connects clusters without fingers. All decisions are those of `zerochat/overlay`.
"""

import random
from collections.abc import Collection, Iterable
from math import sqrt

from msgspec import Struct

from zerochat.overlay import clustering
from zerochat.overlay.blip import blip, bloom
from zerochat.overlay.cyclon import PERIOD_MS, Descriptor
from zerochat.overlay.fingers import FINGERS, REFRESH_MS, refreshed
from zerochat.overlay.join_routing import WALKS, next_hop
from zerochat.sim.overlay.events import Latency
from zerochat.sim.overlay.graphs import largest_part, undirected
from zerochat.sim.overlay.sampling_world import SamplingPlan, SamplingWorld

COMMUNITY = 50
"""Nodes of a community."""
TOPICS = 80
"""Of a community."""
FOLLOWED, FOLLOWED_ELSEWHERE = 40, 2
BETWEEN = 0.02
"""The part of the nodes that follow topics of two communities."""
BRIDGES = 0.04
"""The part of the nodes whose failure must not disconnect the clusters: those with the most links out of them."""


class ClusterFigures(Struct, frozen=True):
    """The figures of one moment.

    `similarity`: of a node to the peers in its view by VICINITY, as the cosine of their sets of topics; `by_chance`:
    of random pairs. `connected`: the part of the nodes in the largest component of the graph of clusters and fingers;
    `unbridged`: the same of those that are left without the nodes that have the most links between communities."""

    similarity: float
    by_chance: float
    connected: float
    unbridged: float


class Interests(Struct):
    """What one node follows, and its links by that."""

    community: int
    tags: frozenset[bytes]
    true: int
    """Its filter without noise."""
    filter: int
    cluster: dict[str, Descriptor]
    fingers: tuple[Descriptor, ...] = ()
    rounds: int = 0


class ClusterWorld(SamplingWorld):
    """One run. `fingers`: whether nodes have them."""

    def __init__(self, plan: SamplingPlan, seed: int, latency: Latency | None = None, *, fingers: bool = True) -> None:
        self.fingers = fingers
        self._interests_rng = random.Random(f"interests {seed}")
        self._communities = max(2, plan.nodes // COMMUNITY)
        self.interests: dict[str, Interests] = {}
        super().__init__(plan, seed, latency)

    def shown(self, name: str) -> int:
        if name not in self.interests:
            self.interests[name] = self._interests()
        return self.interests[name].filter

    def _interests(self) -> Interests:
        rng = self._interests_rng
        community = rng.randrange(self._communities)
        sources = [community] * FOLLOWED
        if rng.random() < BETWEEN:
            sources = [community, rng.randrange(self._communities)] * (FOLLOWED // 2)
        topics = [(one, rng.randrange(TOPICS)) for one in sources]
        topics += [(rng.randrange(self._communities), rng.randrange(TOPICS)) for _ in range(FOLLOWED_ELSEWHERE)]
        tags = frozenset(b"topic %d of %d" % (topic, one) for one, topic in topics)
        return Interests(community, tags, bloom(tags), blip(tags, rng.randbytes(32), 0), {})

    # --- nodes ------------------------------------------------------------------------------------------------------

    def _round(self, name: str) -> None:
        super()._round(name)
        if (node := self.nodes.get(name)) is None:
            return
        own, rng = self.interests[name], self.rng.randbytes
        own.rounds += 1
        due = own.rounds % (REFRESH_MS // PERIOD_MS) == 0 or len(own.fingers) < FINGERS
        if self.fingers and due:
            own.fingers = refreshed(own.fingers, own.true, node.sampled, rng)
        partner = clustering.partner(own.cluster, node.view, own.rounds, rng)
        if partner is not None:
            own.cluster.pop(partner, None)
            self.events.after(self.latency(), self._answer_cluster, partner, self.descriptor(name))

    def _answer_cluster(self, name: str, requester: Descriptor) -> None:
        if node := self.nodes.get(name):
            found = clustering.answer(requester, self.interests[name].cluster, node.view, self.rng.randbytes)
            found = (self.descriptor(name), *found)
            self.events.after(self.latency(), self._receive_cluster, requester.peer, found)

    def _receive_cluster(self, name: str, found: Iterable[Descriptor]) -> None:
        if node := self.nodes.get(name):
            own = self.interests[name]
            own.cluster = clustering.updated(name, own.true, own.cluster, found, node.view, self.events.now)

    # --- joins ------------------------------------------------------------------------------------------------------

    def subscribers(self, tag: bytes) -> list[str]:
        return [name for name in self.nodes if tag in self.interests[name].tags]

    def join(self, tag: bytes, contacts: Collection[str]) -> int | None:
        """Look for a subscriber of a topic over these nodes: the hops of the shortest walk that has found one."""
        found = [self._walk(tag, contact) for contact in list(contacts)[:WALKS]]
        return min((hops for hops in found if hops is not None), default=None)

    def _walk(self, tag: bytes, name: str | None) -> int | None:
        passed: list[str] = []
        while name is not None:
            passed.append(name)
            if name not in self.nodes:  # it has died: the walk is lost
                return None
            own = self.interests[name]
            if tag in own.tags:
                return len(passed) - 1
            neighbours = [*own.cluster.values(), *self.nodes[name].view.values()]
            name = next_hop(tag, neighbours, own.fingers, passed, self.rng.randbytes)
        return None

    # --- measuring --------------------------------------------------------------------------------------------------

    def cluster_figures(self) -> ClusterFigures:
        names = list(self.nodes)
        own = self.interests
        graph = undirected({name: (*own[name].cluster, *(one.peer for one in own[name].fingers)) for name in names})
        outside = {
            name: sum(own[name].community != own[other].community for other in others) for name, others in graph.items()
        }
        bridges = sorted(names, key=lambda name: (-outside[name], name))[: round(BRIDGES * len(names))]
        left = undirected({name: graph[name] for name in names if name not in bridges})
        pairs = [(name, other) for name in names for other in own[name].cluster]
        chance = [(one, other) for one, other in (self._interests_rng.sample(names, 2) for _ in pairs)]
        return ClusterFigures(
            similarity=self._mean_similarity(pairs),
            by_chance=self._mean_similarity(chance),
            connected=largest_part(graph),
            unbridged=largest_part(left),
        )

    def _mean_similarity(self, pairs: Collection[tuple[str, str]]) -> float:
        total = 0.0
        for one, other in pairs:
            here, there = self.interests[one].tags, self.interests[other].tags
            total += len(here & there) / sqrt(len(here) * len(there))
        return total / max(1, len(pairs))
