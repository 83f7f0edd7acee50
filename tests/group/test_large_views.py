"""Messages of a large group have the positions of some members: every one learns all the others in time."""

import random
from itertools import permutations

import pytest
from msgspec.structs import replace

from tests.support.small_world import Small
from zerochat.didcomm.message import Message
from zerochat.group.inputs import SendPost, StepContext
from zerochat.group.state import Chain, EventLog
from zerochat.group.sync import chain_heads, positions
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SYNC, PositionsBody, SyncBody, read_body
from zerochat.limits import LATEST_AUTHORS_MAX
from zerochat.sim.world import SIMULATED_PACKERS


class Four(Small):
    def __init__(self):
        super().__init__(4)
        self.id = self.found()
        for name in list(self.nodes)[1:]:
            assert self.join(name, self.invite(self.id)).phase == "joined"
        self.run(for_ms=60_000)

    def knows_all(self):
        return all(acknowledged(self, *three) for three in permutations(self.nodes, 3))


def acknowledged(world, reader, author, other):
    """Whether the reader knows how far the other has the author's chain."""
    known = world.group(reader).links.acked(world.group(other).me, world.group(author).me)
    return known == world.group(author).seq


@pytest.fixture
def limits(monkeypatch):
    """Sets how many members fit: in a whole message, in a part, and as authors of the newest events."""

    def set_limits(whole, part, latest):
        monkeypatch.setattr(positions, "WHOLE_MAX", part)
        monkeypatch.setattr(positions, "HAVE_MAX", whole)
        monkeypatch.setattr(positions, "PART_MAX", part)
        monkeypatch.setattr("zerochat.group.state.chains.LATEST_AUTHORS_MAX", latest)

    return set_limits


@pytest.mark.parametrize(("whole", "part", "latest"), [(2, 2, 0), (2, 1, 1), (4, 1, 2)])
def test_every_member_learns_how_far_each_other_has_every_chain(limits, whole, part, latest):
    limits(whole, part, latest)
    world = Four()
    for name in world.nodes:
        world.run_command(name, SendPost(world.id, f"from {name}"))
    assert world.run(world.knows_all, for_ms=6 * 3_600_000)


def test_the_newest_authors_are_in_every_message(limits):
    limits(4, 1, 2)
    world = Four()
    for name in ("n1", "n2"):
        world.run_command(name, SendPost(world.id, f"from {name}"))
        world.run(for_ms=2_000)
    group = world.group("n0")
    tx = Transaction(world.nodes["n0"].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    newest = {world.group(name).me for name in ("n1", "n2")}
    for _ in range(20):
        fields, authors = positions.position_fields(tx, group, whole=False)
        assert newest <= {*authors} and len(authors) == len({*authors}) <= 3
        body = {"group": world.id, "start_seq": 0, "acked": 0, "heads": [], "reach": {"pair": "", "queue": "", "at": 0}}
        message = Message(type=SYNC, id="1", body={**body, **fields})
        found = positions.reported(group.view, read_body(message, SyncBody))
        assert found == [(did, group.chain(did).confirmed_seq) for did in authors]
        digests = chain_heads.head_digests(group, "salt", authors)
        member = world.group("n3").me
        assert list(chain_heads.differing_authors(group, member, "salt", found, digests)) == []
        others = {did: replace(chain, head_id="else") for did, chain in group.log.chains.items()}
        other = replace(group, log=replace(group.log, chains=others))
        differing = {*chain_heads.differing_authors(other, member, "salt", found, digests)}
        assert newest <= differing <= {*authors} - {member}


def test_places_beyond_the_view_are_ignored():
    world = Four()
    view = world.group("n0").view
    body = PositionsBody(view.checksum, [1, 2, 3, 4, 5], 6, [(3, 7), (4, 8), (2**50, 9)])
    order = [*view.order[2:], *view.order[:2]]
    assert positions.reported(view, body) == [*zip(order, range(1, 5), strict=True), (view.order[3], 7)]
    empty = replace(view, members={})
    assert positions.reported(empty, body) == []


@pytest.mark.parametrize("seed", range(20))
def test_the_newest_authors_are_those_of_a_sort(seed):
    dice, log = random.Random(seed), EventLog()
    for _ in range(300):
        author = f"a{dice.randrange(2 * LATEST_AUTHORS_MAX)}"
        if dice.random() < 0.1:
            log = log.without_chain(author)
        elif dice.random() < 0.2:
            log = log.changed(lamport=dice.randrange(1000))
        else:
            log = log.with_chain(author, Chain(1, lamport=dice.choice((log.lamport, dice.randrange(2000)))))
        if dice.random() < 0.7:  # not always: an index that is not asked for must not become stale
            ages = sorted(((chain.lamport, did) for did, chain in log.chains.items()), reverse=True)
            assert list(log.latest_authors) == [did for _, did in ages[:LATEST_AUTHORS_MAX]]
