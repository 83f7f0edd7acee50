"""2SM: order, crossing first messages, what heals and what is erased, bounds, pre-keys."""

import random
from collections import deque

import pytest
from msgspec.structs import replace

from zerochat.crypto import prekeys, two_party
from zerochat.crypto.encoding import b64url
from zerochat.crypto.prekeys import LIFETIME_MS, MARGIN_MS, RENEWAL_MS, HeldPreKey, prekey_id
from zerochat.crypto.primitives import ed25519_public, sha256, x25519_public
from zerochat.crypto.two_party import OWN_MAX, Channel
from zerochat.errors import Malformed, RemoteError, Unauthentic

PLACE = b"group"
NOW = 1_800_000_000_000


class Pair:
    """Two sides, the messages between them, and every state and message that there was."""

    def __init__(self, seed=1, one_time=True):
        self.random = random.Random(seed).randbytes
        secrets = [self.random(32), self.random(32)]
        self.held = [(HeldPreKey(self.random(32), NOW),) for _ in range(2)]
        self.channels = [
            two_party.met(secrets[side], x25519_public(secrets[1 - side]))
            if one_time
            else two_party.reached(x25519_public(self.held[1 - side][0].secret))
            for side in range(2)
        ]
        self.on_way = [deque(), deque()]
        self.sent = [[], []]

    def send(self, side, plain=b"secret"):
        self.channels[side], message = two_party.send(self.channels[side], PLACE, plain, self.random)
        self.on_way[side].append((plain, message))
        self.sent[side].append(message)
        return message

    def deliver(self, side):
        """The next message of this side arrives."""
        plain, message = self.on_way[side].popleft()
        opened = two_party.receive(self.channels[1 - side], PLACE, message, self.held[1 - side])
        assert opened.plain == plain
        assert two_party.body_of(message, opened.key) == plain
        self.channels[1 - side] = opened.channel
        return opened

    def send_and_deliver(self, side, plain=b"secret"):
        self.send(side, plain)
        return self.deliver(side)


def opens(channel, message, held=()):
    """Whether a thief with this state opens the message."""
    try:
        two_party.receive(channel, PLACE, message, held)
    except RemoteError:
        return False
    return True


@pytest.mark.parametrize("one_time", [True, False], ids=["one-time", "last-resort"])
def test_random_conversations_with_crossing_messages(one_time):
    for seed in range(20):
        pair, draw = Pair(seed, one_time), random.Random(seed)
        for at in range(80):
            side = draw.randrange(2)
            if pair.on_way[side] and draw.random() < 0.5:
                pair.deliver(side)
            else:
                pair.send(side, f"message {at}".encode())
            if draw.random() < 0.3:
                pair.channels = [replace(one) for one in pair.channels]
        for side in (0, 1):
            while pair.on_way[side]:
                pair.deliver(side)


def test_crossing_first_messages():
    pair = Pair()
    pair.send(0, b"one")
    pair.send(1, b"two")
    pair.deliver(0)
    pair.deliver(1)
    pair.send_and_deliver(0)
    pair.send_and_deliver(1)
    assert not any(channel.offered for channel in pair.channels)


def test_sizes():
    pair = Pair()
    sizes = [len(pair.send(side, bytes(32))) for side in (0, 0)]
    pair.deliver(0)
    sizes.append(len(pair.send(1, bytes(32))))
    assert sizes == [149, 149, 153]
    assert max(sizes) == two_party.OVERHEAD_BYTES + 32
    assert len(Pair(one_time=False).send(0, bytes(32))) == 153


def test_a_message_opens_once_and_in_order():
    pair = Pair()
    first, second = pair.send(0), pair.send(0)
    assert not opens(pair.channels[1], second)
    pair.deliver(0)
    assert not opens(pair.channels[1], first)
    pair.deliver(0)
    assert not opens(pair.channels[1], second)


def test_forward_secrecy_of_what_was_received():
    pair = Pair(one_time=False)
    for _ in range(3):
        pair.send_and_deliver(0)
        pair.send_and_deliver(1)
    # The shared last-resort pre-key opens first messages until it is erased; that is what it is for.
    for side in (0, 1):
        assert not any(opens(pair.channels[1 - side], message) for message in pair.sent[side])
    assert opens(Channel(), pair.sent[0][0], pair.held[1])


@pytest.mark.parametrize("side", [0, 1])
def test_a_round_trip_heals(side):
    """The thief of one side's whole state opens what is sent to it, until that side has sent and been answered."""
    pair = Pair()
    pair.send_and_deliver(0)
    pair.send_and_deliver(1)
    stolen, held = pair.channels[side], pair.held[side]
    before = pair.send(1 - side)
    assert opens(stolen, before, held)
    stolen = two_party.receive(stolen, PLACE, before, held).channel
    pair.deliver(1 - side)
    pair.send_and_deliver(side)
    after = pair.send(1 - side)
    assert not opens(stolen, after, held)
    pair.deliver(1 - side)
    assert not opens(stolen, pair.send(1 - side), held)


def test_a_silent_peer_costs_no_memory():
    pair = Pair()
    for _ in range(3 * OWN_MAX):
        pair.send_and_deliver(0)
    assert len(pair.channels[0].own) == OWN_MAX
    pair.send_and_deliver(1)
    assert pair.channels[0].own == ()
    pair.send_and_deliver(0)


def test_another_context_is_refused():
    pair = Pair()
    message = pair.send(0)
    with pytest.raises(Unauthentic):
        two_party.receive(pair.channels[1], b"other", message)


def test_hostile_messages_change_nothing():
    pair = Pair()
    message = pair.send(0)
    for broken in (b"", b"\x07", message[:-1], message[:60], b"\x02" + message[1:], b"\x03" + message, bytes(200)):
        assert not opens(pair.channels[1], broken, pair.held[1])
    for at in range(0, len(message), 7):
        assert not opens(pair.channels[1], message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :])
    pair.deliver(0)


def test_secrets_stay_out_of_logs():
    pair = Pair()
    channel = pair.channels[0]
    assert channel.offered.hex() not in repr(channel) and repr(channel.offered) not in repr(channel)
    opened = pair.send_and_deliver(0)
    assert all(repr(secret) not in repr(opened) for secret in (opened.plain, opened.key, opened.channel.given))


def test_frozen_conversation():
    pair = Pair(7)
    for side in (0, 1, 1, 0, 0, 1):
        pair.send_and_deliver(side)
    digest = sha256(b"".join(b"".join(sent) for sent in pair.sent))
    assert b64url(digest) == "NAUPphwaZcVUkoqfjCw45NtcXaxXryyKMJKRKTengX8"


# --- pre-keys -------------------------------------------------------------------------------------------------------


def test_signed_prekeys():
    seed = bytes(32)
    [held] = prekeys.renewed((), NOW, random.Random(1).randbytes)
    signed, owner = held.signed(seed, PLACE), ed25519_public(seed)
    assert prekey_id(signed.public) == held.id
    for now in (NOW, NOW - MARGIN_MS, held.until, held.until + MARGIN_MS - 1):
        signed.check(owner, PLACE, now)
    for now in (held.until + MARGIN_MS, NOW - MARGIN_MS - 1):
        with pytest.raises(Unauthentic):
            signed.check(owner, PLACE, now)
    for changed in (
        replace(signed, until=signed.until - 1),
        replace(signed, public=x25519_public(seed)),
        replace(signed, signature=bytes(64)),
    ):
        with pytest.raises(Unauthentic):
            changed.check(owner, PLACE, NOW)
    with pytest.raises(Unauthentic):
        signed.check(owner, b"other", NOW)
    with pytest.raises(Malformed):
        replace(signed, public=bytes(32)).check(owner, PLACE, NOW)


def test_prekeys_are_renewed_and_erased():
    draw = random.Random(1).randbytes
    first = prekeys.renewed((), NOW, draw)
    assert prekeys.renewed(first, NOW + RENEWAL_MS - 1, draw) == first
    second = prekeys.renewed(first, NOW + RENEWAL_MS, draw)
    assert second[1:] == first and second[0].until == NOW + RENEWAL_MS + LIFETIME_MS
    assert prekeys.secret_of(second, first[0].id) == first[0].secret
    third = prekeys.renewed(second, NOW + LIFETIME_MS + MARGIN_MS + 1, draw)
    assert first[0] not in third and prekeys.secret_of(third, first[0].id) is None
    for _ in range(20):
        third = prekeys.with_new(third, NOW, draw)
    assert len(third) == prekeys.HELD_MAX
