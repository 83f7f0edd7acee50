"""Groups with the keys `deniable`: one encryption for all members, and nothing that proves who wrote."""

import pytest
from msgspec.structs import replace

from tests.support.dcgka_world import Healing, live, talk
from zerochat.group.event_log.event import load_event
from zerochat.group.inputs import Received, RemoveMember, SendContent
from zerochat.group.key_agreement.message_keys import receiving_key, sending_key
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.key_modes.deniable import TAG_BYTES, add_tags, is_tagged, without_tags
from zerochat.group.messages.bodies import Edit, React
from zerochat.group.wire.event_runs import write_runs
from zerochat.sim import Faults


@pytest.fixture
def world():
    return Healing(keys="deniable")


@pytest.mark.parametrize("members", [2, 3, 5])
def test_posts_arrive_at_once_in_one_envelope_for_all(members):
    world = Healing(members, keys="deniable")
    texts = talk(world, 3)
    assert all(world.texts(name) == texts for name in world.nodes)
    assert not world.retransmissions and len(world.sealed) == len(texts)
    for _, envelope in world.sealed:
        assert is_tagged(envelope) and len(envelope) - len(without_tags(envelope)) == 2 + TAG_BYTES * (members - 1)


def test_nothing_is_signed_but_membership(world):
    post = world.post("n0", "hello")
    world.says("n0", SendContent(world.id, Edit(post.id, "hello, all")))
    world.says("n1", SendContent(world.id, React(post.id, "👍", on=True)))
    for name in world.nodes:
        content = [event for event in world.events(name) if event["type"] in ("post", "edit", "react")]
        assert [event["type"] for event in content] == ["post", "edit", "react"]
        assert not any("sig" in event for event in content)


def test_a_member_cannot_write_in_another_ones_name(world):
    """It has the author's message key, as all members do, and no key of another pair."""
    talk(world)
    thief, author, reader = "n2", "n0", "n1"
    forged = replace(world.next_post(author, "stolen"), body={"text": "stolen"})
    sent = sending_key(world.keys(author))
    _, key = receiving_key(world.keys(thief), world.did(author), sent.epoch, sent.number, world.now)
    body: dict[str, object] = {"runs": write_runs([forged], forged.author), "view": "", "have": []}
    sealed = seal(key, Place(sent.epoch, sent.number), world.id, world.did(author), body)

    def tagged_by(name):
        return add_tags(sealed, world.id, world.did(name), [world.group(name).links.relationships[world.did(reader)]])

    link = world.group(reader).links.peers[world.did(author)].link
    own_link = world.group(reader).links.peers[world.did(thief)].link
    for where, envelope in ((link, tagged_by(thief)), (link, sealed), (own_link, tagged_by(thief)), (own_link, sealed)):
        world.process(reader, Received(where, envelope))
        assert "stolen" not in world.texts(reader)
    world.process(reader, Received(link, tagged_by(author)))
    assert world.texts(reader)[-1] == "stolen", "the same message with the author's tag is read"


def test_tags_and_signatures_are_not_exchanged(world):
    """What convinces in one group is refused in a group of the other keys."""
    signing = Healing()
    for there in (world, signing):
        there.post("n0", "hello")
    ((author, tagged),), ((_, signed),) = world.sealed, signing.sealed
    for there, envelope in ((world, without_tags(tagged)), (signing, b"\x03\x01" + bytes(TAG_BYTES) + signed)):
        before = there.nodes["n1"].log[:]
        there.process("n1", Received(there.group("n1").links.peers[there.did(author)].link, envelope))
        assert there.nodes["n1"].log == before


def test_only_its_author_brings_a_post(world):
    event = world.next_post("n0", "by way of n2")
    assert not world.bring("n2", "n1", event)
    assert world.bring("n0", "n1", event)


def test_history_of_absent_authors_is_relayed(world):
    """As in pairwise groups: nothing proves it, so it is marked with the member that it comes from."""
    world.post("n1", "before I go")
    world.stop("n1")
    world.away = {"n1"}
    world.come("n3")
    world.run(lambda: world.texts("n3"), for_ms=120_000)
    rows = [row for row in world.nodes["n3"].log if row.type == "post"]
    assert [load_event(row.record).body["text"] for row in rows] == ["before I go"]
    assert rows[0].relayed_by in (world.did("n0"), world.did("n2")) and not load_event(rows[0].record).sig


def test_posts_arrive_over_bad_lines(world):
    world.faults = Faults(loss=0.3, duplication=0.2, delay_ms_max=400)
    talk(world, 12, pause_ms=100)
    world.run(world.converged, for_ms=600_000)
    assert world.converged() and len(world.texts("n0")) == 36
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=5)
    world.run(for_ms=120_000)
    assert live(world)


def test_everything_goes_on_after_a_restart(world):
    talk(world, 1)
    for name in world.nodes:
        world.restart(name)
    world.run(for_ms=15_000)
    assert live(world)


def test_a_newcomer_reads_on_and_a_removed_member_does_not(world):
    talk(world)
    world.come("n3")
    assert live(world, 2)
    world.says("n0", RemoveMember(world.id, world.did("n2")))
    at = len(world.sealed)
    texts = talk(world, 2, ["n0", "n1", "n3"])
    assert world.texts("n1")[-6:] == texts and not set(texts) & set(world.texts("n2"))
    for _, envelope in world.sealed[at:]:
        assert envelope[1] == 2, "there are tags for two"
