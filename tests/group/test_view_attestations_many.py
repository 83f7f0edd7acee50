"""A member that signs many histories at once: the others' attestations still reach every member."""

import pytest

from tests.support.marks import others_slow
from tests.support.small_world import Small
from zerochat.didcomm.message import Message, new_id
from zerochat.group.event_log.event import LABEL, Event
from zerochat.group.inputs import ChangeLabel, Received
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import heads_of
from zerochat.group.sync import acknowledgements
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS, HEADS_MAX
from zerochat.sim.world import SIMULATED_PACKERS

LYING, SILENT = "n2", "n3"


class Apart(Small):
    """n2 signs arbitrary events, and at some point only n0 receives frames from n3."""

    def __init__(self):
        self.gone, self.deaf = set(), set()
        self.frames = 0
        super().__init__(4)

    def _on_accusation(self, node, notice):
        """The accusation of n2 is true."""

    def process(self, name, stimulus):
        if name not in self.gone:
            super().process(name, stimulus)

    def _frame(self, name, stimulus):
        self.frames += 1
        if name not in self.deaf:
            super()._frame(name, stimulus)

    def goes(self, name):
        """It is gone from one moment to the next, for good."""
        self.stop(name)
        self.nodes[name].allowed_clients.clear()
        self.gone.add(name)

    def labels(self, name):
        return {member.label for member in self.group(name).view.members.values()}

    def storm(self, count):
        """n2 signs many concurrent label events, and sends all of them to every member."""
        theirs = self.group(LYING)
        chain, base, at = theirs.chain(theirs.me), heads_of(theirs.control), self.now
        events, pre = [], chain.head_id
        for number in range(1, count + 1):
            body = {"label": f"name {number}"}
            event = Event(theirs.id, LABEL, theirs.me, chain.seq + number, pre, base, (), at + number, at, body)
            events.append(event.signed(theirs.seed))
            pre = events[-1].id
        for name in {*self.nodes} - {LYING}:
            ours = self.group(name)
            for begin in range(0, count, 64):
                runs = write_runs(events[begin : begin + 64], theirs.me)
                message = Message(
                    type=EVENTS, id=new_id(self.rng.randbytes), body={"runs": runs, "view": "", "have": []}
                )
                packer = SIMULATED_PACKERS[self.envelope]
                envelope = pack(theirs.links.relationships[ours.me], message, packer, self.rng.randbytes)
                self.process(name, Received(ours.links.peers[theirs.me].link, envelope))


@pytest.mark.parametrize("count", others_slow([HEADS_MAX - 1, 200]))
def test_forking_member_does_not_split_others(count, monkeypatch):
    for name in ("BRANCH_EVENTS_MAX", "EXCEEDING_MAX"):
        monkeypatch.setattr(rate_limits, name, 1 << 20)  # all at once
    world = Apart()
    group = world.found()
    for name in ("n1", LYING, SILENT):
        assert world.join(name, world.invite(group)).phase == "joined"
    world.storm(count)
    world.goes(LYING)
    world.run(for_ms=10_000)
    assert all(len(heads_of(world.group(name).control)) == count for name in ("n0", "n1", SILENT))
    world.deaf = {"n1"}
    world.run_command(SILENT, ChangeLabel(group, "another name"))
    world.run(for_ms=2_000)
    world.goes(SILENT)
    world.deaf = set()
    assert "another name" in world.labels("n0") - world.labels("n1")
    assert world.run(lambda: world.group("n0").view == world.group("n1").view, for_ms=120_000)
    world.run(for_ms=10_000)
    before = world.frames
    world.run(for_ms=60_000)
    assert world.frames - before < 20, "now that both have the same they are silent"


def test_large_common_history_still_reconciles(monkeypatch):
    """Neither side can tell from the other's heads what is common, so each may consider everything missing; one answer
    holds three events here, and 64 in production."""
    monkeypatch.setattr(acknowledgements, "RETRANSMIT_EVENTS_MAX", 3)
    world = Apart()
    group = world.found()
    for name in ("n1", "n2", SILENT):
        assert world.join(name, world.invite(group)).phase == "joined"
    for number in range(6):
        world.run_command("n0", ChangeLabel(group, f"n0 {number}"))
        world.run(for_ms=3_000)
    for name, deaf in ((SILENT, {"n1", "n2"}), ("n2", {"n0"})):
        world.deaf = deaf
        world.run_command(name, ChangeLabel(group, f"{name} by another name"))
        world.run(for_ms=2_000)
        world.goes(name)
    world.deaf = set()
    one, other = (set(world.group(name).control) for name in ("n0", "n1"))
    assert len(one & other) > 3 and len(one - other) == len(other - one) == 1
    assert world.run(lambda: world.group("n0").view == world.group("n1").view, for_ms=120_000)
