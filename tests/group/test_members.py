"""Roles, names and removals, between cores."""

import itertools

import pytest
from msgspec.structs import replace

from tests.support.dcgka_world import Healing
from tests.support.marks import others_slow
from tests.support.ruled_world import ADMINS, Ruled
from tests.support.small_world import Small
from zerochat.errors import NotAMember, RemoteError
from zerochat.group import commands
from zerochat.group.commands import ReadOnly
from zerochat.group.effects import CommandDone, CommandFailed, GroupChanged, Voted
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    ChangeRole,
    CreateGroup,
    CreateInvitation,
    IgnoreMember,
    LeaveGroup,
    RemoveMember,
    SendPost,
    Started,
    StepContext,
    TimerFired,
    VerifyMember,
)
from zerochat.group.links import peers
from zerochat.group.links.contact import member_link
from zerochat.group.lookup import UnknownMember
from zerochat.group.membership import Policy, may_post
from zerochat.group.membership.decisions import NameTaken, NoRight, NotYourself
from zerochat.group.notifications import IgnoredChanged, RemovedFromGroup, VerificationChanged
from zerochat.group.sync import pull_requests
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.sim import SIMULATED_PACKERS

MODES = ["pairwise-multi", "pairwise-single"]


@pytest.mark.parametrize("keys", MODES)
def test_two_votes_remove_a_member(keys):
    world = Ruled(keys=keys)
    assert world.says("n1", RemoveMember("friends", "n3")) == Voted(world.id, world.group("n3").me, 1, 2)
    assert world.labels("n0") == ["n0", "n1", "n2", "n3"]
    assert world.says("n1", RemoveMember("friends", "n3")).votes == 1, "nobody votes twice"
    out = world.group("n3").me
    assert world.says("n2", RemoveMember("friends", "n3")) == Voted(world.id, out, 2, 2)
    for name in ("n0", "n1", "n2"):
        assert world.labels(name) == ["n0", "n1", "n2"]
        assert out not in world.group(name).links.peers
        assert member_link(world.id, world.group(name).me, out) not in world.nodes[name].connected, "its links are cut"
    assert world.group("n3").state == "left" and world.group("n3").removed_by
    assert len(world.heard("n3", RemovedFromGroup)) == 1
    world.refuses("n3", SendPost("friends", "still here?"), NotAMember)
    world.says("n0", SendPost("friends", "among ourselves"))
    assert "among ourselves" in world.texts("n2") and "among ourselves" not in world.texts("n3")


def test_crossing_votes_suffice():
    world = Ruled()
    for name in ("n1", "n2"):  # neither has heard the other yet
        assert world.run_command(name, RemoveMember("friends", "n3")).result.votes == 1
    world.settle()
    assert all(world.labels(name) == ["n0", "n1", "n2"] for name in ("n0", "n1", "n2"))
    assert len({world.group(name).view.checksum for name in ("n0", "n1", "n2")}) == 1


def test_mutual_removals_both_hold():
    world = Ruled(policy=Policy(remove="anyone", quorum=0))
    world.run_command("n1", RemoveMember("friends", "n2"))
    world.run_command("n2", RemoveMember("friends", "n1"))
    world.settle()
    assert world.labels("n0") == world.labels("n3") == ["n0", "n3"]
    assert world.group("n1").state == world.group("n2").state == "left"


def test_only_admins_remove_in_admin_group():
    world = Ruled(policy=ADMINS)
    assert "admins" in world.refuses("n1", RemoveMember("friends", "n2"), NoRight)
    world.refuses("n1", ChangeRole("friends", "", "admin"), NoRight)
    world.says("n0", ChangeRole("friends", "n1", "admin"))
    world.refuses("n1", RemoveMember("friends", "n0"), NoRight)
    world.says("n1", RemoveMember("friends", "n2"))
    assert world.labels("n3") == ["n0", "n1", "n3"]


@pytest.mark.parametrize("admins", [("n1",), ()])
def test_group_continues_without_owner(admins):
    """Admins keep their rights; without admins roles and members stay fixed."""
    world = Ruled(4, ADMINS)
    for name in admins:
        world.says("n0", ChangeRole("friends", name, "admin"))
    world.says("n0", LeaveGroup("friends"))
    world.run(for_ms=30_000)
    assert world.group("n0").state == "left" and world.labels("n1") == ["n1", "n2", "n3"]
    if admins:
        world.says("n1", ChangeRole("friends", "n2", "reader"))
        world.says("n1", RemoveMember("friends", "n3"))
        assert world.labels("n2") == ["n1", "n2"]
    else:
        world.refuses("n1", ChangeRole("friends", "n2", "reader"), NoRight)
        world.refuses("n1", RemoveMember("friends", "n3"), NoRight)
    world.refuses("n1", ChangeRole("friends", "n2", "admin"), NoRight)
    world.says("n1", SendPost("friends", "still here"))
    assert world.texts("n2") == ["still here"]
    invitation = world.says("n2", CreateInvitation("friends", 3600, 1)).invitation
    world.says("n0", AcceptInvitation(invitation, "n0"))
    assert world.group("n2").view.members[world.group("n0").me].role == "writer", "whoever comes back owns nothing"


@pytest.mark.parametrize("keys", others_slow([*MODES, "sender-key"]))
def test_all_posts_of_a_leaver_are_received(keys):
    """The leave event arrives before the last posts, and the link stays open for these."""
    world = Ruled(3, keys=keys)
    for number in range(1_000):
        world.run_command("n2", SendPost("friends", f"number {number}"))
    world.run_command("n2", LeaveGroup("friends"))
    world.run(for_ms=300_000)
    assert all(len(world.texts(name)) == 1_000 for name in world.nodes)
    assert world.nodes["n2"].agent.groups[world.id].state == "left"
    assert not any(world.group("n2").me in world.group(name).links.peers for name in ("n0", "n1"))


def test_silent_leaver_is_not_awaited():
    """The leave event's position promises more events than ever come."""
    world = Ruled(3)
    node, leaver = world.nodes["n0"], world.group("n2").me
    world.run_command("n2", LeaveGroup("friends"))
    world.run(for_ms=100)
    group = world.group("n0")
    seq, gone = group.chain(leaver).seq, group.view.former[leaver]
    former = {leaver: replace(gone, until=seq + 5)}
    owing = replace(node.agent, groups={group.id: replace(group, view=replace(group.view, former=former))})

    def stays(*looked):
        tx = Transaction(owing, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
        peers.close_when_complete(tx, group.id, leaver, *looked)
        return leaver in tx.group(group.id).links.peers

    assert stays() and stays(seq - 1, peers.CLOSE_CHECKS_MAX - 1), "more may come, and has"
    assert stays(seq, 1), "a connection may be back in a moment"
    assert not stays(seq - 1, peers.CLOSE_CHECKS_MAX), "but not for ever"
    world.stop("n2")
    begun = world.now
    node.agent = owing
    world.process("n0", TimerFired(f"{TimerKind.CLOSE_PEER} {group.id} {leaver}"))
    assert world.run(lambda: leaver not in world.group("n0").links.peers, for_ms=120_000)
    assert world.now - begun <= (peers.IDLE_CLOSE_CHECKS_MAX + 2) * peers.CLOSE_DELAY_MS


@pytest.mark.parametrize("keys", MODES)
def test_reader_receives_posts(keys):
    world = Ruled(3, keys=keys)
    assert world.says("n1", ChangeRole("friends", "", "reader")) == GroupChanged(world.id)
    assert "zerochat role" in world.refuses("n1", SendPost("friends", "may I?"), ReadOnly)
    world.says("n0", SendPost("friends", "listen"))
    assert world.texts("n1") == ["listen"]
    world.says("n1", ChangeRole("friends", "", "writer"))
    world.says("n1", SendPost("friends", "now I may"))
    assert world.texts("n2") == ["listen", "now I may"]


def test_readers_posts_are_void(monkeypatch):
    world = Ruled(3, policy=ADMINS)
    world.says("n1", SendPost("friends", "before"))
    world.says("n0", ChangeRole("friends", "n1", "reader"))
    forger = world.group("n1")
    # The sender's good will is not asked: its own check is taken away.
    with monkeypatch.context() as patch:
        patch.setattr(commands, "may_post", lambda *_: True)
        world.says("n1", SendPost("friends", "I write all the same"))
    for name in ("n0", "n2"):
        assert world.texts(name) == ["before"]
        assert world.group(name).log.chains[forger.me].seq == world.group("n1").seq
    world.says("n0", ChangeRole("friends", "n1", "writer"))
    world.says("n1", SendPost("friends", "allowed again"))
    for name in ("n0", "n2"):
        assert world.texts(name) == ["before", "allowed again"]


def test_reinstated_writer_posts_count_from_then(monkeypatch):
    """Seed 63976 of the episodes: the owner did not know whether another member had the post, let it count from an
    earlier position, and had dropped it itself."""
    world = Ruled(3, policy=ADMINS)
    world.says("n1", SendPost("friends", "before"))
    world.says("n0", ChangeRole("friends", "n1", "reader"))
    writer = world.group("n1").me
    with monkeypatch.context() as patch:
        patch.setattr(commands, "may_post", lambda *_: True)
        world.says("n1", SendPost("friends", "as a reader"))
    agent, group = world.nodes["n0"].agent, world.group("n0")
    other = world.group("n2").me
    links = group.links
    group = replace(group, links=links.with_acks(other, {**links.acks_of(other), writer: 1}))
    world.nodes["n0"].agent = replace(agent, groups={**agent.groups, world.id: group})
    world.says("n0", ChangeRole("friends", "n1", "writer"))
    world.says("n1", SendPost("friends", "allowed again"))
    for name in ("n0", "n2"):
        assert world.texts(name) == ["before", "allowed again"]
        assert not may_post(world.group(name).view, writer, 2)


def test_posts_after_removal_are_rejected():
    world = Ruled(3, policy=ADMINS)
    world.says("n2", SendPost("friends", "before"))
    out = world.group("n2")
    world.says("n0", RemoveMember("friends", "n2"))
    tip = out.log.chains[out.me]
    late = Event(world.id, POST, out.me, tip.seq + 1, tip.head_id, (), (), world.now, world.now, {"text": "after"})
    tx = Transaction(world.nodes["n1"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    with pytest.raises(RemoteError):
        receiving.receive_event(tx, world.id, out.me, late)
    assert tx.agent == world.nodes["n1"].agent and world.texts("n1") == ["before"]


def test_names_change_and_stay_unique():
    world = Ruled(3)
    world.refuses("n1", ChangeLabel("friends", "N2"), NameTaken)
    world.says("n1", ChangeLabel("friends", "Nina"))
    assert world.labels("n0") == world.labels("n2") == ["Nina", "n0", "n2"]
    world.says("n0", RemoveMember("friends", "nina"))
    assert world.refuses("n0", RemoveMember("friends", "nobody"), UnknownMember)


def test_verification_is_local():
    world = Ruled(3)
    world.refuses("n0", VerifyMember("friends", "n0", True), NotYourself)
    frames = world.steps
    answer = world.run_command("n0", VerifyMember("friends", "n1", True))
    assert isinstance(answer, CommandDone) and world.steps == frames + 1
    assert world.group("n0").trust.verified == {world.group("n1").me: "n1"}
    world.run_command("n0", VerifyMember("friends", "n1", False))
    assert world.group("n0").trust.verified == {} and len(world.heard("n0", VerificationChanged)) == 2


def test_ignoring_is_local():
    world = Ruled(3)
    world.refuses("n0", IgnoreMember("friends", "n0", True), NotYourself)
    before = world.steps
    for ignored, known in ((True, (world.group("n1").me,)), (True, (world.group("n1").me,)), (False, ())):
        world.run_command("n0", IgnoreMember("friends", "n1", ignored))
        assert world.group("n0").trust.ignored == known
    assert len(world.heard("n0", IgnoredChanged)) == 2 and world.steps == before + 3, "nothing was sent"


def test_invalid_policies_are_rejected():
    for policy in (Policy(remove="admins", quorum=0, roles="flat"), Policy(remove="quorum", quorum=1)):
        world = Small(1)
        assert isinstance(
            world.run_command("n0", CreateGroup("friends", "n0", world.envelope, "pairwise-multi", policy)),
            CommandFailed,
        )


def test_cover_traffic_has_no_effect():
    world = Ruled(3, keys="pairwise-single")
    node = world.nodes["n0"]
    world.process("n0", Started(node.address, node.queue_address, node.server_key, cover_traffic=True))
    world.settle()
    published = []
    publish = world._publish

    def record(sender, effect):
        published.append((sender.name, world.now))
        publish(sender, effect)

    world._publish = record  # type: ignore[method-assign]
    logs = {name: list(world.nodes[name].log) for name in world.nodes}
    world.run(for_ms=400_000)
    times = [when for name, when in published if name == "n0"]
    gaps = {later - earlier for earlier, later in itertools.pairwise(times)}
    assert 5 <= len(times) <= 60 and len(gaps) > len(times) // 2
    assert logs == {name: world.nodes[name].log for name in world.nodes}


def test_exchange_restarts_after_voided_removal():
    world = Ruled(3, Policy(remove="anyone", quorum=0))
    gone = world.group("n2").me
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    pull_requests.send(tx, world.id, gone, [(gone, 0, 9)], 1)
    world.nodes["n0"].agent = tx.agent
    assert gone in world.group("n0").sync.pull_requests
    world.says("n0", RemoveMember(world.id, gone))
    assert gone not in world.group("n0").links.peers and not world.group("n0").sync.pull_requests
    left = replace(tx.agent.groups[world.id], links=replace(tx.agent.groups[world.id].links, peers={}))
    world.nodes["n0"].agent = replace(tx.agent, groups={world.id: left})
    world.restart("n0")
    assert not world.group("n0").sync.pull_requests, "an older version has kept that"


def test_a_member_whose_removal_is_void_is_dialled_after_a_restart():
    """n0 restarts while n1 counts as removed; then the author of the removal is removed concurrently."""
    world = Healing(4, keys="pairwise-multi")
    members = {name: world.did(name) for name in world.nodes}
    world.stop("n2")
    world.away = {"n1", "n2"}
    world.run_command("n3", RemoveMember(world.id, members["n1"]))
    world.run(for_ms=100)
    assert members["n1"] in world.group("n0").links.peers.keys() - world.group("n0").view.members.keys()
    world.restart("n0")
    world.away = set()
    world.start("n2")
    world.run_command("n2", RemoveMember(world.id, members["n3"]))
    world.run(for_ms=3_000)
    for name, other in (("n0", members["n1"]), ("n1", members["n0"])):
        assert other in world.group(name).view.members
        assert world.group(name).links.peers[other].link in world.nodes[name].agent.links_up
