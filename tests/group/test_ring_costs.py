"""What members on the ring send each other does not grow with what they do not lack."""

from collections import Counter

import pytest

from tests.support.ring_world import RingWorld
from zerochat.group.inputs import ChangeLabel
from zerochat.group.links import outbox
from zerochat.group.sync import backfill, pull_requests

MEMBERS = 26


@pytest.fixture(scope="module")
def settled():
    return RingWorld(MEMBERS)


@pytest.fixture
def world(settled):
    return settled.fork(1)


def test_a_joiner_asks_for_no_chains_of_silent_members(world, monkeypatch):
    requested, send = [], pull_requests.send

    def record(tx, name, member, ranges, *limits, **more):
        requested.extend(author for author, _, _ in ranges)
        send(tx, name, member, ranges, *limits, **more)

    post = world.post("n5", "before")
    world.run(for_ms=20_000)
    world.switch_off("n5")
    monkeypatch.setattr(pull_requests, "send", record)
    name = world.add_node({}).name
    world.start(name)
    world.join(name, "n4")
    world.run(for_ms=120_000)
    active = {world.group(one).me for one in ("n0", "n4", "n5")}
    assert set(requested) <= active and len(requested) < 30
    assert name in world.holders(post), "history of a member that is away"


def add_node(world, by):
    name = world.add_node({}).name
    world.start(name)
    world.join(name, by)
    return name


def test_a_joiner_does_not_fetch_the_membership_events_of_its_welcome(world, monkeypatch):
    """Most chains on the ring have nothing else: a page of them for each author cost as much as the welcome."""
    fetched, receive_page = [], backfill.receive_page

    def record(tx, name, member, request, events, more):
        fetched.extend(events)
        receive_page(tx, name, member, request, events, more)

    posted = world.post("n3", "before")
    for name in ("n2", "n3", "n8"):
        add_node(world, name)
    world.run(for_ms=30_000)
    monkeypatch.setattr(backfill, "receive_page", record)
    joiner = add_node(world, "n4")
    assert world.run(lambda: joiner in world.holders(posted), for_ms=120_000, every_ms=1_000)
    world.run(for_ms=30_000)
    assert not [event for event in fetched if event.is_control]
    group = world.group(joiner)
    for name in ("n0", "n3"):
        chain = group.chain(world.group(name).me)
        assert (chain.seq, chain.backfill.first) == (world.group(name).seq, 1)
    assert group.sync.backfill.done


def cut_in_halves(world, for_ms):
    one, other = list(world.nodes)[::2], list(world.nodes)[1::2]
    for pair in ((one, other), (other, one)):
        world.cut |= {(sender, receiver): world.now + for_ms for sender in pair[0] for receiver in pair[1]}


def test_neighbours_exchange_what_a_partition_has_kept_from_them(world, monkeypatch):
    """One unknown head made each neighbour send the whole membership log, every 500 ms. A neighbour that is paired
    anew, whose heads were never all known, may get much of it once."""
    sent, send_events = Counter(), outbox.send_events

    def record(tx, name, member, events):
        sent[tx.group(name).me, member] += sum(event.is_control for event in events)
        send_events(tx, name, member, events)

    monkeypatch.setattr(outbox, "send_events", record)
    cut_in_halves(world, 20_000)
    for name in ("n2", "n3", "n8", "n9"):
        world.run_command(name, ChangeLabel(world.id, f"{name} renamed"))
        world.run(for_ms=2_000)
    assert len({world.group(name).view.checksum for name in world.nodes}) > 1
    world.run(for_ms=80_000)
    assert len({world.group(name).view.checksum for name in world.nodes}) == 1
    assert len(world.group("n0").control) > MEMBERS
    assert 0 < sum(sent.values()) <= 12 * MEMBERS and max(sent.values()) <= MEMBERS, sent.most_common(5)


def test_a_member_whose_log_is_an_older_copy_gets_what_it_lacks(world):
    node = world.nodes["n9"]
    agent, log = node.agent, list(node.log)
    for name in ("n2", "n3", "n8"):
        world.run_command(name, ChangeLabel(world.id, f"{name} renamed"))
        world.run(for_ms=5_000)
    world.stop("n9")
    node.agent, node.log = agent, log
    world.start("n9", restored=True)
    world.run_command("n9", ChangeLabel(world.id, "n9 renamed"))
    world.run(for_ms=120_000)
    assert len({world.group(name).view.checksum for name in world.nodes}) == 1
