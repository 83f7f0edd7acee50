"""Routed items as bytes: signed by their authors, bounded, in one form; bundles."""

import random

import pytest
from msgspec.structs import replace

from tests.support.membership_book import did, seed
from zerochat.crypto.encoding import INTEGER_MAX, b64url, compact_msgpack, did_key_bytes
from zerochat.crypto.primitives import sha256
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.wire.routed import (
    BUNDLE_BYTES_MAX,
    CONTENT_BYTES_MAX,
    ITEM_BYTES_MAX,
    ITEMS_MAX,
    TAG_BYTES,
    RoutedAck,
    RoutedItem,
    RoutedKind,
    bundles,
    parse_ack,
    parse_item,
    tag_of,
)
from zerochat.overlay.routing import HOPS_MAX

GROUP = b64url(sha256(b"group"))
A, B, C = map(did, ("a", "b", "c"))


def item(**changes):
    given = RoutedItem(GROUP, A, B, RoutedKind.DIRECT, 3, 1_800_000_000_000, b"direct message")
    return replace(given, **changes).signed(seed("a"))


def fullest():
    most = item(number=INTEGER_MAX, at=INTEGER_MAX, content=bytes(CONTENT_BYTES_MAX))
    for at in range(HOPS_MAX):
        most = most.passed_by(did(f"m{at}"))
    return most


@pytest.mark.parametrize("kind", RoutedKind)
def test_items_come_back(kind):
    for one in (item(kind=kind), item(kind=kind).passed_by(A).passed_by(C), replace(fullest(), kind=kind)):
        found = parse_item(one.wire, GROUP)
        assert found == one and found.id == one.id and len(one.wire) <= ITEM_BYTES_MAX
    parse_item(item(kind=kind).wire, GROUP).check_signature()


@pytest.mark.parametrize(
    "change",
    [
        {"author": C},
        {"recipient": C},
        {"kind": RoutedKind.RESET},
        {"number": 4},
        {"at": 1},
        {"content": b"another"},
        {"group": b64url(bytes(32))},
    ],
    ids=str,
)
def test_the_author_has_signed_everything_but_the_way(change):
    forged = replace(item(), **change)
    with pytest.raises(Unauthentic):
        parse_item(forged.wire, forged.group).check_signature()
    passed = item().passed_by(C)
    passed.check_signature()
    assert passed.id == item().id


def test_members_that_have_had_an_item_are_known():
    one = item().passed_by(A).passed_by(C)
    assert one.hops == 2 and one.has_passed(A) and one.has_passed(C) and not one.has_passed(B)
    shifted = replace(one, passed=b"\x00\x00" + tag_of(B) + b"\x00\x00")
    assert not shifted.has_passed(B)
    assert fullest().hops == fullest().passed_by(A).hops == HOPS_MAX


@pytest.mark.parametrize(
    "change",
    [
        {"recipient": A},
        {"number": -1},
        {"at": INTEGER_MAX + 1},
        {"content": b""},
        {"content": bytes(CONTENT_BYTES_MAX + 1)},
        {"sig": bytes(63)},
        {"passed": bytes(TAG_BYTES + 1)},
        {"passed": bytes(TAG_BYTES * (HOPS_MAX + 1))},
    ],
    ids=["to itself", "number", "time", "empty", "long", "signature", "part of a tag", "hops"],
)
def test_impossible_items_are_rejected(change):
    with pytest.raises(Malformed):
        parse_item(replace(item(), **change).wire, GROUP)


def test_an_unknown_kind_is_rejected():
    one = item()
    fields = [did_key_bytes(A), did_key_bytes(B), 4, one.number, one.at, one.content, one.sig, b""]
    with pytest.raises(Malformed):
        parse_item(compact_msgpack(fields), GROUP)
    assert parse_item(compact_msgpack([*fields[:2], 2, *fields[3:]]), GROUP).kind is RoutedKind.RESET


def test_hostile_bytes_have_one_meaning():
    """Every byte string is refused, or is the only form of what it means."""
    draw, accepted = random.Random(1), 0
    for _ in range(3000):
        broken = bytearray(item().passed_by(C).wire)
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(broken))
            match draw.randrange(3):
                case 0:
                    broken[at] = draw.randrange(256)
                case 1:
                    del broken[at]
                case _:
                    broken.insert(at, draw.randrange(256))
        try:
            found = parse_item(bytes(broken), GROUP)
        except RemoteError:
            continue
        accepted += 1
        assert found.wire == bytes(broken)
    assert accepted


def test_acknowledgements_come_back():
    for ack in (RoutedAck(False, True, 0, 0), RoutedAck(True, False, INTEGER_MAX, INTEGER_MAX)):
        assert parse_ack(ack.wire) == ack and len(ack.wire) <= 32
    for wrong in (b"", b"\x90", compact_msgpack([True, 1, 0, 0]), compact_msgpack([True, True, -1, 0])):
        with pytest.raises(Malformed):
            parse_ack(wrong)


def test_bundles_are_bounded_and_keep_the_order():
    draw = random.Random(1)
    for largest in (10, 900, ITEM_BYTES_MAX):
        items = [draw.randbytes(draw.randrange(1, largest + 1)) for _ in range(300)]
        found = list(bundles(items))
        assert [one for bundle in found for one in bundle] == items
        assert all(len(bundle) <= ITEMS_MAX and sum(map(len, bundle)) <= BUNDLE_BYTES_MAX for bundle in found)
        assert len(found) <= 2 + sum(map(len, items)) // (BUNDLE_BYTES_MAX - largest) + len(items) // ITEMS_MAX
    assert list(bundles([])) == []
