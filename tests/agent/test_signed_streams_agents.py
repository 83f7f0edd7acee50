"""A group whose keys sign, between whole agents over real sockets: said once for all, signed for, and kept."""

import itertools
from typing import Any

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import Person, until
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.agent.storage.signed_messages import Kept
from zerochat.evidence.messages import parse_ack, parse_data
from zerochat.group.key_modes.sender_key import open_content
from zerochat.group.state import Agent

people = test_agent.people


def meet(host: Person, *guests: Person) -> None:
    host.client.new("friends", keys="sender-key")
    for guest in guests:
        guest.client.subscribe()
        guest.client.join(host.client.invite("friends").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.groups()), "joining")


def kept(person: Person, author: str) -> tuple[list[Kept], dict[str, bytes]]:
    """An author's stream in the journal of somebody who is asleep, and who has acknowledged it."""
    with Journal.open(person.places.journal, unlock(person.places, None)) as journal:
        state = journal.load(Agent)
        assert state is not None
        (group,) = state.groups.values()
        stream = group.stream if author == group.me else group.streams[author]
        assert stream is not None
        return list(journal.signed.stream(group.id, author, stream.alias)), journal.signed.acks(group.id, stream.alias)


@pytest.mark.slow
def test_what_is_said_is_signed_once_and_everybody_signs_for_it(people: Any) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    for n in range(5):
        sent = alice.client.send("friends", f"number {n}")
        assert alice.client.wait("friends", sent.id).complete
    answer = bob.client.send("friends", "yes")
    assert bob.client.wait("friends", answer.id).complete
    me = alice.client.groups()[0].me
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
def test_whoever_was_away_is_brought_the_stream_as_it_was_said(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    first = alice.client.send("friends", "before")
    assert alice.client.wait("friends", first.id).complete
    me = alice.client.groups()[0].me
    bob.sleep()
    for n in range(20):
        alice.client.send("friends", f"while you were away {n}")
    alice.sleep()
    alice.wake()
    bob.wake()
    until(lambda: bob.texts()[-1:] == ["while you were away 19"], "all that was said")
    last = alice.client.send("friends", "welcome back")
    assert alice.client.wait("friends", last.id).complete
    alice.sleep()
    bob.sleep()
    own, acks = kept(alice, me)
    theirs, _ = kept(bob, me)
    assert theirs == own[-len(theirs) :] and len(theirs) > 1, "but for what was said before it could hear it"
    assert [parse_ack(ack).of for ack in acks.values()] == [own[-1].signature]
    assert all(one.signature == after.before for one, after in itertools.pairwise(own))


@pytest.mark.slow
def test_who_has_signed_what_is_told_with_a_message(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)

    def signed_for() -> bool:
        """Somebody who has just joined may hear the first words before it hears the stream."""
        sent = alice.client.send("friends", "in writing")
        assert alice.client.wait("friends", sent.id).complete
        told = alice.client.delivery("friends", sent.id)
        return told.signed and [(one.nick, one.signed) for one in told.members] == [("bob", True)]

    until(signed_for, "what bob has signed")
    sent = alice.client.send("friends", "in writing at last")
    assert alice.client.wait("friends", sent.id).complete
    until(lambda: alice.client.delivery("friends", sent.id).members[0].signed, "what bob has signed of that")
    assert alice.client.why("friends", sent.id).word == "mine"
    until(lambda: bob.texts()[-1:] == ["in writing at last"], "the words")
    read = bob.client.why("friends", sent.id)
    assert (read.word, read.report.signed) == ("signed", True)
    alice.client.new("others", keys="pairwise-multi")
    bob.client.join(alice.client.invite("others").url)
    until(lambda: any(g.name == "others" and g.state == "active" for g in bob.client.groups()), "joining")
    other = alice.client.send("others", "between us")
    assert alice.client.wait("others", other.id).complete
    told = alice.client.delivery("others", other.id)
    assert told.complete and not told.signed and not any(one.signed for one in told.members)
