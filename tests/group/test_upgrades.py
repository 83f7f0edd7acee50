"""Upgrades of the keys: who may agree, when one is final, and that none is ever taken back."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.membership_book import ADMINS, ANYONE, FLAT, Book, did
from zerochat.errors import Malformed, Refused
from zerochat.group.event_log.event import UPGRADE, Event
from zerochat.group.membership import Policy, check_all, check_control, resolve_view, upgrades
from zerochat.group.membership.log import MembershipLog
from zerochat.group.membership.past_view import PastViews

THREE = Policy(quorum=3)


class Upgradable(Book):
    """The membership events of a group with pairwise keys, unless others are named."""

    def __init__(self, policy=FLAT, members="", **body):
        super().__init__(policy, members=members, body=body)

    def upgrade(self, author, seen=None, *, final=True, keys="dcgka"):
        return self.say(author, UPGRADE, {"keys": keys, "final": final}, seen)

    def refused(self, author, seen=None, *, final=True, keys="dcgka"):
        self.refuses(author, UPGRADE, {"keys": keys, "final": final}, seen)


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single", "sender-key"])
def test_older_keys_are_upgraded_once(keys):
    book = Upgradable(ANYONE, "bc", keys=keys)
    assert book.view.keys == keys
    book.upgrade("b")
    assert book.view.keys == "dcgka"
    book.refused("c")


@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key", "deniable", "x", ""])
def test_there_is_no_way_back(keys):
    book = Upgradable(ANYONE, "bc")
    book.upgrade("b")
    with pytest.raises(Malformed):
        check_control(book.make("b", UPGRADE, {"keys": keys, "final": True}), book.control)


def test_a_group_with_a_transparency_log_keeps_its_keys():
    Upgradable(ANYONE, "bc", keys="sender-key", accountability="tlog").refused("a")


def test_keys_that_heal_are_not_upgraded():
    Upgradable(ANYONE, "bc", keys="dcgka").refused("a")


def test_admins_decide_where_there_are_admins():
    book = Upgradable(ADMINS, "bcd")
    book.role("a", "b", "admin", after=0)
    book.refused("c")
    book.refused("z")
    book.upgrade("b")
    assert book.view.keys == "dcgka"


@pytest.mark.parametrize(
    ("policy", "members", "needed"), [(FLAT, "", 1), (FLAT, "bcd", 2), (THREE, "b", 2), (THREE, "bcd", 3)]
)
def test_a_flat_group_agrees_as_for_a_removal(policy, members, needed):
    book = Upgradable(policy, members)
    for count, author in enumerate("abc"[:needed], 1):
        assert upgrades.agreement_needed(book.view) == needed
        book.refused(author, final=count < needed)
        book.upgrade(author, final=count == needed)
        assert (book.view.keys == "dcgka") == (count == needed)
        assert len(upgrades.upgraders(book.control, book.view)) == count
        if count < needed:
            book.refused(author, final=False)  # once is enough
            book.refused(author)


def test_those_that_agree_concurrently_finish_together():
    book = Upgradable(FLAT, "bc")
    seen = book.heads()
    book.upgrade("a", seen, final=False)
    book.upgrade("b", seen, final=False)
    assert book.view.keys == "pairwise-multi" and upgrades.upgraders(book.control, book.view) == {did("a"), did("b")}
    book.refused("a", final=False)
    book.upgrade("a")
    assert book.view.keys == "dcgka"


def test_no_member_agrees_through_those_that_it_adds():
    """Their agreement counts once others have seen them, as their votes do."""
    book = Upgradable(THREE, "bcde")
    book.add("e", "f")
    book.add("e", "g")
    book.upgrade("f", final=False)
    book.upgrade("g", final=False)
    parties = MembershipLog(book.control).parties
    assert parties({did("e"), did("f"), did("g")}, did("e")) == {did("e")}
    book.refused("e")
    book.upgrade("e", final=False)
    book.refused("b", final=False)
    book.upgrade("b")  # it has seen all of them
    assert book.view.keys == "dcgka"


def test_members_that_another_one_added_agree_once_they_are_known():
    book = Upgradable(THREE, "b")
    book.add("b", "c")
    book.add("b", "d")
    for author in "cd":
        book.upgrade(author, final=False)
    book.upgrade("a")
    assert book.view.keys == "dcgka"


def test_an_agreement_is_counted_once(monkeypatch):
    """Every message asks while an upgrade is under way."""
    book, counted = Upgradable(THREE, "bcde"), []
    book.add("e", "f")
    log = MembershipLog(book.control)
    monkeypatch.setattr(PastViews, "parties", lambda *_: counted.append(1) or set())
    for _ in range(10):
        assert log.parties({did("e"), did("f")}, did("b")) == set()
    assert len(counted) == 1


def test_concurrent_upgrades_agree():
    book = Upgradable(ANYONE, "bc")
    seen = book.heads()
    events = [book.upgrade(author, seen) for author in "abc"]
    assert book.view.keys == "dcgka"
    book.refused("a")
    for one in events:
        assert (
            resolve_view(
                {name: event for name, event in book.control.items() if event not in events or event == one}
            ).keys
            == "dcgka"
        )


def test_members_that_left_have_not_agreed():
    book = Upgradable(FLAT, "bcd")
    book.upgrade("b", final=False)
    book.leave("b")
    book.refused("c")
    book.upgrade("c", final=False)
    book.upgrade("d")
    assert book.view.keys == "dcgka"


def test_no_removal_takes_an_upgrade_back():
    """Members may have posted under the new keys before the concurrent removal of its author arrives."""
    for policy in (ANYONE, ADMINS):
        book = Upgradable(policy, "bcd")
        if policy is ADMINS:
            book.role("a", "b", "admin", after=0)
        seen = book.heads()
        book.upgrade("b", seen)
        book.remove("a", "b", seen)
        assert did("b") not in book.view.members and book.view.keys == "dcgka"
        added = book.add("a", "e")
        assert book.view.keys == "dcgka" and resolve_view(check_all(book.control.values())).keys == "dcgka"
        assert added.id in book.control


def test_a_past_without_the_upgrade_keeps_the_old_keys():
    book = Upgradable(ANYONE, "bc")
    before = book.heads()
    upgrade = book.upgrade("b")
    beside = book.label("c", "carol", before)
    after = book.label("a", "alice")
    at = [upgrades.is_upgraded_at(book.control, [one.id]) for one in (before[0], beside, upgrade, after)]
    assert at == [False, False, True, True]
    assert not upgrades.is_upgraded_at(book.control, ["x" * 43])
    pending = Upgradable(FLAT, "bc")
    assert not upgrades.is_upgraded_at(pending.control, [pending.upgrade("b", final=False).id])


def test_the_past_is_searched_once():
    """Every unsigned post asks, and a member may send many."""
    book = Upgradable(ANYONE, "bc")
    upgrade = book.upgrade("b")

    class Searched(dict):
        searches = 0

        def items(self):
            self.searches += 1
            return super().items()

    control = Searched(book.control)
    assert upgrades.is_upgraded_at(control, [upgrade.id])
    once = control.searches
    assert all(upgrades.is_upgraded_at(control, [upgrade.id]) for _ in range(100)) and control.searches == once
    later = book.label("a", "alice")
    control[later.id] = later
    assert upgrades.is_upgraded_at(control, [later.id]) and control.searches == 2 * once


def test_malformed_upgrades_are_rejected():
    book = Upgradable(ANYONE, "bc")
    for body in ({}, {"keys": "dcgka"}, {"keys": "dcgka", "final": 1}, {"keys": "dcgka", "final": True, "more": 1}):
        with pytest.raises(Malformed):
            check_control(book.make("b", UPGRADE, body), book.control)


@st.composite
def histories(draw):
    """Random membership events and upgrades with random pasts."""
    policy = draw(st.sampled_from((ANYONE, FLAT, THREE, ADMINS)))
    book = Upgradable(policy, "bcd")
    dice = random.Random(draw(st.integers(0, 2**32)))
    for _ in range(draw(st.integers(1, 16))):
        seen = [event for event in book.heads() if dice.random() < 0.8] or book.heads()
        author, what = (
            dice.choice("abcdefg"),
            dice.choice(("upgrade", "upgrade", "remove", "vote", "add", "add", "role", "leave")),
        )
        try:
            if what == "upgrade":
                book.upgrade(author, seen, final=dice.random() < 0.6)
            elif what == "remove":
                book.remove(author, dice.choice("bcde"), seen)
            elif what == "vote":
                book.vote(author, dice.choice("bcde"), seen)
            elif what == "add":
                book.add(author, dice.choice("efg"), seen)
            elif what == "role":
                book.role(author, dice.choice("bcde"), dice.choice(("admin", "writer")), seen, after=0)
            else:
                book.leave(author, seen)
        except (Refused, Malformed):
            continue
    return book


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(histories(), st.integers(0, 2**32))
def test_upgrades_depend_on_the_event_set_only_and_are_never_undone(book, lot):
    order, todo, dice = [], list(book.control.values()), random.Random(lot)
    placed: set[str] = set()
    while todo:
        one = dice.choice([event for event in todo if placed.issuperset(event.deps)])
        order.append(one)
        placed.add(one.id)
        todo = [event for event in todo if event.id != one.id]
    assert resolve_view(check_all(order)) == book.view
    step: dict[str, Event] = {}
    log, upgraded = MembershipLog(step), False
    view = book.view
    for event in order:
        log.check(event)
        step = {**step, event.id: event}
        log.extend(event, step)
        view = log.view()
        assert view.keys in ("pairwise-multi", "dcgka") and not (upgraded and view.keys != "dcgka")
        upgraded = view.keys == "dcgka"
        assert upgraded == upgrades.is_upgraded_at(step, list(step))
    assert view == book.view
