"""Mediator receipts: who gets one, and their use in delivery reports only."""

import json
import time
from random import Random

import pytest
from msgspec.structs import replace

from tests.support import cli_harness
from tests.support.mediated_world import Behind
from tests.support.mediator_site import NOW, V2, Client, Site, letter
from zerochat.agent.mediator.limits import Limits
from zerochat.agent.mediator.outcomes import Outcome
from zerochat.agent.storage.journal import Row
from zerochat.agent.views import delivery
from zerochat.crypto.encoding import b64url, compact_json, did_key, strict_json
from zerochat.crypto.keys import SecretKey
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS, jws
from zerochat.didcomm.attachment import Attachment
from zerochat.didcomm.did import new_peer2, new_peer4, resolve
from zerochat.didcomm.layers import MediaType
from zerochat.didcomm.message import Message, dump
from zerochat.didcomm.protocols import mediation, mediator_receipt, pickup, routing
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.effects import Measure, Rejected, WebPost
from zerochat.group.engine import step
from zerochat.group.inputs import CreateGroup, StepContext, WebReceived
from zerochat.group.links import mediator_receipts, peers
from zerochat.group.state import AwaitedReceipt, EndpointFailure, StoredAtMediator
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import ReachBody
from zerochat.presentation import delivery as delivery_text
from zerochat.tui.actions import delivery as fates

random = Random(44).randbytes
MEDIATOR = new_peer2(random, [])
ENVELOPE = b'{"an":"envelope"}'
UNTIL = NOW // 1000 + 86_400


def read(receipt: bytes, by=MEDIATOR) -> mediator_receipt.Receipt:
    """A sender's post to this mediator."""
    return mediator_receipt.check(mediator_receipt.read(receipt), resolve(by.did))


# --- the receipt ----------------------------------------------------------------------------------------------------


def test_a_receipt_names_the_envelope_and_the_time():
    receipt = mediator_receipt.sign_receipt(ENVELOPE, UNTIL, MEDIATOR, random)
    assert mediator_receipt.is_receipt(receipt) and not mediator_receipt.is_receipt(
        letter(new_peer4(random, []), "hello")
    )
    assert read(receipt) == mediator_receipt.Receipt(mediator_receipt.envelope_digest(ENVELOPE), UNTIL)


def test_receipt_does_not_name_the_recipient():
    mailbox = did_key(ed25519_public(bytes(32)))
    receipt = mediator_receipt.sign_receipt(ENVELOPE, UNTIL, MEDIATOR, random)
    assert mailbox.encode() not in jws.read(receipt).payload and len(receipt) < 4_000


def signed(body: dict, kind: str = mediator_receipt.RECEIPT, by=MEDIATOR, says=MEDIATOR) -> bytes:
    message = Message(type=kind, id="1", body=body, from_=says.did)
    return jws.sign(dump(message), [(by.kid_signing, SecretKey("Ed25519", by.signing_seed))], flattened=True)


def test_only_the_addressed_mediator_can_sign_a_receipt():
    body = {"sha256": b64url(mediator_receipt.envelope_digest(ENVELOPE)), "until": UNTIL}
    other = new_peer2(random, [])
    assert read(signed(body)).until == UNTIL
    for forged in (signed(body, by=other, says=other), signed(body, by=other), signed(body, says=other)):
        with pytest.raises((Unauthentic, Malformed)):
            read(forged)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sha256": "AAAA", "until": UNTIL},
        {"sha256": b64url(bytes(32)) + "=!", "until": UNTIL},
        {"sha256": b64url(mediator_receipt.envelope_digest(ENVELOPE)), "until": -1},
        {"sha256": b64url(mediator_receipt.envelope_digest(ENVELOPE)), "until": mediator_receipt.TIME_S_MAX + 1},
        {"sha256": b64url(mediator_receipt.envelope_digest(ENVELOPE)), "until": "tomorrow"},
        {"sha256": b64url(mediator_receipt.envelope_digest(ENVELOPE)), "until": 1.5},
    ],
)
def test_invalid_receipts_are_refused(body):
    with pytest.raises(Malformed):
        mediator_receipt.read(signed(body))


def test_a_receipt_of_another_type_or_too_long_is_refused():
    body = {"sha256": b64url(mediator_receipt.envelope_digest(ENVELOPE)), "until": UNTIL}
    with pytest.raises(Malformed):
        mediator_receipt.read(signed(body, kind="https://zerochat.org/mediation/1.0/told"))
    with pytest.raises(Malformed):
        mediator_receipt.read(signed(body | {"more": "x" * mediator_receipt.BYTES_MAX}))


def test_no_byte_of_a_receipt_can_be_changed():
    receipt = mediator_receipt.sign_receipt(ENVELOPE, UNTIL, MEDIATOR, random)
    for place in range(0, len(receipt), 3):
        broken = bytearray(receipt)
        broken[place] ^= 1
        try:
            found = read(bytes(broken))
        except RemoteError:
            continue
        assert found == mediator_receipt.Receipt(mediator_receipt.envelope_digest(ENVELOPE), UNTIL), (
            "or it changes nothing"
        )


# --- the mediator ---------------------------------------------------------------------------------------------------


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path / "mediator.db")
    yield made
    made.store.close()


class Mailbox:
    """A key that a recipient has registered, with a proof or without."""

    def __init__(self, site: Site, *, proven: bool = True) -> None:
        self.site, self.identity = site, new_peer4(random, [])
        self.seed = random(32)
        self.did = did_key(ed25519_public(self.seed))
        self.bob = Client(site).connect()
        update = mediation.update([mediation.Change(self.did, "add")], random)
        whole = replace(update, from_=self.bob.identity.did, to=(self.bob.theirs,))
        if proven:
            whole = mediation.with_proofs(whole, {self.did: SecretKey("Ed25519", self.seed)})
        self.bob.ask(whole)

    def forwarded(self, envelope: bytes, *, asks: bool = True, **wishes) -> bytes:
        mediator = self.site.identity.did
        plain = routing.forward(envelope, self.did, to=mediator, random=random, wants_receipt=asks, **wishes)
        return V2.anoncrypt(plain, recipient=V2.their_key(resolve(mediator), mediator), random=random)


def test_receipt_for_an_envelope_to_a_proven_key(site):
    box, envelope = Mailbox(site), letter(MEDIATOR, "hello")
    outcome = site.hear(box.forwarded(envelope))
    assert (outcome.what, outcome.media_type) == ("kept", MediaType.SIGNED)
    found = read(outcome.answer or b"", site.identity)
    assert found == mediator_receipt.Receipt(
        mediator_receipt.envelope_digest(envelope), NOW // 1000 + site.mediator.limits.age_s
    )


def test_repeated_requests_do_not_reveal_the_pickup(site):
    """Neither the same bytes nor the same envelope in another forward gets a second receipt."""
    box, envelope = Mailbox(site), letter(MEDIATOR, "hello")
    posted = box.forwarded(envelope)
    assert site.hear(posted).answer is not None
    site.restart()
    waiting = [site.hear(one) for one in (posted, box.forwarded(envelope))]
    box.bob.connect()
    box.bob.acknowledge()
    assert waiting == [site.hear(one) for one in (posted, box.forwarded(envelope))] == [Outcome("dropped.twice")] * 2


def test_receipt_has_the_earlier_requested_expiry(site):
    box, soon = Mailbox(site), NOW // 1000 + 60
    outcome = site.hear(box.forwarded(letter(MEDIATOR, "hello"), expires_time=soon))
    assert read(outcome.answer or b"", site.identity).until == soon


def test_no_receipt_without_request_or_permission(site):
    proven, unproven = Mailbox(site), Mailbox(site, proven=False)
    envelope = letter(MEDIATOR, "hello")
    assert site.hear(proven.forwarded(envelope, asks=False)) == Outcome("kept")
    assert site.hear(unproven.forwarded(envelope)) == Outcome("kept"), "who has no proof may be anybody"
    proven.did = did_key(ed25519_public(random(32)))
    assert site.hear(proven.forwarded(envelope)) == Outcome("dropped.unknown")


def test_no_receipt_for_refused_envelopes(site):
    box = Mailbox(site)
    envelope = letter(MEDIATOR, "hello")
    two = Message(routing.FORWARD, "1", {"next": box.did, "org.zerochat.receipt": True})
    both = tuple(Attachment(json=json.loads(one)) for one in (envelope, letter(MEDIATOR, "and this")))
    key = V2.their_key(resolve(site.identity.did), site.identity.did)
    assert site.hear(V2.anoncrypt(dump(replace(two, attachments=both)), recipient=key, random=random)) == Outcome(
        "kept"
    )
    assert site.hear(box.forwarded(letter(MEDIATOR, "later"), delay_milli=60_000)) == Outcome("delayed")
    assert site.hear(box.forwarded(letter(MEDIATOR, "over"), expires_time=NOW // 1000 - 1)) == Outcome(
        "dropped.expired"
    )


def test_no_receipt_without_room(tmp_path):
    """A mediator whose disk share is used up stores nothing, and says nothing."""
    site = Site(tmp_path / "small.db", Limits(total_bytes=1))
    box = Mailbox(site)
    assert site.hear(box.forwarded(letter(MEDIATOR, "one"))) == Outcome("dropped.full")
    site.store.close()


def test_a_large_envelope_has_the_same_name_on_both_sides(site):
    """An envelope that does not fit base64 is re-encoded for storage; its receipt is about the received bytes."""
    box = Mailbox(site)
    envelope = letter(MEDIATOR, "x" * 150_000)
    assert compact_json(strict_json(envelope, len(envelope))) == envelope, "as every packer of ours writes it"
    outcome = site.hear(box.forwarded(envelope))
    assert read(outcome.answer or b"", site.identity).digest == mediator_receipt.envelope_digest(envelope)
    assert pickup.deliverable(envelope)


# --- the sender -----------------------------------------------------------------------------------------------------


class Keyed(Behind):
    """Three members, two of whom only dial out."""

    def __init__(self, keys: str, envelope: str, members: int = 3, hidden: tuple[str, ...] = ("n1", "n2")) -> None:
        super().__init__(members, hidden=hidden, envelope=envelope)
        self.keys = keys

    def found(self, name="n0"):
        return self.run_command(name, CreateGroup("friends", name, self.envelope, keys=self.keys)).result.group


def absent(world: Behind, name: str) -> None:
    """The node's WebSocket is closed, so its mail waits at the mediator."""
    world.web.held = {one for one in world.web.held if one[0] != name}
    world.web.cut(name, "ws://m0.example/")


def state_of(world: Behind, name: str, of: str, position: int) -> int:
    """Expiry of the receipt of `of`'s mediator for that event of `name`, as known to `name`."""
    group = world.group(name)
    return mediator_receipts.kept_until(group, world.group(of).me, position, world.now)


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key"])
def test_offline_recipient_has_a_receipt(envelope, keys):
    if keys == "sender-key" and envelope == "didcomm/v1":
        pytest.skip("keys that sign want envelopes of v2")
    world = Keyed(keys, envelope)
    group = world.everybody()
    absent(world, "n2")
    world.post(group, "n1", "while you are away")
    world.run(for_ms=3_000)
    position = world.group("n1").seq
    assert state_of(world, "n1", "n2", position) == mediator_receipt.TIME_S_MAX * 1000
    assert not state_of(world, "n1", "n0", position), "who is connected acknowledges it"
    assert not state_of(world, "n1", "n2", position + 1)
    world.restart("n2")
    world.settle()
    world.run(lambda: not state_of(world, "n1", "n2", position), for_ms=5_000)
    assert not state_of(world, "n1", "n2", position), "it has it, which is more"


@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key"])
def test_several_in_a_row_are_held_as_far_as_all_are(keys):
    world = Keyed(keys, "didcomm/v2", 2, ("n0", "n1"))
    group = world.everybody()
    absent(world, "n1")
    first = world.group("n0").seq + 1
    mediator = world.web.mediators["m0"]
    for number in range(3):
        world.post(group, "n0", f"word {number}")
        world.run(for_ms=500)
    assert state_of(world, "n0", "n1", first) and state_of(world, "n0", "n1", first + 2)
    world.web.stop_mediator(mediator.name)
    world.post(group, "n0", "not held by anybody")
    world.run(for_ms=1_500)
    assert state_of(world, "n0", "n1", first + 2) and not state_of(world, "n0", "n1", first + 3)
    world.web.start_mediator(mediator.name)
    world.run(lambda: state_of(world, "n0", "n1", first + 3) > 0, for_ms=120_000)
    assert state_of(world, "n0", "n1", first + 3), "the next repetition asks again"
    world.restart("n1")
    world.settle()


def test_no_receipt_request_over_two_mediators():
    world = Behind(2, hidden=("n0", "n1"), mediators=2, chained=True)
    group = world.everybody()
    absent(world, "n1")
    world.post(group, "n0", "over two")
    world.run(for_ms=3_000)
    assert not world.nodes["n0"].agent.awaited_receipts and not state_of(world, "n0", "n1", world.group("n0").seq)


def posted(world: Behind) -> tuple[bytes, AwaitedReceipt]:
    """The last envelope that n0 posted, before any receipt."""
    agent = world.nodes["n0"].agent
    digest = next(reversed(agent.awaited_receipts))
    return digest, agent.awaited_receipts[digest]


@pytest.fixture
def waiting():
    """Two members behind a mediator without receipts; one is offline with mail in transit."""
    world = Behind(2, hidden=("n0", "n1"))
    group = world.everybody()
    absent(world, "n1")
    mediator = world.web.mediators["m0"]
    forward = mediator._forward
    mediator._forward = lambda wanted: forward(replace(wanted, wants_receipt=False))  # type: ignore[method-assign]
    world.post(group, "n0", "anything")
    world.run(for_ms=1_000)
    return world


def told(world: Behind, receipt: bytes, leap_ms: int = 0):
    """n0's agent and effects after receiving it."""
    agent = world.nodes["n0"].agent
    return step(agent, WebReceived(receipt), StepContext(world.now + leap_ms, random), PACKERS)


def receipt_for(world: Behind, until: int = mediator_receipt.TIME_S_MAX, by=None) -> bytes:
    digest, _ = posted(world)
    body = {"sha256": b64url(digest), "until": until}
    mediator = by or world.web.mediators["m0"]._identity
    return signed(body, by=mediator, says=mediator)


def test_a_forged_receipt_changes_nothing(waiting):
    before = waiting.nodes["n0"].agent
    for junk in (receipt_for(waiting, by=new_peer2(random, [])), b'{"payload":', b'{"payload":"e30","signatures":[]}'):
        after, effects = told(waiting, junk)
        assert after == before and [type(one) for one in effects] == [Rejected]
    unasked = mediator_receipt.sign_receipt(ENVELOPE, UNTIL, waiting.web.mediators["m0"]._identity, random)
    assert told(waiting, unasked) == (before, []), "of something in which nothing was said, or of long ago"


def test_receipt_counts_once_until_its_expiry(waiting):
    until = waiting.now // 1000 + 60
    after, effects = told(waiting, receipt_for(waiting, until))
    assert not effects
    group = next(iter(after.groups.values()))
    [member] = group.links.peers
    assert mediator_receipts.kept_until(group, member, group.seq, waiting.now) == until * 1000
    assert not mediator_receipts.kept_until(group, member, group.seq, until * 1000)
    assert step(after, WebReceived(receipt_for(waiting, until)), StepContext(waiting.now, random), PACKERS) == (
        after,
        [],
    )


def test_an_expired_receipt_is_ignored(waiting):
    after, _ = told(waiting, receipt_for(waiting, waiting.now // 1000 - 1))
    group = next(iter(after.groups.values()))
    [member] = group.links.peers
    assert not mediator_receipts.kept_until(group, member, group.seq, waiting.now)


def test_receipts_do_not_affect_retransmission(waiting):
    """A receipt of a lying mediator does not prevent delivery."""
    node = waiting.nodes["n0"]
    node.agent, _ = told(waiting, receipt_for(waiting))
    for kept in waiting.web.mediators["m0"].waiting.values():
        kept.clear()
    waiting.restart("n1")
    waiting.run(lambda: bool(waiting.texts("n1")), for_ms=60_000)
    assert waiting.texts("n1")
    waiting.settle()


def test_only_so_many_receipts_are_awaited(waiting, monkeypatch):
    monkeypatch.setattr(mediator_receipts, "AWAITED_MAX", 3)
    group = next(iter(waiting.nodes["n0"].agent.groups))
    for number in range(5):
        waiting.post(group, "n0", f"word {number}")
        waiting.run(for_ms=100)
    assert len(waiting.nodes["n0"].agent.awaited_receipts) == 3
    assert posted(waiting)[1].upto == waiting.group("n0").seq


def test_no_receipt_is_awaited_for_long(waiting):
    group = next(iter(waiting.nodes["n0"].agent.groups))
    old = set(waiting.nodes["n0"].agent.awaited_receipts)
    waiting.now += mediator_receipts.AWAITED_MS + 1
    waiting.post(group, "n0", "much later")
    waiting.run(for_ms=10)
    assert waiting.nodes["n0"].agent.awaited_receipts and not old & set(waiting.nodes["n0"].agent.awaited_receipts)


def test_receipt_slots_are_limited_per_member(waiting, monkeypatch):
    monkeypatch.setattr(mediator_receipts, "AWAITED_EACH_MAX", 3)
    node = waiting.nodes["n0"]
    _, one = posted(waiting)
    theirs = {bytes([9, number]): replace(one, member="somebody else") for number in range(5)}
    node.agent = replace(node.agent, awaited_receipts={**theirs, **node.agent.awaited_receipts})
    group = next(iter(node.agent.groups))
    for number in range(6):
        waiting.post(group, "n0", f"word {number}")
        waiting.run(for_ms=100)
    found = [one.member for one in node.agent.awaited_receipts.values()]
    assert found.count("somebody else") == 5 and len(found) == 8


def test_all_envelopes_request_receipts_alike():
    """Otherwise an observer of sizes and answers could tell user messages from protocol messages."""
    world = Behind(2, hidden=("n0", "n1"))
    seen: list[tuple[str, bool, bool]] = []
    mediator = world.web.mediators["m0"]
    forward = mediator._forward

    def look(wanted):
        seen.append(("forward", wanted.wants_receipt, wanted.next in mediator.mailboxes))
        return forward(wanted)

    mediator._forward = look  # type: ignore[method-assign]
    perform = world.web.perform

    def watched(node, effect):
        if isinstance(effect, WebPost) and effect.uri == mediator.http:  # the other is the mediator's own ear
            seen.append(("post", effect.return_route, True))
        perform(node, effect)

    world.web.perform = watched  # type: ignore[method-assign]
    group = world.everybody()
    world.post(group, "n0", "a word")
    world.run(for_ms=60_000)
    boxes = [one for one in seen if one[0] == "forward" and one[2]]
    assert len(boxes) > 10 and all(asked for _, asked, _ in boxes), "joining, states and words"
    assert all(asked for kind, asked, _ in seen if kind == "post")


def test_lost_events_invalidate_receipts(waiting):
    """The peer restarts or reports less: mail at its mediator was fetched and lost."""
    node = waiting.nodes["n0"]
    node.agent, _ = told(waiting, receipt_for(waiting))
    name, group = next(iter(node.agent.groups.items()))
    [member] = group.links.peers
    assert group.links.peers[member].shown.mediator_receipt.upto
    tx = Transaction(node.agent, StepContext(waiting.now, random), PACKERS)
    own = {tx.number_author(name, group.me): group.seq}
    tx.update_acks(name, member, upto=own, regressed_since=1, written_at=0)
    view, at = group.view.checksum, waiting.now + 1
    acknowledgements.record_regression(tx, name, member, view, 0, at)
    assert (
        tx.group(name).links.peers[member].shown.mediator_receipt == StoredAtMediator()
        and not tx.agent.awaited_receipts
    )


def test_receipts_of_another_mediator_are_ignored(waiting):
    node = waiting.nodes["n0"]
    node.agent, _ = told(waiting, receipt_for(waiting))
    name, group = next(iter(node.agent.groups.items()))
    [member] = group.links.peers
    tx = Transaction(node.agent, StepContext(waiting.now, random), PACKERS)
    body = ReachBody(pair="", queue="", at=waiting.now)
    peers.update_reach(tx, name, member, body)
    assert tx.group(name).links.peers[member].shown.mediator_receipt == StoredAtMediator()


def test_late_receipts_after_leaving_are_ignored(waiting):
    node = waiting.nodes["n0"]
    receipt = receipt_for(waiting)
    agent = replace(node.agent, groups={})
    _, effects = step(agent, WebReceived(receipt), StepContext(waiting.now, random), PACKERS)
    assert Measure not in map(type, effects)
    [(name, group)] = node.agent.groups.items()
    agent = replace(node.agent, groups={name: replace(group, me="did:key:zAnother")})
    found, _ = step(agent, WebReceived(receipt), StepContext(waiting.now, random), PACKERS)
    assert all(peer.shown.mediator_receipt == StoredAtMediator() for peer in found.groups[name].links.peers.values()), (
        "it has another chain now"
    )


def test_a_start_awaits_nothing(waiting):
    assert waiting.nodes["n0"].agent.awaited_receipts
    waiting.web.stop_mediator("m0")
    waiting.restart("n0")
    assert not waiting.nodes["n0"].agent.awaited_receipts


# --- sentences ------------------------------------------------------------------------------------------------------


def test_report_names_the_receipt_and_its_expiry(waiting):
    waiting.nodes["n0"].agent, _ = told(waiting, receipt_for(waiting, time.time_ns() // 10**9 + 86_400))
    agent, group = waiting.nodes["n0"].agent, waiting.group("n0")
    row = Row(1, group.id, "id", group.me, group.seq, 1, "post", b"", waiting.now, False)
    event = cli_harness.event(group.seq, group.me, "n0", self=True)
    [one] = delivery.report(agent, group, row, lambda members: [], {}, event).members
    assert (one.state, one.delivered) == ("stored", False) and one.stored_until
    assert "the mediator has confirmed that it stores it until 12:04" in delivery_text._member_sentence(
        replace(one, nick="bob"), {}, str, lambda _: "12:04"
    )
    assert fates.symbol_of(one) == "⇥" and "stored by its mediator until" in fates.state_text(one)
    lost = replace(agent, endpoint_failures={"http://m0.example/": EndpointFailure(1, time.time_ns())})
    [away] = delivery.report(lost, group, row, lambda members: [], {}, event).members
    assert (away.state, away.via) == ("stored", ""), "also where its mediator cannot be reached just now"
    linked = replace(agent, links_up=frozenset({next(iter(group.links.peers.values())).link}))
    [one] = delivery.report(linked, linked.groups[group.id], row, lambda members: [], {}, event).members
    assert (one.state, one.stored_until) == ("sent", None), "on its way to the member itself"


@pytest.mark.parametrize(
    ("known", "span", "after"),
    [
        (None, (5, 5), (5, 50)),
        (None, (6, 7), None),
        ((6, 10), (7, 8), (8, 10)),
        ((6, 90), (7, 8), (8, 50)),
        ((6, 10), (5, 6), (6, 50)),
        ((8, 10), (5, 6), (8, 10)),
        ((8, 10), (5, 9), (9, 50)),
        ((8, -1), (5, 6), (6, 50)),
        ((8, 10), (10, 11), (8, 10)),
        ((4, 10), (5, 5), (5, 50)),
        (None, (2, 4), None),
    ],
)
def test_receipts_cover_a_contiguous_range(waiting, known, span, after):
    """The member has the first four events. Parameters: the known receipt, the range of a new receipt for 50 s, and the
    resulting one, with times in seconds from now."""
    node, now = waiting.nodes["n0"], waiting.now

    def held_by(row) -> StoredAtMediator:
        return StoredAtMediator() if row is None else StoredAtMediator(row[0], now // 1000 * 1000 + row[1] * 1000)

    agent = node.agent
    name, group = next(iter(agent.groups.items()))
    [(member, peer)] = group.links.peers.items()
    peer = replace(
        peer,
        start_seq=0,
        shown=replace(peer.shown, mediator_receipt=held_by(known)),
    )
    links = replace(group.links, peers={member: peer})
    digest, one = posted(waiting)
    agent = replace(
        agent,
        groups={name: replace(group, links=links.with_acks(member, {**links.acks_of(member), group.me: 4}))},
        awaited_receipts={digest: replace(one, first=span[0], upto=span[1])},
    )
    receipt = receipt_for(waiting, now // 1000 + 50)
    found, _ = step(agent, WebReceived(receipt), StepContext(now, random), PACKERS)
    assert not found.awaited_receipts
    assert found.groups[name].links.peers[member].shown.mediator_receipt == (
        held_by(after) if after else held_by(known)
    )
