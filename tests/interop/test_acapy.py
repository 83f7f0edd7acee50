"""Our protocols with ACA-Py over HTTP on the loopback interface.

The test itself is our agent, so every message can be inspected; test_acapy_cli.py uses zerochat's agent.

ZEROCHAT_ACAPY_PYTHON names a Python with ACA-Py, else `scripts/interop acapy` makes an environment. Not supported by
ACA-Py, and not tested: invitations of version 2. Of DIDComm v2 it has the envelopes but no protocol, so it answers
every message with a problem report.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.interop.acapy import Acapy, Mailbox, mailbox, post, running
from zerochat.crypto.encoding import b64url_bytes, base58, base58_bytes
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import Identity, new_peer2, new_peer4, resolve
from zerochat.didcomm.message import Message, dump
from zerochat.didcomm.packer import OwnKey, TheirKey, envelope_kind
from zerochat.didcomm.protocols import (
    STANDARD,
    basic,
    didexchange,
    features,
    oob_read,
    oob_write,
    ping,
    problem,
    standard_answer,
)
from zerochat.didcomm.v1 import dump_v1, parse_v1

pytestmark = [pytest.mark.conformance, pytest.mark.slow]

V1 = PACKERS["didcomm/v1"]


@pytest.fixture(scope="module")
def acapy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Acapy]:
    with running(tmp_path_factory.mktemp("acapy")) as agent:
        yield agent


@pytest.fixture(scope="module")
def box() -> Iterator[Mailbox]:
    with mailbox() as running:
        yield running


@dataclass
class Talk:
    """Our end of a conversation in RFC 0019 envelopes: one DID of ours, and where the other side is."""

    box: Mailbox
    mine: Identity
    uri: str = ""
    their_key: PublicKey | None = None
    more: dict[str, Identity] = field(default_factory=dict)
    """Other identities of ours, by verkey."""

    def own(self, identity: Identity) -> OwnKey:
        return V1.own_key(identity, identity.did)

    def send(self, message: Message, recipient: PublicKey | None = None, sender: Identity | None = None) -> None:
        key = recipient or self.their_key
        assert key is not None
        envelope = V1.authcrypt(
            dump_v1(message),
            sender=self.own(sender or self.mine),
            recipient=TheirKey(base58(key.data), key),
            random=os.urandom,
        )
        post(self.uri, envelope, V1.media_type)

    def take(self, wanted: Any) -> tuple[Message, PublicKey]:
        """The next message of type `wanted` and its sender key; others get the standard answer."""
        while True:
            _, media_type, envelope = self.box.take()
            assert media_type in ("application/didcomm-envelope-enc", "application/ssi-agent-wire")
            assert envelope_kind(envelope) == "didcomm/v1"
            keys = {self.own(identity).kid: self.own(identity).key for identity in (self.mine, *self.more.values())}
            if not any(kid.encode() in _protected(envelope) for kid in keys):
                continue  # left over from another test
            opened = V1.unpack(envelope, secret_of=keys.get, public_of=_verkey)
            message = parse_v1(opened.plain)
            sender = _verkey(opened.sender_kid or "")
            if wanted(message):
                return message, sender
            reply = standard_answer(message, disclosed=STANDARD, random=os.urandom, profile="didcomm/v1")
            if reply is not None and sender == self.their_key:
                self.send(reply)


def _verkey(name: str) -> PublicKey:
    return PublicKey("Ed25519", base58_bytes(name, 32))


def _protected(envelope: bytes) -> bytes:
    return b64url_bytes(json.loads(envelope)["protected"])


def is_type(name: str) -> Any:
    return lambda message: message.type.endswith(name)


def new_identity(box: Mailbox, method: str) -> Identity:
    v2 = {"id": "#dm", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": box.uri, "accept": ["didcomm/v2"]}}
    make = {"did:peer:4": new_peer4, "did:peer:2": new_peer2}[method]
    service = didexchange.service_v1(box.uri)
    if method == "did:peer:2":
        service["recipientKeys"] = ["#key-1"]
    return make(os.urandom, [v2, service])


# --- connecting -----------------------------------------------------------------------------------------------------

INVITATIONS: dict[str, dict[str, str]] = {
    "inline": {},
    "did:peer:2": {"use_did_method": "did:peer:2"},
    "did:peer:4": {"use_did_method": "did:peer:4"},
}


def accept(acapy: Acapy, box: Mailbox, method: str = "did:peer:4", **wishes: object) -> tuple[Talk, str]:
    """We answer their invitation; returns the conversation and their connection id."""
    invited = acapy.invitation(**wishes)
    read = oob_read.read_invitation(invited["url"])
    assert isinstance(read, oob_read.OutOfBand) and oob_read.handshake(read) == "1.1"
    (route,) = [way for way in oob_read.ways(read.inviters[0], resolve) if way.takes("didcomm/v1")]
    signers = oob_read.signers(read.inviters[0], resolve)
    talk = Talk(box, new_identity(box, method), route.uri)
    asked, request = didexchange.request(talk.mine.did, "Alice", signers, os.urandom, pthid=read.id)
    talk.send(request, signers[0])
    message, sender = talk.take(is_type("/response"))
    asked, done = didexchange.receive_response(asked, message, sender, os.urandom)
    talk.their_key = sender
    talk.send(done)
    return talk, acapy.connection(invited["@id"])


@pytest.mark.parametrize("kind", INVITATIONS)
def test_we_accept_their_invitation(acapy, box, kind):
    talk, connection = accept(acapy, box, **INVITATIONS[kind])
    asked = ping.ping(os.urandom, "didcomm/v1")
    talk.send(asked)
    _, sender = talk.take(lambda message: ping.is_response(message, asked.id))
    assert sender == talk.their_key
    assert acapy.get(f"/connections/{connection}")["their_label"] == "Alice"


def test_we_may_use_a_did_peer_2(acapy, box):
    talk, _ = accept(acapy, box, method="did:peer:2")
    asked = ping.ping(os.urandom, "didcomm/v1")
    talk.send(asked)
    talk.take(lambda message: ping.is_response(message, asked.id))


@pytest.mark.parametrize("kind", ["inline", "did:peer:2", "did:peer:4"])
def test_they_accept_our_invitation(acapy, box, kind):
    method = kind if kind.startswith("did:") else "did:peer:4"
    public, private = new_identity(box, method), new_identity(box, "did:peer:4")
    key = PublicKey("Ed25519", public.signing_public)
    service = oob_write.inline_service(box.uri, key) if kind == "inline" else public.did
    invitation = oob_write.invitation_v1([service], "Alice", os.urandom)
    talk = Talk(box, private, acapy.endpoint, more={"public": public})
    connection = acapy.receive(json.loads(dump_v1(invitation)))
    message, sender = talk.take(is_type("/request"))
    asked = didexchange.receive_request(message, invitation.id, sender)
    assert asked.peer.label == "Faber"
    asked, response = didexchange.respond(asked, private.did, SecretKey("Ed25519", public.signing_seed), os.urandom)
    talk.their_key = sender
    talk.send(response)
    message, sender = talk.take(is_type("/complete"))
    assert didexchange.receive_complete(asked, message, sender).state == "completed"
    thread = acapy.post(f"/connections/{connection}/send-ping", comment="hi")["thread_id"]
    message, _ = talk.take(lambda message: ping.is_ping(message) and message.id == thread)


# --- talking --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def talk(acapy: Acapy, box: Mailbox) -> tuple[Talk, str]:
    return accept(acapy, box)


def test_features_in_both_versions(talk):
    end, _ = talk
    for query in (features.queries(os.urandom), features.query_v1(os.urandom)):
        end.send(query)
        message, _ = end.take(lambda message, id=query.id: features.is_disclosure(message) and message.thid == id)
        known = dict(features.read_disclosure(message).protocols)
        assert {"https://didcomm.org/trust_ping/1.0", "https://didcomm.org/didexchange/1.1"} <= set(known)


def test_acapy_queries_our_features(talk, acapy):
    end, connection = talk
    asked = acapy.get(f"/discover-features-2.0/queries?connection_id={connection}&query_protocol=*")
    query, _ = end.take(features.is_query)
    reply = standard_answer(query, disclosed=STANDARD, random=os.urandom, profile="didcomm/v1")
    assert reply is not None
    end.send(reply)

    def said() -> Any:
        record = acapy.get(f"/discover-features-2.0/records?connection_id={connection}")["results"]
        answers = [entry for entry in record if entry["discovery_exchange_id"] == asked["discovery_exchange_id"]]
        return answers[0].get("disclosures") if answers else None

    disclosed = {entry["id"] for entry in acapy.until(said)["disclosures"]}
    assert ping.PROTOCOL_V1 in disclosed


def test_text_is_exchanged_both_ways(talk, acapy):
    end, connection = talk
    text = "naïve – 日本語 ✓"
    end.send(basic.basic(text, 1_700_000_000, os.urandom, "didcomm/v1"))
    message, _ = end.take(basic.is_basic)
    assert basic.read_basic(message).content == "Faber received your message"
    acapy.post(f"/connections/{connection}/send-message", content=text)
    message, _ = end.take(basic.is_basic)
    assert basic.read_basic(message).content == text


def test_acapy_reports_unknown_messages(talk):
    end, _ = talk
    end.send(ping.ping(os.urandom, "didcomm/v2"))
    message, _ = end.take(problem.is_problem)
    assert problem.read_problem(message).code == "message-parse-failure"


# --- DIDComm v2 -----------------------------------------------------------------------------------------------------


def test_envelopes_of_version_2(acapy, box):
    """They open our envelopes, and we open their only answer, a problem report. It names no sender inside, so an agent
    must not trust it; the envelope is what is tested."""
    packer, mine = PACKERS["didcomm/v2"], new_identity(box, "did:peer:2")
    invited = acapy.invitation(use_did_method="did:peer:2")
    theirs = resolve(invited["services"][0])
    asked = ping.ping(os.urandom)
    message = Message(
        type=asked.type, id=asked.id, body=asked.body, from_=mine.did, to=(theirs.did,), return_route="all"
    )
    recipient = packer.their_key(theirs, theirs.did)
    envelope = packer.authcrypt(
        dump(message), sender=packer.own_key(mine, mine.did), recipient=recipient, random=os.urandom
    )
    answer = post(acapy.endpoint, envelope, packer.media_type)
    opened = packer.unpack(
        answer,
        secret_of=lambda kid: SecretKey("X25519", mine.agreement_secret) if kid == mine.kid_long else None,
        public_of=theirs.agreement_key,
    )
    said = json.loads(opened.plain)
    assert (said["type"], said["pthid"]) == ("https://didcomm.org/report-problem/2.0/problem-report", asked.id)
    assert (opened.kind, opened.sender_kid) == ("authcrypt", recipient.kid)
