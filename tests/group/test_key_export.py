"""Exported secrets: all members prefer the same, no former member knows it, and joins seldom change it."""

import random
from itertools import pairwise
from types import SimpleNamespace

import pytest

from zerochat.group.key_agreement.erasure import OPERATION_MS, erase_expired
from zerochat.group.key_agreement.export import EXPORTED_MAX, preferred, secret_of, with_exported
from zerochat.group.key_agreement.key_schedule import exported
from zerochat.group.key_agreement.state import Keys, Membership

NOW = 1_800_000_000_000


class History:
    """Updates, each for the members at its heads, which are named by its place."""

    def __init__(self):
        self.audiences, self.events = {}, []

    def update(self, members, name=None):
        heads = (f"heads {len(self.events)}",)
        self.audiences[heads] = frozenset(members)
        self.events.append(SimpleNamespace(id=name or f"{random.Random(len(self.events)).random()}", control=heads))
        return self.events[-1]

    def view(self, members):
        return Membership(frozenset(members), (), self.audiences.__getitem__, exports=True)

    def known(self, events, members, at=NOW):
        found = {}
        for event in events:
            found = with_exported(found, event, event.id.encode(), self.view(members), at)
        return found


def circle(size, start=0):
    return [f"m{number}" for number in range(start, start + size)]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_in_which_updates_come_does_not_matter(seed):
    history, dice = History(), random.Random(seed)
    for _ in range(40):
        history.update(circle(dice.randrange(20, 31)))
    view, orders = history.view(circle(30)), [[*history.events] for _ in range(4)]
    for order in orders:
        dice.shuffle(order)
    found = [history.known(order, circle(30)) for order in orders]
    assert len({preferred(one, view) for one in found}) == 1 and len(found[0]) == EXPORTED_MAX
    best = preferred(found[0], view)[0]
    assert len(history.audiences[found[0][best].control]) > 27, "most members know it"


def test_what_a_former_member_knows_is_not_used():
    history = History()
    before, after = history.update(circle(30)), history.update(circle(29))
    known = history.known([before, after], circle(30))
    assert preferred(known, history.view(circle(30)))[0] == before.id
    rest = history.view(circle(29))
    assert preferred(known, rest) == (after.id,)
    assert secret_of(known, rest, before.id) == b"" and secret_of(known, rest, "unknown") == b""
    assert secret_of(known, rest, after.id) == exported(after.id.encode())
    assert [*with_exported(known, after, b"", rest, NOW)] == [after.id], "nor is it kept"


def test_few_joins_change_what_is_preferred():
    history, chosen, known = History(), [], {}
    for size in range(25, 301):
        event = history.update(circle(size))
        known = with_exported(known, event, b"", history.view(circle(size)), NOW)
        chosen.append(preferred(known, history.view(circle(size)))[0])
    changes = sum(one != other for one, other in pairwise(chosen))
    assert changes < len(chosen) // 3
    assert len(history.audiences[known[chosen[-1]].control]) >= 256, "and one that many members lack is given up"


def test_it_is_erased_after_a_time():
    history = History()
    keys = Keys("g", "me", exported=history.known([history.update(["me"])], ["me"]))
    assert erase_expired(keys, NOW + OPERATION_MS - 1).exported == keys.exported
    assert not erase_expired(keys, NOW + OPERATION_MS).exported
    assert not erase_expired(keys, NOW - OPERATION_MS).exported, "the clock was set back"


def test_it_is_not_shown():
    history = History()
    known = history.known([history.update(["me"], "an update")], ["me"])
    assert repr(known["an update"].secret) not in repr(known) and repr(known["an update"].control) in repr(known)
