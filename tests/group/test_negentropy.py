"""Range-based set reconciliation: wire format, exact differences, hostile peers."""

import random
from contextlib import suppress
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.marks import others_slow
from zerochat.errors import Malformed
from zerochat.group.sync import negentropy
from zerochat.group.sync.negentropy import (
    END,
    FRAME_BYTES_MIN,
    GUESSES_MAX,
    MESSAGE_BYTES_MAX,
    RANGES_MAX,
    Items,
    initial_message,
    process_response,
    respond,
)

FRAME = 64 * 1024
ZEROS = bytes(31)
ROUNDS = 400
"""More than any comparison here may take: each must end."""


def compare(mine, theirs, frame_mine=FRAME, frame_theirs=FRAME, answerer=None):
    """The differences of `mine`, the bytes sent, and the round trips."""
    answerer = answerer or (lambda message: respond(theirs, message, frame_theirs))
    have, need, size = set(), set(), 0
    message = initial_message(mine)
    for trips in range(1, ROUNDS):
        reply = answerer(message)
        assert len(reply) <= frame_theirs
        learned = process_response(mine, reply, frame_mine)
        have.update(learned.only_ours)
        need.update(learned.only_theirs)
        size += len(message) + len(reply)
        if learned.next_message is None:
            return have, need, size, trips
        message = learned.next_message
        assert len(message) <= frame_mine
    pytest.fail("the comparison does not end")


def some_items(dice, count, gap=1000):
    """So many items, one after the other."""
    stamp, items = 0, set()
    while len(items) < count:
        stamp += dice.randrange(gap)
        items.add((stamp, dice.randbytes(32)))
    return sorted(items)


# --- by hand, from the specification ----------------------------------------------------------------------------------
# The digests here come from sha256sum.


def test_an_empty_set_is_an_empty_list():
    # version; the bound "infinity" (0, no prefix); mode 2, no ids
    assert initial_message(Items([])) == bytes.fromhex("61 0000 02 00")


def test_one_item():
    # version, infinity, mode 1, and the first half of SHA-256(aa * 32 || 01)
    assert initial_message(Items([(7, b"\xaa" * 32)])) == bytes.fromhex("61 0000 01 42b5d6e9a824e972398bfe0b80a84fb2")


def test_a_sum_that_overflows():
    # As little-endian numbers ff * 32 is 2^256 - 1 and 02 00 … is 2: their sum is 1, that is 01 00 …, of two items.
    items = Items([(1, b"\x02" + ZEROS), (2, b"\xff" * 32)])
    assert initial_message(items) == bytes.fromhex("61 0000 01 6092a26dea6bc7bdc57a942f1df2d0d7")


def test_a_count_of_two_digits():
    # 1 + 2 + … + 300 = 45150 = b05e; 300 = 2 * 128 + 44, so its digits are 82 2c.
    items = Items((number, number.to_bytes(32, "little")) for number in range(1, 301))
    assert initial_message(items) == bytes.fromhex("61 0000 01 1393da3bfbd9f994e67837caa31b9ca6")


def test_bounds_and_skips():
    one, two = b"\xaa" * 32, b"\xab" * 32
    items = Items([(1000, one), (1000, two), (1001, b"\x01" * 32)])
    # Up to timestamp 1000 (1 + 1000 = 7 * 128 + 105: 87 69; no prefix): skip.
    # Up to 1000 (1 + 0), prefix ab: an empty list. The rest is skipped without a word.
    message = bytes.fromhex("61 8769 00 00  01 01ab 02 00")
    # The same skip, then one id up to the same bound. The rest is skipped without a word.
    assert respond(items, message, FRAME) == bytes.fromhex("61 8769 00 00  01 01ab 02 01") + one
    # A side that has both of the first two has nothing to send, in whatever order they are named.
    message = bytes.fromhex("61 876a 00 02 02") + two + one
    assert respond(items, message, FRAME) == b"\x61"


def test_a_single_missing_item_is_found_at_once():
    first, second, third = b"\x10" + ZEROS, b"\x10\x20" + ZEROS[1:], b"\x77" + ZEROS
    items = Items([(5, first), (5, second), (9, third)])
    # The sum of the first and the third is 87 00 …, of two items.
    message = bytes.fromhex("61 0000 01 3b2db0cf1d652570878ef7cb016a34a4")
    # Up to timestamp 5 (1 + 5), with the shortest prefix that is above the first and not above the second: skip. Up to
    # timestamp 9 (1 + 4): a list of the second. The rest is skipped.
    assert respond(items, message, FRAME) == bytes.fromhex("61 06 021020 00  05 00 02 01") + second
    # An initiator that has more than the other side sends nothing further.
    assert process_response(items, message, FRAME) == (None, [second], [])


def test_a_list_is_compared():
    one, two, three = (bytes([digit]) * 32 for digit in (1, 2, 3))
    items = Items([(1, one), (2, two), (9, b"\x09" * 32)])
    # Up to timestamp 5: a list of two and three.
    assert process_response(items, bytes.fromhex("61 06 00 02 02") + three + two, FRAME) == (None, [one], [three])


def test_a_small_range_that_differs_is_requested():
    items = Items([(1, b"\xaa" * 32), (100, b"\x01" * 32)])
    # Up to timestamp 50 (1 + 50 = 33): a fingerprint that is not ours. Ours goes back, for the same range.
    reply = bytes.fromhex("61 33 00 01") + b"\x55" * 16
    assert process_response(items, reply, FRAME).next_message == bytes.fromhex(
        "61 33 00 01 42b5d6e9a824e972398bfe0b80a84fb2"
    )


def test_other_versions():
    items = Items([])
    assert respond(items, b"\x62whatever", FRAME) == b"\x61"
    assert respond(items, b"\x60", FRAME) == b"\x61"
    for first in (0x5F, 0x70):
        with pytest.raises(Malformed):
            respond(items, bytes([first]), FRAME)
    with pytest.raises(Malformed):
        process_response(items, b"\x60", FRAME)


# --- it ends with the difference --------------------------------------------------------------------------------------


@st.composite
def two_sets(draw, most=1500):
    """Two sets of (timestamp, id) that share some, and the dice that they were thrown with."""
    dice = random.Random(draw(st.integers(0, 2**32)))
    shared, left, right = draw(st.integers(0, most)), draw(st.integers(0, 300)), draw(st.integers(0, 300))
    stamps = draw(st.sampled_from([1, 3, 1000, 2**40, 2**64 - 1]))
    tied = draw(st.booleans())
    above = draw(st.sampled_from([0, stamps - 1]))

    def one(low=0):
        """Ids may share a prefix or end with zeros; but their sums mean something only if each is random."""
        tie = dice.choice(
            (ZEROS[:24] + dice.randbytes(8), b"\xff" * 20 + dice.randbytes(12), dice.randbytes(9) + bytes(23))
        )
        return dice.randrange(low, stamps), tie if tied else dice.randbytes(32)

    common = {one() for _ in range(shared)}
    mine = common | {one(above) for _ in range(left)}
    theirs = common | {one(above) for _ in range(right)}
    seen: dict[bytes, int] = {}
    for stamp, name in sorted(mine | theirs):
        seen.setdefault(name, stamp)
    mine, theirs = ({item for item in items if seen[item[1]] == item[0]} for items in (mine, theirs))
    return sorted(mine), sorted(theirs), dice


def names(items):
    return {name for _, name in items}


frames = st.integers(FRAME_BYTES_MIN, 3 * FRAME_BYTES_MIN)


@pytest.mark.slow
@given(two_sets(), frames, frames)
@settings(deadline=None, max_examples=150)
def test_it_ends_with_the_difference(sets, frame_mine, frame_theirs):
    mine, theirs, _ = sets
    have, need, _, _ = compare(Items(mine), Items(theirs), frame_mine, frame_theirs)
    assert have == names(mine) - names(theirs)
    assert need == names(theirs) - names(mine)


@pytest.mark.parametrize("shared", others_slow([0, 5000]))
def test_more_differences_than_fit_into_one_message(shared):
    dice = random.Random(shared)
    pool = some_items(dice, shared + 3000)
    dice.shuffle(pool)
    mine, theirs = sorted(pool[1500:]), sorted(pool[:1500] + pool[3000:])
    have, need, _, trips = compare(Items(mine), Items(theirs), FRAME_BYTES_MIN, FRAME_BYTES_MIN)
    assert trips > 1500 * 32 / FRAME_BYTES_MIN
    assert have == names(pool[1500:3000])
    assert need == names(pool[:1500])


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many():
    return some_items(random.Random(5), 30_000)


def test_equal_sets_take_one_short_message(many):
    assert compare(Items(many), Items(many)) == (set(), set(), 21, 1)


def test_a_missing_suffix_is_found_at_once(many):
    have, need, size, trips = compare(Items(many[:-100]), Items(many))
    assert not have and len(need) == 100
    assert trips == 1 and size < 100 * 32 + 100
    have, need, size, trips = compare(Items(many), Items(many[:-100]))
    assert len(have) == 100 and not need
    assert trips == 1 and size < 1000


def test_scattered_differences(many):
    places = sorted(random.Random(6).sample(range(len(many)), 10))
    without = [[item for place, item in enumerate(many) if place not in gone] for gone in (places[::2], places[1::2])]
    have, need, size, trips = compare(Items(without[0]), Items(without[1]))
    assert (len(have), len(need)) == (5, 5)
    assert size < 6000 and trips <= 3


def test_the_last_few_on_both_sides(many):
    sides = [[*many[:-10], *many[-10 + first :: 2]] for first in (0, 1)]
    have, need, size, trips = compare(Items(sides[0]), Items(sides[1]))
    assert (len(have), len(need)) == (5, 5)
    assert size < 3000 and trips <= 3


# --- against another implementation, written from the specification ---------------------------------------------------


def plain_digits(number):
    out = bytes([number % 128])
    while number >= 128:
        number //= 128
        out = bytes([number % 128 + 128]) + out
    return out


def plain_digest(items):
    total = sum(int.from_bytes(name, "little") for _, name in items) % 2**256
    return sha256(total.to_bytes(32, "little") + plain_digits(len(items))).digest()[:16]


def plain_read(message):
    """A list of (upper bound as (timestamp, 32 bytes), mode, payload)."""
    bytes_left = list(message)
    assert bytes_left.pop(0) == 0x61

    def number():
        value = 0
        while True:
            digit = bytes_left.pop(0)
            value = value * 128 + digit % 128
            if digit < 128:
                return value

    def string(size):
        taken = bytes(bytes_left[:size])
        assert len(taken) == size
        del bytes_left[:size]
        return taken

    ranges: list[tuple] = []
    stamp = 0
    while bytes_left:
        offset = number()
        stamp = 2**64 - 1 if offset == 0 else stamp + offset - 1
        prefix = string(number())
        mode = number()
        payload = None if mode == 0 else string(16) if mode == 1 else [string(32) for _ in range(number())]
        ranges.append(((stamp, prefix + bytes(32 - len(prefix))), mode, payload))
    return ranges


def plain_write(ranges):
    out, last = b"\x61", 0
    for (stamp, prefix), mode, payload in ranges:
        if stamp == 2**64 - 1:
            out += b"\0\0"
        else:
            out += plain_digits(1 + stamp - last) + plain_digits(len(prefix)) + prefix
        last = stamp
        out += plain_digits(mode)
        out += b"" if mode == 0 else payload if mode == 1 else plain_digits(len(payload)) + b"".join(payload)
    return out


def plain_turn(items, message, parts, listed, asking):
    """The next message, or None, and what the initiator learns. Bounds are whole ids, never shortened."""
    out: list[tuple] = []
    have, need = [], []
    lower = (0, bytes(32))
    for upper, mode, payload in plain_read(message):
        inside = [item for item in items if lower <= item < upper]
        if mode == 1 and payload != plain_digest(inside):
            if len(inside) <= listed:
                out.append((upper, 2, [name for _, name in inside]))
            else:
                step = -(-len(inside) // parts)
                for start in range(0, len(inside), step):
                    part = inside[start : start + step]
                    end = inside[start + step] if start + step < len(inside) else upper
                    out.append((end, 1, plain_digest(part)))
        elif mode == 2 and asking:
            have += names(inside) - set(payload)
            need += set(payload) - names(inside)
            out.append((upper, 0, None))
        elif mode == 2:
            out.append((upper, 2, [name for _, name in inside]))
        else:
            out.append((upper, 0, None))
        lower = upper
    over = all(mode == 0 for _, mode, _ in out)
    return None if over and asking else plain_write(out), have, need


plain_ways = st.tuples(st.integers(2, 20), st.integers(1, 40))


@given(two_sets(most=300), frames, plain_ways)
@settings(deadline=None, max_examples=100)
def test_reconciliation_with_a_reference_responder(sets, frame, ways):
    mine, theirs, _ = sets

    def answerer(message):
        return plain_turn(theirs, message, *ways, asking=False)[0]

    have, need, _, _ = compare(Items(mine), None, frame, MESSAGE_BYTES_MAX, answerer)
    assert have == names(mine) - names(theirs)
    assert need == names(theirs) - names(mine)


def test_a_fingerprint_of_the_rest_may_leave_something_out():
    """Other implementations do, in messages that are too long: a guess from them would take the rest for missing."""
    items = Items((number, number.to_bytes(32, "big")) for number in range(1, 1001))
    many = [((number, bytes(32)), 1, items.fingerprint(number - 2, number - 1)) for number in range(2, 100)]
    for ranges in ([], many):
        reply = plain_write([*ranges, (END, 1, plain_digest([]))])
        learned = process_response(items, reply, FRAME)
        assert bool(learned.only_ours) is not bool(ranges)
        assert (learned.next_message is None) is not bool(ranges)


@given(two_sets(most=300), frames, plain_ways)
@settings(deadline=None, max_examples=100)
def test_reconciliation_with_a_reference_initiator(sets, frame, ways):
    mine, theirs, _ = sets
    have, need, items = set(), set(), Items(theirs)
    message: bytes | None = plain_write([((2**64 - 1, b""), 1, plain_digest(mine))])
    for _ in range(ROUNDS):
        if message is None:
            break
        message, more, wanted = plain_turn(mine, respond(items, message, frame), *ways, asking=True)
        have.update(more)
        need.update(wanted)
    else:
        pytest.fail("the comparison does not end")
    assert have == names(mine) - names(theirs)
    assert need == names(theirs) - names(mine)


# --- rejected messages ------------------------------------------------------------------------------------------------

THREE = Items([(1, b"\x01" * 32), (1, b"\x02" * 32), (3, b"\x03" * 32)])


@pytest.mark.parametrize(
    "message",
    [
        "",
        "00",
        "61 00",
        "61 0000",
        "61 0000 03",  # a mode that is none
        "61 0000 8001",  # a mode with a leading zero
        "61 800000 00",  # a bound with one
        "61 0000 01" + 15 * "55",
        "61 0000 02 01" + 31 * "55",
        "61 0000 02 02" + 64 * "55",  # an id twice
        "61 0000 02 ffffffffffffffff7f",  # more ids than there are bytes in the world
        "61 ffffffffffffffffffff7f 00 00",  # a number of eleven digits
        "61 82808080808080808000 00 00",  # 1 + 2^64 - 1: the timestamp that stands for infinity
        "61 82808080808080808001 00 00",  # above it
        "61 0001aa 00",  # infinity with a prefix
        "61 01 00 00",  # a range of nothing: from the beginning to the beginning
        "61 02 21" + 33 * "55" + "00",  # a prefix of 33 bytes
        "61 02 00 00 01 00 00",  # the same bound again
        "61 02 01aa 00 01 02aa00 00",  # the same again: missing bytes are zeros
        "61 02 01ab 00 01 01aa 00",  # a lower one
        "61 0000 00 0000 00",  # a range after infinity
        "61 0000 00 05 00 00",
        "61 0000 00 00",
    ],
)
def test_malformed(message):
    for side in (respond, process_response):
        with pytest.raises(Malformed):
            side(THREE, bytes.fromhex(message), FRAME)


def dialogue(mine, theirs):
    """All messages of a comparison."""
    told: list[bytes] = []
    message: bytes | None = initial_message(mine)
    while message:
        reply = respond(theirs, message, FRAME)
        told += [message, reply]
        message = process_response(mine, reply, FRAME).next_message
    return told


@pytest.fixture(scope="module")
def told():
    pool = some_items(random.Random(8), 2000, 3)
    gone = [set(random.Random(seed).sample(range(len(pool)), 9)) for seed in (1, 2)]
    sides = [Items(item for place, item in enumerate(pool) if place not in missing) for missing in gone]
    messages = dialogue(*sides)
    assert {mode for message in messages for _, mode, _ in plain_read(message)} == {0, 1, 2}
    return messages


@pytest.mark.slow
def test_every_truncation(told):
    for message in told:
        whole = 0
        for end in range(len(message)):
            try:
                respond(THREE, message[:end], FRAME)
            except Malformed:
                with pytest.raises(Malformed):
                    process_response(THREE, message[:end], FRAME)
            else:
                process_response(THREE, message[:end], FRAME)
                whole += 1
        assert whole == len(plain_read(message))  # cut between two ranges, the rest is skipped: that is all that passes


@given(st.data())
@settings(deadline=None, max_examples=300)
def test_broken_messages(told, data):
    message = bytearray(data.draw(st.sampled_from(told)))
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(message) - 1))
        message[place] = data.draw(st.integers(0, 255))
    harmless(bytes(message))


@given(st.binary(max_size=300))
@settings(deadline=None, max_examples=500)
def test_noise(noise):
    harmless(noise)
    harmless(b"\x61" + noise)


def harmless(message):
    for side in (respond, process_response):
        with suppress(Malformed):
            side(THREE, message, FRAME)


# --- limits on a peer's requests --------------------------------------------------------------------------------------


def test_oversized_input_is_refused():
    ranges = [((stamp, b""), 0, None) for stamp in range(1, RANGES_MAX + 1)]
    assert respond(THREE, plain_write(ranges), FRAME) == b"\x61"
    with pytest.raises(Malformed):
        respond(THREE, plain_write([*ranges, (END, 0, None)]), FRAME)
    listed = [number.to_bytes(32, "big") for number in range(MESSAGE_BYTES_MAX // 32)]
    assert respond(Items([]), plain_write([(END, 2, listed[:-1])]), FRAME) == bytes.fromhex("61 0000 02 00")
    with pytest.raises(Malformed):
        respond(Items([]), plain_write([(END, 2, listed)]), FRAME)


@pytest.fixture(scope="module")
def many_items():
    return Items(some_items(random.Random(9), 150_000, 3))


@pytest.mark.parametrize("side", [respond, process_response])
@pytest.mark.parametrize("width", [30, 3000])
def test_the_work_for_one_message_has_a_limit(many_items, side, width, monkeypatch):
    """Fingerprints that match nothing, one for every so many milliseconds."""
    ranges = [((stamp, b""), 1, bytes(16)) for stamp in range(width, min(width * RANGES_MAX, 150_000), width)]
    message, plain, counted = plain_write(ranges)[:MESSAGE_BYTES_MAX], negentropy._fingerprint, []

    def counting(total, count):
        counted.append(count)
        return plain(total, count)

    monkeypatch.setattr(negentropy, "_fingerprint", counting)
    told = side(many_items, message, FRAME)
    assert len(told if side is respond else told.next_message) <= FRAME
    assert len(counted) <= GUESSES_MAX + len(ranges) + FRAME // 19 + 1


@pytest.mark.parametrize("frame", [FRAME_BYTES_MIN - 1, MESSAGE_BYTES_MAX + 1])
def test_frames_have_limits_of_their_own(frame):
    with pytest.raises(ValueError, match="bytes"):
        respond(THREE, b"\x61", frame)


# --- the items --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        [(2, bytes(32)), (1, bytes(32))],
        [(1, b"\x01" * 32), (1, bytes(32))],
        [(1, bytes(32)), (1, bytes(32))],
        [(1, bytes(31))],
        [(1, bytes(33))],
        [(1, bytes(31)), (2, bytes(33))],
        [(2**64 - 1, bytes(32))],
        [*((number, bytes(32)) for number in range(4096)), (4095, bytes(32))],  # between two blocks
    ],
)
def test_items_must_be_sorted_and_of_one_shape(items):
    with pytest.raises(ValueError, match=r"items must be|ids have"):
        Items(items)


def test_ids_that_differ_in_their_last_byte():
    items = Items([(1, ZEROS + b"\x01"), (1, ZEROS + b"\x02")])
    assert items.cut(1) == (1, ZEROS + b"\x02")
    assert items.find(items.cut(1)) == 1


@given(two_sets(most=200), st.data())
@settings(deadline=None)
def test_ranges_of_items(sets, data):
    plain, others, _ = sets
    items = Items(plain)
    assert len(items) == len(plain)
    upper = data.draw(st.integers(0, len(plain)))
    lower = data.draw(st.integers(0, upper))
    assert items.fingerprint(lower, upper) == plain_digest(plain[lower:upper])
    assert items.ids(lower, upper) == [name for _, name in plain[lower:upper]]
    for stamp, name in [*others[:20], *plain[-20:]]:
        for prefix in (name[:1].rstrip(b"\0"), name[:31].rstrip(b"\0"), name.rstrip(b"\0"), b""):
            padded = (stamp, prefix + bytes(32 - len(prefix)))
            assert items.find((stamp, prefix)) == sum(item < padded for item in plain)
    assert items.find(END) == len(plain)
    if 0 < upper < len(plain):
        stamp, prefix = items.cut(upper)
        assert plain[upper - 1] < (stamp, prefix + bytes(32 - len(prefix))) <= plain[upper]
