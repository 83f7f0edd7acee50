"""A group with a transparency log between whole agents: overdue messages are posted and cosigned."""

from typing import Any

import pytest

from tests.support import agents
from tests.support.agents import Person, until
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.profiles import unlock
from zerochat.evidence.witness import entry_of, parse_entry
from zerochat.group.state import Agent, Group, TransparencyLog
from zerochat.group.tlog import submission, timers
from zerochat.group.tlog.adoption import current_tlog

people = agents.people


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not acknowledged is overdue within seconds."""
    monkeypatch.setattr(timers, "ROUND_MS", 400)
    monkeypatch.setattr(submission, "SUBMIT_EARLY_MS", 540_000 - 5_000)


def group_of(person: Person) -> Group:
    (group,) = person.thread.loop.agent.groups.values()
    return group


def log_of(person: Person) -> TransparencyLog | None:
    return current_tlog(group_of(person))


def size(person: Person) -> int:
    log = log_of(person)
    return log.followed.frontier.size if log is not None else 0


@pytest.mark.slow
def test_a_returning_member_finds_overdue_messages_in_the_tlog(people: Any) -> None:
    everybody = alice, bob, carol, dora = people("alice", "bob", "carol", "dora")
    alice.client.create_group("friends", keys="sender-key", accountability="tlog")
    for guest in everybody[1:]:
        guest.client.subscribe()
        guest.client.join_group(alice.client.create_invitation("friends").url)
        until(lambda guest=guest: any(g.state == "active" for g in guest.client.list_groups()), "joining")

    def agreed() -> bool:
        logs = [log_of(person) for person in everybody]
        return len({log and log.rules for log in logs}) == 1 and logs[0] is not None

    until(agreed, "terms")
    rules = group_of(alice).view.terms.rules

    def heard_by_them() -> bool:
        return all(
            {one.rules for one in group_of(each).streams.followed.values()} == {rules.digest} for each in everybody
        )

    until(heard_by_them, "that all hear each other by the terms")
    said = bob.client.send_message("friends", "heard by all")
    assert bob.client.wait_for_delivery("friends", said.id).complete
    dora.sleep()
    for n in range(3):
        bob.client.send_message("friends", f"while you were away {n}")
    until(lambda: size(bob) >= 3 and size(alice) == size(carol) == size(bob), "the log")
    until(lambda: not log_of(bob).pending, "that nothing waits")
    me = group_of(bob).me
    bob.sleep()
    dora.wake()
    until(lambda: dora.texts()[-1:] == ["while you were away 2"], "what was said")
    until(lambda: size(dora) == size(alice), "the log")
    name = group_of(dora).id

    def signed() -> int:
        return group_of(dora).streams.followed[me].time

    with Journal.open(bob.places.journal, unlock(bob.places, None)) as journal:
        state = journal.load(Agent)
        assert state is not None
        own = state.groups[name].streams.own
        assert own is not None
        last = journal.signed_messages.stream(name, me, own.alias)[-1]
        entry = entry_of("message", me, last.message)
        receipt = journal.tlog.receipt(name, rules.origin, entry.record())
        assert receipt is not None and receipt.posted_ms(entry, rules.quorum) <= last.time + rules.ack_ms
        assert journal.tlog.all_rules(name)[-1] == rules
    until(lambda: signed() == last.time, "the signatures")
    dora.sleep()
    with Journal.open(dora.places.journal, unlock(dora.places, None)) as journal:
        assert journal.tlog.blob(name, entry.hash) == last.message
        records = journal.tlog.entries(name, rules.origin, 0, 99)
        assert [parse_entry(record).author for record in records][-1] == me
        shown = journal.tlog.receipt(name, rules.origin, entry.record())
        assert shown is not None and shown.posted_ms(entry, rules.quorum) == receipt.posted_ms(entry, rules.quorum)
