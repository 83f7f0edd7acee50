"""Merkle batch signatures: the posts of a message share a signature, and each of them proves itself."""

import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, b64url_bytes, compact_msgpack, did_key
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, sha256
from zerochat.didcomm.message import Message
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.evidence.merkle import Tree, leaf_hash, node_hash
from zerochat.group.event_log import tree_signature
from zerochat.group.event_log.event import (
    ADD,
    POST,
    RECORD_BYTES_MAX,
    SIGNATURE_CONTEXT,
    Event,
    foreign_event,
    load_event,
    parse_event,
)
from zerochat.group.event_log.tree_signature import CHARS_MAX, LEAVES_MAX, TreeSignature, leaf_of, parse
from zerochat.group.wire.event_runs import (
    RUN_BYTES_MAX,
    SIGNATURE_CHARS_MAX,
    Run,
    SignedItems,
    compress_runs,
    message_batches,
    read_runs,
    runs_of,
    signed_together,
    with_bytes,
    without_bytes,
    write_runs,
)
from zerochat.group.wire.messages import EventsBody, read_body

SEED = b"a" * 32
AUTHOR = did_key(ed25519_public(SEED))
GROUP = b64url(sha256(b"group"))
SIZES = (2, 3, 4, 5, 8, 13, 33, LEAVES_MAX)


def chain(count, text="post", seq=1, pre="", **fields):
    """Consecutive posts of one author, unsigned."""
    events = []
    for place in range(seq, seq + count):
        values = {"type": POST, "body": {"text": f"{text} {place}"}, **fields}
        event = Event(GROUP, values["type"], AUTHOR, place, pre, (), (), 1000 + place, 1000 + place, values["body"])
        events.append(event)
        pre = event.id
    return events


def signed(events, seed=SEED):
    leaves = tree_signature.sign(seed, [event.id for event in events])
    return [event.with_signature(*one) for event, one in zip(events, leaves, strict=True)]


def fresh(events):
    """The same from their records, without anything that is cached with an event."""
    return [load_event(event.record) for event in events]


def through_wire(events, sender=""):
    """As another member reads them, in each of the wire's forms."""
    body = {"runs": write_runs(events, sender), "view": "", "have": []}
    plain = read_body(Message(type="t", id="1", body=body), EventsBody)
    packed = read_body(compress_runs(Message(type="t", id="1", body=body)), EventsBody)
    assert without_bytes(msgspec.msgpack.decode(compact_msgpack(with_bytes(body)))) == body
    found = [list(read_runs(GROUP, runs_of(one.runs, one.packed), sender)) for one in (plain, packed)]
    assert [event.record for event in found[0]] == [event.record for event in found[1]]
    return found[0]


# --- signing and checking ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", SIZES)
def test_each_event_proves_itself(size):
    events = signed(chain(size))
    root = Tree(b64url_bytes(event.id) for event in events).root()
    for event in fresh(events):
        event.check_signature()
        assert parse_event(event.wire) == event
        assert event.leaf.root.root == root and len({len(event.sig), CHARS_MAX}) <= 2
    assert len({b64url_bytes(event.sig)[:64] for event in events}) == 1
    assert max(len(event.sig) for event in signed(chain(LEAVES_MAX))) == CHARS_MAX


def test_an_erased_event_keeps_its_signature():
    for event in fresh(signed(chain(5))):
        event.erased().check_signature()


@pytest.mark.parametrize("size", [2, 3, 7, LEAVES_MAX])
def test_no_other_event_and_no_changed_signature_verifies(size):
    events = signed(chain(size))
    dice = random.Random(size)
    for event in (events[0], events[size // 2], events[-1]):
        data = bytearray(b64url_bytes(event.sig))
        for place in {*range(67), *dice.sample(range(len(data)), 10)}:
            data[place] ^= 1 << dice.randrange(8)
            with pytest.raises(RemoteError):
                load_event(replace(event, sig=b64url(bytes(data))).record).check_signature()
            data = bytearray(b64url_bytes(event.sig))
        with pytest.raises(Unauthentic):
            replace(event, body={"text": "a lie"}).check_signature()
        with pytest.raises(Unauthentic):
            replace(event, sig=events[event.seq % size].sig).check_signature()
    with pytest.raises(Unauthentic):
        signed(chain(size), bytes(32))[0].check_signature()


@pytest.mark.parametrize("size", range(2, 20))
def test_an_event_has_one_valid_index_and_size(size):
    """In an RFC 6962 tree alone, one path may fit several sizes: so the size is signed."""
    event = signed(chain(size))[0]
    found = parse(event.sig)
    valid = []
    for other in range(2, 24):
        for index in range(other):
            changed = TreeSignature(found.signature, other, index, found.hashes)
            try:
                load_event(replace(event, sig=changed.text()).record).check_signature()
            except RemoteError:
                continue
            valid.append((other, index))
    assert valid == [(size, 0)]


def test_a_root_is_no_event_and_an_event_is_no_root():
    """Neither signature counts for the other, and no inner node for a leaf."""
    one, other = signed(chain(2))
    root, found = one.leaf.root.root, parse(one.sig)
    cross = ed25519_sign(SEED, SIGNATURE_CONTEXT + b64url(root).encode())
    with pytest.raises(Unauthentic):
        load_event(replace(one, sig=TreeSignature(cross, 2, 0, found.hashes).text()).record).check_signature()
    with pytest.raises(Unauthentic):
        replace(one, sig=b64url(found.signature)).check_signature()
    as_id = ed25519_sign(SEED, SIGNATURE_CONTEXT + one.id.encode())
    with pytest.raises(Unauthentic):
        load_event(replace(one, sig=TreeSignature(as_id, 2, 0, found.hashes).text()).record).check_signature()
    four = signed(chain(4))
    found = parse(four[0].sig)
    node = b64url(node_hash(*(leaf_hash(b64url_bytes(event.id)) for event in four[:2])))
    as_leaf = leaf_of(TreeSignature(found.signature, 2, 0, found.hashes[1:]).text(), node)
    for size in (2, 4):
        with pytest.raises(Unauthentic):
            tree_signature.verify(ed25519_public(SEED), replace(as_leaf.root, size=size))
    assert other.leaf.root.root == root


def short(sig, count):
    return b64url(b64url_bytes(sig)[:count])


CHANGES = {
    "a character less": lambda sig: sig[:-1],
    "a character more": lambda sig: sig + "A",
    "padding": lambda sig: sig + "=",
    "another alphabet": lambda sig: sig[:-1] + "!",
    "no index": lambda sig: short(sig, 65),
    "no path": lambda sig: short(sig, 66),
    "a part of a signature": lambda sig: short(sig, 63),
    "a hash less": lambda sig: short(sig, len(b64url_bytes(sig)) - 32),
    "a hash more": lambda sig: b64url(b64url_bytes(sig) + bytes(32)),
    "a single leaf": lambda sig: b64url(b64url_bytes(sig)[:64] + bytes((0, 0))),
    "an index outside": lambda sig: b64url(b64url_bytes(sig)[:64] + bytes((3, 4)) + b64url_bytes(sig)[66:]),
    "a larger tree": lambda sig: b64url(b64url_bytes(sig)[:64] + bytes((255, 0)) + b64url_bytes(sig)[66:]),
    "longer than any": lambda sig: "x" * (CHARS_MAX + 2),
    "shorter than any": lambda sig: "x",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_other_form_is_malformed(change):
    event = signed(chain(5))[1]
    with pytest.raises(Malformed):
        parse_event({**event.wire, "sig": change(event.sig)})
    with pytest.raises(Malformed):
        foreign_event(replace(event, sig=change(event.sig)).record)
    with pytest.raises(RemoteError):
        load_event(replace(event, sig=change(event.sig)).record).check_signature()


def test_membership_events_have_signatures_of_their_own():
    for event in signed(chain(2, type=ADD)):
        event.check_signature()
        with pytest.raises(Malformed):
            parse_event(event.wire)
        with pytest.raises(Malformed):
            list(read_runs(GROUP, msgspec.convert(write_runs([event]), list[Run])))


def test_a_message_costs_one_verification(monkeypatch):
    verified = []
    monkeypatch.setattr(tree_signature, "ed25519_verify", lambda *given: verified.append(given))
    for event in fresh(signed(chain(100, "counted"))):
        event.check_signature()
    assert len(verified) == 1


def test_a_failed_verification_is_not_cached():
    event = signed(chain(3, "not cached"), bytes(32))[0]
    for _ in range(2):
        with pytest.raises(Unauthentic):
            event.check_signature()


# --- on the wire ------------------------------------------------------------------------------------------------------


@given(st.integers(2, 40), st.data())
def test_any_part_of_a_message_survives_the_wire(size, data):
    events = signed(chain(size))
    begin = data.draw(st.integers(0, size - 1))
    end = data.draw(st.integers(begin + 1, size))
    (run,) = write_runs(events[begin:end], AUTHOR)
    ((first, count, signature),) = run["signed"]
    assert (first, count) == (0, end - begin) and len(signature) <= SIGNATURE_CHARS_MAX
    for some in (events[begin:end], fresh(events[begin:end]), events[begin:end:2], events[::-1]):
        read = through_wire(some)
        assert [event.record for event in read] == [event.record for event in some]
        for event in read:
            event.check_signature()
            replace(event).check_signature()


def test_the_longest_signature_fits_its_field():
    events = signed(chain(LEAVES_MAX))
    found = [
        len(run["signed"][0][2])
        for begin in (0, 1, 2, 127, 129)
        for end in (128, 129, LEAVES_MAX - 1, LEAVES_MAX)
        if begin < end
        for run in write_runs(events[begin:end])
    ]
    assert max(found) == SIGNATURE_CHARS_MAX


def test_a_run_mixes_kinds_of_signatures():
    events = chain(12)
    mixed = [
        events[0],
        *signed(events[1:4]),
        events[4].signed(SEED),
        *signed(events[5:9])[:3],
        events[8],
        *signed(events[8:10])[1:],
        *signed(events[10:12]),
    ]
    (run,) = write_runs(mixed)
    assert [one[:2] for one in run["signed"]] == [[1, 3], [5, 3], [9, 1], [10, 2]]
    assert [event.record for event in through_wire(mixed)] == [event.record for event in mixed]


def test_a_whole_message_carries_its_signature_once():
    events = chain(100, "x" * 20)
    plain = [event.signed(SEED) for event in events]

    def size(some):
        return len(compact_msgpack(with_bytes({"runs": write_runs(some, AUTHOR), "view": "", "have": []})))

    assert size(signed(events)) - size(events) <= 66 + 20 < size(plain) - size(events)
    assert size(signed(events)[13:40]) - size(events[13:40]) <= 66 + 20 + 12 * 33


def test_what_was_not_signed_together_is_not_joined():
    """Two leaves with one signature and consecutive places, whose paths lead to different roots."""
    events = chain(4)
    one, two = signed(events), signed(events)
    found = parse(one[2].sig)
    forged = TreeSignature(found.signature, 4, 2, (found.hashes[0], bytes(32)))
    two[2] = events[2].with_signature(forged.text())
    assert [event.record for event in through_wire(two)] == [event.record for event in two]


def good(count=3, size=5):
    (run,) = msgspec.convert(write_runs(signed(chain(size))[:count]), list[Run])
    return run


@pytest.mark.parametrize(
    "change",
    [
        {"first": 1},
        {"count": 4},
        {"count": 256},
        {"first": 255},
        {"signature": ""},
        {"signature": "x"},
        {"signature": b64url(bytes(64))},
        {"signature": b64url(bytes(64) + bytes((4, 3)) + bytes(64))},
        {"signature": b64url(bytes(64) + bytes((4, 0)))},
        {"signature": b64url(bytes(64) + bytes((4, 0)) + bytes(96))},
    ],
    ids=str,
)
def test_shared_signatures_that_do_not_fit_their_items_are_malformed(change):
    run = good()
    assert len(list(read_runs(GROUP, [run]))) == 3
    changed = replace(run, signed=[replace(run.signed[0], **change)])
    with pytest.raises(Malformed):
        list(read_runs(GROUP, [changed]))


def test_an_item_has_one_signature():
    run, (span,) = good(), good().signed
    with pytest.raises(Malformed):
        list(read_runs(GROUP, [replace(run, signed=[span, span])]))
    alone = signed(chain(5))[0]
    for sig in (alone.sig, chain(1)[0].signed(SEED).sig):
        items = [[*run.items[0], POST, [], [], sig], *run.items[1:]]
        with pytest.raises(Malformed):
            list(read_runs(GROUP, [replace(run, items=items)]))
        if sig == alone.sig:
            with pytest.raises(Malformed):
                list(read_runs(GROUP, [replace(run, items=items, signed=[])]))


@pytest.mark.parametrize(
    "value",
    [[], [0, 1], [0, 1, "x", 2], [-1, 1, "x"], [0, 0, "x"], [256, 1, "x"], [0, 257, "x"], ["0", 1, "x"], [0, 1, 5], {}],
    ids=str,
)
def test_shared_signatures_of_another_shape_are_refused(value):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(value, SignedItems)


def test_a_record_that_its_signature_makes_too_long_is_malformed():
    long = chain(1, "x" * (RECORD_BYTES_MAX - 20 - len(chain(1, "")[0].record)))[0]
    parse_event(long.wire)
    run = write_runs(signed([long, *chain(1, seq=2, pre=long.id)])[:1])
    with pytest.raises(Malformed):
        list(read_runs(GROUP, msgspec.convert(run, list[Run])))


def test_messages_are_divided_as_if_their_posts_were_unsigned():
    events = chain(120, "y" * 400)
    portions = list(message_batches(events))
    assert len(portions) > 1
    together = [event for portion in portions for event in signed(portion)]
    assert [len(one) for one in signed_together(together)] == list(map(len, portions))
    last = chain(2, seq=121, pre=events[-1].id)
    assert [len(one) for one in signed_together([*signed(last), last[0].signed(SEED), last[1].signed(SEED)])] == [
        2,
        1,
        1,
    ]
    for portion in message_batches(together):
        assert sum(len(event.record) - len(event.sig) for event in portion) <= RUN_BYTES_MAX
