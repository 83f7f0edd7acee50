"""Giving a join up, and what is left of it: for whoever gives it up, whoever has invited it, and the members."""

import pytest
from msgspec.structs import replace

from tests.group.test_admission import Admitting
from tests.group.test_join import Small
from tests.support.mediated_world import Behind
from zerochat.didcomm.invitation import parse_invitation
from zerochat.group.effects import Answer, Refuse
from zerochat.group.event_log import log
from zerochat.group.event_log.event import LEAVE
from zerochat.group.inputs import AcceptInvitation, AnswerRequest, CancelJoin, CreateGroup
from zerochat.group.joining import cancellation, inviter, joiner, member_connections
from zerochat.group.membership import Policy
from zerochat.group.notifications import JoinAnswered, JoinAsked
from zerochat.sim import Faults


def one_join(world, name="n1"):
    (found,) = world.nodes[name].agent.joins.values()
    return found


def until(world, phase, name="n1"):
    assert world.run(lambda: one_join(world, name).phase == phase, for_ms=10_000)


def claims(world, name="n0"):
    return [claim for open_ in world.nodes[name].agent.invitations.values() for claim in open_.claims.values()]


def cut(world, *names):
    """Nobody hears these any more, and they hear nobody."""
    world.faults = Faults(loss=1, duplication=0, delay_ms_max=5)


# --- since when -----------------------------------------------------------------------------------------------------


def test_a_join_says_since_when_it_tries():
    world = Admitting()
    invitation, begun = world.offer(), world.now
    world.knock("n1", invitation)
    world.run(for_ms=600_000)
    assert one_join(world).begun == begun
    world.ask("n1", AcceptInvitation(invitation, "n one"))
    assert one_join(world).begun == begun, "another name for the same request"
    world.ask("n1", CancelJoin(""))
    world.ask("n1", AcceptInvitation(invitation, "n one"))
    assert one_join(world).begun == world.now, "but this is a new one"


# --- giving up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["", "friends", "id", "beginning"])
def test_whoever_waits_may_give_up_and_nobody_waits_for_it(wanted):
    world = Admitting(3)
    invitation = world.offer()
    world.knock("n1", invitation)
    identity = one_join(world).id
    answer = world.ask("n1", CancelJoin({"id": identity, "beginning": identity[:4]}.get(wanted, wanted)))
    assert isinstance(answer, Answer) and answer.result.join == identity
    last = world.last("n1")
    assert (last.phase, last.error) == ("failed", "JoinCancelled") and "friends" in last.text
    world.run(for_ms=3_000)
    assert not world.group("n0").requests and not claims(world)
    assert [notice.admitted for notice in world.all(JoinAnswered)] == [False]
    assert not one_join(world).parting, "it was answered, so it is told no more"
    assert not [link for link in world.nodes["n1"].connected if link in world.nodes["n1"].agent.joins]
    world.knock("n2", invitation)
    assert len(world.all(JoinAsked)) == 2, "the use was given back"


@pytest.mark.parametrize("phase", ["exchanging", "asking"])
def test_giving_up_on_the_way_leaves_nothing_behind(phase, monkeypatch):
    world = Small(3)
    group = world.found()
    invitation = world.invite(group)
    world.ask("n1", AcceptInvitation(invitation, "n1"))
    assert world.run(lambda: bool(claims(world)), for_ms=10_000)
    if phase == "asking":
        monkeypatch.setattr(joiner, "_send", lambda turn, link, one: None)
        until(world, "asking")
    assert one_join(world).phase == phase
    world.ask("n1", CancelJoin(""))
    world.run(for_ms=cancellation.PARTING_MS + 2_000)
    monkeypatch.undo()
    assert not claims(world) and not one_join(world).parting
    assert world.join("n2", invitation).phase == "joined"
    assert len(world.group("n0").view.members) == 2


def test_there_must_be_a_join_to_give_up():
    world = Admitting(3)
    assert isinstance(world.ask("n1", CancelJoin("")).error, cancellation.NoJoin)
    world.knock("n1", world.offer())
    other = world.invite(world.found("n2"), "n2")
    world.nodes["n2"].admitted.clear()
    world.ask("n1", AcceptInvitation(other, "n1"))
    refused = world.ask("n1", CancelJoin(""))
    assert isinstance(refused, Refuse) and isinstance(refused.error, cancellation.SeveralJoins)
    assert isinstance(world.ask("n1", CancelJoin("friend")).error, cancellation.NoJoin), "not the beginning of a name"


def test_a_use_is_not_given_back_without_end(monkeypatch):
    monkeypatch.setattr(inviter, "GIVEN_BACK_MAX", 2)
    world = Admitting(4)
    invitation = world.offer()
    for name in ("n1", "n2", "n3"):
        world.knock(name, invitation)
        world.ask(name, CancelJoin(""))
        world.run(for_ms=3_000)
    assert len(claims(world)) == 1 and len(world.all(JoinAsked)) == 3
    world.knock("n1", invitation)
    assert "used already" in world.last("n1").text


def test_a_refusal_is_not_taken_back_by_giving_up():
    world = Admitting()
    world.knock("n1", world.offer())
    (link, waiting), *_ = world.nodes["n1"].agent.joins.items()
    world.answer("n1", False)
    world.run(for_ms=1_000)
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, joins={link: waiting})
    world.ask("n1", CancelJoin(""))
    world.run(for_ms=3_000)
    assert len(claims(world)) == 1 and [one.refused for one in world.group("n0").requests.values()] == [True]


def test_whoever_gave_up_in_vain_is_told_of_and_asks_again_with_the_same_keys():
    """The inviter has not heard it: the claim stays, and the same joiner can still use it."""
    world = Small(2)
    invitation = world.invite(world.found())
    world.ask("n1", AcceptInvitation(invitation, "n1"))
    until(world, "asking")
    faults = world.faults
    cut(world)
    world.ask("n1", CancelJoin(""))
    world.run(for_ms=cancellation.PARTING_MS + 2_000)
    assert not one_join(world).parting, "it does not try for ever"
    world.faults = faults
    assert world.join("n1", invitation).phase == "joined"


# --- ghosts ---------------------------------------------------------------------------------------------------------


def admitted_unwelcomed(monkeypatch, members=3):
    """n1 was let in by n0, and its welcome has not come."""
    world = Small(members)
    group = world.found()
    if members > 2:
        world.join("n2", world.invite(group))
    invitation = world.invite(group)
    monkeypatch.setattr(joiner, "_hear_welcome", lambda turn, link, body: None)
    world.ask("n1", AcceptInvitation(invitation, "n1"))
    assert world.run(lambda: len(world.group("n0").view.members) == members, for_ms=10_000)
    return world, group, invitation


@pytest.mark.parametrize("how", ["gives up", "times out"])
def test_whoever_was_let_in_and_gives_up_leaves_properly(how, monkeypatch):
    world, _, invitation = admitted_unwelcomed(monkeypatch)
    me = one_join(world).me
    if how == "gives up":
        world.ask("n1", CancelJoin(""))
    world.run(for_ms=joiner.JOIN_MS_MAX + 20_000)
    for name in ("n0", "n2"):
        view = world.group(name).view
        assert me in view.former and me not in view.members and not view.forked
        assert [e.author for e in world.group(name).control.values() if e.type == LEAVE] == [me]
    assert not world.nodes["n1"].agent.groups and not one_join(world).parting
    monkeypatch.undo()
    assert "used already" in world.join("n1", invitation).text, "with another key: this one has left"
    assert world.join("n1", world.invite(world.group("n0").id)).phase == "joined"


def test_whoever_cannot_use_its_welcome_leaves_too(monkeypatch):
    world = Small(2)
    group = world.found()
    monkeypatch.setattr(log, "supported", lambda profile: False)
    last = world.join("n1", world.invite(group))
    assert "does not have" in last.text
    assert len(world.group("n0").view.members) == 1 and len(world.group("n0").view.former) == 1


def test_giving_up_without_a_seat_is_to_leave(monkeypatch):
    world = Small(3)
    group = world.found()
    world.join("n2", world.invite(group))
    monkeypatch.setattr(member_connections, "progress", lambda turn, link, final=False: None)
    world.ask("n1", AcceptInvitation(world.invite(group), "n1"))
    until(world, "done")
    world.run(for_ms=5_000)
    assert not one_join(world).seated
    world.ask("n1", CancelJoin(""))
    assert member_connections.link_to_inviter(one_join(world)) in world.nodes["n1"].dialled, (
        "it still has to say goodbye"
    )
    world.run(for_ms=30_000)
    assert world.group("n1").state == "left"
    assert all(len(world.group(name).view.members) == 2 for name in ("n0", "n2"))


def test_whoever_never_arrives_is_known_to_whoever_has_let_it_in(monkeypatch):
    world, _, _ = admitted_unwelcomed(monkeypatch)
    me = one_join(world).me
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, joins={})
    world.run(for_ms=member_connections.NEVER_MS - 60_000)
    assert not member_connections.never_arrived(world.group("n0"), me, world.now)
    world.run(for_ms=120_000)
    assert member_connections.never_arrived(world.group("n0"), me, world.now)
    assert not member_connections.never_arrived(world.group("n2"), me, world.now), "others cannot know"
    there = world.group("n2").me
    assert not member_connections.never_arrived(world.group("n0"), there, world.now)
    assert me in world.group("n0").view.members, "nobody is put out by a clock"


def test_a_leave_that_comes_twice_is_one(monkeypatch):
    world, _, _ = admitted_unwelcomed(monkeypatch, members=2)
    world.faults = Faults(loss=0.5, duplication=0.3, delay_ms_max=50)
    world.ask("n1", CancelJoin(""))
    world.run(for_ms=cancellation.PARTING_MS * 2)
    leaves = [e for e in world.group("n0").control.values() if e.type == LEAVE]
    assert len(leaves) == 1 and not world.group("n0").view.forked


# --- an inviter that has forgotten ----------------------------------------------------------------------------------


def forget_claims(world, name="n0"):
    agent = world.nodes[name].agent
    kept = {link: replace(open_, claims={}) for link, open_ in agent.invitations.items()}
    world.nodes[name].agent = replace(agent, invitations=kept)


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_a_joiner_that_was_forgotten_says_again_who_it_is(envelope):
    world = Small(2, envelope)
    invitation = world.invite(world.found())
    world.ask("n1", AcceptInvitation(invitation, "n1"))
    until(world, "asking")
    forget_claims(world)
    assert world.run(lambda: one_join(world).seated, for_ms=15_000), "long before it would give up"


def test_a_joiner_that_was_forgotten_for_others_hears_so():
    """Meanwhile the invitation was used by somebody else."""
    world = Small(3)
    group = world.found()
    invitation = world.invite(group)
    world.ask("n1", AcceptInvitation(invitation, "n1"))
    until(world, "asking")
    forget_claims(world)
    world.ask("n2", AcceptInvitation(invitation, "n2"))
    assert world.run(lambda: one_join(world, "n2").seated, for_ms=1_000)
    world.run(lambda: one_join(world).phase == "failed", for_ms=15_000)
    assert "used already" in [notice for who, notice in world.told if who == "n1"][-1].text


def test_whoever_waits_for_a_person_and_was_forgotten_is_let_in_all_the_same():
    world = Admitting()
    world.knock("n1", world.offer())
    forget_claims(world)
    world.run(for_ms=60_000)
    assert len(world.all(JoinAsked)) == 1, "the same person is not asked about the same one twice"
    world.answer("n1", True)
    world.run(for_ms=2_000)
    assert world.last("n1").phase == "joined"


def test_claims_of_others_wedge_nobody(monkeypatch):
    """Where an invitation has more claims than are kept, the oldest goes: its joiner begins anew, again and again."""
    monkeypatch.setattr(inviter, "CLAIMS_MAX", 1)
    world = Admitting(4, Policy(join="open"))
    invitation = world.offer()
    for name in ("n1", "n2", "n3"):
        world.ask(name, AcceptInvitation(invitation, name))
    world.run(for_ms=50_000)
    assert all(one_join(world, name).seated for name in ("n1", "n2", "n3"))


def test_whoever_was_let_in_and_forgotten_has_its_welcome_all_the_same(monkeypatch):
    world, _, _ = admitted_unwelcomed(monkeypatch)
    forget_claims(world)
    monkeypatch.undo()
    assert world.run(lambda: one_join(world).seated, for_ms=15_000)
    assert len({world.group(name).view.checksum for name in world.nodes}) == 1


def test_the_state_of_a_join_fits_the_disk():
    world = Admitting()
    world.knock("n1", world.offer())
    world.ask("n1", CancelJoin(""))
    world.restart("n1")
    world.run(for_ms=cancellation.PARTING_MS + 2_000)
    assert not one_join(world).parting and not world.group("n0").requests


# --- by mail --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [("n0",), ("n1",), ("n0", "n1")], ids=" ".join)
@pytest.mark.parametrize("admitted", [False, True])
def test_by_mail_it_is_the_same(hidden, admitted, monkeypatch):
    world = Behind(2, hidden=hidden)
    policy = Policy(join="invited" if admitted else "ask")
    group = world.ask("n0", CreateGroup("friends", "n0", world.envelope, policy=policy)).result.group
    if admitted:
        monkeypatch.setattr(joiner, "_hear_welcome", lambda turn, link, body: None)
    invitation = parse_invitation(world.invite(group, lifetime_s=86_400).url(), world.now // 1000)
    world.ask("n1", AcceptInvitation(invitation, "n1"))
    there = lambda: len(world.group("n0").requests) + len(world.group("n0").view.members) == 2  # noqa: E731
    assert world.run(there, for_ms=60_000)
    world.run(for_ms=3_000)
    world.ask("n1", CancelJoin(""))
    world.run(for_ms=cancellation.PARTING_MS + 30_000)
    assert not world.group("n0").requests and len(world.group("n0").view.members) == 1
    assert len(world.group("n0").view.former) == admitted and not one_join(world).parting


class Muted(Behind):
    """The founder dials out only, and what it says over some of its links is lost."""

    def __init__(self):
        self.mute = set()
        super().__init__(2, hidden=("n0",))

    def _dispatch(self, node, link, envelope):
        if link not in self.mute:
            super()._dispatch(node, link, envelope)


def test_whoever_is_reached_where_somebody_was_is_dialled_when_that_one_has_gone():
    """Whoever does not hear that it was let in, and comes with another invitation, is two members at one address. Only
    the first of these is dialled. The founder can be dialled by nobody, so it was never connected with the second."""
    world = Muted()
    group = world.ask("n0", CreateGroup("friends", "n0", world.envelope, policy=Policy(join="ask"))).result.group

    def come(label):
        link = world.invite(group).url()
        world.ask("n1", AcceptInvitation(parse_invitation(link, world.now // 1000), label))
        asked = len(world.news("n0", JoinAsked))
        assert world.run(lambda: len(world.news("n0", JoinAsked)) > asked, for_ms=60_000)

    come("n1")
    world.mute = set(world.nodes["n0"].connected)
    first = world.news("n0", JoinAsked)[-1].member
    assert isinstance(world.ask("n0", AnswerRequest(group, "n1", True)), Answer)
    come("n one")
    assert isinstance(world.ask("n0", AnswerRequest(group, "n one", True)), Answer)
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=60_000)
    world.mute = set()
    second = world.group("n1").me
    assert second != first and {first, second} < set(world.group("n0").view.members)
    assert world.run(lambda: first not in world.group("n0").view.members, for_ms=600_000), "it gives the first one up"
    assert world.run(world.seated, for_ms=600_000), "and meets the second"
    world.run(for_ms=5_000)
    assert world.group("n0").view.checksum == world.group("n1").view.checksum
