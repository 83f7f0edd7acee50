"""The mediator's side of mediation by key: Aries RFC 0211, 0212 and 0685, in DIDComm v1 and v2 envelopes."""

import json

import pytest

from tests.support import mediator_site
from tests.support.mediator_site import INVITATION, URI, Client, Site, forwarded, letter, random
from tests.support.v1_recipient import MEDIATION, PICKUP_1, PICKUP_2, V1, V1Recipient, parsed, verkey_of
from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.outcomes import Outcome
from zerochat.crypto.encoding import b64url, b64url_bytes, base58
from zerochat.crypto.keys import PublicKey
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import did_key_of, new_peer2, resolve
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.protocols import didexchange, mediation, mediation_client, pickup, problem, routing
from zerochat.didcomm.protocols.mediation import Change
from zerochat.didcomm.protocols.pickup import Parcel
from zerochat.didcomm.service import Route, routes

path, site = mediator_site.path, mediator_site.site

JWE = PACKERS["didcomm/v2"]


@pytest.fixture
def alice(site: Site) -> V1Recipient:
    return V1Recipient(site).connect()


def code(report: dict[str, object]) -> object:
    assert str(report["@type"]).endswith(("/problem-report", "/problem_report"))
    described = report["description"]
    assert isinstance(described, dict)
    return described["code"]


# --- the exchange, and who is admitted ------------------------------------------------------------------------------


def test_the_exchange_gives_a_did_that_the_invitation_signs(site):
    alice = V1Recipient(site)
    key = PublicKey("Ed25519", site.identity.signing_public)
    requester, _ = didexchange.request(alice.identity.did, "Alice", [key], random, pthid=INVITATION)
    requester = didexchange.Requester("1.1", "exchange", INVITATION, requester.did, (key,))
    done, _ = didexchange.receive_response(requester, parsed(alice.exchange()), key, random)
    assert done.peer is not None
    found = routes(resolve(done.peer.did))
    assert [(route.uri, route.recipient_keys, route.takes("didcomm/v1")) for route in found] == [
        (URI, (did_key_of(key),), True)
    ]
    complete = alice.hear(alice.plain(f"{didexchange.PROTOCOLS['1.1']}/complete", **{"~thread": {"thid": "exchange"}}))
    assert complete == Outcome("processed"), "nothing is to be answered"
    again = parsed(alice.exchange())
    assert didexchange.receive_response(requester, again, key, random)[0].peer == done.peer
    assert site.store.recipients() == 1, "a repeated request takes no other seat"


def test_only_the_invited_are_admitted(site):
    alice = V1Recipient(site)
    assert code(alice.exchange("another-invitation")) == "request_not_accepted"
    assert alice.ask(f"{MEDIATION}/mediate-request")["@type"] == f"{MEDIATION}/mediate-deny"
    refused = alice.ask(f"{MEDIATION}/keylist-update", updates=[{"recipient_key": "x", "action": "add"}])
    assert (refused["@type"], code(refused)) == (f"{MEDIATION}/problem-report", "mediation_not_granted")
    assert code(alice.ask(f"{PICKUP_2}/status-request")) == "e.p.req"
    assert alice.tell("https://example.org/unknown/1.0/message") is None, "no report to strangers"
    assert site.store.recipients() == 0
    assert alice.exchange()["@type"] == didexchange.RESPONSE


def test_exchanges_take_the_seats_of_the_invitation(path):
    site = Site(path, Limits(seats_burst=3))
    found = [V1Recipient(site).exchange()["@type"] for _ in range(5)]
    assert found == [didexchange.RESPONSE] * 3 + [f"{didexchange.PROTOCOLS['1.1']}/problem_report"] * 2
    site.now += Limits().unused_idle_s * 1000
    with site.store.transaction():
        site.mediator.sweep(site.now // 1000)
    assert site.store.recipients() == 0, "seats without use are free again"
    site.store.close()


def test_a_forged_exchange_takes_no_seat(site):
    alice, eve = V1Recipient(site), V1Recipient(site)
    thread = {"thid": "exchange", "pthid": INVITATION}
    stolen = eve.plain(f"{didexchange.PROTOCOLS['1.1']}/request", did=alice.identity.did, **{"~thread": thread})
    assert eve.hear(stolen).what == "unreadable" and site.store.recipients() == 0


# --- mediation ------------------------------------------------------------------------------------------------------


def test_a_grant_has_the_address_and_the_key(site, alice):
    grant = alice.ask(f"{MEDIATION}/mediate-request")
    key = did_key_of(PublicKey("Ed25519", site.identity.signing_public))
    assert (grant["endpoint"], grant["routing_keys"]) == (URI, [key])


def test_keys_are_registered_in_any_form(alice):
    """As did:key, as a reference to its key, and in base58: one key each time, named as it was."""
    base, did = verkey_of(alice.key), did_key_of(PublicKey("Ed25519", alice.key.signing_public))
    reference = f"{did}#{did.removeprefix('did:key:')}"
    assert [alice.register(name) for name in (did, reference, base)] == ["no_change"] * 3
    assert [alice.register(name, "remove") for name in (reference, base)] == ["success", "no_change"]
    assert alice.register(reference) == "success"
    assert alice.ask(f"{MEDIATION}/keylist-query")["keys"] == [{"recipient_key": reference}]
    assert alice.register("not-base58-0OIl") == "client_error"


def test_a_list_in_pages(alice):
    keys = [did_key_of(PublicKey("Ed25519", new_peer2(random, []).signing_public)) for _ in range(5)]
    for key in keys:
        assert alice.register(key) == "success"
    listed = [verkey_of(alice.key), *keys]
    page = alice.ask(f"{MEDIATION}/keylist-query", paginate={"limit": 2, "offset": 1})
    assert [row["recipient_key"] for row in page["keys"]] == listed[1:3]
    assert page["pagination"] == {"count": 2, "offset": 1, "remaining": 3}
    whole = alice.ask(f"{MEDIATION}/keylist-query", filter={}, paginate={"limit": -1, "offset": 0})
    assert [row["recipient_key"] for row in whole["keys"]] == listed


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"updates": []},
        {"updates": "all"},
        {"updates": [{"recipient_key": 7, "action": "add"}]},
        {"updates": [{"action": "add"}]},
        {"updates": [{"recipient_key": "é", "action": "add"}]},
        {"updates": [{"recipient_key": "a", "action": "steal"}]},
        {"updates": [{"recipient_key": "a" * 40_000, "action": "add"}]},
        {"updates": [{"recipient_key": "a", "action": "add"}] * 65},
    ],
)
def test_a_malformed_update_gets_a_problem_report(site, alice, members):
    before = site.store.listing(1, 0, 10)
    report = alice.ask(f"{MEDIATION}/keylist-update", **members)
    assert code(report) == "e.m.msg" and site.mediator.counts["malformed"] == 1
    assert site.store.listing(1, 0, 10) == before
    bob = Client(site).connect()
    message = Message(f"{MEDIATION}/keylist-update", "m", members, return_route="all")
    assert problem.read_problem(bob.ask(message)).code == "e.m.msg", "in a v2 envelope likewise"


def test_malformed_updates_are_charged(path):
    site = Site(path, Limits(requests_burst=20, requests_per_s=0))
    alice = V1Recipient(site).connect()
    answers = [alice.tell(f"{MEDIATION}/keylist-update", updates=[]) for _ in range(40)]
    assert 10 < sum(answer is not None for answer in answers) < 20
    site.store.close()


def test_a_problem_report_is_not_answered(alice):
    report = {"description": {"code": "message-parse-failure", "en": "no"}}
    assert alice.tell("https://didcomm.org/notification/1.0/problem-report", **report) is None
    assert alice.tell("https://didcomm.org/report-problem/1.0/problem-report", **report) is None


def test_the_key_of_another_recipient_is_refused(site, alice):
    eve = V1Recipient(site).connect()
    assert eve.register(verkey_of(alice.key)) == "client_error"
    assert eve.register(verkey_of(alice.key), "remove") == "no_change"
    assert eve.register(base58(site.identity.signing_public)) == "client_error", "the mediator's own key"


def test_keys_are_limited(path):
    site = Site(path, Limits(dids=3))
    alice = V1Recipient(site).connect()
    results = [alice.register(verkey_of(new_peer2(random, []))) for _ in range(4)]
    assert results == ["success", "success", "client_error", "client_error"]
    site.store.close()


# --- pickup ---------------------------------------------------------------------------------------------------------


def test_pickup_2_repeats_until_it_is_acknowledged(site, alice):
    sent = [alice.forward(text) for text in ("one", "two")]
    assert [site.hear(forward).what for _, forward in sent] == ["kept", "kept"]
    status = alice.ask(f"{PICKUP_2}/status-request", recipient_key=verkey_of(alice.key))
    assert (status["message_count"], status["recipient_key"]) == (2, verkey_of(alice.key))
    assert status["oldest_received_time"] == "2027-01-15T08:00:00Z"
    alice.session = site.session(stays=False)
    deliveries = [alice.ask(f"{PICKUP_2}/delivery-request", limit=10) for _ in range(2)]
    for delivery in deliveries:
        assert delivery["@type"] == f"{PICKUP_2}/delivery"
        bodies = [b64url_bytes(attachment["data"]["base64"]) for attachment in delivery["~attach"]]
        assert bodies == [envelope for envelope, _ in sent]
    ids = [attachment["@id"] for attachment in deliveries[0]["~attach"]]
    assert alice.ask(f"{PICKUP_2}/messages-received", message_id_list=ids)["message_count"] == 0
    empty = alice.ask(f"{PICKUP_2}/delivery-request", limit=10)
    assert (empty["@type"], empty["message_count"]) == (f"{PICKUP_2}/status", 0)


def test_pickup_1_delivers_once(site, alice):
    sent = [alice.forward(str(number)) for number in range(5)]
    for _, forward in sent:
        assert site.hear(forward).what == "kept"
    asked = alice.plain(f"{PICKUP_1}/batch-pickup", batch_size=2)
    answer = alice.hear(asked).answer
    assert answer is not None
    batch = alice.read(answer)
    assert [row["message"] for row in batch["messages~attach"]] == [json.loads(letter) for letter, _ in sent[:2]]
    assert alice.hear(asked).answer is None, "a replay deletes nothing"
    status = alice.ask(f"{PICKUP_1}/status-request")
    assert status["message_count"] == 3 and "duration_waited" in status and "live_delivery" not in status
    noop = alice.hear(alice.plain(f"{PICKUP_1}/noop")).answer
    assert noop == sent[2][0], "the next envelope itself"
    fetched = alice.ask(f"{PICKUP_2}/delivery-request", limit=10)["~attach"]
    ids = [attachment["@id"] for attachment in fetched]
    picked = alice.ask(f"{PICKUP_1}/list-pickup", message_ids=[ids[1], "unknown"])
    assert picked["@type"] == f"{PICKUP_1}/list-response"
    assert [row["@id"] for row in picked["messages~attach"]] == [ids[1]]
    assert len(alice.ask(f"{PICKUP_1}/batch-pickup", batch_size=10)["messages~attach"]) == 1
    assert alice.ask(f"{PICKUP_1}/batch-pickup", batch_size=10)["messages~attach"] == []
    assert alice.tell(f"{PICKUP_1}/noop") is None


def test_pickup_1_delivers_all_that_grows_on_the_way(site, alice):
    """Fractions that are longer when they are encoded again: fewer envelopes are in one batch, and all arrive."""
    outer = JWE.their_key(resolve(site.identity.did), site.identity.did)
    for number in range(24):
        evil = alice.letter(f"{number}").decode().removesuffix("}") + f',"x":[{",".join(["1E15"] * 1_000)}]}}'
        attached = (Attachment(base64=b64url(evil.encode())),)
        message = Message(routing.FORWARD, "f", {"next": verkey_of(alice.key)}, attachments=attached)
        assert site.hear(JWE.anoncrypt(JWE.dump(message), recipient=outer, random=random)).what == "kept"
    batches = [alice.ask(f"{PICKUP_1}/batch-pickup", batch_size=100)["messages~attach"] for _ in range(4)]
    assert 0 < len(batches[0]) < 24 and sum(map(len, batches)) == 24 and batches[-1] == []


@pytest.mark.parametrize("version", ["2.0", "3.0", "4.0"])
def test_live_mode(site, alice, version):
    protocol = pickup.VOCABULARIES[version].protocol
    assert alice.ask(f"{protocol}/live-delivery-change", live_delivery=True)["live_delivery"] is True
    sent, forward = alice.forward("now")
    assert site.hear(forward).what == "kept"
    [delivery] = alice.pushed()
    assert delivery["@type"] == f"{protocol}/delivery" and "~thread" not in delivery
    [attachment] = delivery["~attach"]
    assert b64url_bytes(attachment["data"]["base64"]) == sent
    alice.tell(f"{protocol}/messages-received", message_id_list=[attachment["@id"]])
    assert site.store.usage.total.messages == 0


def test_live_mode_needs_a_connection_that_stays(site, alice):
    alice.session = site.session(stays=False)
    report = alice.ask(f"{PICKUP_2}/live-delivery-change", live_delivery=True)
    assert code(report) == "e.m.live-mode-not-supported"


def test_pickup_4_answers_with_an_empty_delivery(site, alice):
    protocol = pickup.VOCABULARIES["4.0"].protocol
    empty = alice.ask(f"{protocol}/delivery-request", message_count_limit=10)
    assert empty["@type"] == f"{protocol}/delivery" and "~attach" not in empty


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("2.0/delivery-request", {"limit": 0}),
        ("2.0/delivery-request", {}),
        ("2.0/delivery-request", {"limit": 1, "recipient_key": {}}),
        ("2.0/messages-received", {"message_id_list": ["x"] * 1_025}),
        ("2.0/live-delivery-change", {"live_delivery": "yes"}),
        ("2.0/status-request", {"recipient_key": "0OIl"}),
        ("1.0/batch-pickup", {"batch_size": -1}),
        ("1.0/batch-pickup", {"limit": 5}),
        ("1.0/list-pickup", {"message_ids": [1]}),
    ],
)
def test_a_malformed_pickup_gets_a_problem_report(site, alice, name, members):
    site.hear(alice.forward("kept")[1])
    assert code(alice.ask(f"https://didcomm.org/messagepickup/{name}", **members)) == "e.m.msg"
    assert site.store.usage.total.messages == 1


# --- recipients that cannot fetch -----------------------------------------------------------------------------------


def test_a_recipient_with_an_address_gets_the_envelopes_there(site):
    """As ACA-Py does, which has no pickup: its own DID has an endpoint, its keys have none."""
    alice = V1Recipient(site, ENDPOINT).connect()
    sent, forward = alice.forward("to you")
    assert site.hear(forward).what == "relayed"
    [dispatch] = site.due()
    assert (dispatch.uri, dispatch.envelope) == ("https://acapy.example/in", sent)
    assert dispatch.media_type == V1.media_type


ENDPOINT = {"type": "did-communication", "recipientKeys": ["#key-1"], "serviceEndpoint": "https://acapy.example/in"}


def test_answers_go_to_the_address_of_a_recipient_that_has_one(site):
    """Agents with an endpoint do not request answers on the same connection."""
    alice = V1Recipient(site, ENDPOINT, stays=False)
    alice.returns = False
    thread = {"thid": "exchange", "pthid": INVITATION}
    request = alice.plain(f"{didexchange.PROTOCOLS['1.1']}/request", did=alice.identity.did, **{"~thread": thread})
    for plain, kind in (
        (request, didexchange.RESPONSE),
        (alice.plain(f"{MEDIATION}/mediate-request"), f"{MEDIATION}/mediate-grant"),
    ):
        outcome = alice.hear(plain)
        assert outcome.answer is None and outcome.post is not None
        assert (outcome.post.uri, outcome.post.media_type) == ("https://acapy.example/in", V1.media_type)
        assert alice.read(outcome.post.envelope)["@type"] == kind


def test_answers_to_an_address_are_charged(path):
    """It may be that of another host: what goes there is a fraction of what an own connection may carry."""
    site = Site(path, Limits(requests_burst=100, requests_per_s=0))
    alice = V1Recipient(site, ENDPOINT, stays=False).connect()
    alice.returns = False
    outcomes = [alice.hear(alice.plain(f"{PICKUP_2}/status-request")) for _ in range(100)]
    assert sum(outcome.post is not None for outcome in outcomes) == 5
    site.store.close()


def test_strangers_and_refused_ones_are_not_called(site):
    alice = V1Recipient(site, ENDPOINT, stays=False)
    alice.returns = False
    thread = {"thid": "exchange", "pthid": "another-invitation"}
    refused = alice.plain(f"{didexchange.PROTOCOLS['1.1']}/request", did=alice.identity.did, **{"~thread": thread})
    for plain in (refused, alice.plain(f"{MEDIATION}/mediate-request"), alice.plain(f"{PICKUP_2}/status-request")):
        assert alice.hear(plain).post is None


@pytest.mark.parametrize("name", ["batch-pickup", "noop", "list-pickup"])
def test_nothing_is_deleted_that_cannot_be_returned(site, alice, name):
    site.hear(alice.forward("kept")[1])
    alice.session, alice.returns = site.session(stays=False), False
    assert alice.hear(alice.plain(f"{PICKUP_1}/{name}", batch_size=5, message_ids=[])).answer is None
    assert site.store.usage.total.messages == 1


@pytest.mark.parametrize("uri", ["didcomm:transport/queue", "ftp://files.example", URI])
def test_others_fetch(site, uri):
    service = {"type": "did-communication", "recipientKeys": ["#key-1"], "serviceEndpoint": uri}
    alice = V1Recipient(site, service).connect()
    assert site.hear(alice.forward("to you")[1]).what == "kept"


# --- both generations -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["didcomm/v1", "didcomm/v2"])
def test_forwards_to_a_key_in_both_envelope_formats(site, alice, form):
    """A sender that knows only endpoint, routing key and the recipient's key."""
    grant = mediation.read_grant(parsed(alice.ask(f"{MEDIATION}/mediate-request")))
    route = Route(grant.endpoint, grant.routing, (), "draft")
    key = did_key_of(PublicKey("Ed25519", alice.key.signing_public))
    wrapped = routing.wrap(alice.letter("hi"), route, key, resolve=resolve, random=random, profile=form)
    assert site.hear(wrapped).what == "kept"
    assert len(alice.ask(f"{PICKUP_1}/batch-pickup", batch_size=10)["messages~attach"]) == 1


@pytest.mark.parametrize("version", pickup.VERSIONS)
def test_mediation_by_key_in_v2_envelopes(site, version):
    """Version 1.0 of mediation with any pickup, between agents that use JWE."""
    bob = Client(site)
    asked = mediation.request(random, pthid=INVITATION, version="1.0")
    assert mediation.read_grant(bob.ask(asked)).endpoint == URI
    bob.ask(mediation.update([Change(bob.mailbox.did, "add")], random, version="1.0"))
    assert site.hear(forwarded(site, bob.mailbox, "x")).what == "kept"
    delivery = bob.ask(pickup.delivery_request(random, version=version))
    assert pickup.wire_of(delivery) == (version, "delivery")
    [parcel] = pickup.read_delivery(delivery)
    assert isinstance(parcel, Parcel) and b"recipients" in parcel.envelope


def test_a_recipient_of_each_generation(site, alice):
    bob = Client(site).connect()
    site.hear(forwarded(site, bob.mailbox, "for bob"))
    site.hear(alice.forward("for alice")[1])
    assert len(alice.ask(f"{PICKUP_1}/batch-pickup", batch_size=10)["messages~attach"]) == 1
    bob.say(mediation_client.poll(bob.state, random))
    assert len(bob.got) == 1
    mixed = letter(bob.mailbox, "v2 inside of v1")
    forward = routing.forward(mixed, verkey_of(bob.mailbox), to=None, random=random, profile="didcomm/v1")
    assert site.hear(V1.anoncrypt(forward, recipient=alice.mediator, random=random)).what == "kept"
