"""The contract test of all packers."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, compact_json
from zerochat.crypto.keys import PublicKey, SecretKey, public_of
from zerochat.didcomm.did import Identity, new_peer4, resolve
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, Message
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX, PACKERS, OwnKey, Packer, TheirKey, Unpacked, envelope_kind
from zerochat.errors import Malformed, Unauthentic

REFUSED = (Malformed, Unauthentic)
BODY = b'{"text":"See you at eight?"}'
REAL = {name: packer for name, packer in PACKERS.items() if not name.startswith("simulated/")}


def dice(seed: int) -> Callable[[int], bytes]:
    return random.Random(seed).randbytes


SERVICE = {"id": "#pair", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": "zmq+tcp://192.0.2.7:5000"}}
ALICE, BOB, CAROL = (new_peer4(dice(seed), [SERVICE]) for seed in (1, 2, 3))
DOCUMENTS = {did: resolve(person.did) for person in (ALICE, BOB, CAROL) for did in (person.did, person.short)}


@pytest.fixture(params=sorted(REAL))
def packer(request: pytest.FixtureRequest) -> Packer:
    return REAL[request.param]


@dataclass(frozen=True)
class Seal:
    """One way of sealing for Bob, and of opening as Bob."""

    packer: Packer
    kind: str

    def own(self, person: Identity) -> OwnKey:
        return self.packer.own_key(person, person.short)

    def their(self, person: Identity) -> TheirKey:
        return self.packer.their_key(resolve(person.did), person.short)

    def __call__(self, plain: bytes = BODY, sender: OwnKey | None = None, seed: int = 0) -> bytes:
        if self.kind == "anoncrypt":
            return self.packer.anoncrypt(plain, recipient=self.their(BOB), random=dice(seed))
        return self.packer.authcrypt(
            plain, sender=sender or self.own(ALICE), recipient=self.their(BOB), random=dice(seed)
        )

    def secrets(self, *people: Identity) -> Callable[[str], SecretKey | None]:
        return {self.own(person).kid: self.own(person).key for person in people}.get

    def public_of(self, kid: str) -> PublicKey:
        for person in (ALICE, BOB, CAROL):
            if kid == self.own(person).kid:
                return self.their(person).key
        raise Unauthentic()

    def open(self, envelope: bytes) -> Unpacked:
        return self.packer.unpack(envelope, secret_of=self.secrets(BOB), public_of=self.public_of)


@pytest.fixture(params=["authcrypt", "anoncrypt"])
def seal(packer: Packer, request: pytest.FixtureRequest) -> Seal:
    return Seal(packer, request.param)


def test_both_ends_name_a_key_alike(packer: Packer) -> None:
    for did in (ALICE.did, ALICE.short):
        own, their = packer.own_key(ALICE, did), packer.their_key(resolve(ALICE.did), did)
        assert own.kid == their.kid and public_of(own.key) == their.key
        assert own.key.data.hex() not in repr(own) and repr(own.key.data) not in repr(own)
    empty = replace(resolve(ALICE.did), agreement=(), authentication=())
    with pytest.raises(Malformed):
        packer.their_key(empty, ALICE.did)


def test_sealed_message_yields_its_sender(seal: Seal) -> None:
    for size in (0, 1, 15, 16, 17, 100, 1000, MESSAGE_BYTES_MAX):
        plain = dice(size)(size)
        envelope = seal(plain, seed=size)
        assert envelope_kind(envelope) == seal.packer.name
        for _ in range(2):  # the second time by its likeness to the first, where the packer knows such a thing
            unpacked = seal.open(envelope)
            assert unpacked.plain == plain
            assert unpacked.kind == seal.kind
            assert unpacked.sender_kid == (seal.own(ALICE).kid if seal.kind == "authcrypt" else None)
            assert unpacked.recipient_kid == seal.own(BOB).kid
            assert not unpacked.forgeable
            assert "plain" not in repr(unpacked)


def test_equal_seeds_give_equal_envelopes_and_others_do_not(seal: Seal) -> None:
    assert seal(seed=1) == seal(seed=1)
    assert len({seal(seed=seed)[-100:] for seed in range(10)}) == 10


def test_a_sealed_text_does_not_show(seal: Seal) -> None:
    envelope = seal()
    assert BODY not in envelope
    assert b64url(BODY)[:20].encode() not in envelope
    if seal.kind == "anoncrypt":
        assert ALICE.short.encode() not in envelope
        assert b64url(seal.own(ALICE).kid.encode()).encode()[:40] not in envelope


def test_every_flipped_byte_is_refused(seal: Seal) -> None:
    envelope = seal()
    assert seal.open(envelope).plain == BODY
    for at in range(len(envelope)):
        for mask in (0x01, 0x02, 0x20, 0x80):
            with pytest.raises(REFUSED):
                seal.open(envelope[:at] + bytes([envelope[at] ^ mask]) + envelope[at + 1 :])


def test_every_cut_and_every_surplus_is_refused(seal: Seal) -> None:
    envelope = seal()
    assert seal.open(envelope).plain == BODY
    for size in range(len(envelope)):
        with pytest.raises(Malformed):
            seal.open(envelope[:size])
    for surplus in (b"}", b"\0", b"{}", envelope):
        with pytest.raises(Malformed):
            seal.open(envelope + surplus)


def test_only_the_recipient_opens(seal: Seal) -> None:
    envelope, packer = seal(), seal.packer
    tries: list[Callable[[str], SecretKey | None]] = [
        lambda _: None,
        seal.secrets(ALICE, CAROL),
        lambda _: seal.own(CAROL).key,
    ]
    for secret_of in tries:
        with pytest.raises(Unauthentic):
            packer.unpack(envelope, secret_of=secret_of, public_of=seal.public_of)


def test_only_the_sender_passes_for_the_sender(packer: Packer) -> None:
    seal = Seal(packer, "authcrypt")
    forged = seal(sender=OwnKey(seal.own(ALICE).kid, seal.own(CAROL).key))
    message = Message("https://example.org/chat/1.0/post", "1", from_=ALICE.did)
    with pytest.raises(REFUSED):
        packer.check_sender(message, seal.open(forged), DOCUMENTS.__getitem__)


def test_a_sender_is_the_did_whose_key_encrypted(packer: Packer) -> None:
    seal = Seal(packer, "authcrypt")
    unpacked = seal.open(seal())
    message = Message("https://example.org/chat/1.0/post", "1")
    for did in (ALICE.did, ALICE.short):
        sender = packer.check_sender(replace(message, from_=did), unpacked, DOCUMENTS.__getitem__)
        assert sender in (ALICE.did, ALICE.short)
    for other in (BOB.did, CAROL.short):
        with pytest.raises(REFUSED):
            packer.check_sender(replace(message, from_=other), unpacked, DOCUMENTS.__getitem__)
    anonymous = Seal(packer, "anoncrypt")
    with pytest.raises(Unauthentic):
        packer.check_sender(replace(message, from_=ALICE.did), anonymous.open(anonymous()), DOCUMENTS.__getitem__)


def test_a_key_of_low_order_is_never_written_to(packer: Packer) -> None:
    recipient = Seal(packer, "").their(BOB)
    nobody = replace(recipient, key=PublicKey(recipient.key.kind, bytes(32)))
    with pytest.raises(REFUSED):
        packer.anoncrypt(BODY, recipient=nobody, random=dice(0))


def test_too_much_is_refused_on_both_sides(seal: Seal) -> None:
    with pytest.raises(Malformed, match="more than"):
        seal(bytes(MESSAGE_BYTES_MAX + 1))
    envelope = seal()
    padded = envelope[:-1] + b" " * (ENVELOPE_BYTES_MAX - len(envelope)) + b"}"
    assert len(padded) == ENVELOPE_BYTES_MAX
    assert seal.open(padded).plain == BODY
    with pytest.raises(Malformed, match="more than"):
        seal.open(padded[:-1] + b" }")


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(noise=st.binary(max_size=200) | st.recursive(st.none() | st.text(max_size=5), st.lists).map(compact_json))
def test_noise_is_malformed(noise: bytes) -> None:
    for packer in REAL.values():
        with pytest.raises(Malformed):
            packer.unpack(noise, secret_of=Seal(packer, "").secrets(BOB), public_of=Seal(packer, "").public_of)
    with pytest.raises(Malformed):
        envelope_kind(noise)


@pytest.mark.parametrize(
    ("envelope", "header"),
    [
        ({"recipients": []}, {"alg": "ECDH-ES+A256KW", "recipients": []}),
        ({"recipients": []}, {"alg": "ECDH-ES+A256KW", "recipients": [], "typ": "JWM/1.0"}),
        ({"recipients": []}, {"alg": "Authcrypt", "typ": "JWM/1.0"}),
        ({}, {"alg": "ECDH-ES+A256KW", "typ": "JWM/1.0"}),
        ({}, {"alg": "Authcrypt", "recipients": []}),
        ({}, {"alg": "Authcrypt", "recipients": [], "typ": "JWM"}),
        ({"recipients": None}, {"alg": ["ECDH-ES+A256KW"]}),
    ],
)
def test_an_envelope_of_both_kinds_is_of_neither(envelope: dict[str, object], header: object) -> None:
    with pytest.raises(Malformed):
        envelope_kind(compact_json(envelope | {"protected": b64url(compact_json(header))}))


def test_envelope_kinds_differ_by_recipient_position() -> None:
    def envelope(outer: dict[str, object], header: dict[str, object]) -> bytes:
        return compact_json(outer | {"protected": b64url(compact_json(header))})

    es: dict[str, object] = {"alg": "ECDH-ES+A256KW"}
    assert envelope_kind(envelope({"recipients": []}, es)) == "didcomm/v2"
    assert envelope_kind(envelope({"encrypted_key": "", "recipients": None}, es)) == "didcomm/v2"
    assert envelope_kind(envelope({}, {"typ": "JWM/1.0", "recipients": [], "alg": "authcrypt"})) == "didcomm/v1"
