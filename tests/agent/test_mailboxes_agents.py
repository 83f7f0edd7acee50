"""A removed member, over real sockets: the mailboxes that it knows are given up, and the others lose no mail."""

import json
import os
from urllib.request import Request, urlopen

import pytest

from tests.support import mediated_agents
from tests.support.agents import until
from zerochat.crypto.encoding import did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.did import resolve
from zerochat.didcomm.layers import MediaType
from zerochat.didcomm.protocols import routing
from zerochat.didcomm.service import Route
from zerochat.group.links import mailboxes, mediator_mail

mediator, people = mediated_agents.mediator, mediated_agents.people
FOREIGN = did_key(ed25519_public(b"\x01" * 32))


def group_of(person):
    (group,) = person.thread.loop.agent.groups.values()
    return group


def known_route(person, other):
    """Where a member posts to another one that it cannot dial."""
    (route,) = mediator_mail.reach_of_member(group_of(person), group_of(other).me).routes
    return route


def has_receipt(route):
    """Post an envelope to a mailbox by hand, and return whether the mediator signs that it stores it."""
    *_, key, box = route.routing_keys
    letter = json.dumps({"protected": os.urandom(16).hex()}).encode()
    inner = routing.wrap(letter, Route(route.uri, (box,), (), "final"), FOREIGN, resolve=resolve, random=os.urandom)
    way = Route(route.uri, (key,), (), "final")
    envelope = routing.wrap(inner, way, box, resolve=resolve, random=os.urandom, wants_receipt=True)
    with urlopen(Request(route.uri, envelope, {"Content-Type": MediaType.ENCRYPTED})) as answer:
        assert answer.status in (200, 202)
        return bool(answer.read())


@pytest.mark.slow
def test_a_removed_member_can_neither_fill_nor_probe_a_mailbox(people, mediator, monkeypatch):
    monkeypatch.setattr(mailboxes, "DELAY_MS", 500)
    monkeypatch.setattr(mailboxes, "GRACE_MS", 5_000)
    alice, bob, carol = people
    old, said = known_route(carol, bob), []

    def say():
        for person in (alice, bob):
            said.append(f"{person.name} says {len(said)}")
            person.client.send_message("friends", said[-1])

    alice.client.remove_member("friends", "carol")
    say()
    assert group_of(bob).links.mailbox.number == 0, "one vote of the two that it takes"
    bob.client.remove_member("friends", "carol")
    until(lambda: "carol" not in alice.reaches() and "carol" not in bob.reaches(), "the removal")
    while any(group_of(person).links.mailbox.number == 0 for person in (alice, bob)):
        say()
    assert has_receipt(old)
    while any(group_of(person).links.mailbox.grace_until for person in (alice, bob)):
        say()
    until(lambda: not has_receipt(old), "the end of its registration")
    assert known_route(alice, bob) != old and known_route(carol, bob) == old
    say()
    for person in (alice, bob):
        until(lambda person=person: set(said) <= set(person.texts()), f"delivery to {person.name}", 60)
    assert mediator.ended()["dropped.unknown"]
    mediator.start()
