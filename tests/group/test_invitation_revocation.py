"""Invitations that are open: who has used them and how far that is, and taking one back."""

import pytest
from msgspec.structs import replace

from tests.agent.test_member_handlers import Offices
from tests.group.test_admission import Admitting
from tests.group.test_join import Small
from zerochat.agent.views.invitations import open_invitations
from zerochat.group.inputs import AcceptInvitation, CreateInvitation, RevokeInvitation
from zerochat.group.joining.revocation import NoSuchInvitation
from zerochat.group.membership import Policy


def test_what_is_listed_of_an_invitation() -> None:
    world = Offices(3, Policy(join="ask"))
    listed = world.call("n0", "invitations", group="friends")
    assert [[(one.state, one.nick) for one in each.invitees] for each in listed] == [
        [("waiting", "n1")],
        [("waiting", "n2")],
    ]
    world.call("n0", "answer", group="friends", who="n1", admit=True)
    world.call("n0", "answer", group="friends", who="n2", admit=False)
    world.ask("n0", CreateInvitation(world.id, 60, 5, "reader", "none"))
    soonest, *others = world.call("n0", "invitations", group="friends")
    assert (soonest.uses, soonest.role, soonest.history) == (5, "reader", "none")
    assert soonest.expires_at < others[0].expires_at
    assert soonest.invitees == [] and soonest.group == world.id
    assert sorted((one.state, one.nick) for each in others for one in each.invitees) == [
        ("gone", "n2"),
        ("joined", "n1"),
    ]
    assert all(one.at for each in others for one in each.invitees)
    assert world.call("n1", "invitations", group="friends") == []


def test_nobody_comes_in_with_an_invitation_that_was_taken_back() -> None:
    world = Offices(2)
    world.ask("n0", CreateInvitation(world.id, 60, 2))
    (one, other) = world.call("n0", "invitations", group="friends")
    for wrong in ("", one.id[:3], "ffff", "\x1b[2J"):
        with pytest.raises(NoSuchInvitation, match="No invitation of yours"):
            world.call("n0", "revoke", group="friends", invitation=wrong)
    with pytest.raises(NoSuchInvitation):
        world.call("n1", "revoke", group="friends", invitation=one.id)
    assert world.call("n0", "revoke", group="friends", invitation=one.id[:6].upper()).id == world.id
    assert world.call("n0", "invitations", group="friends") == [other]
    with pytest.raises(NoSuchInvitation):
        world.call("n0", "revoke", group="friends", invitation=one.id)


class Revoking(Admitting):
    def take_back(self, number: int = 0) -> None:
        agent = self.nodes["n0"].agent
        listed = open_invitations(agent, self.group("n0"))
        self.ask("n0", RevokeInvitation(self.id, listed[number].id))
        self.run(for_ms=5_000)


def test_a_stranger_finds_no_door() -> None:
    world = Revoking(2, Policy())
    invitation = world.offer()
    world.take_back()
    assert not world.nodes["n0"].agent.invitations
    assert world.join("n1", invitation).phase == "failed"
    assert len(world.group("n0").view.members) == 1


def test_it_is_taken_back_also_where_a_claim_of_somebody_who_waits_was_forgotten() -> None:
    world = Revoking(2)
    world.knock("n1", world.offer(uses=0))
    agent = world.nodes["n0"].agent
    invitations = {link: replace(open_, claims={}) for link, open_ in agent.invitations.items()}
    world.nodes["n0"].agent = replace(agent, invitations=invitations)
    world.take_back()
    assert not world.nodes["n0"].agent.invitations
    assert not [one for one in world.group("n0").requests.values() if not one.refused]


def test_whoever_waits_is_told_no_and_whoever_is_in_stays() -> None:
    world = Revoking(3)
    invitation = world.offer(uses=2)
    world.knock("n1", invitation)
    world.answer("n1", True)
    world.run(for_ms=5_000)
    world.knock("n2", invitation)
    assert world.last("n2").phase == "asking"
    world.take_back()
    assert world.last("n2").phase == "failed" and "did not want to let you in" in world.last("n2").text
    assert not [one for one in world.group("n0").requests.values() if not one.refused]
    assert sorted(one.label for one in world.group("n0").view.members.values()) == ["n0", "n1"]


def test_a_join_that_is_at_it_ends_with_the_invitation() -> None:
    """Somebody who has said hello and not yet asked to join: nobody answers any more."""
    world = Small(2)
    group = world.found()
    invitation = world.invite(group)
    world.ask("n1", AcceptInvitation(invitation, "n1"))
    while not any(one.claims for one in world.nodes["n0"].agent.invitations.values()):
        world.run(for_ms=1)
    (listed,) = open_invitations(world.nodes["n0"].agent, world.group("n0"))
    assert [one.state for one in listed.invitees] in (["joining"], ["joined"])
    world.ask("n0", RevokeInvitation(group, listed.id))
    world.run(for_ms=200_000)
    assert [notice for who, notice in world.told if who == "n1"][-1].phase in ("failed", "joined")
