"""The index of dials finds what a scan of all nodes finds, in the same order."""

import random

import pytest

from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.effects import AllowClient, Dial
from zerochat.sim.dial_index import DialIndex
from zerochat.sim.world import Faults, World

SECRETS = [bytes([n]) * 32 for n in range(1, 5)]
LINKS = [bytes([n]) * 16 for n in range(5)]
QUEUES = [b"one", b"two", b"three"]


def scan(nodes, fits):
    return [(node.name, link) for node in nodes for link, dial in node.dialled.items() if fits(node, dial)]


def names(found):
    return [(node.name, link) for node, link in found]


@pytest.mark.parametrize("seed", range(30))
def test_the_same_dials_in_the_same_order_as_a_scan(seed: int) -> None:
    rng = random.Random(seed)
    nodes, index = list(World(seed, 4, Faults()).nodes.values()), DialIndex()
    for node in nodes:
        index.add_node(node)
    for _ in range(200):
        node = rng.choice(nodes)
        match rng.randrange(8):
            case 0 | 1 | 2 | 3:
                to = rng.choice(nodes)
                queues = tuple(rng.sample(QUEUES, 2))
                dial = Dial(
                    rng.choice(LINKS), to.address, to.server_key, rng.choice(SECRETS), to.queue_address, queues, False
                )
                index.add(node, dial)
                node.dialled[dial.link] = dial
            case 4:
                node.dialled.pop(rng.choice(LINKS), None)
            case 5:
                node.dialled.clear()
            case _:
                allowed = AllowClient(rng.choice(LINKS), x25519_public(rng.choice(SECRETS)), ())
                node.allowed_clients[allowed.client_key] = allowed
                index.allow(node, allowed)
        node, queue, secret = rng.choice(nodes), rng.choice(QUEUES), rng.choice(SECRETS)
        address: Endpoint = node.address
        assert names(index.subscribers(queue, node.queue_address)) == scan(
            nodes, lambda _, dial, q=queue, n=node: q in dial.queues and dial.queue_at == n.queue_address
        )
        assert names(index.of_client(x25519_public(secret), address)) == scan(
            nodes, lambda _, dial, s=secret, a=address: dial.client_secret == s and dial.pair == a
        )
        link = rng.choice(LINKS)
        allowing = {key for key, one in node.allowed_clients.items() if one.link == link}
        there = scan(nodes, lambda _, d, k=allowing, a=address: x25519_public(d.client_secret) in k and d.pair == a)
        assert [one for one in names(index.over(node, link)) if one in there] == there


class Scanned(World):
    """Looks for links to connect among all dials, not among those that are not settled."""

    def _connect_unsettled(self) -> None:
        dials = [(node, link) for node in self.nodes.values() for link in node.dialled]
        self._dials.unsettled = lambda: dials  # type: ignore[method-assign]
        super()._connect_unsettled()


@pytest.mark.parametrize("seed", range(6))
def test_a_world_connects_as_if_it_scanned_all_dials(seed: int) -> None:
    digests = []
    for kind in (World, Scanned):
        rng = random.Random(seed)
        world = kind(seed, 4, Faults(loss=0))
        _dial_at_random(world, rng)
        digests.append((world.digest.hexdigest(), [node.connected for node in world.nodes.values()]))
    assert digests[0] == digests[1]


def _dial_at_random(world: World, rng: random.Random) -> None:
    nodes = list(world.nodes.values())
    for _ in range(300):
        node, to = rng.sample(nodes, 2)
        match rng.randrange(6):
            case 0 | 1:
                key = rng.choice(SECRETS)
                world._perform(
                    node, Dial(rng.choice(LINKS), to.address, to.server_key, key, to.queue_address, (), False)
                )
            case 2 | 3:
                world._perform(node, AllowClient(rng.choice(LINKS), x25519_public(rng.choice(SECRETS)), ()))
            case 4:
                world._disconnect(node, rng.choice(LINKS))
            case _:
                world.stop(node.name)
        world.run(for_ms=rng.randint(0, 30))


def test_a_refused_dial_waits_until_it_is_allowed() -> None:
    world = World(0, 2, Faults(loss=0))
    node, to = world.nodes.values()
    dial = Dial(LINKS[0], to.address, to.server_key, SECRETS[0], to.queue_address, (), False)
    world._perform(node, dial)
    assert not world._dials.unsettled() and not node.connected
    world._perform(to, AllowClient(LINKS[1], x25519_public(SECRETS[0]), ()))
    assert node.connected == {LINKS[0]: "n1"} and to.connected == {LINKS[1]: "n0"}


def test_all_refused_dials_are_tried_where_the_index_knows_no_change() -> None:
    world = World(0, 2, Faults(loss=0))
    node, to = world.nodes.values()
    world._perform(node, Dial(LINKS[0], to.address, to.server_key, SECRETS[0], to.queue_address, (), False))
    to.allowed_clients[x25519_public(SECRETS[0])] = AllowClient(LINKS[1], x25519_public(SECRETS[0]), ())
    world._connect_all()
    assert node.connected == {LINKS[0]: "n1"}
