"""Rotations, routes and DIDs in both directions with other implementations.

See test_interop.py.
"""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.other_implementations import (
    ALICE,
    BOB,
    CAROL,
    Peers,
    oracle,
    public,
    public_with_id,
    secret,
    secret_with_id,
)
from zerochat.crypto.keys import multikey
from zerochat.didcomm.did import Document, Service, resolve, short_form
from zerochat.didcomm.did.document import Method
from zerochat.didcomm.did.identity import new_peer2, new_peer4
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.layers import open_layers, seal_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import OwnKey, TheirKey
from zerochat.didcomm.protocols.routing import forward_in, wrap
from zerochat.didcomm.rotation import Prior, from_prior, verify_from_prior
from zerochat.didcomm.service import Route

pytestmark = pytest.mark.conformance


@pytest.fixture(scope="module")
def peers() -> Iterator[Peers]:
    with oracle() as running:
        yield running


# --- rotation -------------------------------------------------------------------------------------------------------

DOCUMENTS = {
    did: Document(
        did,
        (Method(f"{did}#x", public(f"{did}#x", "X25519")),),
        (Method(f"{did}#ed", public(f"{did}#ed", "Ed25519")),),
        (),
    )
    for did in (ALICE, BOB, CAROL)
}
JWK_DOCUMENTS = [
    {
        "did": did,
        "agreement": [public_with_id(f"{did}#x", "X25519")],
        "authentication": [public_with_id(f"{did}#ed", "Ed25519")],
    }
    for did in DOCUMENTS
]
ALICES_SECRETS = [secret_with_id(f"{ALICE}#x", "X25519"), secret_with_id(f"{ALICE}#ed", "Ed25519")]
BOBS_SECRETS = [secret_with_id(f"{BOB}#x", "X25519")]


def test_they_verify_our_rotation(peers):
    prior = Prior(CAROL, f"{CAROL}#ed", secret(f"{CAROL}#ed", "Ed25519").data)
    message = Message(
        id="1f2e",
        type="https://didcomm.org/empty/1.0/empty",
        body={},
        from_=ALICE,
        to=(BOB,),
        from_prior=from_prior(prior, ALICE, 1_700_000_000),
    )
    data = seal_layers(
        message,
        random=os.urandom,
        sender=OwnKey(f"{ALICE}#x", secret(f"{ALICE}#x", "X25519")),
        recipient=TheirKey(f"{BOB}#x", public(f"{BOB}#x", "X25519")),
    )
    said = peers.ask("didcomm", "read", envelope=data.decode(), documents=JWK_DOCUMENTS, secrets=BOBS_SECRETS)
    assert said["prior"] == f"{CAROL}#ed"
    assert said["message"]["from_prior"] == {"iss": CAROL, "sub": ALICE, "iat": 1_700_000_000}


def test_we_verify_their_rotation(peers):
    rotation = {"iss": CAROL, "sub": ALICE, "iat": 1_700_000_000}
    message = {"id": "1f2e", "type": "https://didcomm.org/empty/1.0/empty", "body": {}, "from": ALICE, "to": [BOB]}
    data = peers.ask(
        "didcomm",
        "pack",
        message={**message, "from_prior": rotation},
        documents=JWK_DOCUMENTS,
        secrets=[*ALICES_SECRETS, secret_with_id(f"{CAROL}#ed", "Ed25519")],
        to=BOB,
        sender=ALICE,
    )
    opened = open_layers(data.encode(), secret_of=lambda kid: secret(kid, "X25519"), resolve=DOCUMENTS.__getitem__)
    assert opened.message.from_prior is not None
    said = verify_from_prior(opened.message.from_prior, DOCUMENTS[CAROL], ALICE)
    assert (said.issued, said.new_did) == (1_700_000_000, ALICE)


# --- routing --------------------------------------------------------------------------------------------------------

MEDIATORS = ("did:example:first", "did:example:second")
ROUTING_KEYS = [f"{did}#x" for did in MEDIATORS]
URI = "https://example.com/in"


def mediator_document(did: str) -> Document:
    return DOCUMENTS.get(did) or Document(did, (Method(f"{did}#x", public(f"{did}#x", "X25519")),), (), ())


def test_they_forward_our_onion(peers):
    """The first mediator opens the outermost layer and sees the second, which sees the recipient."""
    message = Message(id="1f2e", type="https://didcomm.org/empty/1.0/empty", body={}, to=(BOB,))
    recipient = TheirKey(f"{BOB}#x", public(f"{BOB}#x", "X25519"))
    data = seal_layers(message, random=os.urandom, recipient=recipient)
    route = Route(URI, tuple(ROUTING_KEYS), ("didcomm/v2",), "final")
    envelope = wrap(data, route, BOB, resolve=mediator_document, random=os.urandom).decode()
    for kid, following in zip(ROUTING_KEYS, (ROUTING_KEYS[1], BOB), strict=True):
        said = peers.ask("didcomm", "forwarded", envelope=envelope, secrets=[secret_with_id(kid, "X25519")])
        assert said["next"] == following
        envelope = json.dumps(said["message"])
    said = peers.ask("didcomm", "read", envelope=envelope, documents=JWK_DOCUMENTS, secrets=BOBS_SECRETS)
    assert said["message"]["id"] == "1f2e"


def test_we_forward_their_onion(peers):
    service = {"id": "#1", "service_endpoint": URI, "routing_keys": ROUTING_KEYS, "accept": ["didcomm/v2"]}
    documents = [{**tree, "services": [service]} if tree["did"] == BOB else tree for tree in JWK_DOCUMENTS]
    documents += [
        {"did": did, "agreement": [public_with_id(kid, "X25519")]}
        for did, kid in zip(MEDIATORS, ROUTING_KEYS, strict=True)
    ]
    message = {"id": "1f2e", "type": "https://didcomm.org/empty/1.0/empty", "body": {}, "to": [BOB]}
    data = peers.ask("didcomm", "pack", message=message, documents=documents, secrets=[], to=BOB, forward=True).encode()
    for kid, following in zip(ROUTING_KEYS, (ROUTING_KEYS[1], BOB), strict=True):
        opened = JwePacker().unpack(
            data,
            secret_of=lambda asked, kid=kid: secret(kid, "X25519") if asked == kid else None,
            public_of=lambda asked: public(asked, "X25519"),
        )
        forward = forward_in(opened.plain)
        assert forward is not None
        assert forward.next.partition("#")[0] == following.partition("#")[0]
        (data,) = forward.envelopes
    inside = open_layers(data, secret_of=lambda kid: secret(kid, "X25519"), resolve=mediator_document)
    assert inside.message.id == "1f2e"


# --- DIDs -----------------------------------------------------------------------------------------------------------

ENDPOINT = {"uri": "https://example.com/in", "accept": ["didcomm/v2"], "routingKeys": ["did:key:z6Mk#z6Mk"]}
SERVICE = {"id": "#service", "type": "DIDCommMessaging", "serviceEndpoint": ENDPOINT}


def keys_of(tree: dict[str, Any], did: str) -> dict[str, list[str]]:
    """The key ids and multikeys of a document as the peer has it, by their use."""
    text = {method["id"]: method["publicKeyMultibase"] for method in tree["verificationMethod"]}
    return {use: [did + kid[kid.index("#") :] + " " + text[kid] for kid in tree[use]] for use in USES}


def our_keys(document: Document) -> dict[str, list[str]]:
    lists = (document.authentication, document.agreement)
    return {
        use: [f"{method.kid} {multikey(method.key)}" for method in methods]
        for use, methods in zip(USES, lists, strict=True)
    }


USES = ("authentication", "keyAgreement")


def test_they_resolve_our_did_peer_2(peers):
    did = new_peer2(os.urandom, [SERVICE]).did
    theirs, ours = peers.ask("did-peer-2", "document", did=did), resolve(did)
    assert keys_of(theirs, did) == our_keys(ours)
    assert theirs["service"][0]["serviceEndpoint"] == ENDPOINT == ours.services[0].properties["serviceEndpoint"]


def test_we_resolve_their_did_peer_2(peers):
    signing, agreement = multikey(public("a", "Ed25519")), multikey(public("b", "X25519"))
    did = peers.ask("did-peer-2", "make", signing=signing, agreement=agreement, services=[SERVICE, SERVICE])
    theirs, ours = peers.ask("did-peer-2", "document", did=did), resolve(did)
    assert keys_of(theirs, did) == our_keys(ours)
    assert [service["serviceEndpoint"] for service in theirs["service"]] == [
        service.properties["serviceEndpoint"] for service in ours.services
    ]


def test_they_resolve_our_did_peer_4(peers):
    did = new_peer4(os.urandom, [SERVICE]).did
    theirs, ours = peers.ask("did-peer-4", "document", did=did), resolve(did)
    assert keys_of(theirs["long"], did) == our_keys(ours)
    assert theirs["short"]["id"] == short_form(did)
    assert theirs["long"]["service"][0]["serviceEndpoint"] == ENDPOINT


def test_we_resolve_their_did_peer_4(peers):
    document = {
        "verificationMethod": [
            {"id": "#key-1", "type": "Multikey", "publicKeyMultibase": multikey(public("a", "P-256"))},
            {"id": "#key-2", "type": "Multikey", "publicKeyMultibase": multikey(public("b", "X25519"))},
        ],
        "authentication": ["#key-1"],
        "keyAgreement": ["#key-2"],
        "service": [SERVICE],
    }
    made = peers.ask("did-peer-4", "make", document=document)
    ours = resolve(made["long"])
    assert our_keys(ours) == keys_of(peers.ask("did-peer-4", "document", did=made["long"])["long"], made["long"])
    assert short_form(made["long"]) == made["short"]
    assert ours.services == (Service("#service", "DIDCommMessaging", {"serviceEndpoint": ENDPOINT}),)
