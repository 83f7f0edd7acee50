"""Which events are void in any past, and what rights depend on there: sets of one graph against the plain rules."""

import random
from contextlib import suppress
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support import reference_void_events
from tests.support.membership_book import ADMINS, ANYONE, FLAT, Book, did
from tests.support.reference_void_events import ReferenceGraph
from zerochat.errors import Refused, RemoteError
from zerochat.group.dcgka import membership
from zerochat.group.event_log.event import ADD, LABEL, LEAVE, REMOVE, ROLE, VOTE
from zerochat.group.membership import (
    Policy,
    ancestors,
    check_all,
    heads_of,
    log,
    quota,
    resolve,
    resolve_view,
    rights,
    voters_for,
)
from zerochat.group.membership.event_graph import EventGraph, bits
from zerochat.group.membership.past_check import ALONE_WORK_US, PastCheck
from zerochat.group.membership.past_view import PastViews, steps_us
from zerochat.group.membership.resolve import ViewBuilder, in_order
from zerochat.group.membership.void_events import VoidEvents
from zerochat.group.state import Group
from zerochat.limits import MEMBERS_MAX, MEMBERS_MAX_BY_PATH

POLICIES = [
    FLAT,
    Policy(quorum=3),
    ADMINS,
    ANYONE,
    Policy(remove="anyone", quorum=0, roles="admins"),
    Policy(roles="admins"),
]
CROWD = "abcdefghijk"
ACTS = [ADD, LEAVE, *3 * [REMOVE, VOTE, ROLE], LABEL]


def history(dice):
    """Membership events with random pasts, most of them permitted there."""
    book, width = Book(dice.choice(POLICIES), members="bcd"), dice.choice([4, 14, 30])
    for _ in range(dice.randint(10, 60)):
        names = sorted(book.control, key=lambda name: (book.control[name].lamport, name))
        chosen = [dice.choice(names[-dice.randint(1, width) :]) for _ in range(dice.randint(1, 3))]
        known = {name: book.control[name] for name in ancestors(book.control, chosen)}
        seen, view = [known[name] for name in heads_of(known)], resolve_view(known)
        here = [one for one in CROWD if did(one) in view.members] or ["a"]
        author, other = dice.choice(here), dice.choice([*here, dice.choice(CROWD)])
        after = dice.randint(0, 3)
        match dice.choice(ACTS):
            case "add":
                kind, body = ADD, book.addition(author, dice.choice(CROWD))
            case "leave":
                kind, body = dice.choice([(LEAVE, {}), (LABEL, {"label": "v"})])
            case "remove":
                kind, body = REMOVE, {"member": did(other), "after": after}
            case "vote":
                kind, body = VOTE, {"member": did(other)}
            case "role":
                after = book.seqs.get(author, 0) + 1 if author == other else after
                role = dice.choice(["reader", "writer", "admin", "owner"])
                kind, body = ROLE, {"member": did(other), "role": role, "after": after}
            case _:
                kind, body = LABEL, {"label": dice.choice("xyz")}
        seq = max(1, book.seqs.get(author, 0) + dice.choice([1, 1, 1, 0]))
        with suppress(RemoteError):
            book.say(author, kind, body, seen, seq=seq)
    return book


def compare(book):
    """Compare everything in the past of each event, with it and without; returns in how many pasts events are void."""
    order = in_order(book.control)
    graph = EventGraph(order, book.view.policy)
    void, views, found = VoidEvents(graph), PastViews(graph), 0
    for at in range(len(order)):
        for part in {graph.past[at], graph.past[at] | 1 << at} - {0}:
            events = [order[place] for place in bits(part)]
            reference = ReferenceGraph(events, graph.policy)
            expected = reference.void()
            assert {graph.names[place] for place in bits(void.within(part))} == expected
            assert void.crowded == reference.crowded
            compare_views(views, part, dict(events))
            found += bool(expected)
    dead = void.within(graph.all)
    whole = ReferenceGraph(order, graph.policy)
    assert {graph.names[place] for place in bits(dead)} == whole.void() and graph.forks() == whole.forks()
    for one in graph.added:
        assert void.ballots.counted_voters(one, dead) == whole.counted_voters(one, whole.void())
    return found


def compare_views(views, part, control):
    view, full = views.view(part), ViewBuilder.of(control)
    assert view.members == full.members and view.former.keys() == full.former.keys()
    assert (view.policy, view.keys, view.path) == (full.policy, full.current.keys, full.current.path)
    for one, member in full.former.items():
        former = view.former[one]
        assert (former.joined, former.added_by, former.transport) == (member.joined, member.added_by, member.transport)
    assert all(views.voters(view, part, one) == voters_for(control, view, one) for one in view.members)


def limit(patch, count, reserve):
    patch.setattr(reference_void_events, "MEMBERS_MAX", count)
    patch.setitem(MEMBERS_MAX_BY_PATH, "mesh", count)
    patch.setattr(rights, "SEATS_RESERVE", reserve)
    patch.setattr(resolve, "_views", resolve.RecentCache())
    patch.setattr(log, "_logs", resolve.RecentCache())


def search(first, count):
    found = 0
    for number in range(first, first + count):
        dice = random.Random(number)
        with pytest.MonkeyPatch.context() as patch:
            limit(patch, MEMBERS_MAX if number % 3 else dice.randint(4, 7), dice.randint(0, 1))
            book = history(dice)
            found += compare(book)
            assert check_all(book.control.values()) == book.control
    return found


def test_parts_of_one_graph_are_resolved_as_by_the_plain_rules():
    assert search(0, 30) > 30


@pytest.mark.slow
def test_parts_of_one_graph_are_resolved_as_by_the_plain_rules_search():
    assert search(1_000, 300) > 300


def is_refused(check):
    try:
        check()
    except Refused:
        return True
    return False


@pytest.mark.parametrize("number", range(8))
def test_the_quota_of_an_author_in_a_past_is_that_of_its_events_alone(number, monkeypatch):
    book = history(random.Random(number))
    order = in_order(book.control)
    views, outcomes = PastViews(EventGraph(order, book.view.policy)), set()
    for most in range(1, 7):
        monkeypatch.setattr(quota, "AUTHOR_CONTROL_MAX", most)
        for at, (_, event) in enumerate(order[1:], 1):
            past = views.graph.past[at]
            counted = quota.EventQuota([order[place][1] for place in bits(past)])
            outcome = is_refused(partial(counted.check_author, event))
            assert is_refused(partial(views.check_author_quota, event, past)) == outcome
            outcomes.add(outcome)
    assert outcomes == {True, False}


# --- what it costs --------------------------------------------------------------------------------------------------


class Flood(Book):
    """The events of one hostile branch, which are not checked one by one."""

    def say(self, author, kind, body, seen=None, **place):
        event = self.make(author, kind, body, seen, **place)
        self.control[event.id] = event
        return event


def flood(policy, sybils, events):
    """Sybils that remove each other beside each other, and others that see all of it and rename beside each other."""
    book = Flood(policy, members="bcm")
    watchers, sybils = [f"o{number}" for number in range(4)], [f"s{number}" for number in range(sybils)]
    for one in (*watchers, *sybils):
        book.add("m", one)
    for one in "bc":
        book.label(one, f"{one} has seen them")
    for one in sybils if policy.remove == "quorum" else ():
        book.vote("o0", one)
        book.vote("o1", one)
    seen = book.heads()
    tips = dict.fromkeys(sybils, seen)
    pairs = [
        (one, sybils[(at + step) % len(sybils)]) for step in range(1, len(sybils)) for at, one in enumerate(sybils)
    ]
    for one, other in pairs[: events // 2]:
        tips[one] = [book.remove(one, other, tips[one])]
    ends, past = [tip[0] for tip in tips.values() if tip is not seen], {}
    for one in watchers:
        past[one] = []
        for first in range(0, len(ends), 14):
            past[one] = [book.label(one, f"{one} saw {first}", [*past[one], *ends[first : first + 14]])]
    for number in range(events // 2):
        one = watchers[number % 4]
        past[one] = [book.label(one, f"{one} {number}", past[one])]
    return book


def steps_of(book):
    """The operations that checking all takes, and the most for one event."""
    check, spent = PastCheck(book.control.values()), [0]
    assert not check.advance(ALONE_WORK_US) and not any(check.advance(1) for _ in range(len(book.control) - 1))
    while not check.advance(1):
        spent.append(check.graph.steps if check.graph is not None else 0)
    return spent[-1], max(two - one for one, two in pairwise(spent))


@pytest.mark.parametrize("policy", [ANYONE, FLAT], ids=["anyone", "quorum"])
def test_a_hostile_branch_makes_a_check_quadratic_at_most(policy):
    """It was cubic: each past was resolved anew, in rounds over all of its events."""
    small, large = flood(policy, 12, 120), flood(policy, 20, 360)
    (few, _), (many, most) = steps_of(small), steps_of(large)
    growth = len(large.control) / len(small.control)
    print(f"{len(small.control)} events: {few} steps, {len(large.control)}: {many}, at most {most} for one")
    assert many <= 1.5 * growth**2 * few
    assert steps_us(most, len(large.control)) < 20_000
    assert check_all(large.control.values()) == large.control


def test_a_past_without_concurrent_events_takes_linear_work():
    taken = []
    for count in (100, 400):
        book = Flood(ANYONE, members="bcd")
        for number in range(count):
            book.label("bcd"[number % 3], f"x{number}")
        taken.append(steps_of(book)[0])
    assert taken == [0, 0]


@pytest.mark.parametrize("policy", [ANYONE, FLAT], ids=["anyone", "quorum"])
def test_the_membership_that_a_key_event_names_is_charged_once(policy, monkeypatch):
    book = flood(policy, 20, 360)
    view = log.log_of(book.control).view()
    group, heads = cast(Group, SimpleNamespace(control=book.control, view=view)), tuple(heads_of(book.control)[:2])
    graphs, whole = [], EventGraph.__init__
    monkeypatch.setattr(EventGraph, "__init__", lambda self, *about: graphs.append(self) or whole(self, *about))
    charged_us = membership.work_us(group, heads)
    assert membership._members_at(group, heads) < set(view.members) | set(view.former)
    taken_us = steps_us(sum(graph.steps for graph in graphs), len(book.control))
    assert len(graphs) == 1 and taken_us + log.RESOLVE_WORK_US * len(book.control) <= charged_us < 100_000
    assert membership.work_us(group, heads) == membership.work_us(group, log.log_of(book.control).sorted_heads) == 0


@pytest.mark.parametrize("policy", [ANYONE, FLAT], ids=["anyone", "quorum"])
def test_one_more_event_is_charged_what_it_takes(policy, monkeypatch):
    book = flood(policy, 20, 360)
    member = log.MembershipLog(check_all(book.control.values()))
    member.view()
    graphs, whole = [], EventGraph.__init__
    monkeypatch.setattr(EventGraph, "__init__", lambda self, *about: graphs.append(self) or whole(self, *about))
    event = book.make("c", LABEL, {"label": "late"}, book.heads()[:2])
    charged_us = member.work_us(event)
    member.check(event)
    member.extend(event, {**book.control, event.id: event})
    member.view()
    taken_us = steps_us(sum(graph.steps for graph in graphs), len(book.control))
    assert len(graphs) <= 2 and taken_us + log.RESOLVE_WORK_US * len(book.control) <= charged_us < 100_000
