"""A group with sender keys, between whole agents over real sockets."""

import itertools
from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, until
from tests.support.signed_agents import meet
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.agent.storage.signed_messages import StoredMessage
from zerochat.evidence.messages import parse_ack, parse_data
from zerochat.group.key_modes.sender_key import open_content
from zerochat.group.state import Agent

people = agents.people


def kept(person: Person, author: str) -> tuple[list[StoredMessage], dict[str, bytes]]:
    """An author's stream in the journal of somebody who is asleep, and who has acknowledged it."""
    with Journal.open(person.places.journal, unlock(person.places, None)) as journal:
        state = journal.load(Agent)
        assert state is not None
        (group,) = state.groups.values()
        stream = group.streams.own if author == group.me else group.streams.followed[author]
        assert stream is not None
        return list(journal.signed_messages.stream(group.id, author, stream.alias)), journal.signed_messages.acks(
            group.id, stream.alias
        )


@pytest.mark.slow
def test_a_message_is_signed_once_and_acknowledged_by_all(people: Any) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    for n in range(5):
        sent = alice.client.send_message("friends", f"number {n}")
        assert alice.client.wait_for_delivery("friends", sent.id).complete
    answer = bob.client.send_message("friends", "yes")
    assert bob.client.wait_for_delivery("friends", answer.id).complete
    me = alice.client.list_groups()[0].me
    until(lambda: carol.texts()[-1:] == ["yes"], "the answer")
    for person in (alice, bob, carol):
        person.sleep()
    own, acks = kept(alice, me)
    assert [one.before for one in own[1:]] == [one.signature for one in own[:-1]]
    assert "number 4" in str(open_content(own[-1].key, parse_data(own[-1].message)))
    assert len(acks) == 2 and all(parse_ack(ack).of == own[-1].signature for ack in acks.values())
    for reader in (bob, carol):
        theirs, _ = kept(reader, me)
        assert [one.message for one in theirs] == [one.message for one in own[-len(theirs) :]]


@pytest.mark.slow
def test_a_returning_member_gets_the_original_stream(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    first = alice.client.send_message("friends", "before")
    assert alice.client.wait_for_delivery("friends", first.id).complete
    me = alice.client.list_groups()[0].me
    bob.sleep()
    for n in range(20):
        alice.client.send_message("friends", f"while you were away {n}")
    alice.sleep()
    alice.wake()
    bob.wake()
    until(lambda: bob.texts()[-1:] == ["while you were away 19"], "all that was said")
    last = alice.client.send_message("friends", "welcome back")
    assert alice.client.wait_for_delivery("friends", last.id).complete
    alice.sleep()
    bob.sleep()
    own, acks = kept(alice, me)
    theirs, _ = kept(bob, me)
    assert theirs == own[-len(theirs) :] and len(theirs) > 1, "but for what was said before it could hear it"
    assert [parse_ack(ack).of for ack in acks.values()] == [own[-1].signature]
    assert all(one.signature == after.before for one, after in itertools.pairwise(own))


@pytest.mark.slow
def test_signed_acknowledgements_are_listed_with_a_message(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)

    def signed_for() -> bool:
        """Somebody who has just joined may hear the first words before it hears the stream."""
        sent = alice.client.send_message("friends", "in writing")
        assert alice.client.wait_for_delivery("friends", sent.id).complete
        told = alice.client.get_delivery("friends", sent.id)
        return told.signed and [(one.nick, one.signed) for one in told.members] == [("bob", True)]

    until(signed_for, "what bob has signed")
    sent = alice.client.send_message("friends", "in writing at last")
    assert alice.client.wait_for_delivery("friends", sent.id).complete
    until(lambda: alice.client.get_delivery("friends", sent.id).members[0].signed, "what bob has signed of that")
    assert alice.client.get_message_status("friends", sent.id).provenance == "own"
    until(lambda: bob.texts()[-1:] == ["in writing at last"], "the words")
    read = bob.client.get_message_status("friends", sent.id)
    assert (read.provenance, read.report.signed) == ("signed", True)
    alice.client.create_group("others", keys="pairwise-multi")
    bob.client.join_group(alice.client.create_invitation("others").url)
    until(lambda: any(g.name == "others" and g.state == "active" for g in bob.client.list_groups()), "joining")
    other = alice.client.send_message("others", "between us")
    assert alice.client.wait_for_delivery("others", other.id).complete
    told = alice.client.get_delivery("others", other.id)
    assert told.complete and not told.signed and not any(one.signed for one in told.members)
