"""Messages on connections to other agents: expiry, acknowledgements, forwards, requests of invitations."""

import pytest
from msgspec.structs import replace

from tests.support.external_pair import Two
from zerochat.didcomm import PACKERS
from zerochat.didcomm.protocols.ack import EMPTY
from zerochat.didcomm.protocols.basic import basic
from zerochat.group.inputs import WebReceived
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
