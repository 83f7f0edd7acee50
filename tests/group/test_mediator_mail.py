"""Members who only dial out: over mediators everything reaches them, once, and nobody else notices."""

import msgspec
import pytest
from msgspec.structs import replace

from tests.support.mediated_world import Behind
from zerochat.agent.api.timestamps import timestamp
from zerochat.agent.storage.state_parts import assemble, changes
from zerochat.agent.views.core_state import group_info, member_infos
from zerochat.crypto.encoding import b64url, compact_json, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer4, resolve, short_form
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.didcomm.protocols import mediation, pickup, routing
from zerochat.didcomm.protocols.empty import empty
from zerochat.didcomm.protocols.pickup import Parcel
from zerochat.didcomm.service import Route
from zerochat.errors import Malformed
from zerochat.group.effects import Post, Refuse
from zerochat.group.engine import step
from zerochat.group.event_log.event import POST_BYTES_MAX
from zerochat.group.inputs import (
    AcceptInvitation,
    Connect,
    CreateGroup,
    CreateInvitation,
    EndConnection,
    LeaveGroup,
    Mailed,
    Moment,
    OfferConnection,
    PostFailed,
    Received,
    RotateDid,
    SendPost,
    TimerFired,
    WebDown,
    WebUp,
)
from zerochat.group.links import mediator_mail, pairing
from zerochat.group.links.contact import (
    CONTACT_CHARS_MAX,
    ROUTES_MAX,
    checked_route,
    new_identity,
    reach_of,
    transport_seed,
)
from zerochat.group.links.relationship import farewell, pack
from zerochat.group.notifications import ConnectionChanged
from zerochat.group.state import Agent
from zerochat.group.wire.messages import SYNC

ENVELOPES = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])


# --- joining and talking --------------------------------------------------------------------------------------------


@ENVELOPES
def test_inviter_and_joiner_are_behind_one_mediator(envelope):
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
def test_a_hidden_member_joins_through_a_reachable_one_and_only_the_hidden_ones_need_the_mediator(envelope):
    world = Behind(4, hidden=("n1", "n2"), envelope=envelope)
    group = world.everybody()
    mark = len(world.posted)
    world.post(group, "n0", "to both by their own links")
    world.post(group, "n3", "and again")
    world.run(for_ms=200)
    assert not [name for name, _ in world.since(mark) if name in ("n0", "n3")]
    world.post(group, "n1", "to n2 by mail")
    assert [uri for name, uri in world.since(mark) if name == "n1"] == ["http://m0.example/"], "one of three"
    world.settle()
    assert all(len(world.texts(name)) == 3 for name in world.nodes)


def test_whoever_is_gone_behind_a_mediator_is_told_apart_by_when_it_was_heard():
    """A mediator takes in what is for somebody who is gone for good as it does for anybody: nothing tells that at once.
    So such a member is counted by itself, and is shown with the time at which it was last heard."""
    world = Behind(3, hidden=("n2",))
    group = world.everybody()
    node, gone = world.nodes["n0"], world.group("n2").me
    heard = world.group("n0").peers[gone].heard
    world.stop("n2")
    world.post(group, "n0", "is anybody there?")
    world.run(for_ms=600_000)
    told = group_info(node.agent, node.agent.groups[group])
    assert (told.members, told.connected, told.mailed) == (3, 2, 1)
    found = {one.did: one for one in member_infos(node.agent, node.agent.groups[group])}
    assert (found[gone].connection, found[gone].via) == ("connected", "mediator")
    assert found[gone].last_heard == timestamp(heard), "and not a moment later"
    near = found[world.group("n1").me]
    assert near.via == "link" and (near.last_heard or "") > timestamp(heard)


@ENVELOPES
def test_a_hidden_inviter_calls_back_whoever_has_no_mediator(envelope):
    world = Behind(2, hidden=("n0",), envelope=envelope)
    group = world.everybody()
    world.post(group, "n1", "nothing noticed")
    world.settle()
    assert world.nodes["n0"].agent.calls
    world.run(for_ms=120_000)
    assert not world.nodes["n0"].agent.calls, "the call is over"
    assert not [key for key, admit in world.nodes["n1"].admitted.items() if admit.link in world.nodes["n1"].agent.joins]


def test_a_call_back_takes_no_members_place():
    """The key of an invitation can be anybody's: who made it proves nothing by it."""
    world = Behind(2)
    group = world.everybody()
    member = world.group("n0").me
    key = ed25519_public(transport_seed(world.group("n0").seed))
    transport = world.group("n1").view.members[member].transport
    way = Route("http://m0.example/", (world.web.mediators["m0"].did,), (), "final")
    fake = replace(world.invite(group), id=bytes(16), key=key, endpoint=None, mail=(way,))
    before = world.nodes["n1"].admitted[transport]
    world.ask("n1", AcceptInvitation(fake, "n1"))
    world.run(for_ms=70_000)
    assert world.nodes["n1"].admitted[transport] == before


def test_a_call_that_nobody_asked_for_is_bounded():
    world = Behind(3, hidden=("n0",))
    group = world.found()
    answer = world.ask("n0", CreateInvitation(group, 3600, 2))
    for name in ("n1", "n2"):
        world.ask(name, AcceptInvitation(answer.result.invitation, name))
    world.run(lambda: world.seated(), for_ms=60_000)
    assert len(world.nodes["n0"].agent.calls) == 2, "one for each of two joiners at once"
    world.settle()


@ENVELOPES
def test_a_chain_of_two_mediators(envelope):
    world = Behind(3, hidden=("n1", "n2"), mediators=2, chained=True, envelope=envelope)
    group = world.everybody()
    first, second = world.web.mediators.values()
    (way,) = reach_of(resolve(world.group("n1").contact.did)).mail
    assert way.uri == first.http and way.routing_keys[:2] == (first.did, second.did) and len(way.routing_keys) == 3
    noise = b64url(world.dice.randbytes(POST_BYTES_MAX // 4 * 3))
    world.post(group, "n1", noise)  # every layer makes it a third longer
    world.settle()
    assert len(world.texts("n2")) == 1
    assert not first.mailboxes and second.mailboxes, "the first one knows no recipient"


def test_two_mediators_and_one_is_away():
    world = Behind(3, hidden=("n1", "n2"), mediators=2, via={"n1": ("m0", "m1"), "n2": ("m1", "m0")})
    group = world.everybody()
    world.web.take_down("m0")
    for number in range(3):
        world.post(group, "n1", f"one {number}")
        world.post(group, "n2", f"two {number}")
        world.run(for_ms=500)
    world.settle(for_ms=30_000)
    assert all(len(world.texts(name)) == 6 for name in world.nodes)


# --- coming and going -----------------------------------------------------------------------------------------------


def test_whoever_only_dials_out_cannot_invite():
    world = Behind(1)
    world.nodes["n0"].hidden = True
    world.start("n0")
    group = world.found()
    answer = world.ask("n0", CreateInvitation(group, 3600, 1))
    assert isinstance(answer, Refuse) and answer.error.code == "NoWayHere"


def test_a_mediator_that_comes_later_is_told_to_the_members():
    """n1 and n2 only dial out, so they cannot meet until n1 has a mediator too."""
    world = Behind(3, hidden=("n2",))
    world.nodes["n1"].hidden = True
    world.start("n1")
    group = world.found()
    for name in ("n1", "n2"):
        world.ask(name, AcceptInvitation(world.invite(group), name))
        world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=60_000)
    world.run(for_ms=30_000)
    me, other = world.group("n1").me, world.group("n2").me
    assert me not in world.group("n2").relationships or not world.group("n2").relationships[me].established
    world.post(group, "n1", "before")
    world.behind("n1", "m0")
    world.run(for_ms=10_000)
    assert world.group("n0").peers[me].reach.mail and world.group("n2").peers[me].reach.mail
    assert world.group("n2").relationships[me].established and world.group("n1").relationships[other].established
    world.post(group, "n2", "after")
    world.settle()


def test_without_its_mediator_a_member_is_not_written_to():
    world = Behind(3, hidden=("n1",))
    world.everybody()
    me = world.group("n1").me
    (connection,) = world.nodes["n1"].agent.connections
    world.ask("n1", EndConnection(connection))
    world.run(for_ms=5_000)
    assert world.group("n0").peers[me].reach.mail == () and ("n1", "ws://m0.example/") not in world.web.held


@pytest.mark.parametrize("pause_ms", [0, 1_000, 60_000])
def test_a_mediator_that_was_given_up_can_be_asked_again(pause_ms):
    """At once, too: its WebSocket is open still, and nothing says that it opens."""
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    (connection,) = world.nodes["n1"].agent.connections
    world.ask("n1", EndConnection(connection))
    world.run(for_ms=pause_ms)
    world.behind("n1", "m0")
    world.run(for_ms=10_000)
    world.post(group, "n2", "back again")
    world.run(for_ms=10_000)
    assert len(world.texts("n1")) == 1


@pytest.mark.parametrize("how", ["mediator", "member"])
def test_everything_arrives_once_after_an_absence(how):
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    if how == "mediator":
        world.web.take_down("m0")
    else:
        world.web.held.clear()
        world.web.cut("n2", "ws://m0.example/")
    for number in range(70):  # more than one repair brings
        world.post(group, "n1", f"word {number}")
        world.run(for_ms=20_000 if number < 20 else 10)
    if how == "mediator":
        assert world.texts("n2"), "somebody whom both can dial hands it over"
        world.web.bring_back("m0")
        world.run(lambda: len(world.texts("n2")) == 70, for_ms=200_000)
    else:
        world.restart("n2")
        world.run(for_ms=60_000)
    assert len(world.texts("n2")) == 70
    world.settle()


@pytest.mark.slow
def test_what_a_mediator_has_lost_is_sent_again_soon_after_the_member_is_back():
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


def test_a_lost_welcome_is_sent_again():
    world = Behind(2, hidden=("n0", "n1"))
    group = world.found()
    world.ask("n1", AcceptInvitation(world.invite(group), "n1"))
    assert world.run(lambda: bool(world.group("n0").others), for_ms=20_000)
    mediator = world.web.mediators["m0"]
    keep, mediator.keep = mediator.keep, lambda recipient, envelope: None  # type: ignore[method-assign]
    world.run(for_ms=1_000)
    mediator.keep = keep  # type: ignore[method-assign]
    assert not world.nodes["n1"].agent.groups
    assert world.run(lambda: bool(world.nodes["n1"].agent.groups), for_ms=30_000)
    world.settle()


def test_what_was_lost_is_sent_again_after_a_restart_too():
    """No link comes up between these two, so only a timer can have it sent."""
    world = Behind(2, hidden=("n0", "n1"))
    group = world.everybody()
    mediator = world.web.mediators["m0"]
    keep, mediator.keep = mediator.keep, lambda recipient, envelope: None  # type: ignore[method-assign]
    world.post(group, "n0", "lost")
    world.run(for_ms=1_000)
    mediator.keep = keep  # type: ignore[method-assign]
    world.restart("n0")
    world.run(lambda: bool(world.texts("n1")), for_ms=25_000)
    assert world.texts("n1")


def test_what_has_waited_for_a_way_goes_out_as_soon_as_there_is_one():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    (connection,) = world.nodes["n1"].agent.connections
    world.ask("n1", EndConnection(connection))
    world.run(for_ms=5_000)
    world.post(group, "n2", "for whoever has no mediator any more")
    world.run(for_ms=5_000)
    assert not world.texts("n1")
    world.behind("n1", "m0")
    world.run(for_ms=3_000)
    assert world.texts("n1")


def test_a_mediator_that_has_forgotten_everybody_is_asked_again():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    world.web.mediators["m0"].forget()
    for name in ("n1", "n2"):
        world.web.cut(name, "ws://m0.example/")
    world.run(for_ms=10_000)
    world.post(group, "n1", "known again")
    world.settle(for_ms=60_000)
    assert len(world.texts("n2")) == 1


def test_leaving_by_mail_ends_the_relationships():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    left = world.group("n1").me
    world.ask("n1", LeaveGroup(group))
    world.run(for_ms=60_000)
    assert world.group("n1").state == "left"
    for name in ("n0", "n2"):
        assert left not in world.group(name).relationships and left in world.group(name).view.former
    assert len(world.web.mediators["m0"].mailboxes) == 1, "the mailbox of a group that was left is given up"
    world.post(group, "n2", "we stay")
    world.settle()


def test_a_pause_for_a_uri_grows_while_it_fails_and_ends_by_itself():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    for name in ("m0", "unheard-of"):
        world.hear("n1", PostFailed(f"http://{name}.example/"))
    world.web.take_down("m0")
    world.post(group, "n1", "not yet")
    world.run(for_ms=100_000)
    fault = world.nodes["n1"].agent.faults["http://m0.example/"]
    assert fault.tries >= 4
    for number in range(2 * mediator_mail.FAULTS_MAX):
        world.hear("n1", PostFailed(f"http://{number}.example/"))
    assert len(world.nodes["n1"].agent.faults) <= mediator_mail.FAULTS_MAX
    world.web.bring_back("m0")
    world.settle(for_ms=120_000)


# --- a hostile mediator ---------------------------------------------------------------------------------------------


class Hostile(Behind):
    """n1 and n2 are behind m0, which does as the test says."""

    def __init__(self, envelope="didcomm/v2"):
        super().__init__(3, hidden=("n1", "n2"), envelope=envelope)
        self.kept = []
        self.mediator = self.web.mediators["m0"]
        keep = self.mediator.keep

        def record(recipient, envelope):
            self.kept.append((recipient, envelope))
            keep(recipient, envelope)

        self.mediator.keep = record  # type: ignore[method-assign]
        self.id = self.everybody()

    def utter(self, message, name="n1"):
        """The mediator says something authentic to a node."""
        (one,) = self.nodes[name].agent.connections.values()
        self.hear(name, Mailed(self.mediator.sealed(message, one.relationship.mine.did), 1))

    def deliver(self, *envelopes, name="n1"):
        for start in range(0, len(envelopes), 16):
            some = enumerate(envelopes[start : start + 16])
            parcels = [Parcel(f"x{len(self.posted)}-{start}-{number}", envelope) for number, envelope in some]
            self.utter(pickup.delivery(parcels, self.dice.randbytes), name)

    def box(self, name="n1"):
        return mediator_mail.mailbox(self.group(name).seed)

    def wrapped(self, envelope, layers=1, name="n1", to="did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"):
        """An envelope inside forwards, all of them for the node's own mailbox."""
        route = Route("http://m0.example/", (self.box(name),) * layers, (), "final")
        return routing.wrap(envelope, route, to, resolve=resolve, random=self.dice.randbytes)

    def refused(self, name, why):
        """How often a node has dropped something, for this reason."""
        return self.nodes[name].dropped.get(f"dropped {why}", 0)

    def facts(self, name="n1"):
        """What a mediator must not be able to change: everything of the group but when its members were heard."""
        group = self.group(name)
        peers = {did: (peer.acked, peer.reach, peer.base, peer.ended) for did, peer in group.peers.items()}
        return (
            [row.id for row in self.nodes[name].log],
            group.view,
            group.chains,
            group.relationships,
            group.control,
            peers,
        )

    def talk(self):
        for name in self.nodes:
            self.post(self.id, name, f"still here, says {name}")
        self.settle()


def test_replays_in_any_order_change_nothing():
    world = Hostile()
    for number in range(5):
        world.post(world.id, "n2", f"word {number}")
    world.settle()
    world.run(for_ms=30_000)
    before = {name: world.facts(name) for name in ("n1", "n2")}
    me = {short_form(one.relationship.mine.did): name for name in ("n1", "n2") for one in world._connections(name)}
    for _ in range(2):
        world.dice.shuffle(world.kept)
        for recipient, envelope in list(world.kept):
            world.deliver(envelope, name=me[recipient])
    assert {name: world.facts(name) for name in ("n1", "n2")} == before
    world.run(for_ms=30_000)
    world.talk()


def test_an_old_word_about_an_address_does_not_bring_it_back():
    world = Hostile()
    world.kept.clear()
    world.restart("n2")  # says to n1 by mail where it is reached
    world.run(for_ms=2_000)
    old = list(world.kept)
    (connection,) = world.nodes["n2"].agent.connections
    world.web.add(other := type(world.mediator)("m9", world.dice.randbytes))
    world.behind("n2", "m9")
    world.run(for_ms=5)  # words are told apart by the millisecond
    world.ask("n2", EndConnection(connection))
    world.run(for_ms=5_000)
    member = world.group("n2").me
    assert [way.uri for way in world.group("n1").peers[member].reach.mail] == [other.http]
    for _, envelope in old:
        world.deliver(envelope)
    assert [way.uri for way in world.group("n1").peers[member].reach.mail] == [other.http]


def test_what_is_dropped_comes_again():
    world = Hostile()
    keep, world.mediator.keep = world.mediator.keep, lambda recipient, envelope: None  # type: ignore[method-assign]
    for number in range(3):
        world.post(world.id, "n1", f"word {number}")
    world.run(for_ms=60_000)
    assert not world.texts("n2")
    world.mediator.keep = keep  # type: ignore[method-assign]
    world.settle(for_ms=300_000)
    assert len(world.texts("n2")) == 3


def _junk(world):
    envelope = world.kept[0][1]
    foreign = did_key(ed25519_public(world.dice.randbytes(32)))
    plain = PACKERS["didcomm/v2"].dump(Message(type=SYNC, id="1", body={}))
    to_box = PACKERS["didcomm/v2"].their_key(resolve(world.box()), world.box())
    yield from (b"{}", b"[1]", b'{"protected":"e30"}', compact_json({"protected": "AA", "recipients": []}))
    yield b'{"a":' * 100 + b"1" + b"}" * 100
    yield b"{" + b" " * ENVELOPE_BYTES_MAX + b"}"
    yield envelope[:-40] + b'"}'
    yield world.wrapped(b'{"protected":"AAAA","recipients":[{"header":{"kid":1}}]}')
    yield world.wrapped(compact_json({"protected": "eyJhbGciOiJFQ0RILUVTIn0", "recipients": 7}))
    yield PACKERS["didcomm/v2"].anoncrypt(plain, recipient=to_box, random=world.dice.randbytes)
    yield PACKERS["didcomm/v2"].anoncrypt(b'{"id":"1"}', recipient=to_box, random=world.dice.randbytes)
    for layers in (2, 5, 7):
        yield world.wrapped(envelope, layers)
    route = Route("http://m0.example/", (foreign,), (), "final")
    yield routing.wrap(envelope, route, foreign, resolve=resolve, random=world.dice.randbytes)


def test_junk_changes_nothing_and_never_raises():
    world = Hostile()
    before = world.facts()
    junk = [envelope for envelope in _junk(world) if len(envelope) < 100_000 and not envelope.startswith(b"[")]
    world.deliver(*junk)
    for envelope in [*_junk(world), b"", b"\xff\xfe", b"null", b'"x"', b"[[[[", b"0" * 1000]:
        agent = world.nodes["n1"].agent
        world.hear("n1", Mailed(envelope, None))
        world.hear("n1", Mailed(envelope, 5))
        assert world.nodes["n1"].agent == agent, envelope[:80]
    assert world.facts() == before
    world.talk()


@pytest.mark.parametrize(("layers", "heard"), [(5, True), (6, False)])
def test_forwards_inside_forwards_have_an_end(layers, heard):
    world = Hostile()
    message = Message(type="https://didcomm.org/trust-ping/2.0/ping", id="1", body={})
    relationship = world.group("n2").relationships[world.group("n1").me]
    envelope = pack(relationship, message, PACKERS["didcomm/v2"], world.dice.randbytes)
    mark = len(world.posted)
    world.deliver(world.wrapped(envelope, layers))
    assert bool(world.refused("n1", "Malformed")) != heard
    assert len(world.since(mark)) == 1 + heard, "what was delivered is acknowledged, and a ping answered"


def test_what_the_mediator_says_of_itself_is_believed_within_reason():
    world = Hostile()
    before = world.facts()
    random = world.dice.randbytes
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
    assert one.mediation.phase == "granted" and len(one.mediation.held) == 0
    assert "did:x:y" not in one.mediation.registered
    world.talk()


@pytest.mark.parametrize(
    "routing_did", ["nobody", "did:web:example.org", did_key(ed25519_public(b"\x01" * 32)), "did:peer:2.Ez6LS"]
)
def test_a_grant_that_leads_nowhere_is_none(routing_did):
    """Nobody could post there, and whoever were told would refuse the whole word."""
    world = Behind(2)
    group = world.everybody()
    mediator = world.web.mediators["m0"]
    mediator._identity = new_peer4(
        world.dice.randbytes,
        [
            {"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": mediator.ws, "accept": ["didcomm/v2"]}},
        ],
    )
    world.ask("n1", Connect(mediator.invitation(), "m0", mediate=True))
    (one,) = world._connections("n1")
    answer = mediation.grant(mediation.request(world.dice.randbytes), routing_did, world.dice.randbytes)
    world.hear("n1", Mailed(mediator.sealed(answer, one.relationship.mine.did)))
    (one,) = world._connections("n1")
    reach = mediator_mail.own_reach(_turn(world, "n1"), world.group("n1").seed)
    assert one.mediation.phase == "denied" or [way.uri for way in reach.mail] == [mediator.ws]
    for way in reach.mail:
        checked_route(way)
    world.post(group, "n1", "still here")
    world.settle()


def _turn(world, name):
    from zerochat.group.transaction import Turn

    return Turn(world.nodes[name].agent, Moment(world.now, world.dice.randbytes), PACKERS)


@ENVELOPES
def test_mail_of_another_kind_than_the_groups_is_refused(envelope):
    world = Hostile(envelope)
    other = PACKERS["didcomm/v1" if envelope == "didcomm/v2" else "didcomm/v2"]
    mine = world.group("n1").me
    relationship = world.group("n2").relationships[mine]
    message = Message(type="https://didcomm.org/trust-ping/2.0/ping", id="1", body={})
    for packer, refused in ((other, 1), (PACKERS[envelope], 0)):
        mark, before = len(world.posted), world.refused("n1", "Refused")
        world.deliver(world.wrapped(pack(relationship, message, packer, world.dice.randbytes)))
        assert world.refused("n1", "Refused") - before == refused
        assert len(world.since(mark)) == 2 - refused, "what was delivered is acknowledged, and a ping answered"


def test_mail_is_heard_only_on_a_way_that_leads_to_whom_it_is_for():
    """Else who is in two groups, or connected with somebody, could find out that two are one."""
    world = Hostile()
    relationship, mine = world.group("n2").relationships[world.group("n1").me], world.group("n1").seed
    message = Message(type="https://didcomm.org/trust-ping/2.0/ping", id="1", body={})
    envelope = pack(relationship, message, PACKERS["didcomm/v2"], world.dice.randbytes)
    world.ask("n1", CreateGroup("other", "n1", world.envelope))
    other = next(one for one in world.nodes["n1"].agent.groups.values() if one.name == "other")
    for heard, seed in ((False, other.seed), (True, mine)):
        world.box = lambda name, seed=seed: mediator_mail.mailbox(seed)  # type: ignore[method-assign, assignment]
        before, mark = world.refused("n1", "Refused"), len(world.posted)
        world.deliver(world.wrapped(envelope))
        assert world.refused("n1", "Refused") - before == (not heard) and len(world.since(mark)) == 1 + heard
    agent = world.nodes["n1"].agent
    for posted in (envelope, world.wrapped(envelope), world.kept[-1][1]):
        world.hear("n1", Mailed(posted, 5))  # to an address that a connection knows
        assert world.nodes["n1"].agent == agent
    (one,) = world._connections("n1")
    before, mark = world.refused("n1", "Refused"), len(world.posted)
    again = world.mediator.sealed(mediation.request(world.dice.randbytes), one.relationship.mine.did)
    world.deliver(envelope, again)
    assert world.refused("n1", "Refused") - before == 2 and len(world.since(mark)) == 1


def test_a_call_ends_with_the_invitation_that_it_is_for():
    world = Behind(4, hidden=("n0",))
    group = world.found()
    for name in ("n1", "n2"):
        world.ask(name, AcceptInvitation(world.invite(group), name))
        assert world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=60_000)
    world.run(for_ms=100_000)
    world.ask("n3", AcceptInvitation(world.invite(group), "n3"))
    assert world.run(lambda: bool(world.nodes["n0"].agent.calls), for_ms=30_000)
    (link,) = world.nodes["n0"].agent.calls
    world.ask("n0", LeaveGroup(group))
    world.ask("n0", LeaveGroup(group))
    assert world.group("n0").state == "left" and not world.nodes["n0"].agent.calls
    world.hear("n0", Received(link, b"{}"))


def test_whoever_leaves_before_it_has_answered_is_not_asked_again():
    """n1 ends its relationship with n2, whom its mediator fails; n2 asks for another, and n1 leaves without a word."""
    world = Behind(3, hidden=("n1", "n2"))
    world.everybody()
    left, asking = world.group("n1").me, world.group("n2").me
    mine = world.group("n1").relationships[asking]
    packer = PACKERS["didcomm/v2"]
    _utter_sync(world, "n1", "n2", mail=[{"uri": "http://elsewhere.example/", "keys": [KEY]}])
    last = farewell(mine, empty(world.dice.randbytes), packer, world.dice.randbytes, world.now // 1000)
    _from_mediator(world, "n2", last)
    assert left not in world.group("n2").relationships
    pairing.ask_again(turn := _turn(world, "n2"), world.group("n2").id, left)
    world.nodes["n2"].agent = turn.agent
    assert world.group("n2").relationships[left].requester
    group = world.group("n2")
    view = replace(
        group.view,
        members={did: one for did, one in group.view.members.items() if did != left},
        former={left: group.view.members[left]},
    )
    agent = world.nodes["n2"].agent
    world.nodes["n2"].agent = replace(agent, groups={group.id: replace(group, view=view)})
    world.hear("n2", TimerFired(f"meet {group.id} {left}"))


def _from_mediator(world, name, envelope):
    """A mediator delivers an envelope to a node's mailbox."""
    mediator = world.web.mediators["m0"]
    (one,) = world._connections(name)
    route = Route("http://m0.example/", (mediator_mail.mailbox(world.group(name).seed),), (), "final")
    wrapped = routing.wrap(envelope, route, world.group(name).me, resolve=resolve, random=world.dice.randbytes)
    message = pickup.delivery([Parcel(new_id(world.dice.randbytes), wrapped)], world.dice.randbytes)
    world.hear(name, Mailed(mediator.sealed(message, one.relationship.mine.did), 1))


def test_uris_that_fail_are_not_written_to_without_end():
    world = Hostile()
    for number in range(mediator_mail.FAULTS_MAX):
        world.hear("n1", PostFailed(f"http://{number}.example/"))
    agent, todo, rounds = world.nodes["n1"].agent, ["http://m0.example/"], 0
    while todo and rounds < 50:
        rounds += 1
        agent, effects = step(agent, PostFailed(todo.pop()), Moment(world.now, world.dice.randbytes))
        todo += [effect.uri for effect in effects if isinstance(effect, Post)]
    assert rounds < 50


# --- hiding ---------------------------------------------------------------------------------------------------------


def test_a_hidden_agent_tells_nobody_what_it_could_be_recognised_by():
    """Neither its address nor the one key that is the same in all its groups."""
    world = Behind(3, hidden=("n1",))
    group = world.everybody()
    node = world.nodes["n1"]
    invitation = world.invite(group, "n1")
    mine = world.group("n1")
    dids = [mine.contact.did, invitation.did, *(one.mine.did for one in mine.relationships.values())]
    documents = [resolve(did) for did in dids]
    secrets = (str(node.address), node.address.host, b64url(node.server_key))
    for document in documents:
        said = " ".join(str(dict(service.properties)) for service in document.services)
        assert not any(secret in said for secret in secrets)
    again = world.invite(group, "n1")
    assert again.server_key not in (invitation.server_key, node.server_key)


def test_whoever_comes_out_of_hiding_can_be_dialled():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    node, me = world.nodes["n1"], world.group("n1").me
    node.hidden = False
    world.restart("n1")
    world.run(for_ms=30_000)
    reach = world.group("n2").peers[me].reach
    assert (reach.server_key, reach.pair) == (node.server_key, node.address)
    assert world.group("n2").peers[me].link in world.nodes["n2"].agent.up
    world.post(group, "n2", "over a link")
    world.settle()


# --- absurd routes --------------------------------------------------------------------------------------------------

KEY = did_key(ed25519_public(b"\x09" * 32))
ABSURD = [
    {"uri": "ftp://m0.example/", "keys": [KEY]},
    {"uri": "http://m0 .example/", "keys": [KEY]},
    {"uri": "http://" + "m" * 300, "keys": [KEY]},
    {"uri": "http://m0.example/\r\nX: y", "keys": [KEY]},
    {"uri": "http://m0.example/", "keys": ["did:web:example.org"]},
    {"uri": "http://m0.example/", "keys": ["x"]},
    {"uri": "http://m0.example/", "keys": [""]},
    {"uri": "http://m0.example/", "keys": [KEY + "#nothing"]},
    {"uri": "http://m0.example/", "keys": [KEY] * 9},
]


def _utter_sync(world, sender, to, **reach):
    """An authentic word of one member to another about its own state."""
    relationship = world.group(sender).relationships[world.group(to).me]
    whole = {
        "group": world.group(to).id,
        "view": world.group(to).view.checksum,
        "have": [],
        "since": 0,
        "yours": 0,
        "heads": [],
        "reach": {"pair": "", "queue": "", "at": world.now + 1_000_000, **reach},
    }
    message = Message(type=SYNC, id=new_id(world.dice.randbytes), body=whole)
    _from_mediator(world, to, pack(relationship, message, PACKERS["didcomm/v2"], world.dice.randbytes))


@pytest.mark.parametrize("way", ABSURD, ids=range(len(ABSURD)))
def test_a_member_that_names_absurd_routes_is_not_heard(way):
    world = Hostile()
    before = world.facts()
    _utter_sync(world, "n2", "n1", mail=[way])
    _utter_sync(world, "n2", "n1", pair="zmq+tcp://10.0.0.3:7000")  # half an address
    assert world.facts() == before and world.refused("n1", "Malformed") == 2
    endpoint = {"uri": way["uri"], "accept": ["didcomm/v2"], "routingKeys": way["keys"]}
    services = [{"id": "#m", "type": "DIDCommMessaging", "serviceEndpoint": [endpoint], "serverKey": "A" * 43}]
    try:
        found = reach_of(resolve(new_peer4(world.dice.randbytes, services).did)).mail
    except Malformed:
        return
    assert not found, "left out, as whatever is no service"


def test_a_way_that_is_too_long_for_a_post_stops_nobody():
    """Eight wrappings are allowed, and make a long post too long: that is its reader's loss alone."""
    world = Hostile()
    _utter_sync(world, "n2", "n1", mail=[{"uri": "http://m0.example/", "keys": [KEY] * 8}])
    noise = b64url(world.dice.randbytes(POST_BYTES_MAX // 4 * 3))  # which nothing makes shorter
    answer = world.ask("n1", SendPost(world.id, noise))
    assert not isinstance(answer, Refuse)
    assert world.nodes["n1"].dropped["dropped CannotWrap"] >= 1
    world.run(for_ms=5_000)
    assert len(world.texts("n0")) == 1


def test_as_many_mediators_as_fit():
    """Whatever mediators there are, contact and invitation stay readable for the others."""
    world = Behind(1, mediators=6)
    for name in world.web.mediators:
        world.behind("n0", name)
    group = world.found()
    invitation = world.invite(group)
    assert 1 < len(invitation.mail) <= ROUTES_MAX and len(invitation.url()) <= 4096
    identity = new_identity(
        world.dice.randbytes, mediator_mail.own_reach(_turn(world, "n0"), b"\x07" * 32), "didcomm/v1"
    )
    assert len(identity.did) <= CONTACT_CHARS_MAX
    assert reach_of(resolve(identity.did)).mail


# --- state ----------------------------------------------------------------------------------------------------------


def _parts(agent):
    return [(path, value) for path, value in changes(None, agent) if value is not None]


def test_the_state_survives_the_journal():
    world = Hostile()
    invitation = world.invite(world.id, "n1")
    world.web.take_down("m0")
    world.ask("n1", RotateDid("friends/n2"))
    world.post(world.id, "n1", "on its way")
    world.run(for_ms=3_000)
    world.web.bring_back("m0")
    world.run(for_ms=10_000)
    agent = world.nodes["n1"].agent
    node = world.nodes["n0"]
    world.web.add(type(world.mediator)("m5", world.dice.randbytes))
    for envelope in ("didcomm/v2", "didcomm/v1"):
        node.agent = replace(node.agent, web=("http://n0.example/",))
        world.ask("n0", OfferConnection(envelope, "x", 60))
    world.ask("n1", RotateDid("friends/n0"))
    world.web.take_down("m0")
    world.ask("n2", RotateDid("friends/n1"))
    rotated = world.nodes["n2"].agent
    assert any(one.handover for one in rotated.groups[world.id].relationships.values())
    for state in (agent, rotated, node.agent, world.nodes["n1"].agent):
        assert state.connections
        found = assemble(Agent, _parts(state))
        assert found is not None and found[0] == state and not found[1]
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=Agent) == state
    assert invitation.mail


def test_a_restart_finds_everything_again():
    world = Behind(3, hidden=("n1", "n2"))
    group = world.everybody()
    world.web.take_down("m0")
    world.post(group, "n1", "said while the mediator was away")
    world.run(for_ms=500)
    for name in world.nodes:
        world.restart(name)
    world.run(for_ms=500)
    world.web.bring_back("m0")
    world.settle(for_ms=60_000)
    assert len(world.texts("n2")) == 1


def test_an_offer_ends_in_time_also_after_a_restart():
    world = Behind(1)
    node = world.nodes["n0"]
    node.agent = replace(node.agent, web=("http://n0.example/",))
    world.ask("n0", OfferConnection("didcomm/v2", "x", 60))
    world.restart("n0")
    assert node.agent.connections
    world.run(for_ms=61_000)
    assert not node.agent.connections


def test_web_news_about_unknown_places_are_nothing():
    world = Hostile()
    before = world.nodes["n1"].agent
    for uri in ("", "ws://elsewhere.example/", "x y"):
        for stimulus in (WebUp(uri), WebDown(uri), TimerFired(f"web {uri}"), TimerFired(f"mediator {uri}")):
            world.hear("n1", stimulus)
    assert world.nodes["n1"].agent == before


def test_a_mediator_that_ends_the_connection_stops_nothing():
    from zerochat.didcomm.protocols import empty
    from zerochat.group.links.relationship import Relationship, farewell

    world = Hostile()
    (one,) = world._connections("n1")
    theirs = Relationship("", world.mediator._identity, one.relationship.mine.did, "", "", requester=False)
    packer = PACKERS["didcomm/v2"]
    message = empty.empty(world.dice.randbytes)
    world.hear("n1", Mailed(farewell(theirs, message, packer, world.dice.randbytes, world.now // 1000)))
    (one,) = world._connections("n1")
    assert one.state == "ended" and one.mediation is None
    assert world.news("n1", ConnectionChanged)
    world.restart("n1")
    world.hear("n1", WebUp("ws://elsewhere.example/"))
    assert world.nodes["n1"].agent.web_up == {"ws://elsewhere.example/"}
    world.post(world.id, "n1", "to whoever can be dialled")
    world.run(for_ms=5_000)
    assert len(world.texts("n0")) == 1
