"""DIDs that are replaced in the middle of a group's life, in both kinds of envelopes: nothing is lost by it."""

import pytest
from msgspec.structs import replace

from tests.support.mediated_world import Behind
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer4, short_form
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols import empty
from zerochat.didcomm.rotation import Prior, from_prior
from zerochat.group.effects import Refuse
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import CreateGroup, LeaveGroup, LinkDown, LinkUp, Received, RotateDid
from zerochat.group.links.relationship import farewell, pack, rotate
from zerochat.group.notifications import Rotated
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import EVENTS
from zerochat.sim import Faults

pytestmark = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])


class Rotating(Behind):
    """Three members over links, and every frame between them is kept."""

    def __init__(self, envelope, members=3, keys="pairwise-multi"):
        self.keys = keys
        super().__init__(members, mediators=0, envelope=envelope)
        self.frames, self.lost = [], set()
        self.id = self.everybody()

    def found(self, name="n0"):
        return self.ask(name, CreateGroup("friends", name, self.envelope, self.keys)).result.group

    def _frame(self, name, stimulus):
        if hasattr(self, "frames"):
            self.frames.append((name, stimulus))
            if name in self.lost:
                return
        super()._frame(name, stimulus)

    def pair(self, one, other):
        """The relationship of one with the other, as the one has it."""
        return self.group(one).relationships[self.group(other).me]

    def rotate(self, one, other):
        return self.ask(one, RotateDid(f"friends/{other}"))

    def packed(self, relationship, kind=EVENTS, body=None):
        message = Message(type=kind, id=new_id(self.dice.randbytes), body=body or {})
        return pack(relationship, message, PACKERS[self.envelope], self.dice.randbytes)

    def hand(self, to, sender, envelope):
        """Something comes in over the link of two members. Returns whether it changed anything."""
        before = self.nodes[to].agent
        self.hear(to, Received(self.group(to).peers[self.group(sender).me].link, envelope))
        return self.nodes[to].agent != before

    def agree(self, one, other):
        """Both sides know each other's present DID, and that the other does."""
        mine, theirs = self.pair(one, other), self.pair(other, one)
        assert short_form(mine.theirs) == theirs.mine.short and short_form(theirs.theirs) == mine.mine.short
        assert mine.handover is None and theirs.handover is None

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
    assert [notice.mine for notice in world.news("n0", Rotated)] == [True]
    assert [notice.mine for notice in world.news("n1", Rotated)] == [False]
    assert world.news("n2", Rotated) == [], "nobody else notices"
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


def test_everybody_rotates_again_and_again_on_a_bad_network(envelope):
    world = Rotating(envelope)
    world.faults = Faults(loss=0.3, duplication=0.2, delay_ms_max=400)
    rotated = 0
    for step in range(40):
        one, other = world.dice.sample(list(world.nodes), 2)
        rotated += not isinstance(world.rotate(one, other), Refuse)
        world.post(world.id, one, f"word {step}")
        world.run(for_ms=world.dice.randint(0, 1_500))
    assert rotated > 10
    world.settle(for_ms=600_000)
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=5)
    world.talk()
    world.run(for_ms=120_000)
    for one, other in (("n0", "n1"), ("n1", "n2"), ("n0", "n2")):
        world.agree(one, other)


def test_a_rotation_while_the_peer_is_away(envelope):
    world = Rotating(envelope)
    world.lost = {"n1"}
    world.rotate("n0", "n1")
    again = world.rotate("n0", "n1")
    assert isinstance(again, Refuse) and again.error.code == "RotationUnderWay"
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
def test_nobody_hears_the_old_did_any_more(envelope, keys):
    world = Rotating(envelope, keys=keys)
    old = world.pair("n0", "n1")
    world.frames.clear()
    world.post(world.id, "n0", "recorded")
    world.settle()
    recorded = [stimulus.envelope for name, stimulus in world.frames if name == "n1"]
    world.rotate("n0", "n1")
    world.run(for_ms=5_000)
    assert recorded
    for envelope_ in (*recorded, world.packed(old), world.packed(replace(old, greeted=False))):
        assert not world.hand("n1", "n0", envelope_)
    assert sum(world.nodes["n1"].dropped.values()) == len(recorded) + 2


def test_an_old_or_foreign_word_for_a_new_did_is_no_word(envelope):
    world = Rotating(envelope)
    first = world.pair("n0", "n1")
    for _ in range(2):
        world.rotate("n0", "n1")
        world.run(for_ms=5_000)
    now, present = world.now // 1000, world.pair("n0", "n1")
    stranger = new_peer4(world.dice.randbytes, [])
    mine, theirs = present.mine, world.pair("n1", "n0")
    assert theirs.rotated > now - 60

    def word(prior, sub, issued):
        return from_prior(Prior(prior.short, prior.short + "#key-1", prior.signing_seed), sub, issued)

    forged = {
        "by the DID before the present one": word(first.mine, stranger.did, now),
        "issued before the last rotation": word(mine, stranger.did, theirs.rotated - 1),
        "for another DID": word(mine, first.mine.did, now),
        "by the new DID itself": word(stranger, mine.did, now),
        "by another member": word(world.pair("n2", "n1").mine, stranger.did, now),
        "for nothing": word(mine, None, now),
        "no JWT": "a.b.c",
    }
    for why, jwt in forged.items():
        other = replace(present, mine=stranger, greeted=False, handover=None)
        message = Message(type=empty.EMPTY, id="1", body={}, from_prior=jwt)
        packer = PACKERS[world.envelope]
        assert not world.hand("n1", "n0", pack(other, message, packer, world.dice.randbytes)), why
    rightly = rotate(present, stranger, now)
    assert world.hand("n1", "n0", world.packed(rightly, empty.EMPTY))
    assert world.pair("n1", "n0").theirs == stranger.did


@pytest.mark.parametrize(("one", "other"), [("n0", "n1"), ("n1", "n0")], ids=["who was asked", "who has asked"])
def test_a_rotation_to_nothing_ends_it_and_a_later_link_begins_anew(envelope, one, other):
    """n1 has joined later, so it is n1 who asks for an exchange."""
    world = Rotating(envelope)
    ending = world.pair(one, other)
    me, link = world.group(one).me, world.group(one).peers[world.group(other).me].link
    event = Event(world.id, POST, me, 1, "", (), (), world.now, world.now, {"text": "never said"})
    last = Message(type=EVENTS, id="1", body={"runs": write_runs([event]), "view": "", "have": []})
    packer = PACKERS[world.envelope]
    goodbye = farewell(ending, last, packer, world.dice.randbytes, world.now // 1000)
    assert world.hand(other, one, goodbye)
    assert me not in world.group(other).relationships
    assert not world.texts(other), "the last word says nothing but goodbye"
    assert not world.hand(other, one, world.packed(ending)), "and there is nobody left who could say more"
    node, group = world.nodes[one], world.group(one)
    kept = {did: each for did, each in group.relationships.items() if did != world.group(other).me}
    node.agent = replace(node.agent, groups={world.id: replace(group, relationships=kept)})
    world.post(world.id, other, "said in between")
    for name in (one, other):
        world.hear(name, LinkDown(link))
        world.hear(name, LinkUp(link))
    world.talk()
    world.run(for_ms=5_000)
    world.agree(one, other)
    assert world.pair(other, one).theirs not in (ending.mine.did, ending.mine.short)
    assert not world.hand(other, one, goodbye), "nobody says goodbye twice"


def test_only_the_peer_itself_can_end_it(envelope):
    world = Rotating(envelope)
    here, now = world.pair("n0", "n1"), world.now // 1000
    packer, random = PACKERS[world.envelope], world.dice.randbytes
    stranger = replace(here, mine=world.pair("n2", "n1").mine)
    silent = packer.anoncrypt(
        packer.dump(Message(type=empty.EMPTY, id="1", body={})),
        recipient=packer.their_key(*_theirs(here)),
        random=random,
    )
    for envelope_ in (farewell(stranger, empty.empty(random), packer, random, now), silent):
        assert not world.hand("n1", "n0", envelope_)
    assert world.hand("n1", "n0", farewell(here, empty.empty(random), packer, random, now))


def _theirs(relationship):
    from zerochat.didcomm.did import resolve

    return resolve(relationship.theirs), short_form(relationship.theirs)


def test_whoever_leaves_ends_its_relationships(envelope):
    world = Rotating(envelope)
    left = world.group("n1").me
    world.ask("n1", LeaveGroup(world.id))
    world.run(for_ms=2_000)
    assert world.group("n1").state == "left"
    for name in ("n0", "n2"):
        assert left not in world.group(name).relationships and world.group(name).peers[left].ended
    world.run(for_ms=10_000)
    assert left not in world.group("n0").peers
    world.post(world.id, "n0", "we two")
    world.run(for_ms=2_000)
    world.check()


def test_a_leaver_whose_acknowledgements_are_lost_hears_the_goodbye(envelope):
    """The other one is gone by then, so nobody would ever acknowledge that it has left."""
    world = Rotating(envelope, members=2)
    world.ask("n1", LeaveGroup(world.id))
    world.run(for_ms=100)
    world.lost = {"n1"}
    assert world.group("n1").state == "leaving" or world.group("n1").state == "left"
    world.run(for_ms=4_500)
    world.lost = set()
    world.run(for_ms=3_000)
    assert world.group("n1").state == "left"


def test_a_did_that_the_peer_does_not_know_yet_is_not_replaced(envelope):
    """The answer to an exchange is bound to the contact: a second DID on top of it could never be understood."""
    world = Behind(2, mediators=0, envelope=envelope)
    world.everybody()
    node, group, me = world.nodes["n0"], world.group("n0"), world.group("n1").me
    early = replace(group.relationships[me], greeted=False)
    node.agent = replace(node.agent, groups={group.id: replace(group, relationships={me: early})})
    answer = world.ask("n0", RotateDid("friends/n1"))
    assert isinstance(answer, Refuse) and answer.error.code == "NotReady"
