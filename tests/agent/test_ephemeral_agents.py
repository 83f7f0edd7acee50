"""Typing notices and read receipts between whole agents: opt-in, mutual, never stored."""

import time
from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, meet, until
from tests.support.annotation_helpers import message
from zerochat.agent.api.handlers.context import RATE_KEYS_MAX, RATE_WINDOW_S, TYPING_SENT_S, RateLimit
from zerochat.group.inputs import CommandInput, SendReadReceipt, SendTyping
from zerochat.presentation import delivery
from zerochat.rpc import Event, TypingNotification

people = agents.people
ON = ("share.typing", "share.read_receipts")


def share(person: Person, *names: str, on: bool = True) -> None:
    """As `/set` does it."""
    for name in names or ON:
        person.client.call("change_setting", name=name, value="on" if on else "off")
    wanted = {name.partition(".")[2].partition("_")[0] for name in names or ON}
    until(lambda: (wanted <= set(person.client.call("get_status").shares)) == on, "the setting")


def told(person: Person, method: str, **params: Any) -> int:
    members: int = person.client.call(method, group="friends", **params).members
    return members


def said(person: Person, text: str) -> Event:
    """A message that everybody has and is known to have."""
    sent = person.client.send_message("friends", text)
    assert person.client.wait_for_delivery("friends", sent.id).complete
    found: Event = until(lambda: message(person, text), "the message")
    return found


def readers(person: Person, event: Event) -> list[str]:
    report = person.client.call("get_delivery", group="friends", id=event.id)
    return [one.nick for one in report.members if one.read]


def typing_until(person: Person, text: str) -> list[str]:
    """Who was told to be typing, up to this message."""
    found = []
    while True:
        news = person.client.next_notification(agents.DEADLINE_S)
        assert news is not None
        if isinstance(news.params, TypingNotification):
            found.append(news.params.nick)
        if isinstance(news.params, Event) and news.params.body.get("text") == text:
            return found


def test_a_disabled_indicator_never_reaches_the_core(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    share(bob)
    assert alice.client.call("get_status").shares == []
    asked = []
    step = alice.thread.loop._step

    def noted(stimulus: Any) -> Any:
        if isinstance(stimulus, CommandInput):
            asked.append(type(stimulus.command))
        return step(stimulus)

    alice.thread.loop._step = noted
    bob.client.subscribe(["friends"])
    event = said(alice, "one")
    assert told(alice, "send_typing") == told(alice, "send_read_receipt", upto=event.lamport) == 0
    said(alice, "two")
    assert typing_until(bob, "two") == [] and readers(bob, event) == []
    assert not {SendTyping, SendReadReceipt} & set(asked) and asked


def test_indicators_are_sent_and_received_only_if_enabled(people: Any) -> None:
    alice, bob, carol = people("alice", "bob", "carol")
    meet(alice, bob, carol)
    share(alice)
    share(bob)
    for person in (alice, carol):
        person.client.subscribe(["friends"])
    first, second = said(alice, "one"), said(alice, "two")
    assert told(bob, "send_typing") == 2 and told(bob, "send_read_receipt", upto=first.lamport) == 2
    until(lambda: readers(alice, first) == ["bob"], "the receipt")
    assert readers(alice, second) == [] and readers(carol, first) == []
    said(bob, "here")
    assert typing_until(alice, "here") == ["bob"] and typing_until(carol, "here") == []
    fate = alice.client.call("get_message_status", group="friends", id=first.id)
    assert "Read by bob, according to their clients." in delivery.status_sentences(fate, {}, str, str)

    share(alice, on=False)  # whoever does not tell it any more is not shown it any more
    assert readers(alice, first) == []


def test_frequent_indicators_are_limited_and_expire(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    share(alice)
    share(bob)
    event = said(alice, "one")
    assert [told(bob, "send_typing") for _ in range(3)] == [1, 0, 0]
    assert [told(bob, "send_read_receipt", upto=event.lamport) for _ in range(3)] == [1, 0, 0]
    until(lambda: readers(alice, event) == ["bob"], "the receipt")
    assert [one.type for one in alice.client.get_history("friends", limit=500).events][-1] == "message"
    alice.sleep()
    alice.wake()
    assert readers(alice, event) == ["bob"]


def test_a_bot_sends_neither_indicator(people: Any) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    share(alice)
    share(bob)
    event = said(alice, "one")
    bob.client.call("announce_bot", group="friends", bot=True, commands=[])
    assert told(bob, "send_typing") == told(bob, "send_read_receipt", upto=event.lamport) == 0


@pytest.mark.slow
@pytest.mark.parametrize("every", [TYPING_SENT_S, 1.0])
def test_the_pace_is_kept_and_bounded(every: float) -> None:
    pace, now = RateLimit(), time.monotonic()
    assert pace.allows(every, now, "typing", "a") and pace.allows(every, now, "typing", "b")
    assert not pace.allows(every, now + every - 0.01, "typing", "a")
    assert pace.allows(every, now + every, "typing", "a")
    allowed = sum(pace.allows(every, now + every, "heard", str(number)) for number in range(2 * RATE_KEYS_MAX))
    assert allowed < RATE_KEYS_MAX and len(pace._last) == RATE_KEYS_MAX
    assert pace.allows(every, now + every + RATE_WINDOW_S, "heard", "again")
    assert len(pace._last) < RATE_KEYS_MAX
