"""Membership: removals, votes, and whose votes count."""

import pytest

from tests.support.membership_book import ANYONE, Book, did, ruled
from zerochat.group.event_log.event import REMOVE, VOTE
from zerochat.group.membership import (
    Policy,
    check_control,
    may_post,
    may_remove,
    may_vote,
    quorum_met,
    votes_for,
    votes_needed,
)
from zerochat.group.membership.event_graph import EventGraph

# --- rights: removing -----------------------------------------------------------------------------------------------


def test_anyone_rule_permits_any_removal():
    book = Book(ANYONE, members="bcd")
    assert may_remove(book.view, did("b"), did("a")) and not may_remove(book.view, did("b"), did("b"))
    book.refuses("b", REMOVE, {"member": did("b"), "after": 0})
    book.refuses("b", VOTE, {"member": did("a")})
    book.remove("b", "a", after=3)
    assert book.names == "bcd" and book.view.removed == {did("a"): 3}
    assert [may_post(book.view, did("a"), seq) for seq in (3, 4)] == [True, False]
    book.refuses("b", REMOVE, {"member": did("a"), "after": 0})
    book.refuses("a", REMOVE, {"member": did("b"), "after": 0})


@pytest.mark.parametrize(
    ("actor", "targets"), [("a", "bcdef"), ("b", "cdef"), ("c", "bdef"), ("d", ""), ("e", ""), ("f", "")]
)
def test_admins_remove_all_but_owner_and_self(actor, targets):
    book = ruled()
    for target in "abcdefz":
        assert may_remove(book.view, did(actor), did(target)) == (target in targets)
        body = {"member": did(target), "after": 0}
        if target in targets:
            check_control(book.make(actor, REMOVE, body), book.control)
        else:
            book.refuses(actor, REMOVE, body)


def test_quorum_counts_members():
    book = Book(Policy(quorum=3), members="bcde")
    target = did("e")
    for number, voter in enumerate("abb"):
        votes = votes_for(book.control, book.view, target)
        assert len(votes) == number and not quorum_met(book.view, votes)
        book.refuses("a", REMOVE, {"member": target, "after": 0})
        book.vote(voter, "e")
    assert votes_for(book.control, book.view, target) == {did("a"), did("b")}, "one vote each"
    book.leave("b")
    assert votes_for(book.control, book.view, target) == {did("a")}, "who is gone does not count"
    book.vote("c", "e")
    book.refuses("d", REMOVE, {"member": target, "after": 0})
    book.vote("d", "e")
    assert may_remove(book.view, did("c"), target, votes_for(book.control, book.view, target))
    assert not may_remove(book.view, did("z"), target, votes_for(book.control, book.view, target))
    book.remove("c", "e")
    assert book.names == "acd"


def test_votes_that_do_not_suffice_are_counted_once(monkeypatch):
    """Every message asks as long as its recipient has voted; the puppets of a member would make each expensive."""
    book = Book(Policy(quorum=3), members="bcde")
    book.vote("a", "e")
    for one in "xy":
        book.add("c", one)
        book.vote(one, "e")
    graphs, whole, target = [], EventGraph.__init__, did("e")
    monkeypatch.setattr(EventGraph, "__init__", lambda self, *about: graphs.append(self) or whole(self, *about))
    view = book.view
    before = len(graphs)
    for _ in range(20):
        assert votes_for(book.control, view, target) == {did("a"), did("c")}
    assert len(graphs) == before + 1
    book.vote("b", "e")
    assert votes_for(book.control, book.view, target) == {did(one) for one in "abxy"}, "it has seen them"


def test_small_group_quorum_is_all_others():
    book = Book(Policy(quorum=5), members="bc")
    assert votes_needed(book.view) == 2
    book.vote("a", "c")
    book.refuses("a", REMOVE, {"member": did("c"), "after": 0})
    book.vote("b", "c")
    book.remove("b", "c")
    assert votes_needed(book.view) == 1
    book.refuses("a", REMOVE, {"member": did("b"), "after": 0})
    book.vote("a", "b")
    book.remove("a", "b")
    assert book.names == "a"


def test_votes_concern_other_members():
    book = Book(members="b")
    assert may_vote(book.view, did("a"), did("b"))
    for target in ("a", "z"):
        assert not may_vote(book.view, did("a"), did(target))
        book.refuses("a", VOTE, {"member": did(target)})


# --- whose votes count, whatever past their author chooses -----------------------------------------------------------


def test_old_small_past_does_not_lower_quorum():
    book = Book(members="b")
    then = book.heads()
    book.add("a", "c")
    book.add("a", "d")
    book.remove("b", "a", [book.vote("b", "a", then)])
    assert book.names == "abcd" and book.view.removed == {}
    assert may_vote(book.view, did("c"), did("a")) and not quorum_met(book.view, {did("b")})
    book.vote("c", "a")
    book.remove("b", "a")
    assert book.names == "bcd"


def test_small_quorum_of_old_past_is_void():
    book = Book(Policy(quorum=4), members="bc")
    then = book.heads()
    for one in "defgh":
        book.add("a", one)
    votes = [book.vote("b", "a", then), book.vote("c", "a", then)]
    book.remove("c", "a", votes)
    assert book.names == "abcdefgh"
    book.vote("d", "a")
    assert not quorum_met(book.view, votes_for(book.control, book.view, did("a")))
    book.vote("e", "a")
    assert quorum_met(book.view, votes_for(book.control, book.view, did("a")))
    book.remove("e", "a")
    assert book.names == "bcdefgh"


@pytest.mark.parametrize("dated_back", [True, False])
@pytest.mark.parametrize("voters", ["dh", "hi", "hj", "dhij"])
def test_unseen_puppet_adds_no_vote(dated_back, voters):
    book = Book(members="bcd")
    then = book.heads()
    for one in "efg":
        book.add("a", one)
    last = [book.add("d", "h", then if dated_back else book.heads())]
    last = [book.add("d", "i", last)]
    last = [book.add("i", "j", last)]
    for voter in voters:
        last = [book.vote(voter, "a", last)]
    assert len(votes_for(book.control, book.view, did("a"))) == 1
    book.remove(voters[0], "a", last)
    assert did("a") in book.view.members and book.view.removed == {}
    book.label("b", "bob")
    assert did("a") in book.view.members, "to be seen afterwards changes nothing"
    book.vote("c", "a")
    book.remove("c", "a")
    assert did("a") not in book.view.members


def test_seen_member_votes_like_others():
    book = Book(members="bcd")
    book.add("b", "e")
    book.label("c", "cecil")
    book.vote("b", "d")
    book.vote("e", "d")
    assert votes_for(book.control, book.view, did("d")) == {did("b"), did("e")}
    book.remove("e", "d")
    assert book.names == "abce"


@pytest.mark.parametrize("voters", ["ab", "bc", "ca"])
def test_founder_added_members_vote_separately(voters):
    book = Book(members="bcd")
    for voter in voters:
        book.vote(voter, "d")
    book.remove(voters[1], "d")
    assert book.names == "abc"


def test_founder_can_be_removed_by_its_subtree():
    book = Book(members="b")
    for one in "cde":
        book.add("b", one)
    book.vote("c", "a")
    book.refuses("c", REMOVE, {"member": did("a"), "after": 0})
    book.vote("d", "a")
    book.remove("d", "a")
    assert book.names == "bcde"


def test_pair_can_separate():
    book = Book(members="b")
    book.vote("b", "a")
    book.remove("b", "a")
    assert book.names == "b"


@pytest.mark.parametrize("quorum", [2, 5])
def test_joiners_do_not_undo_removal(quorum):
    book = Book(Policy(quorum=quorum), members="bcdef")
    book.leave("e")
    book.vote("c", "f")
    for voter in "abd":
        book.vote(voter, "f")
    book.remove("d", "f")
    for one in "ghij":
        book.add("b", one)
    assert book.names == "abcdghij"
    book.leave("c")
    assert book.view.removed == {did("f"): 9}


def test_void_removal_does_not_shrink_electorate():
    """Two removals by b, the second with a past in which the first sufficed."""
    book = Book(members="b")
    then = book.heads()
    book.add("a", "c")
    last = book.remove("b", "a", [book.vote("b", "a", then)])
    last = book.add("b", "d", [last])
    last = book.vote("b", "d", [last])
    book.remove("b", "d", [last])
    assert book.names == "abcd"
