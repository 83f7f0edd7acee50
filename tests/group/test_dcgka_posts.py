"""Groups with the keys `dcgka`: one encryption for all members, under keys that only they have."""

from typing import Any, cast

import pytest
from msgspec.structs import replace

from tests.support.dcgka_world import Healing, live, talk
from zerochat.crypto.encoding import b64url, b64url_bytes, compact_msgpack
from zerochat.errors import Refused, Unauthentic
from zerochat.group.inputs import Received, RemoveMember, SendPost
from zerochat.group.key_agreement.message_keys import EPOCHS_MAX, receiving_key, sending_key
from zerochat.group.key_agreement.production import UPDATE_MESSAGES
from zerochat.group.key_modes.dcgka import Place, open_, place_of, seal
from zerochat.group.key_modes.deniable import TAG_BYTES
from zerochat.group.links import outbox
from zerochat.group.wire import padding
from zerochat.group.wire.event_runs import with_bytes, without_bytes, write_runs
from zerochat.group.wire.padding import encode_payload
from zerochat.sim import Faults


@pytest.mark.parametrize("members", [2, 3, 5])
def test_posts_arrive_at_once_in_one_envelope_for_all(members):
    world = Healing(members)
    texts = talk(world, 3)
    assert all(world.texts(name) == texts for name in world.nodes)
    assert not world.retransmissions and len(world.sealed) == len(texts)
    world.settle()
    for name in world.nodes:
        dcgka = world.group(name).dcgka
        assert not dcgka.sent and not dcgka.held and not dcgka.early and not dcgka.acks_due


def test_ids_travel_as_bytes_and_hostile_values_stay_as_they_are(world):
    talk(world)
    body = outbox.events_body(world.tx("n1"), world.group("n1"), world.posts("n1"))
    assert without_bytes(with_bytes(body)) == body
    assert len(compact_msgpack(with_bytes(body))) < len(compact_msgpack(body)) * 0.9
    item: list[object] = [1, 2, {}, "post", [b"\0" * 32], [7], None]
    for value in (7, None, [], {"runs": 7}, {"runs": [7, {"items": 7}, {"items": [7]}]}):
        assert without_bytes(value) == value
    (run,) = cast(dict[str, Any], without_bytes({"runs": [{"pre": b"", "items": [item]}], "x": b"\0"}))["runs"]
    assert run == {"pre": "", "items": [[1, 2, {}, "post", ["A" * 43], [7], None]]}


def test_an_envelope_has_one_size_and_names_no_member():
    for members in (2, 5):
        world = Healing(members)
        world.post("n0", "hello" + "!" * 45)
        ((_, envelope),) = world.sealed
        assert len(envelope) == 318
        for name in world.nodes:
            assert world.did(name).encode() not in envelope and b"hello" not in envelope


OVERHEAD_MAX = 139
"""What a message may cost beside its content, before padding, in bytes: the header, the commitment and the tag; the
signature, or the number of tags; each tag has `TAG_BYTES` more."""


@pytest.mark.parametrize("text", ["hi", "x" * 100, "y" * 2_000])
@pytest.mark.parametrize(("keys", "tags"), [("dcgka", 0), ("deniable", 2)])
def test_the_overhead_of_a_message_is_small(keys, tags, text):
    world = Healing(keys=keys)
    world.post("n0", text)
    ((author, envelope),) = world.sealed
    (event,) = world.posts(author)

    def written(event):
        return compact_msgpack(with_bytes(outbox.events_body(world.tx(author), world.group(author), [event])))

    sealing = len(envelope) - len(encode_payload(written(event))) + padding._HEAD_BYTES
    signing = len(written(event)) - len(written(replace(event, sig="")))
    assert signing == (0 if tags else 66)
    assert sealing + signing <= OVERHEAD_MAX + tags * TAG_BYTES


def test_each_key_opens_one_message_once(world):
    talk(world)
    (author, envelope), reader = world.sealed[-1], "n0"
    group = world.group(reader)
    link = group.links.peers[world.did(author)].link
    before = world.nodes[reader].agent
    world.process(reader, Received(link, envelope))
    assert world.nodes[reader].agent == before
    place = world.place(envelope)
    with pytest.raises(Refused):
        receiving_key(world.keys(reader), world.did(author), place.epoch, place.number, world.now)


def test_a_member_cannot_write_in_another_ones_name(world):
    """It has the author's message keys, as all members do, and not its signature."""
    talk(world)
    thief, author, reader = "n2", "n0", "n1"
    post = world.next_post(author, "stolen")
    sent = sending_key(world.keys(author))
    _, key = receiving_key(world.keys(thief), world.did(author), sent.epoch, sent.number, world.now)
    assert key == sent.key
    place = Place(sent.epoch, sent.number)

    def written(event):
        body: dict[str, object] = {"runs": write_runs([event], event.author), "view": "", "have": []}
        return seal(key, place, world.id, world.did(author), body)

    forged = post.signed(world.group(thief).seed)
    link = world.group(reader).links.peers[world.did(author)].link
    world.process(reader, Received(link, written(forged)))
    assert "stolen" not in world.texts(reader)
    world.process(reader, Received(link, written(post)))
    assert world.texts(reader)[-1] == "stolen", "the same message with the right signature is read"


def test_a_message_is_bound_to_its_author_and_place(world):
    talk(world)
    sent = sending_key(world.keys("n0"))
    body: dict[str, object] = {"view": "", "have": []}
    place, author = Place(sent.epoch, sent.number), world.did("n0")
    envelope = seal(sent.key, place, world.id, author, body)
    assert open_(sent.key, place, envelope, world.id, author)
    another = b64url(b64url_bytes(place.epoch)[:-1] + b"\0")
    assert place_of(envelope, [another]) == Place(another, place.number), "it begins alike"
    assert place_of(envelope, [b64url(bytes(32)), place.epoch]) == place and place_of(envelope, []) is None
    for where, group, by in (
        (place, world.id, world.did("n1")),
        (place, world.id[::-1], author),
        (Place(another, place.number), world.id, author),
        (Place(place.epoch, place.number + 1), world.id, author),
    ):
        with pytest.raises(Unauthentic):
            open_(sent.key, where, envelope, group, by)


def test_posts_arrive_over_bad_lines(world):
    world.faults = Faults(loss=0.3, duplication=0.2, delay_ms_max=400)
    talk(world, 20, pause_ms=100)
    world.run(world.converged, for_ms=600_000)
    assert world.converged() and len(world.texts("n0")) == 60
    world.faults = Faults(loss=0, duplication=0, delay_ms_max=5)
    world.run(for_ms=120_000)
    assert live(world), "all follow all again"


def test_a_member_that_was_offline_follows_again(world):
    talk(world)
    world.stop("n1")
    world.away = {"n1"}
    for number in range(UPDATE_MESSAGES + 3):
        world.run_command("n0", SendPost(world.id, f"meanwhile {number}"))
        world.run(for_ms=200)
    world.away = set()
    world.start("n1")
    world.run(world.converged, for_ms=120_000)
    assert world.converged()
    world.settle()
    assert live(world)


def test_everything_goes_on_after_a_restart(world):
    """The keys come back from disk."""
    for number in range(4):
        talk(world, 1)
        for name in world.nodes:
            world.restart(name)
        world.run(for_ms=15_000)
        assert live(world), number


def test_a_newcomer_reads_what_is_posted_from_now_on(world):
    talk(world)
    world.come("n3")
    keys = world.keys("n3")
    assert not keys.receiving, "it has no key of what was posted before"
    assert live(world, 2)
    assert world.keys("n3").number >= 1


def test_a_removed_member_has_no_key_of_later_posts(world):
    talk(world)
    world.run_command("n0", RemoveMember(world.id, world.did("n2")))
    former = world.keys("n2")
    at = len(world.sealed)
    world.run(for_ms=10_000)
    texts = talk(world, 2, ["n0", "n1"])
    assert world.texts("n1")[-4:] == texts and not world.retransmissions
    for author, envelope in world.sealed[at:]:
        place = world.place(envelope)
        for keys in (former, world.keys("n2")):
            with pytest.raises(Refused):
                receiving_key(keys, world.did(author), place.epoch, place.number, world.now)


def test_a_leaver_has_no_key_of_later_posts(world):
    talk(world)
    former = world.keys("n2")
    world.leave("n2")
    at = len(world.sealed)
    talk(world, 2, ["n0", "n1"])
    for author, envelope in world.sealed[at:]:
        place = world.place(envelope)
        with pytest.raises(Refused):
            receiving_key(former, world.did(author), place.epoch, place.number, world.now)


def test_one_update_heals_all_ratchets(world):
    """Each member that adopts it has another ratchet than a thief of its keys can follow."""
    talk(world)
    before = {name: world.keys(name).ratchet for name in world.nodes}
    for number in range(UPDATE_MESSAGES):
        world.run_command("n0", SendPost(world.id, f"busy {number}"))
        world.run(for_ms=100)
    talk(world, 1, ["n1", "n2"])
    assert {name: world.keys(name).ratchet != before[name] for name in world.nodes} == dict.fromkeys(world.nodes, True)
    assert world.converged() and not world.retransmissions


def test_few_keys_stay(world):
    talk(world, 30)
    for name in world.nodes:
        receiving = world.keys(name).receiving
        assert all(len(epochs) <= EPOCHS_MAX for epochs in receiving.values())
        assert not any(one.skipped for epochs in receiving.values() for one in epochs)


@pytest.fixture
def world():
    return Healing()
