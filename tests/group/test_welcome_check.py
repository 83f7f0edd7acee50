"""The check of a welcome: in slices, at the expense of its inviter, once for each complete welcome."""

import pytest

from tests.support.small_world import Small
from zerochat.didcomm.message import Message
from zerochat.group.event_log.event import LABEL, Event
from zerochat.group.inputs import AcceptInvitation, CancelJoin, CreateGroup, Received
from zerochat.group.joining import evidence, welcome
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.membership import Policy, resolve
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import WELCOME
from zerochat.sim import SIMULATED_PACKERS


class Slices:
    """How often a check went on, and how many signatures each time took."""

    def __init__(self, patch):
        self.signatures = []
        check, verify = evidence.check_welcome, Event.check_signature

        def counted(tx, link):
            self.signatures.append(0)
            check(tx, link)

        def verified(event):
            if self.signatures:
                self.signatures[-1] += 1
            verify(event)

        patch.setattr(evidence, "check_welcome", counted)
        patch.setattr(Event, "check_signature", verified)


class Joining(Small):
    """A group of two, and a third one that joins. Each slice of a check does as little as it can."""

    def __init__(self, patch):
        super().__init__()
        patch.setattr(evidence, "_checks", resolve.RecentCache(64))
        self.id = self.found()
        assert self.join("n1", self.invite(self.id)).phase == "joined"
        patch.setattr(evidence, "SLICE_WORK_US", 1)
        self.slices = Slices(patch)
        self.run_command("n2", AcceptInvitation(self.invite(self.id), "n2"))

    @property
    def joining(self):
        (join,) = self.nodes["n2"].agent.joins.values()
        return join


def test_a_check_in_slices_leads_to_the_same_view(monkeypatch):
    world = Joining(monkeypatch)
    assert world.run(lambda: world.joining.state == "joined", for_ms=70_000)
    events = len(world.group("n2").control)
    assert len(world.slices.signatures) > 2 * events, "each event by itself, then its right"
    assert max(world.slices.signatures[: 2 * events]) == 1
    assert world.group("n2").view == world.group("n0").view and not world.joining.checking


def test_a_check_goes_on_after_a_restart(monkeypatch):
    world = Joining(monkeypatch)
    assert world.run(lambda: world.joining.checking, for_ms=10_000)
    monkeypatch.setattr(evidence, "_checks", resolve.RecentCache(64))  # of the process
    world.restart("n2")
    assert world.joining.checking
    assert world.run(lambda: world.joining.state == "joined", for_ms=70_000)
    assert world.group("n2").view == world.group("n0").view


def test_a_cancelled_check_ends(monkeypatch):
    world = Joining(monkeypatch)
    assert world.run(lambda: world.joining.checking, for_ms=10_000)
    world.run_command("n2", CancelJoin(""))
    checked = len(world.slices.signatures)
    world.run(for_ms=70_000)
    assert world.joining.state == "failed" and not world.joining.checking
    assert len(world.slices.signatures) <= checked + 1


def hostile_inviter():
    """A world where n1 waits for a welcome from n0, which does as the test says: the function that sends a part."""
    world = Small(2)
    group = world.run_command(
        "n0", CreateGroup("friends", "n0", world.envelope, policy=Policy(join="ask"))
    ).result.group
    world.run_command("n1", AcceptInvitation(world.invite(group), "n1"))
    world.run(for_ms=3_000)
    (link,) = world.nodes["n1"].agent.joins
    (claim,) = world.nodes["n0"].agent.invitations[link].claims.values()
    packer = SIMULATED_PACKERS[world.envelope]

    def send(part, parts, events):
        body = {"group": group, "start_seq": 0, "part": part, "parts": parts, "runs": write_runs(events)}
        message = Message(WELCOME, str(world.rng.random()), body)
        world.process("n1", Received(link, pack(claim.relationship, message, packer, world.rng.randbytes)))
        return world.nodes["n1"].agent.joins[link]

    return world, world.group("n0"), send


def renames(group, count):
    """A chain of renames by its founder."""
    (genesis,) = group.control.values()
    found, lamport = [], genesis.lamport
    for number in range(count):
        last = found[-1] if found else genesis
        place = number + 2, last.id, (last.id,), (), lamport + number + 1, 1
        found.append(Event(group.id, LABEL, group.me, *place, {"label": f"n{number}"}).signed(group.seed))
    return [genesis, *found]


def test_repeated_parts_are_charged_to_the_inviter(monkeypatch):
    """Each took the joiner as long as it takes to read 256 events; only their bytes and number were limited."""
    world, group, send = hostile_inviter()
    read, whole, events = [], welcome.read_welcome, renames(group, 200)
    monkeypatch.setattr(welcome, "read_welcome", lambda body: read.append(1) or whole(body))
    for _ in range(400):
        send(0, 2, events)
    each_us = welcome.PART_WORK_US + welcome.READ_WORK_US * len(events)
    assert 100 < len(read) <= rate_limits.WORK_US_MAX // each_us + 1
    world.run(for_ms=10_000)
    for _ in range(400):
        send(0, 2, events)
    assert len(read) <= (rate_limits.WORK_US_MAX + 10 * rate_limits.WORK_US_PER_S) // each_us + 2


def test_a_complete_welcome_is_checked_once(monkeypatch):
    """Parts that come while it is checked change nothing, and an invalid welcome ends the join."""
    monkeypatch.setattr(evidence, "SLICE_WORK_US", 1)
    world, group, send = hostile_inviter()
    events = renames(group, 20)
    assert send(0, 1, events).checking
    slices = Slices(monkeypatch)
    for _ in range(20):
        assert send(0, 1, events).checking
    assert sum(slices.signatures) == 0
    world.run(for_ms=70_000)
    (join,) = world.nodes["n1"].agent.joins.values()
    assert join.state == "failed" and not join.checking and not join.welcome_parts
    assert sum(slices.signatures) <= len(events) + 1
    assert [notice.error for who, notice in world.told if who == "n1"][-1] == "JoinFailed"


@pytest.mark.parametrize("forged", [1, 9])
def test_a_welcome_with_a_forged_event_ends_the_join(forged, monkeypatch):
    monkeypatch.setattr(evidence, "SLICE_WORK_US", 1)
    world, group, send = hostile_inviter()
    events = renames(group, 10)
    events[forged] = events[forged].signed(b"\x01" * 32)
    send(0, 1, events)
    world.run(for_ms=70_000)
    (join,) = world.nodes["n1"].agent.joins.values()
    assert join.state == "failed" and group.id not in world.nodes["n1"].agent.groups
