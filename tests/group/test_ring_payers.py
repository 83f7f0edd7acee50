"""Who pays on the ring: an author for what it has signed, its bearer for junk and for duplicates."""

import pytest
from msgspec.structs import replace

from tests.support.ring_world import RingWorld
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.group.engine import step
from zerochat.group.inputs import ChangeLabel, Received, StepContext
from zerochat.group.key_modes import forwarded
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.links import peers, rate_limits
from zerochat.group.settings import StorageRules
from zerochat.group.transaction import Transaction
from zerochat.sim import SIMULATED_PACKERS

MEMBERS = 30
STRANGER = bytes(range(32))


@pytest.fixture(scope="module")
def settled():
    world = RingWorld(MEMBERS)
    world.run(for_ms=3_600_000)  # all buckets are full
    return world


class Seat:
    """One node, two of its peers, and an author that is no peer of it."""

    def __init__(self, settled):
        self.world = settled.fork(1)
        self.node = self.world.nodes["n9"]
        group = self.world.group("n9")
        self.bearers = sorted(group.links.peers)[:2]
        owner = {self.world.group(name).me: name for name in self.world.nodes}
        self.author = self.world.group(owner[min(set(group.others) - group.links.peers.keys())])

    def message(self, number, author=None, seed=None):
        """A message of the author, under a key that the node does not have."""
        author, world = author or self.author, self.world
        sealed = seal(bytes(32), Place("A" * 43, number), world.id, author.me, {"runs": []})
        return forwarded.sign(seed or author.seed, author.me, world.id, author.seq + 1 + number, sealed)

    def receive(self, envelope, bearer=0):
        """The node receives an envelope of a peer; how many members it sends it to."""
        link = self.world.group("n9").links.peers[self.bearers[bearer]].link
        context = StepContext(self.world.now, self.world.rng.randbytes)
        self.node.agent, effects = step(self.node.agent, Received(link, envelope), context, SIMULATED_PACKERS)
        return sum(is_forwarded(getattr(effect, "envelope", b"")) for effect in effects)

    def left(self, did):
        """How many envelopes a member may still cause here."""
        context = StepContext(self.world.now, self.world.rng.randbytes)
        limit = Transaction(self.node.agent, context, SIMULATED_PACKERS).payer(self.world.id, did).rate_limit
        passed = self.world.now - limit.at
        return min(rate_limits.ENVELOPES_MAX, limit.envelopes + passed * rate_limits.ENVELOPES_PER_S // 1000)


@pytest.fixture
def seat(settled):
    return Seat(settled)


def test_the_author_pays_for_what_it_has_signed(seat):
    before = seat.left(seat.bearers[0])
    for number in range(5):
        assert seat.receive(seat.message(number)) > 0
    assert seat.left(seat.author.me) == rate_limits.ENVELOPES_MAX - 5
    assert seat.left(seat.bearers[0]) == before


def test_an_author_beyond_its_limit_is_not_forwarded_whoever_brings_it(seat, monkeypatch):
    monkeypatch.setattr(rate_limits, "ENVELOPES_MAX", 3)
    sent = [seat.receive(seat.message(number), bearer=number % 2) for number in range(6)]
    assert [count > 0 for count in sent] == [True] * 3 + [False] * 3
    others = (seat.world.group(name) for name in seat.world.nodes)
    other = next(one for one in others if one.me not in (seat.author.me, *seat.bearers, seat.world.group("n9").me))
    assert seat.receive(seat.message(0, other)) > 0, "what its bearers bring of others goes on"


@pytest.mark.parametrize("kind", ["signature", "stranger", "form", "duplicate"])
def test_the_bearer_pays_for_junk_and_duplicates(seat, kind):
    seat.receive(seat.message(0), bearer=1)
    author, bearer = seat.left(seat.author.me), seat.left(seat.bearers[0])
    stranger = did_key(ed25519_public(STRANGER))
    sealed = seal(bytes(32), Place("A" * 43, 0), seat.world.id, stranger, {"runs": []})
    junk = {
        "signature": seat.message(1, seed=STRANGER),
        "stranger": forwarded.sign(STRANGER, stranger, seat.world.id, 1, sealed),
        "form": seat.message(1)[:70],
        "duplicate": seat.message(0),
    }
    assert seat.receive(junk[kind]) == 0
    assert (seat.left(seat.author.me), seat.left(seat.bearers[0])) == (author, bearer - 1)


def test_a_bearer_beyond_its_limit_is_ignored_and_another_is_not(seat, monkeypatch):
    monkeypatch.setattr(rate_limits, "ENVELOPES_MAX", 4)
    seat.receive(seat.message(0))
    for _ in range(4):
        seat.receive(seat.message(0))
    assert seat.receive(seat.message(1)) == 0
    assert seat.receive(seat.message(1), bearer=1) > 0


def test_the_author_pays_for_what_is_stored(settled):
    world = settled.fork(1)
    for node in world.nodes.values():
        node.agent = replace(node.agent, storage_rules=StorageRules(daily_max=1 << 30))
    author = world.group("n3").me
    post = world.post("n3", "x" * 2_000)
    assert world.run(lambda: world.all_have([post]), for_ms=60_000, every_ms=500)
    for name in world.nodes.keys() - {"n3"}:
        links = world.group(name).links
        paid = {did: one.stored.used for did, one in (links.peers | links.accounts).items()}
        assert paid[author] > 2_000
        assert not any(paid[did] for did in paid.keys() - {author})


def test_what_an_author_owes_stays_when_it_becomes_a_peer_or_ceases_to_be_one(seat):
    world, peer = seat.world, seat.bearers[0]
    seat.receive(seat.message(0, seat.world.group(next(n for n in world.nodes if world.group(n).me == peer))))
    owed = seat.left(peer)
    assert owed < rate_limits.ENVELOPES_MAX
    tx = Transaction(seat.node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    peers.close_peer(tx, world.id, peer)
    seat.node.agent = tx.agent
    assert peer not in world.group("n9").links.peers and seat.left(peer) == owed
    peers.add_peer(tx, world.id, peer, chosen=True)
    seat.node.agent = tx.agent
    assert peer in world.group("n9").links.peers and seat.left(peer) == owed
    assert peer not in world.group("n9").links.accounts


def test_the_author_pays_for_its_membership_events(settled):
    world = settled.fork(1)
    world.run_command("n3", ChangeLabel(world.id, "somewhere else"))
    world.run(for_ms=450)
    author = world.group("n3").me
    for name in world.nodes.keys() - {"n3"}:
        assert world.group(name).view.members[author].label == "somewhere else"
        assert world.group(name).links.branch_rates.keys() == {author}
