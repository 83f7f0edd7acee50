"""Membership events that one member has and another lacks."""

from itertools import islice

import pytest

from tests.support.hostile_world import Hostile
from zerochat.group.inputs import SendPost
from zerochat.group.links import rate_limits
from zerochat.group.sync import acknowledgements
from zerochat.group.sync.anti_entropy import EVENT_WORK_US
from zerochat.group.wire.messages import SYNC
from zerochat.sim.floods import LABELS_EACH, Flooder, membership

LABELS = 3 * LABELS_EACH


@pytest.fixture(autouse=True)
def large_share(monkeypatch):
    """A member may bring all of these events at once."""
    monkeypatch.setattr(rate_limits, "BRANCH_EVENTS_MAX", 3 * LABELS)


def rename(world, only_to):
    """Mallory renames herself again and again, and tells only one."""
    mine, victim = world.mallory, world.group(only_to).me
    by = Flooder(mine, victim, mine.links.relationships[victim], world.now, world.rng.randbytes)
    for kind, body in islice(membership(by), LABELS // LABELS_EACH):
        world.utter(only_to, kind, body)


def test_a_post_waits_for_one_answer_about_membership():
    """A flood of membership events, told to one member, held up what that member said, for 64 events each time."""
    world = Hostile()
    before = len(world.group("n0").control)
    rename(world, "n0")
    assert len(world.group("n0").control) == before + LABELS > acknowledgements.RETRANSMIT_EVENTS_MAX
    post = world.run_command("n0", SendPost(world.id, "after all that")).result.id
    assert world.run(lambda: any(row.id == post for row in world.nodes["n1"].log), for_ms=5_000)
    assert world.now - world.group("n0").log.lamport < 2 * acknowledgements.SYNC_INTERVAL_MS, "of virtual time"
    assert world.group("n1").control.keys() == world.group("n0").control.keys()


def test_answers_about_membership_are_paid_by_who_asks(monkeypatch):
    world = Hostile()
    rename(world, "n0")
    world.now += acknowledgements.SYNC_INTERVAL_MS
    sent = []
    monkeypatch.setattr(world, "_dispatch", lambda node, link, envelope: sent.append(node.name))
    reach = {"pair": "", "queue": "", "at": world.now}
    place = {"group": world.id, "view": "other", "have": [], "start_seq": 0, "acked": 0}
    question = {**place, "heads": [world.id], "reach": reach}

    def left():
        return world.group("n0").links.peers[world.mallory.me].rate_limit.work

    before = left()
    world.utter("n0", SYNC, question)
    assert sent and left() <= before + acknowledgements.SYNC_INTERVAL_MS * 100 - LABELS * EVENT_WORK_US
    sent.clear()
    monkeypatch.setattr(rate_limits, "WORK_US_MAX", 0)
    world.now += acknowledgements.SYNC_INTERVAL_MS
    world.utter("n0", SYNC, question)
    assert not sent
