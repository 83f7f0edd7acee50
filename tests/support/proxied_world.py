"""A group on the ring of which some members are behind a mediator, and connect to nothing else."""

from copy import copy

from tests.support.ring_world import RingWorld
from zerochat.group.effects import OpenWebSocket, WebPost
from zerochat.group.inputs import CreateGroup, WebSocketDown
from zerochat.group.links.shared_mailboxes import announced
from zerochat.group.membership import Policy
from zerochat.limits import RING_KEYS
from zerochat.sim import Faults, World


class ProxiedWorld(RingWorld):
    """So many members, the last ones behind the mediator m0. Each has joined through the first."""

    def __init__(self, members, behind, seed=1):
        self.cut, self.down, self.crashing, self.on_restart = {}, set(), {}, lambda name: None
        self.mute, self.forwarded, self.posts = set(), 0, 0
        self.edges = [f"n{number}" for number in range(members - behind, members)]
        World.__init__(self, seed, members, Faults(0, 0, 20), "didcomm/v2", None, 1, dict.fromkeys(self.edges, ("m0",)))
        first, *others = self.nodes
        made = self.run_command(first, CreateGroup("club", first, self.envelope, RING_KEYS, Policy(), path="ring"))
        self.id = made.result.group
        for name in others:
            self.join(name, first)
        self.run(for_ms=120_000)

    @property
    def mediator(self):
        return self.web.mediators["m0"]

    def _perform(self, node, effect):
        if isinstance(effect, WebPost):
            self.posts += 1
        super()._perform(node, effect)

    def shared(self):
        """By edge, the update whose secret it shares its mailbox by."""
        found = {name: announced(self.nodes[name].agent, self.group(name)) for name in self.edges}
        return {name: next(iter(ours.values()), "") for name, ours in found.items()}

    def fork(self, seed, faults=None):
        sockets, mediator = [*self.web.sockets], copy(self.mediator)
        world = super().fork(seed, faults)
        mediator.waiting = {name: dict(waiting) for name, waiting in mediator.waiting.items()}
        mediator.shares = {key: dict(recipients) for key, recipients in mediator.shares.items()}
        mediator.shared, mediator.mailboxes = set(mediator.shared), dict(mediator.mailboxes)
        mediator.proven, mediator._long = set(mediator.proven), dict(mediator._long)
        world.web.add(mediator)
        for name, uri in sockets:
            world.process(name, WebSocketDown(uri))
            world.web.perform(name, OpenWebSocket(uri))
        world.run(for_ms=5_000)
        return world
