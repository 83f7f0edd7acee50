"""Typing notices and read receipts between whole agents on loopback: off unless asked, both ways, and never kept."""

import time
from typing import Any

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import Person, meet, until
from tests.agent.test_annotations_agents import message
from zerochat.agent.api.ephemeral_rate import KEYS_MAX, REMEMBERED_S, TYPING_SENT_S, Pace
from zerochat.group.inputs import Ask, ShareRead, ShareTyping
from zerochat.presentation import delivery
from zerochat.rpc import Event, TypingNews

people = test_agent.people
ON = ("share.typing", "share.read_receipts")


def share(person: Person, *names: str, on: bool = True) -> None:
    """As `/set` does it."""
    for name in names or ON:
        person.client.call("set", name=name, value="on" if on else "off")
    wanted = {name.partition(".")[2].partition("_")[0] for name in names or ON}
    until(lambda: (wanted <= set(person.client.call("status").shares)) == on, "the setting")


def told(person: Person, method: str, **params: Any) -> int:
    members: int = person.client.call(method, group="friends", **params).members
    return members


def said(person: Person, text: str) -> Event:
    """A message that everybody has and is known to have."""
    sent = person.client.send("friends", text)
    assert person.client.wait("friends", sent.id).complete
    found: Event = until(lambda: message(person, text), "the message")
    return found


def readers(person: Person, event: Event) -> list[str]:
    report = person.client.call("delivery", group="friends", id=event.id)
    return [one.nick for one in report.members if one.read]


def typing_until(person: Person, text: str) -> list[str]:
    """Who was told to be typing, up to this message."""
    found = []
    while True:
        news = person.client.next_news(test_agent.DEADLINE_S)
        assert news is not None
        if isinstance(news.item, TypingNews):
            found.append(news.item.nick)
        if isinstance(news.item, Event) and news.item.body.get("text") == text:
            return found


def test_off_means_that_the_core_is_not_even_asked(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    share(bob)
    assert alice.client.call("status").shares == []
    asked = []
    step = alice.thread._step

    def noted(stimulus: Any) -> Any:
        if isinstance(stimulus, Ask):
            asked.append(type(stimulus.command))
        return step(stimulus)

    alice.thread._step = noted
    bob.client.subscribe(["friends"])
    event = said(alice, "one")
    assert told(alice, "typing") == told(alice, "read", upto=event.lamport) == 0
    said(alice, "two")
    assert typing_until(bob, "two") == [] and readers(bob, event) == []
    assert not {ShareTyping, ShareRead} & set(asked) and asked


def test_who_wants_it_tells_and_is_told(people: Any) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    share(alice)
    share(bob)
    for person in (alice, carol):
        person.client.subscribe(["friends"])
    first, second = said(alice, "one"), said(alice, "two")
    assert told(bob, "typing") == 2 and told(bob, "read", upto=first.lamport) == 2
    until(lambda: readers(alice, first) == ["bob"], "the receipt")
    assert readers(alice, second) == [] and readers(carol, first) == []
    said(bob, "here")
    assert typing_until(alice, "here") == ["bob"] and typing_until(carol, "here") == []
    fate = alice.client.call("why", group="friends", id=first.id)
    assert "Read by bob, as it says." in delivery.sentences(fate, {}, str, str)

    share(alice, on=False)  # whoever does not tell it any more is not shown it any more
    assert readers(alice, first) == []


def test_what_is_asked_too_often_is_told_once_and_survives_no_more_than_it_should(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    share(alice)
    share(bob)
    event = said(alice, "one")
    assert [told(bob, "typing") for _ in range(3)] == [1, 0, 0]
    assert [told(bob, "read", upto=event.lamport) for _ in range(3)] == [1, 0, 0]
    until(lambda: readers(alice, event) == ["bob"], "the receipt")
    assert [one.type for one in alice.client.history("friends", limit=500).events][-1] == "message"
    alice.sleep()
    alice.wake()
    assert readers(alice, event) == ["bob"]


def test_a_bot_tells_neither(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    share(alice)
    share(bob)
    event = said(alice, "one")
    bob.client.call("announce", group="friends", bot=True, commands=[])
    assert told(bob, "typing") == told(bob, "read", upto=event.lamport) == 0


@pytest.mark.slow
@pytest.mark.parametrize("every", [TYPING_SENT_S, 1.0])
def test_the_pace_is_kept_and_bounded(every: float) -> None:
    pace, now = Pace(), time.monotonic()
    assert pace.allows(every, now, "typing", "a") and pace.allows(every, now, "typing", "b")
    assert not pace.allows(every, now + every - 0.01, "typing", "a")
    assert pace.allows(every, now + every, "typing", "a")
    allowed = sum(pace.allows(every, now + every, "heard", str(number)) for number in range(2 * KEYS_MAX))
    assert allowed < KEYS_MAX and len(pace._last) == KEYS_MAX
    assert pace.allows(every, now + every + REMEMBERED_S, "heard", "again")
    assert len(pace._last) < KEYS_MAX
