"""Standard protocols between members and on connections, with hostile answers."""

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE, BOB, Two
from tests.support.mediated_world import Behind
from zerochat.didcomm import PACKERS
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.protocols import exchange, features, ping, problem
from zerochat.didcomm.protocols.problem import ERRORS_MAX, PROBLEM, TOO_MANY_ERRORS
from zerochat.group.effects import CommandFailed
from zerochat.group.external import standard_protocols
from zerochat.group.external.standard_protocols import NotConnected
from zerochat.group.inputs import (
    EndConnection,
    PingPeer,
    QueryFeatures,
    Received,
    RotateDid,
    SendBasicMessage,
    WebReceived,
)
from zerochat.group.links.relationship import own_keys, pack
from zerochat.group.notifications import BasicMessageReceived, FeaturesDisclosed, Pong, ProblemReported

ENVELOPES = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
UNKNOWN = "https://example.org/chess/1.0/move"
HOUR_MS = 3_600_000


class Asking(Behind):
    """Three members; the last two are behind a mediator."""

    def __init__(self, envelope="didcomm/v2"):
        super().__init__(3, hidden=("n1", "n2"), envelope=envelope)
        self.id = self.everybody()

    def inquire(self, name, command):
        answer = self.run_command(name, command)
        self.run(for_ms=2_000)
        return answer.result.thread

    def utter(self, sender, to, message):
        """A member sends an authentic message to another."""
        relationship = self.group(sender).links.relationships[self.group(to).me]
        envelope = pack(relationship, message, PACKERS[self.envelope], self.rng.randbytes)
        self.process(to, Received(self.group(to).links.peers[self.group(sender).me].link, envelope))

    def message(self, kind, thid=None, **body):
        return Message(type=kind, id=new_id(self.rng.randbytes), body=body, thid=thid)


# --- asking ---------------------------------------------------------------------------------------------------------


@ENVELOPES
@pytest.mark.parametrize(("one", "other", "way"), [("n0", "n1", "direct"), ("n1", "n2", "mediator")])
def test_ping_reports_latency_path_and_keys(envelope, one, other, way):
    world = Asking(envelope)
    thread = world.inquire(one, PingPeer(f"friends/{other}"))
    (pong,) = world.news(one, Pong)
    packer = PACKERS[envelope]
    here, there = (world.group(a).links.relationships[world.group(b).me] for a, b in ((one, other), (other, one)))
    assert (pong.thread, pong.peer, pong.transport) == (thread, other, way)
    assert pong.envelope.startswith(envelope) and 0 < pong.rtt_ms < 2_000
    assert pong.their_key in own_keys(packer, there.mine) and pong.my_key in own_keys(packer, here.mine)
    assert not world.nodes[one].agent.peer_queries


@ENVELOPES
def test_a_member_may_know_more_than_a_stranger(envelope):
    world = Asking(envelope)
    for match, some, none in (("*", "zerochat.org/group", "basicmessage"), ("*ping*", "ping", "zerochat")):
        thread = world.inquire("n1", QueryFeatures("friends/n2", match))
        told = world.news("n1", FeaturesDisclosed)[-1]
        assert told.thread == thread and told.peer == "n2"
        assert any(some in name for _, name in told.features)
        assert not any(none in name for _, name in told.features)


def test_unreachable_peers_are_not_queried():
    world = Asking()
    world.web.stop_mediator("m0")
    world.inquire("n1", PingPeer("friends/n2"))  # how it finds out
    answer = world.run_command("n1", PingPeer("friends/n2"))
    assert isinstance(answer, CommandFailed) and isinstance(answer.error, NotConnected)


def test_questions_are_forgotten():
    world = Asking()
    for _ in range(standard_protocols.PEER_QUERIES_MAX + 50):
        world.run_command("n1", PingPeer("friends/n0"))
    assert len(world.nodes["n1"].agent.peer_queries) == standard_protocols.PEER_QUERIES_MAX
    world.restart("n1")
    assert not world.nodes["n1"].agent.peer_queries


# --- hostile answers ------------------------------------------------------------------------------------------------


@ENVELOPES
def test_unrequested_answers_are_ignored(envelope):
    world = Asking(envelope)
    thread = world.run_command("n0", PingPeer("friends/n1")).result.thread  # under way
    asked = world.nodes["n0"].agent.peer_queries
    disclosure = {"disclosures": [{"feature-type": "protocol", "id": "https://example.org/x/1.0"}]}
    for message in (
        world.message(ping.PING_RESPONSE, "unheard-of"),
        world.message(ping.PING_RESPONSE),
        world.message(ping.PING_RESPONSE, thread),  # another member's answer
        world.message(features.DISCLOSE, thread, **disclosure),
        world.message(features.DISCLOSE, "unheard-of", **disclosure),
    ):
        world.utter("n2", "n0", message)
        assert world.nodes["n0"].agent.peer_queries == asked
    assert not world.news("n0", Pong) and not world.news("n0", FeaturesDisclosed)
    world.run(for_ms=1_000)
    assert [pong.peer for pong in world.news("n0", Pong)] == ["n1"]


@ENVELOPES
def test_a_huge_disclosure_is_refused_whole(envelope):
    world = Asking(envelope)
    asking = world.run_command("n0", QueryFeatures("friends/n2", "*")).result.thread
    many = [{"feature-type": "protocol", "id": f"https://example.org/{n}/1.0"} for n in range(1000)]
    before = world.nodes["n0"].agent
    for body in (
        {"disclosures": many},
        {"disclosures": [{"feature-type": "protocol", "id": "x" * 100_000}]},
        {"disclosures": [{"feature-type": ["protocol"], "id": {}}]},
        {"disclosures": 7},
    ):
        world.utter("n2", "n0", world.message(features.DISCLOSE, asking, **body))
        assert world.nodes["n0"].agent == before and not world.news("n0", FeaturesDisclosed)
    world.utter("n2", "n0", world.message(features.DISCLOSE, asking, disclosures=many[:256]))
    assert len(world.news("n0", FeaturesDisclosed)[0].features) == 256


def test_late_answers_are_ignored():
    world = Asking()
    thread = world.run_command("n0", PingPeer("friends/n2")).result.thread
    world._queue.clear()
    world.now += standard_protocols.QUERY_MS_MAX
    world.utter("n2", "n0", world.message(ping.PING_RESPONSE, thread))
    assert not world.news("n0", Pong)


# --- problems -------------------------------------------------------------------------------------------------------


@ENVELOPES
def test_unknown_messages_get_a_problem_report(envelope):
    world = Asking(envelope)
    before = world.group("n0")
    world.utter("n2", "n0", world.message(UNKNOWN))
    world.run(for_ms=1_000)
    assert [report.code for report in world.news("n2", ProblemReported)] == ["e.m.msg.unsupported"]
    assert world.group("n0").links.relationships == before.links.relationships and world.group("n0").view == before.view
    mark = len(world.notices)
    for kind in (exchange.COMPLETE, exchange.RESPONSE, "https://didcomm.org/empty/1.0/empty", ping.PING_RESPONSE):
        world.utter("n2", "n0", world.message(kind, "an old thread"))
    world.run(for_ms=1_000)
    assert not [each for _, each in world.notices[mark:] if isinstance(each, ProblemReported)], "late copies"


@ENVELOPES
def test_a_vicious_circle_of_reports_ends(envelope):
    """Repeated unknown messages and problem reports: reports never cause endless reports."""
    world = Asking(envelope)
    for number in range(100):
        world.utter("n2", "n0", world.message(UNKNOWN))
        world.utter("n2", "n0", world.message(PROBLEM, code="e.m.msg", comment="{1}", args=[str(number)]))
    world.run(for_ms=60_000)
    heard = [report.code for report in world.news("n2", ProblemReported)]
    assert 1 <= len(heard) <= ERRORS_MAX + 1 and heard.count(TOO_MANY_ERRORS) == 1
    assert len(world.news("n0", ProblemReported)) <= ERRORS_MAX + 1
    assert world.group("n0").links.peers[world.group("n2").me].breaker.is_broken
    other = world.group("n0").links.peers[world.group("n1").me]
    assert not other.breaker.is_broken, "one member's problems are no other's"
    world.inquire("n0", PingPeer("friends/n2"))
    assert world.news("n0", Pong), "all else goes on"
    world.run(for_ms=HOUR_MS)
    mark = len(world.news("n0", ProblemReported))
    world.utter("n2", "n0", world.message(PROBLEM, code="w.m.xfer", comment="again"))
    assert len(world.news("n0", ProblemReported)) == mark + 1, "an error an hour is no vicious circle"


@ENVELOPES
def test_invalid_reports_change_nothing(envelope):
    world = Asking(envelope)
    before = world.group("n0")
    for body in ({}, {"code": 7}, {"code": "x" * 1000}, {"code": "e.p", "args": [0] * 100}, {"comment": "?"}):
        world.utter("n2", "n0", world.message(PROBLEM, **body))
    assert world.group("n0") == before and not world.news("n0", ProblemReported)


@ENVELOPES
def test_a_circle_on_a_connection_ends_too(envelope):
    two = Two()
    two.connect(envelope)
    alice, bob = two.one("alice"), two.one("bob")
    sent = len(two.sent)
    for number in range(100):
        packer = PACKERS[envelope]
        for message in (
            Message(type=UNKNOWN, id=f"u{number}", body={}),
            problem.problem("e.m.msg", Message(type=UNKNOWN, id="x", body={}), two.rng.randbytes),
        ):
            relationship = two.one("bob").relationship
            named = envelope == "didcomm/v2"
            two.process("alice", WebReceived(pack(relationship, message, packer, two.rng.randbytes, named=named)))
    assert two.one("alice").breaker.is_broken and len(two.sent) - sent <= 2 * (ERRORS_MAX + 1)
    assert [each.code for each in two.news("bob", ProblemReported)].count(TOO_MANY_ERRORS) == 1
    assert (alice.id, bob.id) == (two.one("alice").id, two.one("bob").id)
    two.ask("bob", SendBasicMessage(two.one("bob").id, "all else goes on"))
    assert [told.text for told in two.news("alice", BasicMessageReceived)] == ["all else goes on"]


# --- connections that nothing reaches -------------------------------------------------------------------------------


@ENVELOPES
def test_a_dial_only_peer_cannot_be_queried(envelope):
    """All of these are refused with a reason; requests of the peer are answered on its connection."""
    two = Two(bob=())
    two.connect(envelope)
    name = two.one("alice").id
    for command in (PingPeer(name), QueryFeatures(name, "*"), SendBasicMessage(name, "hello")):
        with pytest.raises(NotConnected):
            two.ask("alice", command)
    if envelope == "didcomm/v1":
        with pytest.raises(NotConnected):
            two.ask("alice", RotateDid(name))
    elif two.one("alice").relationship.rotation is None:
        two.ask("alice", RotateDid(name))
        two.ask("bob", PingPeer(two.one("bob").id))
        assert two.news("bob", Pong)
    two.ask("alice", EndConnection(name))
    assert not two.agents["alice"].connections


@ENVELOPES
def test_query_to_an_offline_peer_is_lost_harmlessly(envelope):
    two = Two()
    two.connect(envelope)
    two.down = {ALICE, BOB}
    for _ in range(3):
        two.ask("bob", PingPeer(two.one("bob").id))
    two.down = set()
    two.now += 60_000
    pongs = len(two.news("bob", Pong))
    two.ask("bob", PingPeer(two.one("bob").id))
    assert len(two.news("bob", Pong)) == pongs + 1


def test_final_message_is_unambiguous():
    """A goodbye that holds a ping is a goodbye."""
    from zerochat.group.links.relationship import pack_end

    two = Two()
    two.connect()
    bob = two.one("bob").relationship
    message = replace(ping.ping(two.rng.randbytes), from_=None)
    sent = len(two.sent)
    two.process("alice", WebReceived(pack_end(bob, message, PACKERS["didcomm/v2"], two.rng.randbytes, two.now // 1000)))
    assert two.one("alice").state == "ended" and len(two.sent) == sent
