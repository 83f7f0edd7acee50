"""Membership: the resolution of concurrent events."""

from tests.support.membership_book import ADMINS, ANYONE, RULED_ANYONE, Book, did, ruled
from zerochat.group.event_log.event import ADD, LABEL, REMOVE, ROLE
from zerochat.group.membership import (
    Policy,
    check_control,
    extend_control,
    heads_of,
    log_of,
    may_post,
    quorum_met,
    votes_for,
)
from zerochat.group.membership.resolve import ViewBuilder

# --- concurrency ----------------------------------------------------------------------------------------------------


def test_mutual_removals_both_hold():
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    book.remove("b", "c", seen)
    book.remove("c", "b", seen)
    assert book.names == "ad"


def test_removed_member_cannot_remove():
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    book.remove("b", "c", seen)
    book.remove("c", "d", seen)
    book.remove("c", "b", seen)  # but for the author of the removal
    assert book.names == "ad"


def test_void_removal_restores_its_target():
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    book.remove("c", "d", seen)
    assert book.names == "abc"
    book.remove("b", "c", seen)
    assert book.names == "abd" and did("d") not in book.view.removed


def test_events_seen_by_remover_stay():
    book = Book(ANYONE, members="bcd")
    book.remove("c", "d")
    book.add("c", "e")
    book.label("c", "cecil")
    book.remove("b", "c")
    assert book.names == "abe" and book.view.former[did("c")].label == "cecil"


def test_removal_cycle_removes_all():
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    for one, other in ("bc", "cd", "db"):
        book.remove(one, other, seen)
    assert book.names == "a"


def test_removal_chain_resolves_from_start():
    book = Book(ANYONE, members="bcde")
    seen = book.heads()
    for one, other in ("ab", "bc", "cd", "de"):
        book.remove(one, other, seen)
    assert book.names == "ace"  # b's word against c does not count, so c's against d does, so d's against e does not


def test_removed_adder_voids_concurrent_additions():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    last = book.add("b", "d", seen)
    last = book.add("d", "e", [last])
    last = book.label("e", "eve", [last])
    last = book.remove("e", "c", [last])
    assert book.names == "abde"
    book.remove("c", "b", seen)
    # A member that was added by a member being removed may not remove the remover, unless in a cycle.
    assert did("e") not in book.view.members and did("d") not in book.view.members
    assert book.view.removed[did("d")] == book.view.removed[did("e")] == 0
    assert not may_post(book.view, did("d"), 1)
    book.refuses("a", ADD, book.addition("a", "d"))


def test_late_puppet_cannot_remove():
    book = Book(ANYONE, members="bcf")
    seen = book.heads()
    last = book.add("b", "d", seen)
    book.remove("d", "f", [last])
    book.remove("c", "b", seen)
    assert book.names == "acf"


def test_twice_added_member_stays():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    first = book.add("b", "d", seen)
    book.add("c", "d", seen)
    book.label("d", "dora", [first])
    book.remove("a", "b", seen)
    assert book.names == "acd"
    member = book.view.members[did("d")]
    assert (member.label, member.added_by) == ("dora", did("c"))


def test_second_addition_counts_though_the_first_is_void():
    book = Book(ANYONE, members="b")
    seen = book.heads()
    removal = book.remove("b", "a", seen)
    pawn = book.add("c", "d", [book.add("a", "c", seen)])
    void = book.add("d", "e", [pawn])
    assert did("e") in book.view.former, "void: a was removed before it added c"
    event = book.make("b", ADD, book.addition("b", "e"), [removal], lamport=void.lamport + 1)
    check_control(event, book.control)
    log_of(book.control).view()  # to which the event is applied
    grown, view = extend_control(book.control, event)
    assert did("e") in view.members and view == ViewBuilder.of(grown).view(heads_of(grown))


def test_what_depends_on_a_void_transfer_is_void():
    book = Book(ADMINS, members="bc")
    seen = book.heads()
    transfer = book.role("a", "b", "owner", seen, after=1)
    book.leave("b", seen)
    event = book.make("b", ROLE, {"member": did("a"), "role": "admin", "after": 1}, [transfer], lamport=9)
    check_control(event, book.control)
    log_of(book.control).view()  # to which the event is applied
    grown, view = extend_control(book.control, event)
    assert view.members[did("a")].role == "owner" and view == ViewBuilder.of(grown).view(heads_of(grown))


def test_leaver_keeps_concurrent_events():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    book.leave("b", [book.add("b", "d", seen)])
    last = book.label("c", "cecil", seen)
    assert book.names == "acd" and did("b") not in book.view.removed
    assert book.view.former[did("b")].until == 2
    book.remove("c", "b", [last])
    assert book.names == "ac", "to have left does not help against a removal"
    assert book.view.former[did("b")].until == 2


def test_vote_of_removed_member_is_void():
    book = Book(members="bcde")
    book.vote("b", "e")
    book.vote("a", "b")
    book.vote("c", "b")
    assert quorum_met(book.view, votes_for(book.control, book.view, did("b")))
    book.remove("d", "b")
    assert votes_for(book.control, book.view, did("e")) == set()
    book.vote("c", "e")
    book.refuses("c", REMOVE, {"member": did("e"), "after": 0})
    book.vote("d", "e")
    book.remove("c", "e")
    assert book.names == "acd"


def test_mutual_quorum_removals_both_hold():
    book = Book(members="bcd")
    seen = book.heads()
    one = book.vote("b", "c", [book.vote("a", "c", seen)])
    other = book.vote("c", "b", [book.vote("d", "b", seen)])
    book.remove("b", "c", [one])
    book.remove("c", "b", [other])
    assert book.names == "ad"


def test_removal_falls_with_its_vote():
    book = Book(members="bcdef")
    seen = book.heads()
    vote = book.vote("c", "e", seen)
    vote = book.vote("d", "e", [vote])
    book.remove("d", "e", [vote])
    assert did("e") not in book.view.members
    other = book.vote("a", "c", seen)
    other = book.vote("b", "c", [other])
    book.remove("b", "c", [other])
    assert book.names == "abdef", "c is out and had not been seen to vote, so d was alone"


def test_voided_vote_leaves_enough_votes():
    book = Book(members="bcdef")
    seen = book.heads()
    vote = seen[0]
    for voter in "cdf":
        vote = book.vote(voter, "e", [vote])
    book.remove("d", "e", [vote])
    other = book.vote("b", "c", [book.vote("a", "c", seen)])
    book.remove("b", "c", [other])
    assert book.names == "abdf"


def test_merged_votes_count_together():
    book = Book(Policy(quorum=2), members="bcd")
    seen = book.heads()
    one, other = book.vote("a", "d", seen), book.vote("b", "d", seen)
    body = {"member": did("d"), "after": 0}
    book.refuses("a", REMOVE, body, [one])
    book.refuses("b", REMOVE, body, [other])
    book.remove("a", "d", [one, other], after=2)
    book.remove("b", "d", [book.label("b", "bob", [one, other])], after=9)
    assert book.names == "abc" and book.view.removed == {did("d"): 2}, "the strictest counts"


def test_demoted_admin_concurrent_actions_are_void():
    book = ruled()
    seen = book.heads()
    book.remove("b", "d", seen)
    book.role("b", "e", "reader", seen)
    book.label("b", "bob", seen)
    book.add("b", "g", seen)
    book.role("a", "b", "writer", seen, after=5)
    view = book.view
    assert book.names == "abcdefg", "what every member may do stays"
    assert view.members[did("e")].role == "writer" and view.members[did("b")].label == "bob"
    assert view.members[did("b")].role == "writer"


def test_self_promotion_loses_to_concurrent_demotion():
    book = ruled()
    book.role("d", "d", "reader")
    seen = book.heads()
    book.role("b", "d", "reader", seen, after=2)
    book.role("d", "d", "writer", [book.label("d", "dora", seen)])
    assert book.view.members[did("d")].role == "reader" and book.view.members[did("d")].label == "dora"


def test_actions_by_void_right_are_void():
    """The owner is out, and its promotion of an admin was unseen: the admin's actions are void with it."""
    book = Book(RULED_ANYONE, members="bcd")
    seen = book.heads()
    made = book.role("a", "b", "admin", seen, after=0)
    book.role("b", "c", "reader", [made], after=0)
    assert book.view.members[did("c")].role == "reader"
    book.remove("d", "a", seen)
    assert book.names == "bcd"
    assert book.view.members[did("c")].role == "writer" and book.view.members[did("b")].role == "writer"


def test_later_concurrent_role_wins():
    book = ruled()
    seen = book.heads()
    one = book.role("b", "d", "reader", seen, after=3)
    two = book.role("c", "d", "writer", seen, after=3)
    assert one.lamport == two.lamport
    last = max((one, two), key=lambda event: event.id)
    assert book.view.members[did("d")].role == last.body["role"] and book.view.members[did("d")].role_by == last.author
    book.role("a", "d", "admin", [one], after=3)
    assert book.view.members[did("d")].role == "admin", "the author that has seen the other"


def test_concurrent_equal_names_are_allowed():
    book = Book(members="bc")
    seen = book.heads()
    book.label("b", "x", seen)
    book.label("c", "X", seen)
    assert {member.label for member in book.view.members.values()} == {"a", "x", "X"}
    book.label("b", "y")


# --- a whole past at once: what comes next is judged as if all had come one by one (`refuses` asks both) --------------


def test_event_after_unseen_removal():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    book.remove("b", "c", seen)
    book.say("c", ADD, book.addition("c", "d"), seen, lamport=99)
    book.refuses("d", LABEL, {"label": "dora"})


def test_event_before_concurrent_removal():
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    book.add("c", "d", seen)
    book.say("b", REMOVE, {"member": did("c"), "after": 9}, seen, lamport=99)
    book.refuses("d", LABEL, {"label": "dora"})


def test_late_older_name():
    book = Book(members="bc")
    seen = book.heads()
    book.label("b", "x", [book.label("c", "q", seen)])
    book.label("b", "y", seen)
    assert book.view.members[did("b")].label == "x"
    book.refuses("c", LABEL, {"label": "x"})
    book.label("c", "y")
