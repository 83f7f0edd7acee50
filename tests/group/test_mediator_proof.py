"""Mediators that members name: nothing but probes goes to an address before the mediator there has answered."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tests.support.mediated_world import Behind
from zerochat.agent.views.held_mail import held_mail
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols import ping
from zerochat.didcomm.service import Route
from zerochat.group import dispatch
from zerochat.group.effects import WebPost
from zerochat.group.files import upload
from zerochat.group.inputs import StepContext, TimerFired, WebPostFailed, WebReceived
from zerochat.group.links import mediator_mail, mediator_proof, rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.state.external import MediatorProof
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SYNC

KEY = did_key(ed25519_public(b"\x09" * 32))
HOUR_MS = 3_600_000


class Reflecting(Behind):
    """n0 can be dialled; n1 and n2 are behind a mediator, and n2 says that it has others."""

    def __init__(self):
        self.sizes, self.said = [], 0
        super().__init__(3, hidden=("n1", "n2"))
        self.name = self.everybody()
        self.sizes.clear()
        self.member = self.group("n2").me

    def _perform(self, node, effect):
        if isinstance(effect, WebPost) and node.name == "n1":
            self.sizes.append((effect.uri, len(effect.envelope), self.now))
        super()._perform(node, effect)

    def announce(self, *routes):
        """n2's word to n1, which n1 has from its mediator."""
        relationship = self.group("n2").links.relationships[self.group("n1").me]
        body = {
            "group": self.name,
            "view": self.group("n1").view.checksum,
            "have": [],
            "start_seq": 0,
            "acked": 0,
            "heads": [],
            "reach": {
                "pair": "",
                "queue": "",
                "at": self.now + 1_000_000 + len(self.posted),
                "mail": [{"uri": uri, "keys": list(keys)} for uri, keys in routes],
            },
        }
        message = Message(type=SYNC, id=new_id(self.rng.randbytes), body=body)
        packed = pack(relationship, message, PACKERS["didcomm/v2"], self.rng.randbytes)
        self.said += len(packed)
        group = self.group("n1")
        tx = self.turn("n1")
        dispatch._receive_from_member(tx, group.id, self.member, packed)
        mediator_mail.seek(tx, group.id, self.member, earned=True)
        self.nodes["n1"].agent = tx.agent
        for effect in tx.effects:
            self._perform(self.nodes["n1"], effect)

    def turn(self, name):
        return Transaction(self.nodes[name].agent, StepContext(self.now, self.rng.randbytes), PACKERS)

    def sent_to(self, host):
        return [size for uri, size, _ in self.sizes if f"//{host}/" in uri or f"//{host}:" in uri]

    @property
    def box(self):
        return mediator_mail.mailbox(self.group("n2").seed)


def charged(probes):
    return sum(probes) + mediator_proof.HEADER_BYTES * len(probes)


@pytest.fixture
def world():
    one = Reflecting()
    one.stop("n2")
    return one


def test_an_unproved_address_gets_only_small_probes_with_backoff(world):
    world.announce(("http://bystander.example/", (KEY, world.box)))
    for number in range(60):
        world.post(world.name, "n1", f"{number} " + "x" * 3_000)
        world.run(for_ms=60_000)
    probes = world.sent_to("bystander.example")
    print(len(probes), max(probes))
    assert 0 < charged(probes) <= mediator_proof.AMPLIFICATION * world.said + mediator_proof.CREDIT_MAX
    assert not mediator_mail.reachable(world.turn("n1"), world.name, world.member)


def test_changing_paths_spend_one_budget(world):
    """404 or 200, and another path each time: at most 64 KiB in an hour, however often the member writes."""
    began = world.now
    for number in range(400):
        world.announce((f"http://bystander.example/{number}", (KEY, world.box)))
        world.run(for_ms=9_000)
    assert world.now - began >= HOUR_MS
    probes = world.sent_to("bystander.example")
    assert 10 < len(probes) <= 64 * 1024 // 1_000
    print(len(probes), max(probes))
    assert charged(probes) <= mediator_proof.PROBE_BYTES_MAX + mediator_proof.PROBE_BYTES_PER_HOUR
    assert charged(probes) <= mediator_proof.AMPLIFICATION * world.said + mediator_proof.CREDIT_MAX


def test_a_contact_causes_one_probe_a_day_and_messages_twice_their_bytes(world):
    """RFC 9000, section 8: whom a new member names has not asked for anything."""
    tx, payer = world.turn("n1"), f"{world.name} {KEY}"
    route = Route("http://bystander.example/", (KEY, world.box), (), "final")
    world.nodes["n1"].agent = replace(tx.agent, probes={}, mediator_proofs={})

    def probe(*, sent=0):
        tx = world.turn("n1")
        mediator_proof.credit(tx, payer, sent)
        mediator_proof.begin(tx, payer, [(route, tx.agent.nearest)], earned=sent > 0)
        probes = [len(effect.envelope) for effect in tx.effects if isinstance(effect, WebPost)]
        mediator_proof.handle_failure(tx, route.uri)
        world.nodes["n1"].agent = tx.agent
        world.now += 10 * 60_000
        return probes

    assert charged(probe()) <= mediator_proof.AMPLIFICATION * mediator_proof.CLAIM_BYTES
    day = [size for _ in range(24 * 6) for size in probe()]
    assert len(day) == 1, "a mediator may have been down"
    told = [size for _ in range(24 * 6) for size in probe(sent=1_000)]
    assert len(day) < len(told) and charged(told) <= mediator_proof.AMPLIFICATION * 24 * 6 * 1_000 + 4_000


def test_an_address_that_had_proved_itself_needs_no_credit(world):
    """A mediator that restarts is found again, however long its user is silent."""
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (other.did, world.box)))
    world.run(for_ms=1_000)
    assert mediator_mail.reachable(world.turn("n1"), world.name, world.member)
    world.process("n1", WebPostFailed(other.http))
    (record,) = [one for payer, one in world.nodes["n1"].agent.probes.items() if world.member in payer]
    probes = {f"{world.name} {world.member}": replace(record, credit=0, open=None)}
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, probes=probes)
    world.run(for_ms=120_000)
    assert mediator_mail.reachable(world.turn("n1"), world.name, world.member)


def test_held_mail_is_listed_with_its_reason(world, monkeypatch):
    monkeypatch.setattr("zerochat.agent.views.held_mail.time", SimpleNamespace(time=lambda: world.now / 1000))

    def listed():
        return [(one.member, one.uri, one.why) for one in held_mail(world.nodes["n1"].agent)]

    assert not listed(), "its mediator is ours, too"
    world.announce(("http://bystander.example/", (KEY, world.box)))
    assert listed() == [("n2", "http://bystander.example/", "unproved")]
    world.announce(("http://127.0.0.1/", (KEY, world.box)))
    assert listed() == [("n2", "http://127.0.0.1/", "near")]
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (other.did, world.box)))
    world.run(for_ms=60_000)
    assert not listed()
    world.process("n1", WebPostFailed(other.http))
    assert listed() == [("n2", other.http, "failed")]


def test_one_probe_at_a_time(world):
    hanging = [(f"http://{number}.example/", (KEY, world.box)) for number in range(4)]
    world.web._post = lambda *about: None  # nothing is ever answered
    for _ in range(5):
        world.announce(*hanging)
    assert len(world.sizes) == 1


def test_a_mediator_that_answers_gets_mail(world):
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (other.did, world.box)))
    assert not mediator_mail.reachable(world.turn("n1"), world.name, world.member)
    world.run(for_ms=1_000)
    assert mediator_mail.reachable(world.turn("n1"), world.name, world.member)
    mark = len(world.sizes)
    world.post(world.name, "n1", "hello")
    world.run(for_ms=1_000)
    assert other.http in [uri for uri, _, _ in world.sizes[mark:]]


def test_the_right_mediator_has_to_answer(world):
    """An honest mediator's address under another key proves nothing, and does not hurt that mediator."""
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (KEY, world.box)))
    world.run(for_ms=60_000)
    assert not mediator_mail.reachable(world.turn("n1"), world.name, world.member)
    (record,) = [one for payer, one in world.nodes["n1"].agent.probes.items() if world.member in payer]
    assert record.tries and mediator_mail.is_working(world.turn("n1"), other.http)


def test_only_the_mediators_own_answer_counts(world):
    world.web._post = lambda *about: None
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (other.did, world.box)))
    (payer,) = [payer for payer, one in world.nodes["n1"].agent.probes.items() if one.open is not None]
    probe = world.nodes["n1"].agent.probes[payer].open
    liar = type(other)("m8", world.rng.randbytes)
    asked = replace(ping.ping(world.rng.randbytes), id=probe.thread)
    for mediator, to in ((liar, asked), (other, ping.ping(world.rng.randbytes))):
        world.process("n1", WebReceived(mediator.encrypt(ping.answer(to, world.rng.randbytes), probe.mine.did)))
        assert not mediator_mail.reachable(world.turn("n1"), world.name, world.member)
    world.process("n1", WebReceived(other.encrypt(ping.answer(asked, world.rng.randbytes), probe.mine.did)))
    assert mediator_mail.reachable(world.turn("n1"), world.name, world.member)
    world.process("n1", WebReceived(other.encrypt(ping.answer(asked, world.rng.randbytes), probe.mine.did)))  # again


def test_a_failure_ends_the_proof(world):
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (other.did, world.box)))
    world.run(for_ms=1_000)
    world.web.stop_mediator("m9")
    world.process("n1", WebPostFailed(other.http))
    assert not mediator_mail.reachable(world.turn("n1"), world.name, world.member)
    mark = len(world.sizes)
    world.run(for_ms=600_000)
    sizes = [size for uri, size, _ in world.sizes[mark:] if uri == other.http]
    assert 3 < len(sizes) <= 20 and max(sizes) < mediator_proof.PROBE_BYTES, "probes, and soon again"
    world.web.start_mediator("m9")
    world.run(for_ms=300_000)
    assert mediator_mail.reachable(world.turn("n1"), world.name, world.member)


def test_a_proof_ends_with_time_and_bytes_and_is_renewed_before(world):
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (other.did, world.box)))
    world.run(for_ms=1_000)
    route = Route(other.http, (other.did, world.box), (), "final")
    (name,) = [name for name in world.nodes["n1"].agent.mediator_proofs if other.http in name]

    def with_proof(until, size):
        world.nodes["n1"].agent = replace(
            world.nodes["n1"].agent, mediator_proofs={name: MediatorProof(world.now + until, size)}
        )

    for until, size in ((0, 1), (1, 0), (mediator_proof.PROOF_MS + 1, 1)):
        with_proof(until, size)
        assert not mediator_proof.is_proved(world.turn("n1"), route)
    for until, size in ((mediator_proof.PROOF_MS // 3, 1 << 20), (mediator_proof.PROOF_MS, 1 << 20)):
        with_proof(until, size)
        world.post(world.name, "n1", "hello")
        world.run(for_ms=5_000)
        proof = world.nodes["n1"].agent.mediator_proofs[name]
        assert proof.bytes > 1 << 20 and proof.until > world.now + mediator_proof.PROOF_MS - 10_000


def _spent(tx, payer, route, size=64 * 1024):
    """How many bytes go to a proved address in one moment."""
    count = 0
    while mediator_proof.spend(tx, payer, route, size):
        count += size
    return count


def test_mail_is_limited_for_each_peer_and_host(world):
    """A proved address may belong to the member that named it, or to another machine by now."""
    tx = world.turn("n1")
    routes = [Route(f"http://m.example/{path}", (KEY, world.box), (), "final") for path in range(8)]
    proofs = {f"{route.uri} {KEY}": MediatorProof(tx.now + 1000, mediator_proof.PROOF_BYTES * 99) for route in routes}
    tx.update_agent(mediator_proofs=proofs)
    most, per_s = mediator_proof.MAIL_BYTES_MAX, mediator_proof.MAIL_BYTES_PER_S
    assert _spent(tx, "one", routes[0]) == most and not _spent(tx, "one", routes[1])
    later = Transaction(tx.agent, StepContext(world.now + 1_000, world.rng.randbytes), PACKERS)
    assert _spent(later, "one", routes[0]) == per_s
    others = [_spent(later, f"peer {number}", routes[number % 8]) for number in range(12)]
    at_host = mediator_proof.HOST_BYTES_MAX - max(0, most - mediator_proof.HOST_BYTES_PER_S) - per_s
    assert sum(others) == at_host and not _spent(later, "peer 99", routes[7])


def test_mail_beyond_the_limit_comes_later(world, monkeypatch):
    monkeypatch.setattr(mediator_proof, "MAIL_BYTES_MAX", 40_000)
    monkeypatch.setattr(mediator_proof, "MAIL_BYTES_PER_S", 400)
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (other.did, world.box)))
    world.run(for_ms=1_000)
    mark, began = len(world.sizes), world.now
    for number in range(60):
        world.post(world.name, "n1", f"{number} " + "".join(chr(97 + world.rng.randrange(26)) for _ in range(3_000)))
    world.run(for_ms=300_000)
    mailed = sum(size for uri, size, _ in world.sizes[mark:] if uri == other.http)
    assert 40_000 < mailed <= 40_000 + 400 * (world.now - began) // 1000 + 4_000 * 5
    assert world.nodes["n1"].dropped["dropped MailRate"]


def test_changes_of_addresses_are_limited(world):
    seen = set()
    for number in range(100):
        world.announce((f"http://{number}.example/", (KEY, world.box)))
        seen |= {way.uri for way in mediator_mail.reach_of_member(world.group("n1"), world.member).routes}
    assert len(seen) == rate_limits.MOVES_MAX
    world.run(for_ms=rate_limits.MOVE_INTERVAL_MS)
    world.announce(("http://last.example/", (KEY, world.box)))
    assert mediator_mail.reach_of_member(world.group("n1"), world.member).routes[0].uri == "http://last.example/"


def test_hidden_joiners_are_answered_at_once_after_the_proof():
    """The inviter's answer waits for the proof of the joiner's mediator, not for the joiner's next request."""
    world = Behind(2, hidden=("n0", "n1"), mediators=2, via={"n0": ("m0",), "n1": ("m1",)})
    began = world.now
    world.everybody()
    assert world.now - began < 30_000
    records = world.nodes["n0"].agent.probes.values()
    assert not any(one.open is not None and one.open.held for one in records)


def test_records_are_bounded(world, monkeypatch):
    monkeypatch.setattr(mediator_proof, "RECORDS_MAX", 4)
    monkeypatch.setattr(mediator_proof, "PROOFS_MAX", 2)
    tx = world.turn("n1")
    route = Route("http://bystander.example/", (KEY,), (), "final")
    for number in range(20):
        mediator_proof.begin(
            tx, f"peer {number}", [(replace(route, uri=f"http://{number}.example/"), tx.agent.nearest)]
        )
    assert len(tx.agent.probes) == 4


def test_timers_of_unknown_peers_are_ignored(world):
    before = world.nodes["n1"].agent
    for payer in ("x y", "00ff", f"{world.name} nobody"):
        world.process("n1", TimerFired(f"{TimerKind.MEDIATOR_PROOF} {payer}"))
    assert world.nodes["n1"].agent.probes == before.probes


def test_files_go_by_mail_at_a_lower_rate(world):
    world.web.add(other := type(world.web.mediators["m0"])("m9", world.rng.randbytes))
    world.announce((other.http, (other.did, world.box)))
    world.run(for_ms=1_000)
    tx = world.turn("n1")

    def spent(member):
        count = 0
        while upload._spend_upload(tx, world.name, member, 32 * 1024):
            count += 32 * 1024
        return count

    linked = world.group("n0").me
    assert spent(world.member) == upload.MAIL_BYTES_MAX and spent(linked) == upload.UPLOAD_BYTES_MAX
    tx.context = StepContext(world.now + 1_000, world.rng.randbytes)
    assert spent(world.member) == upload.MAIL_BYTES_PER_S
