"""Tail with a consumer: how it ends, waits for a busy consumer, and reports what is no event."""

import json
import os
from typing import Any

import pytest
from msgspec.structs import asdict, replace

from tests.support import cli_harness
from tests.support.agents import meet, people, until
from tests.support.cli_harness import ALICE, BOB, HIKERS, event, of, process
from zerochat.agent.api import client
from zerochat.agent.api.client_connection import NoAgent
from zerochat.agent.api.subscriptions.consumers import ConsumerBusy, NeverSent
from zerochat.cli import durable_tail, main
from zerochat.rpc import AcknowledgeResult, Author, Item, Subscribed, WarningNotification

agent, run, home = cli_harness.agent, cli_harness.run, cli_harness.home
__all__ = ["people"]

TAIL = "tail hikers --consumer alerts"
REMOVED = replace(HIKERS, state="left", removed_by=Author(BOB, "Bob"))


def note(seq: int, type: str, **body: object) -> Item:
    return Item(seq=seq, type=type, group="GROUPID", id=f"h{seq}", body=body, received_at="2026-07-01T12:04:01.000Z")


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable_tail, "DRAIN_S", 0.05)
    monkeypatch.setattr(durable_tail, "BUSY_S_MAX", 0.2)


def consumer(agent: Any, *sent: tuple[str, Any], **answers: Any) -> Any:
    """An agent that sends this to each subscriber, and then reports that Bob has removed this profile."""

    def subscribe(_: object) -> Subscribed:
        for method, params in sent:
            served.server.notify(served.subscribers, method, params)
        return Subscribed()

    acknowledge = lambda given: AcknowledgeResult(given.consumer, given.seq)  # noqa: E731
    groups = lambda _: [REMOVED]  # noqa: E731
    served = agent(**{"subscribe": subscribe, "acknowledge": acknowledge, "list_groups": groups, **answers})
    return served


def test_a_removal_ends_it(run: Any, agent: Any) -> None:
    message = Item(**asdict(event(1)))
    removal = note(2, "removed", by=BOB, nick="Bob", voters=[])
    served = consumer(agent, ("item", message), ("item", removal))
    states = iter([HIKERS])
    served.answers["list_groups"] = lambda _: [next(states, REMOVED)]
    code, out, err = run(TAIL)
    assert (code, out) == (8, "2026-07-01 12:04  bob: message 1\n") and "Bob removed you" in err
    assert [given.seq for given in of(served, "acknowledge")] == [2]


def test_it_ends_where_the_profile_is_no_member(run: Any, agent: Any) -> None:
    consumer(agent)
    assert run(TAIL)[0] == 8


@pytest.mark.parametrize("words", [["--consumer", "alerts"], ["-n", "0"]])
def test_leaving_ends_it(people: Any, monkeypatch: Any, capsys: Any, words: list[str]) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    monkeypatch.setenv("ZEROCHAT_HOME", str(alice.places.config.parent))
    alice.client.leave_group("friends")
    assert main(["--profile", "alice", "tail", "friends", *words]) == 8
    assert "You have left friends." in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--consumer", "alerts"], ["--since", "0"]])
def test_leaving_ends_a_running_one(people: Any, words: list[str]) -> None:
    alice, bob = people("alice", "bob")
    meet(alice, bob)
    environment = {**os.environ, "ZEROCHAT_HOME": str(alice.places.config.parent), "ZEROCHAT_PROFILE": "alice"}
    with process("tail", "friends", "--format", "json", *words, env=environment) as tail:
        assert tail.stdout is not None and tail.stderr is not None
        if "--since" in words:
            assert tail.stdout.readline()
        else:
            until(lambda: any(one.connected for one in alice.client.list_consumers()), "the subscription")
        alice.client.leave_group("friends")
        assert tail.wait(20) == 8 and b"You have left friends." in tail.stderr.read()
        assert b'"member_left"' in tail.stdout.read()


def test_a_busy_consumer_is_waited_for_and_then_refused(run: Any, agent: Any) -> None:
    tries = 0

    def busy(_: object) -> Subscribed:
        nonlocal tries
        tries += 1
        if tries < 3 or waits:
            raise ConsumerBusy(name="alerts")
        return Subscribed()

    waits = False
    consumer(agent, subscribe=busy)
    code, _, err = run(TAIL)
    assert code == 8 and err.count("Another program uses the consumer alerts; waiting") == 1
    waits = True
    code, _, err = run(TAIL)
    assert code == 1 and err.count("waiting") == 1 and "Stop it" in err.splitlines()[-1]
    code, _, err = run(f"{TAIL} --format json")
    assert code == 1 and json.loads(err.splitlines()[-1])["error"]["code"] == "ConsumerBusy"


SENT = [
    ("warning", WarningNotification(group="GROUPID", member=BOB, nick="Bob", text="odd\x1b[2J")),
    ("item", note(1, "gap", author=BOB, nick="Bob", after=3, upto=4, state="asked")),
    ("item", note(2, "gap_filled", author=BOB, nick="Bob", after=3, upto=4, state="filled")),
    ("item", note(3, "fork", author=BOB, nick="Bob", position=7)),
    ("item", note(4, "join_request", member=ALICE, nick="dave", role="writer", state="asked")),
    ("item", note(5, "dropped", from_seq=1, to_seq=9, count=9)),
    ("item", note(6, "of the future", x=1)),
    ("item", note(7, "fork", x=1)),
]


def test_warnings_and_gaps_are_reported(run: Any, agent: Any) -> None:
    consumer(agent, *SENT)
    code, out, err = run(TAIL)
    assert (code, out) == (8, "") and "\x1b" not in err
    said = err.splitlines()
    assert said[0].startswith("Warning: odd␛") and "is missing; requesting it" in said[1] and "now here" in said[2]
    assert "equivocation" in said[3] and "dave asks to join" in said[4] and said[5].startswith("9 notifications")
    assert len(said) == 7, "and the end"
    code, out, err = run(f"{TAIL} --format json")
    assert [json.loads(line)["seq"] for line in out.splitlines()] == [1, 2, 3, 4, 5, 6, 7]
    assert "requesting" not in err and "Warning: odd" in err


def test_items_that_a_new_agent_has_not_sent_yet_are_printed_again(run: Any, agent: Any) -> None:
    def never_sent(given: Any) -> None:
        raise NeverSent(name="alerts", seq=given.seq)

    served = consumer(agent, ("item", Item(**asdict(event(1)))), acknowledge=never_sent)
    assert run(TAIL)[0] == 8 and of(served, "acknowledge")


def test_a_restart_of_the_agent_is_waited_for(run: Any, agent: Any, monkeypatch: Any) -> None:
    """No temporary agent takes its place, which would keep it from starting."""
    first = consumer(agent)
    first.answers["subscribe"] = lambda _: first.end() or Subscribed()
    tries = iter(range(3))

    def connect(*given: Any) -> Any:
        if (number := next(tries)) == 1:
            first.stop()
            raise NoAgent(profile="default")
        if number == 2:
            consumer(agent)
        return client.connect(*given)

    monkeypatch.setattr(durable_tail, "connect", connect)
    code, _, err = run(TAIL)
    assert (code, err.count("Connecting again.")) == (8, 1), err
