"""Somebody is made a reader by whoever is put out at the same time: what it said meanwhile counts, and all get it."""

import pytest
from msgspec.structs import replace

from tests.group.test_history import Cut, forged
from zerochat.agent.views.completeness import completeness
from zerochat.group.effects import Remember
from zerochat.group.event_log import log
from zerochat.group.event_log.event import load_event, parse_event
from zerochat.group.inputs import AcceptInvitation, ChangeRole, CreateGroup, CreateInvitation, RemoveMember
from zerochat.group.membership import Policy, may_post
from zerochat.group.sync import reinstated_posts

RULES = Policy(remove="anyone", quorum=0, roles="admins")


def feud(keys=None, members=4, kind=Cut):
    """n0 has n1 only read, of which n1 has not heard when it says something and puts n0 out; the others hear of the
    role first, and n0 is gone."""
    world = kind(members, RULES)
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
        patch.setattr(reinstated_posts, "seek", lambda turn, name: 0)
        world.run(for_ms=60_000)
    known = left_out(world)
    assert sorted(known.ids) == [1, 2] and world.texts("n2") == []
    turn, author = world.turn("n2"), world.did("n1")
    assert reinstated_posts.wanted(turn.group(world.id), author) == [1, 2]
    said = [load_event(row.record) for row in world.nodes["n1"].log if row.author == author and row.type == "post"]
    log.hear_unheard(turn, world.id, world.did("n3"), something_else(said[0]))
    assert not turn.effects
    for _ in range(2):
        log.hear_unheard(turn, world.id, world.did("n3"), said[0])
    assert sum(type(effect).__name__ == "Remember" for effect in turn.effects) == 1
    assert reinstated_posts.wanted(turn.group(world.id), author) == [2]


def something_else(event):
    """In the same place."""
    return parse_event(replace(event, body={"text": "something else"}).wire)


def test_a_reader_who_writes_without_end_has_few_of_it_remembered(monkeypatch):
    monkeypatch.setattr(reinstated_posts, "IDS_MAX", 4)
    world = Cut(2)
    world.bring_in("n1")
    world.post("n0", "a word")
    world.run(for_ms=2_000)
    turn, author = world.turn("n1"), world.did("n0")
    (row,) = [row for row in world.nodes["n1"].log if row.type == "post"]
    event = load_event(row.record)
    for number in range(10, 20):
        reinstated_posts.note(turn, world.id, replace(event, seq=number), counts=False)
    assert list(turn.group(world.id).unheard[author].ids) == [16, 17, 18, 19]
    reinstated_posts.note(turn, world.id, replace(event, seq=17), counts=True)
    assert list(turn.group(world.id).unheard[author].ids) == [16, 18, 19]


def between(*pairs):
    return {frozenset(pair) for pair in pairs}


def cut_off(world, *names):
    return {frozenset({name, other}) for name in names for other in world.nodes if other != name}


class Lied(Cut):
    def _accused(self, node, notice):
        """That n3 has lied is so."""


@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key"])
def test_what_a_member_has_made_up_is_never_fetched_as_its_author_s_word(keys):
    """n3 hands over a post of n1's that n2 leaves out; then n1 says something else there, by which it counts."""
    world = Lied(4, RULES)
    world.id = world.ask("n0", CreateGroup("others", "n0", world.envelope, keys, RULES)).result.group
    world.bring_in("n1", "n2", "n3")
    author = world.did("n1")
    world.post("n1", "hello")
    world.run(for_ms=5_000)
    world.deaf = cut_off(world, "n1")
    world.ask("n0", ChangeRole(world.id, author, "reader"))
    world.run(for_ms=3_000)
    (event,) = forged(world, "n2", "n3", author, ["made up"])
    turn = world.turn("n2")
    log.hear_shared(turn, world.id, world.did("n3"), event)
    world.perform("n2", turn)
    assert world.nodes["n2"].agent.groups[world.id].unheard[author].ids == {event.seq: event.id}
    row = (world.id, event.id, author, event.seq, event.lamport, event.type, event.record, world.now, True, "")
    world.nodes["n3"].log.append(Remember(*row))  # and goes on giving it
    world.ask("n1", RemoveMember(world.id, world.did("n0")))
    world.deaf = cut_off(world, "n0")
    world.run(for_ms=200_000)
    group = world.nodes["n2"].agent.groups[world.id]
    assert group.chain(author).seq == 2 and may_post(group.view, author, 2) and not group.unheard
    assert world.texts("n2") == ["hello"]


@pytest.mark.parametrize("returns", [False, True])
def test_what_somebody_else_has_handed_over_comes_too_as_its_author_s_word_or_not(returns):
    """It is left out as one that n3 vouches for, and counts before its author has confirmed it, if that ever comes."""
    world = Cut(5, RULES)
    world.bring_in("n1", "n2", "n3", "n4")
    author = world.did("n1")
    world.post("n1", "hello")
    world.run(for_ms=5_000)
    world.deaf = cut_off(world, "n4") | between(("n0", "n1"), ("n1", "n2"), ("n0", "n3"), ("n2", "n3"))
    world.post("n1", "what counts")
    world.run(for_ms=2_000)
    world.deaf = cut_off(world, "n4", "n1")
    world.ask("n0", ChangeRole(world.id, author, "reader"))
    assert world.run(lambda: bool(world.nodes["n2"].agent.groups[world.id].unheard), for_ms=120_000)
    world.ask("n4", RemoveMember(world.id, world.did("n0")))
    world.deaf = cut_off(world, "n0", "n1")
    assert world.run(lambda: world.texts("n2") == ["hello", "what counts"], for_ms=120_000)
    assert world.texts("n2", vouched=True) == ["what counts"]
    if returns:
        world.deaf = cut_off(world, "n0")
        assert world.run(lambda: world.texts("n2", vouched=False) == ["hello", "what counts"], for_ms=120_000)


def test_a_newcomer_who_leaves_it_out_of_the_history_gets_it_too():
    world = Cut(6, RULES)
    world.bring_in("n1", "n2", "n3", "n4")
    author = world.did("n1")
    world.post("n1", "hello")
    world.run(for_ms=5_000)
    off = cut_off(world, "n4")
    world.deaf = off | between(("n0", "n1"), ("n0", "n2"), ("n0", "n3"))
    world.run(for_ms=2_000)
    world.deaf = off | cut_off(world, "n1")
    world.ask("n0", ChangeRole(world.id, author, "reader"))
    world.run(for_ms=5_000)
    invitation = world.ask("n2", CreateInvitation(world.id, 3_600, 1)).result.invitation
    world.ask("n5", AcceptInvitation(invitation, "n5"))
    world.run(for_ms=30_000)
    assert world.texts("n5") == [] and world.nodes["n5"].agent.groups[world.id].unheard
    world.ask("n4", RemoveMember(world.id, world.did("n0")))
    world.deaf = cut_off(world, "n0", "n1")
    assert world.run(lambda: world.texts("n5") == ["hello"], for_ms=120_000)


def test_nothing_is_called_complete_before_it_is_here(monkeypatch):
    world = feud()
    with monkeypatch.context() as patch:
        patch.setattr(reinstated_posts, "seek", lambda turn, name: 0)
        world.run(for_ms=60_000)
    group = world.nodes["n2"].agent.groups[world.id]
    told = completeness(group, group.peers, world.now)
    assert not told.complete and told.upto == 0
    assert {one.did: one.missing for one in told.members}[world.did("n1")] == 2
    turn = world.turn("n2")
    turn.timer("need", world.id, 1)
    world.perform("n2", turn)
    assert world.run(lambda: "and so does this" in world.texts("n2"), for_ms=120_000)
    group = world.nodes["n2"].agent.groups[world.id]
    assert completeness(group, group.peers, world.now).complete
