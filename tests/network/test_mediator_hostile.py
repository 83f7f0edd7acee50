"""The mediator against strangers that know a name, and greedy recipients."""

import json

import pytest
from msgspec.structs import replace

from tests.support import mediator_site
from tests.support.mediator_site import BOB, NOW, V2, Client, Site, forwarded, kind, letter, random, service
from zerochat.agent.mediator import store as stores
from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.store import Store
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import SecretKey, new_secret, public_of
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import did_key_of, new_peer4, resolve
from zerochat.didcomm.layers import seal_layers
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import OwnKey, envelope_kind
from zerochat.didcomm.protocols import mediation, pickup, problem, routing
from zerochat.didcomm.protocols.mediation import Change
from zerochat.errors import Malformed

path, site, bob = mediator_site.path, mediator_site.site, mediator_site.bob


def posted(site: Site, recipient: str, envelope: bytes) -> str:
    """What becomes of an envelope, which comes in base64 as it is."""
    to = site.identity.did
    attached = (Attachment(base64=b64url(envelope)),)
    message = Message(routing.FORWARD, "f", {"next": recipient}, to=(to,), attachments=attached)
    return site.hear(V2.anoncrypt(V2.dump(message), recipient=V2.their_key(resolve(to), to), random=random)).what


def results(answer: Message) -> list[str]:
    return [row.result for row in mediation.read_update_response(answer)]


# --- what would end it, or stop somebody's mail ---------------------------------------------------------------------


def test_a_sender_that_cannot_be_answered_is_ignored(path):
    """A DID whose only key signs: nothing could be pushed to it, and trying would end the mediator."""
    site = Site(path, is_open=True)
    secret = new_secret("secp256k1", random)
    did, to = did_key_of(public_of(secret)), site.identity.did
    signer = OwnKey(resolve(did).authentication[0].kid, secret)
    session = site.session()
    for message in (
        mediation.request(random),
        mediation.update([Change(BOB.did, "add")], random),
        pickup.live_delivery_change(True, random),
    ):
        whole = replace(message, from_=did, to=(to,))
        sealed = seal_layers(whole, random=random, signer=signer, recipient=V2.their_key(resolve(to), to))
        assert site.hear(sealed, session).what == "unreadable"
    assert not site.store.recipients() and session.recipient is None
    site.store.close()


POISONS = {
    "too deep once it lies in a delivery": "[" * 62 + "]" * 62 + ',"y":"' + "a" * 186_000 + '"',
    "too many parts": "[" + "[]," * 32_761 + "[]]" + ',"y":"' + "a" * 90_000 + '"',
}


@pytest.mark.parametrize("more", POISONS.values(), ids=POISONS)
def test_an_envelope_that_could_not_be_delivered_is_not_kept(site, bob, more):
    """Else a stranger could stop everything that comes after it."""
    plain = letter(bob.mailbox, "x").decode()
    envelope = (plain.removesuffix("}") + ',"x":' + more + "}").encode()
    assert 184_000 < len(envelope) < 196_000 and envelope_kind(envelope) == "didcomm/v2"
    assert posted(site, bob.mailbox.short, envelope) == "dropped.large"
    assert posted(site, bob.mailbox.short, letter(bob.mailbox, "y")) == "kept"
    bob.pushed()
    assert len(bob.got) == 1


def test_an_envelope_that_grows_when_rewritten_is_refused(bob):
    plain = letter(bob.mailbox, "x").decode().removesuffix("}")
    envelope = f'{plain},"x":[{"1E15," * 2_000}"{"a" * 215_000}"]}}'.encode()
    assert len(envelope) < pickup.ENVELOPE_BYTES_KEPT
    with pytest.raises(Malformed, match="too long for a delivery"):
        pickup.deliverable(envelope)


def test_a_large_envelope_is_delivered(site, bob):
    envelope = json.dumps({**json.loads(letter(bob.mailbox, "x")), "x": "a" * 188_000}).encode()
    assert posted(site, bob.mailbox.short, envelope) == "kept"
    bob.pushed()
    assert [json.loads(each) for each in bob.got] == [json.loads(envelope)]


def test_a_failing_push_affects_no_other_recipient(site, bob, monkeypatch):
    carol = Client(site).connect()
    for each in (bob, carol):
        site.hear(forwarded(site, each.mailbox, "x"))
    sealed = site.mediator.sealed

    def fail(message, recipient, ours):
        if recipient == bob.identity.did:
            raise Malformed(why="a test")
        return sealed(message, recipient, ours)

    monkeypatch.setattr(site.mediator, "sealed", fail)
    carol.pushed()
    assert len(carol.got) == 1 and bob.session.recipient is None


def test_only_delivered_messages_are_read(site, bob, monkeypatch):
    """A short question must not make the mediator read the whole queue."""
    site.mediator.closed(bob.session)
    for number in range(40):
        envelope = json.dumps({**json.loads(letter(bob.mailbox, str(number))), "x": "a" * 100_000}).encode()
        assert posted(site, bob.mailbox.short, envelope) == "kept"
    read = []
    monkeypatch.setattr(
        Store, "envelope", lambda store, kept, envelope=Store.envelope: read.append(kept) or envelope(store, kept)
    )
    for _ in range(5):
        assert kind(bob.ask(pickup.delivery_request(random))) is None
    assert len(read) == sum(1 for _ in bob.session.in_flight) == 5


# --- room -----------------------------------------------------------------------------------------------------------


def test_delayed_messages_leave_room_for_immediate_ones(path):
    """A sender that knows a DID could fill its queue with messages that cannot be fetched for a week."""
    site = Site(path, Limits(messages=8, bytes=1 << 20, shares_min=1))
    bob = Client(site).connect()
    whats = [site.hear(forwarded(site, bob.mailbox, str(n), delay_milli=10**9)).what for n in range(3)]
    assert whats == ["delayed"] * 2 + ["dropped.full"]
    assert [site.hear(forwarded(site, bob.mailbox, f"now {n}")).what for n in range(7)] == ["kept"] * 7
    assert site.mediator.counts["dropped.oldest"] == 1
    site.restart()
    bob.connect().acknowledge()
    assert site.hear(forwarded(site, bob.mailbox, "later", delay_milli=10**9)).what == "dropped.full"
    assert [site.hear(forwarded(site, bob.mailbox, f"again {n}")).what for n in range(2)] == ["kept"] * 2
    site.now += 10**9
    site.due()
    assert site.hear(forwarded(site, bob.mailbox, "much later", delay_milli=10**9)).what == "delayed"
    size = len(letter(bob.mailbox, "0"))
    site.mediator.limits = Limits(bytes=4 * 12 * size, shares_min=1)
    whats = [site.hear(forwarded(site, bob.mailbox, f"x{n}", delay_milli=10**9)).what for n in range(20)]
    assert whats.count("dropped.full") >= 8, "bytes count too"
    site.store.close()


def test_delayed_messages_stay_within_the_limits_of_their_recipient(path):
    """Each DID had a larger share while there were fewer of them, and what is delayed cannot be fetched."""
    site = Site(path, Limits(messages=64, shares_min=1, delayed_part=2))
    bob, boxes = Client(site), [new_peer4(random, [service(site.identity.did)]) for _ in range(16)]
    for number, box in enumerate(boxes, 1):
        bob.connect(*(one.did for one in boxes[:number]))
        while site.hear(forwarded(site, box, str(site.handles), delay_milli=10**9)).what == "delayed":
            pass
    [(recipient, used)] = site.store.usage.recipients.items()
    assert used.messages <= 64, used
    assert [site.hear(forwarded(site, box, text)).what for box in boxes[8:] for text in "ab"] == ["kept"] * 16
    assert site.store.queue_status(recipient)[0] == 16, "what can be fetched stays"
    waiting = site.store.usage.delayed[recipient]
    assert waiting.messages == 48 and used.messages == 64
    before = used.bytes, waiting.bytes
    site.restart()
    used, waiting = site.store.usage.recipients[recipient], site.store.usage.delayed[recipient]
    assert (used.bytes, waiting.bytes) == before, "what is counted is what is on disk"
    site.store.close()


def test_a_crowd_leaves_room_for_others(path):
    size = len(letter(new_peer4(random, []), "00"))
    site = Site(path, Limits(bytes=10 * size, total_bytes=80 * size, shares_min=1), is_open=True)
    for _ in range(8):
        one = Client(site).connect()
        for number in range(10):
            site.hear(forwarded(site, one.mailbox, f"{number:02}"))
    assert site.mediator.counts["dropped.oldest"]
    last = Client(site).connect()
    assert site.hear(forwarded(site, last.mailbox, "00")).what == "kept"
    site.store.close()


def test_replay_digests_are_bounded(site, bob, monkeypatch):
    monkeypatch.setattr(stores, "REPLAY_DIGESTS_MAX", 16)
    for _ in range(50):
        bob.tell(mediation.update([Change(BOB.did, "remove")], random))
    assert site.store._rows("SELECT count(*) FROM replay_digests")[0][0] <= 16


def test_sweeping_keeps_pace_with_delivery(site, bob, monkeypatch):
    monkeypatch.setattr(stores, "DELIVERED_SWEEP_MAX", 3)
    monkeypatch.setattr(stores, "DELIVERED_MAX", 8)
    for number in range(10):
        site.hear(forwarded(site, bob.mailbox, str(number)))
    bob.pushed()
    bob.acknowledge()
    assert site.store._rows("SELECT count(*) FROM delivered")[0][0] == 8, "and no more are noted than that"
    later = NOW // 1000 + Limits().dedupe_s
    more = []
    while not more or more[-1]:
        with site.store.transaction():
            more.append(site.mediator.sweep(later))
    assert more == [True, True, False] and not site.store._rows("SELECT 1 FROM delivered")


def receipts(site: Site, box: str, envelopes: list[bytes]) -> list[bool]:
    """Whether each forward to this mailbox is answered by a receipt."""
    to, answers = site.identity.did, []
    for envelope in envelopes:
        plain = routing.forward(envelope, box, to=to, random=random, wants_receipt=True)
        sealed = V2.anoncrypt(plain, recipient=V2.their_key(resolve(to), to), random=random)
        answers.append(site.hear(sealed).answer is not None)
    return answers


def test_a_full_mailbox_evicts_its_own_oldest_only(path):
    """443 envelopes with 34 MiB to one mailbox: the mail of the other eight stays, and all receipts are alike."""
    site = Site(path)
    bob = Client(site).connect()
    keys = [new_secret("Ed25519", random) for _ in range(9)]
    boxes = [did_key_of(public_of(key)) for key in keys]
    for box, key in zip(boxes, keys, strict=True):
        assert results(bob.ask(proving(bob, box, key))) == ["success"]
    site.mediator.closed(bob.session)
    flooded, others = boxes[0], boxes[1:]
    early = {box: letter(BOB, "early") for box in others}
    assert all(receipts(site, box, [early[box]]) == [True] for box in others)
    flood = [json.dumps({**json.loads(letter(BOB, str(n))), "x": "a" * 80_000}).encode() for n in range(443)]
    assert sum(map(len, flood)) > 33 << 20
    assert all(receipts(site, flooded, flood))
    share = Limits().bytes // 16
    assert share - 100_000 < site.store.usage.of_did(site.store.registration(flooded).did).bytes <= share
    assert site.store.usage.total.bytes < share + 100_000
    assert all(receipts(site, box, [letter(BOB, "late")]) == [True] for box in others)
    assert not any(receipts(site, flooded, flood[:3])), "a repetition does not reveal the eviction"
    left = [site.store.envelope(kept) for kept in site.store.fetch(1, 1_000)]
    assert {json.dumps(json.loads(each), sort_keys=True) for each in early.values()} <= {
        json.dumps(json.loads(each), sort_keys=True) for each in left
    }
    assert json.loads(left[-len(others) - 1]) == json.loads(flood[-1]), "the newest of the flooded one stays too"
    site.store.close()


def test_mailboxes_that_come_and_go_stay_within_the_limits_of_one_recipient(path):
    """Shares shrink with each registration, but the mailboxes before had been filled to theirs: 320 MiB for 64."""
    limits = Limits(bytes=1 << 20, envelope_bytes=10_000)
    site, most = Site(path, limits), 0
    bob = Client(site).connect()
    padding, text = "a" * 8_000, b""
    for number in range(64):
        key = new_secret("Ed25519", random)
        box = did_key_of(public_of(key))
        assert results(bob.ask(proving(bob, box, key))) == ["success"]
        share = limits.bytes // max(limits.shares_min, 1 << (site.store.shares(1) - 1).bit_length())
        for more in range(share // len(padding) + 1):
            text = json.dumps({**json.loads(letter(BOB, f"{number} {more}")), "x": padding}).encode()
            assert receipts(site, box, [text]) == [True]
            most = max(most, site.store.usage.recipients[1].bytes)
        assert results(bob.ask(mediation.update([Change(box, "remove")], random))) == ["success"]
    assert limits.bytes - 10_000 < most <= limits.bytes
    assert json.loads(site.store.envelope(site.store.fetch(1, 1_000)[-1])) == json.loads(text)
    site.store.close()


# --- addresses that strangers have registered -----------------------------------------------------------------------


def relayed(site: Site, client: Client, uri: str) -> None:
    """Register a DID with an address, and let a message for it come."""
    away = new_peer4(random, [service(uri)])
    assert results(client.ask(mediation.update([Change(away.did, "add")], random))) == ["success"]
    to = site.identity.did
    plain = routing.forward(letter(away, "x"), away.did, to=to, random=random)
    sealed = V2.anoncrypt(plain, recipient=V2.their_key(resolve(to), to), random=random)
    assert site.hear(sealed).what == "relayed"


def test_silent_addresses_delay_no_other_relay(path):
    site = Site(path, Limits(relays_at_once=6, relays_each=2))
    eve, carol = Client(site).connect(), Client(site).connect()
    for number in range(8):
        relayed(site, eve, f"http://tarpit.example/{number}")
    relayed(site, carol, "http://carol.example")
    first = site.due()
    due = site.mediator.next_due()
    assert len(first) == 2 and due is not None and due <= site.now
    assert [dispatch.uri for dispatch in site.due()] == ["http://carol.example"]
    assert not site.due()
    with site.store.transaction():
        site.mediator.dispatched(first[0].ticket, "timeout", site.now)
    assert len(site.due()) == 1
    site.store.close()


def test_an_address_that_refuses_is_left_alone(path):
    """It may be somebody else's, whom a stranger wants to be bothered for two weeks."""
    site = Site(path, Limits(refusals=3))
    eve = Client(site).connect()
    relayed(site, eve, "http://victim.example")
    tries = 0
    for _ in range(20):
        site.now += 10**7
        for dispatch in site.due():
            tries += 1
            with site.store.transaction():
                site.mediator.dispatched(dispatch.ticket, "status 405", site.now)
    assert tries == 4 and not site.store.usage.total.messages
    site.store.close()


# --- whose a mailbox is ---------------------------------------------------------------------------------------------


def proving(client: Client, did: str, key: SecretKey) -> Message:
    asking = mediation.update([Change(did, "add")], random)
    addressed = replace(asking, from_=client.identity.did, to=(client.theirs,))
    return mediation.with_proofs(addressed, {did: key})


def test_a_mailbox_belongs_to_the_holder_of_its_key(site, bob):
    """Everybody in a group knows everybody's mailboxes, and one of them is at the mediator first."""
    eve, key = Client(site).connect(), new_secret("Ed25519", random)
    box = did_key_of(public_of(key))
    squat = new_peer4(random, [service(site.identity.did)])
    assert results(eve.ask(mediation.update([Change(box, "add")], random))) == ["success"]
    assert posted(site, box, letter(squat, "before")) == "kept"
    assert results(bob.ask(mediation.update([Change(box, "add")], random))) == ["client_error"], "first come, as ever"
    proof = proving(bob, box, key)
    assert results(bob.ask(proof)) == ["success"] and site.mediator.counts["evicted"] == 2
    assert posted(site, box, letter(squat, "after")) == "kept"
    assert posted(site, resolve(box).agreement[0].kid, letter(squat, "to the key")) == "kept"
    assert len([push for push in site.pushes() if push.handle == bob.session.handle]) == 1
    assert len(bob.session.in_flight) == 2 and len(eve.session.in_flight) == 1
    stolen = replace(proof, id="another", from_=eve.identity.did)
    assert results(eve.ask(stolen)) == ["client_error"], "a proof is for one recipient"
    assert results(eve.ask(mediation.update([Change(box, "remove"), Change(box, "add")], random))) == [
        "no_change",
        "client_error",
    ]
    assert mediation.read_listing(eve.ask(mediation.query(random))).dids == (eve.mailbox.did,)
    moved = Client(site).connect()
    assert results(moved.ask(proving(moved, box, key))) == ["success"], "its owner may move it"
    assert results(moved.ask(proving(moved, box, key))) == ["no_change"]


def test_a_key_in_a_foreign_document_stays_its_holders(site, bob):
    """Eve's DID lists Bob's key, which anybody can write; what is for the key goes to whoever has it."""
    key, eve = new_secret("Ed25519", random), Client(site).connect()
    box = did_key_of(public_of(key))
    forged = "did:peer:2.V" + box.removeprefix("did:key:") + ".Ez6LSbysY2xFMRpGMhb7tFTLMpeuPRaqaWM1yECx2AtzE3KCc"
    assert results(eve.ask(mediation.update([Change(forged, "add")], random))) == ["success"]
    assert site.store.registration(box).recipient == eve.session.recipient.id
    assert results(bob.ask(proving(bob, box, key))) == ["success"]
    assert site.store.registration(box).recipient == bob.session.recipient.id
    assert site.store.registration(forged).recipient == eve.session.recipient.id, "her own name stays hers"


def test_an_invalid_proof_is_refused(site, bob):
    eve, key = Client(site).connect(), new_secret("Ed25519", random)
    box = did_key_of(public_of(key))
    assert results(bob.ask(mediation.update([Change(box, "add")], random))) == ["success"]
    for proof in ("", "AA", "A" * 86, "!"):
        assert results(eve.ask(mediation.update([Change(box, "add", proof)], random))) == ["client_error"]
    assert problem.is_problem(eve.ask(mediation.update([Change(box, "add", "A" * 200)], random)))


# --- somebody who has recorded what was said ------------------------------------------------------------------------


def test_live_mode_requests_cannot_be_replayed(site, bob):
    """Whoever has seen the envelopes go by could push the recipient's own connection out, and count what comes."""
    recorded = bob.seal(pickup.live_delivery_change(True, random))
    session = site.session()
    assert site.hear(recorded, session).answer is not None
    for _ in range(Limits().live + 1):
        thief = site.session()
        assert site.hear(recorded, thief).answer is None and thief.recipient is None
    site.hear(forwarded(site, bob.mailbox, "x"))
    assert {push.handle for push in site.pushes()} == {bob.session.handle, session.handle}
