"""Held receipts: a mediator says that it keeps something, to whoever may know, and people alone go by it."""

import json
import time
from random import Random

import pytest
from msgspec.structs import replace

from tests.cli import test_cli
from tests.network.test_mediator import NOW, V2, Client, Site, letter
from tests.support.mediated_world import Behind
from zerochat.agent.mediator.core import Outcome
from zerochat.agent.mediator.limits import Limits
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
from zerochat.group.effects import Measure, Post
from zerochat.group.engine import step
from zerochat.group.inputs import CreateGroup, Mailed, Moment
from zerochat.group.links import mediator_receipts, peers
from zerochat.group.state import Awaited, Custody, Fault
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import ReachBody
from zerochat.presentation import delivery as delivery_text
from zerochat.tui.actions import delivery as fates

random = Random(44).randbytes
MEDIATOR = new_peer2(random, [])
ENVELOPE = b'{"an":"envelope"}'
UNTIL = NOW // 1000 + 86_400


def read(receipt: bytes, by=MEDIATOR) -> mediator_receipt.Held:
    """As whoever has posted something to this mediator."""
    return mediator_receipt.check(mediator_receipt.read(receipt), resolve(by.did))


# --- the receipt ----------------------------------------------------------------------------------------------------


def test_a_receipt_names_the_envelope_and_the_time():
    receipt = mediator_receipt.receipt(ENVELOPE, UNTIL, MEDIATOR, random)
    assert mediator_receipt.may_be(receipt) and not mediator_receipt.may_be(letter(new_peer4(random, []), "hello"))
    assert read(receipt) == mediator_receipt.Held(mediator_receipt.digest_of(ENVELOPE), UNTIL)


def test_a_receipt_says_nothing_of_whom_it_is_for():
    mailbox = did_key(ed25519_public(bytes(32)))
    receipt = mediator_receipt.receipt(ENVELOPE, UNTIL, MEDIATOR, random)
    assert mailbox.encode() not in jws.read(receipt).payload and len(receipt) < 4_000


def signed(body: dict, kind: str = mediator_receipt.HELD, by=MEDIATOR, says=MEDIATOR) -> bytes:
    message = Message(type=kind, id="1", body=body, from_=says.did)
    return jws.sign(dump(message), [(by.kid_signing, SecretKey("Ed25519", by.signing_seed))], flattened=True)


def test_only_the_mediator_that_was_handed_it_can_say_so():
    body = {"sha256": b64url(mediator_receipt.digest_of(ENVELOPE)), "until": UNTIL}
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
        {"sha256": b64url(mediator_receipt.digest_of(ENVELOPE)), "until": -1},
        {"sha256": b64url(mediator_receipt.digest_of(ENVELOPE)), "until": mediator_receipt.TIME_S_MAX + 1},
        {"sha256": b64url(mediator_receipt.digest_of(ENVELOPE)), "until": "tomorrow"},
        {"sha256": b64url(mediator_receipt.digest_of(ENVELOPE)), "until": 1.5},
    ],
)
def test_what_is_no_receipt_is_refused(body):
    with pytest.raises(Malformed):
        mediator_receipt.read(signed(body))


def test_a_receipt_of_another_type_or_too_long_is_refused():
    body = {"sha256": b64url(mediator_receipt.digest_of(ENVELOPE)), "until": UNTIL}
    with pytest.raises(Malformed):
        mediator_receipt.read(signed(body, kind="https://zerochat.org/mediation/1.0/told"))
    with pytest.raises(Malformed):
        mediator_receipt.read(signed(body | {"more": "x" * mediator_receipt.BYTES_MAX}))


def test_no_byte_of_a_receipt_can_be_changed():
    receipt = mediator_receipt.receipt(ENVELOPE, UNTIL, MEDIATOR, random)
    for place in range(0, len(receipt), 3):
        broken = bytearray(receipt)
        broken[place] ^= 1
        try:
            found = read(bytes(broken))
        except RemoteError:
            continue
        assert found == mediator_receipt.Held(mediator_receipt.digest_of(ENVELOPE), UNTIL), "or it changes nothing"


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


def test_a_mediator_says_that_it_keeps_what_is_for_a_proven_key(site):
    box, envelope = Mailbox(site), letter(MEDIATOR, "hello")
    outcome = site.hear(box.forwarded(envelope))
    assert (outcome.what, outcome.media_type) == ("kept", MediaType.SIGNED)
    found = read(outcome.answer or b"", site.identity)
    assert found == mediator_receipt.Held(
        mediator_receipt.digest_of(envelope), NOW // 1000 + site.mediator.limits.age_s
    )


def test_nobody_can_tell_by_asking_again_when_something_was_fetched(site):
    """Not by the same bytes, nor by the same envelope in another forward, nor is anything said of it twice."""
    box, envelope = Mailbox(site), letter(MEDIATOR, "hello")
    posted = box.forwarded(envelope)
    assert site.hear(posted).answer is not None
    site.restart()
    waiting = [site.hear(one) for one in (posted, box.forwarded(envelope))]
    box.bob.connect()
    box.bob.acknowledge()
    assert waiting == [site.hear(one) for one in (posted, box.forwarded(envelope))] == [Outcome("dropped.twice")] * 2


def test_a_receipt_tells_the_earlier_end_that_was_asked_for(site):
    box, soon = Mailbox(site), NOW // 1000 + 60
    outcome = site.hear(box.forwarded(letter(MEDIATOR, "hello"), expires_time=soon))
    assert read(outcome.answer or b"", site.identity).until == soon


def test_a_mediator_says_nothing_where_nobody_asks_or_nobody_may(site):
    proven, unproven = Mailbox(site), Mailbox(site, proven=False)
    envelope = letter(MEDIATOR, "hello")
    assert site.hear(proven.forwarded(envelope, asks=False)) == Outcome("kept")
    assert site.hear(unproven.forwarded(envelope)) == Outcome("kept"), "who has no proof may be anybody"
    proven.did = did_key(ed25519_public(random(32)))
    assert site.hear(proven.forwarded(envelope)) == Outcome("dropped.unknown")


def test_a_mediator_says_nothing_of_what_it_does_not_keep(site):
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


def test_a_mediator_says_nothing_of_what_it_has_no_room_for(tmp_path):
    site = Site(tmp_path / "small.db", Limits(messages=1))
    box = Mailbox(site)
    assert site.hear(box.forwarded(letter(MEDIATOR, "one"))).answer is not None
    assert site.hear(box.forwarded(letter(MEDIATOR, "two"))) == Outcome("dropped.full")
    site.store.close()


def test_a_large_envelope_has_the_same_name_on_both_sides(site):
    """What cannot be delivered in base64 is written again before it is kept; its receipt is for what came."""
    box = Mailbox(site)
    envelope = letter(MEDIATOR, "x" * 150_000)
    assert compact_json(strict_json(envelope, len(envelope))) == envelope, "as every packer of ours writes it"
    outcome = site.hear(box.forwarded(envelope))
    assert read(outcome.answer or b"", site.identity).digest == mediator_receipt.digest_of(envelope)
    assert pickup.deliverable(envelope)


# --- the sender -----------------------------------------------------------------------------------------------------


class Keyed(Behind):
    """Three, of whom two only dial out, in a group with such keys."""

    def __init__(self, keys: str, envelope: str, members: int = 3, hidden: tuple[str, ...] = ("n1", "n2")) -> None:
        super().__init__(members, hidden=hidden, envelope=envelope)
        self.keys = keys

    def found(self, name="n0"):
        return self.ask(name, CreateGroup("friends", name, self.envelope, keys=self.keys)).result.group


def absent(world: Behind, name: str) -> None:
    """This node's WebSocket is gone, so what is for it waits at its mediator."""
    world.web.held = {one for one in world.web.held if one[0] != name}
    world.web.cut(name, "ws://m0.example/")


def state_of(world: Behind, name: str, of: str, position: int) -> int:
    """Until when the mediator of `of` keeps that event of `name`, as that one knows."""
    group = world.group(name)
    return mediator_receipts.until(group, world.group(of).me, position, world.now)


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key"])
def test_who_is_away_has_it_held(envelope, keys):
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
    world.web.take_down(mediator.name)
    world.post(group, "n0", "not held by anybody")
    world.run(for_ms=1_500)
    assert state_of(world, "n0", "n1", first + 2) and not state_of(world, "n0", "n1", first + 3)
    world.web.bring_back(mediator.name)
    world.run(lambda: state_of(world, "n0", "n1", first + 3) > 0, for_ms=120_000)
    assert state_of(world, "n0", "n1", first + 3), "the next repetition asks again"
    world.restart("n1")
    world.settle()


def test_over_two_mediators_nobody_is_asked():
    world = Behind(2, hidden=("n0", "n1"), mediators=2, chained=True)
    group = world.everybody()
    absent(world, "n1")
    world.post(group, "n0", "over two")
    world.run(for_ms=3_000)
    assert not world.nodes["n0"].agent.awaited and not state_of(world, "n0", "n1", world.group("n0").seq)


def posted(world: Behind) -> tuple[bytes, Awaited]:
    """What n0 has posted last, before any receipt for it has come."""
    agent = world.nodes["n0"].agent
    digest = next(reversed(agent.awaited))
    return digest, agent.awaited[digest]


@pytest.fixture
def waiting():
    """Two behind a mediator that says nothing of what it keeps; the other is away, and something is on its way."""
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
    """What n0 is, and says, once that has come."""
    agent = world.nodes["n0"].agent
    return step(agent, Mailed(receipt), Moment(world.now + leap_ms, random), PACKERS)


def receipt_for(world: Behind, until: int = mediator_receipt.TIME_S_MAX, by=None) -> bytes:
    digest, _ = posted(world)
    body = {"sha256": b64url(digest), "until": until}
    mediator = by or world.web.mediators["m0"]._identity
    return signed(body, by=mediator, says=mediator)


def test_a_forged_receipt_changes_nothing(waiting):
    before = waiting.nodes["n0"].agent
    for junk in (receipt_for(waiting, by=new_peer2(random, [])), b'{"payload":', b'{"payload":"e30","signatures":[]}'):
        after, effects = told(waiting, junk)
        assert after == before and [type(one) for one in effects] == [Measure]
    unasked = mediator_receipt.receipt(ENVELOPE, UNTIL, waiting.web.mediators["m0"]._identity, random)
    assert told(waiting, unasked) == (before, []), "of something in which nothing was said, or of long ago"


def test_a_receipt_counts_once_and_as_long_as_it_says(waiting):
    until = waiting.now // 1000 + 60
    after, effects = told(waiting, receipt_for(waiting, until))
    assert not effects
    group = next(iter(after.groups.values()))
    [member] = group.peers
    assert mediator_receipts.until(group, member, group.seq, waiting.now) == until * 1000
    assert not mediator_receipts.until(group, member, group.seq, until * 1000)
    assert step(after, Mailed(receipt_for(waiting, until)), Moment(waiting.now, random), PACKERS) == (after, [])


def test_a_receipt_that_is_over_when_it_comes_counts_for_nothing(waiting):
    after, _ = told(waiting, receipt_for(waiting, waiting.now // 1000 - 1))
    group = next(iter(after.groups.values()))
    [member] = group.peers
    assert not mediator_receipts.until(group, member, group.seq, waiting.now)


def test_receipts_change_nothing_of_what_is_repeated(waiting):
    """A mediator that says so and has thrown it away keeps nobody from getting it."""
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
    assert len(waiting.nodes["n0"].agent.awaited) == 3
    assert posted(waiting)[1].upto == waiting.group("n0").seq


def test_no_receipt_is_awaited_for_long(waiting):
    group = next(iter(waiting.nodes["n0"].agent.groups))
    old = set(waiting.nodes["n0"].agent.awaited)
    waiting.now += mediator_receipts.AWAITED_MS + 1
    waiting.post(group, "n0", "much later")
    waiting.run(for_ms=10)
    assert waiting.nodes["n0"].agent.awaited and not old & set(waiting.nodes["n0"].agent.awaited)


def test_one_member_takes_nobody_else_s_place(waiting, monkeypatch):
    monkeypatch.setattr(mediator_receipts, "AWAITED_EACH_MAX", 3)
    node = waiting.nodes["n0"]
    _, one = posted(waiting)
    theirs = {bytes([9, number]): replace(one, member="somebody else") for number in range(5)}
    node.agent = replace(node.agent, awaited={**theirs, **node.agent.awaited})
    group = next(iter(node.agent.groups))
    for number in range(6):
        waiting.post(group, "n0", f"word {number}")
        waiting.run(for_ms=100)
    found = [one.member for one in node.agent.awaited.values()]
    assert found.count("somebody else") == 5 and len(found) == 8


def test_whatever_is_sent_asks_alike():
    """Else whoever sees sizes and answers could tell what somebody has said from all that is said in between."""
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
        if isinstance(effect, Post) and effect.uri == mediator.http:  # the other is the mediator's own ear
            seen.append(("post", effect.return_route, True))
        perform(node, effect)

    world.web.perform = watched  # type: ignore[method-assign]
    group = world.everybody()
    world.post(group, "n0", "a word")
    world.run(for_ms=60_000)
    boxes = [one for one in seen if one[0] == "forward" and one[2]]
    assert len(boxes) > 10 and all(asked for _, asked, _ in boxes), "joining, states and words"
    assert all(asked for kind, asked, _ in seen if kind == "post")


def test_what_a_member_has_lost_is_held_by_nobody(waiting):
    """It begins anew with us, or says that it has less: what its mediator had is fetched, and gone with the rest."""
    node = waiting.nodes["n0"]
    node.agent, _ = told(waiting, receipt_for(waiting))
    name, group = next(iter(node.agent.groups.items()))
    [member] = group.peers
    assert group.peers[member].custody.upto
    turn = Turn(node.agent, Moment(waiting.now, random), PACKERS)
    turn.edit_peer(name, member, acked={group.me: group.seq}, less_at=1, said_at=0)
    view, at = group.view.checksum, waiting.now + 1
    acknowledgements.note_loss(turn, name, member, view, [0] * len(group.view.members), at)
    assert turn.group(name).peers[member].custody == Custody() and not turn.agent.awaited


def test_another_mediator_holds_nothing_of_the_one_before(waiting):
    node = waiting.nodes["n0"]
    node.agent, _ = told(waiting, receipt_for(waiting))
    name, group = next(iter(node.agent.groups.items()))
    [member] = group.peers
    turn = Turn(node.agent, Moment(waiting.now, random), PACKERS)
    body = ReachBody(pair="", queue="", at=waiting.now)
    peers.moved(turn, name, member, body)
    assert turn.group(name).peers[member].custody == Custody()


def test_whoever_has_left_is_told_nothing_by_late_receipts(waiting):
    node = waiting.nodes["n0"]
    receipt = receipt_for(waiting)
    agent = replace(node.agent, groups={})
    _, effects = step(agent, Mailed(receipt), Moment(waiting.now, random), PACKERS)
    assert Measure not in map(type, effects)
    [(name, group)] = node.agent.groups.items()
    agent = replace(node.agent, groups={name: replace(group, me="did:key:zAnother")})
    found, _ = step(agent, Mailed(receipt), Moment(waiting.now, random), PACKERS)
    assert all(peer.custody == Custody() for peer in found.groups[name].peers.values()), "it has another chain now"


def test_a_start_awaits_nothing(waiting):
    assert waiting.nodes["n0"].agent.awaited
    waiting.web.take_down("m0")
    waiting.restart("n0")
    assert not waiting.nodes["n0"].agent.awaited


# --- what people are told -------------------------------------------------------------------------------------------


def test_a_report_says_who_has_it_held_and_until_when(waiting):
    waiting.nodes["n0"].agent, _ = told(waiting, receipt_for(waiting, time.time_ns() // 10**9 + 86_400))
    agent, group = waiting.nodes["n0"].agent, waiting.group("n0")
    row = Row(1, group.id, "id", group.me, group.seq, 1, "post", b"", waiting.now, False)
    event = test_cli.event(group.seq, group.me, "n0", self=True)
    [one] = delivery.report(agent, group, row, [], {}, event).members
    assert (one.state, one.delivered) == ("held", False) and one.held_until
    assert "its mediator has signed that it holds it until 12:04; not heard from" in delivery_text._one(
        replace(one, nick="bob"), {}, str, lambda _: "12:04"
    )
    assert fates.sign_of(one) == "⇥" and "held by its mediator until" in fates.state_of(one)
    lost = replace(agent, faults={"http://m0.example/": Fault(1, time.time_ns())})
    [away] = delivery.report(lost, group, row, [], {}, event).members
    assert (away.state, away.via) == ("held", ""), "also where its mediator cannot be reached just now"
    linked = replace(agent, up=frozenset({next(iter(group.peers.values())).link}))
    [one] = delivery.report(linked, linked.groups[group.id], row, [], {}, event).members
    assert (one.state, one.held_until) == ("sent", None), "on its way to the member itself"


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
def test_what_is_held_is_a_row_without_a_gap(waiting, known, span, after):
    """The member has the first four; what is known of its mediator, what a receipt for 50 s is about, and what is known
    then, with times in seconds from now."""
    node, now = waiting.nodes["n0"], waiting.now

    def held_by(row) -> Custody:
        return Custody() if row is None else Custody(row[0], now // 1000 * 1000 + row[1] * 1000)

    agent = node.agent
    name, group = next(iter(agent.groups.items()))
    [(member, peer)] = group.peers.items()
    peer = replace(peer, acked={**peer.acked, group.me: 4}, base=0, custody=held_by(known))
    digest, one = posted(waiting)
    agent = replace(
        agent,
        groups={name: replace(group, peers={member: peer})},
        awaited={digest: replace(one, first=span[0], upto=span[1])},
    )
    receipt = receipt_for(waiting, now // 1000 + 50)
    found, _ = step(agent, Mailed(receipt), Moment(now, random), PACKERS)
    assert not found.awaited
    assert found.groups[name].peers[member].custody == (held_by(after) if after else held_by(known))
