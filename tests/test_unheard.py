"""Somebody is made a reader by whoever is put out at the same time: what it said meanwhile counts, and all get it."""

import pytest
from msgspec.structs import replace

from tests.test_history import Cut
from zerochat.group import log
from zerochat.group.event import load_event, parse_event
from zerochat.group.history import unheard
from zerochat.group.membership import Policy, may_post
from zerochat.group.stimuli import ChangeRole, CreateGroup, RemoveMember

RULES = Policy(remove="anyone", quorum=0, roles="admins")


def feud(keys=None, members=4):
    """n0 has n1 only read, of which n1 has not heard when it says something and puts n0 out; the others hear of the
    role first, and n0 is gone."""
    world = Cut(members, RULES)
    if keys:
        world.id = world.ask("n0", CreateGroup("others", "n0", world.envelope, keys, RULES)).result.group
    world.bring_in(*list(world.nodes)[1:])
    world.run(for_ms=5_000)
    rest = [name for name in world.nodes if name != "n1"]
    world.deaf |= {frozenset({"n1", name}) for name in rest}
    world.ask("n0", ChangeRole(world.id, world.did("n1"), "reader"))
    world.run(for_ms=3_000)
    world.post("n1", "what counts", "and so does this")
    world.ask("n1", RemoveMember(world.id, world.did("n0")))
    world.run(for_ms=2_000)
    world.deaf = {frozenset({"n0", name}) for name in world.nodes if name != "n0"}
    return world


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single", "sender-key"])
def test_what_was_left_out_comes_when_it_counts(keys):
    world = feud(keys)
    assert world.run(
        lambda: all(world.texts(name) == ["what counts", "and so does this"] for name in ("n2", "n3")), for_ms=120_000
    )
    for name in ("n1", "n2", "n3"):
        group = world.nodes[name].agent.groups[world.id]
        assert may_post(group.view, world.did("n1"), 99) and not group.unheard
        assert world.did("n0") not in group.view.members
    world.post("n1", "and on")
    assert world.run(lambda: world.texts("n3")[-1] == "and on", for_ms=20_000)


def left_out(world, name="n2"):
    """Have this one hear everything but what it has left out: nobody answers it."""
    assert world.run(lambda: bool(world.nodes[name].agent.groups[world.id].unheard), for_ms=60_000)
    return world.nodes[name].agent.groups[world.id].unheard[world.did("n1")]


def test_somebody_else_brings_it_when_its_author_is_gone_for_good():
    world = feud()
    world.deaf |= {frozenset({"n1", "n2"})}
    assert world.run(lambda: "what counts" in world.texts("n3"), for_ms=120_000)
    world.kill("n1")
    assert world.run(lambda: world.texts("n2") == ["what counts", "and so does this"], for_ms=180_000)


def test_nothing_else_is_taken_for_it_and_nothing_twice(monkeypatch):
    world = feud()
    with monkeypatch.context() as patch:
        patch.setattr(unheard, "seek", lambda turn, name: 0)
        world.run(for_ms=60_000)
    known = left_out(world)
    assert sorted(known.ids) == [1, 2] and world.texts("n2") == []
    turn, author = world.turn("n2"), world.did("n1")
    assert unheard.wanted(turn.group(world.id), author) == [1, 2]
    said = [load_event(row.record) for row in world.nodes["n1"].log if row.author == author and row.type == "post"]
    log.hear_unheard(turn, world.id, something_else(said[0]))
    assert not turn.effects
    for _ in range(2):
        log.hear_unheard(turn, world.id, said[0])
    assert sum(type(effect).__name__ == "Remember" for effect in turn.effects) == 1
    assert unheard.wanted(turn.group(world.id), author) == [2]


def something_else(event):
    """In the same place."""
    return parse_event(replace(event, body={"text": "something else"}).wire)


def test_a_reader_who_writes_without_end_has_few_of_it_remembered(monkeypatch):
    monkeypatch.setattr(unheard, "IDS_MAX", 4)
    world = Cut(2)
    world.bring_in("n1")
    world.post("n0", "a word")
    world.run(for_ms=2_000)
    turn, author = world.turn("n1"), world.did("n0")
    (row,) = [row for row in world.nodes["n1"].log if row.type == "post"]
    event = load_event(row.record)
    for number in range(10, 20):
        unheard.note(turn, world.id, replace(event, seq=number), counts=False)
    assert list(turn.group(world.id).unheard[author].ids) == [16, 17, 18, 19]
    unheard.note(turn, world.id, replace(event, seq=17), counts=True)
    assert list(turn.group(world.id).unheard[author].ids) == [16, 18, 19]
