"""Messages on connections to other agents: expiry, acknowledgements, forwards, requests of invitations."""

import pytest
from msgspec.structs import replace

from tests.support.external_pair import ALICE, Two, invitation
from zerochat.didcomm import PACKERS
from zerochat.didcomm.did import new_peer4, resolve
from zerochat.didcomm.protocols import routing
from zerochat.didcomm.protocols.ack import EMPTY
from zerochat.didcomm.protocols.basic import basic
from zerochat.group.inputs import AcceptConnection, OfferConnection, WebReceived
from zerochat.group.links.relationship import pack
from zerochat.group.notifications import BasicMessageReceived, ProblemReported

ENVELOPES = pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])


def envelope_from_bob(two, message, envelope="didcomm/v2"):
    named = envelope == "didcomm/v2"
    return pack(two.one("bob").relationship, message, PACKERS[envelope], two.rng.randbytes, named=named)


def basic_from_bob(two, text, envelope="didcomm/v2", **headers):
    profile = "didcomm/v2" if envelope == "didcomm/v2" else "didcomm/v1"
    return replace(basic(text, two.now // 1000, two.rng.randbytes, profile), **headers)


@ENVELOPES
def test_an_expired_message_is_reported_and_not_shown(envelope):
    two = Two()
    two.connect(envelope)
    for text, expires in (("late", two.now // 1000), ("early", two.now // 1000 + 1)):
        message = basic_from_bob(two, text, envelope, expires_time=expires)
        two.process("alice", WebReceived(envelope_from_bob(two, message, envelope)))
    assert [told.text for told in two.news("alice", BasicMessageReceived)] == ["early"]
    assert [told.code for told in two.news("bob", ProblemReported)] == ["e.m.req.time"]


def test_an_expired_acknowledgement_is_dropped_without_a_report():
    two = Two()
    two.connect()
    message = replace(basic_from_bob(two, ""), type=EMPTY, ack=("x",), expires_time=1)
    two.process("alice", WebReceived(envelope_from_bob(two, message)))
    assert not two.news("bob", ProblemReported)


# --- rewrapped forwards ---------------------------------------------------------------------------------------------


def rewrapped(two, envelope, times, recipient=None, profile="didcomm/v2"):
    """The envelope in forwards to Alice, or to another `recipient`, each wrapped for Alice."""
    ours = two.one("alice").relationship.mine.did
    for _ in range(times):
        packer, document = PACKERS[profile], resolve(ours)
        next_ = recipient or (ours if profile == "didcomm/v2" else packer.their_key(document, ours).kid)
        plain = routing.forward(envelope, next_, to=None, random=two.rng.randbytes, profile=profile)
        envelope = packer.anoncrypt(plain, recipient=packer.their_key(document, ours), random=two.rng.randbytes)
    return envelope


@ENVELOPES
@pytest.mark.parametrize(("times", "heard"), [(1, ["x"]), (5, ["x"]), (6, [])])
def test_forwards_addressed_to_ourselves_are_unwrapped(envelope, times, heard):
    two = Two()
    two.connect(envelope)
    inner = envelope_from_bob(two, basic_from_bob(two, "x", envelope), envelope)
    two.process("alice", WebReceived(rewrapped(two, inner, times, profile=envelope)))
    assert [told.text for told in two.news("alice", BasicMessageReceived)] == heard


def test_the_first_message_may_come_in_a_forward():
    two = Two()
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600))
    two.at[ALICE] = "bob"
    two.ask("bob", AcceptConnection(invitation(offered.url), "alice"))
    two.at[ALICE] = "alice"
    two.process("alice", WebReceived(rewrapped(two, two.sent[0], 1)))
    assert two.one("alice").state == "established"


def test_a_forward_does_not_tell_which_connections_an_agent_has():
    """One to another recipient is refused, and so is mail for another connection of ours in a forward to this one."""
    two = Two()
    two.connect()
    inner = envelope_from_bob(two, basic_from_bob(two, "x"))
    stranger = new_peer4(two.rng.randbytes, []).did
    before = two.agents["alice"]
    two.process("alice", WebReceived(rewrapped(two, inner, 1, recipient=stranger)))
    offered = two.ask("alice", OfferConnection("didcomm/v2", "Alice", 3600)).connection
    other = before.connections | {offered: two.agents["alice"].connections[offered]}
    two.agents["alice"] = replace(before, connections=other)
    outer = replace(two.one("bob").relationship, theirs=other[offered].relationship.mine.did)
    plain = routing.forward(inner, outer.theirs, to=None, random=two.rng.randbytes)
    packer = PACKERS["didcomm/v2"]
    key = packer.their_key(resolve(outer.theirs), outer.theirs)
    two.process("alice", WebReceived(packer.anoncrypt(plain, recipient=key, random=two.rng.randbytes)))
    assert not two.news("alice", BasicMessageReceived)
