"""Where chains begin for a joiner on the ring: nothing is acknowledged before all of its own time is there."""

import pytest
from msgspec.structs import replace

from tests.support.ring_world import RingWorld
from zerochat.group.effects import Notify, StoreEvent
from zerochat.group.event_log import own_events, receiving
from zerochat.group.event_log.event import POST, load_event
from zerochat.group.inputs import StepContext
from zerochat.group.links import storage_quota
from zerochat.group.membership import Policy
from zerochat.group.notifications import Delivered
from zerochat.group.state import BackfillProgress, PullPurpose, PullRequest
from zerochat.group.sync import acknowledgements, aggregation, backfill, positions, ring_starts
from zerochat.group.transaction import Transaction
from zerochat.sim import SIMULATED_PACKERS

MEMBERS = 26
AUTHOR, READER = "n5", "n20"


@pytest.fixture(scope="module")
def settled():
    return RingWorld(MEMBERS, policy=Policy(history="none"))


@pytest.fixture
def world(settled):
    return settled.fork(1)


class Reader:
    """A member that was never linked to the author, and gets its events in the order of the test."""

    def __init__(self, world, posts):
        self.world, self.author = world, world.group(AUTHOR).me
        ids = [world.post(AUTHOR, f"message {number}") for number in range(posts)]
        records = {row.id: row.record for row in world.nodes[AUTHOR].log}
        self.events = [load_event(records[one]) for one in ids]
        node = world.nodes[READER]
        self.tx = Transaction(node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
        self.tx.drop_chain(world.id, self.author)
        self.tx.update_sync(world.id, backfill=BackfillProgress(), ahead=frozenset())

    @property
    def group(self):
        return self.tx.group(self.world.id)

    @property
    def chain(self):
        return self.group.chain(self.author)

    @property
    def older(self):
        """Its peers that were there before it, and younger ones."""
        return [did for did in self.group.links.peers if self._joined(did) < self._joined(self.group.me)]

    @property
    def younger(self):
        return [did for did in self.group.links.peers if self._joined(did) > self._joined(self.group.me)]

    def _joined(self, did):
        return self.group.view.members[did].joined

    def receive(self, *numbers):
        bearer = min(self.group.links.peers)
        for number in numbers:
            receiving.receive_event(self.tx, self.world.id, bearer, self.events[number - 1])

    def page(self, member, *numbers, upto, more=False):
        """A page of history from a member, newest first."""
        ranges = ((self.author, 0, upto),)
        request = PullRequest("thread", ranges, 0, backwards=True, purpose=PullPurpose.BACKFILL)
        events = [self.events[number - 1] for number in numbers]
        backfill.receive_page(self.tx, self.world.id, member, request, events, more)

    def claims(self, member, upto):
        acknowledgements.record_acks(self.tx, self.world.id, member, [(self.author, upto)])

    def stored(self):
        """The places of the stored events of the author that are news, and those that are not; only the former are
        notified of."""
        rows = [one for one in self.tx.effects if isinstance(one, StoreEvent) and one.author == self.author]
        notified = [one.notification for one in self.tx.effects if isinstance(one, Notify)]
        told = {one.id for one in notified if isinstance(one, Delivered)}
        assert {row.id for row in rows if not row.history} == told & {row.id for row in rows}
        return [row.seq for row in rows if not row.history], [row.seq for row in rows if row.history]


def test_nothing_is_acknowledged_until_the_start_is_found(world):
    reader = Reader(world, 3)
    reader.receive(2, 3)
    assert reader.chain.seq == 3 and reader.chain.is_sought
    assert positions.confirmed_positions(reader.group, [reader.author]) == [0]
    aggregation.run_round(reader.tx, world.id)
    assert reader.author in reader.group.acks.due and reader.author not in reader.group.acks.sets
    reader.page(reader.older[0], 1, upto=1)
    assert not reader.chain.is_sought
    assert positions.confirmed_positions(reader.group, [reader.author]) == [3]
    aggregation.run_round(reader.tx, world.id)
    assert reader.author in reader.group.acks.sets


def test_our_events_name_no_event_of_a_chain_whose_start_is_sought(world):
    reader = Reader(world, 2)
    reader.receive(2)
    before = own_events.append(reader.tx, world.id, POST, {"text": "hello"})
    reader.page(reader.older[0], 1, upto=1)
    after = own_events.append(reader.tx, world.id, POST, {"text": "hello"})
    assert reader.events[1].id not in before.conc and reader.events[1].id in after.conc


def test_what_is_fetched_of_our_own_time_is_news(world):
    reader = Reader(world, 4)
    reader.receive(4)
    reader.page(reader.older[0], 3, upto=3, more=True)
    reader.page(reader.older[0], 2, 1, upto=2)
    assert reader.stored() == ([4, 3, 1, 2], [])


@pytest.mark.parametrize("begun", [True, False])
def test_news_that_is_fetched_exceeds_no_quota_of_its_author(world, begun):
    """An author and a bearer could fill the disk of a joiner otherwise: the bearer pays for history alone."""
    reader = Reader(world, 4)
    if begun:
        reader.receive(4)
    rules = replace(reader.tx.agent.storage_rules, daily_max=1 << 20)
    reader.tx.update_agent(storage_rules=rules)
    storage_quota.charge(reader.tx, world.id, reader.author, 1 << 20)
    before = reader.stored()
    reader.page(reader.older[0], *([3, 2] if begun else [4, 3]), upto=3 if begun else 4, more=True)
    assert reader.stored() == before
    reader.tx.update_agent(storage_rules=replace(rules, daily_max=0))
    reader.page(reader.older[0], *([3, 2, 1] if begun else [4, 3, 2, 1]), upto=3 if begun else 4)
    assert sorted(reader.stored()[0]) == [1, 2, 3, 4], "it comes when there is room"


def test_a_chain_that_is_fetched_from_its_beginning_is_news(world):
    reader = Reader(world, 3)
    reader.page(reader.older[0], 3, 2, 1, upto=3)
    assert reader.stored() == ([1, 2, 3], []) and not reader.chain.is_sought and reader.chain.complete_seq == 3


def test_what_dates_from_before_our_joining_is_history(world, monkeypatch):
    reader = Reader(world, 3)
    monkeypatch.setattr(backfill, "_rules", lambda group: ("all", "all"))
    monkeypatch.setattr(ring_starts, "joined", lambda group: reader.events[1].lamport)
    reader.page(reader.older[0], 3, 2, 1, upto=3)
    assert reader.stored() == ([2, 3], [1]) and not reader.chain.is_sought and reader.chain.complete_seq == 3


def test_the_author_alone_says_that_nothing_is_missing(world):
    reader = Reader(world, 3)
    reader.receive(3)
    reader.page(reader.author, 2, upto=2)
    assert not reader.chain.is_sought and reader.chain.complete_seq == 3


def test_of_others_several_say_so_that_were_here_before(world):
    reader = Reader(world, 3)
    reader.receive(3)
    assert len(reader.older) > ring_starts.ANSWERS
    for member in (*reader.older, *reader.younger):
        reader.page(member, upto=2)
    assert reader.chain.is_sought, "they acknowledge nothing of the chain themselves"
    for member in reader.younger:
        reader.claims(member, 2)
        reader.page(member, upto=2)
    assert reader.chain.is_sought, "they need not have what came before them"
    one, other, last = reader.older[: ring_starts.ANSWERS]
    for member in (one, one, other):
        reader.claims(member, 2)
        reader.page(member, upto=2)
    assert reader.chain.is_sought
    reader.claims(last, 2)
    reader.page(last, upto=2, more=True)
    reader.page(last, upto=1)
    assert reader.chain.is_sought, "it has more, or was asked about an earlier part"
    reader.page(last, upto=2)
    assert not reader.chain.is_sought and reader.chain.complete_seq == 3


def test_a_chain_of_which_nothing_has_come_yet_is_found_alike(world):
    """Its author has announced a start to us, long after we joined."""
    reader = Reader(world, 3)
    ring_starts.begin(reader.tx, world.id, reader.author, 3)
    assert reader.chain.seq == 3 and reader.chain.complete_seq == 0
    for member in reader.older[: ring_starts.ANSWERS]:
        reader.claims(member, 3)
        assert reader.chain.complete_seq == 0
        reader.page(member, upto=3)
    assert reader.chain.complete_seq == 3


def test_an_answer_with_an_event_that_does_not_fit_says_nothing(world):
    reader = Reader(world, 4)
    reader.receive(4)
    for member in reader.older[: ring_starts.ANSWERS]:
        reader.claims(member, 3)
        reader.page(member, 2, upto=3)
    assert reader.chain.is_sought and not reader.chain.backfill.exhausted_by


def test_a_signed_event_from_before_our_joining_shows_the_start(world):
    """The founder has admitted all others: its next event begins a chain whose start is known."""
    reader = Reader(world, 0)
    founder, me = world.group("n0"), reader.group.view.members[reader.group.me]
    admission = reader.group.control[me.admission]
    assert admission.author == founder.me
    before = ring_starts.begun_in(reader.group, founder.me, admission.seq)
    after = ring_starts.begun_in(reader.group, founder.me, admission.seq + 1)
    assert not before.is_sought and after.is_sought
    assert before.complete_seq == admission.seq and after.complete_seq == 0


def test_a_joiner_is_counted_by_authors_that_spoke_before(world):
    for author in ("n5", "n20", "n0"):
        world.post(author, "before")
    world.run(for_ms=10_000)
    name = world.add_node({}).name
    world.start(name)
    world.join(name, "n4")
    posts = [world.post(author, "after") for author in ("n5", "n20", "n0")]
    assert world.run(lambda: world.all_have(posts), for_ms=120_000, every_ms=500)
    me = world.group(name).me

    def is_counted():
        groups = [world.group(author) for author in ("n5", "n20", "n0")]
        return all(aggregation.known_upto(group, me, group.me) == group.seq for group in groups)

    assert world.run(is_counted, for_ms=240_000, every_ms=1_000)
    assert not any(chain.is_sought for chain in world.group(name).log.chains.values())
    assert not any(row.history for row in world.nodes[name].log if row.id in posts)


def test_members_that_never_post_are_not_sought(world):
    for node in world.nodes.values():
        group = node.agent.groups[world.id]
        silent = group.view.members.keys() - group.log.chains.keys() - {group.me}
        assert not silent & backfill._incomplete_chains(group).keys()
    reader = Reader(world, 0)
    reader.claims(reader.older[0], 1)
    assert reader.author in backfill._incomplete_chains(reader.group), "a member reports an event"
