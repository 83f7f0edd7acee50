"""Open invitations: their users and progress, and revocation."""

import pytest
from msgspec.structs import replace

from tests.support.admission_world import Admitting
from tests.support.member_offices import Offices
from tests.support.small_world import Small
from zerochat.agent.views.groups import open_invitations
from zerochat.group.inputs import AcceptInvitation, CreateInvitation, RevokeInvitation
from zerochat.group.joining.requests import NoSuchInvitation
from zerochat.group.membership import Policy


def test_invitation_list_details() -> None:
    world = Offices(3, Policy(join="ask"))
    listed = world.call("n0", "list_invitations", group="friends")
    assert [[(one.state, one.nick) for one in each.invitees] for each in listed] == [
        [("waiting", "n1")],
        [("waiting", "n2")],
    ]
    world.call("n0", "answer_join_request", group="friends", member="n1", admit=True)
    world.call("n0", "answer_join_request", group="friends", member="n2", admit=False)
    world.run_command("n0", CreateInvitation(world.id, 60, 5, "reader", "none"))
    soonest, *others = world.call("n0", "list_invitations", group="friends")
    assert (soonest.uses, soonest.role, soonest.history) == (5, "reader", "none")
    assert soonest.expires_at < others[0].expires_at
    assert soonest.invitees == [] and soonest.group == world.id
    assert sorted((one.state, one.nick) for each in others for one in each.invitees) == [
        ("gone", "n2"),
        ("joined", "n1"),
    ]
    assert all(one.at for each in others for one in each.invitees)
    assert world.call("n1", "list_invitations", group="friends") == []


def test_revoked_invitation_admits_no_joiner() -> None:
    world = Offices(2)
    world.run_command("n0", CreateInvitation(world.id, 60, 2))
    (one, other) = world.call("n0", "list_invitations", group="friends")
    for wrong in ("", one.id[:3], "ffff", "\x1b[2J"):
        with pytest.raises(NoSuchInvitation, match="No open invitation of yours"):
            world.call("n0", "revoke_invitation", group="friends", invitation=wrong)
    with pytest.raises(NoSuchInvitation):
        world.call("n1", "revoke_invitation", group="friends", invitation=one.id)
    assert world.call("n0", "revoke_invitation", group="friends", invitation=one.id[:6].upper()).id == world.id
    assert world.call("n0", "list_invitations", group="friends") == [other]
    with pytest.raises(NoSuchInvitation):
        world.call("n0", "revoke_invitation", group="friends", invitation=one.id)


class Revoking(Admitting):
    def take_back(self, number: int = 0) -> None:
        agent = self.nodes["n0"].agent
        listed = open_invitations(agent, self.group("n0"))
        self.run_command("n0", RevokeInvitation(self.id, listed[number].id))
        self.run(for_ms=5_000)


def test_revoked_holder_cannot_connect() -> None:
    world = Revoking(2, Policy())
    invitation = world.offer()
    world.take_back()
    assert not world.nodes["n0"].agent.invitations
    assert world.join("n1", invitation).phase == "failed"
    assert len(world.group("n0").view.members) == 1


def test_revocation_rejects_evicted_claims() -> None:
    world = Revoking(2)
    world.knock("n1", world.offer(uses=0))
    agent = world.nodes["n0"].agent
    invitations = {link: replace(open_, claims={}) for link, open_ in agent.invitations.items()}
    world.nodes["n0"].agent = replace(agent, invitations=invitations)
    world.take_back()
    assert not world.nodes["n0"].agent.invitations
    assert not [one for one in world.group("n0").joining.requests.values() if not one.refused]


def test_revocation_rejects_waiting_joiners() -> None:
    world = Revoking(3)
    invitation = world.offer(uses=2)
    world.knock("n1", invitation)
    world.answer("n1", True)
    world.run(for_ms=5_000)
    world.knock("n2", invitation)
    assert world.last("n2").phase == "asking"
    world.take_back()
    assert world.last("n2").phase == "failed" and "refused your request" in world.last("n2").text
    assert not [one for one in world.group("n0").joining.requests.values() if not one.refused]
    assert sorted(one.label for one in world.group("n0").view.members.values()) == ["n0", "n1"]


def test_revocation_ends_join_in_progress() -> None:
    """A joiner between the exchange request and the join request gets no more answers."""
    world = Small(2)
    group = world.found()
    invitation = world.invite(group)
    world.run_command("n1", AcceptInvitation(invitation, "n1"))
    while not any(one.claims for one in world.nodes["n0"].agent.invitations.values()):
        world.run(for_ms=1)
    (listed,) = open_invitations(world.nodes["n0"].agent, world.group("n0"))
    assert [one.state for one in listed.invitees] in (["joining"], ["joined"])
    world.run_command("n0", RevokeInvitation(group, listed.id))
    world.run(for_ms=200_000)
    assert [notice for who, notice in world.told if who == "n1"][-1].phase in ("failed", "joined")
