"""A group that keeps a log, between whole agents over real sockets: terms are said, what somebody has not acknowledged
is posted and cosigned, and whoever was away finds it there while its author sleeps."""

from typing import Any

import pytest

from tests.agent import test_agent
from tests.agent.test_agent import Person, until
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.evidence.witness import entry_of, parse_entry
from zerochat.group.state import Agent, Group, Log
from zerochat.group.tlog import submission, timers
from zerochat.group.tlog.adoption import current

people = test_agent.people


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not acknowledged is overdue within seconds."""
    monkeypatch.setattr(timers, "ROUND_MS", 400)
    monkeypatch.setattr(submission, "AHEAD_MS", 540_000 - 5_000)


def group_of(person: Person) -> Group:
    (group,) = person.thread._agent.groups.values()
    return group


def log_of(person: Person) -> Log | None:
    return current(group_of(person))


def size(person: Person) -> int:
    log = log_of(person)
    return log.followed.frontier.size if log is not None else 0


@pytest.mark.slow
def test_whoever_was_away_finds_in_the_log_what_its_author_is_not_there_to_say(people: Any) -> None:
    everybody = alice, bob, carol, dora = people("alice", "bob", "carol", "dora")
    alice.client.new("friends", keys="sender-key", accountability="ledger")
    for guest in everybody[1:]:
        guest.client.subscribe()
        guest.client.join(alice.client.invite("friends").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.groups()), "joining")

    def agreed() -> bool:
        logs = [log_of(person) for person in everybody]
        return len({log and log.rules for log in logs}) == 1 and logs[0] is not None

    until(agreed, "terms")
    rules = group_of(alice).view.terms.rules

    def heard_by_them() -> bool:
        return all({one.rules for one in group_of(each).streams.values()} == {rules.digest} for each in everybody)

    until(heard_by_them, "that all hear each other by the terms")
    said = bob.client.send("friends", "heard by all")
    assert bob.client.wait("friends", said.id).complete
    dora.sleep()
    for n in range(3):
        bob.client.send("friends", f"while you were away {n}")
    until(lambda: size(bob) >= 3 and size(alice) == size(carol) == size(bob), "the log")
    until(lambda: not log_of(bob).mine, "that nothing waits")
    me = group_of(bob).me
    bob.sleep()
    dora.wake()
    until(lambda: dora.texts()[-1:] == ["while you were away 2"], "what was said")
    until(lambda: size(dora) == size(alice), "the log")
    name = group_of(dora).id

    def signed() -> int:
        return group_of(dora).streams[me].time

    with Journal.open(bob.places.journal, unlock(bob.places, None)) as journal:
        state = journal.load(Agent)
        assert state is not None
        own = state.groups[name].stream
        assert own is not None
        last = journal.signed.stream(name, me, own.alias)[-1]
        entry = entry_of("message", me, last.message)
        receipt = journal.logbook.receipt(name, rules.origin, entry.record())
        assert receipt is not None and receipt.posted_ms(entry, rules.quorum) <= last.time + rules.ack_ms
        assert journal.logbook.origins(name)[-1] == rules
    until(lambda: signed() == last.time, "the signatures")
    dora.sleep()
    with Journal.open(dora.places.journal, unlock(dora.places, None)) as journal:
        assert journal.logbook.blob(name, entry.hash) == last.message
        records = journal.logbook.entries(name, rules.origin, 0, 99)
        assert [parse_entry(record).author for record in records][-1] == me
        shown = journal.logbook.receipt(name, rules.origin, entry.record())
        assert shown is not None and shown.posted_ms(entry, rules.quorum) == receipt.posted_ms(entry, rules.quorum)
