"""Pairing of two members: the number of messages, and losses."""

from collections import Counter

import pytest

from tests.support.cut_world import Cut
from zerochat.didcomm.message import Message
from zerochat.group import dispatch
from zerochat.group.inputs import AcceptInvitation, ChangeRole, CreateGroup, CreateInvitation, RemoveMember, SendPost
from zerochat.group.links import mediator_mail, pairing
from zerochat.group.membership import Policy, View
from zerochat.group.wire.messages import EmbeddedMessage, ResponseBody
from zerochat.sim.world import Faults, World


def met(world: World, group: str, newcomers: list[str]) -> None:
    """These join the group of n0, one after the other, until all is quiet."""
    for name in newcomers:
        invitation = world.run_command("n0", CreateInvitation(group, 86_400, 1)).result.invitation
        world.run_command(name, AcceptInvitation(invitation, name))
        assert world.run(
            lambda name=name: all(one.state == "joined" for one in world.nodes[name].agent.joins.values()),
            for_ms=60_000,
        )
        world.run(for_ms=5_000)


@pytest.fixture
def world() -> World:
    return World(4, 3, Faults(loss=0, duplication=0, delay_ms_max=5), envelope="didcomm/v2")


def test_one_message_each_completes_pairing(world, monkeypatch):
    """Request, response, and the requester's sync: then both have the same state."""
    group = world.run_command("n0", CreateGroup("g", "n0", world.envelope, "pairwise-multi")).result.group
    met(world, group, ["n1"])
    heard: Counter[tuple[str, str]] = Counter()
    hear = dispatch._handle_message

    def counted(tx, name, member, relationship, message: Message, size):
        me = tx.group(name).view.members[tx.group(name).me].label
        heard[me, message.type.rpartition("/")[2]] += 1
        hear(tx, name, member, relationship, message, size)

    monkeypatch.setattr(dispatch, "_handle_message", counted)
    met(world, group, ["n2"])
    assert heard["n1", "sync"] == 1, "what the newcomer has, when it knows what the member has"
    assert heard["n2", "sync"] == 1, "that of the one who let it in; the member's comes with its answer"
    assert world.group("n1").view.checksum == world.group("n2").view.checksum
    for one, other in (("n1", "n2"), ("n2", "n1")):
        peer = world.group(one).links.peers[world.group(other).me]
        assert peer.anti_entropy.view == world.group(one).view.checksum and not peer.exchange.greeting_due


def test_message_before_response_is_processed(world, monkeypatch):
    """A requester may send before the responder's sync has come, where that is not part of the response."""
    monkeypatch.setattr(pairing, "read_body", lambda message, shape: ResponseBody())
    group = world.run_command("n0", CreateGroup("g", "n0", world.envelope, "pairwise-multi")).result.group
    met(world, group, ["n1"])
    send, mute = World._frame, [False]

    def frame(self, name, stimulus):
        if not (mute[0] and name == "n2"):
            send(self, name, stimulus)

    monkeypatch.setattr(World, "_frame", frame)
    invitation = world.run_command("n0", CreateInvitation(group, 86_400, 1)).result.invitation
    world.run_command("n2", AcceptInvitation(invitation, "n2"))

    def answered() -> bool:
        if group not in world.nodes["n2"].agent.groups:
            return False
        here = world.group("n2")
        peer = here.links.peers.get(world.group("n1").me)
        return peer is not None and peer.exchange.greeting_due

    assert world.run(answered, for_ms=60_000)
    mute[0] = True  # from here on nothing that the member says arrives
    posted = world.run_command("n2", SendPost(group, "at once")).result
    there = world.nodes["n1"]
    assert world.run(lambda: any(one.id == posted.id for one in there.log), for_ms=1_000)


@pytest.mark.parametrize("said", [None, EmbeddedMessage("1", {}), EmbeddedMessage("2", {"group": "another"})])
def test_response_without_valid_sync_counts(world, monkeypatch, said):
    """The requester sends its state all the same."""
    monkeypatch.setattr(pairing, "read_body", lambda message, shape: ResponseBody(said))
    group = world.run_command("n0", CreateGroup("g", "n0", world.envelope)).result.group
    met(world, group, ["n1", "n2"])
    for one, other in (("n1", "n2"), ("n2", "n1")):
        there = world.group(other).me
        assert (
            world.group(one).links.relationships[there].established
            and not world.group(one).links.peers[there].exchange.greeting_due
        )
        assert world.group(one).links.peers[there].anti_entropy.view == world.group(one).view.checksum
    assert ("dropped Malformed" in world.nodes["n2"].dropped) is (said is not None)


def test_lost_response_is_repeated(world, monkeypatch):
    """The repeated request must not be ignored as too frequent: the next one would be seconds later."""
    group = world.run_command("n0", CreateGroup("g", "n0", world.envelope)).result.group
    met(world, group, ["n1"])
    member, lost = world.group("n1").me, list[int]()

    def lossy(tx, name, other, envelope):
        if tx.group(name).me == member and not lost:
            lost.append(world.now)
        else:
            mediator_mail.send(tx, name, other, envelope)

    monkeypatch.setattr(pairing, "send", lossy)
    invitation = world.run_command("n0", CreateInvitation(group, 86_400, 1)).result.invitation
    world.run_command("n2", AcceptInvitation(invitation, "n2"))
    assert world.run(lambda: bool(lost), for_ms=60_000)

    def seated() -> bool:
        return all(one.state == "joined" for one in world.nodes["n2"].agent.joins.values())

    assert world.run(seated, for_ms=pairing.REQUEST_RETRY.base_ms + 500)


def test_unauthorised_removal_is_answered_in_time():
    """An owner removes an admin, informs one member and is gone; the admin, unaware of that, removes this member, which
    is void. Only the member can prove it, while the others still accept its messages."""
    world = Cut(6, Policy(remove="admins", quorum=0, roles="admins"))
    world.bring_in(*list(world.nodes)[1:])
    world.run(for_ms=10_000)
    world.run_command("n0", ChangeRole(world.id, world.did("n1"), "admin"))
    world.run(for_ms=20_000)
    admin, witness = world.did("n1"), world.did("n2")
    world.deaf |= {frozenset({"n0", name}) for name in ("n1", "n3", "n4", "n5")} | {frozenset({"n1", "n2"})}
    world.run_command("n0", RemoveMember(world.id, admin))

    def view(name: str) -> View:
        return world.nodes[name].agent.groups[world.id].view

    assert world.run(lambda: admin in view("n2").former, for_ms=5_000)
    world.kill("n0")
    world.run(for_ms=300)
    world.run_command("n1", RemoveMember(world.id, witness))
    others = ("n3", "n4", "n5")
    assert world.run(
        lambda: all(admin in view(name).former and witness in view(name).members for name in others), for_ms=20_000
    )
