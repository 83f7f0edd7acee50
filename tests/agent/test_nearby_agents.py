"""Whole agents that look for each other nearby, on the loopback network."""

import pytest

from tests.support import multicast
from tests.support.agents import meet, until
from zerochat.agent.api.client_protocol import AgentError
from zerochat.agent.nearby.networks import networks
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock

pytestmark = pytest.mark.usefixtures("own_port")
own_port = multicast.own_port


def switch(person, on, *groups, networks=("lo",), every=False):
    return person.client.call("set_nearby", on=on, networks=list(networks), groups=list(groups), every_network=every)


def nearby(person):
    return {(one.group, one.nick) for one in person.client.call("get_nearby").members}


def move(*people):
    """Restart them all at other addresses, which none of them can announce to another."""
    for one in people:
        one.sleep()
    for one in people:
        with Journal.open(one.places.journal, unlock(one.places, None)) as journal:
            for name in ("pair_port", "queue_port"):
                journal.meta_set(name, b"0")
        one.wake()


def test_members_meet_again_when_both_addresses_have_changed(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    move(alice, bob)
    sent = alice.client.send_message("friends", "are you here?")
    assert not alice.client.wait_for_delivery("friends", sent.id, timeout_s=2).complete
    for one in (alice, bob):
        assert switch(one, True).on
    until(lambda: "are you here?" in bob.texts(), "the message")
    found = until(lambda: alice.client.call("get_nearby").members, "her view of it")
    assert [(one.nick, one.addresses) for one in found] == [("bob", ["127.0.0.1"])]
    until(lambda: alice.client.call("get_nearby").members[0].linked, "the link")
    bob.client.send_message("friends", "yes")
    until(lambda: "yes" in alice.texts(), "the answer")


def test_only_members_of_the_chosen_groups_are_found(people):
    alice, bob, carol, dave = people("alice", "bob", "carol", "dave")
    meet(alice, bob)
    meet(alice, carol, group="others")
    for one in (bob, carol, dave):
        switch(one, True)
    switch(alice, True, "friends")
    until(lambda: nearby(alice), "bob")
    until(lambda: alice.client.call("get_nearby").heard == 3, "all three agents")
    friends, others = (group.id for group in alice.client.list_groups())
    assert nearby(alice) == {(friends, "bob")}
    assert nearby(carol) == nearby(dave) == set()
    switch(alice, True, "others")
    until(lambda: nearby(alice) == {(friends, "bob"), (others, "carol")}, "carol, too")
    until(lambda: nearby(carol) == {(others, "alice")}, "alice for carol")
    switch(alice, False, "friends", networks=())
    until(lambda: nearby(alice) == {(others, "carol")}, "bob is no longer looked for")


def test_a_removed_member_is_not_found(people):
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    for one in (alice, bob, carol):
        switch(one, True)
    until(lambda: len(nearby(alice)) == 2 == len(nearby(carol)), "all")
    for one in (alice, bob):  # two of three votes
        one.client.remove_member("friends", "carol")
    until(lambda: {nick for _, nick in nearby(alice)} == {"bob"}, "her end")


def test_the_choice_survives_a_restart_and_ends_with_off(people):
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    for one in (alice, bob):
        switch(one, True)
    alice.sleep()
    alice.wake()
    until(lambda: nearby(alice), "bob, after the restart")
    status = switch(alice, False, networks=())
    assert not status.on and not status.members and not any(one.on for one in status.networks)
    until(lambda: not nearby(bob), "that alice is not heard")


def test_what_forbids_it_is_told(people):
    (alice,) = people("alice")
    with pytest.raises(AgentError) as caught:
        switch(alice, True, networks=("no such network",))
    assert caught.value.code == "UnknownNetwork"
    with pytest.raises(AgentError) as caught:
        switch(alice, True, "no such group")
    assert caught.value.code == "UnknownGroup"
    assert not alice.client.call("get_nearby").on
    # The agents of tests listen on 127.0.0.1, so other networks learn nothing of them.
    elsewhere = [one.id for one in networks() if not one.is_loopback]
    if elsewhere:
        status = switch(alice, True, networks=elsewhere)
        assert status.on and "listens on 127.0.0.1 only" in status.why
        switch(alice, False)
    alice.places.config.write_text("[network]\nhidden = true\n")
    alice.sleep()
    alice.wake()
    with pytest.raises(AgentError) as caught:
        switch(alice, True)
    assert caught.value.code == "NearbyForbidden" and "hides its address" in str(caught.value)
