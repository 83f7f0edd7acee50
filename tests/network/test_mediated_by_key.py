"""Whole agents and a real mediator with mediation by key: DIDComm v1 connections of an agent without an address."""

import contextlib

import pytest

from tests.support.agents import until
from tests.support.mediated_agents import MediatorProcess
from tests.support.web_person import Person
from zerochat.rpc import ConnectionMessageNotification, PongNotification


@pytest.fixture
def mediator(tmp_path):
    made = MediatorProcess(tmp_path)
    yield made
    made.stop()


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


def connections(person):
    return [one for one in person.client.call("list_connections") if one.mediator is None]


def mediated(person, mediator):
    person.client.call("open_connection", invitation=mediator.link_v1, mediate=True)
    until(lambda: [one.mediator for one in person.client.call("list_connections")] == ["granted"], "a grant")


@pytest.mark.parametrize("listens", [True, False], ids=["the peer listens", "both behind the mediator"])
def test_an_agent_without_an_address_is_reached_over_its_mediator(people, mediator, listens):
    """It invites, is called, answers, and gets on a new WebSocket what came while it was away."""
    alice, bob = people(alice=False, bob=listens)
    mediated(alice, mediator)
    if not listens:
        mediated(bob, mediator)
    offer = alice.client.call("offer_connection", envelope="didcomm/v1", expires_s=600)
    bob.client.call("open_connection", invitation=offer.url)
    until(lambda: [one.state for who in (alice, bob) for one in connections(who)] == ["established"] * 2, "connecting")
    [to_alice], [to_bob] = connections(bob), connections(alice)

    bob.client.call("send_connection_message", peer=to_alice.id, text="over the mediator")
    assert alice.hears(ConnectionMessageNotification).text == "over the mediator"
    asked = bob.client.call("ping_peer", peer=to_alice.id)
    assert bob.hears(PongNotification).thread == asked.thread
    alice.client.call("send_connection_message", peer=to_bob.id, text="ünd zurück")
    assert bob.hears(ConnectionMessageNotification).text == "ünd zurück"

    alice.sleep()
    bob.client.call("send_connection_message", peer=to_alice.id, text="while you slept")
    bob.client.call("send_connection_message", peer=to_alice.id, text="and again")
    alice.wake()
    until(lambda: texts(alice, to_bob) == ["over the mediator", "ünd zurück", "while you slept", "and again"], "mail")
    assert mediator.ended()["kept"] >= 5


def texts(person, one):
    return [message.text for message in person.client.call("list_connection_messages", peer=one.id)]
