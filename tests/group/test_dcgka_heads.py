"""Which membership events a key event names where there are more concurrent ones than it can."""

from itertools import pairwise

import pytest

from tests.support.membership_book import Book, did
from zerochat.group.dcgka.membership import named_heads
from zerochat.group.event_log.event import LABEL
from zerochat.group.key_agreement.wire import HEADS_MAX
from zerochat.group.membership import Policy, ancestors, heads_of, resolve_view


def renamed(book, seen, times):
    """So many concurrent new names of one member."""
    for number in range(times):
        event = book.make("b", LABEL, {"label": f"name {number}"}, seen=seen, seq=9)
        book.control[event.id] = event


@pytest.mark.parametrize("times", [0, 3, HEADS_MAX, 3 * HEADS_MAX])
def test_changes_of_members_are_named_first(times):
    book = Book(Policy(remove="anyone", quorum=0), members="bcd")
    seen = [book.control[name] for name in heads_of(book.control)]
    renamed(book, seen, times)
    removal = book.remove("c", "d", seen=seen)
    book.say("c", LABEL, {"label": "after the removal"}, seen=[removal])
    book.add("a", "e", seen=seen)
    named = named_heads(book.control, did("a"))
    assert list(named) == sorted(named)
    assert len(named) == min(HEADS_MAX, times + 2)
    past = {name: book.control[name] for name in ancestors(book.control, named)}
    members = resolve_view(past).members.keys()
    assert did("d") not in members
    assert did("e") in members


@pytest.mark.parametrize("many", [False, True])
def test_a_newcomer_names_its_own_addition(many):
    """Else the others refuse its key events, as those of no member. Puppets remove one of them, or each another one."""
    puppets = [f"s{number}" for number in range(HEADS_MAX + 4)]
    book = Book(Policy(remove="anyone", quorum=0), members="bm")
    for one in puppets:
        book.add("m", one)
    seen = book.heads()
    for one, other in pairwise(puppets):
        book.remove(one, other if many else puppets[-1], seen)
    book.label("n", "newcomer", seen=[book.add("a", "n", seen)])
    for name in "abn":
        past = {one: book.control[one] for one in ancestors(book.control, named_heads(book.control, did(name)))}
        members = resolve_view(past).members.keys()
        assert did(name) in members
        assert did("n") in members or (many and name != "n")
