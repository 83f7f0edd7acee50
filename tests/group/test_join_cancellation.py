"""Join cancellation: its effect on the joiner, the inviter and the members."""

import pytest
from msgspec.structs import replace

from tests.support.admission_world import Admitting
from tests.support.mediated_world import Behind
from tests.support.small_world import Small
from zerochat.didcomm.invitation import parse_invitation
from zerochat.group.effects import CommandDone, CommandFailed
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import LEAVE
from zerochat.group.inputs import AcceptInvitation, AnswerJoinRequest, CancelJoin, CreateGroup
from zerochat.group.joining import cancellation, claims, evidence, inviter, joiner, member_connections
from zerochat.group.membership import Policy
from zerochat.group.notifications import JoinRequestAnswered, JoinRequested
from zerochat.sim import Faults


def one_join(world, name="n1"):
    (found,) = world.nodes[name].agent.joins.values()
    return found


def until(world, phase, name="n1"):
    assert world.run(lambda: one_join(world, name).state == phase, for_ms=10_000)


def claims_of(world, name="n0"):
    return [claim for open_ in world.nodes[name].agent.invitations.values() for claim in open_.claims.values()]


def cut(world, *names):
    """Disconnect these nodes."""
    world.faults = Faults(loss=1, duplication=0, delay_ms_max=5)


# --- since when -----------------------------------------------------------------------------------------------------


def test_join_reports_its_start():
    world = Admitting()
    invitation, begun = world.offer(), world.now
    world.knock("n1", invitation)
    world.run(for_ms=600_000)
    assert one_join(world).begun_at == begun
    world.run_command("n1", AcceptInvitation(invitation, "n one"))
    assert one_join(world).begun_at == begun, "another name for the same request"
    world.run_command("n1", CancelJoin(""))
    world.run_command("n1", AcceptInvitation(invitation, "n one"))
    assert one_join(world).begun_at == world.now, "but this is a new one"


# --- giving up ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["", "friends", "id", "beginning"])
def test_waiting_joiner_may_cancel(wanted):
    world = Admitting(3)
    invitation = world.offer()
    world.knock("n1", invitation)
    identity = one_join(world).id
    answer = world.run_command("n1", CancelJoin({"id": identity, "beginning": identity[:4]}.get(wanted, wanted)))
    assert isinstance(answer, CommandDone) and answer.result.join == identity
    last = world.last("n1")
    assert (last.phase, last.error) == ("failed", "JoinCancelled") and "friends" in last.text
    world.run(for_ms=3_000)
    assert not world.group("n0").joining.requests and not claims_of(world)
    assert [notice.admitted for notice in world.all(JoinRequestAnswered)] == [False]
    assert not one_join(world).cancel_until, "it was answered, so it is told no more"
    assert not [link for link in world.nodes["n1"].connected if link in world.nodes["n1"].agent.joins]
    world.knock("n2", invitation)
    assert len(world.all(JoinRequested)) == 2, "the use was given back"


@pytest.mark.parametrize("phase", ["exchanging", "requesting"])
def test_cancelling_leaves_nothing_behind(phase, monkeypatch):
    world = Small(3)
    group = world.found()
    invitation = world.invite(group)
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    assert world.run(lambda: bool(claims_of(world)), for_ms=10_000)
    if phase == "requesting":
        monkeypatch.setattr(joiner, "_send_requests", lambda tx, link, one: None)
        until(world, "requesting")
    assert one_join(world).state == phase
    world.run_command("n1", CancelJoin(""))
    world.run(for_ms=cancellation.CANCEL_MS + 2_000)
    monkeypatch.undo()
    assert not claims_of(world) and not one_join(world).cancel_until
    assert world.join("n2", invitation).phase == "joined"
    assert len(world.group("n0").view.members) == 2


def test_cancel_needs_a_join():
    world = Admitting(3)
    assert isinstance(world.run_command("n1", CancelJoin("")).error, cancellation.NoSuchJoin)
    world.knock("n1", world.offer())
    other = world.invite(world.found("n2"), "n2")
    world.nodes["n2"].allowed_clients.clear()
    world.run_command("n1", AcceptInvitation(other, "n1"))
    refused = world.run_command("n1", CancelJoin(""))
    assert isinstance(refused, CommandFailed) and isinstance(refused.error, cancellation.AmbiguousJoin)
    assert isinstance(world.run_command("n1", CancelJoin("friend")).error, cancellation.NoSuchJoin), (
        "not the beginning of a name"
    )


def test_returned_uses_are_limited(monkeypatch):
    monkeypatch.setattr(inviter, "RETURNED_USES_MAX", 2)
    world = Admitting(4)
    invitation = world.offer()
    for name in ("n1", "n2", "n3"):
        world.knock(name, invitation)
        world.run_command(name, CancelJoin(""))
        world.run(for_ms=3_000)
    assert len(claims_of(world)) == 1 and len(world.all(JoinRequested)) == 3
    world.knock("n1", invitation)
    assert "used already" in world.last("n1").text


def test_refusal_survives_cancellation():
    world = Admitting()
    world.knock("n1", world.offer())
    (link, waiting), *_ = world.nodes["n1"].agent.joins.items()
    world.answer("n1", False)
    world.run(for_ms=1_000)
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, joins={link: waiting})
    world.run_command("n1", CancelJoin(""))
    world.run(for_ms=3_000)
    assert len(claims_of(world)) == 1 and [one.refused for one in world.group("n0").joining.requests.values()] == [True]


def test_failed_cancellation_allows_retry():
    """The inviter did not receive the withdrawal: the claim stays, and the same joiner can use it."""
    world = Small(2)
    invitation = world.invite(world.found())
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    until(world, "requesting")
    faults = world.faults
    cut(world)
    world.run_command("n1", CancelJoin(""))
    world.run(for_ms=cancellation.CANCEL_MS + 2_000)
    assert not one_join(world).cancel_until, "it does not try for ever"
    world.faults = faults
    assert world.join("n1", invitation).phase == "joined"


# --- ghosts ---------------------------------------------------------------------------------------------------------


def admitted_unwelcomed(monkeypatch, members=3):
    """n0 has admitted n1, and the welcome has not come."""
    world = Small(members)
    group = world.found()
    if members > 2:
        world.join("n2", world.invite(group))
    invitation = world.invite(group)
    monkeypatch.setattr(evidence, "receive_welcome", lambda tx, link, body: None)
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    assert world.run(lambda: len(world.group("n0").view.members) == members, for_ms=10_000)
    return world, group, invitation


@pytest.mark.parametrize("how", ["gives up", "times out"])
def test_admitted_joiner_leaves_when_cancelling(how, monkeypatch):
    world, _, invitation = admitted_unwelcomed(monkeypatch)
    me = one_join(world).me
    if how == "gives up":
        world.run_command("n1", CancelJoin(""))
    world.run(for_ms=2 * joiner.JOIN_MS_MAX + 20_000)
    for name in ("n0", "n2"):
        view = world.group(name).view
        assert me in view.former and me not in view.members and not view.forked
        assert [e.author for e in world.group(name).control.values() if e.type == LEAVE] == [me]
    assert not world.nodes["n1"].agent.groups and not one_join(world).cancel_until
    monkeypatch.undo()
    assert "used already" in world.join("n1", invitation).text, "with another key: this one has left"
    assert world.join("n1", world.invite(world.group("n0").id)).phase == "joined"


def test_an_inviter_that_answers_late_has_time_for_the_welcome(monkeypatch):
    """A busy inviter has many joiners. Who gives up after it was admitted leaves, and has used the invitation up."""
    world = Small(2)
    invitation, calm = world.invite(world.found()), world.faults
    cut(world)
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    world.run(for_ms=joiner.JOIN_MS_MAX - 10_000)
    assert one_join(world).state == "exchanging"
    world.faults = calm
    with monkeypatch.context() as busy:
        busy.setattr(evidence, "receive_welcome", lambda tx, link, body: None)
        world.run(for_ms=30_000)
    assert one_join(world).state == "requesting"
    until(world, "joined")


def test_unusable_welcome_leads_to_leave(monkeypatch):
    world = Small(2)
    group = world.found()
    monkeypatch.setattr(own_events, "is_supported", lambda profile: False)
    last = world.join("n1", world.invite(group))
    assert "does not support" in last.text
    assert len(world.group("n0").view.members) == 1 and len(world.group("n0").view.former) == 1


def test_cancelling_while_connecting_leaves(monkeypatch):
    world = Small(3)
    group = world.found()
    world.join("n2", world.invite(group))
    monkeypatch.setattr(member_connections, "update_join_progress", lambda tx, link, final=False: None)
    world.run_command("n1", AcceptInvitation(world.invite(group), "n1"))
    until(world, "connecting")
    world.run(for_ms=5_000)
    assert one_join(world).state != "joined"
    world.run_command("n1", CancelJoin(""))
    assert member_connections.link_to_inviter(one_join(world)) in world.nodes["n1"].dialled, (
        "it still has to say goodbye"
    )
    world.run(for_ms=30_000)
    assert world.group("n1").state == "left"
    assert all(len(world.group(name).view.members) == 2 for name in ("n0", "n2"))


def test_inviter_sees_member_that_never_connected(monkeypatch):
    world, _, _ = admitted_unwelcomed(monkeypatch)
    me = one_join(world).me
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, joins={})
    world.run(for_ms=member_connections.NEVER_CONNECTED_MS - 60_000)
    assert not member_connections.never_connected(world.group("n0"), me, world.now)
    world.run(for_ms=120_000)
    assert member_connections.never_connected(world.group("n0"), me, world.now)
    assert not member_connections.never_connected(world.group("n2"), me, world.now), "others cannot know"
    there = world.group("n2").me
    assert not member_connections.never_connected(world.group("n0"), there, world.now)
    assert me in world.group("n0").view.members, "nobody is put out by a clock"


def test_repeated_leave_counts_once(monkeypatch):
    world, _, _ = admitted_unwelcomed(monkeypatch, members=2)
    world.faults = Faults(loss=0.5, duplication=0.3, delay_ms_max=50)
    world.run_command("n1", CancelJoin(""))
    world.run(for_ms=cancellation.CANCEL_MS * 2)
    leaves = [e for e in world.group("n0").control.values() if e.type == LEAVE]
    assert len(leaves) == 1 and not world.group("n0").view.forked


# --- an inviter that has forgotten ----------------------------------------------------------------------------------


def forget_claims(world, name="n0"):
    agent = world.nodes[name].agent
    kept = {link: replace(open_, claims={}) for link, open_ in agent.invitations.items()}
    world.nodes[name].agent = replace(agent, invitations=kept)


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_evicted_joiner_repeats_exchange(envelope):
    world = Small(2, envelope)
    invitation = world.invite(world.found())
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    until(world, "requesting")
    forget_claims(world)
    assert world.run(lambda: one_join(world).state == "joined", for_ms=15_000), "long before it would give up"


def test_evicted_joiner_is_informed():
    """Meanwhile another joiner used the invitation."""
    world = Small(3)
    group = world.found()
    invitation = world.invite(group)
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    until(world, "requesting")
    forget_claims(world)
    world.run_command("n2", AcceptInvitation(invitation, "n2"))
    assert world.run(lambda: one_join(world, "n2").state == "joined", for_ms=1_000)
    world.run(lambda: one_join(world).state in ("failed", "cancelling"), for_ms=15_000)
    assert "used already" in [notice for who, notice in world.told if who == "n1"][-1].text


def test_evicted_waiting_joiner_is_admitted():
    world = Admitting()
    world.knock("n1", world.offer())
    forget_claims(world)
    world.run(for_ms=60_000)
    assert len(world.all(JoinRequested)) == 1, "the same person is not asked about the same one twice"
    world.answer("n1", True)
    world.run(for_ms=2_000)
    assert world.last("n1").phase == "joined"


def test_foreign_claims_block_no_joiner(monkeypatch):
    """With more claims than are kept the oldest is evicted, and its joiner begins anew, again and again."""
    monkeypatch.setattr(claims, "CLAIMS_MAX", 1)
    world = Admitting(4, Policy(join="open"))
    invitation = world.offer()
    for name in ("n1", "n2", "n3"):
        world.run_command(name, AcceptInvitation(invitation, name))
    world.run(for_ms=50_000)
    assert all(one_join(world, name).state == "joined" for name in ("n1", "n2", "n3"))


def test_evicted_admitted_joiner_gets_welcome(monkeypatch):
    world, _, _ = admitted_unwelcomed(monkeypatch)
    forget_claims(world)
    monkeypatch.undo()
    assert world.run(lambda: one_join(world).state == "joined", for_ms=15_000)
    assert len({world.group(name).view.checksum for name in world.nodes}) == 1


def test_join_state_survives_journal():
    world = Admitting()
    world.knock("n1", world.offer())
    world.run_command("n1", CancelJoin(""))
    world.restart("n1")
    world.run(for_ms=cancellation.CANCEL_MS + 2_000)
    assert not one_join(world).cancel_until and not world.group("n0").joining.requests


# --- by mail --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [("n0",), ("n1",), ("n0", "n1")], ids=" ".join)
@pytest.mark.parametrize("admitted", [False, True])
def test_by_mail_it_is_the_same(hidden, admitted, monkeypatch):
    world = Behind(2, hidden=hidden)
    policy = Policy(join="invited" if admitted else "ask")
    group = world.run_command("n0", CreateGroup("friends", "n0", world.envelope, policy=policy)).result.group
    if admitted:
        monkeypatch.setattr(evidence, "receive_welcome", lambda tx, link, body: None)
    invitation = parse_invitation(world.invite(group, lifetime_s=86_400).url(), world.now // 1000)
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    there = lambda: len(world.group("n0").joining.requests) + len(world.group("n0").view.members) == 2  # noqa: E731
    assert world.run(there, for_ms=60_000)
    world.run(for_ms=3_000)
    world.run_command("n1", CancelJoin(""))
    world.run(for_ms=cancellation.CANCEL_MS + 30_000)
    assert not world.group("n0").joining.requests and len(world.group("n0").view.members) == 1
    assert len(world.group("n0").view.former) == admitted and not one_join(world).cancel_until


class Muted(Behind):
    """The founder only dials out, and its frames on some links are lost."""

    def __init__(self):
        self.mute = set()
        super().__init__(2, hidden=("n0",))

    def _dispatch(self, node, link, envelope):
        if link not in self.mute:
            super()._dispatch(node, link, envelope)


def test_freed_endpoint_is_dialled():
    """A joiner that missed its admission and uses another invitation is two members at one endpoint. Only the first is
    dialled. The founder cannot be dialled, so it was never connected with the second."""
    world = Muted()
    group = world.run_command(
        "n0", CreateGroup("friends", "n0", world.envelope, policy=Policy(join="ask"))
    ).result.group

    def come(label):
        link = world.invite(group).url()
        world.run_command("n1", AcceptInvitation(parse_invitation(link, world.now // 1000), label))
        asked = len(world.news("n0", JoinRequested))
        assert world.run(lambda: len(world.news("n0", JoinRequested)) > asked, for_ms=60_000)

    come("n1")
    world.mute = set(world.nodes["n0"].connected)
    first = world.news("n0", JoinRequested)[-1].member
    assert isinstance(world.run_command("n0", AnswerJoinRequest(group, "n1", True)), CommandDone)
    come("n one")
    assert isinstance(world.run_command("n0", AnswerJoinRequest(group, "n one", True)), CommandDone)
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=60_000)
    world.mute = set()
    second = world.group("n1").me
    assert second != first and {first, second} < set(world.group("n0").view.members)
    assert world.run(lambda: first not in world.group("n0").view.members, for_ms=600_000), "it gives the first one up"
    assert world.run(world.fully_connected, for_ms=600_000), "and meets the second"
    world.run(for_ms=5_000)
    assert world.group("n0").view.checksum == world.group("n1").view.checksum
