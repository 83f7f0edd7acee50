"""The index of peers is a function of the peers and the view, whatever has changed, and no reported gap is missed."""

import random

import msgspec
import pytest
from msgspec.structs import replace

from zerochat.group.dispatch import link_owner
from zerochat.group.inputs import Input, StepContext
from zerochat.group.links.contact import Reach
from zerochat.group.links.hosts import claimants
from zerochat.group.links.mediator_mail import reach_of_member
from zerochat.group.state import Agent, Chain, Group
from zerochat.group.sync import history_requests
from zerochat.group.transaction import Transaction
from zerochat.sim.history import play_history
from zerochat.sim.initial_groups import build_world, initial_group_for
from zerochat.sim.world import SIMULATED_PACKERS, World


def check_index(agent: Agent) -> None:
    for name, group in agent.groups.items():
        links = group.links
        down = [member for member, peer in links.peers.items() if peer.link not in agent.links_up]
        assert list(links.unlinked(agent.links_up)) == down
        for member, peer in links.peers.items():
            assert link_owner(agent, peer.link) == (name, member)
        known = [did for did in links.peers if did in group.view.members]
        for key in {reach_of_member(group, did).server_key for did in known} | {b"none"}:
            assert list(claimants(group, key)) == [
                did for did in known if reach_of_member(group, did).server_key == key
            ]
        assert reported_ends(group) == scanned_ends(group)
    assert link_owner(agent, b"no link") is None


def reported_ends(group: Group) -> list[tuple[str, int]]:
    """What the members report beyond our chains, as far as it is looked for."""
    return [end for member in group.links.peers for end in history_requests.reported_beyond(group, member)]


def scanned_ends(group: Group) -> list[tuple[str, int]]:
    ends = []
    for member, peer in group.links.peers.items():
        authors = {number: author for author, number in group.links.numbers.items()}
        others = [(authors[number], upto) for number, upto in peer.acks.upto.items() if authors[number] != member]
        for author, upto in (*others, (member, peer.stored.refused_upto)):
            if author != group.me and upto > group.chain(author).seq:
                ends.append((author, upto))
    return ends


@pytest.mark.parametrize("seed", range(12))
def test_the_index_finds_what_a_scan_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    process, looks, checked = World.process, random.Random(seed), []

    def checking(world: World, name: str, input_: Input) -> None:
        process(world, name, input_)
        if looks.random() < 0.5:  # not always: an index that is not asked for must not become stale
            check_index(world.nodes[name].agent)
            checked.append(name)

    monkeypatch.setattr(World, "process", checking)
    play_history(seed)
    assert len(checked) > 50


def test_another_address_or_view_makes_other_claimants() -> None:
    world = build_world(initial_group_for(2))
    group = next(iter(world.nodes["n0"].agent.groups.values()))
    member, peer = next(iter(group.links.peers.items()))
    before = reach_of_member(group, member).server_key
    assert list(claimants(group, before)) == [member]
    links = group.links.with_peer(member, replace(peer, reach=Reach(b"k" * 32, None, None)))
    moved = replace(group, links=links)
    assert list(claimants(moved, b"k" * 32)) == [member] and not claimants(moved, before)
    others = {did: one for did, one in group.view.members.items() if did != member}
    assert not claimants(replace(group, view=replace(group.view, members=others)), before)
    assert list(claimants(group, before)) == [member], "the old state is as it was"


def test_a_chain_that_becomes_shorter_is_looked_at_again() -> None:
    world = build_world(initial_group_for(2))
    agent = world.nodes["n0"].agent
    group = next(iter(agent.groups.values()))
    member, author = next(iter(group.links.peers)), "another author"
    log = group.log.with_chain(author, Chain(5))
    group = replace(group, links=group.links.with_acks(member, {author: 5}), log=log)
    for shorter in (Chain(4), None):
        before = replace(agent, groups={group.id: group})
        tx = Transaction(before, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
        assert not reported_ends(tx.group(group.id))
        if shorter is None:
            tx.drop_chain(group.id, author)
        else:
            tx.update_chain(group.id, author, shorter)
        assert reported_ends(tx.group(group.id)) == scanned_ends(tx.group(group.id)) == [(author, 5)]


def test_an_author_keeps_its_number() -> None:
    world = build_world(initial_group_for(2))
    group = next(iter(world.nodes["n0"].agent.groups.values()))
    member = next(iter(group.links.peers))
    links = group.links.with_acks(member, {"one": 1, "other": 2})
    later = links.with_acks(member, {"third": 3, "one": 4})
    assert later.acks_of(member) == {"one": 4, "third": 3}, "all of them are replaced"
    assert [later.acked(member, author) for author in ("one", "other", "third", "unknown")] == [4, 0, 3, 0]
    assert {author: later.numbers[author] for author in links.numbers} == links.numbers
    assert len(set(later.numbers.values())) == len(later.numbers)
    assert links.acks_of(member) == {"one": 1, "other": 2}, "the old state is as it was"
    grown = links.with_acks(member, {f"author {number}": 5 for number in range(100)})
    assert len(msgspec.msgpack.encode(grown.peers[member])) < len(msgspec.msgpack.encode(links.peers[member])) + 300
