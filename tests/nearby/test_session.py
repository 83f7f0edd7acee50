"""The session of two agents: what each learns, and that junk, replays and relays end it."""

import random

import pytest

from zerochat.agent.nearby.announcement import ANNOUNCEMENT_BYTES, Announcement, decode
from zerochat.agent.nearby.session import HASH_BYTES, HASHES_MIN, SEAL_BYTES, Ports, Role, Session, Whereabouts, token
from zerochat.crypto.primitives import x25519_public
from zerochat.errors import Malformed, RemoteError

HOSTS = 200
"""Hosts that each side knows, of which `COMMON` both know beside each other."""
COMMON = 3


class Host:
    def __init__(self, dice):
        self.secret = dice.randbytes(32)
        self.key = x25519_public(self.secret)

    def tokens(self, others):
        return {other.key: token(self.secret, other.key) for other in others if other is not self}


def pair(dice, ours, theirs, *, day=None):
    """Two sessions, each with the other's hello: dialer and listener."""
    secret = day or dice.randbytes(32)
    dialer = Session(Role.DIALER, x25519_public(secret), ours, dice.randbytes)
    listener = Session(Role.LISTENER, x25519_public(secret), theirs, dice.randbytes, secret=secret)
    dialer.receive_hello(listener.hello)
    listener.receive_hello(dialer.hello)
    return dialer, listener


def test_two_hosts_with_200_others_each_find_exactly_each_other():
    dice = random.Random(1)
    alice, bob = Host(dice), Host(dice)
    known = [Host(dice) for _ in range(2 * HOSTS - COMMON)]  # three of them both know
    ours, theirs = alice.tokens([bob, *known[:HOSTS]]), bob.tokens([*known[HOSTS - COMMON :], alice])
    dialer, listener = pair(dice, ours, theirs)
    assert dialer.receive_offer(listener.offer()) == bob.key
    assert listener.receive_offer(dialer.offer()) == alice.key
    here, there = (Whereabouts(Ports(port, port + 1), dice.randbytes(32)) for port in (5000, 6000))
    assert dialer.receive_whereabouts(listener.whereabouts(here)) == here
    assert listener.receive_whereabouts(dialer.whereabouts(there)) == there


def test_strangers_learn_that_they_are_strangers_and_about_how_many_hosts_there_are():
    dice = random.Random(2)
    alice, bob = Host(dice), Host(dice)
    known = [Host(dice) for _ in range(40)]
    dialer, listener = pair(dice, alice.tokens(known[:20]), bob.tokens(known[20:]))
    offers = dialer.offer(), listener.offer()
    assert {len(offer) for offer in offers} == {32 * HASH_BYTES + SEAL_BYTES}
    assert dialer.receive_offer(offers[1]) is None and listener.receive_offer(offers[0]) is None


def test_one_side_alone_finds_nothing():
    """A removed member still knows us; we know it no longer."""
    dice = random.Random(3)
    alice, removed = Host(dice), Host(dice)
    dialer, listener = pair(dice, removed.tokens([alice]), {})
    assert dialer.receive_offer(listener.offer()) is None
    assert listener.receive_offer(dialer.offer()) is None


def test_a_transcript_holds_neither_keys_nor_hashes_that_recur():
    dice = random.Random(4)
    alice, bob = Host(dice), Host(dice)
    said = []
    for _ in range(2):
        dialer, listener = pair(dice, alice.tokens([bob]), bob.tokens([alice]))
        said.append([dialer.hello, listener.hello, dialer.offer(), listener.offer()])
        plain = dialer.receive_offer(said[-1][3]), listener.receive_offer(said[-1][2])
        assert plain == (bob.key, alice.key)
    both = b"".join(said[0] + said[1])
    secrets = [alice.key, bob.key, *alice.tokens([bob]).values()]
    assert not any(secret in both for secret in secrets)
    pieces = [{text[at : at + 16] for text in one for at in range(len(text) - 15)} for one in said]
    assert not pieces[0] & pieces[1]


def test_a_relay_between_two_hosts_is_a_stranger_to_both():
    """It opens both offers, and passes the hashes on as its own."""
    dice = random.Random(5)
    alice, bob = Host(dice), Host(dice)
    dialer, back = pair(dice, alice.tokens([bob]), {})
    front, listener = pair(dice, {}, bob.tokens([alice]))
    of_alice, of_bob = back._open(dialer.offer()), front._open(listener.offer())
    assert dialer.receive_offer(back._seal(of_bob)) is None
    assert listener.receive_offer(front._seal(of_alice)) is None


def test_only_the_owner_of_the_announced_key_can_answer():
    dice = random.Random(6)
    alice, bob = Host(dice), Host(dice)
    announced = x25519_public(dice.randbytes(32))
    dialer = Session(Role.DIALER, announced, alice.tokens([bob]), dice.randbytes)
    liar = Session(Role.LISTENER, announced, bob.tokens([alice]), dice.randbytes, secret=dice.randbytes(32))
    dialer.receive_hello(liar.hello)
    liar.receive_hello(dialer.hello)
    with pytest.raises(RemoteError):
        dialer.receive_offer(liar.offer())


def test_an_offer_is_neither_reflected_nor_replayed():
    dice = random.Random(7)
    alice, bob = Host(dice), Host(dice)
    dialer, listener = pair(dice, alice.tokens([bob]), bob.tokens([alice]))
    offer = listener.offer()
    with pytest.raises(RemoteError):
        dialer.receive_offer(dialer.offer())
    later, _ = pair(dice, alice.tokens([bob]), bob.tokens([alice]))
    with pytest.raises(RemoteError):
        later.receive_offer(offer)


def test_hashes_of_two_hosts_are_refused():
    dice = random.Random(8)
    alice, bob, carol = Host(dice), Host(dice), Host(dice)
    both = {b"1": bob.tokens([alice])[alice.key], b"2": carol.tokens([alice])[alice.key]}
    dialer, listener = pair(dice, alice.tokens([bob, carol]), both)
    with pytest.raises(Malformed):
        dialer.receive_offer(listener.offer())


@pytest.mark.parametrize("seed", range(40))
def test_junk_ends_a_session_with_an_error_of_the_peer(seed):
    dice = random.Random(seed)
    alice, bob = Host(dice), Host(dice)
    dialer, listener = pair(dice, alice.tokens([bob]), bob.tokens([alice]))
    offer = bytearray(listener.offer())
    match dice.randrange(4):
        case 0:
            offer[dice.randrange(len(offer))] ^= 1 << dice.randrange(8)
        case 1:
            del offer[dice.randrange(len(offer)) :]
        case 2:
            offer = bytearray(dice.randbytes(dice.randrange(3 * HASHES_MIN * HASH_BYTES)))
        case 3:
            offer = bytearray(listener._seal(dice.randbytes(dice.choice((0, 1, 15, 16, 255, 257, 40_000)))))
    with pytest.raises(RemoteError):
        dialer.receive_offer(bytes(offer))


def test_keys_of_low_order_are_refused():
    dice = random.Random(9)
    alice = Host(dice)
    with pytest.raises(RemoteError):
        token(alice.secret, bytes(32))
    dialer = Session(Role.DIALER, alice.key, {}, dice.randbytes)
    with pytest.raises(RemoteError):
        dialer.receive_hello(bytes(32))


@pytest.mark.parametrize("seed", range(40))
def test_an_announcement_is_read_as_it_was_written_or_refused(seed):
    dice = random.Random(seed)
    one = Announcement(dice.randrange(1, 65_536), x25519_public(dice.randbytes(32)))
    packet = one.encode()
    assert len(packet) == ANNOUNCEMENT_BYTES and decode(packet) == one
    for bad in (
        packet[:-1],
        packet + b"x",
        b"x" + packet[1:],
        packet[:4] + b"\0\0" + packet[6:],
        packet[:6] + bytes(32),
    ):
        with pytest.raises(Malformed):
            decode(bad)
