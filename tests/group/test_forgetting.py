"""Forgetting a group: what is deleted, what stays, and when it is refused."""

from tests.support.ruled_world import Ruled
from zerochat.agent.storage.journal import Journal
from zerochat.group.effects import CommandDone, DeleteLog, StoreEvent, StoreReceipt
from zerochat.group.inputs import AcceptInvitation, CreateInvitation, ForgetGroup, LeaveGroup, SendPost
from zerochat.group.links.contact import join_link
from zerochat.group.membership import Policy
from zerochat.group.membership.leave import StillLeaving, StillMember
from zerochat.group.state import Agent
from zerochat.sim import Faults


def gone(world, name="n1"):
    world.says(name, LeaveGroup(world.id))
    world.run(for_ms=30_000)
    assert world.group(name).state == "left"


def test_an_active_group_cannot_be_forgotten():
    world = Ruled(2)
    assert "leave" in world.refuses("n1", ForgetGroup("friends"), StillMember)
    world.faults = Faults(loss=1, duplication=0, delay_ms_max=5)
    world.says("n1", LeaveGroup("friends"))
    world.refuses("n1", ForgetGroup("friends"), StillLeaving)
    assert world.group("n1").state == "leaving"


def test_a_forgotten_group_is_deleted_and_can_be_joined_again():
    world = Ruled(3, Policy(history="none"))
    world.says("n0", SendPost("friends", "for a while"))
    before = world.group("n1").me
    gone(world)
    world.says("n1", ForgetGroup("friends"))
    node = world.nodes["n1"]
    assert not node.agent.groups and not node.agent.joins and not node.log
    world.restart("n1")
    world.run(for_ms=60_000)
    assert not node.agent.groups and not node.log
    invitation = world.says("n0", CreateInvitation("friends", 3600, 1)).invitation
    world.says("n1", AcceptInvitation(invitation, "n1"))
    assert world.group("n1").state == "active" and world.group("n1").me != before
    world.says("n2", SendPost("friends", "hello again"))
    assert world.texts("n1") == ["hello again"]


def test_a_rejoin_survives_forgetting_the_group():
    world = Ruled(2)
    gone(world)
    invitation = world.says("n0", CreateInvitation("friends", 3600, 1)).invitation
    world.faults = Faults(loss=1, duplication=0, delay_ms_max=5)
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    assert isinstance(world.run_command("n1", ForgetGroup(world.id)), CommandDone)
    assert list(world.nodes["n1"].agent.joins) == [join_link(invitation.id)]
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=5)
    world.settle()
    assert world.group("n1").state == "active"


def test_a_groups_log_is_deleted_in_the_same_commit(tmp_path):
    path, key = tmp_path / "journal.db", bytes(32)
    said = [
        StoreEvent(group, f"{group}{seq}", "a", seq, seq, "post", b"a secret of " + group.encode(), 1, False)
        for group in ("g", "h")
        for seq in (1, 2)
    ]
    with Journal.create(path, key) as journal:
        journal.commit(Agent("n"), [*said, StoreReceipt("g", "m", "a", 2, 1), StoreReceipt("h", "m", "a", 2, 1)])
        journal.commit(Agent("n2"), [DeleteLog("g")])
    with Journal.open(path, key) as journal:
        assert (journal.count("g"), journal.count("h"), journal.sizes().events) == (0, 2, 2)
        assert journal.event("g", "g1") is None and journal.event("h", "h1") is not None
        assert list(journal._db.execute("SELECT group_id FROM receipts")) == [("h",)]
        latest = journal.last_seq()
        journal.commit(Agent("n3"), [StoreEvent("g", "g3", "a", 3, 3, "post", b"x", 1, False)])
        assert journal.last_seq() == latest + 1, "a cursor is never used twice"
