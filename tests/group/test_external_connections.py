"""External connections between two cores that post to each other."""

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE, BOB, Two, invitation
from zerochat.crypto.keys import SecretKey, new_secret, public_of
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import new_peer2, new_peer4, peer2, resolve, short_form
from zerochat.didcomm.layers import seal_layers
from zerochat.didcomm.packer import OwnKey
from zerochat.didcomm.protocols import oob_write, ping
from zerochat.didcomm.protocols.basic import basic
from zerochat.didcomm.service import Route
from zerochat.group.did_rotation import NotReady, RotationUnderWay
from zerochat.group.effects import WebPost
from zerochat.group.external import sending
from zerochat.group.external.connections import AlreadyConnected, CannotConnect, NoAddress, OwnInvitation
from zerochat.group.external.standard_protocols import MESSAGES_MAX
from zerochat.group.inputs import (
    AcceptConnection,
    EndConnection,
    OfferConnection,
    PingPeer,
    QueryFeatures,
    RotateDid,
    SendBasicMessage,
    StepContext,
    TimerFired,
    WebPostFailed,
    WebReceived,
)
from zerochat.group.links.relationship import pack, rotate
from zerochat.group.lookup import UnknownPeer, find_peer
from zerochat.group.notifications import BasicMessageReceived, ConnectionChanged, FeaturesDisclosed, Pong
from zerochat.group.state import PeerRef
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
@pytest.mark.parametrize("web", [(BOB,), ()], ids=["reachable", "only dials out"])
class TestConnecting:
    def test_invitation_leads_to_connection(self, envelope, web):
        two = Two(bob=web)
        two.connect(envelope)
        alice, bob = two.one("alice"), two.one("bob")
        assert alice.state == bob.state == "established"
        assert short_form(alice.relationship.theirs) == bob.relationship.mine.short
        assert short_form(bob.relationship.theirs) == alice.relationship.mine.short
        assert alice.relationship.mine.did != alice.relationship.invited_by, "the invitation's DID is rotated away"
        assert two.news("alice", ConnectionChanged) and two.news("bob", ConnectionChanged)

    def test_ping_query_and_message(self, envelope, web):
        two = Two(bob=web)
        two.connect(envelope)
        name = two.one("bob").label
        ping = two.ask("bob", PingPeer(name))
        pong = next(notice for notice in two.news("bob", Pong) if notice.thread == ping.thread)
        assert pong.transport == "web" and pong.rtt_ms == 0 and pong.envelope.startswith(envelope)
        asked = two.ask("bob", QueryFeatures(name, "https://didcomm.org/*"))
        (disclosed,) = two.news("bob", FeaturesDisclosed)
        assert disclosed.thread == asked.thread
        listed = {feature for _, feature in disclosed.features}
        assert any("ping" in feature for feature in listed)
        assert not any("zerochat.org/group" in feature for feature in listed), "a stranger need not know"
        two.ask("bob", SendBasicMessage(name, "hello"))
        assert [told.text for told in two.news("alice", BasicMessageReceived)] == ["hello"]
        assert [(letter.mine, letter.text) for letter in two.one("alice").messages] == [(False, "hello")]
        assert [(letter.mine, letter.text) for letter in two.one("bob").messages] == [(True, "hello")]

    def test_nothing_is_sent_in_clear(self, envelope, web):
        two = Two(bob=web)
        two.connect(envelope)
        two.ask("bob", SendBasicMessage(two.one("bob").label, "a secret word"))
        assert two.sent and not any(b"a secret word" in sent or b"trust" in sent for sent in two.sent)


def test_peers_cannot_name_near_addresses():
    """The peer's DID names any URI; where the peer's invitation was accepted, its own host counts."""
    two = Two()
    two.connect()
    for name, uri, counts in (
        ("alice", "http://127.0.0.1:8080/", False),
        ("alice", "http://10.0.0.9/", True),
        ("alice", "http://mediator.example/?do=it", False),
        ("bob", "http://127.0.0.1:8080/", False),
        ("bob", ALICE + "elsewhere", True),
    ):
        service = {"id": "#d", "type": "DIDCommMessaging", "serviceEndpoint": [{"uri": uri, "accept": ["didcomm/v2"]}]}
        tx = Transaction(two.agents[name], StepContext(two.now, two.rng.randbytes), PACKERS)
        theirs = new_peer4(two.rng.randbytes, [service]).did
        one = replace(two.one(name), relationship=replace(two.one(name).relationship, theirs=theirs), route=None)
        if name == "bob":
            one = replace(one, route=Route(ALICE, (), (), "final"))
        tx.update_agent(connections={one.id: one})
        sending.send(tx, one.id, ping.ping(two.rng.randbytes), by_user=True) if counts or one.route else None
        posted = [effect.uri for effect in tx.effects if isinstance(effect, WebPost)]
        assert (uri in posted) == counts, (name, uri)
        assert sending.reachable(tx, one.id) == bool(counts or one.route)


def test_a_further_host_of_an_invitation_is_none_that_the_user_chose():
    """An inviter could hide a near host, or that of a third party, behind its own."""
    spare = "http://127.0.0.1:9/"
    two = Two(alice=(ALICE, spare))
    two.connect()
    assert [route.uri for route in two.one("bob").spare] == [spare]

    def posts(*, by_user=True):
        tx = Transaction(two.agents["bob"], StepContext(two.now, two.rng.randbytes), PACKERS)
        sending.send(tx, two.one("bob").id, ping.ping(two.rng.randbytes), by_user=by_user)
        return [(effect.uri, effect.nearest) for effect in tx.effects if isinstance(effect, WebPost)]

    assert posts() == [(ALICE, AddressKind.LOOPBACK)]
    one = replace(two.one("bob"), credit=0)
    two.agents["bob"] = replace(two.agents["bob"], connections={one.id: one})
    assert posts(by_user=False)
    two.process("bob", WebPostFailed(ALICE))
    assert posts() == [(spare, AddressKind.PRIVATE)] and not posts(by_user=False)


def test_a_host_that_a_peer_names_gets_answers_of_twice_what_came():
    """Of the user it gets everything; of the peer's requests it has not asked for."""
    two = Two(bob=(BOB,))
    two.connect()
    (pinged,) = two.agents["alice"].connections.values()
    received, posted = 0, 0

    def answer(*, by_user=False):
        tx = Transaction(two.agents["alice"], StepContext(two.now, two.rng.randbytes), PACKERS)
        sending.send(tx, pinged.id, ping.ping(two.rng.randbytes), by_user=by_user)
        two.agents["alice"] = tx.agent
        return sum(len(effect.envelope) for effect in tx.effects if isinstance(effect, WebPost))

    for _ in range(50):
        posted += answer()
    assert posted <= pinged.credit <= sending.ANSWERS_MAX and not answer()
    for number in range(50):
        mark = len(two.sent)
        two.ask("bob", SendBasicMessage(two.one("bob").label, f"message {number} " + "x" * 500))
        received += len(two.sent[mark])
        posted += sum(map(len, two.sent[mark + 1 :])) + sum(answer() for _ in range(10))
    assert received < posted <= pinged.credit + 2 * received
    assert answer(by_user=True)


def test_invitation_is_for_one_peer():
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))
    with pytest.raises(OwnInvitation):
        two.ask("alice", AcceptConnection(invitation(offered.url), ""))
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    with pytest.raises(AlreadyConnected):
        two.ask("bob", AcceptConnection(invitation(offered.url), "alice again"))
    before = two.one("alice")
    two.agents["bob"] = replace(two.agents["bob"], connections={})
    two.ask("bob", AcceptConnection(invitation(offered.url), "somebody else"))
    assert two.one("alice") == before


def test_connection_labels_have_no_invisible_characters():
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))
    two.ask("bob", AcceptConnection(invitation(offered.url), "\u2068Ali\u200ece\u2069"))
    assert two.one("bob").label == "Alice"


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_invitation_may_name_the_connection(envelope):
    two = Two()
    offered = two.ask("alice", OfferConnection(envelope, "Alice", 3600, "the arc\u200ehive"))
    assert two.one("alice").label == "the archive"
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    assert two.one("alice").label == "the archive" and two.one("alice").state == "established"


def test_an_invitation_may_be_signed():
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600, signed=True))
    found = invitation(offered.url)
    assert found.signed
    two.ask("bob", AcceptConnection(found, "alice"))
    assert two.one("alice").state == two.one("bob").state == "established"


def test_unanswered_invitation_is_deleted():
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))
    two.now += 3_600_000
    two.process("alice", TimerFired(f"{TimerKind.CONNECTION_INVITATION} {offered.connection}"))
    assert not two.agents["alice"].connections


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_both_sides_rotate(envelope):
    two = Two()
    two.connect(envelope)
    for name, other in (("bob", "alice"), ("alice", "bob"), ("bob", "alice")):
        old = two.one(name).relationship.mine.short
        two.ask(name, RotateDid(two.one(name).id))
        assert two.one(name).relationship.mine.short != old
        assert short_form(two.one(other).relationship.theirs) == two.one(name).relationship.mine.short
        assert two.one(name).relationship.rotation is None, "the other side has answered to the new DID"
        two.ask(other, SendBasicMessage(two.one(other).id, f"still here, {name}"))
        assert two.news(name, BasicMessageReceived)[-1].text == f"still here, {name}"


def test_pending_rotation_blocks_the_next():
    two = Two()
    two.connect()
    two.down = {ALICE}
    two.ask("bob", RotateDid(two.one("bob").id))
    with pytest.raises(RotationUnderWay):
        two.ask("bob", RotateDid(two.one("bob").id))


def test_old_did_is_rejected():
    two = Two()
    two.connect()
    two.ask("bob", SendBasicMessage(two.one("bob").id, "before"))
    recorded = two.sent[-1]
    two.ask("bob", RotateDid(two.one("bob").id))
    before, told = two.agents["alice"], len(two.told["alice"])
    two.process("alice", WebReceived(recorded))
    assert two.agents["alice"] == before and len(two.told["alice"]) == told


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_rotation_to_nothing_ends_connection(envelope):
    two = Two()
    two.connect(envelope)
    two.ask("bob", EndConnection(two.one("bob").id))
    assert not two.agents["bob"].connections
    assert two.one("alice").state == "ended" and "ended" in two.news("alice", ConnectionChanged)[-1].text
    with pytest.raises(NotReady):
        two.ask("alice", SendBasicMessage(two.one("alice").id, "are you there?"))


def test_junk_and_foreign_mail_change_nothing():
    two = Two()
    two.connect()
    two.ask("bob", SendBasicMessage(two.one("bob").id, "hello"))
    envelope = two.sent[-1]
    before = two.agents["alice"]
    for junk in (b"", b"{}", b"[]", b"\xff" * 40, envelope[:-1], envelope[:200] + b"AAAA" + envelope[204:]):
        two.process("alice", WebReceived(junk, 3))
        assert two.agents["alice"] == before


def test_invitation_needs_an_address():
    two = Two(alice=())
    with pytest.raises(NoAddress):
        two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))


def test_invitation_without_route_is_rejected():
    two = Two()
    offered = invitation(two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600)).url)
    stranger = replace(offered.inviters[0], did="did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK")
    with pytest.raises(CannotConnect):
        two.ask("bob", AcceptConnection(replace(offered, inviters=(stranger,)), "x"))


def sealed(two, form, message, mine, theirs):
    """The message from Bob's identity to Alice's, in these layers."""
    packer = PACKERS["didcomm/v2"]
    message = replace(message, from_=mine.did, to=(theirs.did,))
    signer = OwnKey(mine.did + "#key-1", SecretKey("Ed25519", mine.signing_seed))
    sender, recipient = packer.own_key(mine, mine.did), packer.their_key(resolve(theirs.did), theirs.did)
    if form == "auth(sign)":
        plain = jws.sign(packer.dump(message), [(signer.kid, signer.key)])
        return packer.authcrypt(plain, sender=sender, recipient=recipient, random=two.rng.randbytes)
    return seal_layers(
        message,
        sender=sender if form == "anon(auth)" else None,
        signer=None if form == "anon(auth)" else signer,
        recipient=None if form == "sign" else recipient,
        protect_sender=form == "anon(auth)",
        random=two.rng.randbytes,
    )


FORMS = pytest.mark.parametrize("form", ["auth(sign)", "anon(auth)", "anon(sign)", "sign"])


@FORMS
def test_first_contact_may_have_other_protections(form):
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))
    bob, inviter = new_peer4(two.rng.randbytes, []), two.one("alice").relationship.mine
    message = replace(ping.ping(two.rng.randbytes), pthid=invitation(offered.url).id)
    two.process("alice", WebReceived(sealed(two, form, message, bob, inviter)))
    assert two.one("alice").state == ("offered" if form == "sign" else "established")
    assert two.one("alice").relationship.theirs == ("" if form == "sign" else bob.did)


def test_a_signature_of_another_than_the_sender_is_refused():
    two = Two()
    two.connect()
    mine, theirs, packer = two.one("bob").relationship.mine, two.one("alice").relationship.mine, PACKERS["didcomm/v2"]
    other = new_peer4(two.rng.randbytes, [])
    for author, signer in ((mine, other), (other, other)):
        message = replace(basic("forged", 1, two.rng.randbytes), from_=author.did, to=(theirs.did,))
        plain = jws.sign(packer.dump(message), [(signer.did + "#key-1", SecretKey("Ed25519", signer.signing_seed))])
        sender, recipient = packer.own_key(mine, mine.did), packer.their_key(resolve(theirs.did), theirs.did)
        envelope = packer.authcrypt(plain, sender=sender, recipient=recipient, random=two.rng.randbytes)
        two.process("alice", WebReceived(envelope))
    assert not two.news("alice", BasicMessageReceived)


@FORMS
def test_other_protections_are_accepted(form):
    two = Two()
    two.connect()
    mine = two.one("bob").relationship.mine
    theirs = two.one("alice").relationship.mine
    message = basic("wrapped", two.now // 1000, two.rng.randbytes)
    two.process("alice", WebReceived(sealed(two, form, message, mine, theirs)))
    heard = [told.text for told in two.news("alice", BasicMessageReceived)]
    assert heard == ([] if form == "sign" else ["wrapped"]), "what is not encrypted is not for anybody"


def test_id_is_unambiguous():
    two = Two()
    two.connect()
    mine = two.one("bob")
    impostor = replace(mine, id="x" * 12, label=mine.id)
    agent = replace(two.agents["bob"], connections={mine.id: mine, impostor.id: impostor})
    assert find_peer(agent, mine.id) == PeerRef(connection=mine.id)
    slashed = replace(impostor, label="a/b")
    assert find_peer(replace(agent, connections={slashed.id: slashed}), "a/b") == PeerRef(connection=slashed.id)
    nameless = replace(mine, label="")
    with pytest.raises(UnknownPeer):
        find_peer(replace(agent, connections={nameless.id: nameless}), "")


def test_mediator_needs_websocket_and_v2():
    two = Two()
    for envelope in ("didcomm/v2", "didcomm/v1"):
        offered = two.ask("alice", OfferConnection(envelope, "Alice", 3600))
        with pytest.raises(CannotConnect):
            two.ask("bob", AcceptConnection(invitation(offered.url), "", mediate=True))


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
def test_attachments_are_said_to_be_there(envelope):
    two = Two()
    two.connect(envelope)
    attachments = (
        Attachment(filename="plan.pdf", media_type="application/pdf", base64="AAAA"),
        Attachment(media_type="image/png", links=("https://example.org/x",), hash="QmX"),
        Attachment(description="y" * 1000, json={"a": 1}),
        Attachment(json=1),
    )
    packer, named = PACKERS[envelope], envelope == "didcomm/v2"
    sent = basic("see", two.now // 1000, two.rng.randbytes, "didcomm/v2" if named else "didcomm/v1")
    message = replace(sent, attachments=attachments)
    envelope_ = pack(two.one("bob").relationship, message, packer, two.rng.randbytes, named=named)
    two.process("alice", WebReceived(envelope_))
    (told,) = two.news("alice", BasicMessageReceived)
    assert (told.text, told.attachments[:2], told.attachments[3]) == ("see", ("plan.pdf", "image/png"), "")
    assert set(told.attachments[2]) == {"y"} and len(told.attachments[2]) <= 256
    assert two.one("alice").messages[0].attachments == told.attachments


def test_messages_are_deduplicated_and_limited():
    two = Two()
    two.connect()
    two.ask("bob", SendBasicMessage(two.one("bob").id, "once"))
    two.process("alice", WebReceived(two.sent[-1]))
    assert [letter.text for letter in two.one("alice").messages] == ["once"]
    for number in range(MESSAGES_MAX + 5):
        two.ask("bob", SendBasicMessage(two.one("bob").id, f"{number}"))
    assert len(two.one("alice").messages) == len(two.one("bob").messages) == MESSAGES_MAX
    assert two.one("alice").messages[-1].text == f"{MESSAGES_MAX + 4}"
    for _ in range(10):
        two.ask("bob", SendBasicMessage(two.one("bob").id, "x" * 60_000))
    assert sum(len(letter.text) for letter in two.one("alice").messages) <= 256 * 1024


# --- hostile peers --------------------------------------------------------------------------------------------------

BAD_KEYS = [["did:key:zgarbage"], ["x"], ["did:web:example.org"] * 3]


def _service(**fields):
    return {
        "id": "#x",
        "type": "DIDCommMessaging",
        "serviceEndpoint": {"uri": ALICE, "accept": ["didcomm/v2"], **fields},
    }


def _of(envelope, two, agreement, authentication, service):
    """An invitation from a DID with these keys."""
    did = peer2(authentication, agreement, [service])
    if envelope == "didcomm/v2":
        return invitation(oob_write.link(ALICE, oob_write.invitation(did, two.rng.randbytes)))
    return invitation(oob_write.link(ALICE, oob_write.invitation_v1([did], "x", two.rng.randbytes)))


@pytest.mark.parametrize(
    ("envelope", "keys"), [("didcomm/v2", "none"), ("didcomm/v1", "none"), ("didcomm/v1", "P-256")]
)
def test_inviter_without_keys_is_rejected(envelope, keys):
    two = Two()
    key = public_of(new_secret("P-256", two.rng.randbytes))
    service = _service()
    if envelope == "didcomm/v1":
        did_key = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
        service = {"type": "did-communication", "recipientKeys": [did_key], "serviceEndpoint": ALICE}
    service.pop("id", None)
    found = _of(envelope, two, [key] if keys == "P-256" else [], [key] if keys == "P-256" else [], service)
    before = two.agents["bob"]
    with pytest.raises(CannotConnect):
        two.ask("bob", AcceptConnection(found, "x"))
    assert two.agents["bob"] == before


@pytest.mark.parametrize("bad", BAD_KEYS, ids=range(len(BAD_KEYS)))
def test_invitation_with_bad_routing_keys_is_rejected(bad):
    two = Two()
    did = new_peer2(two.rng.randbytes, [{**_service(routingKeys=bad), "id": "#x"}]).did
    found = invitation(oob_write.link(ALICE, oob_write.invitation(did, two.rng.randbytes)))
    with pytest.raises(CannotConnect):
        two.ask("bob", AcceptConnection(found, "x"))


@pytest.mark.parametrize("bad", BAD_KEYS, ids=range(len(BAD_KEYS)))
def test_peer_with_bad_routing_keys_can_be_left(bad):
    two = Two()
    two.connect()
    two.ask("bob", SendBasicMessage(two.one("bob").id, "hello"))
    fresh = new_peer4(two.rng.randbytes, [_service(routingKeys=bad)])
    moved = rotate(two.one("alice").relationship, fresh, two.now // 1000)
    message = ping.ping(two.rng.randbytes, response_requested=False)
    two.process("bob", WebReceived(pack(moved, message, PACKERS["didcomm/v2"], two.rng.randbytes)))
    assert two.one("bob").relationship.theirs == fresh.did
    name = two.one("bob").id
    for command in (PingPeer(name), SendBasicMessage(name, "are you there?"), RotateDid(name)):
        two.ask("bob", command)
    two.ask("bob", EndConnection(name))
    assert not two.agents["bob"].connections
