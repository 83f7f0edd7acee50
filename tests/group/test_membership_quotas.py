"""Membership: equivocation, and the quotas of branches and authors."""

from contextlib import suppress

import pytest
from msgspec.structs import replace

from tests.support.membership_book import ANYONE, FLAT, Book, did, seed
from zerochat.errors import Malformed, Refused
from zerochat.group.event_log.event import ADD, LABEL, LEAVE, REMOVE, ROLE, VOTE
from zerochat.group.membership import (
    check_all,
    check_control,
    extend_control,
    heads_of,
    quota,
    resolve_view,
)
from zerochat.group.membership.resolve import ViewBuilder

# --- equivocation and limits ----------------------------------------------------------------------------------------


def test_two_events_at_one_position_prove_fork():
    book = Book(members="bcdef")
    seen = book.heads()
    for author in "bcdef":
        one = book.say(author, LABEL, {"label": author * 2}, seen, seq=4)
        assert did(author) not in book.view.forked
        two = book.say(author, LABEL, {"label": author * 3}, seen, seq=4, lamport=50)
        assert book.view.forked[did(author)] == tuple(sorted((one.id, two.id)))


def is_full(book, author):
    with pytest.raises(Refused, match="too many"):
        check_control(book.make(author, LABEL, {"label": "more"}), book.control)
    assert check_all(book.control.values()) == book.control


def test_author_quota_is_enforced(monkeypatch):
    monkeypatch.setattr(quota, "AUTHOR_CONTROL_MAX", 4)
    book = Book(ANYONE, members="bcd")  # a has made four
    book.refuses("a", LABEL, {"label": "x"})
    book.label("b", "x")
    book.remove("a", "c")
    book.remove("a", "d")
    book.leave("a")
    assert book.names == "b"


def test_group_quota_still_allows_leaving(monkeypatch):
    monkeypatch.setattr(quota, "CONTROL_MAX", 4)
    monkeypatch.setattr(quota, "RESERVE", 0)
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    is_full(book, "b")
    book.leave("b", seen)
    book.remove("a", "c", seen)
    event = book.make("a", REMOVE, {"member": did("b"), "after": 0}, seen)
    check_control(event, book.control)
    book.control[event.id] = event
    assert check_all(book.control.values()) == book.control


def test_events_without_causes_are_rejected():
    book = Book(members="b")
    event = replace(book.make("b", LEAVE, {}), deps=("q" * 43,)).signed(seed("b"))
    for loose in (event, replace(event, deps=()).signed(seed("b"))):
        with pytest.raises(Refused):
            check_control(loose, book.control)
        with pytest.raises(Refused):
            check_all([*book.control.values(), loose])
    with pytest.raises(Refused):
        resolve_view({})
    with pytest.raises(Refused):
        check_control(book.control[book.id], book.control)


def test_concurrent_own_events_prove_fork():
    book = Book(members="bcd")
    seen = book.heads()
    one, other = book.label("b", "x", seen), book.label("b", "y", seen)
    assert (one.seq, other.seq) == (1, 2) and book.view.forked == {did("b"): tuple(sorted((one.id, other.id)))}
    book.label("c", "z", seen)
    book.label("c", "q")
    assert book.view.forked.keys() == {did("b")}, "an author that continues its own chain is honest"
    one, other = book.add("d", "e", seen), book.add("d", "e", seen)
    assert one.seq != other.seq and book.view.forked[did("d")] == tuple(sorted((one.id, other.id)))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (LEAVE, {}),
        (VOTE, {"member": did("c")}),
        (REMOVE, {"member": did("c"), "after": 0}),
        (ROLE, {"member": did("b"), "role": "reader", "after": 1}),
        (LABEL, {"label": "x"}),
    ],
)
def test_unknown_body_fields_are_rejected(kind, body):
    book = Book(members="bc")
    if kind == REMOVE:
        book.vote("a", "c")
        book.vote("b", "c")
        book.seqs["b"] = 0
    check_control(book.make("b", kind, body, seq=1), book.control)
    with pytest.raises(Malformed):
        check_control(book.make("b", kind, {**body, "more": "x"}, seq=1), book.control)
    with pytest.raises(Malformed):
        check_control(book.make("a", ADD, {**book.addition("a", "d"), "more": "x"}), book.control)
    with pytest.raises(Malformed):
        Book(body={"more": "x"})


def test_small_records_are_limited():
    book = Book(members="b")
    event = book.make("b", LABEL, {"label": "\U0001f600" * 64})
    full = replace(event, conc=("q" * 43,) * 16).signed(seed("b"))
    check_control(full, book.control)
    long = replace(event, conc=("q" * 43,) * 60).signed(seed("b"))
    with pytest.raises(Malformed, match="too long"):
        check_control(long, book.control)


def test_first_vote_is_always_accepted(monkeypatch):
    monkeypatch.setattr(quota, "AUTHOR_CONTROL_MAX", 4)
    monkeypatch.setattr(quota, "CONTROL_MAX", 4)
    book = Book(members="bcd")
    book.vote("a", "d")
    with pytest.raises(Refused, match="too many"):
        book.vote("a", "d")
    book.vote("b", "d")
    book.remove("a", "d")
    assert book.names == "abc" and check_all(book.control.values()) == book.control


def test_removal_by_puppets_is_void_without_concurrent_events():
    book = Book(members="bd")
    book.add("b", "c")
    book.vote("b", "d")
    book.vote("c", "d")
    grown, view = extend_control(dict(book.control), book.remove("b", "d"))
    assert did("d") in view.members and view == ViewBuilder.of(grown).view(heads_of(grown))


def test_branch_quota_is_spent_by_those_that_a_member_has_added(monkeypatch):
    monkeypatch.setattr(quota, "BRANCH_MAX", 12)
    monkeypatch.setattr(quota, "RESERVE", 2)
    book = Book(ANYONE, members="bc")
    book.add("b", "d")
    book.add("d", "e")
    for number in range(10):
        book.label("de"[number % 2], f"x{number}")
    is_full(book, "d")
    is_full(book, "e")
    book.label("b", "reserve")
    is_full(book, "b")
    for name in ("y", "z", "w"):
        book.label("c", name)
    book.add("c", "f")


def test_branch_recovers_when_its_abuser_is_removed(monkeypatch):
    monkeypatch.setattr(quota, "BRANCH_MAX", 12)
    monkeypatch.setattr(quota, "RESERVE", 1)
    book = Book(ANYONE, members="b")
    book.add("b", "c")
    for number in range(11):
        book.label("c", f"x{number}")
    is_full(book, "b")
    book.remove("a", "c")
    for number in range(9):  # 11 renames and the admission count a quarter: three
        book.label("b", f"y{number}")
    is_full(book, "b")


def test_a_full_group_leaves_each_member_its_reserve(monkeypatch):
    monkeypatch.setattr(quota, "CONTROL_MAX", 6)
    monkeypatch.setattr(quota, "RESERVE", 2)
    book = Book(ANYONE, members="bc")
    for number in range(3):
        book.label("b", f"x{number}")
    is_full(book, "b")
    book.add("c", "d")
    book.label("c", "z")
    is_full(book, "c")


def test_what_members_accept_in_a_full_group_a_joiner_accepts(monkeypatch):
    """Removals of members that are gone already count for the group, though each author may make them once."""
    for name, limit in {"CONTROL_MAX": 8, "RESERVE": 1}.items():
        monkeypatch.setattr(quota, name, limit)
    book = Book(ANYONE, members="bcdef")
    seen = book.heads()
    for author in "abcdef":
        for one in "bcdef":
            if one != author:
                book.remove(author, one, seen)
    assert len(book.control) > 30
    assert check_all(book.control.values()) == book.control


def test_members_and_joiners_have_one_limit_for_all_events(monkeypatch):
    monkeypatch.setattr(quota, "RECEIVED_MAX", 9)
    book = Book(ANYONE, members="bcd")
    for number in range(5):
        book.label("b", f"x{number}")
    is_full(book, "b")
    is_full(book, "c")
    book.leave("c")
    book.remove("a", "d")
    assert check_all(book.control.values()) == book.control and book.names == "ab"
    event = book.make("b", LABEL, {"label": "more"})
    with pytest.raises(Refused, match="too many"):
        check_all([*book.control.values(), event])


@pytest.mark.parametrize("first", "bc")
def test_a_member_that_two_have_added_fills_neither_branch_for_a_joiner(first, monkeypatch):
    """Whose branch it belongs to depends on the order of arrival."""
    book = Book(ANYONE, members="bc")
    seen, other = book.heads(), "c" if first == "b" else "b"
    added, past = [book.add(first, "x", seen)], seen
    book.add(other, "x", seen)
    for number in range(6):
        added = [book.label("x", f"x{number}", added)]
        past = [book.label(other, f"y{number}", past)]
    for name, limit in {"BRANCH_MAX": 8, "RELAYED_MAX": 8, "RESERVE": 0}.items():
        monkeypatch.setattr(quota, name, limit)
    member = quota.EventQuota()
    for event in book.control.values():
        member.check(event)
        member.add(event)
    assert check_all(book.control.values()) == book.control


def test_a_relayed_event_counts_in_its_own_past(monkeypatch):
    monkeypatch.setattr(quota, "AUTHOR_CONTROL_MAX", 4)
    monkeypatch.setattr(quota, "RELAYED_BRANCH_MAX", 5)
    book = Book(ANYONE, members="bc")
    book.add("b", "d")
    seen = book.heads()
    for branch in "xy":
        past = seen
        for number in range(3 if branch == "x" else 2):
            event = book.make("b", LABEL, {"label": f"{branch}{number}"}, past)
            exceeds = branch == "y"
            if exceeds:  # from its author never; from one of its branch while that has room
                for sender in ("", did("b"), *([did("d")] if number else [])):
                    with pytest.raises(Refused, match="too many"):
                        check_control(event, book.control, sender)
            for sender in [did("c")] if number else "cd":
                assert check_control(event, book.control, sender) == exceeds
            book.control[event.id] = event
            past = [event]
    assert check_all(book.control.values()) == book.control
    full = [one for one in book.heads() if one.body["label"] == "x2"]
    for past in (full, book.heads()):
        with pytest.raises(Refused, match="too many"):
            check_control(book.make("b", LABEL, {"label": "more"}, past), book.control, did("c"))


def test_sybils_that_replace_each_other_have_no_reserve(monkeypatch):
    """Each adds the next one and leaves: the branch is full at some time, and stays so."""
    monkeypatch.setattr(quota, "BRANCH_MAX", 16)
    book = Book(members="bc")

    def take_turns():
        last = "b"
        for number in range(200):
            book.add(last, f"s{number}")
            if last != "b":
                book.leave(last)
            last = f"s{number}"

    with pytest.raises(Refused):
        take_turns()
    assert len(book.control) < 16 * quota.DEPARTED_WEIGHT * 3
    book.add("c", "d")
    check_all(book.control.values())


def test_votes_of_sybils_count_for_their_branch(monkeypatch):
    """One generation of Sybils after the other votes about all others and leaves."""
    monkeypatch.setattr(quota, "BRANCH_MAX", 32)
    book = Book(members="bc")

    def vote_and_leave(number):
        sybils = [f"s{number}{one}" for one in "xyz"]
        for one in sybils:
            book.add("b", one)
        for one in sybils:
            for other in {*sybils, "a", "b", "c"} - {one}:
                book.vote(one, other)
        for one in sybils:
            book.leave(one)

    def go_on():
        for number in range(40):
            vote_and_leave(number)

    with pytest.raises(Refused):
        go_on()
    assert len(book.control) < 32 * quota.DEPARTED_WEIGHT * 3
    for voter in "ac":
        book.vote(voter, "b")
    check_all(book.control.values())


SMALL = {"CONTROL_MAX": 128, "BRANCH_MAX": 16, "RELAYED_BRANCH_MAX": 32, "RESERVED_BRANCH_MAX": 48}
"""As by default, a branch has an eighth of the events of a group; all is 32 times smaller."""


def accuse(book, adder, policy):
    """Sybils spend their reserves on votes about each other; or some of them, beside each other, remove the same
    ones, generation after generation."""
    sybils = [f"s{number}" for number in range(14 if policy is FLAT else 5)]
    for one in sybils:
        book.add(adder, one)
    for number in range(1 if policy is FLAT else 12):
        targets = sybils if policy is FLAT else [f"t{number}{one}" for one in range(4)]
        with suppress(Refused):
            for one in {*targets} - {*sybils}:
                book.add(adder, one)
        seen = book.heads()
        for author in sybils:
            last = seen
            for other in {*targets} - {author}:
                with suppress(Refused):
                    last = [book.remove(author, other, last) if policy is ANYONE else book.vote(author, other, last)]


@pytest.mark.parametrize("policy", [ANYONE, FLAT])
@pytest.mark.parametrize("adder", "bm")
def test_sybils_that_accuse_each_other_close_no_group(policy, adder, monkeypatch):
    """Removals of members that others had removed counted for no branch, and each Sybil had a reserve of its own."""
    for name, limit in SMALL.items():
        monkeypatch.setattr(quota, name, limit)
    book = Book(policy, members="bc")
    book.add("b", "d")
    if adder == "m":
        book.add("b", "m")
    accuse(book, adder, policy)
    for author in "ac":
        book.add(author, f"friend of {author}")
        book.label(f"friend of {author}", f"new friend of {author}")
    for author in "acd" if adder == "m" else "ac":  # d shares the branch of b with m and its Sybils
        book.label(author, f"new {author}")
        if policy is ANYONE:
            book.remove(author, f"s{'acd'.index(author)}")
        else:
            book.vote(author, adder)
    book.leave("d")
    assert check_all(book.control.values()) == book.control


def test_a_branch_recovers_when_those_who_removed_others_are_removed(monkeypatch):
    for name, limit in SMALL.items():
        monkeypatch.setattr(quota, name, limit)
    book = Book(ANYONE, members="bc")
    book.add("b", "d")
    accuse(book, "b", ANYONE)
    monkeypatch.setattr(quota, "RESERVE", 0)
    is_full(book, "d")
    for number in range(5):
        book.remove("d", f"s{number}")
    book.label("d", "x")
    assert check_all(book.control.values()) == book.control


def test_late_events_of_a_former_member_weigh_the_same_in_any_order(monkeypatch):
    """Those that came after its departure counted a quarter for its branches, and wholly for the group."""
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    removal = book.remove("c", "b")
    past = seen
    for number in range(8):
        past = [book.label("b", f"x{number}", past)]
    events = list(book.control.values())
    first, last = quota.EventQuota(events), quota.EventQuota([*(one for one in events if one is not removal), removal])
    assert first.all.weight == last.all.weight == 4
