"""Messages on the ring: forwarded by members, each once, on their authors' signatures; what is lost is pulled."""

from collections import Counter

import pytest
from msgspec.structs import replace

from tests.support.marks import others_slow
from tests.support.ring_world import RingWorld
from tests.support.small_world import Small
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.errors import Malformed, Refused, RemoteError, Unauthentic
from zerochat.group.dcgka import receiver
from zerochat.group.inputs import ChangeLabel, SendPost, SendReadReceipt, SendTyping, StepContext, TimerFired
from zerochat.group.key_modes import forwarded
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.messages import indicators
from zerochat.group.settings import Indicators
from zerochat.group.sync import pull_requests
from zerochat.group.sync.acknowledgements import SYNC_INTERVAL_MS
from zerochat.group.transaction import Transaction
from zerochat.limits import RING_KEYS
from zerochat.overlay.forwarding import FAN_OUT
from zerochat.sim import SIMULATED_PACKERS, Faults

MEMBERS = 30
SEED, OTHER = bytes(range(32)), bytes(range(1, 33))


@pytest.fixture(scope="module")
def settled():
    return RingWorld(MEMBERS)


def stored_by_push(world, author, end):
    """The nodes that have what an author has sent, opened or not."""
    one, me = f"n{author}", world.group(f"n{author}").me
    found = {one}
    for name in world.nodes:
        group = world.group(name)
        early = group.dcgka.early.get(me)
        if group.chain(me).seq >= end or (early is not None and early.end >= end):
            found.add(name)
    return found


def test_every_member_is_sent_each_message(settled):
    world = settled.fork(1)
    posts, sent = [], world.forwarded
    for author in range(0, MEMBERS, 5):
        posts.append(world.post(f"n{author}", "hello"))
        world.run(for_ms=800)
        assert stored_by_push(world, author, world.group(f"n{author}").seq) == world.nodes.keys()
    assert world.run(lambda: world.all_have(posts), for_ms=30_000, every_ms=500)
    assert world.forwarded - sent <= FAN_OUT * len(posts) * MEMBERS
    assert world.forwarded - sent >= 2 * len(posts) * (MEMBERS - 1), "most members send it on"


@pytest.mark.parametrize("seed", range(2))
def test_what_is_lost_is_pulled(settled, seed):
    world = settled.fork(seed, Faults(loss=0.25, duplication=0.1, delay_ms_max=400))
    posts, sent = [], world.forwarded
    for author in range(0, MEMBERS, 3):
        posts.append(world.post(f"n{author}", "hello"))
        world.run(for_ms=300)
    assert world.run(lambda: world.all_have(posts), for_ms=300_000, every_ms=500)
    assert world.forwarded - sent <= FAN_OUT * len(posts) * MEMBERS


@pytest.mark.parametrize("seed", others_slow(range(4)))
def test_members_that_forward_nothing_do_not_keep_a_message_from_others(settled, seed):
    world = settled.fork(seed)
    world.mute = {*world.rng.sample([*world.nodes], MEMBERS // 3)}
    honest = sorted(world.nodes.keys() - world.mute)
    posts = [world.post(name, "hello") for name in honest[::4]]
    assert world.run(lambda: world.all_have(posts), for_ms=120_000, every_ms=500)


def test_membership_events_are_forwarded_at_once(settled):
    world = settled.fork(1)
    world.run_command("n4", ChangeLabel(world.id, "somewhere else"))
    world.run(for_ms=SYNC_INTERVAL_MS - 1)  # before views are compared
    labels = [world.group(name).view.members[world.group("n4").me].label for name in world.nodes]
    assert labels == ["somewhere else"] * MEMBERS
    world.post("n4", "the chain goes on")
    assert world.run(lambda: len({world.group(name).chain(world.group("n4").me).seq for name in world.nodes}) == 1)


def test_a_member_of_a_small_group_sends_to_all_itself():
    world = RingWorld(6)
    post = world.post("n3", "hello")
    assert world.run(lambda: world.all_have([post]), for_ms=5_000)
    assert world.forwarded == 0


# --- what is refused ------------------------------------------------------------------------------------------------


def message(group, author=SEED, end=2):
    did = did_key(ed25519_public(author))
    sealed = seal(bytes(32), Place("A" * 43, 0), group, did, {"runs": []})
    return forwarded.sign(author, did, group, end, sealed)


def test_a_message_names_its_author_and_its_end():
    envelope = message("A" * 43)
    one = forwarded.parse(envelope)
    one.check("A" * 43)
    assert is_forwarded(envelope) and (one.author, one.end) == (did_key(ed25519_public(SEED)), 2)
    assert one.sealed.startswith(one.header)


@pytest.mark.parametrize("at", [5, 40, 80, -1])
def test_a_changed_message_is_not_authentic(at):
    changed = bytearray(message("A" * 43))
    changed[at] ^= 1
    with pytest.raises(Unauthentic):
        forwarded.parse(bytes(changed)).check("A" * 43)


def test_a_message_of_another_group_is_not_authentic():
    with pytest.raises(Unauthentic):
        forwarded.parse(message("A" * 43)).check("B" * 43)


@pytest.mark.parametrize("cut", [0, 1, 33, 41, 104, 105, 106, 117])
def test_a_short_message_is_malformed(cut):
    with pytest.raises(Malformed):
        forwarded.parse(message("A" * 43)[:cut])


def bring(world, name, bearer, envelope):
    """What a node does with a message that a peer brings: its effects."""
    node = world.nodes[name]
    tx = Transaction(node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    receiver.receive_forwarded(tx, world.id, world.group(bearer).me, envelope)
    node.agent = tx.agent
    return [one.link for one in tx.effects if is_forwarded(getattr(one, "envelope", b""))]


def bearer_of(world, name):
    links, owner = world.group(name).links, {world.group(node).me: node for node in world.nodes}
    return owner[min(links.peers)]


def test_a_message_is_forwarded_once_and_never_back(settled):
    world = settled.fork(1)
    author, bearer = world.group("n3"), bearer_of(world, "n9")
    sealed = seal(bytes(32), Place("A" * 43, 0), world.id, author.me, {"runs": []})
    envelope = forwarded.sign(author.seed, author.me, world.id, author.seq + 1, sealed)
    to = bring(world, "n9", bearer, envelope)
    assert len(set(to)) == FAN_OUT
    assert world.group("n9").links.peers[world.group(bearer).me].link not in to
    assert bring(world, "n9", bearer, envelope) == []


def test_a_message_of_a_non_member_or_with_a_false_signature_ends_here(settled):
    world = settled.fork(1)
    author, bearer = world.group("n3"), bearer_of(world, "n9")
    sealed = seal(bytes(32), Place("A" * 43, 0), world.id, author.me, {"runs": []})
    with pytest.raises(Refused, match="non-member"):
        bring(world, "n9", bearer, message(world.id))
    with pytest.raises(Unauthentic):
        bring(world, "n9", bearer, forwarded.sign(OTHER, author.me, world.id, author.seq + 1, sealed))


def test_our_own_message_does_not_come_back(settled):
    world = settled.fork(1)
    group, bearer = world.group("n9"), bearer_of(world, "n9")
    sealed = seal(bytes(32), Place("A" * 43, 0), world.id, group.me, {"runs": []})
    assert bring(world, "n9", bearer, forwarded.sign(group.seed, group.me, world.id, group.seq + 9, sealed)) == []


@pytest.mark.parametrize("told", [SendTyping, lambda group: SendReadReceipt(group, 2**50)], ids=["typing", "read"])
def test_an_indicator_goes_to_linked_members_and_no_further(settled, monkeypatch, told):
    world = settled.fork(1)
    for node in world.nodes.values():
        node.agent = replace(node.agent, indicators=Indicators(read_receipts=True, typing=True))
    sent = world.forwarded
    linked = len(world.connected("n4"))
    assert world.run_command("n4", told(world.id)).result.members == linked < MEMBERS - 1
    world.run(for_ms=2_000)
    assert world.forwarded == sent
    monkeypatch.setattr(indicators, "INDICATOR_MEMBERS_MAX", MEMBERS - 1)
    assert world.run_command("n4", told(world.id)).result.members == 0, "it is too large a group"


def test_a_mesh_forwards_nothing():
    world = Small(2)
    world.key_mode = RING_KEYS
    world.id = world.found()
    assert world.join("n1", world.invite(world.id)).phase == "joined"
    world.run_command("n1", SendPost(world.id, "hello"))
    author = world.group("n1")
    sealed = seal(bytes(32), Place("A" * 43, 0), world.id, author.me, {"runs": []})
    with pytest.raises(RemoteError):
        bring(world, "n0", "n1", forwarded.sign(author.seed, author.me, world.id, author.seq + 1, sealed))


def test_an_end_that_does_not_exist_is_not_requested_for_ever(settled):
    world = settled.fork(1)
    author, bearer = world.group("n3"), bearer_of(world, "n9")
    sealed = seal(bytes(32), Place("A" * 43, 0), world.id, author.me, {"runs": []})
    assert bring(world, "n9", bearer, forwarded.sign(author.seed, author.me, world.id, 2**40, sealed))
    requesters, send = Counter(), pull_requests.send

    def counted(tx, name, *args, **more):
        requesters[tx.group(name).me] += 1
        send(tx, name, *args, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pull_requests, "send", counted)
        world.process("n9", TimerFired(f"gaps {world.id}"))
        world.run(for_ms=300_000)
    assert 3 <= max(requesters.values()) <= 60, "at one in two seconds it would be 150"


def test_a_forwarded_message_does_not_hide_that_a_relationship_is_lost(settled):
    world = settled.fork(1)
    author = next(name for name in world.nodes if world.group(name).me in world.peers("n9"))
    world.post(author, "its key event comes before this")
    world.run(for_ms=10_000)
    heard = world.group("n9").links.peers[world.group(author).me].last_received_at
    envelopes = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world, "_dispatch", lambda node, link, envelope: envelopes.append(envelope))
        world.post(author, "hello")
    world.now += 1_000
    (envelope, *_) = filter(is_forwarded, envelopes)
    bring(world, "n9", bearer_of(world, "n9"), envelope)
    assert world.group("n9").chain(world.group(author).me).seq == world.group(author).seq, "it has opened it"
    assert world.group("n9").links.peers[world.group(author).me].last_received_at == heard
