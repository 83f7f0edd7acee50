"""What members on the ring send each other does not grow with what they do not lack."""

from collections import Counter

import pytest

from tests.support.ring_world import RingWorld
from zerochat.group.inputs import ChangeLabel
from zerochat.group.links import outbox
from zerochat.group.sync import pull_requests

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


def cut_in_halves(world, for_ms):
    one, other = list(world.nodes)[::2], list(world.nodes)[1::2]
    for pair in ((one, other), (other, one)):
        world.cut |= {(sender, receiver): world.now + for_ms for sender in pair[0] for receiver in pair[1]}


def test_neighbours_exchange_what_a_partition_has_kept_from_them(world, monkeypatch):
    """One unknown head made each neighbour send the whole membership log, every 500 ms."""
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
    assert sum(sent.values()) > 0 and max(sent.values()) <= 8, sent.most_common(5)


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
