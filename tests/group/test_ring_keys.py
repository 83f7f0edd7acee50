"""Keys on the ring: every member follows every ratchet, over routed direct messages, losses and restarts."""

import pytest
from msgspec.structs import replace

from tests.support.ring_world import RingWorld
from zerochat.crypto import hpke, two_party
from zerochat.crypto.encoding import b64url, b64url_bytes
from zerochat.crypto.primitives import x25519_public
from zerochat.errors import RemoteError
from zerochat.group.dcgka import complaints, ring_channels, ring_receiver, routing
from zerochat.group.dcgka.membership import membership_of
from zerochat.group.inputs import Rekey, StepContext
from zerochat.group.key_agreement import production
from zerochat.group.key_agreement.key_event import Directs, pair_context
from zerochat.group.key_agreement.state import Keys
from zerochat.group.key_agreement.wire import parse_direct, parse_key_event
from zerochat.group.links import rate_limits
from zerochat.group.links.relationship import pack
from zerochat.group.state.dcgka import Dcgka
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import KeyComplaintBody, RoutedBody
from zerochat.group.wire.routed import RoutedItem, RoutedKind
from zerochat.overlay.routing import HOPS_MAX
from zerochat.sim import SIMULATED_PACKERS, Faults

MEMBERS = 30
SETTLE_MS, RETRY_MS = 30_000, 120_000
LOSSY = Faults(0.1, 0, 20)


@pytest.fixture(scope="module")
def settled():
    return talked(RingWorld(MEMBERS))


@pytest.fixture
def world(settled):
    return settled.fork(1)


def talked(world):
    """Each member has posted, one after another: its first key event is an update."""
    world.run(for_ms=SETTLE_MS)
    for name in world.nodes:
        world.post(name, "hello")
        world.run(for_ms=2_000)
    world.run(for_ms=SETTLE_MS)
    return world


def keys(world, name):
    return world.group(name).dcgka.keys


def follows(world, name, author):
    """Whether a node has the ratchet of an author after its last key event."""
    did, mine = world.group(author).me, keys(world, name)
    return did in mine.ratchets and mine.numbers.get(did) == keys(world, author).number


def followers(world, author):
    return {name for name in world.nodes if name != author and follows(world, name, author)}


def all_follow_all(world):
    return all(len(followers(world, author)) == len(world.nodes) - 1 for author in world.nodes)


def under_way(world):
    """The direct messages that are not acknowledged."""
    rings = [world.group(name).dcgka.ring for name in world.nodes]
    return sum(len(one.directs) for ring in rings for one in ring.values())


def transaction(world, name):
    node = world.nodes[name]
    return Transaction(node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)


def far_members(world, name):
    """The nodes that are no peers of this one."""
    peers = world.peers(name)
    return [one for one in world.nodes if one != name and world.group(one).me not in peers]


# --- in a group -----------------------------------------------------------------------------------------------------


def test_every_member_offers_a_prekey_to_each_other_one(settled):
    for name in settled.nodes:
        group = settled.group(name)
        resets = group.dcgka.keys.resets
        assert resets.keys() == {*group.others}
        assert all(one.received and one.confirmed for one in resets.values())


def test_members_that_are_no_peers_follow_each_other(settled):
    assert far_members(settled, "n5")
    assert all_follow_all(settled) and not under_way(settled)


def test_an_update_and_the_adoptions_after_it_reach_all(world):
    number = keys(world, "n4").number
    world.run_command("n4", Rekey(world.id))
    world.run(for_ms=5_000)
    assert keys(world, "n4").number == number + 1 and len(followers(world, "n4")) == MEMBERS - 1
    posts = [world.post(name, "adopts") for name in world.nodes]
    world.run(for_ms=10_000)
    adopted = [parse_key_event(one.record, world.id) for one in world.group("n9").dcgka.sent.values()][-1]
    assert adopted.adopts and not adopted.root
    assert all_follow_all(world) and world.all_have(posts) and not under_way(world)


def test_direct_messages_come_again_until_they_are_acknowledged(settled):
    world = settled.fork(2, Faults(0.15, 0.05, 20))
    world.run_command("n4", Rekey(world.id))
    world.run(for_ms=2_000)
    assert len(followers(world, "n4")) < MEMBERS - 1 and under_way(world)
    assert world.run(lambda: len(followers(world, "n4")) == MEMBERS - 1, for_ms=1_200_000, every_ms=1_000)
    assert world.run(lambda: not under_way(world), for_ms=14_400_000, every_ms=10_000)


@pytest.mark.slow
def test_members_that_lost_track_follow_the_next_messages(settled):
    world = settled.fork(2, Faults(0.2, 0.05, 20))
    world.run_command("n4", Rekey(world.id))
    for _ in range(2):
        for name in world.nodes:
            world.post(name, "adopts")
            world.run(for_ms=1_000)
    world.run(for_ms=RETRY_MS)
    lost = sum(MEMBERS - 1 - len(followers(world, name)) for name in world.nodes)
    world.faults = Faults(0, 0, 20)
    for name in world.nodes:
        world.post(name, "again")
        world.run(for_ms=2_000)
    world.run(for_ms=RETRY_MS)
    assert lost and all_follow_all(world) and not under_way(world)


def test_an_absent_member_follows_after_its_return(world):
    world.switch_off("n7")
    world.run_command("n4", Rekey(world.id))
    world.run(for_ms=60_000)
    assert len(followers(world, "n4")) == MEMBERS - 2 and under_way(world) == 1
    world.switch_on("n7")
    assert world.run(lambda: follows(world, "n7", "n4"), for_ms=1_200_000, every_ms=1_000)
    world.run(for_ms=SETTLE_MS)
    assert not under_way(world)


def test_what_an_absent_member_lacks_goes_again_once_it_is_heard_of(world):
    world.switch_off("n7")
    world.run_command("n4", Rekey(world.id))
    world.run(for_ms=1_200_000)
    gone = world.group("n7").me
    assert world.group("n4").dcgka.ring[gone].retry_at > world.now + 300_000
    world.switch_on("n7")
    world.run(for_ms=60_000)
    world.post("n7", "back")  # with its ratchet for those that have lost it
    world.run_command("n7", Rekey(world.id))
    assert world.run(lambda: follows(world, "n7", "n4"), for_ms=60_000, every_ms=1_000)


def test_what_is_under_way_for_an_absent_member_is_bounded(world):
    world.switch_off("n7")
    for _ in range(ring_channels.SENT_MAX + 2):
        world.run_command("n4", Rekey(world.id))
        world.run(for_ms=1_000)
    world.run(for_ms=SETTLE_MS)
    group, gone = world.group("n4"), world.group("n7").me
    assert len(group.dcgka.sent) == ring_channels.SENT_MAX
    assert len(group.dcgka.ring[gone].directs) == ring_channels.DIRECTS_MAX
    assert {len(one.directs) for did, one in group.dcgka.ring.items() if did != gone} == {0}
    world.switch_on("n7")
    world.run(for_ms=600_000)
    world.post("n7", "back")
    world.run(for_ms=SETTLE_MS)
    post = world.post("n4", "again")
    world.run(for_ms=SETTLE_MS)
    assert follows(world, "n7", "n4") and "n7" in world.holders(post)


@pytest.mark.slow
def test_a_member_that_lost_its_keys_follows_all_again(world):
    """As after the return of an older copy, without a restart."""
    node, group = world.nodes["n7"], world.group("n7")
    lost = replace(group, dcgka=Dcgka(Keys(world.id, group.me, number=keys(world, "n7").number)))
    node.agent = replace(node.agent, groups={**node.agent.groups, world.id: lost})
    tx = transaction(world, "n7")
    ring_channels.begin_anew(tx, world.id)
    node.agent = tx.agent
    for effect in tx.effects:
        world._perform(node, effect)
    world.run(for_ms=RETRY_MS)
    for name in world.nodes:
        world.post(name, "hello again")
        world.run(for_ms=3_000)
    world.run(for_ms=RETRY_MS)
    assert all_follow_all(world)


def test_a_member_that_missed_a_key_event_asks_for_it(world):
    author, node = world.group("n4"), world.nodes["n7"]
    before = world.group("n7").dcgka
    world.run_command("n4", Rekey(world.id))
    world.run(for_ms=SETTLE_MS)
    group = world.group("n7")
    missed = replace(
        group.dcgka.keys,
        numbers={**group.dcgka.keys.numbers, author.me: before.keys.numbers[author.me]},
        ratchets={**group.dcgka.keys.ratchets, author.me: before.keys.ratchets[author.me]},
        receiving={**group.dcgka.keys.receiving, author.me: before.keys.receiving[author.me]},
    )
    dcgka = replace(group.dcgka, keys=missed)
    node.agent = replace(node.agent, groups={**node.agent.groups, world.id: replace(group, dcgka=dcgka)})
    world.post("n4", "who reads this?")
    world.run(for_ms=3_000)
    assert author.me in world.group("n7").dcgka.early
    assert world.run(
        lambda: keys(world, "n7").numbers[author.me] == keys(world, "n4").number, for_ms=RETRY_MS, every_ms=1_000
    )
    world.run(for_ms=SETTLE_MS)
    assert not follows(world, "n7", "n4")  # the direct message is erased
    world.post("n4", "and this?")
    world.run(for_ms=SETTLE_MS)
    assert follows(world, "n7", "n4")


@pytest.mark.slow
@pytest.mark.parametrize("faults", [None, LOSSY], ids=["", "loss"])
def test_forty_members_follow_every_ratchet(faults):
    """With losses a member may lose track of an author, until a later message of the author."""
    world = talked(RingWorld(40, seed=3).fork(3, faults))
    world.run_command("n11", Rekey(world.id))
    world.run(for_ms=5_000)
    posts, rounds = list[str](), 0
    while rounds < (3 if faults else 1) and not (posts and all_follow_all(world)):
        posts += [world.post(name, "adopts") for name in world.nodes]
        world.run(lambda: all_follow_all(world), for_ms=RETRY_MS, every_ms=1_000)
        rounds += 1
    assert all_follow_all(world)
    assert world.run(lambda: world.all_have(posts), for_ms=RETRY_MS, every_ms=1_000)


# --- routed items ---------------------------------------------------------------------------------------------------


def item(world, author, recipient, at=1, kind=RoutedKind.ACK, **changes):
    group = world.group(author)
    made = RoutedItem(world.id, group.me, world.group(recipient).me, kind, 0, world.now + at, b"\x94\xc2\xc2\x00\x00")
    return replace(made, **changes).signed(group.seed)


def bring(world, bearer, to, *items):
    """A bundle from a peer; the transaction at its end, and the items that wait there."""
    tx = transaction(world, to)
    body = RoutedBody(world.id, [b64url(one.wire) for one in items])
    ring_receiver.receive_routed(tx, world.id, world.group(bearer).me, body)
    return tx, [*tx.group(world.id).routed.waiting]


@pytest.fixture
def three(settled):
    """A node, a peer of it, and a member that is a peer of neither."""
    peers = settled.peers("n5")
    peer = next(name for name in settled.nodes if settled.group(name).me in peers)
    far = next(name for name in far_members(settled, "n5") if name in far_members(settled, peer))
    return "n5", peer, far


def work_left(tx, world, name):
    return rate_limits._work_left(tx, tx.payer(world.id, world.group(name).me).rate_limit)


def test_items_of_others_go_on_and_their_authors_pay(settled, three):
    me, peer, far = three
    other = next(name for name in far_members(settled, me) if name not in (peer, far))
    before = [work_left(transaction(settled, me), settled, name) for name in (far, peer)]
    tx, waiting = bring(settled, peer, me, item(settled, far, other))
    paid = [left - work_left(tx, settled, name) for left, name in zip(before, (far, peer), strict=True)]
    assert len(waiting) == 1 and paid == [routing.ITEM_WORK_US, 0]
    routing.pass_on(tx, settled.id)
    assert not tx.group(settled.id).routed.waiting and len(tx.effects) > 1


def test_an_item_comes_once(settled, three):
    me, peer, far = three
    other = next(name for name in far_members(settled, me) if name not in (peer, far))
    one = item(settled, far, other)
    _, waiting = bring(settled, peer, me, one, one.passed_by(settled.group(peer).me))
    assert len(waiting) == 1


def test_replays_older_than_the_window_are_dropped(settled, three):
    me, peer, far = three
    other = next(name for name in far_members(settled, me) if name not in (peer, far))
    items = [item(settled, far, other, at=at) for at in range(1, routing.WINDOW + 3)]
    tx = transaction(settled, me)
    for one in items:
        body = RoutedBody(settled.id, [b64url(one.wire)])
        ring_receiver.receive_routed(tx, settled.id, settled.group(peer).me, body)
    kept = tx.group(settled.id).routed.authors[settled.group(far).me]
    assert len(kept.recent) == routing.WINDOW and kept.floor == items[1].at
    waiting = tx.group(settled.id).routed.waiting
    ring_receiver.receive_routed(
        tx, settled.id, settled.group(peer).me, RoutedBody(settled.id, [b64url(items[0].wire)])
    )
    assert tx.group(settled.id).routed.waiting == waiting


@pytest.mark.parametrize("fault", ["signature", "author"])
def test_junk_is_its_bearers_fault(settled, three, fault):
    me, peer, far = three
    forged = replace(item(settled, far, peer), **({"sig": bytes(64)} if fault == "signature" else {"number": 7}))
    with pytest.raises(RemoteError):
        bring(settled, peer, me, item(settled, far, peer, at=2), forged)


def test_an_item_ends_after_the_last_hop_or_where_it_was(settled, three):
    me, peer, far = three
    other = next(name for name in far_members(settled, me) if name not in (peer, far))
    been = item(settled, far, other, at=1).passed_by(settled.group(me).me)
    tired = item(settled, far, other, at=2)
    for name in list(settled.nodes)[-HOPS_MAX:]:
        tired = tired.passed_by(settled.group(name).me)
    _, waiting = bring(settled, peer, me, been, tired)
    assert waiting == []


def test_items_that_wait_are_bounded(settled, three, monkeypatch):
    me, peer, far = three
    monkeypatch.setattr(routing, "WAITING_MAX", 3)
    other = next(name for name in far_members(settled, me) if name not in (peer, far))
    _, waiting = bring(settled, peer, me, *(item(settled, far, other, at=at) for at in range(1, 9)))
    assert len(waiting) == 3


# --- complaints -----------------------------------------------------------------------------------------------------


def forged_update(world, name, victim):
    """An update of this node with another seed for the victim than for the others, which its core goes on from."""
    tx, did = transaction(world, name), world.group(victim).me
    keys = ring_channels.with_channels(tx, world.id)
    group = tx.group(world.id)
    made = production.produce(keys, membership_of(group), tx.context, update=True)
    pair = pair_context(world.id, group.me, did)
    channel, message = two_party.send(keys.channels[did], pair, bytes(32), tx.context.random)
    directs = Directs({**made.directs.messages, did: message})
    event = replace(made.event, root=directs.root).signed(group.seed)
    after = replace(made.keys, channels={**made.keys.channels, did: channel})
    ring_channels.distribute(tx, world.id, after, event, directs)
    world.apply(name, tx)
    return event.id


@pytest.fixture
def warned(world):
    """The nodes that have warned their users, in a world where a member lies."""
    names = []
    world._on_accusation = lambda node, notice: names.append(node.name)
    return names


@pytest.fixture
def shown(monkeypatch, warned):
    """The complaints that were sent."""
    sent = []
    monkeypatch.setattr(complaints, "pack", lambda *arguments: sent.append(arguments[1]) or pack(*arguments))
    return sent


def test_a_complaint_reaches_all_members(world, shown, warned):
    liar, victim = "n3", "n20"
    forged = forged_update(world, liar, victim)
    world.run(for_ms=SETTLE_MS)
    others = world.nodes.keys() - {liar}
    assert sorted(warned) == sorted(others), "each once"
    assert all(world.group(liar).me in world.group(name).dcgka.forgers for name in others)
    assert not any(forged in keys(world, name).pending for name in others)
    links = sum(len(world.peers(name)) for name in world.nodes)
    assert len(shown) < links, "one for each peer of each member, but not back"


def test_an_author_that_has_caused_many_resets_before_is_complained_about(world, warned):
    liar, victim = "n3", "n20"
    tx, did = transaction(world, victim), world.group(liar).me
    spent = replace(tx.payer(world.id, did).rate_limit, statements=0, statements_at=world.now)
    tx.update_payer(world.id, did, rate_limit=spent)
    world.apply(victim, tx)
    forged_update(world, liar, victim)
    world.run(for_ms=SETTLE_MS)
    assert sorted(warned) == sorted(world.nodes.keys() - {liar})


def test_an_author_causes_one_flood_of_complaints(world, shown):
    liar, victims = "n3", ["n20", "n21", "n22"]
    forged_update(world, liar, victims[0])
    world.run(for_ms=SETTLE_MS)
    shown.clear()
    updates = []
    for victim in victims:
        updates.append(forged_update(world, liar, victim))
        world.run(for_ms=2_000)
    world.run(for_ms=SETTLE_MS)
    assert not shown
    assert not any(update in keys(world, name).pending for update in updates for name in world.nodes)
    assert victims[-1] not in followers(world, liar)
    world.post(liar, "with a seed for all")
    world.run(for_ms=RETRY_MS)
    assert len(followers(world, liar)) == MEMBERS - 1


def test_a_complaint_discloses_no_later_key(world, shown):
    """The disclosed message has the secret for the next one, too: the channel must not use it."""
    liar, victim = "n3", "n20"
    forged_update(world, liar, victim)
    world.run(for_ms=SETTLE_MS)
    assert {one.body["victim"] for one in shown} == {world.group(victim).me}
    direct = parse_direct(b64url_bytes(shown[0].body["direct"]), world.group(victim).me)
    size = (1, 5, 1, 5)[direct.message[0]]
    plain = hpke.open_with(b64url_bytes(shown[0].body["key"]), direct.message[size:])
    assert keys(world, liar).channels[world.group(victim).me].peer != x25519_public(plain[:32])
    assert keys(world, victim).channels[world.group(liar).me].peer, "it can still be written to"


def test_a_false_complaint_goes_no_further(world, shown):
    tx = transaction(world, "n3")
    forged_update(world, "n20", "n21")
    body = KeyComplaintBody(world.id, "", "", b64url(bytes(44)), world.group("n21").me)
    with pytest.raises(RemoteError):
        complaints.receive(tx, world.id, world.group("n4").me, body)
    record = world.group("n20").dcgka.sent[keys(world, "n20").number].record
    member = world.group("n5").me
    honest = world.group("n20").dcgka.ring[member].directs[keys(world, "n20").number]
    body = KeyComplaintBody(world.id, b64url(record), b64url(honest), b64url(bytes(44)), member)
    with pytest.raises(RemoteError):
        complaints.receive(tx, world.id, world.group("n4").me, body)
    assert not shown and not tx.group(world.id).dcgka.forgers
