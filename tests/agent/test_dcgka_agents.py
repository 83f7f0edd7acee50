"""A group whose keys heal, between whole agents over real sockets."""

from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, until
from zerochat.agent.api.handlers import groups
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.group.key_modes import MODES
from zerochat.group.state import Agent, Group

people = agents.people


def meet(host: Person, *guests: Person) -> None:
    host.client.create_group("friends", keys="dcgka")
    for guest in guests:
        guest.client.subscribe()
        guest.client.join_group(host.client.create_invitation("friends").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")


def on_disk(person: Person) -> Group:
    """The group in the journal of an agent that is not running."""
    with Journal.open(person.places.journal, unlock(person.places, None)) as journal:
        state = journal.load(Agent)
        assert state is not None
        (group,) = state.groups.values()
        return group


@pytest.mark.slow
def test_posts_arrive_and_keys_survive_a_restart(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "OFFERED", tuple(MODES))
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    for number in range(3):
        for person in (alice, bob):
            sent = person.client.send_message("friends", f"number {number}")
            assert person.client.wait_for_delivery("friends", sent.id).complete
    for person in (alice, bob):
        person.sleep()
    for person, other in ((alice, bob), (bob, alice)):
        ours, theirs = on_disk(person).dcgka.keys, on_disk(other).dcgka.keys
        assert ours.epoch.event and not on_disk(person).dcgka.early
        (epoch,) = [one for one in theirs.receiving[ours.me] if one.event == ours.epoch.event]
        assert (epoch.next, epoch.chain_key) == (ours.epoch.sent, ours.epoch.chain_key)
    for person in (alice, bob):
        person.wake()
    sent = alice.client.send_message("friends", "good morning")
    assert alice.client.wait_for_delivery("friends", sent.id).complete
    assert bob.texts()[-1] == "good morning"
