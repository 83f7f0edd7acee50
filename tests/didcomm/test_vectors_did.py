"""Published vectors of did:key and did:peer, named like their sources."""

import pytest

from tests.support.vectors import Json, load
from zerochat.crypto.encoding import base58, base58_bytes, compact_json, did_key, did_key_bytes
from zerochat.crypto.keys import SecretKey, ed25519_to_x25519_secret, jwk_secret, public_jwk, public_of
from zerochat.didcomm.did import did_key_of, peer2, peer4, read_document, resolve, same_did, short_form
from zerochat.didcomm.service import routes
from zerochat.errors import Malformed

pytestmark = pytest.mark.conformance

FAMILIES = {"ed25519-x25519": 3, "nist-curves": 4, "secp256k1": 3, "x25519": 2}


def published_secrets(case: Json) -> list[SecretKey]:
    """The secrets of one published DID, in whichever way they are written."""
    found = []
    for name in ("verificationKeyPair", "keyAgreementKeyPair", "verificationMethod"):
        pair = case.get(name)
        if not isinstance(pair, dict):
            continue
        if "privateKeyJwk" in pair:
            found.append(jwk_secret(pair["privateKeyJwk"]))
        elif pair["type"] == "X25519KeyAgreementKey2019":
            found.append(SecretKey("X25519", base58_bytes(pair["privateKeyBase58"], 32)))
        elif pair["type"] == "EcdsaSecp256k1VerificationKey2019":
            found.append(SecretKey("secp256k1", base58_bytes(pair["privateKeyBase58"], 32)))
    if "seed" in case and "keyAgreementKeyPair" in case:
        found.append(SecretKey("Ed25519", bytes.fromhex(case["seed"])))
        found.append(ed25519_to_x25519_secret(found[-1]))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_did_key(family: str) -> None:
    """The document that we make of the DID is the published one, read: other people's ids, keys and spellings of both.

    Only that a key on secp256k1 could be encrypted to, as the published documents have it, is not so in DIDComm.
    """
    published = load("did_key.json")["cases"][family]
    assert len(published) == FAMILIES[family]
    for did, case in published.items():
        document = resolve(did)
        assert document == read_document(did, case.get("didDocument", case))
        assert bool(document.agreement) == (family != "secp256k1")
        assert bool(document.authentication) == (family != "x25519")
        methods = document.agreement + document.authentication
        assert {public_of(secret) for secret in published_secrets(case)} <= {method.key for method in methods}
        assert did_key_of((document.authentication or document.agreement)[0].key) == did


def test_did_key_of_seeds() -> None:
    for did, case in load("did_key.json")["cases"]["ed25519-x25519"].items():
        public = public_of(SecretKey("Ed25519", bytes.fromhex(case["seed"])))
        assert did_key(public.data) == did
        assert did_key_bytes(did) == public.data


def test_did_peer_0() -> None:
    tree = load("did_peer.json")["numalgo0"]
    document, twin = resolve(tree["did"]), resolve(tree["equivalent_did_key"])
    assert [method.key for method in document.agreement] == [method.key for method in twin.agreement]
    assert [method.key for method in document.authentication] == [method.key for method in twin.authentication]
    assert all(method.kid.startswith(tree["did"] + "#z6") for method in document.agreement + document.authentication)


def test_did_peer_2() -> None:
    [case] = load("did_peer.json")["numalgo2"]
    did, tree = case["did"], case["document"]
    document = resolve(did)
    assert document == read_document(did, tree)
    assert [{"id": s.id, "type": s.type, **s.properties} for s in document.services] == tree["service"]
    assert [(route.uri, route.routing_keys) for route in routes(document)] == [
        ("http://example.com/didcomm", ("did:example:123456789abcdefghi#key-1",)),
        ("http://example.com/another", ("did:example:123456789abcdefghi#key-2",)),
    ]


def test_did_peer_2_is_written_as_published() -> None:
    [case] = load("did_peer.json")["numalgo2"]
    document = resolve(case["did"])
    signing, agreement = ([m.key for m in methods] for methods in (document.authentication, document.agreement))
    services = []
    for service in case["document"]["service"]:
        endpoint = service["serviceEndpoint"]
        ordered = {name: endpoint[name] for name in ("uri", "accept", "routingKeys")}
        services.append({"type": service["type"], "serviceEndpoint": ordered})
    assert peer2(signing, agreement, services) == case["did"]


def test_did_peer_2_of_numalgo_3() -> None:
    """did:peer:3 alone cannot be resolved: it is another name of a did:peer:2 that has been sent before."""
    [case] = load("did_peer.json")["numalgo3"]
    assert same_did(case["did2"], case["did3"]) and same_did(case["did3"], case["did2"])
    assert not same_did(case["did2"] + "x", case["did3"])
    document = resolve(case["did2"])
    assert [method.kid.rpartition("#")[2] for method in document.agreement] == ["key-1"]
    assert [method.kid.rpartition("#")[2] for method in document.authentication] == ["key-2", "key-3"]
    [route] = routes(document)
    assert route.uri == "https://example.com/endpoint"
    assert route.routing_keys == ("did:example:somemediator#somekey",)
    assert route.accept == ("didcomm/v2", "didcomm/aip2;env=rfc587")
    with pytest.raises(Malformed, match="unsupported method"):
        resolve(case["did3"])


def test_did_peer_4() -> None:
    [case] = load("did_peer.json")["numalgo4"]
    long, short = case["long_did"], case["short_did"]
    assert peer4(compact_json(case["input_document"])) == long
    assert short_form(long) == short
    assert same_did(long, short)
    document = resolve(long)
    assert document == read_document(long, case["long_document"])
    assert [{"id": s.id, "type": s.type, **s.properties} for s in document.services] == case["long_document"]["service"]
    assert resolve(short, {short: long}) == document
    for kid in (long + "#6LSqPZfn", short + "#6LSqPZfn"):
        assert base58(document.agreement_key(kid).data) in base58_of(case, "X25519KeyAgreementKey2020")
    with pytest.raises(Malformed):
        resolve(short)


def base58_of(case: Json, kind: str) -> list[str]:
    methods = case["input_document"]["verificationMethod"]
    return [base58(base58_bytes(m["publicKeyMultibase"][1:], 34)[2:]) for m in methods if m["type"] == kind]


@pytest.mark.parametrize("kind", ["ed25519-x25519", "nist-curves"])
def test_the_keys_of_did_key_are_the_published_jwks(kind: str) -> None:
    seen = 0
    for did, case in load("did_key.json")["cases"][kind].items():
        for method in case["didDocument"]["verificationMethod"]:
            if "publicKeyJwk" in method:
                document = resolve(did)
                jwks = [public_jwk(known.key) for known in document.authentication + document.agreement]
                assert method["publicKeyJwk"] in jwks
                seen += 1
    assert seen
