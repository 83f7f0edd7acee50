"""Short links of invitations: publication at a mediator, refusal, and withdrawal."""

import pytest

from tests.support.mediated_world import Behind
from zerochat.agent.views.groups import invitation_info
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.invitation import parse_invitation
from zerochat.didcomm.protocols import short_links
from zerochat.errors import Malformed, Unauthentic
from zerochat.group.effects import CommandFailed
from zerochat.group.inputs import AcceptInvitation, CreateInvitation, RevokeInvitation
from zerochat.group.joining.joiner import NoAnswerPossible
from zerochat.group.joining.requests import invitation_name
from zerochat.group.notifications import JoinProgress


def world_with_group(**options):
    world = Behind(2, hidden=("n0",), **options)
    return world, world.found()


def invite(world, group, **options):
    world.run_command("n0", CreateInvitation(group, 3600, None, **options))
    world.run(for_ms=2_000)
    agent = world.nodes["n0"].agent
    link = list(agent.invitations)[-1]
    return link, agent.invitations[link]


def served(world):
    return {oobid: sealed for links in world.web.mediators["m0"].links.values() for oobid, sealed in links.items()}


def info(world, open_):
    return invitation_info(world.nodes["n0"].agent, open_, lambda url, expires: "")


def test_a_mediator_serves_the_invitation_sealed():
    world, group = world_with_group()
    _, open_ = invite(world, group, name="for Bob")
    shown = info(world, open_)
    assert (shown.name, shown.short_missing) == ("for Bob", "")
    page, _, rest = shown.short.partition("?_oobid=")
    oobid, _, key = rest.partition("#")
    assert page == "http://m0.example/" and len(shown.short) < 80, "a QR code of 37 modules"
    sealed = served(world)[oobid]
    secret = short_links.key_of(shown.short)
    assert secret is not None
    url = short_links.open_sealed(sealed, secret)
    assert url == open_.invitation.url()
    assert b64url(open_.invitation.id).encode() not in sealed and key.encode() not in sealed
    with pytest.raises(Unauthentic):
        short_links.open_sealed(sealed, bytes(16))
    with pytest.raises(Malformed):
        short_links.key_of(shown.short[:-3])
    world.run_command("n1", AcceptInvitation(parse_invitation(url, world.now // 1000), "n1"))
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=60_000)
    world.run(for_ms=2_000)
    assert not served(world), "used up"


def test_a_revoked_invitation_is_withdrawn_also_after_a_reconnection():
    world, group = world_with_group()
    first, _ = invite(world, group)
    second, _ = invite(world, group)
    third, _ = invite(world, group)
    assert len(served(world)) == 3
    world.run_command("n0", RevokeInvitation(group, invitation_name(first)))
    world.run(for_ms=2_000)
    assert len(served(world)) == 2
    world.web.stop_mediator("m0")
    world.run(for_ms=5_000)
    world.run_command("n0", RevokeInvitation(group, invitation_name(second)))
    world.web.start_mediator("m0")
    world.run(lambda: len(served(world)) == 1, for_ms=120_000)
    assert list(served(world)) == [world.nodes["n0"].agent.invitations[third].short.oobid]


def test_a_mediator_that_lost_the_links_gets_them_again():
    world, group = world_with_group()
    _, open_ = invite(world, group)
    world.web.stop_mediator("m0")
    world.run(for_ms=5_000)
    world.web.mediators["m0"].links.clear()
    world.web.start_mediator("m0")
    assert world.run(lambda: list(served(world)) == [open_.short.oobid], for_ms=120_000)


def test_an_older_mediator_leaves_the_full_link():
    world, group = world_with_group()
    world.web.mediators["m0"].serves_links = False
    _, open_ = invite(world, group)
    shown = info(world, open_)
    assert not shown.short and "older version" in shown.short_missing and "full link works" in shown.short_missing
    assert parse_invitation(shown.url, world.now // 1000).id == open_.invitation.id


def test_an_unconnected_mediator_is_named():
    world, group = world_with_group()
    world.web.stop_mediator("m0")
    world.run(for_ms=5_000)
    _, open_ = invite(world, group)
    assert "not connected" in info(world, open_).short_missing


def test_a_joiner_that_no_answer_can_reach_is_refused_at_once():
    """It would wait a minute, and then read that the inviter was the fault."""
    world = Behind(2, hidden=("n0", "n1"), via={"n1": ()})
    group = world.found()
    _, open_ = invite(world, group)
    failed = world.run_command("n1", AcceptInvitation(open_.invitation, "n1"))
    assert isinstance(failed, CommandFailed) and isinstance(failed.error, NoAnswerPossible)
    assert "has no mediator" in str(failed.error)


def test_a_joiner_without_a_mediator_learns_what_may_be_wrong():
    world, group = world_with_group()
    _, open_ = invite(world, group)
    world.stop("n0")
    world.run_command("n1", AcceptInvitation(open_.invitation, "n1"))
    world.run(for_ms=70_000)
    (text,) = [one.text for one in world.news("n1", JoinProgress) if one.phase == "failed"]
    assert "behind a router too" in text and "still valid" in text
