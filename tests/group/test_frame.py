"""Frames, runs, padding and compression: small messages that reveal little."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import frame_pair
from tests.support.frame_pair import pair
from zerochat.crypto.compression import compress, decompress
from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.event_log.event import ADD, POST, Event
from zerochat.group.inputs import StepContext
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.wire.event_runs import (
    RUN_BYTES_MAX,
    RUN_EVENTS_MAX,
    Run,
    compress_runs,
    message_batches,
    read_runs,
    runs_of,
    write_runs,
)
from zerochat.group.wire.frame import SECTION_BYTES, is_frame, open_frame, seal_frame
from zerochat.group.wire.messages import EventsBody, read_body
from zerochat.group.wire.padding import DOUBLED_BYTES_MAX, pad, padded_size

dice = frame_pair.dice

GROUP = "g" * 43
AUTHOR, OTHER = did_key(ed25519_public(b"a" * 32)), did_key(ed25519_public(b"o" * 32))


@pytest.fixture
def context(dice):
    return StepContext(1_750_000_000_000, dice.randbytes)


@pytest.fixture
def pairs(dice):
    """Alice's relationships with five others, and theirs with her."""
    return {name: pair(dice, "alice", name) for name in ("bob", "carol", "dave", "erin", "frank")}


class TestFrames:
    def test_only_the_recipients_open_a_frame(self, pairs, context):
        to = [pairs[name][0] for name in ("bob", "carol", "dave")]
        frame = seal_frame(b"hello", GROUP, "alice", to, context)
        for name in ("bob", "carol", "dave"):
            content, after = open_frame(frame, GROUP, name, pairs[name][1])
            assert content == b"hello" and after.acknowledged
        with pytest.raises(Unauthentic):
            open_frame(frame, GROUP, "erin", pairs["erin"][1])

    def test_it_is_bound_to_group_and_reader(self, pairs, context):
        frame = seal_frame(b"hello", GROUP, "alice", [pairs["bob"][0]], context)
        for group, me in (("h" * 43, "bob"), (GROUP, "carol")):
            with pytest.raises(Unauthentic):
                open_frame(frame, group, me, pairs["bob"][1])

    def test_a_recipient_cannot_replace_the_content_for_another(self, pairs, context):
        """Bob knows the body's key, so he can make a body of his own; Carol's section does not hold for it."""
        to = [pairs["bob"][0], pairs["carol"][0]]
        real = seal_frame(b"pay bob 1", GROUP, "alice", to, context)
        other = seal_frame(b"pay bob 9", GROUP, "alice", to, context)
        cut = 26 + 2 * SECTION_BYTES
        with pytest.raises(Unauthentic):
            open_frame(real[:cut] + other[cut:], GROUP, "carol", pairs["carol"][1])

    @pytest.mark.parametrize("size", [0, 1, 100, 5_000, 200_000])
    def test_every_changed_byte_is_refused(self, pairs, context, dice, size):
        frame = seal_frame(dice.randbytes(size), GROUP, "alice", [pairs["bob"][0]], context)
        for place in {*range(min(len(frame), 120)), len(frame) - 1, len(frame) // 2}:
            broken = bytearray(frame)
            broken[place] ^= 0x40
            with pytest.raises(RemoteError):
                open_frame(bytes(broken), GROUP, "bob", pairs["bob"][1])
        for short in (0, 1, 25, 26, 26 + SECTION_BYTES, len(frame) - 1):
            with pytest.raises(RemoteError):
                open_frame(frame[:short], GROUP, "bob", pairs["bob"][1])

    def test_the_size_reveals_only_a_bucket_and_the_recipient_count(self, pairs, context, dice):
        to = [one for one, _ in pairs.values()]
        sizes = {len(seal_frame(dice.randbytes(n), GROUP, "alice", to, context)) for n in range(0, 4096, 37)}
        assert len(sizes) <= 6

    def test_the_order_of_sections_reveals_no_recipient(self, pairs, context):
        to = [one for one, _ in pairs.values()]
        places = set()
        for _ in range(40):
            frame = seal_frame(b"hello", GROUP, "alice", to, context)
            for place in range(len(to)):
                at = 26 + place * SECTION_BYTES
                alone = frame[:26] + frame[at : at + SECTION_BYTES] + frame[26 + len(to) * SECTION_BYTES :]
                try:
                    open_frame(alone[:25] + b"\1" + alone[26:], GROUP, "bob", pairs["bob"][1])
                except Unauthentic:
                    # The count is bound to the sections, so no section opens alone; look for bob's by leaving one out.
                    rest = frame[:at] + bytes(SECTION_BYTES) + frame[at + SECTION_BYTES :]
                    try:
                        open_frame(rest, GROUP, "bob", pairs["bob"][1])
                    except Unauthentic:
                        places.add(place)
        assert len(places) == len(to)

    @given(st.binary(max_size=400))
    def test_junk_is_refused(self, junk):
        dice = random.Random(1)
        _, mine = pair(dice, "alice", "bob")
        for frame in (junk, b"\x01" + junk):
            with pytest.raises(RemoteError):
                open_frame(frame, GROUP, "bob", mine)

    def test_no_didcomm_envelope_is_mistaken_for_a_frame(self):
        for envelope in (b'{"protected":""}', b""):
            assert not is_frame(envelope) and not is_signed(envelope)


def chain(count, text="hm", **fields):
    """Consecutive posts of one author."""
    events, pre = [], ""
    for seq in range(1, count + 1):
        values = {"type": POST, "deps": (), "conc": (), "body": {"text": f"{text} {seq}"}, **fields}
        event = Event(
            GROUP,
            values["type"],
            AUTHOR,
            seq,
            pre,
            values["deps"],
            values["conc"],
            1000 + seq,
            900 + 2 * seq,
            values["body"],
        )
        events.append(event)
        pre = event.id
    return events


def read(events, sender=""):
    body = {"runs": write_runs(events, sender), "view": "", "have": []}
    return list(read_runs(GROUP, read_body(Message(type="t", id="1", body=body), EventsBody).runs, sender))


class TestRuns:
    def test_a_frame_round_trips_to_the_byte(self):
        events = chain(RUN_EVENTS_MAX)
        with pytest.raises(Malformed):
            read([*events, *chain(1)])
        signed = [event.signed(b"a" * 32) for event in chain(3, type=ADD, body={"member": "x"}, deps=("d" * 43,))]
        mixed = [events[0], *signed, *events[1:7], events[9]]
        for some in (events, signed, mixed):
            for sender in ("", AUTHOR, OTHER):
                assert [event.record for event in read(some, sender)] == [event.record for event in some]

    def test_a_post_of_a_run_costs_little_more_than_its_text(self):
        events = chain(100, text="x" * 20)
        whole = sum(len(event.record) for event in events)
        assert len(str(write_runs(events))) < whole / 4

    @pytest.mark.parametrize(
        "item",
        [
            [],
            [1, 1],
            [1, 1, {}, POST, [], [], "", 1],
            ["1", 1, {}],
            [True, 1, {}],
            [1, 1.5, {}],
            [-5000, 1, {}],
            [1, 1, []],
            [1, 1, {}, 7],
            [1, 1, {}, POST, "x"],
            [1, 1, {}, POST, [], 5],
            [1, 1, {}, POST, [], [], 5],
            [2**60, 1, {}],
        ],
    )
    def test_an_item_of_another_shape_is_malformed(self, item):
        good = [1000, -100, {"text": "good"}]
        with pytest.raises(Malformed):
            list(read_runs(GROUP, [Run(1, "", [good, item], AUTHOR)]))

    def test_squeezed_runs_are_read_as_they_were(self):
        events = chain(100)
        message = Message(type="t", id="1", body={"runs": write_runs(events), "view": "", "have": []})
        small = compress_runs(message)
        assert "runs" not in small.body and len(str(small.body)) < len(str(message.body)) / 3
        body = read_body(small, EventsBody)
        assert [event.record for event in read_runs(GROUP, runs_of(body.runs, body.packed))] == [
            e.record for e in events
        ]
        few = Message(type="t", id="1", body={"runs": write_runs(events[:2]), "view": "", "have": []})
        assert compress_runs(few) is few

    @pytest.mark.parametrize("packed", ["x", "!!", b64url(compress(b"[1]")), b64url(compress(bytes(300_000)))])
    def test_malformed_compressed_runs_are_refused(self, packed):
        with pytest.raises(Malformed):
            runs_of([], packed)

    def test_portions_fit_a_message(self):
        events = chain(RUN_EVENTS_MAX + 10, text="y" * 1000)
        pieces = list(message_batches(events))
        assert [event for piece in pieces for event in piece] == events
        for piece in pieces:
            assert len(piece) <= RUN_EVENTS_MAX and sum(len(event.record) for event in piece) <= RUN_BYTES_MAX
        assert list(message_batches([])) == []


class TestPadding:
    def test_buckets_double_and_then_step(self):
        assert [padded_size(n) for n in (0, 1, 256, 257, 4096, 4097)] == [256, 256, 256, 512, 4096, 5120]
        assert len({padded_size(n) for n in range(4097)}) == 5
        kib = [size // 1024 for size in sorted({padded_size(n) for n in range(DOUBLED_BYTES_MAX + 1, 200_000)})]
        assert kib == [
            5,
            6,
            7,
            8,
            10,
            12,
            14,
            16,
            20,
            24,
            28,
            32,
            40,
            48,
            56,
            64,
            80,
            96,
            112,
            128,
            144,
            160,
            176,
            192,
            208,
        ]
        assert all(n <= padded_size(n) <= max(n + 16 * 1024, 2 * n) for n in range(256, 300_000, 97))

    @given(st.binary(max_size=2000))
    def test_padding_only_adds_spaces(self, plain):
        assert pad(plain).rstrip(b" ") == plain.rstrip(b" ") and len(pad(plain)) == padded_size(len(plain))


class TestCompression:
    @given(st.binary(max_size=5000))
    def test_there_and_back(self, data):
        assert decompress(compress(data), 5000) == data

    def test_a_decompression_bomb_is_refused_by_its_claimed_size(self):
        with pytest.raises(Malformed):
            decompress(compress(bytes(10_000_000)), 65_536)

    def test_a_lie_about_the_size_is_refused(self):
        packed = bytearray(compress(b"a" * 60_000))
        at = packed.find((60_000 - 256).to_bytes(2, "little"))
        assert at > 0
        for lie in (10, 65_000 - 256):
            packed[at : at + 2] = lie.to_bytes(2, "little")
            with pytest.raises(Malformed):
                decompress(bytes(packed), 65_536)

    @pytest.mark.parametrize("junk", [b"", b"\x28\xb5\x2f\xfd", compress(b"one") + b"x", compress(b"one") * 2])
    def test_an_invalid_frame_is_refused(self, junk):
        with pytest.raises(Malformed):
            decompress(junk, 1000)

    def test_a_frame_that_hides_its_size_is_refused(self):
        import zstandard

        hidden = zstandard.ZstdCompressor(write_content_size=False).compress(b"b" * 1000)
        with pytest.raises(Malformed):
            decompress(hidden, 65_536)
