"""History of new members, between whole agents over real sockets on loopback."""

import pytest

from tests.support import agents
from tests.support.agents import until
from tests.support.joining_agents import join
from zerochat.agent.api.client_protocol import AgentError
from zerochat.presentation.history_rules import start_sentence
from zerochat.rpc import BackfillNotification, Event

people = agents.people


def told(guest):
    return start_sentence(guest.client.list_groups()[0].history_start, "friends")


def test_a_new_member_gets_the_last_two_and_a_notice(people):
    alice, bob, carol = people("alice", "bob", "carol")
    made = alice.client.create_group("friends", history="last:2", keepers=1)
    assert (made.policy.history, made.policy.keepers) == ("last:2", 1)
    for text in ("one", "two", "three", "four"):
        alice.client.send_message("friends", text)
    with pytest.raises(AgentError, match=r"cannot give more .* get the last 2 messages before they joined"):
        alice.client.create_invitation("friends", history="all")

    join(alice, bob)
    until(lambda: len(bob.texts()) == 2, "the last two")
    assert bob.texts() == ["three", "four"]
    until(lambda: told(bob) == "You have the last 2 messages before you joined.", "the sentence")
    assert [one.keeps_history for one in bob.client.list_members("friends")] == [True, False]
    alice.client.send_message("friends", "five")
    until(lambda: bob.texts() == ["three", "four", "five"], "what is said from now on")

    assert alice.client.create_invitation("friends", history="last:1").history == "last:1"
    join(alice, carol, history="none")
    assert told(carol) == "Your invitation does not include earlier messages."
    alice.client.send_message("friends", "six")
    until(lambda: carol.texts() == ["six"], "what is said from now on")


@pytest.mark.slow
def test_a_new_member_gets_the_whole_history_unnotified(people):
    alice, bob = people("alice", "bob")
    alice.client.create_group("friends")
    early = [f"early {number}" for number in range(300)]
    for text in early:
        alice.client.send_message("friends", text)
    join(alice, bob)
    until(lambda: bob.texts() == early, "all of it")
    assert told(bob) == "This is the beginning of friends."
    alice.client.send_message("friends", "now")
    heard = []
    while "now" not in heard:
        news = bob.client.next_notification(agents.DEADLINE_S)
        assert news is not None
        if isinstance(news.params, Event) and news.params.type == "message":
            heard.append(news.params.body["text"])
        elif isinstance(news.params, BackfillNotification):
            heard.append(news.params.done)
    assert heard[-1] == "now" and not any(isinstance(one, str) for one in heard[:-1])
    assert True in heard and False in heard, "what was said before comes in pages, and is told so"
    again = bob.client
    again.subscribe(since=0)
    texts = []
    while "now" not in texts:
        news = again.next_notification(agents.DEADLINE_S)
        assert news is not None
        if isinstance(news.params, Event) and news.params.type == "message":
            texts.append(news.params.body["text"])
    assert texts == ["now"]
