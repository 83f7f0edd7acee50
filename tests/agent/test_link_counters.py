"""Counters of links, and the overlay of a group as clients see it."""

from collections import defaultdict

import pytest
from msgspec.structs import replace

from tests.support.ring_world import RingWorld
from zerochat.agent.link_counters import LinkCounters
from zerochat.agent.views.groups import group_info
from zerochat.agent.views.members import member_infos
from zerochat.agent.views.overlay import overlay_info
from zerochat.group.inputs import Received
from zerochat.group.key_modes import forwarded
from zerochat.group.links import rate_limits
from zerochat.group.links.neighbours import links_of
from zerochat.overlay.forwarding import FAN_OUT
from zerochat.presentation.group_rules import connected

MEMBERS, POSTS = 28, 6


class CountedRing(RingWorld):
    """Each node has counters of its links. A step is a batch."""

    def __init__(self, *given, **named):
        self.counters = defaultdict(LinkCounters)
        super().__init__(*given, **named)

    def fork(self, seed, faults=None):
        world = super().fork(seed, faults)
        world.counters = defaultdict(LinkCounters)
        return world

    def _step(self, node, input_):
        before = node.agent
        effects = super()._step(node, input_)
        self.counters[node.name].observe(before, node.agent, [(input_, effects)], self.now)
        return effects

    def overlay(self, name):
        return overlay_info(self.nodes[name].agent, self.group(name), self.counters[name])


@pytest.fixture(scope="module")
def settled():
    return CountedRing(MEMBERS)


def test_the_links_are_shown_in_the_order_of_the_ring(settled):
    info = settled.fork(1).overlay("n5")
    links = links_of(settled.group("n5"), settled.group("n5").me)
    assert (info.path, info.forwards, info.members) == ("ring", True, MEMBERS)
    shown = [one.did for one in info.links if one.place != "guest"]
    assert shown == list(links.all)
    assert [one.place for one in info.links[:5]] == ["successor"] * 2 + ["predecessor"] * 2 + ["shortcut"]
    assert {one.did for one in info.links} == set(links.all) | settled.peers("n5")


def test_each_copy_and_each_duplicate_is_counted_once(settled):
    world = settled.fork(2)
    world.forwarded = 0
    posts = [world.post(f"n{number}", f"hello {number}") for number in range(POSTS)]
    assert world.run(lambda: world.all_have(posts), 60_000)
    world.run(for_ms=5_000)
    every = [world.overlay(name) for name in world.nodes]
    links = [one for info in every for one in info.links]
    assert sum(info.own for info in every) == POSTS
    copies = sum(info.copies for info in every)
    assert copies == world.forwarded <= FAN_OUT * POSTS * MEMBERS
    assert sum(info.forwarded for info in every) == POSTS * (MEMBERS - 1)
    assert sum(one.brought for one in links) == POSTS * (MEMBERS - 1)
    assert sum(one.brought + one.duplicates for one in links) == copies, "no fault has lost a copy"
    # Some are still under way.
    assert 0 <= sum(one.sent for one in links) - sum(one.received for one in links) <= len(links)
    assert sum(one.sent_bytes for one in links) >= sum(one.received_bytes for one in links) > 0
    assert not any(one.repaired for one in links)


@pytest.mark.parametrize("exhausted", [False, True])
def test_what_is_refused_is_not_counted_as_brought(settled, exhausted, monkeypatch):
    world = settled.fork(5)
    group, agent = world.group("n3"), world.nodes["n3"].agent
    did, peer = next(iter(group.links.peers.items()))
    if exhausted:
        monkeypatch.setattr(rate_limits, "is_exhausted", lambda *given: True)
    world.process("n3", Received(peer.link, forwarded.sign(bytes(32), did, world.id, 9, b"forged")))
    assert world.nodes["n3"].agent is agent or not exhausted
    [shown] = [one for one in world.overlay("n3").links if one.did == did]
    assert (shown.received, shown.brought, shown.duplicates) == (1, 0, 0)


def test_what_a_pull_repairs_is_counted_with_the_member_that_sent_it(settled):
    world = settled.fork(3)
    world.mute = set(world.nodes) - {"n0"}
    post = world.post("n0", "to a few")
    world.run(for_ms=200)
    had = world.holders(post)
    assert len(had) < MEMBERS
    assert world.run(lambda: world.all_have([post]), 600_000)
    repaired = {name: [one for one in world.overlay(name).links if one.repaired] for name in world.nodes}
    by_pull = {name for name, links in repaired.items() if links}
    near = {name for name in world.nodes if world.group("n0").me in world.peers(name)}
    assert by_pull <= world.nodes.keys() - had
    assert by_pull >= world.nodes.keys() - had - near, "to its own peers the author sends it again itself"
    assert all(sum(one.repaired for one in repaired[name]) == 1 for name in by_pull)
    assert all(one.repaired_at for links in repaired.values() for one in links)


def test_counters_are_bounded_by_the_links(settled):
    world = settled.fork(4)
    world.post("n0", "hello")
    world.run(for_ms=5_000)
    counters, agent = world.counters["n3"], world.nodes["n3"].agent
    linked = {peer.link for peer in world.group("n3").links.peers.values()}
    assert counters._links.keys() <= linked
    gone = next(iter(counters._links))
    counters._links = {bytes([number]) * 16: counters._links[gone] for number in range(100)}
    for counts in counters._links.values():
        counts.member = "did:key:gone"
    counters._counts(agent, next(iter(linked)))
    assert counters._links.keys() == {next(iter(linked))}


def test_a_mesh_shows_all_members_and_counts_no_forwarding():
    world = CountedRing(4)
    posts = [world.post("n1", "hello")]
    assert world.run(lambda: world.all_have(posts), 60_000)
    info = world.overlay("n1")
    assert (info.forwards, info.own, info.forwarded, info.copies) == (False, 1, 0, 3)
    assert {one.place for one in info.links} == {"member"} and len(info.links) == 3


def test_members_that_are_no_neighbours_are_reached_over_others(settled):
    world = settled.fork(6)
    agent, group = world.nodes["n5"].agent, world.group("n5")
    infos = {one.did: one for one in member_infos(agent, group)}
    linked = world.connected("n5")
    assert {did for did, one in infos.items() if one.connection == "connected"} == linked
    assert {did for did, one in infos.items() if one.connection == "indirect"} == set(group.others) - linked
    info = group_info(agent, group)
    assert info.forwards and info.connected == len(linked) < MEMBERS - 1
    assert connected(info) == f"{MEMBERS} members over {len(linked)} links"
    found = info.completeness
    assert (found.complete, found.others, found.absent) == (True, len(linked), 0), "it is only about its neighbours"
    alone = replace(agent, links_up=frozenset())
    assert {one.connection for one in member_infos(alone, group)} == {"self", "unreachable"}


def test_a_neighbour_that_is_off_is_named_as_absent(settled):
    world = settled.fork(7)
    did = next(iter(world.connected("n5")))
    name = next(name for name in world.nodes if world.group(name).me == did)
    world.switch_off(name)
    world.run(for_ms=400_000)
    info = world.overlay("n5")
    assert {one.connection for one in info.links if one.did == did} <= {"unreachable"}
    assert sum(one.connection == "connected" for one in info.links) >= 4, "the next members take its place"
