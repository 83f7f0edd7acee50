"""Mediation and pickup: messages round-trip, and the recipient's state machine tolerates faults."""

from random import Random

import pytest
from msgspec import msgpack
from msgspec.structs import replace

from zerochat.agent.mediator.registry import canonical
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import new_peer4, resolve
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message, dump, parse
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.protocols import mediation, mediation_client, pickup
from zerochat.didcomm.protocols.mediation import Change, Changed, Grant, Listed, Page
from zerochat.didcomm.protocols.mediation_client import UNACKNOWLEDGED_MAX, MediationState, MediationStep
from zerochat.didcomm.protocols.pickup import Parcel, Waiting
from zerochat.didcomm.v1 import dump_v1, parse_v1
from zerochat.errors import Malformed

random = Random(9).randbytes
DID = "did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH"
BOB = new_peer4(random, [])
MEDIATOR = "did:peer:2.mediator"
ENVELOPE = PACKERS["didcomm/v2"].anoncrypt(
    b"{}", recipient=PACKERS["didcomm/v2"].their_key(resolve(BOB.did), BOB.did), random=random
)


def over(message: Message) -> Message:
    """The message after an encryption round trip."""
    return parse(dump(message))


def over_v1(message: Message) -> Message:
    return parse_v1(dump_v1(message))


def written(text: str) -> Message:
    """A message of DIDComm v1, as another implementation writes it."""
    return parse_v1(text.encode())


# --- mediation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [over, over_v1])
@pytest.mark.parametrize("version", mediation.VERSIONS)
def test_mediation_there_and_back(version, over):
    asked = over(mediation.request(random, pthid="invitation", version=version))
    assert (asked.pthid, asked.return_route) == ("invitation", "all")
    assert mediation.kind_of(asked) == (version, "request")
    at = Grant((DID,), "http://mediator.example")
    granted = over(mediation.grant(asked, "did:example:m", random, at))
    assert mediation.read_grant(granted) == (at if version == "1.0" else Grant(("did:example:m",)))
    assert granted.thid == asked.id
    assert mediation.kind_of(over(mediation.deny(asked, random))) == (version, "deny")

    changes = (Change(DID, "add"), Change("did:example:b", "remove"))
    update = over(mediation.update(changes, random, version=version))
    assert mediation.read_update(update) == changes
    changed = (Changed(DID, "add", "success"), Changed("did:example:b", "remove", "no_change"))
    assert mediation.read_update_response(over(mediation.update_response(update, changed, random))) == changed

    query = over(mediation.query(random, Page(30, 10), version=version))
    assert mediation.read_query(query) == Page(30, 10)
    listed = Listed((DID,), 30, 100)
    assert mediation.read_listing(over(mediation.listing(query, listed, random))) == listed


def test_the_messages_are_named_as_published():
    names = {uri.removeprefix(mediation.PROTOCOL) for uri in mediation._TYPES.values()}
    assert {"2.0/keylist-update-response", "2.0/keylist", "3.0/recipient-update", "3.0/recipient"} <= names
    assert mediation.grant(mediation.request(random, version="3.0"), "did:a:b", random).body == {
        "routing_did": ["did:a:b"]
    }


@pytest.mark.parametrize(
    ("read", "name", "body"),
    [
        (mediation.read_grant, "mediate-grant", {}),
        (mediation.read_grant, "mediate-grant", {"routing_did": []}),
        (mediation.read_grant, "mediate-deny", {"routing_did": "did:a:b"}),
        (mediation.read_update, "keylist-update", {"updates": []}),
        (mediation.read_update, "keylist-update", {"updates": [{"recipient_did": DID, "action": "steal"}]}),
        (mediation.read_update, "keylist-update", {"updates": [{"recipient_did": "é", "action": "add"}]}),
        (mediation.read_update, "keylist-update", {"updates": [{"recipient_did": DID, "action": "add"}] * 65}),
        (mediation.read_query, "keylist-query", {"paginate": {"limit": 0, "offset": 0}}),
        (mediation.read_query, "keylist-query", {"paginate": {"limit": 1, "offset": -1}}),
        (mediation.read_listing, "keylist", {"keys": [{"recipient_did": DID}] * 2000}),
    ],
)
def test_mediation_refuses(read, name, body):
    with pytest.raises(Malformed):
        read(Message(type=f"{mediation.PROTOCOL}2.0/{name}", id="1", body=body))


# --- as other implementations write version 1.0 ---------------------------------------------------------------------

MEDIATION_V1, PICKUP_V1 = mediation.PROTOCOL + "1.0", pickup.VOCABULARIES["1.0"].protocol
VERKEY = "B12NYF8RrR3h41TDCTJojY59usg3mbtbjnFs7Eud1Y6u"
"""That of DID."""


def test_updates_name_keys_in_every_form():
    """A did:key (RFC 0211), a reference to its key (ACA-Py), and base58 (before RFC 0360)."""
    reference = f"{DID}#{DID.removeprefix('did:key:')}"
    update = written(
        f"""{{"@type": "{MEDIATION_V1}/keylist-update", "@id": "9ec3b1e1-3bb5-4d6c-8a3d-2c9bd3d1a2c1",
        "updates": [{{"recipient_key": "{DID}", "action": "add"}}, {{"recipient_key": "{reference}", "action": "add"}},
        {{"recipient_key": "{VERKEY}", "action": "remove"}}], "~transport": {{"return_route": "all"}}}}"""
    )
    changes = mediation.read_update(update)
    assert changes == (Change(DID, "add"), Change(reference, "add"), Change(VERKEY, "remove"))
    assert {canonical(change.did) for change in changes} == {DID}
    answer = mediation.update_response(update, [Changed(change.did, "add", "success") for change in changes], random)
    named = [row["recipient_key"] for row in answer.body["updated"]]
    assert named == [DID, reference, VERKEY], "a recipient finds its keys as it has written them"


def test_a_query_without_a_limit():
    """ACA-Py writes -1, and a filter that no specification has."""
    query = written(
        f"""{{"@type": "{MEDIATION_V1}/keylist-query", "@id": "1", "filter": {{}},
        "paginate": {{"limit": -1, "offset": 0}}}}"""
    )
    assert mediation.read_query(query) == Page()
    answer = mediation.listing(query, Listed((VERKEY,), 0, 0), random)
    assert answer.body["keys"] == [{"recipient_key": VERKEY}] and answer.type == f"{MEDIATION_V1}/keylist"
    bare = written(f"""{{"@type": "{MEDIATION_V1}/keylist", "@id": "1", "keys": [{{"recipient_key": "{VERKEY}"}}]}}""")
    assert mediation.read_listing(bare) == Listed((VERKEY,))


@pytest.mark.parametrize("key", [VERKEY, DID, f"{DID}#{DID.removeprefix('did:key:')}"])
def test_a_grant_by_key(key):
    said = mediation_client.connected(
        MediationState(MEDIATOR, BOB.did, version="1.0", desired=frozenset({DID})), random
    )
    [request] = said.messages
    assert request.type == f"{MEDIATION_V1}/mediate-request"
    grant = written(
        f"""{{"@type": "did:sov:BzCbsNYhMrjHiqZDTUASHg;spec/coordinate-mediation/1.0/mediate-grant", "@id": "g",
        "~thread": {{"thid": "{request.id}"}}, "endpoint": "https://mediator.example", "routing_keys": ["{key}"]}}"""
    )
    said = mediation_client.receive(said.state, grant, random)
    assert (said.state.phase, said.state.endpoint) == ("granted", "https://mediator.example")
    assert said.state.routing_keys == (DID,) and said.state.routing_did is None
    kinds = [message.type.removeprefix("https://didcomm.org/") for message in said.messages]
    assert kinds == [
        "coordinate-mediation/1.0/keylist-update",
        "messagepickup/2.0/live-delivery-change",
        "messagepickup/2.0/delivery-request",
    ]
    row = f"""{{"recipient_key": "{VERKEY}", "action": "add", "result": "success"}}"""
    told = written(f"""{{"@type": "{MEDIATION_V1}/keylist-update-response", "@id": "u", "updated": [{row}]}}""")
    assert mediation_client.receive(said.state, told, random).state.registered == {DID}


@pytest.mark.parametrize(
    ("read", "name", "body"),
    [
        (mediation.read_grant, "mediate-grant", {"routing_did": "did:a:b"}),
        (mediation.read_grant, "mediate-grant", {"endpoint": "", "routing_keys": [DID]}),
        (mediation.read_grant, "mediate-grant", {"endpoint": "https://m.example", "routing_keys": [DID] * 9}),
        (mediation.read_grant, "mediate-grant", {"endpoint": "https://m.example", "routing_keys": [7]}),
        (mediation.read_update, "keylist-update", {"updates": [{"action": "add"}]}),
        (mediation.read_update, "keylist-update", {"updates": [{"recipient_key": "", "action": "add"}]}),
        (mediation.read_update, "keylist-update", {"updates": [{"recipient_key": VERKEY, "action": "add"}] * 65}),
        (mediation.read_query, "keylist-query", {"paginate": {"limit": -2, "offset": 0}}),
    ],
)
def test_mediation_by_key_refuses(read, name, body):
    with pytest.raises(Malformed):
        read(Message(type=f"{MEDIATION_V1}/{name}", id="1", body=body))


def test_status_and_delivery_of_pickup_2():
    """Times in ISO 8601, null for what is absent, envelopes as JSON with the time of their arrival (credo-ts)."""
    status = written(
        """{"@type": "https://didcomm.org/messagepickup/2.0/status", "@id": "s", "~thread": {"thid": "t"},
        "recipient_key": null, "message_count": 7, "longest_waited_seconds": 3600, "total_bytes": 8096,
        "newest_received_time": "2019-05-01 12:00:01Z", "oldest_received_time": "2019-05-01T12:00:00.000Z",
        "live_delivery": false}"""
    )
    assert pickup.read_status(status) == Waiting(7, 8096, 1556712000, 1556712001, False)
    delivery = written(
        """{"@type": "https://didcomm.org/messagepickup/2.0/delivery", "@id": "d", "~thread": {"thid": "r"},
        "~attach": [{"@id": "m1", "lastmod_time": "2023-10-31T12:00:00.000Z", "data": {"json": {"protected": "x"}}}]}"""
    )
    assert pickup.read_delivery(delivery) == (Parcel("m1", b'{"protected":"x"}'),)


@pytest.mark.parametrize("name", ["@id", "id"])
def test_a_batch_of_pickup_1(name):
    """The id of a message is `@id` in the specification and `id` in credo-ts; both are written."""
    batch = f"""{{"@type": "{PICKUP_V1}/batch", "@id": "b", "~thread": {{"thid": "t"}},
        "messages~attach": [{{"{name}": "06ca25f6", "message": {{"protected": "x"}}}}]}}"""
    assert pickup.read_delivery(written(batch)) == (Parcel("06ca25f6", b'{"protected":"x"}'),)
    with pytest.raises(Malformed):
        pickup.read_delivery(written(batch.replace(f'"{name}": "06ca25f6", ', "")))
    asked = written(f"""{{"@type": "{PICKUP_V1}/batch-pickup", "@id": "1", "batch_size": 10}}""")
    assert pickup.read_delivery_request(asked) == pickup.Wanted(10)
    made = pickup.delivery([Parcel("m", b'{"a": 1}')], random, version="1.0")
    row = {"@id": "m", "id": "m", "message": {"a": 1}}
    assert made.body == {"messages~attach": [row]} and not made.attachments
    assert pickup.kind_of(written(f"""{{"@type": "{PICKUP_V1}/noop", "@id": "1"}}""")) == "noop"


def test_pickup_4_counts_in_milliseconds():
    base = pickup.VOCABULARIES["4.0"].protocol
    status = Message(f"{base}/status", "1", {"message_count": 1, "oldest_received_time": 1739420343823})
    assert pickup.read_status(status) == Waiting(1, oldest=1739420343)
    asked = Message(f"{base}/delivery-request", "1", {"message_count_limit": 10})
    assert pickup.read_delivery_request(asked) == pickup.Wanted(10)
    told = pickup.status(asked, Waiting(1, oldest=100, newest=200), 150, random)
    assert told.body == {"message_count": 1, "oldest_received_time": 100_000, "newest_received_time": 200_000}


# --- pickup ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("carry", [over, over_v1])
@pytest.mark.parametrize("version", pickup.VERSIONS)
def test_pickup_there_and_back(version, carry):
    did = None if version == "1.0" else DID
    asked = carry(pickup.status_request(random, did, version=version))
    assert pickup.wire_of(asked) == (version, "status-request")
    assert pickup.read_status_request(asked) == did and asked.return_route == "all"
    told = carry(pickup.status(asked, Waiting(2, 99, 100, 200, True, did), 150, random))
    known = Waiting(2, 99, None, 200) if version == "1.0" else Waiting(2, 99, 100, 200, True, did)
    assert pickup.read_status(told) == known and told.thid == asked.id
    if version in ("2.0", "3.0"):
        assert told.body["longest_waited_seconds"] == 50

    wanted = carry(pickup.delivery_request(random, 3, did, version=version))
    assert pickup.read_delivery_request(wanted) == pickup.Wanted(3, did)
    parcels = (Parcel("a", ENVELOPE), Parcel("b", b'{"x":"1"}'))
    made = pickup.delivery(parcels, random, thid=wanted.id, version=version)
    assert pickup.read_delivery(carry(made)) == parcels
    if version == "1.0":
        assert pickup.read_list_request(carry(pickup.list_request(["a", "b"], random))) == ("a", "b")
        assert pickup.read_delivery(carry(pickup.delivery(parcels, random, version="1.0", kind="list"))) == parcels
        return
    assert pickup.read_received(carry(pickup.messages_received(["a", "b"], random, version=version))) == ("a", "b")
    assert pickup.read_live_change(carry(pickup.live_delivery_change(True, random, version=version))) is True


def test_a_delivery_by_others():
    """As the specification shows it, and as some write it: another alphabet, or JSON."""
    body = {"recipient_did": "did:example:b"}
    attachments = (Attachment(id="1", base64=b64url(b"??>>").replace("-", "+")), Attachment(id="2", json={"a": 1}))
    message = Message(type=pickup.PROTOCOL + "/delivery", id="1", body=body, attachments=attachments)
    assert pickup.read_delivery(message) == (Parcel("1", b"??>>"), Parcel("2", b'{"a":1}'))
    with pytest.raises(Malformed):
        pickup.read_delivery(replace(message, attachments=(Attachment(json={"a": 1}),)))
    with pytest.raises(Malformed):
        pickup.read_delivery(replace(message, attachments=(Attachment(id="1", links=("http://x",), hash="z"),)))


@pytest.mark.parametrize("size", [1, 100_000, pickup.DELIVERY_BYTES_MAX * 3 // 4, pickup.ENVELOPE_BYTES_KEPT])
def test_every_accepted_envelope_can_be_delivered(size):
    envelope = b'{"c":"' + b"x" * max(size - 8, 0) + b'"}'
    delivery = pickup.delivery([Parcel("i" * 22, envelope)], random, thid="t" * 36, did=BOB.did)
    assert len(dump(delivery)) <= MESSAGE_BYTES_MAX
    assert pickup.delivery_size(len(envelope)) <= pickup.DELIVERY_BYTES_MAX
    assert pickup.read_delivery(over(delivery))[0].envelope == envelope


@pytest.mark.parametrize(
    ("read", "name", "body"),
    [
        (pickup.read_delivery_request, "delivery-request", {"limit": 0}),
        (pickup.read_delivery_request, "delivery-request", {"limit": "10"}),
        (pickup.read_delivery_request, "delivery-request", {"limit": True}),
        (pickup.read_received, "messages-received", {"message_id_list": ["a"] * 1025}),
        (pickup.read_received, "messages-received", {"message_id_list": "a"}),
        (pickup.read_status, "status", {"message_count": -1}),
        (pickup.read_live_change, "live-delivery-change", {"live_delivery": "yes"}),
        (pickup.read_status_request, "status-request", {"recipient_did": ""}),
    ],
)
def test_pickup_refuses(read, name, body):
    with pytest.raises(Malformed):
        read(Message(type=f"{pickup.PROTOCOL}/{name}", id="1", body=body))


# --- the recipient's side -------------------------------------------------------------------------------------------


def names(said: MediationStep) -> list[str]:
    assert all(each.from_ == BOB.did and each.to == (MEDIATOR,) for each in said.messages)
    assert all(each.return_route == "all" for each in said.messages)
    return [each.type.rpartition("/")[2] for each in said.messages]


def granted() -> MediationStep:
    """Connected, granted, one DID desired; returns the messages of the transition."""
    start = mediation_client.set_dids(MediationState(MEDIATOR, BOB.did, "invitation"), [BOB.did], random)
    assert not start.messages, "nobody is there yet"
    asked = mediation_client.connected(start.state, random)
    assert names(asked) == ["mediate-request"] and asked.messages[0].pthid == "invitation"
    return mediation_client.receive(asked.state, mediation.grant(asked.messages[0], "did:example:m", random), random)


def test_a_recipient_requests_registers_and_fetches():
    said = granted()
    assert names(said) == ["keylist-update", "live-delivery-change", "delivery-request"]
    update, _, fetch = said.messages
    changed = [Changed(BOB.short, "add", "success")]
    said = mediation_client.receive(said.state, mediation.update_response(update, changed, random), random)
    assert said.state.registered == {BOB.did} and not said.messages
    two = (Parcel("1", ENVELOPE), Parcel("2", ENVELOPE))
    said = mediation_client.receive(said.state, pickup.delivery(two, random, thid=fetch.id), random)
    assert said.parcels == two and names(said) == ["delivery-request"], "the next bite does not wait for the disk"
    status = pickup.status(said.messages[0], Waiting(2), 0, random)
    said = mediation_client.receive(said.state, status, random)
    assert not said.messages and said.state.pending_delivery is None
    said = mediation_client.receive(said.state, pickup.delivery((Parcel("3", ENVELOPE), two[0]), random), random)
    assert said.parcels == (Parcel("3", ENVELOPE),), "pushed; what is here already is not given twice"
    acked = mediation_client.acknowledge(said.state, ["1", "2"], random)
    assert names(acked) == ["messages-received"] and acked.state.unacknowledged == {"3"}
    assert not mediation_client.receive(
        acked.state, pickup.status(acked.messages[0], Waiting(1), 0, random), random
    ).messages
    assert names(
        mediation_client.receive(acked.state, pickup.status(acked.messages[0], Waiting(2), 0, random), random)
    ) == ["delivery-request"]


def test_a_new_connection_begins_again():
    state = mediation_client.disconnected(granted().state)
    assert (
        not mediation_client.poll(state, random).messages
        and not mediation_client.acknowledge(state, ["1"], random).messages
    )
    assert names(mediation_client.connected(state, random)) == [
        "keylist-update",
        "live-delivery-change",
        "delivery-request",
    ]


def test_a_mediator_that_forgot_us_is_asked_for_mediation_again():
    known = replace(granted().state, registered=frozenset({BOB.did}), pending=frozenset())
    again = mediation_client.restart(known, random)
    assert names(again) == ["mediate-request"] and again.state.connected
    assert (again.state.phase, again.state.registered, again.state.desired) == ("requested", frozenset(), known.desired)
    assert msgpack.decode(msgpack.encode(again.state), type=MediationState) == again.state
    said = mediation_client.receive(again.state, mediation.grant(again.messages[0], MEDIATOR, random), random)
    assert said.state.phase == "granted" and names(said)[0] == "keylist-update"


def test_dids_are_registered_and_removed():
    dids = [new_peer4(random, []).did for _ in range(70)]
    state = replace(granted().state, registered=frozenset([BOB.did]), pending=frozenset())
    said = mediation_client.set_dids(state, dids, random)
    [update] = said.messages
    assert len(mediation.read_update(update)) == mediation.UPDATES_MAX
    assert not mediation_client.set_dids(said.state, dids, random).messages, "one update at a time is under way"
    seen = 0
    while said.messages:
        [update] = said.messages
        seen += 1
        rows = [Changed(each.did, each.action, "success") for each in mediation.read_update(update)]
        said = mediation_client.receive(said.state, mediation.update_response(update, rows, random), random)
    assert seen == 2 and said.state.registered == set(dids)


def test_a_refused_did_is_not_retried_on_this_connection():
    said = granted()
    rows = [Changed(BOB.did, "add", "client_error")]
    said = mediation_client.receive(said.state, mediation.update_response(said.messages[0], rows, random), random)
    assert not said.messages and said.state.refused == {BOB.did} and not said.state.registered


def test_denied():
    asked = mediation_client.connected(MediationState(MEDIATOR, BOB.did), random)
    said = mediation_client.receive(asked.state, mediation.deny(asked.messages[0], random), random)
    assert said.state.phase == "denied" and not said.messages
    assert names(mediation_client.connected(mediation_client.disconnected(said.state), random)) == [
        "mediate-request"
    ], "it may have room later"


def test_a_mad_mediator_does_not_make_us_spin():
    """Whatever it answers to a question, the same question does not follow at once; and there is an end to parcels."""
    said = granted()
    for _ in range(10):
        assert said.state.pending_delivery is not None
        asked = replace(pickup.delivery_request(random), id=said.state.pending_delivery)
        said = mediation_client.receive(said.state, pickup.status(asked, Waiting(1000), 0, random), random)
        assert not said.messages
        said = mediation_client.poll(said.state, random)
    number = 0
    while said.messages:
        assert number <= UNACKNOWLEDGED_MAX
        same = [Parcel(f"p{number + each}", ENVELOPE) for each in range(16)]
        number += 16
        said = mediation_client.receive(said.state, pickup.delivery(same, random, thid=said.messages[-1].id), random)
    assert number == UNACKNOWLEDGED_MAX
    again = mediation_client.poll(said.state, random)
    repeated = pickup.delivery([Parcel("p1", ENVELOPE)], random, thid=again.messages[0].id)
    said = mediation_client.receive(again.state, repeated, random)
    assert not said.parcels and not said.messages
