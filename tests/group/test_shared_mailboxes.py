"""A mailbox that members behind one mediator share: one post for all of them, which former members know nothing of."""

import gc
import sys
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from tests.support.proxied_world import ProxiedWorld
from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import sha256
from zerochat.didcomm.did import resolve, short_form
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import PACKERS
from zerochat.didcomm.protocols import shared_mailbox
from zerochat.didcomm.service import Route
from zerochat.errors import Refused
from zerochat.group import dispatch
from zerochat.group.dcgka import forwarding, receiver
from zerochat.group.effects import SendEnvelope, WebPost
from zerochat.group.external import mailbox_shares, mediators
from zerochat.group.inputs import RemoveMember, SendPost, StepContext
from zerochat.group.key_agreement.state import ExportedSecret
from zerochat.group.key_modes import forwarded
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.links import mediator_proof, neighbours, peers, rate_limits, shared_mailboxes
from zerochat.group.links.shared_mailboxes import SharedBox
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SEALED, ReachBody, RouteBody
from zerochat.sim import SIMULATED_PACKERS

MEMBERS, BEHIND = 27, 5
V2 = PACKERS["didcomm/v2"]


@pytest.fixture(scope="module")
def settled():
    """The first message of a member comes with an update, whose secret all members know."""
    world = ProxiedWorld(MEMBERS, BEHIND)
    for name in ("n0", "n1"):
        world.post(name, "hello")
        world.run(for_ms=10_000)
    return world


@pytest.fixture
def world(settled):
    return settled.fork(1)


def box_of(world):
    [update] = {*world.shared().values()}
    return SharedBox(short_form(world.mediator.did), update)


def seed_of(world):
    return shared_mailboxes.seed_of(world.group("n0"), box_of(world))


def sharers_of(world):
    """By recipient, the mailbox that gets what comes to the shared one."""
    return world.mediator.shares[shared_mailbox.key_of(seed_of(world))]


def remove(world, member):
    """It takes two votes."""
    for name in ("n0", "n2"):
        world.run_command(name, RemoveMember(world.id, member))
        world.run(for_ms=5_000)
    assert member not in world.group("n0").view.members


def tx_of(world, name):
    return Transaction(world.nodes[name].agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)


def letter(world, content, type_=SEALED, seed=None):
    """An envelope to the shared mailbox with this content."""
    key = shared_mailbox.key_of(seed or seed_of(world))
    plain = V2.dump(Message(type_, "m", {"message": b64url(content)}))
    return V2.anoncrypt(plain, recipient=V2.their_key(resolve(key), key), random=world.rng.randbytes)


def message(world, author="n3"):
    """A new forwarded message of a member, whose epoch no other knows."""
    group = world.group(author)
    sealed = seal(bytes(32), Place(b64url(sha256(author.encode())), 0), world.id, group.me, {"runs": []})
    return forwarded.sign(group.seed, group.me, world.id, group.seq + 1, sealed)


def receive(world, name, *envelopes):
    """What a node does with mail of its mediator: the transaction after it."""
    tx = tx_of(world, name)
    for envelope in envelopes:
        dispatch.receive_web(tx, envelope, None, "mediator")
    return tx


def account(tx, world, name):
    return tx.group(world.id).links.accounts.get(world.group(name).me)


# --- who shares -----------------------------------------------------------------------------------------------------


def test_members_behind_one_mediator_come_to_share_a_mailbox(world):
    sharers = sharers_of(world)
    assert box_of(world).update and len(sharers) == BEHIND and len({*sharers.values()}) == BEHIND
    assert len(world.mediator.shares) <= 1 + mailbox_shares.BEFORE_MAX
    others = [world.nodes[name].agent for name in world.nodes if name not in world.edges]
    assert not any(shared_mailboxes.announced(agent, agent.groups[world.id]) for agent in others)
    kept = repr(world.mediator.shares)
    assert world.id not in kept and not any(world.group(name).me in kept for name in world.nodes)


def test_all_members_know_its_secret(world):
    secrets = [world.group(name).dcgka.keys.exported for name in world.nodes]
    assert len({one[box_of(world).update].secret for one in secrets}) == 1
    assert all(one.keys() == secrets[0].keys() for one in secrets)


def test_the_keys_of_a_secret_are_erased_with_it(world):
    box, agent, group = box_of(world), world.nodes[world.edges[0]].agent, world.group(world.edges[0])
    one = ExportedSecret(bytes(range(32)), group.dcgka.keys.exported[box.update].control, world.now)
    keys = replace(group.dcgka.keys, exported={box.update: one})
    group = replace(group, dcgka=replace(group.dcgka, keys=keys))
    agent = replace(agent, groups={world.id: group})
    secret, seed = one.secret, shared_mailboxes.seed_of(group, box)
    kid = resolve(shared_mailbox.key_of(seed)).agreement[0].kid
    assert shared_mailboxes.owner_of(agent, (kid,)) == (world.id, box)
    assert mailbox_shares._valid(group) == (box.update,)
    del one, keys, group, agent
    gc.collect()
    left = sys.getrefcount(secret), sys.getrefcount(seed)
    assert left == (2, 2), "only this test has them"


def test_neighbours_learn_of_it(world):
    edges = {world.group(name).me: name for name in world.edges}
    seen = [
        peer.reach.shared
        for name in world.nodes
        for did, peer in world.group(name).links.peers.items()
        if did in edges and peer.reach is not None
    ]
    assert seen and all(shared == (box_of(world).update,) for shared in seen)


def test_a_mediator_that_lost_all_is_told_again(world):
    world.mediator.shares.clear()
    for name in world.edges:
        world.web.cut(name, world.mediator.ws)
    world.run(for_ms=20_000)
    assert len(sharers_of(world)) == BEHIND


def test_a_mediator_that_knows_no_shared_mailboxes_is_not_asked_again_and_again(world, monkeypatch):
    asked = []
    monkeypatch.setattr(shared_mailbox, "kind_of", lambda message: None)
    real = mailbox_shares._ask
    monkeypatch.setattr(mailbox_shares, "_ask", lambda *args: asked.append(args[1]) or real(*args))
    for name in world.edges:
        world.web.cut(name, world.mediator.ws)
    world.run(for_ms=120_000)
    assert len(asked) == BEHIND


def test_an_unanswered_list_is_repeated_and_does_not_block_later_ones(world, monkeypatch):
    with monkeypatch.context() as silent:
        silent.setattr(world.mediator, "receive", lambda *args: ([], []))
        for name in world.edges:
            tx, [one] = tx_of(world, name), world.nodes[name].agent.connections
            mailbox_shares.reconnected(tx, one)
            world.apply(name, tx)
            world.run_command(name, SendPost(world.id, "the list is due"))
        world.run(for_ms=5_000)
    assert all(one.shares_asked for name in world.edges for one in world.nodes[name].agent.connections.values())
    world.mediator.shares.clear()
    world.run(for_ms=mediators.POLL_MS + 10_000)
    assert len(sharers_of(world)) == BEHIND


def test_a_mediator_that_answers_nothing_makes_our_state_no_larger(world):
    name = world.edges[0]
    tx, [one] = tx_of(world, name), world.nodes[name].agent.connections
    before = tx.agent.connections[one].shares
    for _ in range(3):
        mailbox_shares.reconnected(tx, one)
    after = tx.agent.connections[one].shares
    assert before and after[: len(before)] == before, "what it keeps is announced until it answers"
    assert len(after) == len(before) + 1 and not tx.agent.connections[one].shares_asked


def test_a_removed_member_shares_no_more(world):
    gone, before = world.edges[0], box_of(world)
    remove(world, world.group(gone).me)
    world.post("n0", "without it")
    world.run(for_ms=60_000)
    rest = {name: update for name, update in world.shared().items() if name != gone}
    [update] = {*rest.values()}
    assert update and update != before.update
    assert update not in world.group(gone).dcgka.keys.exported
    key = shared_mailbox.key_of(shared_mailboxes.seed_of(world.group("n0"), replace(before, update=update)))
    assert len(world.mediator.shares[key]) == BEHIND - 1


def test_another_shared_mailbox_does_not_count_as_a_move(world):
    """A member that makes updates could keep others from being heard when they move."""
    edges, tx = {world.group(name).me for name in world.edges}, tx_of(world, "n0")
    did = next(one for one in tx.group(world.id).links.peers if one in edges)
    [route], at = tx.peer(world.id, did).reach.routes, tx.peer(world.id, did).reach_at

    def announce(number, uri, shared):
        mail = [RouteBody(uri, [*route.routing_keys], shared)]
        peers.update_reach(tx, world.id, did, ReachBody("", "", at + number, mail=mail))
        return tx.peer(world.id, did).reach

    for number in range(2 * rate_limits.MOVES_MAX):
        assert announce(number, route.uri, f"update {number}").shared == (f"update {number}",)
    assert announce(100, "http://m1.example/", "").routes[0].uri == "http://m1.example/"


# --- sending --------------------------------------------------------------------------------------------------------


def test_members_that_are_off_get_each_message_once(world, monkeypatch):
    alone = []
    monkeypatch.setattr("zerochat.group.dcgka.forwarding.pack", lambda *args: alone.append(args))
    for name in world.edges:
        world.switch_off(name)
    world.run(for_ms=30_000)
    before, count = set(world.mediator.shared), world.mediator.posts_shared
    posts = [world.post(name, "hello") for name in ("n2", "n3", "n4")]
    world.run(for_ms=10_000)
    assert not alone, "no forwarded message goes to one of them alone"
    fresh = [envelope for _, envelope in world.mediator.shared - before]
    assert len(fresh) == len(posts) < world.mediator.posts_shared - count, "several post the same"
    copies = [envelope for waiting in world.mediator.waiting.values() for envelope in waiting.values()]
    assert [copies.count(envelope) for envelope in fresh] == [BEHIND] * len(posts)


def test_one_connection_makes_a_member_complete(world):
    for name in world.edges:
        world.switch_off(name)
    world.run(for_ms=30_000)
    posts = [world.post(name, "hello") for name in ("n2", "n3", "n4", "n5")]
    world.run(for_ms=30_000)
    edge = world.nodes[world.edges[0]]
    edge.mediated_only = True
    world.switch_on(edge.name)
    world.run(lambda: {*posts} <= {row.id for row in edge.log}, for_ms=30_000, every_ms=100)
    assert {*posts} <= {row.id for row in edge.log} and not world.connected(edge.name)


def sender_of(world, update=None):
    """A member with a peer that it reaches by mail alone, the peer, and the way."""
    for name in world.edges:
        world.switch_off(name)
    world.run(for_ms=30_000)
    edges = {world.group(name).me for name in world.edges}
    for name in world.nodes:
        for did in world.group(name).links.peers.keys() & edges if name not in world.edges else ():
            if (way := shared_mailboxes.way_to(tx_of(world, name), world.id, did)) is not None:
                return SimpleNamespace(name=name, peer=did, way=way)
    raise AssertionError


def test_a_secret_that_is_unknown_or_known_to_a_former_member_is_not_used(world):
    one = sender_of(world)
    group = world.group(one.name)
    keys, update = group.dcgka.keys, one.way.box.update

    def way(**fields):
        tx = tx_of(world, one.name)
        tx.update_dcgka(world.id, keys=replace(keys, **fields))
        return shared_mailboxes.way_to(tx, world.id, one.peer)

    assert way(exported={}) is None
    secret = keys.exported[update]
    assert way(exported={update: secret}) == one.way
    remove(world, world.group("n1").me)
    assert way(exported={update: secret}) is None, "n1 knows it"


def test_what_two_members_post_is_the_same_but_for_its_last_layer(world):
    one, posted = sender_of(world), []
    for _ in range(2):
        tx = tx_of(world, one.name)
        shared_mailboxes.post(tx, world.id, one.peer, one.way, message(world))
        [post] = [effect for effect in tx.effects if isinstance(effect, WebPost)]
        posted.append(post.envelope)
    assert posted[0] != posted[1]
    before = world.mediator.posts_shared
    for envelope in posted:
        world.mediator.receive(envelope, SimpleNamespace(recipient=""))
    assert world.mediator.posts_shared - before == 2 and world.mediator.dropped == 0
    assert len({envelope for key, envelope in world.mediator.shared}) == len(world.mediator.shared)


def test_posts_count_against_the_mail_of_their_mediator(world, monkeypatch):
    one = sender_of(world)
    monkeypatch.setattr(mediator_proof, "MAIL_BYTES_MAX", 0)
    tx = tx_of(world, one.name)
    shared_mailboxes.post(tx, world.id, one.peer, one.way, message(world))
    assert not [effect for effect in tx.effects if isinstance(effect, WebPost)]


# --- receiving ------------------------------------------------------------------------------------------------------


def test_it_goes_on_to_members_that_do_not_share_it(world):
    name = world.edges[0]
    tx = receive(world, name, letter(world, one := message(world)))
    sent = [effect.envelope for effect in tx.effects if isinstance(effect, SendEnvelope)]
    assert one in sent and all(is_forwarded(envelope) for envelope in sent)
    assert account(tx, world, name) == account(tx_of(world, name), world, name), "our account does not pay for it"
    assert tx.payer(world.id, world.group("n3").me).rate_limit.at == world.now, "its author does"


def test_it_is_not_posted_to_the_mailbox_that_it_came_out_of(world, monkeypatch):
    name, posted = world.edges[0], []
    group, box = world.group(name), box_of(world)
    others = {world.group(edge).me for edge in world.edges[1:]} & group.links.peers.keys()
    assert others
    way = shared_mailboxes.SharedWay(box, Route("http://m0.example/", (), (), "final"), seed_of(world))
    monkeypatch.setattr(shared_mailboxes, "way_to", lambda tx, name, did: way if did in others else None)
    monkeypatch.setattr(shared_mailboxes, "post", lambda tx, name, member, *rest: posted.append(member))
    for author in ("n3", "n4", "n5", "n6"):
        receive(world, name, letter(world, message(world, author)))
    assert posted == []
    tx = tx_of(world, name)
    for author in ("n7", "n8", "n9", "n10"):
        bearer = next(did for did in group.links.peers if did not in others)
        with tx.attempt():
            receiver.receive_forwarded(tx, world.id, bearer, message(world, author))
    assert {*posted} <= others and len(posted) <= 4, "one mailbox is one neighbour"


@pytest.mark.parametrize(
    "routes",
    [
        [("http://m0.example/", "m")],
        [("http://m0.example/", "m"), ("http://false.example/", "m")],
        [("http://m0.example/", "m"), ("http://m0.example/", "m", "false", "m")],
    ],
)
def test_one_mailbox_is_one_neighbour_for_each_way_to_it(world, monkeypatch, routes):
    """A member that names another address, or other mediators before that of the mailbox, keeps nothing from others."""
    posted, group = [], world.group("n3")
    behind = neighbours.ring_of(group).in_order(group.me, group.links.peers)[:4]
    ways = {}
    for at, did in enumerate(behind):
        uri, *mediators = routes[at % len(routes)]
        route = Route(uri, (*mediators, f"box{at}"), (), "final")
        ways[did] = shared_mailboxes.SharedWay(box_of(world), route, seed_of(world))
    monkeypatch.setattr(shared_mailboxes, "way_to", lambda tx, name, did: ways.get(did))
    monkeypatch.setattr(shared_mailboxes, "post", lambda tx, name, member, way, one: posted.append(way.route))
    monkeypatch.setattr(forwarding, "targets", lambda links, *rest, **more: links.all)
    tx = tx_of(world, "n3")
    forwarding.publish(tx, world.id, message(world)[105:], group.seq)
    assert sorted((way.uri, *way.routing_keys[:-1]) for way in posted) == sorted(routes)
    assert len(tx.effects) == len(group.links.peers) - len(behind), "all others get it over their links"


def test_duplicates_are_paid_by_our_own_account_until_it_is_empty(world):
    name, one = world.edges[0], message(world)
    tx = receive(world, name, letter(world, one), letter(world, one))
    assert account(tx, world, name).rate_limit.at == world.now
    spent = replace(account(tx, world, name).rate_limit, envelopes=0)
    tx.update_payer(world.id, world.group(name).me, rate_limit=spent)
    before = tx.agent
    dispatch.receive_web(tx, letter(world, message(world, "n4")), None, "mediator")
    assert tx.agent == before, "it is dropped unopened"
    assert rate_limits.spend_envelope(tx, world.id, world.group("n4").me, 100), "others are heard"


@pytest.mark.parametrize("content", [b"", b"\x04" * 200, b"\x02" * 200])
def test_what_no_member_has_signed_changes_nothing_and_is_charged(world, content):
    name = world.edges[0]
    tx = receive(world, name, letter(world, content))
    assert account(tx, world, name).rate_limit.at == world.now
    me = world.group(name).me
    accounts = {did: one for did, one in tx.group(world.id).links.accounts.items() if did != me}
    known = {did: one for did, one in world.group(name).links.accounts.items() if did != me}
    assert accounts == known and tx.group(world.id).log == world.group(name).log
    assert not [effect for effect in tx.effects if isinstance(effect, SendEnvelope)]


def test_another_message_than_a_forwarded_one_is_refused(world):
    name = world.edges[0]
    tx = receive(world, name, letter(world, message(world), "https://example.org/other"))
    assert account(tx, world, name).rate_limit.at == world.now
    assert not [effect for effect in tx.effects if isinstance(effect, SendEnvelope)]


def test_it_is_heard_from_our_mediator_alone(world):
    with pytest.raises(Refused):
        dispatch.receive_web(tx_of(world, world.edges[0]), letter(world, message(world)), None, "web")
