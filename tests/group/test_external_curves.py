"""Agents of other vendors without X25519 or Ed25519: the NIST curves, ES256 and ES256K."""

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE, Two, invitation
from zerochat.crypto.keys import new_secret, public_of
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import peer2, resolve, same_did
from zerochat.didcomm.packer import OwnKey, TheirKey
from zerochat.didcomm.protocols import oob_write, ping
from zerochat.didcomm.protocols.basic import basic
from zerochat.didcomm.rotation import Prior, from_prior, verify_from_prior
from zerochat.group.inputs import AcceptConnection, OfferConnection, PingPeer, RotateDid, SendBasicMessage, WebReceived
from zerochat.group.notifications import BasicMessageReceived, Pong

PACKER = PACKERS["didcomm/v2"]
SERVICE = {"type": "DIDCommMessaging", "serviceEndpoint": [{"uri": ALICE, "accept": ["didcomm/v2"]}]}
CURVES = pytest.mark.parametrize("curve", ["P-256", "P-384", "P-521"])
KINDS = [("P-256", "Ed25519"), ("P-384", "P-256"), ("P-521", "secp256k1"), ("X25519", "P-256"), ("X25519", "secp256k1")]


class Foreign:
    """One DID of an agent with one key of each use, of these kinds."""

    def __init__(self, two, agreement, signing):
        self.agreement, self.signing = (new_secret(kind, two.rng.randbytes) for kind in (agreement, signing))
        self.did = peer2([public_of(self.signing)], [public_of(self.agreement)], [SERVICE])
        self.two = two

    def open(self, envelope):
        """The message in an envelope, and the DID of its sender."""
        unpacked = PACKER.unpack(
            envelope,
            secret_of=lambda kid: self.agreement if kid == self.did + "#key-2" else None,
            public_of=lambda kid: resolve(self.two.one("bob").relationship.mine.did).agreement_key(kid),
        )
        message = PACKER.parse(unpacked.plain)
        return message, unpacked.sender_kid.partition("#")[0]

    def seal(self, message, recipient):
        """The message to the first key of the recipient's DID that is of our curve."""
        mine = self.two.one("bob").relationship.mine.did
        recipient = mine if same_did(recipient, mine) else recipient
        keys = resolve(recipient).agreement
        kid, key = next((each.kid, each.key) for each in keys if each.key.kind == self.agreement.kind)
        message = replace(message, from_=self.did, to=(recipient,))
        sender = OwnKey(self.did + "#key-2", self.agreement)
        random = self.two.rng.randbytes
        return PACKER.authcrypt(PACKER.dump(message), sender=sender, recipient=TheirKey(kid, key), random=random)

    def hands_over(self, new):
        prior = Prior(self.did, self.did + "#key-1", self.signing.data, self.signing.kind)
        return from_prior(prior, new.did, self.two.now // 1000)


class World(Two):
    """Bob is ours; Alice is the foreign agent, whose envelopes the test opens."""

    def __init__(self):
        super().__init__()
        self.at[ALICE] = "foreign"
        self.received = []

    def process(self, name, stimulus):
        if name != "foreign":
            return super().process(name, stimulus)
        self.received.append(stimulus.envelope)
        return None

    def converse(self, foreign):
        """A message in each direction."""
        mine = self.one("bob").relationship.mine.did
        self.process("bob", WebReceived(foreign.seal(basic("from them", 1, self.rng.randbytes), mine)))
        assert [told.text for told in self.news("bob", BasicMessageReceived)][-1] == "from them"
        self.ask("bob", SendBasicMessage(self.one("bob").id, "from us"))
        message, sender = foreign.open(self.received[-1])
        assert message.body["content"] == "from us" and same_did(sender, self.one("bob").relationship.mine.did)


@pytest.mark.parametrize(("agreement", "signing"), KINDS)
def test_we_accept_an_invitation(agreement, signing):
    two = World()
    public, private = Foreign(two, agreement, signing), Foreign(two, agreement, signing)
    link = oob_write.link(ALICE, oob_write.invitation(public.did, two.rng.randbytes))
    two.ask("bob", AcceptConnection(invitation(link), "them"))
    first, sender = public.open(two.received[0])
    assert ping.is_ping(first) and same_did(sender, two.one("bob").relationship.mine.did)
    answered = ping.answer(first, two.rng.randbytes)
    assert answered is not None
    answer = replace(answered, from_prior=public.hands_over(private))
    two.process("bob", WebReceived(private.seal(answer, sender)))
    assert two.one("bob").state == "established" and two.one("bob").relationship.theirs == private.did
    two.converse(private)
    pinged = two.ask("bob", PingPeer(two.one("bob").id))
    asked, sender = private.open(two.received[-1])
    two.process("bob", WebReceived(private.seal(ping.answer(asked, two.rng.randbytes), sender)))
    pong = two.news("bob", Pong)[-1]
    assert pong.thread == pinged.thread and pong.their_key == private.did + "#key-2"
    assert resolve(two.one("bob").relationship.mine.did).agreement_key(pong.my_key).kind == agreement


@CURVES
def test_they_accept_ours(curve):
    two = World()
    offered = two.ask("bob", OfferConnection("didcomm/v2", "Bob", 3600, "them", curve))
    public, foreign = two.one("bob").relationship.mine.did, Foreign(two, curve, "P-256")
    assert [method.key.kind for method in resolve(public).agreement] == ["X25519", curve]
    first = replace(ping.ping(two.rng.randbytes), pthid=invitation(offered.url).id)
    two.process("bob", WebReceived(foreign.seal(first, public)))
    assert two.one("bob").state == "established"
    answer, sender = foreign.open(two.received[0])
    assert ping.is_response(answer, first.id) and not same_did(sender, public)
    mine = two.one("bob").relationship.mine.did
    assert verify_from_prior(answer.from_prior, resolve(public), mine).new_did == mine
    two.converse(foreign)
    two.ask("bob", RotateDid(two.one("bob").id))
    two.converse(foreign)


@pytest.mark.parametrize("curve", ["X25519", "P-384"])
def test_our_did_follows_a_rotation_to_another_curve(curve):
    two = World()
    foreign = Foreign(two, "P-256", "Ed25519")
    link = oob_write.link(ALICE, oob_write.invitation(foreign.did, two.rng.randbytes))
    two.ask("bob", AcceptConnection(invitation(link), "them"))
    first, sender = foreign.open(two.received[0])
    two.process("bob", WebReceived(foreign.seal(ping.answer(first, two.rng.randbytes), sender)))
    # to follow, they must still reach our present DID: with a key that both have
    other = Foreign(two, curve, "Ed25519")
    moved = replace(basic("moved", 1, two.rng.randbytes), from_prior=foreign.hands_over(other))
    if curve == "X25519":
        two.process("bob", WebReceived(other.seal(moved, sender)))
        two.converse(other)
    else:
        with pytest.raises(StopIteration):
            other.seal(moved, sender)
