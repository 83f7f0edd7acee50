"""Roles, names and removals, played out between cores: what members decide about members, and what follows."""

import itertools
import json

import pytest
from msgspec.structs import replace

from tests.group.test_join import Small
from zerochat.errors import NotAMember, RemoteError
from zerochat.group import commands
from zerochat.group.commands import ReadOnly
from zerochat.group.effects import Answer, Changed, Refuse, Voted
from zerochat.group.event_log import log
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    ChangeLabel,
    ChangeRole,
    CreateGroup,
    CreateInvitation,
    LeaveGroup,
    Moment,
    RemoveMember,
    SendPost,
    Started,
    TimerFired,
    VerifyMember,
)
from zerochat.group.links import peers
from zerochat.group.links.contact import member_link
from zerochat.group.lookup import UnknownMember
from zerochat.group.membership import Policy, may_post
from zerochat.group.membership.decisions import NameTaken, NoRight, NotYourself
from zerochat.group.notifications import Removed, TrustChanged
from zerochat.group.sync import pull_requests
from zerochat.group.transaction import Turn
from zerochat.sim import SIMULATED_PACKERS

MODES = ["pairwise-multi", "pairwise-single"]
ADMINS = Policy(remove="admins", quorum=0, roles="admins")


class Ruled(Small):
    """Some members in one group with a policy, all connected."""

    def __init__(self, members=4, policy=None, keys="pairwise-multi"):
        super().__init__(members)
        self.notices = {name: [] for name in self.nodes}
        answer = self.ask("n0", CreateGroup("friends", "n0", self.envelope, keys, policy or Policy()))
        self.id = answer.result.group
        for name in list(self.nodes)[1:]:
            invitation = self.ask("n0", CreateInvitation(self.id, 3600, 1)).result.invitation
            self.ask(name, AcceptInvitation(invitation, name))
            self.run(for_ms=3_000)
        self.settle()

    def settle(self):
        self.run(for_ms=5_000)

    def _perform(self, node, effect):
        notice = getattr(effect, "notice", None)
        if notice is not None and hasattr(self, "notices"):
            self.notices[node.name].append(notice)
        super()._perform(node, effect)

    def says(self, name, command):
        """The result of a command that is obeyed."""
        answer = self.ask(name, command)
        assert isinstance(answer, Answer), answer.error.sentence()
        self.settle()
        return answer.result

    def refuses(self, name, command, error):
        answer = self.ask(name, command)
        assert isinstance(answer, Refuse) and isinstance(answer.error, error), answer
        return answer.error.sentence()

    def texts(self, name):
        return [json.loads(row.record)["body"]["text"] for row in self.nodes[name].log if row.type == POST]

    def labels(self, name):
        return sorted(member.label for member in self.group(name).view.members.values())

    def heard(self, name, kind):
        return [notice for notice in self.notices[name] if isinstance(notice, kind)]


@pytest.mark.parametrize("keys", MODES)
def test_two_together_put_somebody_out(keys):
    world = Ruled(keys=keys)
    assert world.says("n1", RemoveMember("friends", "n3")) == Voted(world.id, world.group("n3").me, 1, 2)
    assert world.labels("n0") == ["n0", "n1", "n2", "n3"]
    assert world.says("n1", RemoveMember("friends", "n3")).votes == 1, "nobody votes twice"
    out = world.group("n3").me
    assert world.says("n2", RemoveMember("friends", "n3")) == Voted(world.id, out, 2, 2)
    for name in ("n0", "n1", "n2"):
        assert world.labels(name) == ["n0", "n1", "n2"]
        assert out not in world.group(name).peers
        assert member_link(world.id, world.group(name).me, out) not in world.nodes[name].connected, "its links are cut"
    assert world.group("n3").state == "left" and world.group("n3").removed_by
    assert len(world.heard("n3", Removed)) == 1
    world.refuses("n3", SendPost("friends", "still here?"), NotAMember)
    world.says("n0", SendPost("friends", "among ourselves"))
    assert "among ourselves" in world.texts("n2") and "among ourselves" not in world.texts("n3")


def test_votes_that_cross_are_enough():
    world = Ruled()
    for name in ("n1", "n2"):  # neither has heard the other yet
        assert world.ask(name, RemoveMember("friends", "n3")).result.votes == 1
    world.settle()
    assert all(world.labels(name) == ["n0", "n1", "n2"] for name in ("n0", "n1", "n2"))
    assert len({world.group(name).view.checksum for name in ("n0", "n1", "n2")}) == 1


def test_two_who_put_each_other_out_are_both_out():
    world = Ruled(policy=Policy(remove="anyone", quorum=0))
    world.ask("n1", RemoveMember("friends", "n2"))
    world.ask("n2", RemoveMember("friends", "n1"))
    world.settle()
    assert world.labels("n0") == world.labels("n3") == ["n0", "n3"]
    assert world.group("n1").state == world.group("n2").state == "left"


def test_only_admins_remove_where_the_group_has_them():
    world = Ruled(policy=ADMINS)
    assert "admins" in world.refuses("n1", RemoveMember("friends", "n2"), NoRight)
    world.refuses("n1", ChangeRole("friends", "", "admin"), NoRight)
    world.says("n0", ChangeRole("friends", "n1", "admin"))
    world.refuses("n1", RemoveMember("friends", "n0"), NoRight)
    world.says("n1", RemoveMember("friends", "n2"))
    assert world.labels("n3") == ["n0", "n1", "n3"]


@pytest.mark.parametrize("admins", [("n1",), ()])
def test_a_group_goes_on_without_its_owner(admins):
    """With its admins, who keep what they may; without any, everybody's role stays as it is, and nobody is put out."""
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


@pytest.mark.parametrize("keys", [*MODES, "sender-key"])
def test_whoever_says_very_much_and_leaves_is_heard_to_the_end(keys):
    """Its farewell comes before its last words, and nobody closes the connection on these."""
    world = Ruled(3, keys=keys)
    for number in range(1_000):
        world.ask("n2", SendPost("friends", f"number {number}"))
    world.ask("n2", LeaveGroup("friends"))
    world.run(for_ms=300_000)
    assert all(len(world.texts(name)) == 1_000 for name in world.nodes)
    assert world.nodes["n2"].agent.groups[world.id].state == "left"
    assert not any(world.group("n2").me in world.group(name).peers for name in ("n0", "n1"))


def test_whoever_leaves_and_does_not_say_the_rest_is_not_waited_for():
    """The place of its farewell promises more than ever comes."""
    world = Ruled(3)
    node, leaver = world.nodes["n0"], world.group("n2").me
    world.ask("n2", LeaveGroup("friends"))
    world.run(for_ms=100)
    group = world.group("n0")
    seq, gone = group.chain(leaver).seq, group.view.former[leaver]
    former = {leaver: replace(gone, until=seq + 5)}
    owing = replace(node.agent, groups={group.id: replace(group, view=replace(group.view, former=former))})

    def stays(*looked):
        turn = Turn(owing, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
        peers.farewell(turn, group.id, leaver, *looked)
        return leaver in turn.group(group.id).peers

    assert stays() and stays(seq - 1, peers.FAREWELLS_MAX - 1), "more may come, and has"
    assert stays(seq, 1), "a connection may be back in a moment"
    assert not stays(seq - 1, peers.FAREWELLS_MAX), "but not for ever"
    world.stop("n2")
    begun = world.now
    node.agent = owing
    world.hear("n0", TimerFired(f"farewell {group.id} {leaver}"))
    assert world.run(lambda: leaver not in world.group("n0").peers, for_ms=120_000)
    assert world.now - begun <= (peers.FAREWELLS_IN_VAIN + 2) * peers.FAREWELL_MS


@pytest.mark.parametrize("keys", MODES)
def test_a_reader_reads(keys):
    world = Ruled(3, keys=keys)
    assert world.says("n1", ChangeRole("friends", "", "reader")) == Changed(world.id)
    assert "zerochat role" in world.refuses("n1", SendPost("friends", "may I?"), ReadOnly)
    world.says("n0", SendPost("friends", "listen"))
    assert world.texts("n1") == ["listen"]
    world.says("n1", ChangeRole("friends", "", "writer"))
    world.says("n1", SendPost("friends", "now I may"))
    assert world.texts("n2") == ["listen", "now I may"]


def test_whoever_writes_all_the_same_is_not_shown_and_its_chain_goes_on(monkeypatch):
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
        assert world.group(name).chains[forger.me].seq == world.group("n1").seq
    world.says("n0", ChangeRole("friends", "n1", "writer"))
    world.says("n1", SendPost("friends", "allowed again"))
    for name in ("n0", "n2"):
        assert world.texts(name) == ["before", "allowed again"]


def test_who_may_write_again_has_said_nothing_as_a_reader(monkeypatch):
    """Seed 63976 of the episodes: the owner did not know whether somebody else had heard it, let it count from before,
    and had left it out itself."""
    world = Ruled(3, policy=ADMINS)
    world.says("n1", SendPost("friends", "before"))
    world.says("n0", ChangeRole("friends", "n1", "reader"))
    writer = world.group("n1").me
    with monkeypatch.context() as patch:
        patch.setattr(commands, "may_post", lambda *_: True)
        world.says("n1", SendPost("friends", "as a reader"))
    agent, group = world.nodes["n0"].agent, world.group("n0")
    other = world.group("n2").me
    unheard = replace(group.peers[other], acked={**group.peers[other].acked, writer: 1})
    group = replace(group, peers={**group.peers, other: unheard})
    world.nodes["n0"].agent = replace(agent, groups={**agent.groups, world.id: group})
    world.says("n0", ChangeRole("friends", "n1", "writer"))
    world.says("n1", SendPost("friends", "allowed again"))
    for name in ("n0", "n2"):
        assert world.texts(name) == ["before", "allowed again"]
        assert not may_post(world.group(name).view, writer, 2)


def test_what_somebody_says_after_its_removal_is_not_heard():
    world = Ruled(3, policy=ADMINS)
    world.says("n2", SendPost("friends", "before"))
    out = world.group("n2")
    world.says("n0", RemoveMember("friends", "n2"))
    tip = out.chains[out.me]
    late = Event(world.id, POST, out.me, tip.seq + 1, tip.tip, (), (), world.now, world.now, {"text": "after"})
    turn = Turn(world.nodes["n1"].agent, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
    with pytest.raises(RemoteError):
        log.hear_event(turn, world.id, out.me, late)
    assert turn.agent == world.nodes["n1"].agent and world.texts("n1") == ["before"]


def test_names_change_and_are_not_taken_twice():
    world = Ruled(3)
    world.refuses("n1", ChangeLabel("friends", "N2"), NameTaken)
    world.says("n1", ChangeLabel("friends", "Nina"))
    assert world.labels("n0") == world.labels("n2") == ["Nina", "n0", "n2"]
    world.says("n0", RemoveMember("friends", "nina"))
    assert world.refuses("n0", RemoveMember("friends", "nobody"), UnknownMember)


def test_who_is_verified_is_kept_here_and_told_to_nobody():
    world = Ruled(3)
    world.refuses("n0", VerifyMember("friends", "n0", True), NotYourself)
    frames = world.steps
    answer = world.ask("n0", VerifyMember("friends", "n1", True))
    assert isinstance(answer, Answer) and world.steps == frames + 1
    assert world.group("n0").verified == {world.group("n1").me: "n1"}
    world.ask("n0", VerifyMember("friends", "n1", False))
    assert world.group("n0").verified == {} and len(world.heard("n0", TrustChanged)) == 2


def test_policies_that_cannot_be_are_refused():
    for policy in (Policy(remove="admins", quorum=0, roles="flat"), Policy(remove="quorum", quorum=1)):
        world = Small(1)
        assert isinstance(
            world.ask("n0", CreateGroup("friends", "n0", world.envelope, "pairwise-multi", policy)), Refuse
        )


def test_cover_is_said_now_and_then_and_means_nothing():
    world = Ruled(3, keys="pairwise-single")
    node = world.nodes["n0"]
    world.hear("n0", Started(node.address, node.queue_address, node.server_key, cover=True))
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


def test_whoever_waits_for_an_answer_of_somebody_who_was_put_out_starts_anew():
    world = Ruled(3, Policy(remove="anyone", quorum=0))
    gone = world.group("n2").me
    turn = Turn(world.nodes["n0"].agent, Moment(world.now, world.dice.randbytes), SIMULATED_PACKERS)
    pull_requests.ask_for(turn, world.id, gone, [(gone, 0, 9)], 1)
    world.nodes["n0"].agent = turn.agent
    assert gone in world.group("n0").errands
    world.says("n0", RemoveMember(world.id, gone))
    assert gone not in world.group("n0").peers and not world.group("n0").errands
    left = replace(turn.agent.groups[world.id], peers={})
    world.nodes["n0"].agent = replace(turn.agent, groups={world.id: left})
    world.restart("n0")
    assert not world.group("n0").errands, "an older version has kept that"
