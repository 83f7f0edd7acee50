"""Membership: properties of any history."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.membership_book import ADMINS, ANYONE, FLAT, LETTERS, RULED_ANYONE, Book, did
from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, LABEL, LEAVE, REMOVE, ROLE, VOTE, Event
from zerochat.group.membership import (
    Policy,
    ancestors,
    check_all,
    check_control,
    extend_control,
    heads_of,
    may_change_role,
    may_label,
    may_remove,
    may_vote,
    missing,
    quota,
    resolve_view,
    votes_for,
)
from zerochat.group.membership.resolve import ViewBuilder

# --- any history ----------------------------------------------------------------------------------------------------

POLICIES = [FLAT, Policy(quorum=3), ADMINS, ANYONE, RULED_ANYONE, Policy(roles="admins")]


def act(book, draw, author, other, seq):
    """One event that a member may or may not create: its type and body."""
    after = seq if author == other else draw(st.integers(0, 3))
    match draw(st.sampled_from([ADD, LEAVE, REMOVE, REMOVE, REMOVE, VOTE, VOTE, VOTE, ROLE, ROLE, LABEL])):
        case "add":
            return ADD, book.addition(author, other)
        case "leave":
            return LEAVE, {}
        case "remove":
            return REMOVE, {"member": did(other), "after": after}
        case "vote":
            return VOTE, {"member": did(other)}
        case "role":
            role = draw(st.sampled_from(["reader", "writer", "admin", "owner"]))
            return ROLE, {"member": did(other), "role": role, "after": after}
    return LABEL, {"label": draw(st.sampled_from(["x", "y", "z"]))}


@st.composite
def histories(draw):
    """Random membership events with random pasts."""
    book = Book(draw(st.sampled_from(POLICIES)), members="bcd")
    for _ in range(draw(st.integers(0, 20))):
        names = sorted(book.control, key=lambda name: (book.control[name].lamport, name))
        recent = names[-draw(st.integers(1, 8)) :]
        chosen = draw(st.lists(st.sampled_from(recent), min_size=1, max_size=3, unique=True))
        past = ancestors(book.control, chosen)
        seen = [book.control[name] for name in heads_of({name: book.control[name] for name in past})]
        author, other = draw(st.sampled_from(LETTERS)), draw(st.sampled_from(LETTERS))
        seq = max(1, book.seqs.get(author, 0) + draw(st.sampled_from([1, 1, 1, 0])))
        kind, body = act(book, draw, author, other, seq)
        with suppress(Refused):
            book.say(author, kind, body, seen, seq=seq)
    return book


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_view_is_independent_of_order(book, dice):
    """In any causal order: the same members, roles and fork proofs."""
    waiting = list(book.control.values())
    arrived: dict[str, Event] = {}
    while waiting:
        ready = [event for event in waiting if all(dep in arrived for dep in event.deps)]
        event = dice.choice(ready)
        check_control(event, arrived)
        arrived, view = extend_control(arrived, event)
        waiting.remove(event)
        assert view == ViewBuilder.of(arrived).view(heads_of(arrived)), "one at a time as all at once"
    assert resolve_view(arrived) == book.view
    assert (
        ViewBuilder.of(arrived).view(heads_of(arrived))
        == ViewBuilder.of(book.control).view(heads_of(book.control))
        == book.view
    )
    assert check_all(arrived.values()) == book.control
    assert check_all(missing(arrived, [])) == book.control
    assert missing(arrived, heads_of(arrived)) == []


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_what_was_accepted_one_by_one_is_within_the_quotas(data):
    with pytest.MonkeyPatch.context() as patch:
        for name, limit in {"BRANCH_MAX": 3, "AUTHOR_CONTROL_MAX": 5, "CONTROL_MAX": 9, "RESERVE": 1}.items():
            patch.setattr(quota, name, limit)
        book = data.draw(histories())
        assert check_all(book.control.values()) == check_all(missing(book.control, [])) == book.control


def at_odds(book, one, other):
    if one.author != other.author or one is other:
        return False
    apart = one.id not in ancestors(book.control, [other.id]) and other.id not in ancestors(book.control, [one.id])
    return one.seq == other.seq or apart


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(histories())
def test_every_view_is_consistent(book):
    view, events = book.view, book.control.values()
    added = {did("a")} | {event.body["member"] for event in events if event.type == ADD}
    assert view.members.keys() | view.former.keys() == added and not view.members.keys() & view.former.keys()
    assert list(view.members) == sorted(view.members)
    assert not view.removed.keys() - view.former.keys()
    assert all(member.until is None for member in view.members.values())
    assert all(member.until is not None for member in view.former.values())
    assert all(after >= view.former[one].until for one, after in view.removed.items())
    gone = {event.author for event in events if event.type == LEAVE}
    targets = {event.body["member"] for event in events if event.type == REMOVE}
    assert not gone & view.members.keys()
    if not targets and view.policy.roles == "flat":
        assert view.former.keys() == gone
    assert view.forked.keys() == {one.author for one in events for other in events if at_odds(book, one, other)}
    for author, (one, other) in view.forked.items():
        assert one < other and book.control[one].author == book.control[other].author == author
        assert at_odds(book, book.control[one], book.control[other])
    owners = [member for member in view.members.values() if member.role == "owner"]
    assert len(owners) <= (view.policy.roles == "admins")
    if view.policy.remove == "admins":
        assert owners or gone, "an owner goes only by itself"


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(histories(), st.sampled_from(LETTERS), st.sampled_from(LETTERS), st.sampled_from(["reader", "admin", "owner"]))
def test_client_checks_match_protocol_checks(book, author, other, role):
    """The `may_*` functions and `check_control` agree."""
    view, me, whom = book.view, did(author), did(other)
    after = book.seqs.get(author, 0) + 1
    removal, change = {"member": whom, "after": 3}, {"member": whom, "role": role, "after": after}
    asked = [
        (VOTE, {"member": whom}, may_vote(view, me, whom)),
        (REMOVE, removal, may_remove(view, me, whom, votes_for(book.control, view, whom))),
        (ROLE, change, may_change_role(view, me, whom, role)),
        (LABEL, {"label": "x"}, may_label(view, me, "x")),
    ]
    for kind, body, allowed in asked:
        event = book.make(author, kind, body, seq=after)
        for check in (
            lambda event: check_control(event, book.control),
            lambda event: check_all([*book.control.values(), event]),
            lambda event: check_all([*missing(book.control, []), event]),
        ):
            try:
                check(event)
            except Refused:
                assert not allowed, kind
            else:
                # A removal with votes too few among all who are members may be in order, but has no effect.
                after_it = resolve_view({**book.control, event.id: event})
                assert allowed or (kind == REMOVE and view.policy.remove == "quorum" and whom in after_it.members), kind
                assert not allowed or kind != REMOVE or whom not in after_it.members
