"""GossipSub v1.1 with its published parameters, in the same discrete events, for comparison.

After the specification of libp2p (pubsub/gossipsub v1.0 and v1.1): a mesh of bidirectional links kept between D_lo and
D_hi by GRAFT and PRUNE at each heartbeat, eager push over the mesh, IHAVE to some other peers of what came in the last
heartbeats, and IWANT for what is missing. One topic; no peer scores, quotas of outbound links or peer exchange, which
serve against attackers; each node connects to `CONNECTIONS` random others, as in the simulator of its authors
(vyzo/gerbil-simsub), which counts 6.29 payloads per delivery among 1,000 nodes.
"""

import random
from collections import deque
from collections.abc import Callable, Sequence

from zerochat.overlay.forwarding import SeenMessages
from zerochat.sim.overlay.events import Events, Latency
from zerochat.sim.overlay.measures import Figures, Measures

D, D_LO, D_HI, D_LAZY = 6, 4, 12, 6
GOSSIP_FACTOR = 0.25
HEARTBEAT_MS = 1_000.0
HISTORY_LENGTH, HISTORY_GOSSIP = 5, 3
"""Heartbeats for which a message can be requested, and in which it is announced."""
SEEN_MS = 120_000
PRUNE_BACKOFF_MS = 60_000.0
CONNECTIONS = 20
WARM_UP_MS = 10_000.0
"""Until the first message: the mesh is stable by then."""
INTERVAL_MS = 1_000.0
DRAIN_MS = 10_000.0
COPIES_MAX = 64
"""Copies per node and message; many times what is expected."""


class Peer:
    """One node: its connections, its mesh, and its message cache by heartbeats, newest first."""

    __slots__ = ("backoff_until", "connected", "history", "mesh", "seen")

    def __init__(self) -> None:
        self.connected, self.mesh = list[int](), list[int]()
        self.seen = SeenMessages(keep_ms=SEEN_MS)
        self.history = deque([set[str]()], maxlen=HISTORY_LENGTH)
        self.backoff_until = dict[int, float]()


class GossipSub:
    """A network of nodes that are all subscribed to one topic."""

    def __init__(self, nodes: int, messages: int, seed: int, latency: Latency, *, flood_publish: bool = True) -> None:
        self.latency, self.flood_publish, self.messages = latency, flood_publish, messages
        self.rng = random.Random(f"gossipsub {seed}")
        self.events = Events()
        self.measures = Measures(COPIES_MAX * nodes * messages)
        self.peers = [Peer() for _ in range(nodes)]
        connections: list[set[int]] = [set() for _ in range(nodes)]
        for name in range(nodes):
            for other in self.rng.sample(range(nodes), min(CONNECTIONS + 1, nodes)):
                if other != name:
                    connections[name].add(other)
                    connections[other].add(name)
        for peer, others in zip(self.peers, connections, strict=True):
            peer.connected = sorted(others)

    def run(self) -> Figures:
        for name in range(len(self.peers)):
            self.events.after(self.rng.random() * HEARTBEAT_MS, self._heartbeat, name)
        for number in range(self.messages):
            author = self.rng.randrange(len(self.peers))
            self.events.after(WARM_UP_MS + number * INTERVAL_MS, self._publish, author, f"m{number}")
        self.events.run(WARM_UP_MS + self.messages * INTERVAL_MS + DRAIN_MS)
        return self.measures.figures()

    def mesh_degrees(self) -> Sequence[int]:
        return [len(peer.mesh) for peer in self.peers]

    # --- messages ---------------------------------------------------------------------------------------------------

    def _publish(self, author: int, message: str) -> None:
        peer = self.peers[author]
        self.measures.publish(message, self.events.now, len(self.peers) - 1)
        peer.seen.remember(message, self.events.now)
        peer.history[0].add(message)
        for other in peer.connected if self.flood_publish else peer.mesh:
            self._send(author, other, message, 1)

    def _send(self, name: int, to: int, message: str, hops: int) -> None:
        self.measures.send()
        self.events.after(self.latency(), self._arrive, to, name, message, hops)

    def _arrive(self, name: int, bearer: int, message: str, hops: int) -> None:
        peer = self.peers[name]
        if not peer.seen.remember(message, self.events.now):
            return
        self.measures.deliver(message, self.events.now, hops)
        peer.history[0].add(message)
        for other in peer.mesh:
            if other != bearer:
                self._send(name, other, message, hops + 1)

    # --- heartbeat --------------------------------------------------------------------------------------------------

    def _control(self, to: int, call: Callable[..., None], *arguments: object) -> None:
        self.measures.control += 1
        self.events.after(self.latency(), call, to, *arguments)

    def _heartbeat(self, name: int) -> None:
        peer, now = self.peers[name], self.events.now
        if len(peer.mesh) < D_LO:
            able = [one for one in peer.connected if one not in peer.mesh and peer.backoff_until.get(one, 0) <= now]
            for other in self.rng.sample(able, min(D - len(peer.mesh), len(able))):
                peer.mesh.append(other)
                self._control(other, self._graft, name)
        if len(peer.mesh) > D_HI:
            for other in self.rng.sample(peer.mesh, len(peer.mesh) - D):
                peer.mesh.remove(other)
                peer.backoff_until[other] = now + PRUNE_BACKOFF_MS
                self._control(other, self._prune, name)
        announced = tuple(message for window in list(peer.history)[:HISTORY_GOSSIP] for message in sorted(window))
        if announced:
            others = [one for one in peer.connected if one not in peer.mesh]
            count = min(len(others), max(D_LAZY, int(GOSSIP_FACTOR * len(others))))
            for other in self.rng.sample(others, count):
                self._control(other, self._ihave, name, announced)
        peer.history.appendleft(set())
        self.events.after(HEARTBEAT_MS, self._heartbeat, name)

    def _graft(self, name: int, sender: int) -> None:
        peer = self.peers[name]
        if peer.backoff_until.get(sender, 0) > self.events.now:
            self._control(sender, self._prune, name)
        elif sender not in peer.mesh:
            peer.mesh.append(sender)

    def _prune(self, name: int, sender: int) -> None:
        peer = self.peers[name]
        peer.backoff_until[sender] = self.events.now + PRUNE_BACKOFF_MS
        if sender in peer.mesh:
            peer.mesh.remove(sender)

    def _ihave(self, name: int, sender: int, announced: Sequence[str]) -> None:
        if missing := [message for message in announced if not self.peers[name].seen.holds(message, self.events.now)]:
            self._control(sender, self._iwant, name, missing)

    def _iwant(self, name: int, sender: int, ids: Sequence[str]) -> None:
        here = set().union(*self.peers[name].history)
        for message in ids:
            if message in here:
                self._send(name, sender, message, 1)
