"""Services of DID documents: four generations, fallback, mediators."""

from typing import Any

import pytest

from zerochat.crypto.encoding import base58
from zerochat.crypto.keys import PublicKey, ed25519_to_x25519, multikey, new_secret, public_of
from zerochat.didcomm.did import SERVICES_MAX, Document, did_key_of, peer2, read_document, resolve
from zerochat.didcomm.service import (
    ACCEPT_MAX,
    ROUTES_MAX,
    ROUTING_KEYS_MAX,
    URI_CHARS_MAX,
    Route,
    deliverable,
    deliverables,
    routes,
    verkey,
)
from zerochat.errors import Malformed

Json = dict[str, Any]

SIGNING = public_of(new_secret("Ed25519", lambda size: bytes([7]) * size))
OTHER = public_of(new_secret("Ed25519", lambda size: bytes([8]) * size))
AGREEMENT = ed25519_to_x25519(SIGNING)
VERKEY, DID_KEY, OTHER_DID_KEY = base58(SIGNING.data), did_key_of(SIGNING), did_key_of(OTHER)
URI = "https://192.0.2.1:8443/didcomm"
V2, V1 = ("didcomm/v2",), ("didcomm/aip2;env=rfc19", "didcomm/aip1")


def document(*services: Json) -> Document:
    tree = {
        "verificationMethod": [
            {"id": "#key-1", "type": "Multikey", "publicKeyMultibase": multikey(SIGNING)},
            {"id": "#key-2", "type": "Multikey", "publicKeyMultibase": multikey(AGREEMENT)},
        ],
        "authentication": ["#key-1"],
        "keyAgreement": ["#key-2"],
        "service": [{"id": "#s"} | service for service in services],
    }
    return read_document("did:example:a", tree)


def final(endpoint: object, **beside: object) -> Json:
    return {"type": "DIDCommMessaging", "serviceEndpoint": endpoint, **beside}


def v1(uri: str = URI, **more: object) -> Json:
    return {"type": "did-communication", "recipientKeys": [VERKEY], "serviceEndpoint": uri, **more}


@pytest.mark.parametrize(
    ("service", "expected"),
    [
        (final({"uri": URI}), Route(URI, (), V2, "final")),
        (final(URI), Route(URI, (), V2, "final")),
        (final(URI, routingKeys=["did:a#1"], accept=["x"]), Route(URI, ("did:a#1",), ("x",), "final")),
        (final({"uri": URI, "routingKeys": ["did:a#1", "did:b#1"]}), Route(URI, ("did:a#1", "did:b#1"), V2, "final")),
        (final({"uri": URI, "routingKeys": None, "accept": []}), Route(URI, (), V2, "final")),
        (final({"uri": "did:example:mediator"}), Route("did:example:mediator", (), V2, "final")),
        (final({"uri": "didcomm:transport/queue"}), Route("didcomm:transport/queue", (), V2, "final")),
        (
            {"type": "DIDComm", "serviceEndpoint": URI, "routingKeys": ["did:a#1", "did:b#1"]},
            Route(URI, ("did:a#1", "did:b#1"), V2, "draft"),
        ),
        (v1(), Route(URI, (), V1, "draft", (DID_KEY,))),
        (v1(type="IndyAgent"), Route(URI, (), V1, "draft", (DID_KEY,))),
        (v1(type="DIDComm"), Route(URI, (), V1, "draft", (DID_KEY,))),
        (v1(recipientKeys=[DID_KEY]), Route(URI, (), V1, "draft", (DID_KEY,))),
        (v1(recipientKeys=[f"{DID_KEY}#{DID_KEY[8:]}"]), Route(URI, (), V1, "draft", (DID_KEY,))),
        (v1(recipientKeys=["did:example:a#key-1"]), Route(URI, (), V1, "draft", (DID_KEY,))),
        (v1(recipientKeys=["#key-1"]), Route(URI, (), V1, "draft", (DID_KEY,))),
        (v1(routingKeys=[base58(OTHER.data)], accept=["y"]), Route(URI, (OTHER_DID_KEY,), ("y",), "draft", (DID_KEY,))),
        (v1(routingKeys=None, priority="first"), Route(URI, (), V1, "draft", (DID_KEY,))),
    ],
)
def test_every_generation_of_service_is_read(service: Json, expected: Route) -> None:
    assert routes(document(service)) == (expected,)


@pytest.mark.parametrize("reference", ["#key-1", "#" + multikey(SIGNING)[1:9]])
def test_recipient_keys_refer_to_the_keys_of_a_did_peer_2(reference: str) -> None:
    """As ACA-Py and Credo write them, whose new documents have services of v1."""
    [route] = routes(resolve(peer2([SIGNING], [AGREEMENT], [v1(recipientKeys=[reference])])))
    assert route.recipient_keys == (DID_KEY,)


def test_routes_come_in_the_order_of_preference() -> None:
    found = routes(
        document(
            v1("http://192.0.2.1/c", priority=2),
            final([{"uri": URI + "/1"}, URI + "/2", {"uri": URI + "/3"}]),
            v1("http://192.0.2.1/b", priority=1),
            {"type": "LinkedDomains", "serviceEndpoint": "https://example.org"},
            v1("http://192.0.2.1/a", priority=0),
            v1("http://192.0.2.1/z"),
        )
    )
    assert [route.uri.rpartition("/")[2] for route in found] == ["a", "1", "2", "3", "b", "c", "z"]


def test_profiles_are_packer_names() -> None:
    for accept, taken in (
        (V2, {"didcomm/v2"}),
        (V1, {"didcomm/v1"}),
        (("didcomm/aip2; env=RFC19", "didcomm/v2"), {"didcomm/v1", "didcomm/v2"}),
        (("didcomm/aip2;env=rfc587",), set()),
    ):
        route = Route(URI, (), accept, "final")
        assert {profile for profile in ("didcomm/v1", "didcomm/v2") if route.takes(profile)} == taken


@pytest.mark.parametrize(
    "service",
    [
        final(None),
        final(7),
        final({}),
        final({"uri": ""}),
        final({"uri": "no uri"}),
        final({"uri": "https://example.org/a b"}),
        final({"uri": "https://example.org/\n"}),
        final({"uri": "https://exämple.org/"}),
        final({"uri": ["https://example.org/"]}),
        final({"uri": "https://example.org/" + "x" * URI_CHARS_MAX}),
        final({"uri": URI, "routingKeys": "did:a#1"}),
        final({"uri": URI, "routingKeys": [7]}),
        final({"uri": URI, "routingKeys": [""]}),
        final({"uri": URI, "routingKeys": ["did:a#1"] * (ROUTING_KEYS_MAX + 1)}),
        final({"uri": URI, "accept": ["x"] * (ACCEPT_MAX + 1)}),
        final({"uri": URI, "accept": {"didcomm/v2": 1}}),
        v1(recipientKeys=None),
        v1(recipientKeys=[]),
        v1(recipientKeys=[VERKEY[:-1]]),
        v1(recipientKeys=["#key-2"]),
        v1(recipientKeys=["#key-3"]),
        v1(recipientKeys=["did:example:eve#key-1"]),
        v1(recipientKeys=["did:key:" + multikey(AGREEMENT)]),
        v1(recipientKeys=[base58(bytes(32))]),
        v1(routingKeys=["0"]),
        {"type": "LinkedDomains", "serviceEndpoint": URI},
    ],
)
def test_malformed_services_are_skipped_individually(service: Json) -> None:
    """Dropping one routing key would bypass its mediator, so the whole route is dropped."""
    assert routes(document(service, final(URI))) == (Route(URI, (), V2, "final"),)


def test_numbers_of_routes_and_services_are_limited() -> None:
    many = [{"uri": URI}] * (ROUTES_MAX + 5)
    assert len(routes(document(*[final(many)] * SERVICES_MAX))) == ROUTES_MAX
    assert routes(document()) == ()


def test_a_verkey_has_three_spellings() -> None:
    for text in (VERKEY, DID_KEY, f"{DID_KEY}#{DID_KEY[8:]}"):
        assert verkey(text) == SIGNING
    for text in ("", DID_KEY + "#" + OTHER_DID_KEY[8:], did_key_of(AGREEMENT), "did:key:", "1" * 32, "é", VERKEY + "1"):
        with pytest.raises(Malformed):
            verkey(text)


# --- mediators ------------------------------------------------------------------------------------------------------


def mediator(*services: Json, keys: list[PublicKey] | None = None) -> Document:
    return resolve(peer2([SIGNING], [AGREEMENT] if keys is None else keys, services))


def test_a_route_without_a_mediators_did_is_deliverable_as_it_is() -> None:
    route = Route(URI, ("did:a#1",), V2, "final")
    assert deliverable(route, resolve) is route


@pytest.mark.parametrize(
    ("order", "expected"),
    [("final", ["did:m#1", "KEY", "did:a#1", "did:b#1"]), ("draft", ["did:a#1", "did:b#1", "KEY", "did:m#1"])],
)
def test_a_mediators_key_is_the_outermost(order: Any, expected: list[str]) -> None:
    """Except those that the mediator itself requires, at the outermost end of the route's order."""
    between = mediator(final({"uri": URI, "routingKeys": ["did:m#1"]}), final({"uri": URI + "/2"}))
    route = Route(between.did, ("did:a#1", "did:b#1"), ("x",), order, ("r",))
    found = deliverable(route, resolve)
    kid = between.agreement[0].kid
    assert found == Route(URI, tuple(kid if key == "KEY" else key for key in expected), ("x",), order, ("r",))
    assert [way.uri for way in deliverables(route, resolve)] == [URI, URI + "/2"]


def test_a_mediators_own_service_may_be_of_the_draft() -> None:
    between = mediator({"type": "DIDComm", "serviceEndpoint": URI, "routingKeys": ["did:m#1", "did:m#2"]})
    found = deliverable(Route(between.did, (), V2, "final"), resolve)
    assert found.routing_keys == ("did:m#2", "did:m#1", between.agreement[0].kid)


@pytest.mark.parametrize(
    "between",
    [
        mediator(),
        mediator(final({"uri": "did:example:another"})),
        mediator(v1()),
        mediator(final({"uri": URI}), keys=[]),
        mediator(final({"uri": URI, "routingKeys": ["did:m#1"] * ROUTING_KEYS_MAX})),
    ],
)
def test_a_mediator_that_leads_nowhere_is_malformed(between: Document) -> None:
    with pytest.raises(Malformed):
        deliverable(Route(between.did, (), V2, "final"), resolve)
    with pytest.raises(Malformed):
        deliverable(Route("did:example:unknown", (), V2, "final"), resolve)
