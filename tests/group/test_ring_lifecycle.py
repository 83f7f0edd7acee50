"""Members of a group on the ring: a late joiner, a removal, and a restored profile."""

from heapq import heapify

import pytest

from tests.support.ring_world import RingWorld
from zerochat.group.inputs import (
    AcceptInvitation,
    AnswerPrivateInvitation,
    CreateInvitation,
    OpenConversation,
    Received,
    RemoveMember,
    StepContext,
)
from zerochat.group.links import peers, ring_links
from zerochat.group.links.neighbours import LINKS_ACCEPTED_MAX
from zerochat.group.membership import Policy
from zerochat.group.transaction import Transaction
from zerochat.sim import SIMULATED_PACKERS, Faults

MEMBERS = 26
RULES = Policy(remove="anyone", quorum=0, history="none")


@pytest.fixture(scope="module")
def settled():
    return RingWorld(MEMBERS, policy=RULES)


@pytest.fixture
def world(settled):
    return settled.fork(1)


def test_a_joiner_has_what_comes_after_it_and_nothing_from_before(world):
    before = world.post("n5", "before")
    world.run(for_ms=10_000)
    name = world.add_node({}).name
    world.start(name)
    world.join(name, "n4")
    after = [world.post(author, "after") for author in ("n5", "n20", "n0")]
    assert world.run(lambda: world.all_have(after), for_ms=120_000, every_ms=500)
    world.run(for_ms=60_000)
    assert world.neighbours(name) <= world.connected(name)
    assert name not in world.holders(before)


def test_a_removed_member_is_out_everywhere(world):
    gone = world.group("n9").me
    transport = world.group("n9").view.members[gone].transport
    world.run_command("n3", RemoveMember(world.id, gone))
    world.run(for_ms=30_000)
    post = world.post("n20", "without it")
    world.run(for_ms=30_000)
    rest = world.nodes.keys() - {"n9"}
    assert world.holders(post) == rest and world.group("n9").state == "left"
    for name in rest:
        assert gone not in world.peers(name) and gone not in world.group(name).links.accounts
        assert transport not in world.nodes[name].allowed_clients
        assert world.neighbours(name) <= world.connected(name)


def test_a_restored_profile_gets_its_own_posts_back(world):
    node = world.nodes["n12"]
    agent, log = node.agent, list(node.log)
    posts = [world.post("n12", f"mine {number}") for number in range(3)]
    assert world.run(lambda: world.all_have(posts), for_ms=60_000, every_ms=500)
    world.stop("n12")
    node.agent, node.log = agent, log
    world.start("n12", restored=True)
    assert world.run(lambda: world.all_have(posts), for_ms=300_000, every_ms=500)
    again = world.post("n12", "again")
    assert world.run(lambda: world.all_have([again]), for_ms=60_000, every_ms=500)


def test_members_that_are_not_linked_begin_a_private_conversation(world):
    owner = {world.group(name).me: name for name in world.nodes}
    other = owner[min(set(world.group("n7").others) - world.group("n7").links.peers.keys())]
    world.run_command("n7", OpenConversation(world.id, other))
    me = world.group("n7").me
    assert world.run(lambda: me in world.group(other).joining.private, for_ms=30_000, every_ms=500)
    world.run_command(other, AnswerPrivateInvitation(world.id, "n7", accept=True))
    assert world.run(lambda: len(world.nodes[other].agent.groups) == 2, for_ms=60_000, every_ms=500)
    world.run(for_ms=180_000)
    assert world.group(other).me not in world.peers("n7"), "the link has gone when it was not needed any more"


def test_many_join_at_once_through_one_member():
    world = RingWorld(2)
    world.faults = Faults(loss=0.1, duplication=0.05, delay_ms_max=200)
    joiners = [world.add_node({}).name for _ in range(28)]
    made = world.run_command("n0", CreateInvitation(world.id, 86_400, len(joiners)))
    for name in joiners:
        world.start(name)
        world.run_command(name, AcceptInvitation(made.result.invitation, name))
    assert world.run(lambda: all(node.agent.groups for node in world.nodes.values()), 120_000, every_ms=500)
    world.run(for_ms=150_000)
    for name in world.nodes:
        assert world.neighbours(name) <= world.connected(name)
        assert len(world.peers(name)) <= LINKS_ACCEPTED_MAX


def admitted_far_away(settled):
    """A world in which a member has admitted a joiner that is no neighbour of it, and that lacks its welcome."""
    for number in range(1, MEMBERS):
        world, by = settled.fork(number), f"n{number}"
        name = world.add_node({}).name
        world.start(name)
        made = world.run_command(by, CreateInvitation(world.id, 86_400, 1))
        world.run_command(name, AcceptInvitation(made.result.invitation, name))
        assert world.run(lambda w=world, by=by: len(w.group(by).view.members) > MEMBERS, for_ms=30_000)
        member = max(world.group(by).view.members.values(), key=lambda one: one.joined).did
        if member not in world.neighbours(by):
            world._queue = [one for one in world._queue if one[2] != name or not isinstance(one[3], Received)]
            heapify(world._queue)
            return world, by, name, member
    raise AssertionError("all are neighbours")


def test_a_joiner_whose_link_was_closed_for_another_gets_its_welcome(settled, monkeypatch):
    monkeypatch.setattr(ring_links, "LINKS_ACCEPTED_MAX", 0)
    world, by, name, member = admitted_far_away(settled)
    tx = Transaction(world.nodes[by].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    peers.close_peer(tx, world.id, member)
    world.nodes[by].agent = tx.agent
    assert world.run(lambda: bool(world.nodes[name].agent.groups), for_ms=60_000)
    post = world.post(by, "hello")
    assert world.run(lambda: world.all_have([post]), for_ms=60_000, every_ms=500)
