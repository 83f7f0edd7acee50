"""What members on the ring send each other does not grow with what they do not lack."""

import pytest

from tests.support.ring_world import RingWorld
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
