"""Messages on connections to other agents: expiry, acknowledgements, forwards, requests of invitations."""

import json
from functools import partial

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE, BOB, Two, invitation
from zerochat.crypto.encoding import SHA2_256, base58, compact_json
from zerochat.crypto.keys import PublicKey, SecretKey, multikey, new_secret, public_of
from zerochat.crypto.primitives import sha256
from zerochat.didcomm import PACKERS
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import new_peer2, new_peer4, peer3_of, pin, resolve, short_form
from zerochat.didcomm.layers import seal_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, OwnKey, TheirKey
from zerochat.didcomm.protocols import didexchange, features, ping, routing
from zerochat.didcomm.protocols.ack import EMPTY, empty
from zerochat.didcomm.protocols.basic import basic
from zerochat.didcomm.protocols.oob_read import Inviter
from zerochat.didcomm.protocols.signed_attachment import signed_attachment
from zerochat.didcomm.rotation import Prior, from_prior
from zerochat.errors import PostTooLong, RemoteError
from zerochat.group.external import invited_requests, standard_protocols
from zerochat.group.external.connections import CannotConnect
from zerochat.group.external.invited_requests import TEXT_BYTES_MAX
from zerochat.group.inputs import AcceptConnection, OfferConnection, SendBasicMessage, TimerFired, WebReceived
from zerochat.group.links.relationship import pack, unpack
from zerochat.group.notifications import BasicMessageReceived, MessageSettled, ProblemReported
from zerochat.group.timer_kinds import TimerKind

ENVELOPES = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])


def envelope_from_bob(two, message, envelope="didcomm/v2"):
    named = envelope == "didcomm/v2"
    return pack(two.one("bob").relationship, message, PACKERS[envelope], two.rng.randbytes, named=named)


def basic_from_bob(two, text, envelope="didcomm/v2", **headers):
    make = partial(basic, text, two.now // 1000, two.rng.randbytes)
    return replace(make("didcomm/v2") if envelope == "didcomm/v2" else make("didcomm/v1"), **headers)


@ENVELOPES
def test_an_expired_message_is_reported_and_not_shown(envelope):
    two = Two()
    two.connect(envelope)
    for text, expires in (("late", two.now // 1000), ("early", two.now // 1000 + 1)):
        message = basic_from_bob(two, text, envelope, expires_time=expires)
        two.process("alice", WebReceived(envelope_from_bob(two, message, envelope)))
    assert [told.text for told in two.news("alice", BasicMessageReceived)] == ["early"]
    assert [told.code for told in two.news("bob", ProblemReported)] == ["e.m.req.time"]


def test_an_expired_acknowledgement_is_dropped_without_a_report():
    two = Two()
    two.connect()
    message = replace(basic_from_bob(two, ""), type=EMPTY, ack=("x",), expires_time=1)
    two.process("alice", WebReceived(envelope_from_bob(two, message)))
    assert not two.news("bob", ProblemReported)


# --- acknowledgements -----------------------------------------------------------------------------------------------


@ENVELOPES
@pytest.mark.parametrize("web", [(BOB,), ()], ids=["reachable", "only dials out"])
def test_basic_messages_are_acknowledged(envelope, web):
    two = Two(bob=web)
    two.connect(envelope)
    sent = two.ask("bob", SendBasicMessage(two.one("bob").id, "hello")).thread
    assert [each.status for each in two.one("bob").messages] == ["received"] and not two.one("bob").outbox
    assert two.news("bob", MessageSettled)[-1] == MessageSettled(two.one("bob").id, sent, "received")


def test_an_acknowledgement_counts_where_the_result_of_the_post_is_lost():
    two = Two()
    two.connect()
    two.down = {ALICE}
    lost, waiting = (two.ask("bob", SendBasicMessage(two.one("bob").id, text)).thread for text in "xy")
    message = replace(empty(two.rng.randbytes), ack=(lost, "of another"))
    envelope = pack(two.one("alice").relationship, message, PACKERS["didcomm/v2"], two.rng.randbytes)
    two.process("bob", WebReceived(envelope))
    assert [each.status for each in two.one("bob").messages] == ["received", "waiting"]
    assert list(two.one("bob").outbox) == [waiting]


def test_earlier_messages_of_the_peer_alone_are_acknowledged():
    two = Two()
    two.connect()
    earlier, mine = two.ask("bob", SendBasicMessage(two.one("bob").id, "1")).thread, "of-alice"
    message = basic_from_bob(two, "2", please_ack=("", earlier, mine))
    acks = []
    two.at[BOB] = "alice"
    for _ in range(2):
        two.process("alice", WebReceived(envelope_from_bob(two, message)))
        unpacked = unpack(two.one("bob").relationship, two.sent[-1], PACKERS["didcomm/v2"])[1]
        acks.append(unpacked.ack)
    assert acks == [(earlier, message.id)] * 2, "once more for a copy: the first acknowledgement may be lost"
    assert [told.text for told in two.news("alice", BasicMessageReceived)] == ["1", "2"]


# --- rewrapped forwards ---------------------------------------------------------------------------------------------


def rewrapped(two, envelope, times, recipient=None, profile="didcomm/v2"):
    """The envelope in forwards to Alice, or to another `recipient`, each wrapped for Alice."""
    ours = two.one("alice").relationship.mine.did
    for _ in range(times):
        packer, document = PACKERS[profile], resolve(ours)
        next_ = recipient or (ours if profile == "didcomm/v2" else packer.their_key(document, ours).kid)
        plain = routing.forward(envelope, next_, to=None, random=two.rng.randbytes, profile=profile)
        envelope = packer.anoncrypt(plain, recipient=packer.their_key(document, ours), random=two.rng.randbytes)
    return envelope


@ENVELOPES
@pytest.mark.parametrize(("times", "heard"), [(1, ["x"]), (5, ["x"]), (6, [])])
def test_forwards_addressed_to_ourselves_are_unwrapped(envelope, times, heard):
    two = Two()
    two.connect(envelope)
    inner = envelope_from_bob(two, basic_from_bob(two, "x", envelope), envelope)
    two.process("alice", WebReceived(rewrapped(two, inner, times, profile=envelope)))
    assert [told.text for told in two.news("alice", BasicMessageReceived)] == heard


def test_the_first_message_may_come_in_a_forward():
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))
    two.at[ALICE] = "bob"
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    two.at[ALICE] = "alice"
    two.process("alice", WebReceived(rewrapped(two, two.sent[0], 1)))
    assert two.one("alice").state == "established"


def test_a_forward_does_not_tell_which_connections_an_agent_has():
    """One to another recipient is refused, and so is mail for another connection of ours in a forward to this one."""
    two = Two()
    two.connect()
    inner = envelope_from_bob(two, basic_from_bob(two, "x"))
    stranger = new_peer4(two.rng.randbytes, []).did
    before = two.agents["alice"]
    two.process("alice", WebReceived(rewrapped(two, inner, 1, recipient=stranger)))
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600)).connection
    other = before.connections | {offered: two.agents["alice"].connections[offered]}
    two.agents["alice"] = replace(before, connections=other)
    outer = replace(two.one("bob").relationship, theirs=other[offered].relationship.mine.did)
    plain = routing.forward(inner, outer.theirs, to=None, random=two.rng.randbytes)
    packer = PACKERS["didcomm/v2"]
    key = packer.their_key(resolve(outer.theirs), outer.theirs)
    two.process("alice", WebReceived(packer.anoncrypt(plain, recipient=key, random=two.rng.randbytes)))
    assert not two.news("alice", BasicMessageReceived)


# --- features -------------------------------------------------------------------------------------------------------


def disclosed_by_alice(two, *selected):
    two.at[BOB] = "alice"
    query = features.queries(two.rng.randbytes, *(features.Query(kind, "*") for kind in selected))
    two.process("alice", WebReceived(envelope_from_bob(two, query)))
    answer = unpack(two.one("bob").relationship, two.sent[-1], PACKERS["didcomm/v2"])[1]
    return features.read_disclosure(answer)


def test_features_are_what_a_connection_speaks():
    two = Two()
    two.connect()
    found = disclosed_by_alice(two, "protocol", "constraint")
    roles = dict(found.protocols)
    assert roles["https://didcomm.org/out-of-band/2.0"] == roles["https://didcomm.org/out-of-band/1.1"]
    assert set(roles["https://didcomm.org/didexchange/1.1"]) == {"requester", "responder"}
    assert set(roles["https://didcomm.org/did-rotate/1.0"]) == {"rotating_party", "observing_party"}
    assert all(roles.values()) and not any("zerochat" in name or "pub-sub" in name for name in roles)
    assert found.max_receive_bytes == ENVELOPE_BYTES_MAX


def test_members_disclose_that_they_publish_and_subscribe():
    roles = dict(standard_protocols.MEMBER_FEATURES.protocols)
    assert roles["https://didcomm.org/pub-sub/1.0"] == ("publisher", "subscriber")
    assert not any("out-of-band" in name or "basicmessage" in name for name in roles), "nothing of other connections"


# --- requests of invitations ----------------------------------------------------------------------------------------


@ENVELOPES
def test_an_invitation_carries_a_text_that_is_shown_once_connected(envelope):
    two = Two()
    offered = two.ask("alice", OfferConnection(envelope, "Alice", 3600, message="It is me."))
    two.down = {ALICE}
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    assert not two.news("bob", BasicMessageReceived), "the invitation proves nothing yet"
    two.down = set()
    two.now += 60_000
    two.process("bob", TimerFired(f"{TimerKind.EXTERNAL_OUTBOX} {two.one('bob').id}"))
    assert [told.text for told in two.news("bob", BasicMessageReceived)] == ["It is me."]
    assert two.one("bob").request is None
    with pytest.raises(PostTooLong):
        two.ask("alice", OfferConnection(envelope, "Alice", 3600, message="x" * (TEXT_BYTES_MAX + 1)))


@ENVELOPES
def test_the_first_supported_request_of_an_invitation_is_answered(envelope):
    two = Two()
    offered = invitation(two.ask("alice", OfferConnection(envelope, "Alice", 3600)).url)
    query = features.queries(two.rng.randbytes)
    asked = replace(query, id="asked")
    packer = PACKERS[envelope]
    requests = (
        Attachment(json="no message"),
        invited_requests.attached(replace(query, type="https://example.org/chess/1.0/move"), packer),
        Attachment(links=("https://example.org/",), hash="x"),
        invited_requests.attached(asked, packer),
        invited_requests.attached(replace(query, id="later"), packer),
    )
    two.ask("bob", AcceptConnection(replace(offered, requests=requests), "alice"))
    found = [unpack_all(two, sent, packer) for sent in two.sent]
    (answer,) = [message for message in found if message is not None and features.is_disclosure(message)]
    assert (answer.thid, answer.pthid) == ("asked", offered.id)


def unpack_all(two, envelope, packer):
    """What Alice reads of this envelope; None: nothing."""
    try:
        return unpack(two.one("alice").relationship, envelope, packer)[1]
    except RemoteError:
        return None


def test_a_request_without_a_connection_is_refused():
    two = Two()
    offered = invitation(two.ask("alice", OfferConnection("didcomm/v1", "Alice", 3600)).url)
    for offers in ((), ("https://didcomm.org/connections/1.0",)):
        with pytest.raises(CannotConnect):
            two.ask("bob", AcceptConnection(replace(offered, handshake_protocols=offers), "alice"))


# --- DID methods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("new", "method"), [(new_peer2, "did:peer:2"), (new_peer4, "did:peer:4")])
def test_our_did_is_of_a_method_that_the_peer_reads(new, method):
    """Some agents read did:peer:2 and none that is newer."""
    two = Two()
    offered = invitation(two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600)).url)
    service = {"id": "#d", "type": "DIDCommMessaging", "serviceEndpoint": [{"uri": ALICE, "accept": ["didcomm/v2"]}]}
    inviter = new(two.rng.randbytes, [service])
    two.down = {ALICE}
    two.ask("bob", AcceptConnection(replace(offered, inviters=(Inviter(did=inviter.did),)), "alice"))
    assert two.one("bob").relationship.mine.did.startswith(method)


@pytest.mark.parametrize("form", ["auth", "anon(sign)"])
def test_a_did_peer_3_is_another_name_of_a_did_peer_2(form):
    two = Two()
    two.connect()
    bob, alice = two.one("bob").relationship.mine, two.one("alice").relationship.mine
    assert bob.did.startswith("did:peer:2") and alice.did.startswith("did:peer:2")
    mine, theirs = peer3_of(bob.did), peer3_of(alice.did)
    message = basic_from_bob(two, "x", from_=mine, to=(theirs,))
    packer = PACKERS["didcomm/v2"]
    recipient = TheirKey(theirs + "#key-2", packer.their_key(resolve(alice.did), alice.did).key)
    if form == "auth":
        sender = OwnKey(mine + "#key-2", packer.own_key(bob, bob.did).key)
        envelope = seal_layers(message, sender=sender, recipient=recipient, random=two.rng.randbytes)
    else:
        signer = OwnKey(mine + "#key-1", SecretKey("Ed25519", bob.signing_seed))
        envelope = seal_layers(message, signer=signer, recipient=recipient, random=two.rng.randbytes)
    two.process("alice", WebReceived(envelope))
    assert [told.text for told in two.news("alice", BasicMessageReceived)] == ["x"]
    assert two.one("alice").relationship.theirs == bob.did


@pytest.mark.parametrize("convention", [slice(None), slice(1, None), slice(1, 9), slice(1, 10)])
def test_keys_of_our_did_peer_2_are_known_by_every_convention(convention):
    two = Two()
    two.connect()
    bob, alice = two.one("bob").relationship.mine, two.one("alice").relationship.mine
    packer = PACKERS["didcomm/v2"]
    key = packer.their_key(resolve(alice.did), alice.did).key
    envelope = seal_layers(
        basic_from_bob(two, "x"),
        sender=packer.own_key(bob, bob.did),
        recipient=TheirKey(f"{alice.did}#{multikey(key)[convention]}", key),
        random=two.rng.randbytes,
    )
    two.process("alice", WebReceived(envelope))
    assert [told.text for told in two.news("alice", BasicMessageReceived)] == ["x"]


def test_an_inviter_may_have_a_did_web():
    """Its document comes with the invitation, read by our user's agent; the inviter then rotates to another DID."""
    two = Two()
    offered = invitation(two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600)).url)
    inviter, did = two.one("alice").relationship.mine, "did:web:alice.example"
    keys = {
        "#key-1": PublicKey("Ed25519", inviter.signing_public),
        "#key-2": PublicKey("X25519", inviter.agreement_public),
    }
    listed = [{"id": name, "type": "Multikey", "publicKeyMultibase": multikey(key)} for name, key in keys.items()]
    service = {"id": "#d", "type": "DIDCommMessaging", "serviceEndpoint": [{"uri": ALICE, "accept": ["didcomm/v2"]}]}
    uses = {"authentication": ["#key-1"], "keyAgreement": ["#key-2"], "service": [service]}
    pinned = pin(did, json.dumps({"id": did, "verificationMethod": listed, **uses}).encode())
    two.at[ALICE] = "bob"  # it would not know its did:web here
    two.ask("bob", AcceptConnection(replace(offered, inviters=(Inviter(did=pinned),)), "alice"))
    bob = two.one("bob")
    assert bob.relationship.invited_by == pinned and short_form(bob.relationship.theirs) == did
    (sent,) = two.sent
    packer = PACKERS["didcomm/v2"]
    opened = packer.unpack(
        sent,
        secret_of=lambda kid: SecretKey("X25519", inviter.agreement_secret) if kid == did + "#key-2" else None,
        public_of=lambda kid: resolve(kid.partition("#")[0]).agreement_key(kid),
    )
    message = packer.parse(opened.plain)
    assert message.pthid == offered.id and message.to == (did,)
    prior = Prior(did, did + "#key-1", inviter.signing_seed)
    fresh = new_peer4(two.rng.randbytes, [service])
    pong = ping.answer(message, two.rng.randbytes)
    assert pong is not None
    answer = replace(
        pong,
        from_=fresh.did,
        to=(bob.relationship.mine.did,),
        from_prior=from_prior(prior, fresh.did, two.now // 1000),
    )
    recipient = packer.their_key(resolve(bob.relationship.mine.did), bob.relationship.mine.did)
    two.process(
        "bob",
        WebReceived(
            seal_layers(answer, sender=packer.own_key(fresh, fresh.did), recipient=recipient, random=two.rng.randbytes)
        ),
    )
    assert two.one("bob").state == "established" and two.one("bob").relationship.theirs == fresh.did


@pytest.mark.parametrize("method", ["did:peer:1", "did:sov", "another hash"])
def test_a_requester_may_bring_its_document(method):
    """Of a DID that cannot be resolved, in v1; it is stored with the connection."""
    two = Two()
    offered = invitation(two.ask("alice", OfferConnection("didcomm/v1", "Alice", 3600)).url)
    signer, packer = new_secret("Ed25519", two.rng.randbytes), PACKERS["didcomm/v1"]
    key = public_of(signer)
    listed = {"id": "#1", "type": "Ed25519VerificationKey2018", "publicKeyBase58": base58(key.data)}
    service = {"id": "#d", "type": "did-communication", "recipientKeys": ["#1"], "serviceEndpoint": BOB}
    tree = {"verificationMethod": [listed], "authentication": ["#1"], "service": [service]}
    if method == "did:sov":
        did = "did:sov:" + base58(key.data[:16])
    else:
        hashed = compact_json({"x": 1} if method == "another hash" else tree)
        did = "did:peer:1z" + base58(SHA2_256 + sha256(hashed))
    attached = signed_attachment(compact_json({"id": did, **tree}), signer, "application/json")
    body = {"label": "Old", "did": did, "did_doc~attach": attached}
    name = "r1"
    request = Message(type=didexchange.REQUEST, id=name, thid=name, pthid=offered.id, body=body)
    ours = two.one("alice").relationship.mine.did
    envelope = packer.authcrypt(
        packer.dump(request),
        sender=OwnKey(base58(key.data), signer),
        recipient=packer.their_key(resolve(ours), ours),
        random=two.rng.randbytes,
    )
    two.at[BOB] = "alice"  # what Alice sends is kept; the endpoint is hers here and refuses it
    two.process("alice", WebReceived(envelope))
    assert two.one("alice").state == ("offered" if method == "another hash" else "established")
    if method == "another hash":
        return
    assert short_form(two.one("alice").relationship.theirs) == did
    two.ask("alice", SendBasicMessage(two.one("alice").id, "hello"))
    opened = packer.unpack(
        two.sent[-1],
        secret_of=lambda kid: signer if kid == base58(key.data) else None,
        public_of=lambda kid: resolve(kid.partition("#")[0]).agreement_key(kid),
    )
    assert packer.parse(opened.plain).body["content"] == "hello"
