"""Tags in place of signatures: what they bind, whom they convince, and what they cost."""

import pytest
from msgspec.structs import replace

from tests.support import frame_pair
from tests.support.frame_pair import pair
from zerochat.didcomm.did import new_peer4
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.group.key_modes.deniable import TAG_BYTES, add_tags, check_tag, is_tagged
from zerochat.group.key_modes.sender_key import is_signed
from zerochat.group.links.relationship import rotate
from zerochat.group.wire.frame import SECTIONS_MAX, is_frame

dice = frame_pair.dice

GROUP, SEALED = "g" * 43, b"\x02" + b"e" * 32 + b"\0\0\0\x07" + b"content" * 20
NAMES = ("bob", "carol", "dave")


@pytest.fixture
def pairs(dice):
    """Alice's relationships with three others, and theirs with her."""
    return {name: pair(dice, "alice", name) for name in NAMES}


@pytest.fixture
def envelope(pairs):
    return add_tags(SEALED, GROUP, "alice", [ours for ours, _ in pairs.values()])


def test_every_recipient_is_convinced_and_no_other(pairs, envelope, dice):
    for name, (_, theirs) in pairs.items():
        sealed, after = check_tag(envelope, GROUP, name, theirs)
        assert sealed == SEALED and after.acknowledged
    _, stranger = pair(dice, "alice", "erin")
    with pytest.raises(Unauthentic):
        check_tag(envelope, GROUP, "erin", stranger)


def test_it_has_a_form_of_its_own(envelope):
    assert is_tagged(envelope) and not is_frame(envelope) and not is_signed(envelope) and envelope[:1] != b"{"
    assert not any(is_tagged(other) for other in (b"", b"{}", SEALED, b"\x01", b"\0"))


def test_a_tag_covers_every_byte(pairs, envelope):
    start = len(envelope) - len(SEALED)
    for place in range(start, len(envelope)):
        changed = bytearray(envelope)
        changed[place] ^= 1
        with pytest.raises(Unauthentic):
            check_tag(bytes(changed), GROUP, "bob", pairs["bob"][1])


def test_a_recipient_cannot_replace_the_content_for_another(pairs, envelope):
    """Bob knows the message key, so he can seal another content; his keys make no tag that Carol accepts as Alice's."""
    forged = SEALED[:37] + b"another" * 20
    start = len(envelope) - len(SEALED)
    bobs = pairs["bob"][1]
    mine = add_tags(forged, GROUP, "alice", [replace(pairs["bob"][0], member="bob")])
    attempts = [
        envelope[:start] + forged,
        mine,
        add_tags(forged, GROUP, "alice", [bobs]),
        add_tags(forged, GROUP, "bob", [replace(bobs, member="carol")]),
    ]
    for attempt in attempts:
        with pytest.raises(Unauthentic):
            check_tag(attempt, GROUP, "carol", pairs["carol"][1])


def test_a_recipient_could_have_made_it_for_itself(pairs):
    """Bob makes with his own secrets what Alice makes for him: so it proves nothing to others."""
    alices, bobs = pairs["bob"]
    by_bob = replace(bobs, member="bob")  # the key is of the pair, from either side's secret
    by_alice = add_tags(SEALED, GROUP, "alice", [alices])
    assert add_tags(SEALED, GROUP, "alice", [by_bob]) == by_alice
    assert check_tag(add_tags(SEALED, GROUP, "alice", [by_bob]), GROUP, "bob", bobs)[0] == SEALED


def test_it_is_bound_to_group_author_and_direction(pairs, envelope):
    _, bobs = pairs["bob"]
    for group, me, author in (
        ("h" * 43, "bob", bobs),
        (GROUP, "carol", bobs),
        (GROUP, "bob", replace(bobs, member="dave")),
    ):
        with pytest.raises(Unauthentic):
            check_tag(envelope, group, me, author)
    alices, _ = pairs["bob"]
    with pytest.raises(Unauthentic):
        check_tag(
            add_tags(SEALED, GROUP, "alice", [alices]), GROUP, "alice", replace(alices, member="bob")
        )  # reflected


def test_nothing_names_a_recipient(pairs, envelope):
    tags = envelope[2 : len(envelope) - len(SEALED)]
    found = [tags[at : at + TAG_BYTES] for at in range(0, len(tags), TAG_BYTES)]
    assert len(found) == len(NAMES) and found == sorted(found)
    again = add_tags(SEALED + b"!", GROUP, "alice", [ours for ours, _ in pairs.values()])
    assert not set(found) & {again[2 + at : 2 + at + TAG_BYTES] for at in range(0, len(tags), TAG_BYTES)}


def test_one_more_recipient_costs_16_bytes(pairs, envelope):
    fewer = add_tags(SEALED, GROUP, "alice", [ours for ours, _ in pairs.values()][:2])
    assert len(envelope) - len(fewer) == TAG_BYTES == 16 and len(envelope) == 2 + 3 * TAG_BYTES + len(SEALED)


def test_the_old_key_opens_during_a_rotation(pairs, dice):
    alices, bobs = pairs["bob"]
    new = new_peer4(dice.randbytes, [])
    rotated = rotate(replace(bobs, acknowledged=True), new, 1)
    sealed, after = check_tag(add_tags(SEALED, GROUP, "alice", [alices]), GROUP, "bob", rotated)
    assert sealed == SEALED and after.rotation is not None, "it was not addressed to the new DID"
    sealed, after = check_tag(
        add_tags(SEALED, GROUP, "alice", [replace(alices, theirs=new.did)]), GROUP, "bob", rotated
    )
    assert sealed == SEALED and after.rotation is None


def test_malformed_messages_are_rejected(pairs, envelope):
    _, bobs = pairs["bob"]
    for data in (b"", b"\x03", b"\x03\0" + SEALED, b"\x03\xff" + bytes(16 * 255) + SEALED, envelope[:50], SEALED):
        with pytest.raises(Malformed):
            check_tag(data, GROUP, "bob", bobs)
    for size in range(len(envelope)):
        with pytest.raises(RemoteError):
            check_tag(envelope[:size], GROUP, "bob", bobs)
    with pytest.raises(AssertionError):
        add_tags(SEALED, GROUP, "alice", [bobs] * (SECTIONS_MAX + 1))
