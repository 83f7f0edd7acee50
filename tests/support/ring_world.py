"""A group on the ring over the simulated network."""

import hashlib
import random

from zerochat.group.effects import CommandDone, SendEnvelope
from zerochat.group.inputs import AcceptInvitation, CreateGroup, CreateInvitation, SendPost
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.links import neighbours
from zerochat.group.membership import Policy
from zerochat.limits import RING_KEYS
from zerochat.sim import Faults, TransparentPacker
from zerochat.sim.dial_index import DialIndex
from zerochat.sim.failing_world import FailingWorld
from zerochat.sim.web import SimulatedWeb

JOIN_MS = 60_000
FOR_EVER_MS = 10**12


class RingWorld(FailingWorld):
    """So many members of one group on the ring, each of whom has joined through one before it."""

    def __init__(self, members, seed=1, faults=None, policy=None):
        super().__init__(seed, members, Faults(0, 0, 20), TransparentPacker.name)
        self.mute = set()
        """The nodes that send no forwarded messages."""
        self.forwarded = 0
        """Forwarded messages that were sent."""
        first, *others = self.nodes
        self.id = self.run_command(
            first, CreateGroup("club", first, self.envelope, RING_KEYS, policy or Policy(), path="ring")
        ).result.group
        for name in others:
            self.join(name, first)
        self.run(for_ms=120_000)
        self.faults = faults or self.faults

    def fork(self, seed, faults=None):
        """A copy of this world with its own seed."""
        world = object.__new__(type(self))
        vars(world).update(vars(self))
        world.seed, world.rng, world.faults = seed, random.Random(seed), faults or self.faults
        world.digest, world.authored, world._queue = hashlib.sha256(), set(self.authored), list(self._queue)
        world.web = SimulatedWeb(world, 0, 1)
        world.nodes = {name: node.copy() for name, node in self.nodes.items()}
        world._at = {node.server_key: node for node in world.nodes.values()}
        world._dials, world._before_next = DialIndex(), {}
        for node in world.nodes.values():
            world._dials.add_node(node)
        world.cut, world.down, world.crashing, world.on_restart = {}, set(), {}, lambda name: None
        return world

    def _perform(self, node, effect):
        if isinstance(effect, SendEnvelope) and is_forwarded(effect.envelope):
            self.forwarded += 1
            if node.name in self.mute:
                return
        super()._perform(node, effect)

    def join(self, name, by):
        made = self.run_command(by, CreateInvitation(self.id, 86_400, 1))
        assert isinstance(made, CommandDone), made
        self.run_command(name, AcceptInvitation(made.result.invitation, name))
        assert self.run(lambda: bool(self.nodes[name].agent.groups), JOIN_MS, every_ms=50), f"{name} never joined"

    def peers(self, name):
        return set(self.group(name).links.peers)

    def connected(self, name):
        """The members that a node is paired with, over a link that is up."""
        links = self.group(name).links
        up = self.nodes[name].agent.links_up
        return {did for did, one in links.relationships.items() if one.established and links.peers[did].link in up}

    def switch_off(self, name):
        self.kill(name, FOR_EVER_MS)

    def switch_on(self, name):
        self._restart_node(name)

    def neighbours(self, name):
        return set(neighbours.links_of(self.group(name), self.group(name).me).all)

    def post(self, name, text):
        return self.run_command(name, SendPost(self.id, text)).result.id

    def holders(self, post):
        """The nodes that have stored a post."""
        return {name for name, node in self.nodes.items() if any(row.id == post for row in node.log)}

    def all_have(self, posts):
        """Whether every running member has these posts."""
        return all(self.holders(post) >= self.nodes.keys() - self.down for post in posts)
