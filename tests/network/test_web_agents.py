"""Whole agents with an HTTP listener: short links, and connections in both envelope formats."""

import contextlib

import pytest

from tests.support.agents import until
from tests.support.web_person import Person
from zerochat.agent.network.web import fetch_invitation
from zerochat.agent.network.web_adapter import WebAdapter
from zerochat.agent.settings.reader import Settings
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.invitation import URL_PREFIX
from zerochat.didcomm.protocols.oob_read import read_invitation
from zerochat.rpc import ConnectionMessageNotification, PongNotification


@pytest.fixture
def people(tmp_path):
    awake = []

    def make(**web):
        awake.extend(Person(tmp_path, name, web=listens) for name, listens in web.items())
        return awake

    yield make
    for person in awake:
        with contextlib.suppress(Exception):
            person.sleep()


@pytest.mark.parametrize("envelope", ["didcomm/v2", "didcomm/v1"])
@pytest.mark.parametrize("listens", [True, False], ids=["both listen", "one listens"])
def test_two_agents_connect_over_http_and_talk(people, envelope, listens):
    alice, bob = people(alice=True, bob=listens)
    offer = alice.client.call("offer_connection", envelope=envelope, expires_s=600)
    found = fetch_invitation(offer.short).result(20)
    assert read_invitation(found) == read_invitation(offer.url), "the short link leads to the very same"
    bob.client.call("open_connection", invitation=found)
    until(lambda: alice.connection().state == bob.connection().state == "established", "connecting")
    asked = bob.client.call("ping_peer", peer=bob.connection().id)
    pong = bob.hears(PongNotification)
    while pong.thread != asked.thread:  # the connection itself began with one
        pong = bob.hears(PongNotification)
    assert pong.channel == "web" and pong.envelope.startswith(envelope)
    bob.client.call("send_connection_message", peer=bob.connection().id, text="hello over HTTP")
    assert alice.hears(ConnectionMessageNotification).text == "hello over HTTP"
    alice.sleep()
    alice.wake()
    (letter,) = alice.client.call("list_connection_messages", peer=alice.connection().id)
    assert (letter.text, letter.mine) == ("hello over HTTP", False), "kept over a restart"


def test_a_group_is_joined_by_a_short_link(people):
    alice, bob = people(alice=True, bob=False)
    alice.client.create_group("friends", envelope="didcomm/v1")
    invitation = alice.client.create_invitation("friends")
    assert invitation.short.startswith("http://127.0.0.1:") and len(invitation.short) < 80
    found = fetch_invitation(invitation.short).result(20)
    bob.client.join_group(URL_PREFIX + b64url(found.encode()))
    until(lambda: any(group.state == "active" for group in bob.client.list_groups()), "joining")
    sent = bob.client.send_message("friends", "in RFC 0019 envelopes")
    assert bob.client.wait_for_delivery("friends", sent.id).complete
    assert bob.client.list_groups()[0].envelope == "didcomm/v1"


def test_a_hidden_agent_names_only_the_configured_uri():
    for public, named in ((None, ()), ("https://chat.example.org", ("https://chat.example.org",))):
        with WebAdapter(Settings(web="127.0.0.1:0", web_public=public), wake=lambda: None) as postman:
            assert postman.start(hidden=True) == postman.uris == named
            assert bool(postman.publish_short_link("https://x.example/?_oob=e30", 2**40)) == bool(named)
