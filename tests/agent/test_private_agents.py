"""Private conversations between whole agents over real sockets."""

from tests.support.agents import meet, people, until

__all__ = ["people"]


def private(person):
    return [one for one in person.client.list_groups() if one.private is not None]


def test_alice_writes_to_bob_in_private_and_he_joins(people):
    alice, bob = people("Alice", "Bob")
    meet(alice, bob)
    made = alice.client.open_conversation("Bob", "friends")
    assert made.name == "Bob" and made.private.state == "waiting"
    sent = alice.client.send_message("Bob", "between us")
    report = alice.client.wait_for_delivery("Bob", sent.id, timeout_s=0.1)
    assert (report.delivered, report.of, report.complete) == (0, 1, False), "waiting is not success"
    assert [one.nick for one in report.members] == ["Bob"]

    (invitation,) = until(lambda: bob.client.list_groups()[0].private_invitations, "the invitation")
    assert invitation.nick == "Alice" and not private(bob)
    bob.client.answer_private_invitation(invitation.group, invitation.did, True)
    assert alice.client.wait_for_delivery("Bob", sent.id, timeout_s=30).complete
    assert bob.texts("Alice") == ["between us"]
    assert not any(event.late for event in bob.client.get_history("Alice").events)
    assert private(alice)[0].private.state == private(bob)[0].private.state == "joined"
    assert bob.client.open_conversation("Alice").id == made.id
    bob.client.send_message(made.id, "yes")
    until(lambda: alice.texts("Bob") == ["between us", "yes"], "the answer")


def test_two_that_begin_at_once_keep_one_conversation(people):
    alice, bob = people("Alice", "Bob")
    meet(alice, bob)
    bob.sleep()
    mine = alice.client.open_conversation("Bob", "friends")
    alice.client.send_message(mine.id, "from Alice")
    alice.sleep()
    bob.wake()
    theirs = bob.client.open_conversation("Alice", "friends")
    bob.client.send_message(theirs.id, "from Bob")
    alice.wake()
    until(lambda: [one.id for one in private(alice)] == [one.id for one in private(bob)], "one conversation")
    both = {"from Alice", "from Bob"}
    until(lambda: set(alice.texts("Bob")) == set(bob.texts("Alice")) == both, "both messages")
    (left,) = private(alice)
    assert left.id == min(mine.id, theirs.id) and left.private.state == "joined"
