"""Forwards: every mediator of a route opens exactly its layer, in the service type's order."""

import json
from dataclasses import dataclass
from random import Random

import pytest
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import PublicKey, SecretKey
from zerochat.crypto.primitives import ed25519_to_x25519_secret
from zerochat.didcomm.did import Identity, did_key_of, new_peer2, new_peer4, resolve
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message, parse
from zerochat.didcomm.packer import PACKERS, Profile
from zerochat.didcomm.protocols import mixing, routing
from zerochat.didcomm.protocols.mixing import Mix
from zerochat.didcomm.protocols.routing import FORWARD, FORWARD_V1, Forward
from zerochat.didcomm.service import Route, deliverables, routes
from zerochat.errors import Malformed, RemoteError, Unauthentic

random = Random(8).randbytes
V2 = PACKERS["didcomm/v2"]
V1 = PACKERS["didcomm/v1"]


def identity(*services: dict[str, object]) -> Identity:
    return new_peer2(random, services)


def service(uri: str, *routing_keys: str, **more: object) -> dict[str, object]:
    return {"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": uri, "routingKeys": [*routing_keys]}}


def secret_of(owner: Identity):
    """The secrets of an identity under every name that a layer may give its key."""

    def find(kid: str) -> SecretKey | None:
        if kid == V1.own_key(owner, owner.did).kid:
            return SecretKey("Ed25519", owner.signing_seed)
        if kid.startswith(did_key_of(PublicKey("Ed25519", owner.signing_public))):
            return SecretKey("X25519", ed25519_to_x25519_secret(owner.signing_seed))
        return SecretKey("X25519", owner.agreement_secret) if kid in (owner.kid_long, owner.kid_short) else None

    return find


def nobody(kid: str) -> PublicKey:
    raise Unauthentic()


def peel(envelope: bytes, owner: Identity, profile: Profile = "didcomm/v2") -> Forward:
    plain = PACKERS[profile].unpack(envelope, secret_of=secret_of(owner), public_of=nobody).plain
    found = routing.forward_in(plain)
    assert found is not None
    return found


@pytest.fixture
def message() -> Message:
    return Message(type="https://example.org/chat/1.0/post", id="m1", body={"text": "naïve – 日本語 ✓"})


def sealed(message: Message, recipient: Identity, profile: Profile = "didcomm/v2") -> bytes:
    packer = PACKERS[profile]
    key = packer.their_key(resolve(recipient.did), recipient.did)
    return packer.anoncrypt(packer.dump(message), recipient=key, random=random)


@pytest.mark.parametrize("profile", ["didcomm/v2", "didcomm/v1"])
@pytest.mark.parametrize("order", ["final", "draft"])
@pytest.mark.parametrize("count", [0, 1, 2, 3])
def test_the_onion(order, count, profile, message):
    """The final specification has the first routing key outermost, the draft and v1 the last one."""
    bob, mediators = identity(), [identity() for _ in range(count)]
    keys = tuple(each.did for each in mediators)
    envelope = sealed(message, bob, profile)
    wrapped = routing.wrap(
        envelope,
        Route("https://m.example", keys, (profile,), order),
        bob.did,
        resolve=resolve,
        random=random,
        profile=profile,
        expires_time=99,
        delay_milli=-5,
    )
    way = mediators if order == "final" else mediators[::-1]
    for number, mediator in enumerate(way):
        for other in {*mediators, bob} - {mediator}:
            with pytest.raises(RemoteError):
                peel(wrapped, other, profile)
        found = peel(wrapped, mediator, profile)
        following = way[number + 1] if number + 1 < count else bob
        verkey = V1.own_key(following, following.did).kid
        assert found.next == (following.did if profile == "didcomm/v2" else verkey)
        assert found.expires_time == 99
        assert found.delay_milli == (-5 if following is bob else None)
        [wrapped] = found.envelopes
    assert json.loads(wrapped) == json.loads(envelope)


def test_a_mediator_named_by_its_did_is_outermost():
    """With one routing key and a mediator's DID as the address: "Using a DID as an endpoint", example 2."""
    outer, inner = identity(service("https://outer.example")), identity()
    bob = identity(service(outer.did, inner.did))
    [way] = deliverables(routes(resolve(bob.did))[0], resolve)
    assert way.uri == "https://outer.example"
    wrapped = routing.wrap(sealed(Message("x/y/1.0/z", "1"), bob), way, bob.did, resolve=resolve, random=random)
    first = peel(wrapped, outer)
    assert first.next == inner.did
    assert peel(first.envelopes[0], inner).next == bob.did


def test_names_are_as_short_as_they_can_be():
    """A did:peer:4 is named by its short form, as recipient and as routing key, and key ids stay key ids."""
    mediator, bob = new_peer4(random, []), new_peer4(random, [])
    other = identity()
    route = Route("https://m.example", (other.did, mediator.did + "#key-2"), (), "final")
    outer = peel(
        routing.wrap(sealed(Message("x/y/1.0/z", "1"), bob), route, bob.did, resolve=resolve, random=random), other
    )
    assert outer.next == mediator.kid_short
    assert peel(outer.envelopes[0], mediator).next == bob.short


def test_a_bare_verkey_routes_in_v2_too():
    mediator, bob = identity(), identity()
    verkey = V1.own_key(mediator, mediator.did).kid
    route = Route("https://m.example", (verkey,), (), "draft")
    wrapped = routing.wrap(sealed(Message("x/y/1.0/z", "1"), bob), route, bob.did, resolve=resolve, random=random)
    assert peel(wrapped, mediator).next == bob.did


def test_unwrappable_routes_are_refused():
    bob = identity()
    envelope = sealed(Message("x/y/1.0/z", "1"), bob)
    for keys in [("did:example:nobody#key",), ("notakey",), tuple(identity().did for _ in range(9))]:
        with pytest.raises(Malformed):
            routing.wrap(envelope, Route("", keys, (), "final"), bob.did, resolve=resolve, random=random)
    large = sealed(Message("x/y/1.0/z", "1", {"text": "x" * (MESSAGE_BYTES_MAX - 200)}), bob)
    with pytest.raises(Malformed):
        routing.wrap(large, Route("", (identity().did,), (), "final"), bob.did, resolve=resolve, random=random)


# --- reading --------------------------------------------------------------------------------------------------------


ENVELOPE = json.loads(sealed(Message("x/y/1.0/z", "1"), identity()))
TEXT = b64url(json.dumps(ENVELOPE).encode())


@pytest.mark.parametrize(
    "tree",
    [
        {"id": "1", "type": FORWARD, "body": {"next": "did:example:b"}, "attachments": [{"data": {"json": ENVELOPE}}]},
        {"id": "1", "type": FORWARD, "body": {"next": "did:example:b"}, "attachments": [{"data": {"base64": TEXT}}]},
        {"@type": FORWARD, "to": "did:example:b", "payloads~attach": [{"data": {"json": ENVELOPE}}]},
        {"@type": FORWARD, "@id": "1", "to": "did:example:b", "payloads~attach": [{"data": {"base64": TEXT}}]},
        {"@type": FORWARD_V1, "to": "did:example:b", "msg": ENVELOPE},
        {"@type": FORWARD_V1.replace("https://didcomm.org/", "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/"),
         "to": "did:example:b", "msg": json.dumps(ENVELOPE)},
    ],
    ids=["final", "final base64", "draft", "draft base64", "v1", "v1 text"],
)  # fmt: skip
def test_every_spelling_is_read(tree):
    found = routing.forward_in(json.dumps(tree).encode())
    assert found is not None
    assert found.next == "did:example:b"
    assert [json.loads(each) for each in found.envelopes] == [ENVELOPE]


def test_timing_options_of_the_draft():
    tree = {
        "@type": FORWARD,
        "to": "did:example:b",
        "payloads~attach": [{"data": {"json": ENVELOPE}}],
        "~timing": {
            "delay_milli": 12345,
            "wait_until_time": "2020-03-25T00:00:00Z",
            "expires_time": "2020-03-27T18:25:00Z",
        },
        "mix": {"hop_chance": 0.8, "hop_decay": 1, "noise_chance": 0.5},
    }
    found = routing.forward_in(json.dumps(tree).encode())
    assert found is not None
    assert found.expires_time == 1585333500 and found.not_before == 1585094400 and found.delay_milli == 12345
    assert found.mix == Mix(0.8, 0.99, 0.5), "a decay that does not decay is brought down"
    early, late = 1585000000_000, 1586000000_000
    assert routing.ready_at(found, early, random) == 1585094400_000, "the later of the two"
    assert routing.ready_at(found, late, random) == late + 12345


def forwarding(**changes: object) -> dict[str, object]:
    return {
        "id": "1", "type": FORWARD, "body": {"next": "did:example:b"}, "attachments": [{"data": {"json": ENVELOPE}}]
    } | changes  # fmt: skip


@pytest.mark.parametrize(
    "tree",
    [
        forwarding(body={}),
        forwarding(body={"next": ""}),
        forwarding(body={"next": 7}),
        forwarding(body={"next": "d" * 9000}),
        forwarding(attachments=[]),
        forwarding(attachments=[{"data": {"json": ENVELOPE}}] * 17),
        forwarding(attachments=[{"data": {"links": ["http://169.254.169.254/"], "hash": "zQm"}}]),
        forwarding(attachments=[{"data": {"json": {"id": "1", "type": "x/y/1.0/plain"}}}]),
        forwarding(attachments=[{"data": {"base64": "bm90IGFuIGVudmVsb3Bl"}}]),
        forwarding(body={"next": "did:example:b", "org.zerochat.mix": {"hop_chance": 2}}),
        {"@type": FORWARD_V1, "to": "did:example:b"},
        {"@type": FORWARD_V1, "to": "did:example:b", "msg": [1]},
        {"@type": FORWARD, "to": "did:example:b", "payloads~attach": [{"data": {"links": ["http://127.0.0.1"]}}]},
        {"@type": FORWARD, "to": "did:example:b", "payloads~attach": [{"data": {"json": ENVELOPE}}] * 17},
    ],
)
def test_invalid_forwards_are_refused(tree):
    """A payload must be an inline envelope: mediators fetch nothing."""
    with pytest.raises(RemoteError):
        routing.forward_in(json.dumps(tree).encode())


def test_other_messages_are_no_forwards():
    assert routing.forward_in(b'{"id":"1","type":"https://didcomm.org/trust-ping/2.0/ping","body":{}}') is None
    assert routing.forward_in(b'{"@id":"1","@type":"https://didcomm.org/trust_ping/1.0/ping"}') is None


def test_please_ack_is_never_written_and_never_read():
    plain = routing.forward(b"{}", "did:example:b", to="did:example:m", random=random)
    assert b"please_ack" not in plain
    found = routing.read_forward(parse(json.dumps(forwarding(please_ack=[""])).encode()))
    assert not hasattr(found, "please_ack")


# --- rewrapping, delays, detours ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    message: Message


def test_forwards_to_oneself_are_unwrapped(message):
    bob = identity()

    def opened(envelope: bytes) -> Opened:
        return Opened(V2.parse(V2.unpack(envelope, secret_of=secret_of(bob), public_of=nobody).plain))

    def wrapped(times: int) -> bytes:
        envelope = sealed(message, bob)
        for _ in range(times):
            envelope = routing.rewrap(envelope, bob.did, resolve=resolve, random=random, noise=100)
        return envelope

    for times in (0, 1, 5):
        assert [each.message for each in routing.open_through(wrapped(times), opened, {bob.did}.__contains__)] == [
            message
        ]
    with pytest.raises(Malformed):
        routing.open_through(wrapped(6), opened, {bob.did}.__contains__)
    [outer] = routing.open_through(wrapped(1), opened, lambda name: False)
    assert routing.is_forward(outer.message), "a forward for somebody else is a message like any other"


def test_noise_changes_the_size():
    bob = identity()
    envelope = sealed(Message("x/y/1.0/z", "1"), bob)
    sizes = {len(routing.rewrap(envelope, bob.did, resolve=resolve, random=random, noise=n)) for n in (0, 300, 3000)}
    assert len(sizes) == 3 and max(sizes) - min(sizes) > 2500


def test_a_negative_delay_is_any_up_to_its_amount():
    wish = Forward("did:example:b", (b"",), delay_milli=-9)
    assert {routing.delay(wish, random) for _ in range(500)} == set(range(10))
    assert routing.delay(replace(wish, delay_milli=9), random) == 9
    assert routing.delay(replace(wish, delay_milli=None), random) == 0
    assert routing.delay(replace(wish, delay_milli=2**53), random) == routing.DELAY_MS_MAX


def test_detours_end():
    nodes = ["did:example:m1", "did:example:m2"]
    lengths = []
    for _ in range(300):
        wish = Mix(1.0, 0.9, 0.5)
        length = 0
        while found := mixing.detour(wish, nodes, random):
            assert found.via in nodes and found.mix.hop_chance < wish.hop_chance
            assert 0 <= found.noise <= mixing.NOISE_BYTES_MAX
            wish, length = found.mix, length + 1
        lengths.append(length)
    assert min(lengths) >= 1 and max(lengths) < 40
    assert mixing.detour(None, nodes, random) is None
    assert mixing.detour(Mix(1.0), [], random) is None
    assert mixing.detour(Mix(0.0), nodes, random) is None
    assert mixing.detour(Mix(1.0, noise_chance=0.0), nodes, random).noise == 0
    assert mixing.detour(Mix(1.0), nodes, random, noise_chance=1.0).noise > 0
