"""The limit of members under concurrent additions: who has a seat, in any order of arrival."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.membership_book import ANYONE, FLAT, Book, did
from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, LABEL, LEAVE
from zerochat.group.membership import (
    ancestors,
    check_all,
    check_control,
    extend_control,
    has_seat_for,
    heads_of,
    log,
    resolve,
    resolve_view,
    rights,
    void_events,
)
from zerochat.group.membership.event_graph import EventGraph
from zerochat.group.membership.log import log_of
from zerochat.group.membership.past_view import steps_us
from zerochat.group.membership.resolve import ViewBuilder
from zerochat.limits import MEMBERS_MAX, MEMBERS_MAX_BY_PATH


def limit(patch, seats, reserve=0):
    patch.setitem(MEMBERS_MAX_BY_PATH, "mesh", seats)
    patch.setattr(rights, "SEATS_RESERVE", reserve)
    patch.setattr(resolve, "_views", resolve.RecentCache())
    patch.setattr(log, "_logs", resolve.RecentCache())


def arrive(book, dice, seats):
    """Take in these events in some causal order; the view after each is that of all at once."""
    waiting, arrived, view = list(book.control.values()), {}, book.view
    while waiting:
        event = dice.choice([event for event in waiting if all(dep in arrived for dep in event.deps)])
        check_control(event, arrived)
        arrived, view = extend_control(arrived, event)
        waiting.remove(event)
        assert view == ViewBuilder.of(arrived).view(heads_of(arrived)), "one at a time as all at once"
        assert len(view.members) <= seats
    return view


def test_concurrent_additions_do_not_exceed_the_seats():
    book = Book(ANYONE, members=[f"m{number}" for number in range(20)])
    before, seen = set(book.view.members), book.heads()
    firsts = [book.add("m0", f"s{number}", seen) for number in range(16)]
    for number in range(16, 256):  # each sybil adds others, beside all the rest
        book.add(f"s{number % 16}", f"s{number}", [firsts[number % 16]])
    view = resolve_view(book.control)
    assert len(view.members) == MEMBERS_MAX and before < view.members.keys()
    assert view == check_and_resolve(book)


def check_and_resolve(book):
    return resolve_view(check_all(book.control.values()))


@pytest.mark.parametrize("witness", ["a", "d", "b"])
def test_members_that_another_branch_saw_keep_their_seats(monkeypatch, witness):
    """Back-dated additions come after those that a member of another branch had seen when it added a member."""
    limit(monkeypatch, 12)
    book = Book(ANYONE, members="bcd")
    past = book.heads()
    for one in "efghi":
        book.add("c", one)
    book.add(witness, "j")
    settled = set(book.view.members) - ({did("j")} if witness == "b" else set())
    for number in range(30):
        book.add("b", f"s{number}", past)
    assert settled < book.view.members.keys() and len(book.view.members) == 12


def test_a_branch_competes_with_itself(monkeypatch):
    """Without other evidence, the first of each branch precede the many of one."""
    limit(monkeypatch, 8)
    book = Book(ANYONE, members="bcd")
    seen = book.heads()
    for number in range(6):
        book.add("b", f"s{number}", seen)
    book.add("c", "x", seen)
    book.add("d", "y", seen)
    book.add("c", "z", seen)
    inside = {
        name for name in ("y", "x", "z", *(f"s{number}" for number in range(6))) if did(name) in book.view.members
    }
    assert len(book.view.members) == 8 and "y" in inside and inside & {"x", "z"} and len(inside - {"x", "y", "z"}) <= 2


def test_without_a_seat_is_for_good(monkeypatch):
    """A freed seat is for those who are added then: those without one are no queue for it."""
    limit(monkeypatch, 5)
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    for number in range(4):
        book.add("b", f"s{number}", seen)
    inside = {number for number in range(4) if did(f"s{number}") in book.view.members}
    outside = sorted(set(range(4)) - inside)
    assert len(inside) == 2 and len(book.view.members) == 5
    assert all(book.view.former[did(f"s{number}")].until == 0 for number in outside)
    book.refuses(f"s{outside[0]}", LEAVE, {})
    book.refuses("a", ADD, book.addition("a", "x"))
    book.remove("a", f"s{min(inside)}")
    assert len(book.view.members) == 4 and not {did(f"s{number}") for number in outside} & book.view.members.keys()
    book.add("a", "x")
    assert did("x") in book.view.members and len(book.view.members) == 5
    book.refuses("a", ADD, book.addition("a", f"s{outside[0]}"))
    assert resolve_view(check_all(book.control.values())) == book.view


def test_what_a_member_without_a_seat_did_is_void(monkeypatch):
    limit(monkeypatch, 4)
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    book.add("b", "s", seen)
    added = book.heads()
    removal = book.remove("s", "c", added)
    book.add("c", "x", seen)
    book.add("a", "y", seen)
    assert did("y") in book.view.members, "the founder comes first"
    assert did("s") not in book.view.members and did("c") in book.view.members, "its removal is void"
    assert removal.id in book.control and len(book.view.members) == 4


def test_voided_additions_give_their_seats_back(monkeypatch):
    limit(monkeypatch, 5)
    book = Book(ANYONE, members="bc")
    seen = book.heads()
    for number in range(3):
        book.add("b", f"s{number}", seen)
    book.add("c", "x", seen)
    book.add("c", "y", seen)
    assert len({did("x"), did("y")} & book.view.members.keys()) == 1
    book.remove("a", "b", seen, after=0)
    assert {did("x"), did("y")} < book.view.members.keys() and len(book.view.members) == 4


# --- the reserve ----------------------------------------------------------------------------------------------------


def fill(book, adder, names):
    """Add these, each one by the one before."""
    for name in names:
        if not has_seat_for(book.view, did(adder)):
            book.refuses(adder, ADD, book.addition(adder, name))
            return
        book.add(adder, name)
        adder = name


def test_no_member_closes_the_group_to_newcomers_of_others(monkeypatch):
    limit(monkeypatch, 16, reserve=4)
    book = Book(ANYONE, members="bcd")
    fill(book, "b", [f"s{number}" for number in range(20)])
    assert len(book.view.members) == 12 and not has_seat_for(book.view, did("b"))
    for number in range(3):
        book.add("c", f"c{number}")
    book.refuses("c", ADD, book.addition("c", "more"))
    book.add("a", "e")
    assert len(book.view.members) == 16 and not has_seat_for(book.view, did("a"))


def test_all_seats_are_for_a_group_that_one_member_fills(monkeypatch):
    """The founder, or the one through whom all came in."""
    limit(monkeypatch, 8, reserve=4)
    book = Book(ANYONE, members="bcdefgh")
    assert len(book.view.members) == 8
    book = Book(ANYONE, members="b")
    book.add("b", "c")
    book.leave("a")
    for one in "defghi":
        book.add("b", one)
    assert len(book.view.members) == 8


def test_a_full_group_by_default():
    """64 seats: a member with its sybils leaves eight to the others."""
    book = Book(ANYONE, members="bc")
    fill(book, "b", [f"s{number}" for number in range(MEMBERS_MAX)])
    assert len(book.view.members) == MEMBERS_MAX - rights.SEATS_RESERVE
    book.add("c", "x")
    book.add("a", "y")
    assert len(book.view.members) == MEMBERS_MAX - rights.SEATS_RESERVE + 2


def test_a_ring_has_its_own_seats_after_concurrent_events(monkeypatch):
    """An addition is judged by the view of its past, which has the seats of the group's path, not those of a mesh."""
    limit(monkeypatch, 8)
    book = Book(ANYONE, members="bcdefghij", body={"path": "ring"})
    seen = book.heads()
    book.label("b", "one", seen)
    book.label("c", "two", seen)
    book.add("a", "x")
    past = book.heads()
    book.label("d", "three")
    book.add("b", "y", past)  # the members judge it by its past, as well as a joiner
    assert {did("x"), did("y")} < check_and_resolve(book).members.keys()


# --- any history ----------------------------------------------------------------------------------------------------

CROWD = "abcdefghijklmnopqrst"
NAMES = {did(one): one for one in CROWD}


def crowd(dice):
    """Many additions beside each other, some departures and renames, with random pasts."""
    book = Book(ANYONE, members="bc")
    for _ in range(dice.randrange(30)):
        names = sorted(book.control, key=lambda name: (book.control[name].lamport, name))
        past = set(names)
        if dice.random() < 0.8:
            past = ancestors(book.control, [dice.choice(names[-12:]) for _ in range(dice.randint(1, 3))])
        known = {name: book.control[name] for name in past}
        seen = [book.control[name] for name in heads_of(known)]
        members = [NAMES[one] for one in resolve_view(known).members] or ["a"]
        author, other = dice.choice(members), dice.choice(members)
        with suppress(Refused):
            match dice.choice("++++++-<="):
                case "+":
                    book.add(author, dice.choice(CROWD), seen)
                case "-":
                    book.remove(author, other, seen, after=1)
                case "<":
                    book.leave(author, seen)
                case "=":
                    book.label(author, f"new {author}", seen)
    return book


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.integers(3, 6), st.integers(0, 2), st.randoms(use_true_random=False))
def test_seats_are_independent_of_order(seats, reserve, dice):
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, seats, reserve)
        book = crowd(dice)
        assert arrive(book, dice, seats) == arrive(book, dice, seats) == check_and_resolve(book)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.randoms(use_true_random=False))
def test_no_attack_of_one_branch_takes_a_settled_seat(dice):
    """Any additions by b and its sybils, with any past: no member loses a seat that the founder, or another branch than
    its own, had in the past of an addition."""
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, 10)
        book = Book(ANYONE, members="bcd")
        for number in range(5):
            adder = dice.choice(sorted(name for name in "acd" + "01234"[:number]))
            book.add(adder, str(number))
        book.add("a", "z")
        settled = set(book.view.members)
        sybils = ["b"]
        for number in range(dice.randrange(20)):
            adder, name = dice.choice(sybils), f"s{number}"
            names = sorted(book.control, key=lambda one: (book.control[one].lamport, one))
            seen = [book.control[dice.choice(names)]]
            with suppress(Refused):
                book.add(adder, name, seen)
                sybils.append(name)
        assert settled <= book.view.members.keys() and len(book.view.members) <= 10


def test_a_crowded_group_is_resolved_anew_and_that_is_charged():
    """Once additions have exceeded the seats, each event shows what its author had seen, and so may move one."""
    book = Book(ANYONE, members="bc")
    latest = [book.heads(), book.heads()]
    for number in range(80):  # two chains of additions beside each other
        latest[number % 2] = [book.add("b", f"s{number}", latest[number % 2])]
    for author, kind, body in (
        ("b", LABEL, {"label": "first"}),  # it is not known yet
        ("c", LABEL, {"label": "second"}),
        ("c", LEAVE, {}),
        ("a", ADD, book.addition("a", "new")),
    ):
        event = book.make(author, kind, body)
        assert author == "b" or log_of(book.control).work_us(event) > log.RESOLVE_WORK_US * len(book.control)
        check_control(event, book.control)
        book.control, view = extend_control(book.control, event)
        assert view == ViewBuilder.of(book.control).view(heads_of(book.control)) and len(view.members) <= MEMBERS_MAX
    assert did("new") in resolve_view(book.control).members


def chain_of_removals():
    """Each member of a chain removes the next one before it sees its own removal: each takes a round. And the last
    addition."""
    book = Book(ANYONE, members="s")
    latest, removals = book.heads(), []
    for number in range(40):
        latest = [book.add("s", f"x{number}", [*latest, *removals[number - 9 : number - 8]])]
        if number:
            removals.append(book.remove(f"x{number - 1}", f"x{number}", latest))
    return book, latest


def test_revocations_that_depend_on_each_other_are_charged():
    book, latest = chain_of_removals()
    book.control, _ = extend_control(book.control, book.make("x38", LABEL, {"label": "x"}, latest))
    event = book.make("x39", LABEL, {"label": "y"}, latest)
    charged_us, graphs, whole = log_of(book.control).work_us(event), [], EventGraph.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EventGraph, "__init__", lambda self, *about: graphs.append(self) or whole(self, *about))
        check_control(event, book.control)
        extend_control(book.control, event)
    steps = sum(graph.steps for graph in graphs)
    assert steps > 20 * void_events.ROUND_STEPS
    assert charged_us >= log.RESOLVE_WORK_US * len(book.control) + steps_us(steps, len(book.control))


@pytest.mark.parametrize("witness", ["a", "d"])
def test_any_event_of_another_branch_shows_what_it_had_seen(witness):
    """In a group where removals take a quorum, no member can make old additions of another void by back-dated ones."""
    book = Book(FLAT, members="bcd")
    latest = book.heads()
    for number in range(40):
        book.add("c", f"x{number}")
    book.label(witness, "new name")
    settled = set(book.view.members)
    for number in range(50):
        latest = [book.add("b", f"s{number}", latest)]
    assert settled < book.view.members.keys() and len(book.view.members) == MEMBERS_MAX
