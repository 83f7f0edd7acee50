"""DID rotation in a group, in both envelope formats, without loss."""

import pytest
from msgspec.structs import replace

from tests.support.mediated_world import Behind
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer4, short_form
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols.ack import EMPTY, empty
from zerochat.didcomm.rotation import Prior, from_prior
from zerochat.group.effects import CommandFailed
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import CreateGroup, LeaveGroup, LinkDown, LinkUp, Received, RotateDid
from zerochat.group.links.relationship import pack, pack_end, rotate
from zerochat.group.notifications import DidRotated
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS
from zerochat.sim import Faults

pytestmark = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])


class Rotating(Behind):
    """Three members over links; every frame between them is recorded."""

    def __init__(self, envelope, members=3, keys="pairwise-multi"):
        self.keys = keys
        super().__init__(members, mediators=0, envelope=envelope)
        self.frames, self.lost = [], set()
        self.id = self.everybody()

    def found(self, name="n0"):
        return self.run_command(name, CreateGroup("friends", name, self.envelope, self.keys)).result.group

    def _frame(self, name, stimulus):
        if hasattr(self, "frames"):
            self.frames.append((name, stimulus))
            if name in self.lost:
                return
        super()._frame(name, stimulus)

    def pair(self, one, other):
        """The relationship of one with the other, in the first one's state."""
        return self.group(one).links.relationships[self.group(other).me]

    def rotate(self, one, other):
        return self.run_command(one, RotateDid(f"friends/{other}"))

    def packed(self, relationship, kind=EVENTS, body=None):
        message = Message(type=kind, id=new_id(self.rng.randbytes), body=body or {})
        return pack(relationship, message, PACKERS[self.envelope], self.rng.randbytes)

    def hand(self, to, sender, envelope):
        """Deliver a frame on the link of two members. Returns whether it changed anything."""
        before = self.nodes[to].agent
        self.process(to, Received(self.group(to).links.peers[self.group(sender).me].link, envelope))
        return self.nodes[to].agent != before

    def agree(self, one, other):
        """Both sides know each other's present DID, and that the other knows theirs."""
        mine, theirs = self.pair(one, other), self.pair(other, one)
        assert short_form(mine.theirs) == theirs.mine.short and short_form(theirs.theirs) == mine.mine.short
        assert mine.rotation is None and theirs.rotation is None

    def talk(self, texts=1):
        for number in range(texts):
            for name in self.nodes:
                self.post(self.id, name, f"{name} {number}")
        self.settle()


def test_one_side_rotates(envelope):
    world = Rotating(envelope)
    old = world.pair("n0", "n1").mine
    world.post(world.id, "n0", "just before")
    world.rotate("n0", "n1")
    world.post(world.id, "n0", "just after")
    world.post(world.id, "n1", "from the other side, meanwhile")
    world.settle()
    world.run(for_ms=5_000)
    world.agree("n0", "n1")
    assert world.pair("n0", "n1").mine != old and short_form(world.pair("n1", "n0").theirs) != old.short
    assert [notice.mine for notice in world.news("n0", DidRotated)] == [True]
    assert [notice.mine for notice in world.news("n1", DidRotated)] == [False]
    assert world.news("n2", DidRotated) == [], "nobody else notices"
    world.talk()


def test_both_sides_rotate_at_once(envelope):
    world = Rotating(envelope)
    for round_ in range(4):
        world.rotate("n0", "n1")
        world.rotate("n1", "n0")
        for name in world.nodes:
            world.post(world.id, name, f"{name} in round {round_}")
        world.settle()
        world.run(for_ms=5_000)
        world.agree("n0", "n1")


def test_repeated_rotations_on_lossy_network(envelope):
    world = Rotating(envelope)
    world.faults = Faults(loss=0.3, duplication=0.2, delay_ms_max=400)
    rotated = 0
    for step in range(40):
        one, other = world.rng.sample(list(world.nodes), 2)
        rotated += not isinstance(world.rotate(one, other), CommandFailed)
        world.post(world.id, one, f"word {step}")
        world.run(for_ms=world.rng.randint(0, 1_500))
    assert rotated > 10
    world.settle(for_ms=600_000)
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=5)
    world.talk()
    world.run(for_ms=120_000)
    for one, other in (("n0", "n1"), ("n1", "n2"), ("n0", "n2")):
        world.agree(one, other)


def test_rotation_while_peer_is_offline(envelope):
    world = Rotating(envelope)
    world.lost = {"n1"}
    world.rotate("n0", "n1")
    again = world.rotate("n0", "n1")
    assert isinstance(again, CommandFailed) and again.error.code == "RotationUnderWay"
    world.post(world.id, "n0", "to the one who is away")
    world.post(world.id, "n1", "to the old DID, which nobody has told me is old")
    world.run(for_ms=30_000)
    assert len(world.texts("n1")) == 1 and len(world.texts("n0")) == 2, "the old DID is still heard by its owner"
    world.restart("n0")
    world.lost = set()
    world.settle()
    world.run(for_ms=5_000)
    world.agree("n0", "n1")


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single"])
def test_old_did_is_rejected_after_rotation(envelope, keys):
    world = Rotating(envelope, keys=keys)
    old = world.pair("n0", "n1")
    world.frames.clear()
    world.post(world.id, "n0", "recorded")
    world.settle()
    recorded = [stimulus.envelope for name, stimulus in world.frames if name == "n1"]
    world.rotate("n0", "n1")
    world.run(for_ms=5_000)
    assert recorded
    for envelope_ in (*recorded, world.packed(old), world.packed(replace(old, acknowledged=False))):
        assert not world.hand("n1", "n0", envelope_)
    assert sum(world.nodes["n1"].dropped.values()) == len(recorded) + 2


def test_outdated_or_foreign_rotation_is_rejected(envelope):
    world = Rotating(envelope)
    first = world.pair("n0", "n1")
    for _ in range(2):
        world.rotate("n0", "n1")
        world.run(for_ms=5_000)
    now, present = world.now // 1000, world.pair("n0", "n1")
    stranger = new_peer4(world.rng.randbytes, [])
    mine, theirs = present.mine, world.pair("n1", "n0")
    assert theirs.peer_rotated_at > now - 60

    def word(prior, sub, issued):
        return from_prior(Prior(prior.short, prior.short + "#key-1", prior.signing_seed), sub, issued)

    forged = {
        "by the DID before the present one": word(first.mine, stranger.did, now),
        "issued before the last rotation": word(mine, stranger.did, theirs.peer_rotated_at - 1),
        "for another DID": word(mine, first.mine.did, now),
        "by the new DID itself": word(stranger, mine.did, now),
        "by another member": word(world.pair("n2", "n1").mine, stranger.did, now),
        "for nothing": word(mine, None, now),
        "no JWT": "a.b.c",
    }
    for why, jwt in forged.items():
        other = replace(present, mine=stranger, acknowledged=False, rotation=None)
        message = Message(type=EMPTY, id="1", body={}, from_prior=jwt)
        packer = PACKERS[world.envelope]
        assert not world.hand("n1", "n0", pack(other, message, packer, world.rng.randbytes)), why
    rightly = rotate(present, stranger, now)
    assert world.hand("n1", "n0", world.packed(rightly, EMPTY))
    assert world.pair("n1", "n0").theirs == stranger.did


@pytest.mark.parametrize(("one", "other"), [("n0", "n1"), ("n1", "n0")], ids=["who was asked", "who has asked"])
def test_rotation_to_nothing_ends_relationship(envelope, one, other):
    """n1 joined later, so n1 sends the exchange request."""
    world = Rotating(envelope)
    ending = world.pair(one, other)
    me, link = world.group(one).me, world.group(one).links.peers[world.group(other).me].link
    event = Event(world.id, POST, me, 1, "", (), (), world.now, world.now, {"text": "never said"})
    last = Message(type=EVENTS, id="1", body={"runs": write_runs([event]), "view": "", "have": []})
    packer = PACKERS[world.envelope]
    goodbye = pack_end(ending, last, packer, world.rng.randbytes, world.now // 1000)
    assert world.hand(other, one, goodbye)
    assert me not in world.group(other).links.relationships
    assert not world.texts(other), "the last word says nothing but goodbye"
    assert not world.hand(other, one, world.packed(ending)), "and there is nobody left who could say more"
    node, group = world.nodes[one], world.group(one)
    kept = {did: each for did, each in group.links.relationships.items() if did != world.group(other).me}
    node.agent = replace(node.agent, groups={world.id: replace(group, links=replace(group.links, relationships=kept))})
    world.post(world.id, other, "said in between")
    for name in (one, other):
        world.process(name, LinkDown(link))
        world.process(name, LinkUp(link))
    world.talk()
    world.run(for_ms=5_000)
    world.agree(one, other)
    assert world.pair(other, one).theirs not in (ending.mine.did, ending.mine.short)
    assert not world.hand(other, one, goodbye), "nobody says goodbye twice"


def test_only_peer_can_end_relationship(envelope):
    world = Rotating(envelope)
    here, now = world.pair("n0", "n1"), world.now // 1000
    packer, random = PACKERS[world.envelope], world.rng.randbytes
    stranger = replace(here, mine=world.pair("n2", "n1").mine)
    silent = packer.anoncrypt(
        packer.dump(Message(type=EMPTY, id="1", body={})),
        recipient=packer.their_key(*_theirs(here)),
        random=random,
    )
    for envelope_ in (pack_end(stranger, empty(random), packer, random, now), silent):
        assert not world.hand("n1", "n0", envelope_)
    assert world.hand("n1", "n0", pack_end(here, empty(random), packer, random, now))


def _theirs(relationship):
    from zerochat.didcomm.did import resolve

    return resolve(relationship.theirs), short_form(relationship.theirs)


def test_leaver_ends_its_relationships(envelope):
    world = Rotating(envelope)
    left = world.group("n1").me
    world.run_command("n1", LeaveGroup(world.id))
    world.run(for_ms=2_000)
    assert world.group("n1").state == "left"
    for name in ("n0", "n2"):
        assert (
            left not in world.group(name).links.relationships and world.group(name).links.peers[left].exchange.ended_at
        )
    world.run(for_ms=10_000)
    assert left not in world.group("n0").links.peers
    world.post(world.id, "n0", "we two")
    world.run(for_ms=2_000)
    world.check()


def test_leaver_without_acks_still_leaves_cleanly(envelope):
    """The other member is gone by then, so no acknowledgement would ever come."""
    world = Rotating(envelope, members=2)
    world.run_command("n1", LeaveGroup(world.id))
    world.run(for_ms=100)
    world.lost = {"n1"}
    assert world.group("n1").state == "leaving" or world.group("n1").state == "left"
    world.run(for_ms=4_500)
    world.lost = set()
    world.run(for_ms=3_000)
    assert world.group("n1").state == "left"


def test_pending_rotation_blocks_the_next(envelope):
    """The response is bound to the contact: a second rotation on top could not be verified."""
    world = Behind(2, mediators=0, envelope=envelope)
    world.everybody()
    node, group, me = world.nodes["n0"], world.group("n0"), world.group("n1").me
    early = replace(group.links.relationships[me], acknowledged=False)
    node.agent = replace(
        node.agent, groups={group.id: replace(group, links=replace(group.links, relationships={me: early}))}
    )
    answer = world.run_command("n0", RotateDid("friends/n1"))
    assert isinstance(answer, CommandFailed) and answer.error.code == "NotReady"
