"""Corroboration of relayed events: whom it queries, its outcomes, and its notifications."""

import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut, forged
from zerochat.agent.views.delivery import differs
from zerochat.group.event_log import receiving
from zerochat.group.notifications import DifferenceFound
from zerochat.group.sync import corroboration
from zerochat.presentation.delivery import notification_sentence


@pytest.fixture
def world():
    """n0 has posted and is gone; n1 and n3 have its posts, and n2 has them from one of them."""
    world = Cut(4)
    world.bring_in("n1", "n2", "n3")
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "one", "two", "three")
    world.run(for_ms=200)
    assert world.texts("n3") == ["one", "two", "three"] and world.texts("n2") == []
    return world


def second(world, position):
    return corroboration.corroborator_of(world.nodes["n2"].agent.groups[world.id], world.did("n0"), position)


def test_another_member_is_queried_for_corroboration(world):
    world.kill("n0")
    assert world.run(lambda: world.texts("n2", relayed=True) == ["one", "two", "three"], for_ms=60_000)
    place = world.chain("n2", "n0")
    assert not second(world, place.seq), "not before it was asked"
    assert world.run(lambda: second(world, place.seq), for_ms=900_000)
    others = {world.did("n1"), world.did("n3")}
    assert {place.relayed_by, second(world, place.seq)} == others
    assert second(world, place.seq - 2) and not second(world, place.seq + 1), "and for all that leads up to it"
    assert world.texts("n2", relayed=True) == ["one", "two", "three"], "it is not the author's word for that"
    # Once is enough.
    asked = world.nodes["n2"].agent.groups[world.id].sync.corroborations[world.did("n0")].asked
    world.run(for_ms=120_000)
    assert world.nodes["n2"].agent.groups[world.id].sync.corroborations[world.did("n0")].asked == asked


def test_a_quarantined_member_cannot_corroborate(world):
    world.kill("n0")
    assert world.run(lambda: world.texts("n2", relayed=True) == ["one", "two", "three"], for_ms=60_000)
    place = world.chain("n2", "n0")
    (other,) = {world.did("n1"), world.did("n3")} - {place.relayed_by}
    tx = world.tx("n2")
    tx.update_trust(world.id, quarantine=(other,))
    corroboration.request(tx, world.id)
    assert not tx.group(world.id).sync.pull_requests
    one = tx.group(world.id).sync.corroborations[world.did("n0")]
    tx.update_sync(world.id, corroborations={world.did("n0"): replace(one, corroborator=other)})
    assert not corroboration.corroborator_of(tx.group(world.id), world.did("n0"), place.seq)


def test_no_member_is_left_for_corroboration(world):
    world.kill("n0")
    world.kill("n3")
    assert world.run(lambda: world.texts("n2", relayed=True) == ["one", "two", "three"], for_ms=60_000)
    world.run(for_ms=60_000)
    assert not second(world, 1)


def test_a_contradiction_names_both_members(monkeypatch):
    world = Cut(4)
    world.bring_in("n1", "n2", "n3")
    author, liar = world.did("n0"), world.did("n1")
    tx = world.tx("n2")
    for event in forged(world, "n2", "n1", author, ["never", "nor this"]):
        receiving.receive_relayed(tx, world.id, liar, event)
    corroboration.schedule(tx, world.id)
    world.perform("n2", tx)
    monkeypatch.setattr(world, "_on_accusation", lambda *_: None)  # here a member does break the rules
    world.deaf.add(frozenset({"n0", "n2"}))
    world.post("n0", "really", "and this")
    assert world.run(lambda: any(isinstance(one, DifferenceFound) for one in world.notices["n2"]), for_ms=900_000)
    (told,) = [one for one in world.notices["n2"] if isinstance(one, DifferenceFound)]
    group = world.nodes["n2"].agent.groups[world.id]
    assert told == DifferenceFound(world.id, author, group.chain(author).seq, world.did("n3"), liar)
    assert [(one.member, one.relayed_by) for one in group.sync.differences] == [(world.did("n3"), liar)]
    assert not corroboration.corroborator_of(group, author, told.seq)
    names = {author: "a", liar: "b", world.did("n3"): "d"}
    shown = differs(group, author, told.seq, told.member, told.relayed_by, names.__getitem__)
    assert "differs between b, who relayed it, and d." in notification_sentence(shown, str, str)
