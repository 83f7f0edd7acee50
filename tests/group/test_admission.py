"""Admission: join rules, roles, decisions, rate limits."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.admission_world import Admitting
from tests.support.mediated_world import Behind
from tests.support.small_world import PERFECT
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.invitation import parse_invitation
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols import exchange
from zerochat.errors import Malformed
from zerochat.group.effects import AllowClient, CommandDone, CommandFailed, GroupChanged, Measure, Reply
from zerochat.group.engine import step
from zerochat.group.event_log import own_events
from zerochat.group.inputs import (
    AcceptInvitation,
    AnswerJoinRequest,
    CreateGroup,
    CreateInvitation,
    LeaveGroup,
    Received,
    RemoveMember,
    ResumeGroup,
    StepContext,
)
from zerochat.group.joining import claims, inviter, joiner, requests
from zerochat.group.key_modes import MODES
from zerochat.group.links import pairing, rate_limits
from zerochat.group.links.contact import CONTACT_CHARS_MAX, Reach, join_link, new_identity
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.membership import Policy
from zerochat.group.notifications import InvitationUsed, JoinRequestAnswered, JoinRequested, MemberConnections
from zerochat.group.state import Claim, Recovery
from zerochat.group.transaction import Transaction
from zerochat.group.wire.envelope import pack_first
from zerochat.group.wire.messages import WELCOME
from zerochat.limits import MEMBERS_MAX
from zerochat.sim import SIMULATED_PACKERS, Faults
from zerochat.sim.world import Node

# --- open groups ----------------------------------------------------------------------------------------------------


def test_open_group_invitation_is_unlimited():
    world = Admitting(4, Policy(join="open"))
    invitation = world.offer(lifetime_s=300)
    for name in ("n1", "n2"):
        assert world.join(name, invitation).phase == "joined"
    assert [notice.uses_left for notice in world.all(InvitationUsed)] == [MEMBERS_MAX - 2, MEMBERS_MAX - 3], (
        "as many as there is room for"
    )
    world.run(for_ms=300_000)
    last = world.join("n3", invitation)
    assert last.phase == "failed" and "no answer from" in last.text


def test_open_group_invitation_keeps_its_limit():
    world = Admitting(3, Policy(join="open"))
    invitation = world.offer(uses=1)
    assert world.join("n1", invitation).phase == "joined"
    assert [notice.uses_left for notice in world.all(InvitationUsed)] == [0]
    assert world.join("n2", invitation).phase == "failed"


def test_open_invitation_bounds_its_claims(monkeypatch):
    monkeypatch.setattr(claims, "CLAIMS_MAX", 2)
    world = Admitting(5, Policy(join="open"))
    invitation = world.offer()
    for name in ("n1", "n2", "n3", "n4"):
        assert world.join(name, invitation).phase == "joined"
    (open_,) = world.nodes["n0"].agent.invitations.values()
    assert len(open_.claims) == 2


def add_claims(world, invitation, count, at=0, **changes):
    """As many claims of strangers under an invitation, as by their exchange requests."""
    node = world.nodes["n0"]
    tx = Transaction(node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    group, link = tx.group(world.id), join_link(invitation.id)
    for number in range(count):
        mine = pairing.pair_identity(tx, group)
        relationship = Relationship("did:key:stranger", mine, mine.did, "", "", requester=False)
        claims.put_claim(tx, link, f"{at} {number}", Claim(relationship, claimed_at=at + number, **changes))
    node.agent = tx.agent
    return node.agent.invitations


def test_the_claims_of_all_invitations_are_bounded_in_bytes(monkeypatch):
    world = Admitting(3, Policy(join="open"))
    floods, honest = [world.offer() for _ in range(3)], world.offer(uses=1)
    add_claims(world, honest, 1)
    (one,) = world.nodes["n0"].agent.invitations[join_link(honest.id)].claims.values()
    monkeypatch.setattr(claims, "CLAIMS_BYTES_MAX", 12 * claims._size(one))
    for number in range(8):
        for flood in floods:
            add_claims(world, flood, 1, at=1 + number)
    held = {link: list(open_.claims) for link, open_ in world.nodes["n0"].agent.invitations.items()}
    assert sum(map(len, held.values())) == 12
    assert len(held[join_link(honest.id)]) == 1, "those that take the most give way"
    assert min(map(len, held.values())) == 1 and max(map(len, held.values())) <= 4
    assert all(claimant == "8 0" for claimant in (held[join_link(flood.id)][-1] for flood in floods)), "the latest stay"


def test_no_use_of_an_invitation_returns_with_its_claim(monkeypatch):
    monkeypatch.setattr(claims, "CLAIMS_BYTES_MAX", 1)
    world = Admitting(3, Policy(join="open"))
    limited = world.offer(uses=3)
    open_ = add_claims(world, limited, 3, admitted=True)[join_link(limited.id)]
    assert len(open_.claims) == 3 and open_.state_at(world.now) == "used up"


def test_a_joiner_with_an_overlong_did_is_refused():
    world = Admitting(2, Policy(join="open"))
    claim = next(iter(add_claims(world, offer := world.offer(), 1)[join_link(offer.id)].claims.values()))
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    grown = replace(claim, relationship=replace(claim.relationship, theirs="d" * (CONTACT_CHARS_MAX + 1)))
    with pytest.raises(Malformed):
        claims.put_claim(tx, join_link(offer.id), "0 0", grown)


# --- asking a member ------------------------------------------------------------------------------------------------


def test_approved_joiner_is_admitted():
    world = Admitting()
    world.knock("n1", world.offer(), role="reader")
    (asked,) = world.all(JoinRequested)
    (join_,) = world.nodes["n1"].agent.joins.values()
    assert (asked.group, asked.member, asked.label, asked.role) == (world.id, join_.me, "n1", "reader")
    assert world.last("n1").phase == "asking" and "Waiting for a member of" in world.last("n1").text
    world.run(for_ms=3 * joiner.JOIN_MS_MAX)
    assert world.last("n1").phase == "asking", "it waits for longer than for an answer of a machine"
    assert isinstance(world.answer("N1", True).result, GroupChanged)
    world.run(for_ms=2_000)
    assert world.last("n1").phase == "joined"
    assert world.group("n0").view.members[asked.member].role == "reader"
    assert [notice.admitted for notice in world.all(JoinRequestAnswered)] == [True]
    assert not world.group("n0").joining.requests and len(world.all(JoinRequested)) == 1


def test_refused_joiner_stops_requesting():
    world = Admitting()
    invitation = world.offer()
    world.knock("n1", invitation)
    world.answer("n1", False)
    world.run(for_ms=1_000)
    assert world.last("n1").phase == "failed" and "refused your request" in world.last("n1").text
    world.knock("n1", invitation)
    assert world.last("n1").phase == "failed" and len(world.all(JoinRequested)) == 1
    assert [notice.admitted for notice in world.all(JoinRequestAnswered)] == [False]
    answer = world.answer("n1", True)
    assert isinstance(answer, CommandFailed) and isinstance(answer.error, requests.NoSuchRequest)


def test_offline_joiner_learns_of_admission():
    world = Admitting()
    world.knock("n1", world.offer())
    world.faults = Faults(loss=1, duplication=0, delay_ms_max=5)
    world.answer("n1", True)
    world.run(for_ms=60_000)
    assert not world.nodes["n1"].agent.groups
    world.faults = PERFECT
    world.restart("n1")
    world.run(for_ms=10_000)
    assert world.last("n1").phase == "joined"


def test_removed_joiner_is_informed():
    world = Admitting()
    world.knock("n1", world.offer())
    world.faults = Faults(loss=1, duplication=0, delay_ms_max=5)
    world.answer("n1", True)
    (member,) = set(world.group("n0").view.members) - {world.group("n0").me}
    world.run_command("n0", RemoveMember(world.id, member))
    world.run(for_ms=1_000)
    world.faults = PERFECT
    world.restart("n1")
    world.run(for_ms=60_000)
    assert world.last("n1").phase == "failed" and "removed again" in world.last("n1").text


def test_request_survives_restarts():
    world = Admitting()
    world.knock("n1", world.offer())
    for name in ("n0", "n1"):
        world.restart(name)
    world.run(for_ms=10_000)
    world.answer("n1", True)
    world.run(for_ms=10_000)
    assert world.last("n1").phase == "joined" and len(world.all(JoinRequested)) == 1


def test_unanswered_request_ends_with_invitation():
    world = Admitting()
    world.knock("n1", world.offer(lifetime_s=3600))
    world.run(for_ms=3_590_000)
    assert world.last("n1").phase == "asking" and world.group("n0").joining.requests
    world.run(for_ms=20_000)
    assert world.last("n1").phase == "failed" and "not answered in time" in world.last("n1").text
    assert not world.group("n0").joining.requests
    assert [notice.admitted for notice in world.all(JoinRequestAnswered)] == [False]


def test_pending_join_times_out(monkeypatch):
    monkeypatch.setattr(joiner, "PENDING_MS_MAX", 3 * 3_600_000)
    world = Admitting()
    world.knock("n1", world.offer(lifetime_s=30 * 86_400))
    world.run(for_ms=joiner.PENDING_MS_MAX + 60_000)
    assert world.last("n1").phase == "failed" and not world.group("n0").joining.requests


def test_pending_join_backs_off():
    world = Admitting()
    world.knock("n1", world.offer())
    steps = world.steps
    world.run(for_ms=3_000_000)
    asked = 3_000_000 // joiner.PENDING_RETRY.ceiling_ms
    assert asked < world.steps - steps < 5 * asked, "a question, an answer and two timers, each half minute"


def test_pending_requests_are_limited(monkeypatch):
    monkeypatch.setattr(requests, "REQUESTS_MAX", 1)
    world = Admitting(3)
    invitation = world.offer(uses=3)
    world.knock("n1", invitation)
    world.knock("n2", invitation)
    assert world.last("n2").phase == "failed" and "too many join requests" in world.last("n2").text
    world.answer("n1", True)
    world.run(for_ms=2_000)
    world.knock("n2", invitation)
    world.answer("n2", True)
    world.run(for_ms=2_000)
    assert world.last("n2").phase == "joined"


def test_a_filled_invitation_leaves_room_for_another(monkeypatch):
    monkeypatch.setattr(requests, "REQUESTS_MAX", 3)
    world = Admitting(7)
    many, own = world.offer(uses=6), world.offer()
    for name in ("n1", "n2", "n3", "n4"):
        world.knock(name, many)
    assert world.last("n4").phase == "failed", "the invitation has its share"
    world.knock("n5", own)
    assert world.last("n5").phase == "asking"
    assert [one.label for one in world.group("n0").joining.requests.values()] == ["n1", "n2", "n5"]
    assert [notice.label for notice in world.all(JoinRequestAnswered)] == ["n3"], "the latest of the longest queue"
    world.run(for_ms=2_000)
    assert world.last("n3").phase == "failed" and "too many join requests" in world.last("n3").text
    world.knock("n6", many)
    assert world.last("n6").phase == "failed"
    world.answer("n5", True)
    world.run(for_ms=2_000)
    assert world.last("n5").phase == "joined"


def test_every_invitation_has_its_share_of_the_requests(monkeypatch):
    """Two invitations take turns only as long as one has at least two more."""
    monkeypatch.setattr(requests, "REQUESTS_MAX", 2)
    world = Admitting(5)
    offers = [world.offer(), world.offer(), world.offer()]
    for name, offer in zip(("n1", "n2", "n3"), offers, strict=True):
        world.knock(name, offer)
    assert [one.label for one in world.group("n0").joining.requests.values()] == ["n1", "n2"]


def test_remembered_refusals_are_limited(monkeypatch):
    monkeypatch.setattr(requests, "REFUSED_MAX", 1)
    world = Admitting(3)
    invitation = world.offer(uses=3)
    for name in ("n1", "n2"):
        world.knock(name, invitation)
        world.answer(name, False)
    assert [one.label for one in world.group("n0").joining.requests.values()] == ["n2"]


def test_members_of_equal_names_are_distinguished_by_key():
    world = Admitting(3)
    invitation = world.offer(uses=2)
    world.knock("n1", invitation, "somebody")
    world.knock("n2", invitation, "Somebody")
    refused = world.answer("somebody", True)
    assert isinstance(refused, CommandFailed) and isinstance(refused.error, requests.AmbiguousRequest)
    first, second = (notice.member for notice in world.all(JoinRequested))
    world.answer(first, True)
    world.run(for_ms=2_000)
    assert world.last("n1").phase == "joined"
    world.answer(second, True)
    world.run(for_ms=2_000)
    assert "this name is taken" in world.last("n2").text
    world.knock("n2", invitation, "somebody else")
    world.answer("somebody else", True)
    world.run(for_ms=2_000)
    assert world.last("n2").phase == "joined"


def test_waiting_joiner_may_change_name():
    world = Admitting()
    invitation = world.offer()
    world.knock("n1", invitation)
    for label in ("one", "two", "three"):
        world.knock("n1", invitation, label)
    assert len(world.all(JoinRequested)) <= 3, "but nobody is asked all the time"
    world.run(for_ms=requests.CHANGE_INTERVAL_MS)
    world.knock("n1", invitation, "n one")
    assert world.all(JoinRequested)[-1].label == "n one"
    world.answer("n one", True)
    world.run(for_ms=2_000)
    assert world.group("n1").view.members[world.group("n1").me].label == "n one"


def test_joiner_is_admitted_as_shown():
    """A joiner may change its request while the user looks at it."""
    world = Admitting()
    invitation = world.offer()
    world.knock("n1", invitation, role="reader")
    (asked,) = world.all(JoinRequested)
    shown = AnswerJoinRequest(world.id, asked.member, True, asked.label, asked.role)
    world.run(for_ms=requests.CHANGE_INTERVAL_MS)
    world.knock("n1", invitation, "n1", role="writer")
    (request,) = world.group("n0").joining.requests.values()
    assert (request.role, request.asked.role) == ("reader", "reader"), "it gets no more than it has asked for first"
    world.knock("n1", invitation, "the boss", role="reader")
    assert world.all(JoinRequested)[-1].label == "the boss"
    refused = world.run_command("n0", shown)
    assert isinstance(refused, CommandFailed) and isinstance(refused.error, requests.RequestChanged)
    assert "the boss" in refused.error.sentence() and len(world.group("n0").view.members) == 1
    world.run_command("n0", replace(shown, label="the boss"))
    world.run(for_ms=2_000)
    member = world.group("n0").view.members[asked.member]
    assert (member.label, member.role) == ("the boss", "reader")


def test_suspended_profile_admits_no_joiner():
    """The user is told why, the request is kept, and the joiner is asked to retry."""
    world = Admitting()
    invitation = world.offer()
    world.knock("n1", invitation)
    (asked,) = world.all(JoinRequested)
    node, group = world.nodes["n0"], world.group("n0")
    node.agent = replace(
        node.agent, groups={group.id: replace(group, sync=replace(group.sync, recovery=Recovery(from_backup=True)))}
    )
    admit = AnswerJoinRequest(world.id, asked.member, True)
    refused = world.run_command("n0", admit)
    assert isinstance(refused, CommandFailed) and "`zerochat resume friends`" in refused.error.sentence()
    assert world.last("n1").phase == "asking" and asked.member in world.group("n0").joining.requests
    world.run(for_ms=joiner.PENDING_RETRY.base_ms)
    assert world.last("n1").phase == "failed" and "Try again later" in world.last("n1").text
    assert world.group("n0").others == [] and world.group("n0").seq == 1
    world.run_command("n0", ResumeGroup(world.id))
    world.knock("n1", invitation)
    assert isinstance(world.run_command("n0", admit), CommandDone)
    world.run(for_ms=5_000)
    assert world.last("n1").phase == "joined" and len(world.group("n0").others) == 1


def test_refusal_needs_no_confirmation():
    world = Admitting()
    world.knock("n1", world.offer())
    (asked,) = world.all(JoinRequested)
    assert isinstance(
        world.run_command("n0", AnswerJoinRequest(world.id, asked.member, False, "another", "reader")), CommandDone
    )
    world.run(for_ms=1_000)
    assert world.last("n1").phase == "failed"


def test_inviter_gets_the_request():
    world = Admitting(3)
    world.knock("n1", world.offer())
    world.answer("n1", True)
    world.run(for_ms=5_000)
    world.knock("n2", world.offer(name="n1"))
    assert isinstance(world.answer("n2", True, "n0"), CommandFailed)
    assert [who for who, notice in world.news if isinstance(notice, JoinRequested)] == ["n0", "n1"]
    world.answer("n2", True, "n1")
    world.run(for_ms=5_000)
    assert world.last("n2").phase == "joined" and len({world.group(n).view.checksum for n in world.nodes}) == 1


def test_waiting_joiner_may_switch_invitation():
    world = Admitting()
    first, second = world.offer(), world.offer()
    world.knock("n1", first)
    world.knock("n1", second, "n one")
    phases = sorted(one.state for one in world.nodes["n1"].agent.joins.values())
    assert phases == ["failed", "pending"] and any("another invitation" in notice.text for _, notice in world.told)
    world.answer("n one", True)
    world.run(for_ms=2_000)
    assert world.last("n1").phase == "joined"


def test_join_request_cannot_be_forged():
    """A join-pending message of another group changes nothing."""
    world = Admitting()
    world.knock("n1", world.offer())
    (link, before), *_ = world.nodes["n1"].agent.joins.items()
    assert before.pending_tries and before.deadline == before.invitation.expires * 1000
    world.run(for_ms=600_000)
    assert world.nodes["n1"].agent.joins[link].deadline == before.deadline, "to be told again gives no more time"


@pytest.mark.parametrize("hidden", [("n0",), ("n1",), ("n0", "n1")], ids=" ".join)
def test_by_mail_it_is_the_same(hidden):
    world = Behind(2, hidden=hidden)
    group = world.run_command(
        "n0", CreateGroup("friends", "n0", world.envelope, policy=Policy(join="ask"))
    ).result.group
    invitation = parse_invitation(world.invite(group, lifetime_s=86_400).url(), world.now // 1000)
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    assert world.run(lambda: bool(world.news("n0", JoinRequested)), for_ms=60_000)
    world.run(for_ms=600_000)
    world.run_command("n0", AnswerJoinRequest(group, "n1", True))
    assert world.run(world.fully_connected, for_ms=7_200_000)
    (join_,) = world.nodes["n1"].agent.joins.values()
    assert join_.state in ("connecting", "joined") and len(world.news("n0", JoinRequested)) == 1


# --- roles ----------------------------------------------------------------------------------------------------------


def test_invitation_limits_role():
    world = Admitting(policy=Policy())
    invitation = world.offer(role="reader")
    world.knock("n1", invitation)
    assert world.last("n1").phase == "joined"
    assert world.group("n1").view.members[world.group("n1").me].role == "reader"


def test_joiner_may_request_a_lower_role():
    world = Admitting(policy=Policy())
    world.knock("n1", world.offer(role="writer"), role="reader")
    assert world.group("n0").view.members[world.group("n1").me].role == "reader"


@pytest.mark.parametrize("role", ["admin", "owner", ""])
def test_unknown_roles_are_rejected(role):
    world = Admitting(policy=Policy())
    asked = world.run_command("n1", AcceptInvitation(world.offer(), "n1", role))
    assert isinstance(asked, CommandFailed) and isinstance(asked.error, joiner.NoSuchRole)
    assert isinstance(world.run_command("n0", CreateInvitation(world.id, 60, 1, role)), CommandFailed)


# --- the group of the invitation ------------------------------------------------------------------------------------


def test_invitation_is_bound_to_group():
    """The inviter has moved the invitation to another group of its own."""
    world = Admitting(policy=Policy())
    invitation = world.offer()
    other = world.run_command("n0", CreateGroup("others", "n0", world.envelope)).result.group
    ((link, open_),) = world.nodes["n0"].agent.invitations.items()
    world.nodes["n0"].agent = replace(world.nodes["n0"].agent, invitations={link: replace(open_, group=other)})
    world.knock("n1", invitation)
    assert world.last("n1").phase == "failed" and "another group than the one the invitation" in world.last("n1").text
    assert not world.nodes["n1"].agent.groups


@pytest.mark.parametrize("nonce", [b"", bytes(15), bytes(16)])
def test_unbound_response_is_rejected(nonce):
    world = Admitting(policy=Policy())
    invitation = world.offer()
    ((link, open_),) = world.nodes["n0"].agent.invitations.items()
    world.nodes["n0"].agent = replace(world.nodes["n0"].agent, invitations={link: replace(open_, nonce=nonce)})
    world.knock("n1", invitation)
    assert world.last("n1").phase == "failed" and "another group" in world.last("n1").text


def test_welcome_to_another_group_ends_join(monkeypatch):
    world = Admitting(policy=Policy())

    def astray(tx, link, claimant, thread, answer):
        claim = tx.agent.invitations[link].claims[claimant]
        body = {"group": "A" * 43, "start_seq": 0, "part": 0, "parts": 1}
        message = Message(type=WELCOME, id="1", thid=thread, body=body)
        packer = tx.packer_of(world.id)
        answer(claim.relationship.theirs, pack(claim.relationship, message, packer, world.rng.randbytes))

    monkeypatch.setattr(inviter, "send_welcome", astray)
    world.knock("n1", world.offer())
    assert world.last("n1").phase == "failed" and "another group" in world.last("n1").text


def test_unsupported_keys_fail_the_join(monkeypatch):
    world = Admitting(policy=Policy(), keys="sender-key")
    invitation = world.offer()
    monkeypatch.setattr(own_events, "MODES", {name: mode for name, mode in MODES.items() if not mode.signs})
    world.knock("n1", invitation)
    last = world.last("n1")
    assert last.phase == "failed"
    assert "does not support the group's keys (sender-key)" in last.text
    assert "Update zerochat." in last.text
    assert not world.nodes["n1"].agent.groups, "nothing of the group is kept"
    world.run(for_ms=60_000)
    assert len(world.group("n0").view.members) == 1, "and it is no member that nobody can hear"


# --- how it is told -------------------------------------------------------------------------------------------------


def seated(world, name):
    return [notice for who, notice in world.told if who == name]


def test_both_sides_see_progress():
    world = Admitting(5, Policy())
    for name in ("n1", "n2", "n3"):
        assert world.join(name, world.offer()).phase == "joined"
    world.news.clear()
    world.join("n4", world.offer())
    texts = [notice.text for notice in seated(world, "n4") if notice.phase == "connecting"]
    assert any("1/4 members connected, waiting for " in text for text in texts)
    assert all("n4" not in text for text in texts)
    seating = [
        (who, notice.connected, notice.members) for who, notice in world.news if isinstance(notice, MemberConnections)
    ]
    assert ("n0", 4, 4) in seating and {who for who, *_ in seating} == {"n0"}


def test_join_needs_no_timer():
    """Frames take up to 5 ms here and handshakes up to 50: all are connected in a fifth of a second."""
    world = Admitting(9, Policy())
    for number in range(1, 8):
        world.join(f"n{number}", world.offer())
    begun = world.now
    world.run_command("n8", AcceptInvitation(world.offer(), "n8"))
    assert world.run(lambda: bool(world.nodes["n8"].agent.groups) and world.fully_connected(), for_ms=60_000)
    assert world.now - begun < 200, "virtual milliseconds"


@pytest.mark.slow
@pytest.mark.parametrize("faults", [PERFECT, Faults(loss=0.1, duplication=0.05, delay_ms_max=100)])
def test_sixteen_concurrent_joiners_all_connect(faults):
    world = Admitting(20, Policy())
    for name in ("n1", "n2", "n3"):
        world.join(name, world.offer())
    world.faults = faults
    newcomers = [f"n{number}" for number in range(4, 20)]
    for number, name in enumerate(newcomers):
        world.run_command(name, AcceptInvitation(world.offer(name=f"n{number % 4}"), name))
    assert world.run(lambda: world.fully_connected(), for_ms=120_000)
    world.run(for_ms=30_000)
    world.check()
    assert all(world.last(name).phase == "joined" for name in newcomers)
    assert not any(world.group(name).trust.quarantine for name in world.nodes)


def test_dead_member_blocks_no_admission():
    world = Admitting(5, Policy())
    for name in ("n1", "n2", "n3"):
        world.join(name, world.offer())
    dead: Node = world.nodes["n1"]
    dead.allowed_clients.clear()
    dead.dialled.clear()
    world.run(for_ms=10)
    world.process = lambda name, stimulus, hear=world.process: name == "n1" or hear(name, stimulus)  # type: ignore[method-assign]
    last = world.join("n4", world.offer())
    assert (last.phase, last.connected, last.members) == ("joined", 3, 4)
    assert "3 of 4 members are connected" in last.text
    assert any("waiting for n1…" in notice.text for notice in seated(world, "n4"))


def test_leaving_inviter_informs_waiting_joiner():
    """Seed 35159 of the episodes: the joiner would have waited for a day."""
    world = Admitting(3, Policy(join="ask"))
    world.knock("n1", world.offer())
    assert world.answer("n1", admit=True) is not None
    world.run(for_ms=5_000)
    world.knock("n2", world.offer(name="n1"))
    assert world.last("n2").phase == "asking"
    world.run_command("n1", LeaveGroup(world.id))
    world.run(for_ms=1_000)
    assert world.last("n2").phase == "failed"
    (answered,) = [notice for notice in world.all(JoinRequestAnswered) if not notice.admitted]
    assert answered.label == "n2" and not world.nodes["n1"].agent.groups[world.id].joining.requests


# --- who knocks without end -----------------------------------------------------------------------------------------


class Counting:
    """A packer that counts how often it decrypts."""

    def __init__(self, packer):
        self._packer, self.opened = packer, 0

    def __getattr__(self, name):
        return getattr(self._packer, name)

    def unpack(self, *arguments, **named):
        self.opened += 1
        return self._packer.unpack(*arguments, **named)


class Knocked(Admitting):
    """A group of one whose invitation is used by joiners with different keys."""

    def __init__(self, members=1, policy=None):
        super().__init__(members, policy or Policy(join="invited"))
        self.packer = Counting(SIMULATED_PACKERS[self.envelope])
        self.at = self.now

    def request(self, invitation):
        identity = new_identity(self.rng.randbytes, Reach(b"", None, None), self.envelope)
        body = {"goal_code": "org.zerochat.join", "member": did_key(ed25519_public(self.rng.randbytes(32)))}
        name = new_id(self.rng.randbytes)
        message = Message(type=exchange.REQUEST, id=name, thid=name, pthid=invitation.pthid, body=body)
        context = StepContext(self.at, self.rng.randbytes)
        return pack_first(identity, invitation.did, message, SIMULATED_PACKERS[self.envelope], context)

    def said(self, invitation, envelope):
        """The result of one envelope: `answered`, or why it was dropped; or nothing."""
        node = self.nodes["n0"]
        stimulus = Received(join_link(invitation.id), envelope, b"handle")
        packers: dict[str, Any] = {**SIMULATED_PACKERS, self.envelope: self.packer}
        node.agent, effects = step(node.agent, stimulus, StepContext(self.at, self.rng.randbytes), packers)
        return next(
            "answered" if isinstance(one, Reply) else one.detail for one in effects if isinstance(one, Reply | Measure)
        )

    def asked(self, invitation):
        return self.said(invitation, self.request(invitation))


def at_once(people):
    return rate_limits.JOIN_ENVELOPES_BURST + rate_limits.JOIN_ENVELOPES_PER_USE * people


def test_rate_limit_precedes_decryption():
    world = Knocked()
    one, other = world.offer(), world.offer()
    assert {world.asked(one) for _ in range(at_once(1))} == {"answered"}, "the second and later ones that it is used"
    opened, before = world.packer.opened, world.nodes["n0"].agent
    assert {world.asked(one) for _ in range(50)} == {"RateLimited"}
    assert world.packer.opened == opened and world.nodes["n0"].agent is before, "no work, and nothing to write"
    assert world.asked(other) == "answered", "who has another invitation is heard"
    world.at += 1_000
    heard = [world.asked(one) for _ in range(10)]
    assert heard.count("answered") == rate_limits.JOIN_ENVELOPES_PER_S and heard[-1] == "RateLimited"
    world.at += 600_000
    assert [world.asked(one) for _ in range(at_once(1) + 1)].count("RateLimited") == 1, "all of it is there again"


def test_junk_and_long_envelopes_cost_more():
    world = Knocked()
    one, other = world.offer(), world.offer()
    why = [world.said(one, b"{}") for _ in range(at_once(1) + 1)]
    assert "RateLimited" not in why[:-1] and why[-1] == "RateLimited"
    why = [world.said(other, bytes(at_once(1) * rate_limits.JOIN_ENVELOPE_BYTES)) for _ in range(2)]
    assert why[0] != "RateLimited" and why[1] == "RateLimited"


def test_rate_limit_refills():
    """Also if envelopes come more often than one token per interval."""
    world = Knocked()
    one = world.offer()
    while world.asked(one) == "answered":
        pass
    heard = 0
    for _ in range(100):
        world.at += 90
        heard += world.asked(one) == "answered"
    assert heard == 9 * rate_limits.JOIN_ENVELOPES_PER_S
    world.at -= 3_600_000
    assert world.asked(one) == "RateLimited"
    world.at += 1_000
    assert world.asked(one) == "answered", "a clock that was set back keeps nobody out"


@pytest.mark.parametrize("people", [16, MEMBERS_MAX - 1])
def test_all_invitees_fit_the_rate_limit(people):
    """Each sends three envelopes at once, and again after 1.5, 3 and 6 seconds."""
    world = Knocked()
    invitation, heard = world.offer(uses=people), []
    for after in (
        0,
        joiner.RETRY.base_ms,
        2 * joiner.RETRY.base_ms,
        4 * joiner.RETRY.base_ms,
        4 * joiner.RETRY.base_ms,
        4 * joiner.RETRY.base_ms,
    ):
        world.at += after
        heard = [world.said(invitation, b"{}") for _ in range(3 * people)]
        assert heard.count("RateLimited") <= len(heard) // 2 if after else "RateLimited" not in heard
    assert "RateLimited" not in heard, "those who come later, too"


def test_invitation_holder_is_a_guest():
    world = Knocked(2)
    assert [one.guest for one in world.nodes["n0"].allowed_clients.values()] == []
    invitation = world.offer()
    assert [one.guest for one in world.nodes["n0"].allowed_clients.values() if isinstance(one, AllowClient)] == [True]
    assert world.join("n1", invitation).phase == "joined"
    assert sorted(one.guest for one in world.nodes["n0"].allowed_clients.values()) == [False, True], (
        "the member is none"
    )
