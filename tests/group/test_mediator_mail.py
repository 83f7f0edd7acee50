"""Members that only dial out: over mediators they receive everything exactly once."""

from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.mediated_world import Behind
from zerochat.agent.storage.state_parts import assemble, changes
from zerochat.agent.views.groups import group_info
from zerochat.agent.views.members import member_infos
from zerochat.crypto.encoding import b64url, compact_json, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.address_kinds import AddressKind
from zerochat.didcomm.did import new_peer4, resolve, short_form
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.didcomm.protocols import mediation, pickup, routing
from zerochat.didcomm.protocols.ack import empty
from zerochat.didcomm.protocols.pickup import Parcel
from zerochat.didcomm.service import Route
from zerochat.errors import Malformed
from zerochat.group.effects import CommandFailed, WebPost
from zerochat.group.engine import step
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.inputs import (
    AcceptConnection,
    AcceptInvitation,
    CreateGroup,
    CreateInvitation,
    EndConnection,
    LeaveGroup,
    OfferConnection,
    Received,
    RotateDid,
    SendPost,
    StepContext,
    TimerFired,
    WebPostFailed,
    WebReceived,
    WebSocketDown,
    WebSocketUp,
)
from zerochat.group.links import mediator_mail, pairing
from zerochat.group.links.contact import (
    CONTACT_CHARS_MAX,
    ROUTES_MAX,
    check_route,
    new_identity,
    reach_of,
    transport_seed,
)
from zerochat.group.links.relationship import pack, pack_end
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state import Agent
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.wire.messages import SYNC
from zerochat.limits import POST_BYTES_MAX
from zerochat.rpc.common import timestamp

ENVELOPES = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])


# --- joining and talking --------------------------------------------------------------------------------------------


@ENVELOPES
def test_both_sides_behind_one_mediator(envelope):
    world = Behind(2, hidden=("n0", "n1"), envelope=envelope)
    group = world.everybody()
    world.post(group, "n0", "from behind")
    world.post(group, "n1", "from behind, too")
    world.settle()
    assert len(world.texts("n0")) == len(world.texts("n1")) == 2
    assert not world.dialled, "nobody can be dialled"
    world.run(for_ms=2_000)
    assert not any(world.web.mediators["m0"].waiting.values()), "what is on disk is acknowledged"


@ENVELOPES
def test_hidden_member_joins_through_reachable_one(envelope):
    world = Behind(4, hidden=("n1", "n2"), envelope=envelope)
    group = world.everybody()
    mark = len(world.posted)
    world.post(group, "n0", "to both by their own links")
    world.post(group, "n3", "and again")
    world.run(for_ms=200)
    assert not [name for name, _ in world.since(mark) if name in ("n0", "n3")]
    world.post(group, "n1", "to n2 by mail")
    assert {uri for name, uri in world.since(mark) if name == "n1"} == {"http://m0.example/"}, "one of three"
    world.settle()
    assert all(len(world.texts(name)) == 3 for name in world.nodes)


def test_offline_member_shows_last_seen(monkeypatch):
    """A mediator stores mail for members that are gone for good, too. Such a member is counted separately and shown
    with its last-seen time."""
    world = Behind(3, hidden=("n2",))
    group = world.everybody()
    node, gone = world.nodes["n0"], world.group("n2").me
    heard = world.group("n0").links.peers[gone].last_received_at
    world.stop("n2")
    world.post(group, "n0", "is anybody there?")
    world.run(for_ms=600_000)
    monkeypatch.setattr("zerochat.agent.views.delivery.time", SimpleNamespace(time=lambda: world.now / 1000))
    told = group_info(node.agent, node.agent.groups[group])
    assert (told.members, told.connected, told.via_mediator) == (3, 2, 1)
    found = {one.did: one for one in member_infos(node.agent, node.agent.groups[group])}
    assert (found[gone].connection, found[gone].via) == ("connected", "mediator")
    assert found[gone].last_seen == timestamp(heard), "and not a moment later"
    near = found[world.group("n1").me]
    assert near.via == "link" and (near.last_seen or "") > timestamp(heard)


@ENVELOPES
def test_hidden_inviter_dials_joiner(envelope):
    world = Behind(2, hidden=("n0",), envelope=envelope)
    group = world.everybody()
    world.post(group, "n1", "nothing noticed")
    world.settle()
    assert world.nodes["n0"].agent.joiner_links
    world.run(for_ms=120_000)
    assert not world.nodes["n0"].agent.joiner_links, "the call is over"
    assert not [
        key for key, admit in world.nodes["n1"].allowed_clients.items() if admit.link in world.nodes["n1"].agent.joins
    ]


def test_dialled_joiner_takes_no_member_link():
    """The key of an invitation is unproven: it could be another party's."""
    world = Behind(2)
    group = world.everybody()
    member = world.group("n0").me
    key = ed25519_public(transport_seed(world.group("n0").seed))
    transport = world.group("n1").view.members[member].transport
    way = Route("http://m0.example/", (world.web.mediators["m0"].did,), (), "final")
    fake = replace(world.invite(group), id=bytes(16), key=key, endpoint=None, mail=(way,))
    before = world.nodes["n1"].allowed_clients[transport]
    world.run_command("n1", AcceptInvitation(fake, "n1"))
    world.run(for_ms=70_000)
    assert world.nodes["n1"].allowed_clients[transport] == before


def test_dialled_joiners_are_limited():
    world = Behind(3, hidden=("n0",))
    group = world.found()
    answer = world.run_command("n0", CreateInvitation(group, 3600, 2))
    for name in ("n1", "n2"):
        world.run_command(name, AcceptInvitation(answer.result.invitation, name))
    world.run(lambda: world.fully_connected(), for_ms=60_000)
    assert len(world.nodes["n0"].agent.joiner_links) == 2, "one for each of two joiners at once"
    world.settle()


@ENVELOPES
def test_chain_of_two_mediators(envelope):
    world = Behind(3, hidden=("n1", "n2"), mediators=2, chained=True, envelope=envelope)
    group = world.everybody()
    first, second = world.web.mediators.values()
    (way,) = reach_of(resolve(world.group("n1").contact.did)).routes
    assert way.uri == first.http and way.routing_keys[:2] == (first.did, second.did) and len(way.routing_keys) == 3
    noise = b64url(world.rng.randbytes(POST_BYTES_MAX // 4 * 3))
    world.post(group, "n1", noise)  # every layer makes it a third longer
    world.settle()
    assert len(world.texts("n2")) == 1
    assert not first.mailboxes and second.mailboxes, "the first one knows no recipient"


def test_second_mediator_serves_when_first_is_down():
    world = Behind(3, hidden=("n1", "n2"), mediators=2, via={"n1": ("m0", "m1"), "n2": ("m1", "m0")})
    group = world.everybody()
    world.web.stop_mediator("m0")
    for number in range(3):
        world.post(group, "n1", f"one {number}")
        world.post(group, "n2", f"two {number}")
        world.run(for_ms=500)
    world.settle(for_ms=30_000)
    assert all(len(world.texts(name)) == 6 for name in world.nodes)


# --- coming and going -----------------------------------------------------------------------------------------------


def test_outbound_only_agent_cannot_invite():
    world = Behind(1)
    world.nodes["n0"].hidden = True
    world.start("n0")
    group = world.found()
    answer = world.run_command("n0", CreateInvitation(group, 3600, 1))
    assert isinstance(answer, CommandFailed) and answer.error.code == "Unreachable"


def test_new_mediator_is_announced():
    """n1 and n2 only dial out, so they cannot connect until n1 has a mediator too."""
    world = Behind(3, hidden=("n2",))
    world.nodes["n1"].hidden = True
    world.start("n1")
    group = world.found()
    for name in ("n1", "n2"):
        world.run_command(name, AcceptInvitation(world.invite(group), name))
        world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=60_000)
    world.run(for_ms=30_000)
    me, other = world.group("n1").me, world.group("n2").me
    assert me not in world.group("n2").links.relationships or not world.group("n2").links.relationships[me].established
    world.post(group, "n1", "before")
    world.add_mediator("n1", "m0")
    world.run(for_ms=10_000)
    assert world.group("n0").links.peers[me].reach.routes and world.group("n2").links.peers[me].reach.routes
    assert (
        world.group("n2").links.relationships[me].established
        and world.group("n1").links.relationships[other].established
    )
    world.post(group, "n2", "after")
    world.settle()


def test_removed_mediator_ends_mail():
    world = Behind(3, hidden=("n1",))
    world.everybody()
    me = world.group("n1").me
    (connection,) = world.nodes["n1"].agent.connections
    world.run_command("n1", EndConnection(connection))
    world.run(for_ms=5_000)
    assert world.group("n0").links.peers[me].reach.routes == () and ("n1", "ws://m0.example/") not in world.web.held


@pytest.mark.parametrize("pause_ms", [0, 1_000, 60_000])
def test_removed_mediator_can_be_requested_again(pause_ms):
    """At once, too: its WebSocket is still open, so no event announces it."""
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    (connection,) = world.nodes["n1"].agent.connections
    world.run_command("n1", EndConnection(connection))
    world.run(for_ms=pause_ms)
    world.add_mediator("n1", "m0")
    world.run(for_ms=10_000)
    world.post(group, "n2", "back again")
    world.run(for_ms=10_000)
    assert len(world.texts("n1")) == 1


@pytest.mark.parametrize("how", ["mediator", "member"])
def test_absence_ends_in_exactly_one_copy_each(how):
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    if how == "mediator":
        world.web.stop_mediator("m0")
    else:
        world.web.held.clear()
        world.web.cut("n2", "ws://m0.example/")
    for number in range(70):  # more than one repair brings
        world.post(group, "n1", f"word {number}")
        world.run(for_ms=20_000 if number < 20 else 10)
    if how == "mediator":
        assert world.texts("n2"), "somebody whom both can dial hands it over"
        world.web.start_mediator("m0")
        world.run(lambda: len(world.texts("n2")) == 70, for_ms=200_000)
    else:
        world.restart("n2")
        world.run(for_ms=60_000)
    assert len(world.texts("n2")) == 70
    world.settle()


@pytest.mark.slow
def test_lost_mail_is_retransmitted_on_return():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    world.web.held.clear()
    world.web.cut("n2", "ws://m0.example/")
    world.post(group, "n1", "lost by the mediator")
    world.run(for_ms=6 * 3_600_000)  # its author has become patient
    for kept in world.web.mediators["m0"].waiting.values():
        kept.clear()
    world.restart("n2")
    world.run(lambda: bool(world.texts("n2")), for_ms=40_000)
    assert len(world.texts("n2")) == 1
    world.settle()


def test_lost_welcome_is_retransmitted():
    world = Behind(2, hidden=("n0", "n1"))
    group = world.found()
    world.run_command("n1", AcceptInvitation(world.invite(group), "n1"))
    assert world.run(lambda: bool(world.group("n0").others), for_ms=20_000)
    mediator = world.web.mediators["m0"]
    keep, mediator.store = mediator.store, lambda recipient, envelope: None  # type: ignore[method-assign]
    world.run(for_ms=1_000)
    mediator.store = keep  # type: ignore[method-assign]
    assert not world.nodes["n1"].agent.groups
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=30_000)
    world.settle()


def test_retransmission_survives_restart():
    """No link comes up between these two, so only a timer can trigger it."""
    world = Behind(2, hidden=("n0", "n1"))
    group = world.everybody()
    mediator = world.web.mediators["m0"]
    keep, mediator.store = mediator.store, lambda recipient, envelope: None  # type: ignore[method-assign]
    world.post(group, "n0", "lost")
    world.run(for_ms=1_000)
    mediator.store = keep  # type: ignore[method-assign]
    world.restart("n0")
    world.run(lambda: bool(world.texts("n1")), for_ms=25_000)
    assert world.texts("n1")


def test_pending_mail_is_sent_over_the_first_route():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    (connection,) = world.nodes["n1"].agent.connections
    world.run_command("n1", EndConnection(connection))
    world.run(for_ms=5_000)
    world.post(group, "n2", "for whoever has no mediator any more")
    world.run(for_ms=5_000)
    assert not world.texts("n1")
    world.add_mediator("n1", "m0")
    world.run(for_ms=3_000)
    assert world.texts("n1")


def test_forgetful_mediator_is_registered_with_again():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    world.web.mediators["m0"].reset()
    for name in ("n1", "n2"):
        world.web.cut(name, "ws://m0.example/")
    world.run(for_ms=10_000)
    world.post(group, "n1", "known again")
    world.settle(for_ms=60_000)
    assert len(world.texts("n2")) == 1


def test_leaving_by_mail_ends_relationships():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    left = world.group("n1").me
    world.run_command("n1", LeaveGroup(group))
    world.run(for_ms=60_000)
    assert world.group("n1").state == "left"
    for name in ("n0", "n2"):
        assert left not in world.group(name).links.relationships and left in world.group(name).view.former
    box = mediator_mail.mailbox(world.group("n1").seed)
    assert box not in world.web.mediators["m0"].mailboxes, "the mailbox of a group that was left is given up"
    world.post(group, "n2", "we stay")
    world.settle()


def test_uri_backoff_grows_and_ends():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    for name in ("m0", "unheard-of"):
        world.process("n1", WebPostFailed(f"http://{name}.example/"))
    world.web.stop_mediator("m0")
    world.post(group, "n1", "not yet")
    world.run(for_ms=100_000)
    fault = world.nodes["n1"].agent.endpoint_failures["http://m0.example/"]
    assert fault.tries >= 4
    for number in range(2 * mediator_mail.FAULTS_MAX):
        world.process("n1", WebPostFailed(f"http://{number}.example/"))
    assert len(world.nodes["n1"].agent.endpoint_failures) <= mediator_mail.FAULTS_MAX
    world.web.start_mediator("m0")
    world.settle(for_ms=120_000)


# --- a hostile mediator ---------------------------------------------------------------------------------------------


class Hostile(Behind):
    """n1 and n2 are behind m0, which the test controls."""

    def __init__(self, envelope="didcomm/v2"):
        super().__init__(3, hidden=("n1", "n2"), envelope=envelope)
        self.kept = []
        self.mediator = self.web.mediators["m0"]
        keep = self.mediator.store

        def record(recipient, envelope):
            self.kept.append((recipient, envelope))
            keep(recipient, envelope)

        self.mediator.store = record  # type: ignore[method-assign]
        self.id = self.everybody()

    def utter(self, message, name="n1"):
        """The mediator sends an authentic message to a node."""
        (one,) = self.nodes[name].agent.connections.values()
        self.process(name, WebReceived(self.mediator.encrypt(message, one.relationship.mine.did), 1))

    def deliver(self, *envelopes, name="n1"):
        for start in range(0, len(envelopes), 16):
            some = enumerate(envelopes[start : start + 16])
            parcels = [Parcel(f"x{len(self.posted)}-{start}-{number}", envelope) for number, envelope in some]
            self.utter(pickup.delivery(parcels, self.rng.randbytes), name)

    def box(self, name="n1"):
        return mediator_mail.mailbox(self.group(name).seed)

    def wrapped(self, envelope, layers=1, name="n1", to="did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"):
        """An envelope in nested forwards to the node's own mailbox."""
        route = Route("http://m0.example/", (self.box(name),) * layers, (), "final")
        return routing.wrap(envelope, route, to, resolve=resolve, random=self.rng.randbytes)

    def refused(self, name, why):
        """How often a node has dropped an envelope for this reason."""
        return self.nodes[name].dropped.get(f"dropped {why}", 0)

    def facts(self, name="n1"):
        """The state that a mediator must not be able to change: everything except last-seen times."""
        group = self.group(name)
        peers = {
            did: (group.links.acks_of(did), peer.reach, peer.start_seq, peer.exchange.ended_at)
            for did, peer in group.links.peers.items()
        }
        return (
            [row.id for row in self.nodes[name].log],
            group.view,
            group.log.chains,
            group.links.relationships,
            group.control,
            peers,
        )

    def talk(self):
        for name in self.nodes:
            self.post(self.id, name, f"still here, says {name}")
        self.settle()


def test_replays_change_nothing():
    world = Hostile()
    for number in range(5):
        world.post(world.id, "n2", f"word {number}")
    world.settle()
    world.run(for_ms=30_000)
    before = {name: world.facts(name) for name in ("n1", "n2")}
    me = {short_form(one.relationship.mine.did): name for name in ("n1", "n2") for one in world._connections(name)}
    for _ in range(2):
        world.rng.shuffle(world.kept)
        for recipient, envelope in list(world.kept):
            world.deliver(envelope, name=me[recipient])
    assert {name: world.facts(name) for name in ("n1", "n2")} == before
    world.run(for_ms=30_000)
    world.talk()


def test_old_reach_does_not_return():
    world = Hostile()
    world.kept.clear()
    world.restart("n2")  # says to n1 by mail where it is reached
    world.run(for_ms=2_000)
    old = list(world.kept)
    (connection,) = world.nodes["n2"].agent.connections
    world.web.add(other := type(world.mediator)("m9", world.rng.randbytes))
    world.add_mediator("n2", "m9")
    world.run(for_ms=5)  # words are told apart by the millisecond
    world.run_command("n2", EndConnection(connection))
    world.run(for_ms=5_000)
    member = world.group("n2").me
    assert [way.uri for way in world.group("n1").links.peers[member].reach.routes] == [other.http]
    for _, envelope in old:
        world.deliver(envelope)
    assert [way.uri for way in world.group("n1").links.peers[member].reach.routes] == [other.http]


def test_dropped_mail_is_retransmitted():
    world = Hostile()
    keep, world.mediator.store = world.mediator.store, lambda recipient, envelope: None  # type: ignore[method-assign]
    for number in range(3):
        world.post(world.id, "n1", f"word {number}")
    world.run(for_ms=60_000)
    assert not world.texts("n2")
    world.mediator.store = keep  # type: ignore[method-assign]
    world.settle(for_ms=300_000)
    assert len(world.texts("n2")) == 3


def _junk(world):
    envelope = world.kept[0][1]
    foreign = did_key(ed25519_public(world.rng.randbytes(32)))
    plain = PACKERS["didcomm/v2"].dump(Message(type=SYNC, id="1", body={}))
    to_box = PACKERS["didcomm/v2"].their_key(resolve(world.box()), world.box())
    yield from (b"{}", b"[1]", b'{"protected":"e30"}', compact_json({"protected": "AA", "recipients": []}))
    yield b'{"a":' * 100 + b"1" + b"}" * 100
    yield b"{" + b" " * ENVELOPE_BYTES_MAX + b"}"
    yield envelope[:-40] + b'"}'
    yield world.wrapped(b'{"protected":"AAAA","recipients":[{"header":{"kid":1}}]}')
    yield world.wrapped(compact_json({"protected": "eyJhbGciOiJFQ0RILUVTIn0", "recipients": 7}))
    yield PACKERS["didcomm/v2"].anoncrypt(plain, recipient=to_box, random=world.rng.randbytes)
    yield PACKERS["didcomm/v2"].anoncrypt(b'{"id":"1"}', recipient=to_box, random=world.rng.randbytes)
    for layers in (2, 5, 7):
        yield world.wrapped(envelope, layers)
    route = Route("http://m0.example/", (foreign,), (), "final")
    yield routing.wrap(envelope, route, foreign, resolve=resolve, random=world.rng.randbytes)


def test_junk_never_raises():
    world = Hostile()
    before = world.facts()
    junk = [envelope for envelope in _junk(world) if len(envelope) < 100_000 and not envelope.startswith(b"[")]
    world.deliver(*junk)
    for envelope in [*_junk(world), b"", b"\xff\xfe", b"null", b'"x"', b"[[[[", b"0" * 1000]:
        agent = world.nodes["n1"].agent
        world.process("n1", WebReceived(envelope, None))
        world.process("n1", WebReceived(envelope, 5))
        assert world.nodes["n1"].agent == agent, envelope[:80]
    assert world.facts() == before
    world.talk()


@pytest.mark.parametrize(("layers", "heard"), [(5, True), (6, False)])
def test_nested_forwards_are_limited(layers, heard):
    world = Hostile()
    message = Message(type="https://didcomm.org/trust-ping/2.0/ping", id="1", body={})
    relationship = world.group("n2").links.relationships[world.group("n1").me]
    envelope = pack(relationship, message, PACKERS["didcomm/v2"], world.rng.randbytes)
    mark = len(world.posted)
    world.deliver(world.wrapped(envelope, layers))
    assert bool(world.refused("n1", "Malformed")) != heard
    assert len(world.since(mark)) == 1 + heard, "what was delivered is acknowledged, and a ping answered"


def test_mediator_claims_are_checked():
    world = Hostile()
    before = world.facts()
    random = world.rng.randbytes
    asked = mediation.request(random)
    world.utter(mediation.grant(asked, "no DID at all", random))
    world.utter(
        mediation.update_response(mediation.update([mediation.Change("x", "add")], random), (), random)
        if False
        else Message(
            type=mediation.PROTOCOL + "2.0/keylist-update-response",
            id="1",
            body={"updated": [{"recipient_did": "did:x:y", "action": "add", "result": "success"}]},
        )
    )
    world.utter(Message(type=pickup.PROTOCOL + "/status", id="2", body={"message_count": 10**9}))
    world.utter(Message(type=pickup.PROTOCOL + "/status", id="3", body={"message_count": -1}))
    world.utter(Message(type=pickup.PROTOCOL + "/delivery", id="4", body={}))
    for _ in range(20):
        world.utter(Message(type=mediation.PROTOCOL + "2.0/mediate-deny", id=new_id(random), body={}))
    assert world.facts() == before
    (one,) = world._connections("n1")
    assert one.mediation.phase == "granted" and len(one.mediation.unacknowledged) == 0
    assert "did:x:y" not in one.mediation.registered
    world.talk()


@pytest.mark.parametrize(
    "routing_did", ["nobody", "did:web:example.org", did_key(ed25519_public(b"\x01" * 32)), "did:peer:2.Ez6LS"]
)
def test_unusable_grant_is_denied(routing_did):
    """An address where nothing can be posted would make members reject the whole sync."""
    world = Behind(2)
    group = world.everybody()
    mediator = world.web.mediators["m0"]
    mediator._identity = new_peer4(
        world.rng.randbytes,
        [
            {"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": mediator.ws, "accept": ["didcomm/v2"]}},
        ],
    )
    world.run_command("n1", AcceptConnection(mediator.invitation(), "m0", mediate=True))
    (one,) = world._connections("n1")
    answer = mediation.grant(mediation.request(world.rng.randbytes), routing_did, world.rng.randbytes)
    world.process("n1", WebReceived(mediator.encrypt(answer, one.relationship.mine.did)))
    (one,) = world._connections("n1")
    reach = mediator_mail.own_reach_as(_turn(world, "n1"), world.group("n1").seed)
    assert one.mediation.phase == "denied" or [way.uri for way in reach.routes] == [mediator.ws]
    for way in reach.routes:
        check_route(way)
    world.post(group, "n1", "still here")
    world.settle()


def _turn(world, name):
    from zerochat.group.transaction import Transaction

    return Transaction(world.nodes[name].agent, StepContext(world.now, world.rng.randbytes), PACKERS)


@ENVELOPES
def test_mail_with_other_envelopes_is_rejected(envelope):
    world = Hostile(envelope)
    other = PACKERS["didcomm/v1" if envelope == "didcomm/v2" else "didcomm/v2"]
    mine = world.group("n1").me
    relationship = world.group("n2").links.relationships[mine]
    message = Message(type="https://didcomm.org/trust-ping/2.0/ping", id="1", body={})
    for packer, refused in ((other, 1), (PACKERS[envelope], 0)):
        mark, before = len(world.posted), world.refused("n1", "Refused")
        world.deliver(world.wrapped(pack(relationship, message, packer, world.rng.randbytes)))
        assert world.refused("n1", "Refused") - before == refused
        assert len(world.since(mark)) == 2 - refused, "what was delivered is acknowledged, and a ping answered"


def test_mail_is_accepted_only_from_its_mailbox():
    """Otherwise a member of two groups, or a connection, could find out that two members are one agent."""
    world = Hostile()
    relationship, mine = world.group("n2").links.relationships[world.group("n1").me], world.group("n1").seed
    message = Message(type="https://didcomm.org/trust-ping/2.0/ping", id="1", body={})
    envelope = pack(relationship, message, PACKERS["didcomm/v2"], world.rng.randbytes)
    world.run_command("n1", CreateGroup("other", "n1", world.envelope))
    other = next(one for one in world.nodes["n1"].agent.groups.values() if one.name == "other")
    for heard, seed in ((False, other.seed), (True, mine)):
        world.box = lambda name, seed=seed: mediator_mail.mailbox(seed)  # type: ignore[method-assign, assignment]
        before, mark = world.refused("n1", "Refused"), len(world.posted)
        world.deliver(world.wrapped(envelope))
        assert world.refused("n1", "Refused") - before == (not heard) and len(world.since(mark)) == 1 + heard
    agent = world.nodes["n1"].agent
    for posted in (envelope, world.wrapped(envelope), world.kept[-1][1]):
        world.process("n1", WebReceived(posted, 5))  # to an address that a connection knows
        assert world.nodes["n1"].agent == agent
    (one,) = world._connections("n1")
    before, mark = world.refused("n1", "Refused"), len(world.posted)
    again = world.mediator.encrypt(mediation.request(world.rng.randbytes), one.relationship.mine.did)
    world.deliver(envelope, again)
    assert world.refused("n1", "Refused") - before == 2 and len(world.since(mark)) == 1


def test_dialled_joiner_ends_with_invitation():
    world = Behind(4, hidden=("n0",))
    group = world.found()
    for name in ("n1", "n2"):
        world.run_command(name, AcceptInvitation(world.invite(group), name))
        assert world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=60_000)
    world.run(for_ms=100_000)
    world.run_command("n3", AcceptInvitation(world.invite(group), "n3"))
    assert world.run(lambda: bool(world.nodes["n0"].agent.joiner_links), for_ms=30_000)
    (link,) = world.nodes["n0"].agent.joiner_links
    world.run_command("n0", LeaveGroup(group))
    world.run_command("n0", LeaveGroup(group))
    assert world.group("n0").state == "left" and not world.nodes["n0"].agent.joiner_links
    world.process("n0", Received(link, b"{}"))


def test_early_leaver_gets_no_exchange_request():
    """n1 ends its relationship with n2, whose mediator fails; n2 requests another, and n1 leaves silently."""
    world = Behind(3, hidden=("n1", "n2"))
    world.everybody()
    left, asking = world.group("n1").me, world.group("n2").me
    mine = world.group("n1").links.relationships[asking]
    packer = PACKERS["didcomm/v2"]
    _utter_sync(world, "n1", "n2", mail=[{"uri": "http://elsewhere.example/", "keys": [KEY]}])
    last = pack_end(mine, empty(world.rng.randbytes), packer, world.rng.randbytes, world.now // 1000)
    _from_mediator(world, "n2", last)
    assert left not in world.group("n2").links.relationships
    pairing.retry_request(tx := _turn(world, "n2"), world.group("n2").id, left)
    world.nodes["n2"].agent = tx.agent
    assert world.group("n2").links.relationships[left].requester
    group = world.group("n2")
    view = replace(
        group.view,
        members={did: one for did, one in group.view.members.items() if did != left},
        former={left: group.view.members[left]},
    )
    agent = world.nodes["n2"].agent
    world.nodes["n2"].agent = replace(agent, groups={group.id: replace(group, view=view)})
    world.process("n2", TimerFired(f"{TimerKind.DID_EXCHANGE} {group.id} {left}"))


def _from_mediator(world, name, envelope):
    """A mediator delivers an envelope to a node's mailbox."""
    mediator = world.web.mediators["m0"]
    (one,) = world._connections(name)
    route = Route("http://m0.example/", (mediator_mail.mailbox(world.group(name).seed),), (), "final")
    wrapped = routing.wrap(envelope, route, world.group(name).me, resolve=resolve, random=world.rng.randbytes)
    message = pickup.delivery([Parcel(new_id(world.rng.randbytes), wrapped)], world.rng.randbytes)
    world.process(name, WebReceived(mediator.encrypt(message, one.relationship.mine.did), 1))


def test_failing_uris_are_limited():
    world = Hostile()
    for number in range(mediator_mail.FAULTS_MAX):
        world.process("n1", WebPostFailed(f"http://{number}.example/"))
    agent, todo, rounds = world.nodes["n1"].agent, ["http://m0.example/"], 0
    while todo and rounds < 50:
        rounds += 1
        agent, effects = step(agent, WebPostFailed(todo.pop()), StepContext(world.now, world.rng.randbytes))
        todo += [effect.uri for effect in effects if isinstance(effect, WebPost)]
    assert rounds < 50


# --- hiding ---------------------------------------------------------------------------------------------------------


def test_hidden_agent_reveals_no_server_key():
    """Neither its address nor the key that is the same in all its groups."""
    world = Behind(3, hidden=("n1",))
    group = world.everybody()
    node = world.nodes["n1"]
    invitation = world.invite(group, "n1")
    mine = world.group("n1")
    dids = [mine.contact.did, invitation.did, *(one.mine.did for one in mine.links.relationships.values())]
    documents = [resolve(did) for did in dids]
    secrets = (str(node.address), node.address.host, b64url(node.server_key))
    for document in documents:
        said = " ".join(str(dict(service.properties)) for service in document.services)
        assert not any(secret in said for secret in secrets)
    again = world.invite(group, "n1")
    assert again.server_key not in (invitation.server_key, node.server_key)


def test_agent_leaving_hiding_can_be_dialled():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    node, me = world.nodes["n1"], world.group("n1").me
    node.hidden = False
    world.restart("n1")
    world.run(for_ms=30_000)
    reach = world.group("n2").links.peers[me].reach
    assert (reach.server_key, reach.pair) == (node.server_key, node.address)
    assert world.group("n2").links.peers[me].link in world.nodes["n2"].agent.links_up
    world.post(group, "n2", "over a link")
    world.settle()


# --- absurd routes --------------------------------------------------------------------------------------------------

KEY = did_key(ed25519_public(b"\x09" * 32))
ABSURD = [
    {"uri": "ftp://m0.example/", "keys": [KEY]},
    {"uri": "http://m0 .example/", "keys": [KEY]},
    {"uri": "http://m0.example/?do=it", "keys": [KEY]},
    {"uri": "http://m0.example/#here", "keys": [KEY]},
    {"uri": "http://me:pw@m0.example/", "keys": [KEY]},
    {"uri": "http://" + "m" * 300, "keys": [KEY]},
    {"uri": "http://m0.example/\r\nX: y", "keys": [KEY]},
    {"uri": "http://m0.example/", "keys": ["did:web:example.org"]},
    {"uri": "http://m0.example/", "keys": ["x"]},
    {"uri": "http://m0.example/", "keys": [""]},
    {"uri": "http://m0.example/", "keys": [KEY + "#nothing"]},
    {"uri": "http://m0.example/", "keys": [KEY] * 9},
    {"uri": "http://m0.example/", "keys": []},
]


def _utter_sync(world, sender, to, **reach):
    """An authentic sync of one member to another; it outranks those of the next minutes."""
    relationship = world.group(sender).links.relationships[world.group(to).me]
    whole = {
        "group": world.group(to).id,
        "view": world.group(to).view.checksum,
        "have": [],
        "start_seq": 0,
        "acked": 0,
        "heads": [],
        "reach": {"pair": "", "queue": "", "at": world.now + AHEAD_MS_MAX, **reach},
    }
    message = Message(type=SYNC, id=new_id(world.rng.randbytes), body=whole)
    _from_mediator(world, to, pack(relationship, message, PACKERS["didcomm/v2"], world.rng.randbytes))


def test_a_sync_that_waited_at_a_mediator_tells_no_clock():
    world = Behind(3, hidden=("n1",))
    world.everybody()
    world.run(for_ms=60_000)

    def peer():
        return world.group("n1").links.peers[world.group("n2").me]

    assert peer().link in world.nodes["n1"].agent.links_up
    before, heard = peer().shown.clock_ahead_ms, peer().last_received_at
    assert before is not None and abs(before) < 10_000
    _utter_sync(world, "n2", "n1", at=world.now - 3 * 3_600_000)
    assert peer().last_received_at > heard, "it counts as a sign of life"
    assert peer().shown.clock_ahead_ms == before


@pytest.mark.parametrize("way", ABSURD, ids=range(len(ABSURD)))
def test_absurd_routes_are_rejected(way):
    world = Hostile()
    before = world.facts()
    _utter_sync(world, "n2", "n1", mail=[way])
    _utter_sync(world, "n2", "n1", pair="zmq+tcp://10.0.0.3:7000")  # half an address
    assert world.facts() == before and world.refused("n1", "Malformed") == 2
    endpoint = {"uri": way["uri"], "accept": ["didcomm/v2"], "routingKeys": way["keys"]}
    services = [{"id": "#m", "type": "DIDCommMessaging", "serviceEndpoint": [endpoint], "serverKey": "A" * 43}]
    try:
        found = reach_of(resolve(new_peer4(world.rng.randbytes, services).did)).routes
    except Malformed:
        return
    assert not found, "left out, as whatever is no service"


def test_too_long_route_affects_only_its_recipient():
    """Eight wrappings are allowed, and make a long post too long, which only affects its recipient."""
    world = Hostile()
    _utter_sync(world, "n2", "n1", mail=[{"uri": "http://m0.example/", "keys": [world.mediator.did, *[KEY] * 7]}])
    noise = b64url(world.rng.randbytes(POST_BYTES_MAX // 4 * 3))  # which nothing makes shorter
    answer = world.run_command("n1", SendPost(world.id, noise))
    assert not isinstance(answer, CommandFailed)
    assert world.nodes["n1"].dropped["dropped CannotWrap"] >= 1
    world.run(for_ms=5_000)
    assert len(world.texts("n0")) == 1


def test_number_of_mediators_is_limited():
    """With any number of mediators, contact and invitation stay readable."""
    world = Behind(1, mediators=6)
    for name in world.web.mediators:
        world.add_mediator("n0", name)
    group = world.found()
    invitation = world.invite(group)
    assert 1 < len(invitation.mail) <= ROUTES_MAX and len(invitation.url()) <= 4096
    identity = new_identity(
        world.rng.randbytes, mediator_mail.own_reach_as(_turn(world, "n0"), b"\x07" * 32), "didcomm/v1"
    )
    assert len(identity.did) <= CONTACT_CHARS_MAX
    assert reach_of(resolve(identity.did)).routes


# --- state ----------------------------------------------------------------------------------------------------------


def _parts(agent):
    return [(path, value) for path, value in changes(None, agent) if value is not None]


def test_state_survives_the_journal():
    world = Hostile()
    invitation = world.invite(world.id, "n1")
    world.web.stop_mediator("m0")
    world.run_command("n1", RotateDid("friends/n2"))
    world.post(world.id, "n1", "on its way")
    world.run(for_ms=3_000)
    world.web.start_mediator("m0")
    world.run(for_ms=10_000)
    agent = world.nodes["n1"].agent
    node = world.nodes["n0"]
    world.web.add(type(world.mediator)("m5", world.rng.randbytes))
    for envelope in ("didcomm/v2", "didcomm/v1"):
        node.agent = replace(node.agent, web_uris=("http://n0.example/",))
        world.run_command("n0", OfferConnection(envelope, "x", 60))
    world.run_command("n1", RotateDid("friends/n0"))
    world.web.stop_mediator("m0")
    world.run_command("n2", RotateDid("friends/n1"))
    rotated = world.nodes["n2"].agent
    assert any(one.rotation for one in rotated.groups[world.id].links.relationships.values())
    for state in (agent, rotated, node.agent, world.nodes["n1"].agent):
        assert state.connections
        found = assemble(Agent, _parts(state))
        assert found is not None and found[0] == state and not found[1]
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=Agent) == state
    assert invitation.mail


def test_restart_restores_mediation():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    world.web.stop_mediator("m0")
    world.post(group, "n1", "said while the mediator was away")
    world.run(for_ms=500)
    for name in world.nodes:
        world.restart(name)
    world.run(for_ms=500)
    world.web.start_mediator("m0")
    world.settle(for_ms=60_000)
    assert len(world.texts("n2")) == 1


def test_offer_expires_after_restart():
    world = Behind(1)
    node = world.nodes["n0"]
    node.agent = replace(node.agent, web_uris=("http://n0.example/",))
    world.run_command("n0", OfferConnection("didcomm/v2", "x", 60))
    world.restart("n0")
    assert node.agent.connections
    world.run(for_ms=61_000)
    assert not node.agent.connections


def test_web_events_of_unknown_uris_are_ignored():
    world = Hostile()
    before = world.nodes["n1"].agent
    for uri in ("", "ws://elsewhere.example/", "x y"):
        for stimulus in (
            WebSocketUp(uri),
            WebSocketDown(uri),
            TimerFired(f"{TimerKind.WEB_RETRY} {uri}"),
            TimerFired(f"{TimerKind.MEDIATOR} {uri}"),
        ):
            world.process("n1", stimulus)
    assert world.nodes["n1"].agent == before


def test_ended_mediator_connection_stops_nothing():
    from zerochat.group.links.relationship import Relationship, pack_end

    world = Hostile()
    (one,) = world._connections("n1")
    theirs = Relationship("", world.mediator._identity, one.relationship.mine.did, "", "", requester=False)
    packer = PACKERS["didcomm/v2"]
    message = empty(world.rng.randbytes)
    world.process("n1", WebReceived(pack_end(theirs, message, packer, world.rng.randbytes, world.now // 1000)))
    (one,) = world._connections("n1")
    assert one.state == "ended" and one.mediation is None
    assert world.news("n1", ConnectionChanged)
    world.restart("n1")
    world.process("n1", WebSocketUp("ws://elsewhere.example/"))
    assert world.nodes["n1"].agent.websockets_up == {"ws://elsewhere.example/"}
    world.post(world.id, "n1", "to whoever can be dialled")
    world.run(for_ms=5_000)
    assert len(world.texts("n0")) == 1


# --- near addresses -------------------------------------------------------------------------------------------------

NEAR = ("http://127.0.0.1:8080/", "http://[::1]/", "ws://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/")


@pytest.mark.parametrize("uri", [*NEAR, "http://192.168.1.1/"])
def test_nearer_mediators_of_members_do_not_count(uri):
    """n1 has a private address, or a public one; n2 says that it has a mediator nearer than that."""
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    far = AddressKind.PUBLIC if "192" in uri else AddressKind.PRIVATE
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, nearest=far)
    member = world.group("n2").me
    _utter_sync(world, "n2", "n1", mail=[{"uri": uri, "keys": [KEY]}])
    assert [way.uri for way in world.group("n1").links.peers[member].reach.routes] == [uri]
    mark = len(world.posted)
    world.post(group, "n1", "hello")
    world.run(for_ms=60_000)
    assert ("n1", uri) not in world.since(mark)
    world.nodes["n1"].agent = replace(world.nodes["n1"].agent, nearest=AddressKind.LOOPBACK)
    world.post(group, "n1", "hello again")
    world.run(for_ms=60_000)
    assert ("n1", uri) in world.since(mark), "where our own is as near"


def test_near_joiners_are_not_dialled():
    """An invitation holder names any address; the inviter's own is public."""
    world = Behind(2, hidden=("n0",))
    group = world.found()
    world.nodes["n0"].agent = replace(world.nodes["n0"].agent, nearest=AddressKind.PUBLIC)
    answer = world.run_command("n0", CreateInvitation(group, 3600, 2))
    world.run_command("n1", AcceptInvitation(answer.result.invitation, "n1"))
    world.run(for_ms=30_000)
    assert not world.nodes["n0"].agent.joiner_links and "n0" not in world.dialled
    assert world.nodes["n0"].dropped["dropped Refused"]
