"""Key succession: a stream that goes on under another key, and proofs from before and after."""

import random
from itertools import pairwise

import pytest
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, did_key
from zerochat.crypto.primitives import ed25519_public
from zerochat.errors import Malformed, RemoteError, Unauthentic
from zerochat.evidence.handshake import Accept, Confirm, Request
from zerochat.evidence.messages import Data, data, sign_ack
from zerochat.evidence.proof import ack_line, check_proof, head_line, message_line, succession_line
from zerochat.evidence.succession import (
    SUCCESSIONS_MAX,
    Succession,
    current_key,
    is_superseded,
    parse_succession,
    succeed,
)

OLD, NEW, THIRD, READER, THIEF = (bytes([number]) * 32 for number in range(1, 6))
GROUP, ALIAS, START = "G" * 43, b"a" * 16, b"s" * 64


def did(seed: bytes) -> str:
    return did_key(ed25519_public(seed))


def stream(*seeds: bytes) -> list[Data]:
    """One message under each of these keys, in one chain."""
    found, before = [], START
    for number, seed in enumerate(seeds):
        found.append(data(seed, 1000 + number, ALIAS, bytes(60), before))
        before = found[-1].signature
    return found


SAID = stream(OLD, OLD, NEW, NEW, THIRD)
FIRST = succeed(OLD, NEW, GROUP, SAID[1].signature, 1001)
SECOND = succeed(NEW, THIRD, GROUP, SAID[3].signature, 1003)


def ack(publisher: bytes, upto: Data) -> bytes:
    asked = Request(time=1, topic=GROUP, subscriber=did(READER), publisher=did(publisher), nonce="n").signed(READER)
    given = Accept(
        time=2,
        request=asked.digest,
        publisher=did(publisher),
        subscriber=did(READER),
        alias=b64url(ALIAS),
        start=b64url(START),
        rules="R" * 43,
    ).signed(publisher)
    read = Confirm(time=3, accept=given.digest, subscriber=did(READER)).signed(READER)
    signed = sign_ack(READER, ALIAS, upto.time, upto.signature, 9000).serialize()
    return ack_line(signed, [one.serialize() for one in (asked, given, read)])


def lines(*said: Data) -> list[bytes]:
    return [message_line(one.serialize()) for one in said]


def whole() -> list[bytes]:
    return [
        head_line(did(OLD), GROUP),
        *lines(*SAID[:2]),
        succession_line(FIRST),
        *lines(*SAID[2:4]),
        succession_line(SECOND),
        *lines(SAID[4]),
    ]


def test_a_proof_goes_on_under_the_successors_keys():
    proven = check_proof(whole())
    assert (proven.messages, proven.author) == (5, did(THIRD))
    assert [one.successor for one in proven.successions] == [did(NEW), did(THIRD)]
    for publisher, upto in ((OLD, SAID[0]), (OLD, SAID[4]), (NEW, SAID[3])):
        assert list(check_proof([*whole(), ack(publisher, upto)]).signers) == [did(READER)]
    with pytest.raises(Unauthentic):
        check_proof([*whole(), ack(THIEF, SAID[4])])


def test_proofs_from_before_stay_valid():
    before = [head_line(did(OLD), GROUP), *lines(*SAID[:2]), ack(OLD, SAID[1])]
    proven = check_proof(before)
    assert (proven.messages, proven.author, list(proven.signers)) == (2, did(OLD), [did(READER)])
    after = [head_line(did(NEW), GROUP), *lines(*SAID[2:4])]
    assert check_proof(after).author == did(NEW)


@pytest.mark.parametrize(
    "changed",
    [
        lambda said: [*said[:3], *said[4:]],
        lambda said: [said[0], said[3], *said[1:3], *said[4:]],
        lambda said: [*said[:2], said[3], said[2], *said[4:]],
        lambda said: [*said[:3], said[3], said[3], *said[4:]],
        lambda said: [*said[:3], succession_line(SECOND), *said[4:]],
        lambda said: [*said[:3], succession_line(succeed(OLD, THIEF, GROUP, SAID[1].signature, 1001)), *said[4:]],
        lambda said: [*said[:3], succession_line(succeed(OLD, NEW, "H" * 43, SAID[1].signature, 1001)), *said[4:]],
        lambda said: [*said[:3], succession_line(succeed(OLD, NEW, GROUP, SAID[0].signature, 1001)), *said[4:]],
        lambda said: [*said, succession_line(succeed(THIRD, OLD, GROUP, SAID[4].signature, 1004))],
        lambda said: [*said, *lines(data(OLD, 2000, ALIAS, b"x", SAID[4].signature))],
    ],
    ids=["left out", "first", "early", "twice", "another", "stolen", "group", "place", "back again", "old key"],
)
def test_a_key_changes_only_where_the_statement_says(changed):
    with pytest.raises(RemoteError):
        check_proof(changed(whole()))


def test_both_keys_have_to_sign():
    """The old one hands over; without the new one's consent a member could claim the messages of another."""
    assert parse_succession(FIRST.serialize()) == FIRST
    unsigned = Succession(time=1, topic=GROUP, author=did(OLD), successor=did(NEW), head="")
    for wrong in (
        unsigned.signed(OLD),
        unsigned.consented(NEW),
        unsigned.consented(NEW).signed(THIEF),
        unsigned.consented(THIEF).signed(OLD),
        replace(unsigned, successor=did(OLD)).consented(OLD).signed(OLD),
        replace(FIRST, time=FIRST.time + 1),
        replace(FIRST, head=b64url(SAID[0].signature)),
        replace(FIRST, consent=SECOND.consent),
    ):
        with pytest.raises(Unauthentic):
            parse_succession(wrong.serialize())


def test_no_changed_byte_is_a_succession():
    encoded = FIRST.serialize()
    for place in range(len(encoded)):
        changed = bytearray(encoded)
        changed[place] ^= 1
        with pytest.raises(RemoteError):
            parse_succession(bytes(changed))


def test_the_current_key_follows_the_order_of_the_statements():
    assert current_key(did(OLD), GROUP, []) == did(OLD)
    assert current_key(did(OLD), GROUP, [FIRST, SECOND]) == did(THIRD)
    back = succeed(NEW, OLD, GROUP, SAID[3].signature, 1003)
    for wrong in ([SECOND], [FIRST, FIRST], [SECOND, FIRST], [FIRST, back]):
        with pytest.raises(Unauthentic):
            current_key(did(OLD), GROUP, wrong)
    with pytest.raises(Unauthentic):
        current_key(did(OLD), "H" * 43, [FIRST])
    dice = random.Random(1)
    seeds = [OLD, *(dice.randbytes(32) for _ in range(SUCCESSIONS_MAX + 1))]
    many = [succeed(one, after, GROUP, START, 1) for one, after in pairwise(seeds)]
    assert current_key(did(OLD), GROUP, many[:-1]) == did(seeds[-2])
    with pytest.raises(Malformed):
        current_key(did(OLD), GROUP, many)


def test_the_old_key_adds_nothing_after_it_has_handed_over():
    forged = data(OLD, 5000, ALIAS, b"by a thief", SAID[1].signature)
    assert is_superseded(FIRST, forged.serialize())
    assert not any(is_superseded(FIRST, one.serialize()) for one in SAID)
    with pytest.raises(RemoteError):
        check_proof([*whole()[:4], *lines(forged)])
