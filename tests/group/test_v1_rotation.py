"""DID Rotate 1.0 (RFC 0794) on external connections: the prior DID counts until the acknowledgement has come."""

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE, Two
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer4, short_form
from zerochat.didcomm.protocols import rotate as did_rotate
from zerochat.didcomm.protocols.basic import basic
from zerochat.errors import Unauthentic
from zerochat.group.external.connections import did_services
from zerochat.group.inputs import RotateDid, SendBasicMessage, StepContext, WebReceived
from zerochat.group.links.relationship import pack, unpack
from zerochat.group.notifications import BasicMessageReceived, ConnectionChanged
from zerochat.group.transaction import Transaction

PACKER = PACKERS["didcomm/v1"]


class Rotating(Two):
    """Alice is an agent of another vendor, which the test speaks for: she rotates as RFC 0794 says."""

    def __init__(self):
        super().__init__()
        self.connect("didcomm/v1")
        self.old = self.one("alice").relationship
        tx = Transaction(self.agents["alice"], StepContext(self.now, self.rng.randbytes), PACKERS)
        self.new = replace(
            self.old, mine=new_peer4(self.rng.randbytes, did_services(tx, "didcomm/v1")), acknowledged=False
        )
        self.received = []
        self.at[ALICE] = "stranger"

    def process(self, name, stimulus):
        if name == "stranger":
            self.received.append(stimulus.envelope)
            return None
        return super().process(name, stimulus)

    def say(self, relationship, message):
        """Bob gets a message under this DID of Alice's; the envelopes that he answers with."""
        self.received.clear()
        self.process("bob", WebReceived(pack(relationship, message, PACKER, self.rng.randbytes, named=False)))
        return list(self.received)

    def rotate(self, to=""):
        announcement = did_rotate.rotate(to or self.new.mine.did, self.rng.randbytes)
        return announcement, self.say(self.old, announcement)

    def texts(self):
        return [told.text for told in self.news("bob", BasicMessageReceived)]


def text(two, words):
    return basic(words, two.now // 1000, two.rng.randbytes, "didcomm/v1")


def test_the_acknowledgement_goes_to_the_prior_did():
    two = Rotating()
    announcement, (answer,) = two.rotate()
    _, ack = unpack(two.old, answer, PACKER)
    assert did_rotate.is_ack(ack) and ack.thid == announcement.id
    with pytest.raises(Unauthentic):
        unpack(two.new, answer, PACKER)


def test_later_messages_go_to_the_new_did_and_come_from_it():
    two = Rotating()
    two.rotate()
    two.say(two.new, text(two, "from the new one"))
    two.received.clear()
    two.ask("bob", SendBasicMessage(two.one("bob").id, "to the new one"))
    assert unpack(two.new, two.received[0], PACKER)[1].body["content"] == "to the new one"
    assert two.texts() == ["from the new one"]


def test_the_prior_did_sends_until_the_new_one_does():
    two = Rotating()
    _, first = two.rotate()
    assert two.say(two.old, text(two, "on its way")) == [] and two.texts() == ["on its way"]
    _, again = two.rotate()
    for (answer,) in (first, again):
        assert did_rotate.is_ack(unpack(two.old, answer, PACKER)[1]), "the acknowledgement may have been lost"
    two.say(two.new, text(two, "new"))
    two.say(two.old, text(two, "too late"))
    assert two.texts() == ["on its way", "new"]


@pytest.mark.parametrize(
    ("did", "code"), [("did:web:example.org", "e.did.method_unsupported"), ("did:peer:4zQm", "e.did.doc_unsupported")]
)
def test_an_unusable_new_did_is_refused_with_a_report(did, code):
    two = Rotating()
    before = two.one("bob").relationship.theirs
    announcement, (answer,) = two.rotate(did)
    _, report = unpack(two.old, answer, PACKER)
    assert (report.type, report.pthid) == (did_rotate.PROBLEM, announcement.id)
    assert report.body["description"]["code"] == code and two.one("bob").relationship.theirs == before
    two.say(two.old, text(two, "then not"))
    assert two.texts() == ["then not"]


def pending(two, name="bob"):
    two.ask(name, RotateDid(two.one(name).id))
    found = two.one(name).relationship.rotation
    assert found is not None
    return found


def test_our_prior_did_sends_until_the_acknowledgement():
    two = Rotating()
    old = two.one("bob").relationship.mine
    rotation = pending(two)
    two.received.clear()
    two.ask("bob", SendBasicMessage(two.one("bob").id, "still the old one"))
    assert unpack(two.old, two.received[0], PACKER)[1].body["content"] == "still the old one"
    announced = replace(did_rotate.ack(text(two, ""), two.rng.randbytes), thid="another")
    two.say(two.old, announced)
    assert two.one("bob").relationship.rotation is not None, "the acknowledgement of another rotation"
    two.say(two.old, replace(announced, thid=rotation.thread))
    assert two.one("bob").relationship.rotation is None and two.one("bob").relationship.mine.did != old.did
    moved = replace(two.old, theirs=two.one("bob").relationship.mine.did)
    two.received.clear()
    two.ask("bob", SendBasicMessage(two.one("bob").id, "the new one"))
    assert unpack(moved, two.received[0], PACKER)[1].body["content"] == "the new one"
    with pytest.raises(Unauthentic):
        unpack(two.old, two.received[0], PACKER)


def test_a_refused_rotation_is_taken_back():
    two = Rotating()
    old = two.one("bob").relationship.mine
    rotation = pending(two)
    refusal = did_rotate.refuse(replace(text(two, ""), id=rotation.thread), "did:x:y", two.rng.randbytes)
    two.say(two.old, refusal)
    assert two.one("bob").relationship.mine == old and two.one("bob").relationship.rotation is None
    assert "old one stays" in two.news("bob", ConnectionChanged)[-1].text
    assert short_form(two.one("bob").relationship.mine.did) == old.short
