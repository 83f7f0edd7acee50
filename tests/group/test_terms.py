"""Terms of the transparency log: permissions, void terms, and their dependence on the event set alone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

from tests.support.membership_book import ADMINS, ANYONE, Book, did, seed
from zerochat.errors import Malformed, Refused
from zerochat.evidence.case import Rules
from zerochat.group.event_log.event import CONC_MAX, DEPS_MAX, TERMS, Event
from zerochat.group.membership import (
    Policy,
    TermsBody,
    ancestors,
    check_all,
    check_control,
    may_set_terms,
    resolve_view,
    rules_of,
    terms_of,
)
from zerochat.group.membership.bodies import TERMS_BYTES_MAX

RULED = Policy(remove="anyone", quorum=0, roles="admins")


class Kept(Book):
    """The membership events of a group with a transparency log."""

    def __init__(self, policy=ANYONE, members="", accountability="tlog"):
        super().__init__(policy, members=members, body={"accountability": accountability, "keys": "sender-key"})

    def terms(self, author, operator, witnesses, seen=None, **times):
        return self.say(author, TERMS, self.body(operator, witnesses, **times), seen)

    def body(self, operator, witnesses, **times):
        return {"operator": did(operator), "witnesses": [did(one) for one in witnesses], **times}

    @property
    def keepers(self):
        """Operator and witnesses of the terms in force."""
        terms = self.view.terms
        if terms is None:
            return None
        names = {did(one): one for one in "abcdefghij"}
        return names[terms.rules.operator], "".join(names[one] for one in terms.rules.witnesses)


def eldest(book):
    names = {did(one): one for one in "abcdefghij"}
    return "".join(names[one] for one in book.view.eldest_witnesses)


@pytest.mark.parametrize(("members", "count"), [("", 0), ("b", 0), ("bc", 3), ("bcd", 4), ("bcdef", 4), ("bcdefg", 7)])
def test_eldest_members_witness_in_flat_group(members, count):
    book = Kept(members=members)
    assert len(eldest(book)) == count and eldest(book) == "abcdefg"[:count]
    if count:
        book.terms("b", "c", eldest(book))
        assert book.keepers == ("c", eldest(book))
        event = next(one for one in book.control.values() if one.type == TERMS)
        assert book.view.terms.rules == rules_of(event)
        assert book.view.terms.rules.origin == "zerochat/log/" + event.id
        assert book.view.terms.rules.digest == Rules(**to_builtins(book.view.terms.rules)).digest


@pytest.mark.parametrize(
    ("operator", "witnesses"),
    [("a", "abc"), ("a", "abce"), ("e", "abcd"), ("a", "bacd"), ("z", "abcd"), ("a", "abcz"), ("a", "abcde")],
)
def test_flat_group_witnesses_are_fixed(operator, witnesses):
    book = Kept(members="bcde")
    book.refuses("b", TERMS, book.body(operator, witnesses))
    assert book.view.terms is None


def test_flat_group_uses_default_times():
    book = Kept(members="bc")
    book.refuses("b", TERMS, book.body("a", "abc", ack_ms=10_000, margin_ms=1_000))
    assert book.terms("b", "a", "abc", ack_ms=600_000) and book.view.terms.rules.ack_ms == 600_000


def test_admins_choose_operator_and_witnesses():
    book = Kept(RULED, members="bcdef")
    book.role("a", "b", "admin", after=0)
    for author in "cf":
        book.refuses(author, TERMS, book.body("a", "abcd"))
    book.terms("b", "f", "fed", ack_ms=10_000, margin_ms=1_000)
    assert book.keepers == ("f", "fed") and book.view.terms.rules.ack_ms == 10_000
    book.terms("a", "a", "abcde")
    assert book.keepers == ("a", "abcde")
    book.refuses("a", TERMS, book.body("z", "abc"))


@pytest.mark.parametrize(
    "change",
    [
        {"operator": "x"},
        {"witnesses": ["x"] * 3},
        {"witnesses": []},
        {"witnesses": [did("a"), did("b"), did("b")]},
        {"ack_ms": 0},
        {"ack_ms": 60_000, "margin_ms": 60_000},
        {"window_ms": 10**15},
        {"more": 1},
    ],
    ids=str,
)
def test_malformed_terms_are_rejected(change):
    book = Kept(RULED, members="bc")
    with pytest.raises(Malformed):
        check_control(book.make("a", TERMS, {**book.body("a", "abc"), **change}), book.control)


def test_terms_need_a_tlog_and_members():
    book = Kept(members="bc", accountability="acks")
    book.refuses("a", TERMS, book.body("a", "abc"))
    assert not book.view.has_tlog and book.view.terms is None
    kept = Kept(members="bc")
    kept.refuses("z", TERMS, kept.body("a", "abc"))


def test_longest_terms_fit():
    dids = [did(f"w{number}") for number in range(32)]
    times = {f"{one}_ms": 2_592_000_000 - (one == "margin") for one in ("ack", "margin", "skew", "window")}
    body = {"operator": dids[0], "witnesses": dids, **times}
    deps = tuple(f"{number:043d}" for number in range(DEPS_MAX))
    conc = tuple(f"{number:043d}" for number in range(CONC_MAX))
    place = 2**53 - 1
    event = Event("g" * 43, TERMS, dids[0], place, "p" * 43, deps, conc, place, place, body).signed(seed("w0"))
    assert len(event.record) <= TERMS_BYTES_MAX
    assert terms_of(event).witnesses == tuple(dids)


def test_latest_terms_count_while_operator_stays():
    book = Kept(members="bcd")
    book.terms("a", "a", "abcd")
    book.terms("b", "b", "abcd")
    assert book.keepers == ("b", "abcd")
    book.remove("a", "b")
    assert book.keepers is None, "an older log does not come back by that"
    book.terms("c", "c", "acd")
    assert book.keepers == ("c", "acd")


def test_terms_need_a_quorum_of_witnesses():
    book = Kept(RULED, members="bcdef")
    book.terms("a", "a", "abcd")
    book.leave("d")
    assert book.keepers == ("a", "abcd"), "three of four are a quorum"
    book.leave("c")
    assert book.keepers is None


def test_terms_of_removed_member_are_void():
    book = Kept(members="bcd")
    book.terms("a", "a", "abcd")
    seen = book.heads()
    book.remove("c", "b", seen)
    book.terms("b", "b", "abcd", seen)
    assert book.keepers == ("a", "abcd")


def test_terms_of_demoted_admin_are_void():
    book = Kept(RULED, members="bcd")
    book.role("a", "b", "admin", after=0)
    book.terms("a", "a", "abc")
    seen = book.heads()
    book.role("a", "b", "writer", seen, after=9)
    book.terms("b", "b", "bcd", seen)
    assert book.keepers == ("a", "abc")
    book.refuses("b", TERMS, book.body("b", "bcd"))


def test_terms_by_void_right_are_void():
    """An admin appointed by an admin that was demoted concurrently never was one."""
    book = Kept(RULED, members="bcde")
    book.role("a", "b", "admin", after=0)
    book.terms("a", "a", "abc")
    seen = book.heads()
    added = book.add("b", "f", seen)
    said = book.terms("b", "f", "fab", [added])
    assert book.keepers == ("f", "fab")
    book.remove("a", "b", seen)
    assert (did("f") not in book.view.members and book.keepers == ("a", "abc")) or book.keepers is None
    assert said.id in book.control


@st.composite
def histories(draw):
    """Random membership and terms events with random pasts."""
    policy = draw(st.sampled_from((ANYONE, RULED, ADMINS)))
    book = Kept(policy, members="bcd")
    dice = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 10))):
        seen = [event for event in book.heads() if dice.random() < 0.8] or book.heads()
        author = dice.choice("abcde")
        what = dice.choice(("terms", "terms", "terms", "remove", "add", "role", "leave"))
        try:
            past = {name: book.control[name] for name in _past(book, seen)}
            view = resolve_view(past)
            if what == "terms":
                witnesses = [one for one in "abcde" if did(one) in view.eldest_witnesses]
                book.terms(author, dice.choice(witnesses or "a"), witnesses or "abc", seen)
            elif what == "remove":
                book.remove(author, dice.choice("bcde"), seen)
            elif what == "add":
                book.add(author, "e", seen)
            elif what == "role":
                book.role(author, dice.choice("bcde"), dice.choice(("admin", "writer", "reader")), seen, after=0)
            else:
                book.leave(author, seen)
        except (Refused, Malformed):
            continue
    return book


def _past(book, seen):
    return ancestors(book.control, [event.id for event in seen])


@pytest.mark.slow
@settings(max_examples=120, deadline=None)
@given(histories(), st.integers(0, 2**32))
def test_terms_depend_on_event_set_only(book, lot):
    events = list(book.control.values())
    order, todo, dice = [], events, random.Random(lot)
    placed: set[str] = set()
    while todo:
        ready = [event for event in todo if placed.issuperset(event.deps)]
        one = dice.choice(ready)
        order.append(one)
        placed.add(one.id)
        todo = [event for event in todo if event.id != one.id]
    again = check_all(order)
    view = resolve_view(again)
    assert view == book.view
    if view.terms is not None:
        rules = view.terms.rules
        assert rules.operator in view.members
        assert sum(one in view.members for one in rules.witnesses) >= rules.quorum.threshold
    step: dict[str, Event] = {}
    for event in order:
        check_control(event, step)
        step[event.id] = event
    assert resolve_view(step).terms == view.terms


def test_may_set_terms_uses_the_events_past():
    book = Kept(members="bc")
    seen = book.heads()
    book.add("a", "d")
    book.terms("b", "a", "abc", seen)
    assert book.keepers == ("a", "abc"), "it was right when it was said"
    assert not may_set_terms(book.view, did("b"), TermsBody(did("a"), tuple(did(one) for one in "abc")))
