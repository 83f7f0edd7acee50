"""A second opinion on what somebody has handed over: who is asked, what comes of it, and what a person is told."""

import pytest
from msgspec.structs import replace

from tests.group.test_history import Cut, forged
from zerochat.agent.views.delivery import differs
from zerochat.group.event_log import log
from zerochat.group.notifications import Differs
from zerochat.group.sync import corroboration
from zerochat.presentation.delivery import news


@pytest.fixture
def world():
    """n0 has spoken and is gone; n1 and n3 have heard it, and n2 has it from one of them."""
    world = Cut(4)
    world.bring_in("n1", "n2", "n3")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two", "three")
    world.run(for_ms=200)
    assert world.texts("n3") == ["one", "two", "three"] and world.texts("n2") == []
    return world


def second(world, position):
    return corroboration.second_of(world.nodes["n2"].agent.groups[world.id], world.did("n0"), position)


def test_another_member_is_asked_whether_it_has_the_same(world):
    world.kill("n0")
    assert world.run(lambda: world.texts("n2", vouched=True) == ["one", "two", "three"], for_ms=60_000)
    place = world.chain("n2", "n0")
    assert not second(world, place.seq), "not before it was asked"
    assert world.run(lambda: second(world, place.seq), for_ms=900_000)
    others = {world.did("n1"), world.did("n3")}
    assert {place.by, second(world, place.seq)} == others
    assert second(world, place.seq - 2) and not second(world, place.seq + 1), "and for all that leads up to it"
    assert world.texts("n2", vouched=True) == ["one", "two", "three"], "it is not the author's word for that"
    # Once is enough.
    asked = world.nodes["n2"].agent.groups[world.id].seconds[world.did("n0")].asked
    world.run(for_ms=120_000)
    assert world.nodes["n2"].agent.groups[world.id].seconds[world.did("n0")].asked == asked


def test_who_is_in_quarantine_is_no_second(world):
    world.kill("n0")
    assert world.run(lambda: world.texts("n2", vouched=True) == ["one", "two", "three"], for_ms=60_000)
    place = world.chain("n2", "n0")
    (other,) = {world.did("n1"), world.did("n3")} - {place.by}
    turn = world.turn("n2")
    turn.edit(world.id, quarantine=(other,))
    corroboration.seek(turn, world.id)
    assert not turn.group(world.id).errands
    one = turn.group(world.id).seconds[world.did("n0")]
    turn.edit(world.id, seconds={world.did("n0"): replace(one, member=other)})
    assert not corroboration.second_of(turn.group(world.id), world.did("n0"), place.seq)


def test_nobody_is_left_to_ask(world):
    world.kill("n0")
    world.kill("n3")
    assert world.run(lambda: world.texts("n2", vouched=True) == ["one", "two", "three"], for_ms=60_000)
    world.run(for_ms=60_000)
    assert not second(world, 1)


def test_who_has_something_else_there_is_named_and_so_is_who_has_handed_it_over(monkeypatch):
    world = Cut(4)
    world.bring_in("n1", "n2", "n3")
    author, liar = world.did("n0"), world.did("n1")
    turn = world.turn("n2")
    for event in forged(world, "n2", "n1", author, ["never", "nor this"]):
        log.hear_shared(turn, world.id, liar, event)
    corroboration.soon(turn, world.id)
    world.perform("n2", turn)
    monkeypatch.setattr(world, "_accused", lambda node, notice: None)  # here somebody does break the rules
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "really", "and this")
    assert world.run(lambda: any(isinstance(one, Differs) for one in world.notices["n2"]), for_ms=900_000)
    (told,) = [one for one in world.notices["n2"] if isinstance(one, Differs)]
    group = world.nodes["n2"].agent.groups[world.id]
    assert told == Differs(world.id, author, group.chain(author).seq, world.did("n3"), liar)
    assert [(one.member, one.by) for one in group.differences] == [(world.did("n3"), liar)]
    assert not corroboration.second_of(group, author, told.seq)
    names = {author: "a", liar: "b", world.did("n3"): "d"}
    shown = differs(group, author, told.seq, told.member, told.by, names.__getitem__)
    assert "what b has handed over of a's chain is something else than what d has" in news(shown, str, str)
