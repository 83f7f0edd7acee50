"""Key events and direct messages as bytes: round trips, bounds, canonical form, hostile bytes."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from tests.support.membership_book import did, seed
from zerochat.crypto import two_party
from zerochat.crypto.encoding import b64url, compact_msgpack
from zerochat.crypto.primitives import sha256, x25519_public
from zerochat.errors import Malformed, RemoteError
from zerochat.group.inputs import StepContext
from zerochat.group.key_agreement.key_event import ADOPTS_MAX, TO_MAX, WANTS_MAX
from zerochat.group.key_agreement.production import produce
from zerochat.group.key_agreement.state import Keys, Membership
from zerochat.group.key_agreement.wire import (
    DIRECT_BYTES_MAX,
    EVENT_BYTES_MAX,
    HEADS_MAX,
    direct_bytes,
    event_bytes,
    parse_direct,
    parse_key_event,
)

GROUP = b64url(sha256(b"group"))


def ids(count):
    return tuple(b64url(sha256(bytes([at]))) for at in range(count))


def update(size=4):
    names = [did(f"m{at}") for at in range(size)]
    members = frozenset(names)
    channels = {one: two_party.reached(x25519_public(seed(one))) for one in names[1:]}
    membership = Membership(members, ids(1), lambda heads: members)
    made = produce(Keys(GROUP, names[0], channels=channels), membership, StepContext(0, random.Random(1).randbytes))
    return made.event.signed(seed("m0")), made.directs


def fullest():
    event, _ = update()
    dids = tuple(did(f"m{at}") for at in range(TO_MAX))
    return replace(
        event,
        number=2**53 - 1,
        sent=2**53 - 1,
        control=ids(HEADS_MAX),
        adopts=ids(ADOPTS_MAX),
        commitment=b"",
        to=dids,
        wants=dids[:WANTS_MAX],
    ).signed(seed("m0"))


def test_events_come_back():
    for event in (update()[0], fullest()):
        data = event_bytes(event)
        found = parse_key_event(data, GROUP)
        assert found == event and found.id == event.id and len(data) <= EVENT_BYTES_MAX
        found.check_signature()
        with pytest.raises(RemoteError):
            parse_key_event(data, b64url(bytes(32))).check_signature()


def test_direct_messages_come_back():
    event, directs = update()
    for name in directs.messages:
        direct = directs.direct(name)
        data = direct_bytes(direct)
        assert parse_direct(data, name) == direct and len(data) <= DIRECT_BYTES_MAX
        parse_direct(data, name).check(event)
        with pytest.raises(RemoteError):
            parse_direct(data, did("m0")).check(event)


@pytest.mark.slow
def test_what_a_member_fetches_in_a_large_group():
    """At most 0.7 KiB in a group of a thousand: the event, and the member's own direct message."""
    event, directs = update(1000)
    own = [direct_bytes(directs.direct(did(f"m{at}"))) for at in (1, 500, 999)]
    assert len(event_bytes(event)) + max(map(len, own)) <= 717


@pytest.mark.parametrize(
    "change",
    [
        {"control": ()},
        {"control": ids(HEADS_MAX + 1)},
        {"control": (ids(1)[0], ids(1)[0])},
        {"adopts": ids(1)},
        {"commitment": b"", "adopts": ids(ADOPTS_MAX + 1)},
        {"commitment": b"", "adopts": (ids(1)[0], ids(1)[0])},
        {"to": (did("m1"),)},
        {"commitment": b"", "to": (did("m1"),), "root": b""},
        {"commitment": b"", "to": (did("m1"), did("m1"))},
        {"wants": tuple(did(f"m{at}") for at in range(WANTS_MAX + 1))},
        {"commitment": bytes(31)},
        {"root": bytes(1)},
        {"prekey": bytes(33)},
        {"commitment": b"", "prekey": bytes(32)},
        {"number": 0},
        {"number": 2**53},
        {"sent": -1},
        {"sig": bytes(63)},
    ],
    ids=str,
)
def test_impossible_events_are_rejected(change):
    event, _ = update()
    with pytest.raises(Malformed):
        parse_key_event(event_bytes(replace(event, **change)), GROUP)


@pytest.mark.parametrize("change", [{"index": 1 << 12}, {"size": 0}, {"message": bytes(300)}, {"path": (bytes(31),)}])
def test_impossible_direct_messages_are_rejected(change):
    _, directs = update()
    with pytest.raises(Malformed):
        parse_direct(direct_bytes(replace(directs.direct(did("m1")), **change)), did("m1"))


def test_hostile_bytes_have_one_meaning():
    """Every byte string is refused, or is the only form of what it means."""
    event, directs = update()
    draw = random.Random(1)
    parsers: list[Any] = [
        (event_bytes(event), lambda data: parse_key_event(data, GROUP), event_bytes),
        (direct_bytes(directs.direct(did("m1"))), lambda data: parse_direct(data, did("m1")), direct_bytes),
    ]
    for data, parse, write in parsers:
        accepted = 0
        for _ in range(2000):
            broken = bytearray(data)
            for _ in range(draw.randrange(1, 4)):
                at = draw.randrange(len(broken))
                match draw.randrange(3):
                    case 0:
                        broken[at] ^= 1 << draw.randrange(8)
                    case 1:
                        del broken[at]
                    case _:
                        broken.insert(at, draw.randrange(256))
            try:
                found = parse(bytes(broken))
            except Malformed:
                continue
            accepted += 1
            assert write(found) == bytes(broken)
        assert accepted
    for other in (b"", b"\x90", compact_msgpack([[[[]]]]), b"\x91" * 2000, bytes(EVENT_BYTES_MAX + 1)):
        for _, parse, _ in parsers:
            with pytest.raises(Malformed):
                parse(other)
