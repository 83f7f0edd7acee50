"""Reinstated posts: a void demotion makes the demoted member's posts count again."""

import pytest
from msgspec.structs import replace

from tests.support.cut_world import Cut, forged
from tests.support.role_feud import RULES, cut_off, remove_each_other
from zerochat.agent.views.completeness import completeness
from zerochat.group.effects import StoreEvent
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import load_event, parse_event
from zerochat.group.inputs import AcceptInvitation, ChangeRole, CreateGroup, CreateInvitation, RemoveMember
from zerochat.group.membership import may_post
from zerochat.group.sync import reinstated_posts
from zerochat.group.timer_kinds import TimerKind


@pytest.mark.parametrize("keys", ["pairwise-multi", "pairwise-single", "sender-key"])
def test_rejected_posts_are_fetched_once_valid(keys):
    world = remove_each_other(keys)
    assert world.run(
        lambda: all(world.texts(name) == ["what counts", "and so does this"] for name in ("n2", "n3")), for_ms=120_000
    )
    for name in ("n1", "n2", "n3"):
        group = world.nodes[name].agent.groups[world.id]
        assert may_post(group.view, world.did("n1"), 99) and not group.sync.reinstated_posts
        assert world.did("n0") not in group.view.members
    world.post("n1", "and on")
    assert world.run(lambda: world.texts("n3")[-1] == "and on", for_ms=20_000)


def left_out(world, name="n2"):
    """This member receives everything but the rejected posts: no member answers its requests."""
    assert world.run(lambda: bool(world.nodes[name].agent.groups[world.id].sync.reinstated_posts), for_ms=60_000)
    return world.nodes[name].agent.groups[world.id].sync.reinstated_posts[world.did("n1")]


def test_another_member_sends_reinstated_posts():
    world = remove_each_other()
    world.deaf |= {frozenset({"n1", "n2"})}
    assert world.run(lambda: "what counts" in world.texts("n3"), for_ms=120_000)
    world.kill("n1")
    assert world.run(lambda: world.texts("n2") == ["what counts", "and so does this"], for_ms=180_000)


def test_only_missing_posts_are_accepted_and_only_once(monkeypatch):
    world = remove_each_other()
    with monkeypatch.context() as patch:
        patch.setattr(reinstated_posts, "request", lambda tx, name: 0)
        world.run(for_ms=60_000)
    known = left_out(world)
    assert sorted(known.ids) == [1, 2] and world.texts("n2") == []
    tx, author = world.tx("n2"), world.did("n1")
    assert reinstated_posts.wanted_seqs(tx.group(world.id), author) == [1, 2]
    said = [load_event(row.record) for row in world.nodes["n1"].log if row.author == author and row.type == "post"]
    receiving.receive_reinstated(tx, world.id, world.did("n3"), something_else(said[0]))
    assert not tx.effects
    for _ in range(2):
        receiving.receive_reinstated(tx, world.id, world.did("n3"), said[0])
    assert sum(type(effect).__name__ == "StoreEvent" for effect in tx.effects) == 1
    assert reinstated_posts.wanted_seqs(tx.group(world.id), author) == [2]


def something_else(event):
    """In the same place."""
    return parse_event(replace(event, body={"text": "something else"}).wire)


def test_rejected_posts_are_bounded_per_author(monkeypatch):
    monkeypatch.setattr(reinstated_posts, "IDS_MAX", 4)
    world = Cut(2)
    world.bring_in("n1")
    world.post("n0", "a word")
    world.run(for_ms=2_000)
    tx, author = world.tx("n1"), world.did("n0")
    (row,) = [row for row in world.nodes["n1"].log if row.type == "post"]
    event = load_event(row.record)
    for number in range(10, 20):
        reinstated_posts.record(tx, world.id, replace(event, seq=number), valid=False)
    assert list(tx.group(world.id).sync.reinstated_posts[author].ids) == [16, 17, 18, 19]
    reinstated_posts.record(tx, world.id, replace(event, seq=17), valid=True)
    assert list(tx.group(world.id).sync.reinstated_posts[author].ids) == [16, 18, 19]


def between(*pairs):
    return {frozenset(pair) for pair in pairs}


class Lied(Cut):
    def _on_accusation(self, node, notice):
        """That n3 has lied is so."""


@pytest.mark.parametrize("keys", ["pairwise-multi", "sender-key"])
def test_forged_posts_are_never_reinstated(keys):
    """n3 relays a post of n1 that n2 rejects; then n1 sends another event at its place, which makes it valid."""
    world = Lied(4, RULES)
    world.id = world.run_command("n0", CreateGroup("others", "n0", world.envelope, keys, RULES)).result.group
    world.bring_in("n1", "n2", "n3")
    author = world.did("n1")
    world.post("n1", "hello")
    world.run(for_ms=5_000)
    world.deaf = cut_off(world, "n1")
    world.run_command("n0", ChangeRole(world.id, author, "reader"))
    world.run(for_ms=3_000)
    (event,) = forged(world, "n2", "n3", author, ["made up"])
    tx = world.tx("n2")
    receiving.receive_relayed(tx, world.id, world.did("n3"), event)
    world.perform("n2", tx)
    assert world.nodes["n2"].agent.groups[world.id].sync.reinstated_posts[author].ids == {event.seq: event.id}
    row = (world.id, event.id, author, event.seq, event.lamport, event.type, event.record, world.now, True, "")
    world.nodes["n3"].log.append(StoreEvent(*row))  # and goes on sending it
    world.run_command("n1", RemoveMember(world.id, world.did("n0")))
    world.deaf = cut_off(world, "n0")
    world.run(for_ms=200_000)
    group = world.nodes["n2"].agent.groups[world.id]
    assert group.chain(author).seq == 2 and may_post(group.view, author, 2) and not group.sync.reinstated_posts
    assert world.texts("n2") == ["hello"]


@pytest.mark.parametrize("returns", [False, True])
def test_reinstated_posts_keep_their_confirmation(returns):
    """It is rejected as relayed by n3, and valid before its author has confirmed it, if that ever comes."""
    world = Cut(5, RULES)
    world.bring_in("n1", "n2", "n3", "n4")
    author = world.did("n1")
    world.post("n1", "hello")
    world.run(for_ms=5_000)
    world.deaf = cut_off(world, "n4") | between(("n0", "n1"), ("n1", "n2"), ("n0", "n3"), ("n2", "n3"))
    world.post("n1", "what counts")
    world.run(for_ms=2_000)
    world.deaf = cut_off(world, "n4", "n1")
    world.run_command("n0", ChangeRole(world.id, author, "reader"))
    assert world.run(lambda: bool(world.nodes["n2"].agent.groups[world.id].sync.reinstated_posts), for_ms=120_000)
    world.run_command("n4", RemoveMember(world.id, world.did("n0")))
    world.deaf = cut_off(world, "n0", "n1")
    assert world.run(lambda: world.texts("n2") == ["hello", "what counts"], for_ms=120_000)
    assert world.texts("n2", relayed=True) == ["what counts"]
    if returns:
        world.deaf = cut_off(world, "n0")
        assert world.run(lambda: world.texts("n2", relayed=False) == ["hello", "what counts"], for_ms=120_000)


def test_a_new_member_gets_reinstated_posts():
    world = Cut(6, RULES)
    world.bring_in("n1", "n2", "n3", "n4")
    author = world.did("n1")
    world.post("n1", "hello")
    world.run(for_ms=5_000)
    off = cut_off(world, "n4")
    world.deaf = off | between(("n0", "n1"), ("n0", "n2"), ("n0", "n3"))
    world.run(for_ms=2_000)
    world.deaf = off | cut_off(world, "n1")
    world.run_command("n0", ChangeRole(world.id, author, "reader"))
    world.run(for_ms=5_000)
    invitation = world.run_command("n2", CreateInvitation(world.id, 3_600, 1)).result.invitation
    world.run_command("n5", AcceptInvitation(invitation, "n5"))
    world.run(for_ms=30_000)
    assert world.texts("n5") == [] and world.nodes["n5"].agent.groups[world.id].sync.reinstated_posts
    world.run_command("n4", RemoveMember(world.id, world.did("n0")))
    world.deaf = cut_off(world, "n0", "n1")
    assert world.run(lambda: world.texts("n5") == ["hello"], for_ms=120_000)


def test_a_log_with_missing_posts_is_not_called_complete(monkeypatch):
    world = remove_each_other()
    with monkeypatch.context() as patch:
        patch.setattr(reinstated_posts, "request", lambda tx, name: 0)
        world.run(for_ms=60_000)
    group = world.nodes["n2"].agent.groups[world.id]
    told = completeness(group, group.links.peers, world.now)
    assert not told.complete and told.upto == 0
    assert {one.did: one.missing for one in told.members}[world.did("n1")] == 2
    tx = world.tx("n2")
    tx.set_timer(TimerKind.GAPS, world.id, 1)
    world.perform("n2", tx)
    assert world.run(lambda: "and so does this" in world.texts("n2"), for_ms=120_000)
    group = world.nodes["n2"].agent.groups[world.id]
    assert completeness(group, group.links.peers, world.now).complete
