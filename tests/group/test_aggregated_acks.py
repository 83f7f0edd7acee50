"""Aggregated acknowledgements on the ring: authors learn who has their posts; false reports change what is shown."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.support.ring_world import RingWorld
from tests.support.small_world import Small
from zerochat.agent.views import delivery
from zerochat.agent.views.delivery_counts import DeliveryCounts, audience, has
from zerochat.crypto.encoding import b64url
from zerochat.errors import Refused
from zerochat.group import dispatch, retention
from zerochat.group.effects import Notify, SetTimer, StoreReceipt
from zerochat.group.event_log.event import load_event
from zerochat.group.inputs import LeaveGroup, StepContext
from zerochat.group.links import neighbours
from zerochat.group.links.relationship import pack
from zerochat.group.notifications import Receipt
from zerochat.group.state.ack_sets import AggregatedAcks
from zerochat.group.sync import acknowledgements, aggregation
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import ACK_SETS_MAX, AckSetsBody
from zerochat.limits import RING_KEYS
from zerochat.overlay.ack_sets import SETS_MAX, bits_of
from zerochat.sim import SIMULATED_PACKERS, Faults

MEMBERS = 40
CALM_MS = 120_000
"""Within this time after the last delivery all authors know of all deliveries."""
MESSAGES_MAX, BYTES_MAX = 20, 16_384
"""Of acknowledgement sets that a member sends for one post to which nothing else is joined."""
QUIET = Faults(0, 0, 20)


class AckWorld(RingWorld):
    """Checks each receipt when it is stored."""

    def _on_receipt(self, node, receipt):
        groups = [group for other in self.nodes.values() for group in other.agent.groups.values()]
        (theirs,) = [group for group in groups if group.me == receipt.member]
        assert theirs.chain(receipt.author).seq >= receipt.upto, "a receipt of what its member does not have"


@pytest.fixture(scope="module")
def settled():
    return AckWorld(MEMBERS)


def delivered(world, name):
    """How many members a node knows to have its last event, and of how many."""
    group = world.group(name)
    found = DeliveryCounts(group).of(group.me, group.seq, group.log.lamport + 1)
    return found.delivered, found.of


def all_know(world, names):
    return all(delivered(world, name) == (MEMBERS - 1, MEMBERS - 1) for name in names)


def transaction(world, name):
    return Transaction(world.nodes[name].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)


def neighbour_of(world, name):
    return min(world.connected(name))


def everyone(group):
    return (1 << len(group.view.order)) - 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
def test_every_author_learns_that_all_have_its_post(settled, seed):
    world = settled.fork(seed, Faults(loss=0.2, duplication=0.1, delay_ms_max=400))
    posts = []
    for name in world.nodes:
        posts.append(world.post(name, f"from {name}"))
        world.run(for_ms=world.rng.randint(1, 600))
    world.run(for_ms=20_000)
    world.faults = QUIET
    assert world.run(lambda: world.all_have(posts), for_ms=900_000, every_ms=1_000)
    assert world.run(lambda: all_know(world, world.nodes), for_ms=CALM_MS, every_ms=1_000)


def test_other_members_learn_it_too(settled):
    world = settled.fork(3)
    post = world.post("n7", "hello")
    assert world.run(lambda: world.all_have([post]), for_ms=600_000, every_ms=1_000)
    author = world.group("n7")

    def all_learned():
        for name in world.nodes.keys() - {"n7"}:
            found = DeliveryCounts(world.group(name)).of(author.me, author.seq, world.group(name).log.lamport + 1)
            if found.delivered < MEMBERS - 1:
                return False
        return True

    assert world.run(all_learned, for_ms=3 * CALM_MS, every_ms=5_000)


def test_one_post_costs_each_member_a_few_small_messages(settled, monkeypatch):
    world, sent = settled.fork(4), []
    monkeypatch.setattr(aggregation, "pack", lambda *args: sent.append(pack(*args)) or sent[-1])
    post = world.post("n3", "hello")
    world.run(lambda: world.all_have([post]), for_ms=600_000, every_ms=1_000)
    assert world.run(lambda: all_know(world, ["n3"]), for_ms=CALM_MS, every_ms=1_000)
    world.run(for_ms=600_000)
    assert MEMBERS < len(sent) <= MESSAGES_MAX * MEMBERS
    assert sum(map(len, sent)) <= BYTES_MAX * MEMBERS
    before = len(sent)
    world.run(for_ms=600_000)
    assert len(sent) == before, "nothing is repeated without an end"


def test_a_delivered_event_costs_the_same_in_any_group(settled):
    """What it does to the state is one mark for its author, once in a round; the sets change in rounds."""
    world = settled.fork(5)
    tx, author = transaction(world, "n3"), world.group("n4").me
    aggregation.on_progress(tx, world.id, author)
    once = tx.group(world.id).acks
    assert once == replace(world.group("n3").acks, due=once.due | {author})
    aggregation.on_progress(tx, world.id, author)
    assert tx.group(world.id).acks is once
    assert [type(one) for one in tx.effects] == [SetTimer]


def test_what_was_reported_survives_a_crash(settled):
    world = settled.fork(6)
    post = world.post("n3", "hello")
    world.run(lambda: world.all_have([post]), for_ms=600_000, every_ms=1_000)
    assert world.run(lambda: all_know(world, ["n3"]), for_ms=CALM_MS, every_ms=1_000)
    world.switch_off("n3")
    world.switch_on("n3")
    assert delivered(world, "n3") == (MEMBERS - 1, MEMBERS - 1)
    later = world.post("n3", "again")
    assert world.run(lambda: world.all_have([later]), for_ms=900_000, every_ms=1_000)
    assert world.run(lambda: all_know(world, ["n3"]), for_ms=2 * CALM_MS, every_ms=1_000)


def test_a_member_that_is_off_is_not_counted(settled):
    world = settled.fork(7)
    world.switch_off("n9")
    post = world.post("n3", "hello")
    assert world.run(lambda: world.all_have([post]), for_ms=900_000, every_ms=1_000)
    assert world.run(lambda: delivered(world, "n3") == (MEMBERS - 2, MEMBERS - 1), for_ms=CALM_MS, every_ms=1_000)
    world.run(for_ms=CALM_MS)
    assert delivered(world, "n3") == (MEMBERS - 2, MEMBERS - 1)
    world.switch_on("n9")
    assert world.run(lambda: all_know(world, ["n3"]), for_ms=1_800_000, every_ms=1_000)


def test_members_keep_what_was_reported_of_them_when_one_leaves(settled):
    world = settled.fork(8)
    post = world.post("n3", "hello")
    world.run(lambda: len(world.holders(post)) > MEMBERS // 2, for_ms=600_000, every_ms=500)
    world.run(for_ms=8_000)
    group, gone = world.group("n3"), world.group("n5").me
    before = {did: aggregation.known_upto(group, did, group.me) for did in group.others}
    assert any(before.values()) and group.view.order[-1] != gone
    world.run_command("n5", LeaveGroup(world.id))
    assert world.run(lambda: gone not in world.group("n3").view.members, for_ms=600_000, every_ms=50)
    after = world.group("n3")
    for did in after.others:
        assert aggregation.known_upto(after, did, after.me) >= before[did]
    for did in after.others:
        theirs = world.group(next(name for name in world.nodes if world.group(name).me == did))
        assert theirs.chain(after.me).seq >= aggregation.known_upto(after, did, after.me)


def test_a_new_member_is_no_recipient_of_earlier_posts(settled):
    world = settled.fork(9)
    group = world.group("n3")
    tx = transaction(world, "n3")
    (gone, *_), view = group.others, group.view
    members = {did: one for did, one in view.members.items() if did != gone}
    tx.update_group(world.id, acks=replace(group.acks, view=view.checksum, own=()))
    aggregation.view_changed(tx, world.id, replace(view, members=members))
    assert aggregation.known_upto(tx.group(world.id), gone, group.me) == 0
    if group.acks.view == "":
        assert aggregation.settled_upto(tx.group(world.id), gone) == group.seq


def test_an_event_that_names_ours_proves_that_its_author_has_it(settled):
    world = settled.fork(10)
    post = world.post("n3", "hello")
    author = world.group("n3")
    answerer = next(
        name
        for name in world.nodes
        if name != "n3" and not neighbours.is_neighbour(world.group("n3"), world.group(name).me)
    )
    assert world.run(lambda: answerer in world.holders(post), for_ms=600_000, every_ms=10)
    answer = world.post(answerer, "hi")
    (event,) = [row for row in world.nodes[answerer].log if row.id == answer]
    me = world.group(answerer).me
    tx = transaction(world, "n3")
    loaded = load_event(event.record)
    assert author.chain(author.me).head_id in loaded.conc
    aggregation.on_delivered(tx, world.id, loaded)
    assert aggregation.known_upto(tx.group(world.id), me, author.me) == author.seq
    assert StoreReceipt in {type(one) for one in tx.effects}


def test_a_membership_event_that_is_named_proves_nothing(settled):
    """It may be known without the events before it in its chain."""
    world = settled.fork(11)
    author = world.group("n0")
    head = author.chain(author.me).head_id
    answer = world.post("n3", "hi")
    (event,) = [load_event(row.record) for row in world.nodes["n3"].log if row.id == answer]
    assert head in author.control and head in event.deps
    me, tx = world.group("n3").me, transaction(world, "n0")
    tx.update_group(world.id, acks=AggregatedAcks())
    tx.update_acks(world.id, me, upto={}) if me in author.links.peers else None
    aggregation.on_delivered(tx, world.id, event)
    assert aggregation.known_upto(tx.group(world.id), me, author.me) == 0


def test_what_is_shown_of_members_without_a_link(settled):
    world = settled.fork(16)
    post = world.post("n3", "hello")
    group = world.group("n3")
    row: Any = SimpleNamespace(id=post, author=group.me, position=group.seq, lamport=group.log.lamport)
    before = {one.did: one.state for one in delivery.progress(group, row, {}).members}
    assert before == {did: "sent" if did in group.links.peers else "unknown" for did in group.others}
    assert world.run(lambda: all_know(world, ["n3"]), for_ms=600_000, every_ms=1_000)
    shown = delivery.progress(world.group("n3"), row, {})
    assert shown.complete and {one.state for one in shown.members} == {"delivered"}


@pytest.mark.parametrize("seed", range(3))
def test_counts_are_those_of_the_members_one_by_one(settled, seed):
    world = settled.fork(seed)
    world.post("n3", "hello")
    world.run(for_ms=world.rng.randint(1, 15_000))
    for name in ("n3", "n4"):
        group, author = world.group(name), world.group("n3")
        place = author.me, author.seq, author.log.lamport + 1
        meant = audience(group, *place)
        found = DeliveryCounts(group).of(*place)
        assert (found.delivered, found.of) == (sum(has(group, did, *place[:2]) for did in meant), len(meant))


# --- false reports --------------------------------------------------------------------------------------------------


def report(world, name, sender, fields, view=None):
    """What a node does with the sets that a neighbour reports: the transaction."""
    tx = transaction(world, name)
    aggregation.receive(tx, world.id, sender, view or world.group(name).view.checksum, fields)
    return tx


def test_a_false_report_is_shown_and_changes_nothing_else(settled):
    world = settled.fork(11)
    world.post("n3", "hello")
    before, liar = world.group("n3"), neighbour_of(world, "n3")
    tx = report(world, "n3", liar, [[before.view.places[before.me], 2**53 - 1, ""]])
    after = tx.group(world.id)
    shown = DeliveryCounts(after).of(after.me, after.seq, after.log.lamport + 1)
    assert (shown.delivered, shown.of) == (MEMBERS - 1, MEMBERS - 1)
    assert retention._acknowledged_by_all(after) == retention._acknowledged_by_all(before)
    for member in after.links.peers:
        assert acknowledgements.is_behind(after, member) == acknowledgements.is_behind(before, member)
    assert any(acknowledgements.is_behind(after, member) for member in after.links.peers)
    peer = replace(
        after.links.peers[liar],
        acks=before.links.peers[liar].acks,
        rate_limit=before.links.peers[liar].rate_limit,
    )
    assert replace(after, acks=before.acks, links=after.links.with_peer(liar, peer)) == before
    told = [one.notification for one in tx.effects if isinstance(one, Notify)]
    assert {type(one) for one in tx.effects} <= {Notify, StoreReceipt, SetTimer}
    assert told and all(isinstance(one, Receipt) for one in told)
    assert {one.via for one in tx.effects if isinstance(one, StoreReceipt)} == {liar}


def test_a_report_says_nothing_of_what_we_do_not_have(settled):
    world = settled.fork(12)
    world.post("n3", "hello")
    group, liar = world.group("n3"), neighbour_of(world, "n3")
    other = next(did for did in group.others if group.chain(did).seq == 0)
    places = group.view.places
    after = report(world, "n3", liar, [[places[other], 50, ""], [places[group.me], 50, ""]]).group(world.id)
    assert other not in after.acks.sets
    assert [one.seq for one in after.acks.sets[group.me]] == [group.seq]
    assert max(after.acks.own) == group.seq


def test_a_report_says_nothing_of_ourselves(settled):
    world = settled.fork(12)
    group, liar = world.group("n3"), neighbour_of(world, "n3")
    tx = transaction(world, "n3")
    tx.update_group(world.id, acks=AggregatedAcks())
    author = next(did for did in group.others if group.chain(did).seq)
    sets = [(group.view.places[author], group.chain(author).seq, "")]
    aggregation.receive(tx, world.id, liar, group.view.checksum, sets)
    after = tx.group(world.id)
    for one in after.acks.sets[author]:
        assert bits_of(one.members) == everyone(group) & ~(1 << group.view.places[group.me])


def test_a_report_of_another_view_is_ignored(settled):
    world = settled.fork(13)
    world.post("n3", "hello")
    group, liar = world.group("n3"), neighbour_of(world, "n3")
    tx = report(world, "n3", liar, [[group.view.places[group.me], 1, ""]], view="A" * 22)
    assert tx.group(world.id) == group and not tx.effects


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**53 - 1) | st.integers(0, MEMBERS + 2),
            st.integers(0, 2**53 - 1) | st.integers(0, 5),
            st.binary(max_size=60).map(b64url),
        ),
        max_size=ACK_SETS_MAX,
    )
)
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_hostile_reports_stay_within_the_bounds(hostile_world, fields):
    world = hostile_world
    before, liar = world.group("n3"), neighbour_of(world, "n3")
    tx = report(world, "n3", liar, fields)
    after = tx.group(world.id)
    assert len(after.acks.sets) <= aggregation.AUTHORS_MAX
    for author, sets in after.acks.sets.items():
        assert author in after.view.members and len(sets) <= SETS_MAX
        assert all(one.seq <= after.chain(author).seq for one in sets)
        assert all(bits_of(one.members) <= everyone(after) for one in sets)
    assert len(after.acks.own) in (0, MEMBERS) and all(upto <= after.seq for upto in after.acks.own)
    world.nodes["n3"].agent = tx.agent
    assert replace(after, acks=before.acks, links=before.links) == replace(before, links=before.links)


@pytest.fixture(scope="module")
def hostile_world(settled):
    world = settled.fork(14)
    world.post("n3", "hello")
    return world


def test_sets_beyond_the_limit_are_those_of_the_oldest_events(settled, monkeypatch):
    monkeypatch.setattr(aggregation, "AUTHORS_MAX", 3)
    world = settled.fork(15)
    group = world.group("n3")
    authors = [did for did in group.view.order if group.chain(did).seq and did != group.me]
    liar = neighbour_of(world, "n3")
    world.post("n3", "hello")
    fields = [[group.view.places[did], 1, b64url(b"\x02")] for did in (group.me, *authors)]
    sets = report(world, "n3", liar, fields).group(world.id).acks.sets
    assert group.me in sets and len(sets) <= 3


# --- where it is not needed -----------------------------------------------------------------------------------------


def test_a_small_group_on_the_ring_acknowledges_directly(monkeypatch):
    def refuse(*args):
        raise AssertionError("acknowledgement sets in a group where all are linked to all")

    monkeypatch.setattr(aggregation, "pack", refuse)
    world = RingWorld(5)
    post = world.post("n1", "hello")
    assert world.run(lambda: world.all_have([post]), for_ms=30_000, every_ms=500)
    world.run(for_ms=20_000)
    group = world.group("n1")
    assert DeliveryCounts(group).of(group.me, group.seq, group.log.lamport + 1).delivered == 4
    assert len(audience(group, group.me, group.seq, group.log.lamport + 1)) == 4
    assert not group.acks.sets


def test_a_mesh_refuses_acknowledgement_sets():
    world = Small(2)
    world.key_mode = RING_KEYS
    world.id = world.found()
    assert world.join("n1", world.invite(world.id)).phase == "joined"
    group = world.group("n0")
    tx = transaction(world, "n0")
    body = AckSetsBody(view=group.view.checksum, have=[], group=world.id, ack_sets=[])
    with pytest.raises(Refused):
        dispatch._handle_ack_sets(tx, world.id, world.group("n1").me, body)
    assert aggregation.sync_fields(tx, world.id, world.group("n1").me, whole=True) == {}
