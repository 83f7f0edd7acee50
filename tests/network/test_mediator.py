"""The mediator: no accepted envelope is lost or delivered twice, and recipients stay private."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support import mediator_site
from tests.support.mediator_site import (
    BOB,
    INVITATION,
    KEY,
    NOW,
    URI,
    V1,
    V2,
    Client,
    Site,
    forwarded,
    kind,
    letter,
    random,
    sent_to,
    service,
)
from zerochat.agent.mediator import protocol_handlers
from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.outcomes import Outcome
from zerochat.agent.mediator.store import Store
from zerochat.agent.storage.database import UnsupportedJournal, WrongKey
from zerochat.crypto.keys import PublicKey
from zerochat.didcomm.did import did_key_of, new_peer4, resolve
from zerochat.didcomm.message import Message
from zerochat.didcomm.protocols import (
    features,
    mediation,
    mediation_client,
    pickup,
    ping,
    problem,
    routing,
    shared_mailbox,
    short_links,
)
from zerochat.didcomm.protocols.mediation import Change, Grant, Page
from zerochat.didcomm.protocols.mixing import Mix
from zerochat.didcomm.rotation import Prior, from_prior
from zerochat.didcomm.service import Route

bob, path, site = mediator_site.bob, mediator_site.path, mediator_site.site

NAMES = ["updates", "updated", "recipient_did", "action", "result", "paginate", "limit", "offset", "message_id_list"]
NAMES += ["live_delivery", "routing_did", "keys", "oobid", "oobids", "sealed", "until", "shares"]


# --- who is taken in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", mediation.VERSIONS)
def test_an_invited_recipient_is_registered(site, version):
    bob = Client(site)
    answer = bob.ask(mediation.request(random, pthid="the-invitation", version=version))
    if version == "1.0":
        key = did_key_of(PublicKey("Ed25519", site.identity.signing_public))
        assert mediation.read_grant(answer) == Grant((key,), URI)
    else:
        assert mediation.read_grant(answer) == Grant((site.identity.did,))
    stranger = Client(site)
    for pthid in (None, "another-invitation", "the-invitatioñ"):
        message = replace(mediation.request(random, version=version), pthid=pthid)
        if pthid is None or pthid.isascii():
            assert kind(stranger.ask(message)) == "deny"
    again = bob.ask(mediation.request(random, version=version))
    assert kind(again) == "grant", "who is in need not show the invitation again"


def test_an_open_mediator_registers_recipients_until_full(path):
    site = Site(path, Limits(recipients=2), is_open=True)
    answers = [Client(site).ask(mediation.request(random)) for _ in range(3)]
    assert [kind(each) for each in answers] == ["grant", "grant", "deny"]
    site.store.close()


def test_an_invitation_admits_a_number_of_recipients(path):
    """One holder takes no more seats, and those that it does not use are free again after two days."""
    site = Site(path, Limits(seats_burst=40))
    site.mediator.handlers._policy = replace(site.mediator.handlers._policy, invitations={INVITATION: 7})
    many = [Client(site).connect() for _ in range(30)]
    assert [client.state.phase for client in many] == ["granted"] * 7 + ["denied"] * 23
    assert site.mediator.counts["denied.uses"] == 23 and site.store.recipients() == 7
    assert many[0].connect().state.phase == "granted", "a recipient keeps its seat"
    assert site.hear(forwarded(site, many[0].mailbox, "x")).what == "kept"
    site.now += Limits().unused_idle_s * 1000
    with site.store.transaction():
        site.mediator.sweep(site.now // 1000)
    assert site.store.recipients() == 1
    assert many[1].connect().state.phase == "granted"
    site.store.close()


def test_each_invitation_has_seats_of_its_own(path):
    site = Site(path)
    handlers = site.mediator.handlers
    handlers._policy = replace(handlers._policy, invitations={"another": 1, INVITATION: 2})
    mine = [Client(site).connect().state.phase for _ in range(3)]
    others = [Client(site, pthid="another").connect().state.phase for _ in range(2)]
    assert mine == ["granted", "granted", "denied"] and others == ["granted", "denied"]
    assert Client(site, pthid="no-longer-valid").connect().state.phase == "denied"
    site.store.close()


def test_seats_are_taken_at_a_rate(path):
    site = Site(path)
    site.mediator.handlers._policy = replace(site.mediator.handlers._policy, invitations={INVITATION: 1_000})
    burst = Limits().seats_burst
    assert [Client(site).connect().state.phase for _ in range(burst + 5)] == ["granted"] * burst + ["denied"] * 5
    site.now += 1000 * Limits().seat_every_s
    assert [Client(site).connect().state.phase for _ in range(2)] == ["granted", "denied"]
    site.store.close()


def test_work_is_charged_to_its_recipient(path):
    site = Site(path, Limits(requests_burst=20, requests_per_s=2))
    bob, eve = Client(site).connect(), Client(site).connect()
    site.hear(forwarded(site, bob.mailbox, "x"))
    answered = sum(eve.tell(pickup.delivery_request(random)) is not None for _ in range(40))
    assert 10 < answered < 20 and site.mediator.counts["throttled"] == 40 - answered
    assert bob.tell(pickup.delivery_request(random)) is not None
    site.now += 5_000
    assert sum(eve.tell(pickup.delivery_request(random)) is not None for _ in range(40)) == 10
    rows = {number: (kept.bytes, work.written) for number, kept, work in site.store.usage.heaviest(2)}
    stored = site.store.usage.total.bytes
    assert stored and rows == {1: (stored, stored), 2: (0, 0)}
    site.store.close()


def test_acknowledged_ids_and_fetched_bytes_are_charged(path):
    """A request with a thousand ids is a thousand deletions, and one without any fetches up to 240 kB."""
    site = Site(path, Limits(requests_burst=200, requests_per_s=0))
    bob, eve = Client(site).connect(), Client(site).connect()
    ids = [f"message-{number}" for number in range(pickup.RECEIVED_MAX)]
    acknowledged = sum(eve.tell(pickup.messages_received(ids, random)) is not None for _ in range(20))
    assert acknowledged == 200 // (1 + pickup.RECEIVED_MAX // protocol_handlers.IDS_PER_REQUEST)
    site.hear(forwarded(site, bob.mailbox, "x" * 100_000))
    stays = site.session(stays=False)
    fetched = [site.hear(bob.seal(pickup.delivery_request(random)), stays).answer for _ in range(100)]
    assert 10 < sum(answer is not None for answer in fetched) < 40
    site.store.close()


def test_counting_stored_messages_is_charged(path):
    site = Site(path, Limits(requests_burst=100, requests_per_s=0))
    bob = Client(site).connect()
    for number in range(3 * protocol_handlers.ROWS_PER_REQUEST):
        site.hear(forwarded(site, bob.mailbox, f"{number}"))
    asked = [bob.tell(pickup.status_request(random, bob.mailbox.did)) for _ in range(100)]
    assert 20 <= sum(answer is not None for answer in asked) <= 25
    site.store.close()


def test_a_stranger_is_refused_everything(site):
    stranger = Client(site)
    for message in (
        mediation.update([Change(stranger.mailbox.did, "add")], random),
        mediation.query(random),
        pickup.status_request(random),
        pickup.delivery_request(random),
        pickup.live_delivery_change(True, random),
    ):
        assert problem.is_problem(stranger.ask(message))
    assert not site.store.recipients() and not site.mediator.handlers.live


def test_no_answer_without_a_return_route(site):
    assert Client(site).tell(replace(mediation.request(random, pthid="the-invitation"), return_route=None)) is None
    assert site.store.recipients() == 1


def test_updates_and_queries(site, bob):
    other = Client(site).connect()
    dids = [new_peer4(random, []).did for _ in range(5)]

    def results(client: Client, *changes: Change) -> list[str]:
        return [row.result for row in mediation.read_update_response(client.ask(mediation.update(changes, random)))]

    assert results(bob, *(Change(did, "add") for did in dids)) == ["success"] * 5
    assert results(bob, Change(dids[0], "add"), Change(dids[1], "remove")) == ["no_change", "success"]
    assert results(other, Change(dids[0], "add"), Change(dids[0], "remove")) == ["client_error", "no_change"]
    assert results(other, Change(site.identity.did, "add")) == ["client_error"], "nobody takes the mediator's own mail"
    assert results(other, Change("neither DID nor key", "add")) == ["client_error"]
    first = mediation.read_listing(bob.ask(mediation.query(random, Page(0, 3))))
    rest = mediation.read_listing(bob.ask(mediation.query(random, Page(3, 3))))
    assert (*first.dids, *rest.dids) == (bob.mailbox.did, dids[0], *dids[2:])
    assert (first.remaining, rest.remaining) == (2, 0)


def test_a_replayed_update_changes_nothing(site, bob):
    did = new_peer4(random, []).did
    recorded = bob.seal(mediation.update([Change(did, "remove")], random))
    site.hear(recorded, bob.session)
    bob.ask(mediation.update([Change(did, "add")], random))
    assert site.hear(recorded, site.session()).answer is None
    assert did in mediation.read_listing(bob.ask(mediation.query(random))).dids


def test_a_recipient_may_rotate_its_did(site, bob):
    old, new = bob.identity, new_peer4(random, [])
    site.hear(forwarded(site, bob.mailbox, "before"))
    signed = from_prior(Prior(old.did, old.kid_signing, old.signing_seed), new.did, NOW // 1000)
    bob.identity = new_peer4(random, [])
    assert problem.is_problem(bob.ask(pickup.status_request(random)))
    stolen = replace(pickup.status_request(random), from_prior=signed)
    assert site.hear(bob.seal(stolen), bob.session).what == "unreadable", "it was signed for another DID"
    bob.identity = new
    assert pickup.read_status(bob.ask(replace(pickup.status_request(random), from_prior=signed))).count == 1
    assert pickup.read_status(bob.ask(pickup.status_request(random))).count == 1
    bob.identity = old
    assert problem.is_problem(bob.ask(pickup.status_request(random))), "the old DID is nobody now"


def test_protocols_that_every_agent_answers(site, bob):
    pong = bob.ask(replace(ping.ping(random), return_route="all"))
    assert pong.type.endswith("ping-response")
    query = features.queries(random, features.Query("protocol", "https://didcomm.org/messagepickup/*"))
    told = bob.ask(replace(query, return_route="all"))
    assert pickup.PROTOCOL in str(told.body)
    unknown = Message("https://example.org/unknown/1.0/x", "1", return_route="all")
    assert problem.is_problem(bob.ask(unknown))
    assert Client(site).tell(unknown) is None


# --- keeping and fetching -------------------------------------------------------------------------------------------


def test_a_message_waits_until_it_is_acknowledged(site, bob):
    envelope = letter(bob.mailbox, "hello")
    uri, wrapped = sent_to(bob.mailbox, envelope)
    assert uri == URI
    assert site.hear(wrapped) == Outcome("kept")
    for _ in range(2):
        bob.connect()
        assert bob.got == [envelope], "delivered again over every new connection"
        bob.got.clear()
    bob.say(mediation_client.poll(bob.state, random))
    assert not bob.got, "but not twice over one"
    bob.acknowledge()
    assert not bob.connect().got
    assert site.hear(wrapped) == Outcome("dropped.twice"), "a sender that repeats itself brings nothing back"
    assert site.store.usage.total.messages == 0 == site.store.usage.total.bytes


def test_every_name_of_a_recipient(site, bob):
    """Long and short form, key ids, did:key and the bare verkey of v1 all lead to one queue."""
    document = resolve(bob.mailbox.did)
    verkey = V1.own_key(bob.mailbox, bob.mailbox.did).kid
    names = [bob.mailbox.did, bob.mailbox.short, bob.mailbox.kid_long, bob.mailbox.kid_short, verkey]
    names += [routing.as_did(verkey)]
    key = V2.their_key(resolve(site.identity.did), site.identity.did)
    for number, name in enumerate(names):
        plain = routing.forward(letter(bob.mailbox, f"{number}"), name, to=site.identity.did, random=random)
        assert site.hear(V2.anoncrypt(plain, recipient=key, random=random)) == Outcome("kept"), name
    assert pickup.read_status(bob.ask(pickup.status_request(random))).count == len(names)
    only = pickup.read_status(bob.ask(pickup.status_request(random, bob.mailbox.short)))
    assert only.count == len(names) and only.did == bob.mailbox.short
    elsewhere = pickup.read_status(bob.ask(pickup.status_request(random, new_peer4(random, []).did)))
    assert elsewhere.count == 0 and document.services


def test_a_sender_of_v1(site, bob):
    """RFC 0019 around RFC 0094, for the mediator's verkey."""
    mine = V1.own_key(site.identity, site.identity.did).kid
    route = Route(URI, (routing.as_did(mine),), ("didcomm/aip2;env=rfc19",), "draft")
    inner = V1.anoncrypt(
        b'{"@id":"1","@type":"x/y/1.0/z"}', recipient=V1.their_key(resolve(bob.mailbox.did), ""), random=random
    )
    verkey = V1.own_key(bob.mailbox, bob.mailbox.did).kid
    wrapped = routing.wrap(inner, route, verkey, resolve=resolve, random=random, profile="didcomm/v1")
    assert site.hear(wrapped) == Outcome("kept")
    bob.say(mediation_client.poll(bob.state, random))
    assert bob.got == [inner]


def test_deliveries_have_limits(site, bob):
    for number in range(40):
        site.hear(forwarded(site, bob.mailbox, f"{number}"))
    other = site.session()
    delivery = bob.read(site.hear(bob.seal(pickup.delivery_request(random, 3)), other).answer)
    assert len(pickup.read_delivery(delivery)) == 3 and delivery.thid
    bob.connect()
    assert len(bob.got) == 40 == len(set(bob.got))
    large = forwarded(site, bob.mailbox, "x" * 120_000), forwarded(site, bob.mailbox, "y" * 120_000)
    assert [site.hear(each).what for each in large] == ["kept", "kept"]
    assert len(site.pushes()) == 2, "each delivery is a message of bounded size"


def test_live_mode_delivers_at_most_one_window(path):
    site = Site(path, Limits(window=5))
    bob = Client(site).connect()
    for number in range(20):
        site.hear(forwarded(site, bob.mailbox, f"{number}"))
    bob.pushed()
    assert len(bob.got) == 5
    while len(bob.got) < 20:
        before = len(bob.got)
        bob.acknowledge()
        bob.pushed()
        assert before < len(bob.got)
    bob.acknowledge()
    assert len(set(bob.got)) == 20 and not site.store.usage.total.messages
    site.store.close()


def test_live_mode_ends_with_its_connection(site, bob):
    site.mediator.closed(bob.session)
    site.hear(forwarded(site, bob.mailbox, "later"))
    assert not site.pushes()
    assert len(bob.connect().got) == 1


def test_live_mode_needs_a_connection_that_stays(site, bob):
    bob.session = site.session(stays=False)
    answer = bob.ask(pickup.live_delivery_change(True, random))
    assert answer.body["code"] == pickup.LIVE_MODE_NOT_SUPPORTED


def test_a_recipient_fetches_only_its_own_messages(site, bob):
    """Nobody fetches, counts or acknowledges what waits for somebody else."""
    other = Client(site).connect()
    site.hear(forwarded(site, bob.mailbox, "private"))
    assert pickup.read_status(other.ask(pickup.status_request(random, bob.mailbox.did))).count == 0
    assert pickup.kind_of(other.ask(pickup.delivery_request(random, 9, bob.mailbox.did))) == "status"
    [kept] = site.store.fetch(1, 9)
    other.ask(pickup.messages_received([kept.id], random))
    assert site.store.usage.total.messages == 1


# --- what is dropped ------------------------------------------------------------------------------------------------


def test_forwards_without_recipient_are_never_stored(site, bob):
    """Unknown, expired, full and unreadable: to the outside all are alike, and only a count remains."""
    nobody = new_peer4(random, [service(site.identity.did)])
    assert site.hear(forwarded(site, nobody, "?")).what == "dropped.unknown"
    assert site.hear(forwarded(site, bob.mailbox, "?", expires_time=NOW // 1000)).what == "dropped.expired"
    bob.ask(mediation.update([Change(bob.mailbox.did, "remove")], random))
    assert site.hear(forwarded(site, bob.mailbox, "?")).what == "dropped.unknown"
    for envelope in (b"", b"{}", b"\xff", letter(nobody, "not for you"), forwarded(site, bob.mailbox, "x")[:-5]):
        assert site.hear(envelope).what == "unreadable"
    assert not site.store.usage.total.messages and site.mediator.counts["unreadable"] == 5


def test_quotas(path):
    size = len(letter(new_peer4(random, []), "0"))
    site = Site(path, Limits(messages=12, bytes=100 * size, total_bytes=25 * size, dids=2))
    bob = Client(site).connect()
    whats = [site.hear(forwarded(site, bob.mailbox, str(number))).what for number in range(5)]
    assert whats == ["kept"] * 5 and site.mediator.counts["dropped.oldest"] == 2
    assert site.hear(forwarded(site, bob.mailbox, "large" * 8_000)).what == "dropped.full", "all together are too much"
    changes = [Change(new_peer4(random, []).did, "add") for _ in range(2)]
    rows = mediation.read_update_response(bob.ask(mediation.update(changes, random)))
    assert [row.result for row in rows] == ["success", "client_error"]
    site.restart()
    assert site.hear(forwarded(site, bob.mailbox, "again")).what == "kept"
    assert site.store.usage.total.messages == 3
    site.store.close()


def test_every_envelope_expires(site, bob):
    site.hear(forwarded(site, bob.mailbox, "a", expires_time=NOW // 1000 + 60))
    site.hear(forwarded(site, bob.mailbox, "b"))
    site.hear(forwarded(site, bob.mailbox, "c", delay_milli=10**9, expires_time=NOW // 1000 + 60))

    def swept(now_s: int) -> int:
        with site.store.transaction():
            site.mediator.sweep(now_s)
        return int(site.store.usage.total.messages)

    assert swept(NOW // 1000 + 59) == 3
    assert swept(NOW // 1000 + 60) == 1
    assert swept(NOW // 1000 + Limits().age_s) == 0
    assert swept(NOW // 1000 + Limits().recipient_idle_s) == 0 and not site.store.recipients()
    assert site.store.registration(bob.mailbox.short) is None


# --- delays, relays, detours ----------------------------------------------------------------------------------------


def test_a_delay_is_honoured(site, bob):
    assert site.hear(forwarded(site, bob.mailbox, "slow", delay_milli=5000)).what == "delayed"
    site.now += 4999
    assert not site.due() and not site.pushes()
    site.now += 1
    site.due()
    bob.pushed()
    assert len(bob.got) == 1


def test_two_mediators_in_sequence(tmp_path):
    """The recipient is behind `inner`, which it has registered with `outer`; a sender wraps for both."""
    outer = Site(tmp_path / "outer.db", uri="http://outer.example")
    inner = Site(tmp_path / "inner.db", uri="http://inner.example")
    bob = Client(inner)
    bob.mailbox = new_peer4(random, [service(outer.identity.did, routingKeys=[inner.identity.did])])
    bob.connect()
    Client(outer).connect(inner.identity.did)
    envelope = letter(bob.mailbox, "through both")
    uri, wrapped = sent_to(bob.mailbox, envelope)
    assert uri == "http://outer.example"
    assert outer.hear(wrapped).what == "relayed"
    [dispatch] = outer.due()
    assert dispatch.uri == "http://inner.example" and not outer.due(), "under way, and not sent twice"
    for pause in (2, 4, 8):
        with outer.store.transaction():
            outer.mediator.dispatched(dispatch.ticket, "lost", outer.now)
        assert not outer.due()
        outer.now += pause * 1000
        [dispatch] = outer.due()
    outer.restart()
    outer.now += 30_000
    [dispatch] = outer.due()
    assert inner.hear(dispatch.envelope).what == "kept"
    with outer.store.transaction():
        outer.mediator.dispatched(dispatch.ticket, None, outer.now)
    assert not outer.store.usage.total.messages
    bob.pushed()
    assert bob.got == [envelope]
    for each in (outer, inner):
        each.store.close()


def test_an_envelope_may_take_a_detour(tmp_path):
    """Another mediator comes in between, learns nothing about the recipient, and the message arrives all the same."""
    home = Site(tmp_path / "home.db", uri="http://home.example")
    away = Site(tmp_path / "away.db", uri="http://away.example", is_open=True)
    Client(away).connect(home.identity.did)
    bob = Client(home).connect()
    envelope = letter(bob.mailbox, "the long way")
    _, wrapped = sent_to(bob.mailbox, envelope, mix=Mix(1.0, 0.5, 1.0))
    home.mediator.mix_nodes = (away.identity.did,)
    assert home.hear(wrapped).what == "detoured"
    [out] = home.due()
    assert out.uri == "http://away.example"
    assert away.hear(out.envelope).what == "relayed"
    [back] = away.due()
    assert back.uri == "http://home.example" and bob.mailbox.short.encode() not in back.envelope
    assert home.hear(wrapped).what == "detoured", "a sender that repeats itself"
    assert home.hear(back.envelope).what == "kept"
    [again] = home.due()
    away.hear(again.envelope)
    assert [home.hear(each.envelope).what for each in away.due()] == ["dropped.twice"]
    bob.pushed()
    assert bob.got == [envelope]
    for each in (home, away):
        each.store.close()


# --- the disk -------------------------------------------------------------------------------------------------------


def test_a_transaction_is_atomic(site, bob):
    """When the commit fails, nothing was accepted and nothing is counted."""
    wrapped = forwarded(site, bob.mailbox, "once")

    def turn_that_fails() -> None:
        with site.store.transaction():
            assert site.mediator.receive(wrapped, site.session(), NOW).what == "kept"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turn_that_fails()
    assert not site.store.usage.total.messages and not site.store.fetch(1, 9)
    assert site.hear(wrapped).what == "kept"


def test_the_disk_holds_nothing_readable(site, bob, path):
    envelope = letter(bob.mailbox, "secret")
    for number in range(30):
        site.hear(forwarded(site, bob.mailbox, f"{number}"))
    site.hear(sent_to(bob.mailbox, envelope)[1])
    telling = [envelope[:40], b"ECDH-ES", b"did:peer", b"didcomm", b"recipients", b"CREATE TABLE"]
    telling += [bob.mailbox.short.encode(), bob.identity.short.encode(), site.identity.did.encode()[:60]]
    assert telling[0] in envelope and telling[4] in envelope, "the net has no hole"

    def disk() -> bytes:
        return b"".join(each.read_bytes() for each in sorted(path.parent.iterdir()))

    for _ in range(2):
        found = disk()
        assert len(found) > 30_000 and not [each for each in telling if each in found]
        site.store.close()
    site.store = Store.open(path, KEY)


def test_the_wrong_key(site, path):
    site.store.close()
    with pytest.raises(WrongKey):
        Store.open(path, bytes(32))


def test_another_store_version_is_refused_unchanged(site, path):
    site.store._db.pragma("user_version", 2)
    site.store.close()
    before = path.read_bytes()
    with pytest.raises(UnsupportedJournal):
        Store.open(path, KEY)
    assert path.read_bytes() == before


KNOWN = (mediation._TYPES, pickup._TYPES, shared_mailbox._TYPES, short_links._TYPES)
TYPES = [uri for known in KNOWN for uri in known.values()]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=9) | st.sampled_from([BOB.did, "did:"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(TYPES), body=st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4))
def test_no_body_causes_a_failure(site, bob, kind, body):
    """Whatever a recipient writes, it gets an answer or none; nothing else happens."""
    site.hear(bob.seal(Message(kind, "1", body, return_route="all")), bob.session)


def test_envelopes_nest_to_a_limit(site, bob):
    """A bomb of forwards to the mediator itself."""
    envelope = forwarded(site, bob.mailbox, "deep")
    for depth in range(8):
        if depth == 5:
            assert site.hear(envelope).what == "unwrapped" and site.store.usage.total.messages == 1
        envelope = routing.rewrap(envelope, site.identity.did, resolve=resolve, random=random)
    assert site.hear(envelope).what == "unreadable"
