"""Groups with the keys `dcgka`: the posts of one batch share a message and a signature."""

import json

import pytest
from msgspec.structs import replace

from tests.support.dcgka_world import Healing, talk
from zerochat.crypto.primitives import ed25519_sign
from zerochat.errors import Malformed
from zerochat.group.event_log import own_events, tree_signature
from zerochat.group.event_log.event import POST, RECORD_BYTES_MAX, Event
from zerochat.group.inputs import ChangeLabel, LeaveGroup, SendPost
from zerochat.group.sync import acknowledgements
from zerochat.sim import Faults

TEXTS = [f"post {number}" for number in range(20)]


@pytest.fixture
def world():
    return Healing()


def test_a_burst_costs_one_seal_and_one_signature(world, monkeypatch):
    talk(world, 1)
    counted = []

    def sign(*given):
        counted.append(given)
        return was(*given)

    was = ed25519_sign
    monkeypatch.setattr(tree_signature, "ed25519_sign", sign)
    monkeypatch.setattr(Event, "signed", None)
    before = len(world.sealed)
    world.burst("n0", *TEXTS)
    assert (len(counted), len(world.sealed) - before) == (1, 1)
    for name in world.nodes:
        assert world.texts(name)[-len(TEXTS) :] == TEXTS
        posts = world.posts(name)[-len(TEXTS) :]
        assert [event.leaf.index for event in posts] == list(range(len(TEXTS)))
        for event in posts:
            event.check_signature()
    assert not world.retransmissions


def test_the_same_records_are_everywhere(world):
    world.burst("n0", *TEXTS)
    world.post("n0", "alone")
    first, *others = ([event.record for event in world.posts(name)] for name in world.nodes)
    assert others == [first] * 2 and not world.posts("n0")[-1].is_leaf


def test_an_own_post_is_stored_once_and_signed(world):
    """Its author stores it when the batch is complete, with its signature; the order of the log stays."""
    node = world.nodes["n0"]
    before = len(node.log)
    world.burst("n0", *TEXTS)
    rows = node.log[before:]
    assert [json.loads(row.record)["body"]["text"] for row in rows] == TEXTS
    assert all(len(json.loads(row.record)["sig"]) > tree_signature.PLAIN_CHARS for row in rows)
    assert not world.group("n0").log.unpublished


def test_a_lost_burst_is_retransmitted_in_parts(world, monkeypatch):
    monkeypatch.setattr("zerochat.group.links.outbox.RETRANSMISSION_BYTES_MAX", 2_000)
    monkeypatch.setattr(acknowledgements, "RETRANSMIT_EVENTS_MAX", 7)
    talk(world, 1)
    world.away = {"n1"}
    world.burst("n0", *TEXTS)
    assert not set(TEXTS) & set(world.texts("n1"))
    world.away = set()
    world.run(lambda: set(TEXTS) <= set(world.texts("n1")), for_ms=300_000)
    assert world.retransmissions
    assert [event.record for event in world.posts("n1")] == [event.record for event in world.posts("n0")]


@pytest.mark.parametrize("bearer", ["n0", "n2"])
def test_any_member_brings_a_part_of_a_burst(world, bearer):
    talk(world, 1)
    world.away = {"n1"}
    world.burst("n0", *TEXTS)
    events = world.posts("n0")[-len(TEXTS) :]
    assert not world.bring(bearer, "n1", replace(events[0], sig=events[1].sig))
    assert not world.bring(bearer, "n1", replace(events[0], sig=events[0].signed(world.group("n2").seed).sig))
    assert world.bring(bearer, "n1", *events[:7])
    assert world.bring(bearer, "n1", *events[7:])
    assert world.texts("n1")[-len(TEXTS) :] == TEXTS
    assert world.group("n1").chain(world.did("n0")).confirmed_seq == events[-1].seq


def test_a_newcomer_gets_a_burst_of_a_member_that_has_left(world):
    world.burst("n1", *TEXTS)
    world.leave("n1")
    world.come("n3")
    assert sorted(world.texts("n3")) == sorted(TEXTS)
    for event in world.posts("n3"):
        event.check_signature()
    assert {row.relayed_by for row in world.nodes["n3"].log if row.type == POST} == {""}


def test_posts_of_the_batch_in_which_a_member_leaves_are_signed(world):
    node = world.nodes["n0"]
    tx = world.tx("n0")
    for text in TEXTS[:3]:
        own_events.append(tx, world.id, POST, {"text": text})
    node.agent = tx.agent
    for effect in tx.effects:
        world._perform(node, effect)
    world.says("n0", LeaveGroup(world.id))
    world.run(for_ms=20_000)
    for name in ("n0", "n1", "n2"):
        assert world.texts(name) == TEXTS[:3]
        for event in world.posts(name):
            event.check_signature()


def test_posts_around_a_membership_event_share_a_signature(world):
    """They have no consecutive places in their author's chain."""
    commands = [SendPost(world.id, "one"), ChangeLabel(world.id, "zero"), *(SendPost(world.id, text) for text in TEXTS)]
    world.run_batch("n0", commands)
    world.settle()
    for name in world.nodes:
        posts = world.posts(name)
        assert [event.body["text"] for event in posts] == ["one", *TEXTS]
        assert len({event.leaf.root for event in posts}) == 1 and posts[1].seq == posts[0].seq + 2
        assert "zero" in world.labels(name)
    assert not world.retransmissions


def test_a_burst_survives_a_bad_line():
    world = Healing()
    world.faults = Faults(loss=0.3, duplication=0.2, delay_ms_max=400)
    for name in world.nodes:
        world.burst(name, *(f"{name}: {text}" for text in TEXTS))
    world.run(lambda: all(len(world.texts(name)) == 3 * len(TEXTS) for name in world.nodes), for_ms=900_000)
    records = [sorted(event.record for event in world.posts(name)) for name in world.nodes]
    assert len(records[0]) == 3 * len(TEXTS) and records[1:] == records[:1] * 2


def test_a_post_that_its_signature_makes_too_long_is_refused(world):
    """Before it has its place in the chain."""
    overhead = len(world.next_post("n0", "").record)
    before = world.group("n0").seq
    for size in range(RECORD_BYTES_MAX - overhead - 10, RECORD_BYTES_MAX - overhead + 20, 7):
        tx = world.tx("n0")
        try:
            own_events.append(tx, world.id, POST, {"text": "x" * size})
        except Malformed:
            assert tx.agent is world.nodes["n0"].agent
            continue
        own_events.sign_batch(tx, world.id)
        (event,) = tx.group(world.id).log.unpublished
        assert len(event.record) <= RECORD_BYTES_MAX
    assert world.group("n0").seq == before
    assert world.says("n0", SendPost(world.id, "short"))
