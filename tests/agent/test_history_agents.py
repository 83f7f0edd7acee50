"""What newcomers get of what was said before, between whole agents over real sockets on loopback."""

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import until
from zerochat.agent.api.client import AgentError
from zerochat.presentation.history_rules import sentence
from zerochat.rpc import EarlierNews, Event

people = test_agent.people


def join(host, guest, **invitation):
    guest.client.subscribe()
    guest.client.join(host.client.invite("friends", **invitation).url)
    until(lambda: guest.client.groups() and guest.client.groups()[0].beginning.state != "fetching", "fetching it")


def told(guest):
    return sentence(guest.client.groups()[0].beginning, "friends")


def test_a_newcomer_gets_the_last_two_and_is_told_so(people):
    alice, bob, carol = people("alice", "bob", "carol")
    made = alice.client.new("friends", history="last:2", keepers=1)
    assert (made.policy.history, made.policy.keepers) == ("last:2", 1)
    for text in ("one", "two", "three", "four"):
        alice.client.send("friends", text)
    with pytest.raises(AgentError, match=r"cannot give more .* get the last 2 messages from before they came"):
        alice.client.invite("friends", history="all")

    join(alice, bob)
    until(lambda: len(bob.texts()) == 2, "the last two")
    assert bob.texts() == ["three", "four"]
    until(lambda: told(bob) == "You have the last 2 messages from before you came.", "the sentence")
    assert [one.keeper for one in bob.client.members("friends")] == [True, False]
    alice.client.send("friends", "five")
    until(lambda: bob.texts() == ["three", "four", "five"], "what is said from now on")

    assert alice.client.invite("friends", history="last:1").history == "last:1"
    join(alice, carol, history="none")
    assert told(carol) == "Your invitation gave you nothing of what was said before you came."
    alice.client.send("friends", "six")
    until(lambda: carol.texts() == ["six"], "what is said from now on")


def test_a_newcomer_gets_all_of_it_which_is_no_news(people):
    alice, bob = people("alice", "bob")
    alice.client.new("friends")
    early = [f"early {number}" for number in range(300)]
    for text in early:
        alice.client.send("friends", text)
    join(alice, bob)
    until(lambda: bob.texts() == early, "all of it")
    assert told(bob) == "This is the beginning of friends."
    alice.client.send("friends", "now")
    heard = []
    while "now" not in heard:
        news = bob.client.next_news(test_agent.DEADLINE_S)
        assert news is not None
        if isinstance(news.item, Event) and news.item.type == "message":
            heard.append(news.item.body["text"])
        elif isinstance(news.item, EarlierNews):
            heard.append(news.item.done)
    assert heard[-1] == "now" and not any(isinstance(one, str) for one in heard[:-1])
    assert True in heard and False in heard, "what was said before comes in pages, and is told so"
    again = bob.client
    again.subscribe(since=0)
    texts = []
    while "now" not in texts:
        news = again.next_news(test_agent.DEADLINE_S)
        assert news is not None
        if isinstance(news.item, Event) and news.item.type == "message":
            texts.append(news.item.body["text"])
    assert texts == ["now"]
