"""Groups with the keys `dcgka`: authors sign their events, and any member may bring them."""

import pytest
from msgspec.structs import replace

from tests.support.dcgka_world import Healing
from tests.support.ruled_world import Ruled
from zerochat.group.event_log.event import parse_event
from zerochat.group.inputs import SendContent
from zerochat.group.messages.bodies import Edit, React
from zerochat.group.state.peers import StoredBytes
from zerochat.presentation import proofs
from zerochat.rpc import Evidence


@pytest.fixture
def world():
    return Healing()


def test_every_post_and_annotation_is_signed(world):
    post = world.post("n0", "hello")
    world.says("n0", SendContent(world.id, Edit(post.id, "hello, all")))
    world.says("n1", SendContent(world.id, React(post.id, "👍", on=True)))
    for name in world.nodes:
        content = [event for event in map(parse_event, world.events(name)) if not event.is_control]
        assert [event.type for event in content] == ["post", "edit", "react"]
        for event in content:
            event.check_signature()


def test_any_member_brings_a_signed_post(world):
    event = world.next_post("n0", "by way of n2")
    assert world.bring("n2", "n1", event)
    assert world.texts("n1") == ["by way of n2"]
    row = world.nodes["n1"].log[-1]
    assert (row.author, row.relayed_by) == (world.did("n0"), "")
    assert world.group("n1").chain(world.did("n0")).confirmed_seq == event.seq


def test_in_a_pairwise_group_only_the_author_brings_a_post():
    world = Ruled(3)
    healing = Healing.__new__(Healing)
    healing.__dict__ = world.__dict__
    assert not healing.bring("n2", "n1", healing.next_post("n0", "by way of n2"))
    assert healing.bring("n0", "n1", healing.next_post("n0", "by its author"))


@pytest.mark.parametrize("bearer", ["n0", "n2"])
def test_an_unsigned_or_forged_post_is_refused(world, bearer):
    event = world.next_post("n0", "the truth")
    assert not world.bring(bearer, "n1", replace(event, sig=""))
    assert not world.bring(bearer, "n1", replace(event, body={"text": "a lie"}))
    assert not world.bring(bearer, "n1", event.signed(world.group("n2").seed))
    assert world.bring(bearer, "n1", event)


def test_a_forged_post_of_an_author_without_room_is_refused(world):
    """Its place would count as one that the author has reached, and all before it as missing."""
    world.post("n1", "first")
    author, tx = world.did("n1"), world.tx("n0")
    tx.update_agent(storage_rules=replace(tx.agent.storage_rules, daily_max=1 << 20))
    tx.update_peer(world.id, author, stored=StoredBytes(1 << 20, tx.now, True, 0))
    world.nodes["n0"].agent = tx.agent
    post = world.next_post("n1", "later")
    world.bring("n2", "n0", replace(post, seq=2**53 - 1))
    assert not world.group("n0").links.peers[author].stored.refused_upto
    world.bring("n2", "n0", post)
    assert world.group("n0").links.peers[author].stored.refused_upto == post.seq


def test_history_of_absent_authors_is_their_own_word(world):
    """A newcomer gets posts of a member that has left, as confirmed as if it had been here."""
    world.post("n1", "before I go")
    world.leave("n1")
    world.come("n3")
    rows = {row.author: row.relayed_by for row in world.nodes["n3"].log if row.type == "post"}
    assert rows == {world.left["n1"]: ""}


def test_unsigned_history_is_refused(world, monkeypatch):
    """The same, where the member that answers has dropped the signatures."""
    world.post("n1", "before I go")
    world.leave("n1")
    world.strip_signatures("n0")
    world.strip_signatures("n2")
    world.come("n3")
    assert world.texts("n3") == []


def test_users_are_told_that_messages_are_signed():
    found = Evidence(group="g", keys="dcgka", signs=False)
    assert "you can never deny it" in proofs.of_group(found)[0] and "are not signed" in proofs.of_group(found)[0]
    assert proofs.of_group(Evidence(group="g", keys="pairwise-multi", signs=False)) == [proofs.DENIABLE]
