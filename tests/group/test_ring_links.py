"""Links on the ring: each member is linked to its neighbours, and to others in place of those that are down."""

import pytest
from msgspec.structs import replace

from tests.support.marks import others_slow
from tests.support.ring_world import RingWorld
from zerochat.group.effects import Notify
from zerochat.group.inputs import LeaveGroup, StepContext
from zerochat.group.links.neighbours import AWAIT_MS, LINKS_ACCEPTED_MAX
from zerochat.group.links.ring_links import SURPLUS_MS
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import MissingRange
from zerochat.group.sync import history_requests, pull_requests
from zerochat.group.transaction import Transaction
from zerochat.overlay.ring import LINKS_MAX, MESH_MEMBERS_MAX
from zerochat.sim.world import SIMULATED_PACKERS

MEMBERS = 40


@pytest.fixture(scope="module")
def settled():
    return RingWorld(MEMBERS)


@pytest.fixture
def world(settled):
    return settled.fork(1)


def reached_from(world, name):
    """The nodes that are connected to one by links of running members."""
    owner = {world.group(node).me: node for node in world.nodes}
    reached, waiting = {name}, [name]
    while waiting:
        node = world.nodes[waiting.pop()]
        group = world.group(node.name)
        ends = {group.links.peers[did].link: owner[did] for did in group.links.relationships if did in owner}
        near = {ends[link] for link in node.connected if link in ends} - reached - world.down
        reached |= near
        waiting += near
    return reached


def test_members_are_linked_to_their_neighbours_alone(settled):
    assert len({settled.group(name).view.checksum for name in settled.nodes}) == 1
    for name in settled.nodes:
        assert settled.neighbours(name) <= settled.peers(name)
        assert len(settled.neighbours(name)) <= LINKS_MAX
        assert len(settled.peers(name)) <= LINKS_ACCEPTED_MAX


def test_no_link_is_kept_by_each_end_for_the_other(world):
    """While the group grew past a mesh, both ends of many links closed them at once, and each then met the other's last
    messages."""
    world.run(for_ms=2 * SURPLUS_MS)
    assert all(world.peers(name) == world.neighbours(name) for name in world.nodes)


def test_a_link_that_the_other_end_needs_is_kept(world):
    name = "n5"
    down = [node for node in world.nodes if world.group(node).me in world.neighbours(name)]
    for node in down:
        world.switch_off(node)
    world.run(for_ms=2 * AWAIT_MS + 3 * SURPLUS_MS)
    assert len(world.connected(name) - world.neighbours(name)) >= 4


def test_a_small_group_is_a_mesh():
    world = RingWorld(5)
    assert {len(world.peers(name)) for name in world.nodes} == {4}
    assert MESH_MEMBERS_MAX >= 5


def test_what_an_author_is_not_linked_to_pulls_from_neighbours(world):
    posts = [world.post(name, f"from {name}") for name in ("n0", "n7", "n39")]
    assert world.run(lambda: world.all_have(posts), for_ms=600_000, every_ms=1_000)


def test_the_next_members_take_the_place_of_neighbours_that_are_down(world):
    name = "n5"
    down = [node for node in world.nodes if world.group(node).me in world.neighbours(name)]
    for node in down:
        world.switch_off(node)
    world.run(for_ms=4 * AWAIT_MS)
    assert len(world.connected(name)) >= 4
    assert not world.connected(name) & {world.group(node).me for node in down}
    for node in down:
        world.switch_on(node)
    world.run(for_ms=20 * AWAIT_MS)
    assert world.connected(name) >= world.neighbours(name)
    assert len(world.peers(name)) <= LINKS_ACCEPTED_MAX


def test_clients_are_notified_when_links_are_closed(world, monkeypatch):
    shown, perform = {}, world._perform

    def watch(node, effect):
        if isinstance(effect, Notify) and isinstance(effect.notification, ViewChanged):
            shown[node.name] = world.peers(node.name)
        perform(node, effect)

    monkeypatch.setattr(world, "_perform", watch)
    down = [node for node in world.nodes if world.group(node).me in world.neighbours("n5")]
    for node in down:
        world.switch_off(node)
    world.run(for_ms=4 * AWAIT_MS)
    before = world.peers("n5")
    for node in down:
        world.switch_on(node)
    world.run(for_ms=20 * AWAIT_MS)
    assert before - world.peers("n5"), "members that took their place are given up"
    assert shown["n5"] == world.peers("n5")


@pytest.mark.parametrize("seed", others_slow(range(6), everyday=2))
def test_a_group_stays_connected_with_most_members_offline(settled, seed):
    world = settled.fork(seed)
    for node in world.rng.sample([*world.nodes], MEMBERS * 7 // 10):
        world.switch_off(node)
    world.run(for_ms=12 * AWAIT_MS)
    running = world.nodes.keys() - world.down
    assert reached_from(world, next(iter(running))) == running
    assert all(len(world.peers(name)) <= LINKS_ACCEPTED_MAX for name in running)
    posts = [world.post(name, "still here") for name in running]
    assert world.run(lambda: world.all_have(posts), for_ms=1_800_000, every_ms=1_000)


def test_links_move_when_a_member_leaves(world):
    gone = world.group("n11").me
    world.run_command("n11", LeaveGroup(world.id))
    world.run(for_ms=120_000)
    for name in world.nodes.keys() - {"n11"}:
        assert gone not in world.group(name).view.members
        assert gone not in world.peers(name)
        assert world.neighbours(name) <= world.connected(name)


def test_neighbours_are_asked_in_turn_for_what_is_missing(world):
    """Some may report that they have it, and never answer."""
    node, group = world.nodes["n5"], world.group("n5")
    author = next(did for did in group.others if did not in group.links.peers)
    tx = Transaction(node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    end = group.chain(author).seq + 1
    for peer in group.links.peers:
        tx.update_acks(group.id, peer, upto={tx.number_author(group.id, author): end})
    gap = MissingRange(end, since=world.now - history_requests.NEW_MEMBER_MS)
    sources = {peer for peer in group.links.peers if pull_requests.is_source(tx, group.id, peer)}
    asked = [history_requests._choose_peer(tx, group.id, author, replace(gap, tries=tries)) for tries in range(100)]
    count = len(group.links.peers)
    assert len(sources) >= 4
    assert all({*asked[first : first + count]} == sources for first in range(2, 100 - count))
