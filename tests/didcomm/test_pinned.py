"""Pinned DIDs: the document of a did:web is stored with the DID, and no peer can bring one."""

import json
import random

import pytest

from zerochat.crypto.keys import PublicKey, multikey
from zerochat.didcomm.did import new_peer2, pin, resolve, resolve_pinned, same_did, short_form
from zerochat.errors import Malformed

DID = "did:web:example.org:alice"


def document(did=DID, **more):
    keys = new_peer2(random.Random(1).randbytes, [])
    methods = {
        "#key-1": PublicKey("Ed25519", keys.signing_public),
        "#key-2": PublicKey("X25519", keys.agreement_public),
    }
    listed = [
        {"id": did + name, "type": "Multikey", "controller": did, "publicKeyMultibase": multikey(key)}
        for name, key in methods.items()
    ]
    tree = {"id": did, "verificationMethod": listed, "authentication": ["#key-1"], "keyAgreement": ["#key-2"]}
    return json.dumps({"@context": "x" * 1000, **tree, **more}).encode()


def test_a_pinned_did_has_its_document():
    pinned = pin(DID, document())
    found = resolve_pinned(pinned)
    assert found.did == DID and [method.kid for method in found.agreement] == [DID + "#key-2"]
    assert short_form(pinned) == DID and same_did(pinned, DID) and not same_did(pinned, DID + ":b")
    assert resolve_pinned("did:peer:2." + new_peer2(random.Random(2).randbytes, []).did[11:])


def test_no_peer_can_bring_a_document():
    for did in (pin(DID, document()), DID):
        with pytest.raises(Malformed):
            resolve(did)


@pytest.mark.parametrize(
    ("did", "given"),
    [
        (DID, document("did:web:example.org:bob")),
        ("did:peer:4zQm", document("did:peer:4zQm")),
        (DID + " x", document(DID + " x")),
        (DID, b"{}"),
        (DID, b"[]"),
        (DID, document()[:-1]),
        (DID, document(service=[{"id": "#s", "type": "x", "serviceEndpoint": "y" * 20_000}])),
        (DID, document(authentication=["#none"])),
    ],
)
def test_an_unfit_document_is_refused(did, given):
    with pytest.raises(Malformed):
        pin(did, given)
