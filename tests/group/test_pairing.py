"""How two members come to have a DID each for the other: in few words, and with none that is missing."""

from collections import Counter

import pytest

from tests.group.test_history import Cut
from zerochat.didcomm.message import Message
from zerochat.group import dispatch
from zerochat.group.inputs import AcceptInvitation, ChangeRole, CreateGroup, CreateInvitation, RemoveMember, SendPost
from zerochat.group.links import mediator_mail, pairing
from zerochat.group.membership import Policy, View
from zerochat.group.wire.messages import ResponseBody, SaidBody
from zerochat.sim.world import Faults, World


def met(world: World, group: str, newcomers: list[str]) -> None:
    """Have these join the group of n0, one after the other, and wait until all is said."""
    for name in newcomers:
        invitation = world.ask("n0", CreateInvitation(group, 86_400, 1)).result.invitation
        world.ask(name, AcceptInvitation(invitation, name))
        assert world.run(
            lambda name=name: all(one.seated for one in world.nodes[name].agent.joins.values()), for_ms=60_000
        )
        world.run(for_ms=5_000)


@pytest.fixture
def world() -> World:
    return World(4, 3, Faults(loss=0, duplication=0, delay_ms_max=5), envelope="didcomm/v2")


def test_a_newcomer_and_a_member_need_one_word_behind_the_exchange(world, monkeypatch):
    """A request, an answer, and what the first one has: by then both know that they know the same."""
    group = world.ask("n0", CreateGroup("g", "n0", world.envelope)).result.group
    met(world, group, ["n1"])
    heard: Counter[tuple[str, str]] = Counter()
    hear = dispatch._hear_message

    def counted(turn, name, member, relationship, message: Message, size):
        me = turn.group(name).view.members[turn.group(name).me].label
        heard[me, message.type.rpartition("/")[2]] += 1
        hear(turn, name, member, relationship, message, size)

    monkeypatch.setattr(dispatch, "_hear_message", counted)
    met(world, group, ["n2"])
    assert heard["n1", "sync"] == 1, "what the newcomer has, when it knows what the member has"
    assert heard["n2", "sync"] == 1, "that of the one who let it in; the member's comes with its answer"
    assert world.group("n1").view.checksum == world.group("n2").view.checksum
    for one, other in (("n1", "n2"), ("n2", "n1")):
        peer = world.group(one).peers[world.group(other).me]
        assert peer.view == world.group(one).view.checksum and not peer.greet


def test_what_is_said_before_the_members_word_has_come_is_heard_at_once(world, monkeypatch):
    """Whoever has been answered need not wait for that to say something, where it does not come with the answer."""
    monkeypatch.setattr(pairing, "read_body", lambda message, shape: ResponseBody())
    group = world.ask("n0", CreateGroup("g", "n0", world.envelope)).result.group
    met(world, group, ["n1"])
    send, mute = World._frame, [False]

    def frame(self, name, stimulus):
        if not (mute[0] and name == "n2"):
            send(self, name, stimulus)

    monkeypatch.setattr(World, "_frame", frame)
    invitation = world.ask("n0", CreateInvitation(group, 86_400, 1)).result.invitation
    world.ask("n2", AcceptInvitation(invitation, "n2"))

    def answered() -> bool:
        if group not in world.nodes["n2"].agent.groups:
            return False
        here = world.group("n2")
        return here.peers.get(world.group("n1").me) is not None and here.peers[world.group("n1").me].greet

    assert world.run(answered, for_ms=60_000)
    mute[0] = True  # from here on nothing that the member says arrives
    posted = world.ask("n2", SendPost(group, "at once")).result
    there = world.nodes["n1"]
    assert world.run(lambda: any(one.id == posted.id for one in there.log), for_ms=1_000)


@pytest.mark.parametrize("said", [None, SaidBody("1", {}), SaidBody("2", {"group": "another"})])
def test_an_answer_counts_though_nothing_comes_with_it_or_what_nobody_can_read(world, monkeypatch, said):
    """The newcomer says where it stands all the same."""
    monkeypatch.setattr(pairing, "read_body", lambda message, shape: ResponseBody(said))
    group = world.ask("n0", CreateGroup("g", "n0", world.envelope)).result.group
    met(world, group, ["n1", "n2"])
    for one, other in (("n1", "n2"), ("n2", "n1")):
        there = world.group(other).me
        assert world.group(one).relationships[there].established and not world.group(one).peers[there].greet
        assert world.group(one).peers[there].view == world.group(one).view.checksum
    assert ("dropped Malformed" in world.nodes["n2"].dropped) is (said is not None)


def test_who_asks_again_because_the_answer_was_lost_is_answered(world, monkeypatch):
    """And not passed over, as somebody is who asks again and again: the next time would be seconds later."""
    group = world.ask("n0", CreateGroup("g", "n0", world.envelope)).result.group
    met(world, group, ["n1"])
    member, lost = world.group("n1").me, list[int]()

    def lossy(turn, name, other, envelope):
        if turn.group(name).me == member and not lost:
            lost.append(world.now)
        else:
            mediator_mail.send(turn, name, other, envelope)

    monkeypatch.setattr(pairing, "send", lossy)
    invitation = world.ask("n0", CreateInvitation(group, 86_400, 1)).result.invitation
    world.ask("n2", AcceptInvitation(invitation, "n2"))
    assert world.run(lambda: bool(lost), for_ms=60_000)

    def seated() -> bool:
        return all(one.seated for one in world.nodes["n2"].agent.joins.values())

    assert world.run(seated, for_ms=pairing.MEET_MS + 500)


def test_whoever_is_put_out_by_somebody_who_may_not_any_more_is_heard_in_time():
    """An owner puts an admin out, tells one member of it and is gone; the admin, who does not know, puts that one out,
    which is void, and only it can say why, as long as anybody listens to it."""
    world = Cut(6, Policy(remove="admins", quorum=0, roles="admins"))
    world.bring_in(*list(world.nodes)[1:])
    world.run(for_ms=10_000)
    world.ask("n0", ChangeRole(world.id, world.did("n1"), "admin"))
    world.run(for_ms=20_000)
    admin, witness = world.did("n1"), world.did("n2")
    world.deaf |= {frozenset({"n0", name}) for name in ("n1", "n3", "n4", "n5")} | {frozenset({"n1", "n2"})}
    world.ask("n0", RemoveMember(world.id, admin))

    def view(name: str) -> View:
        return world.nodes[name].agent.groups[world.id].view

    assert world.run(lambda: admin in view("n2").former, for_ms=5_000)
    world.kill("n0")
    world.run(for_ms=300)
    world.ask("n1", RemoveMember(world.id, witness))
    others = ("n3", "n4", "n5")
    assert world.run(
        lambda: all(admin in view(name).former and witness in view(name).members for name in others), for_ms=20_000
    )
