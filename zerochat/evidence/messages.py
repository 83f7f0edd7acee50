"""Signed stream messages: binary encodings, signatures and equivocation proofs (SUPRA).

    data       T | Pub | A | Enc_K(D) | Pre | S
    share      T | Sub | Pub | A | Enc_Sub(K') | Pre | S
    overwrite  T | Sub | Pub | A | S_over | Pre | S
    ack        Sub | A | T_i | S_i | t_ack | S_ack,   S_ack over "zerochat/ack/1" | A | T_i | S_i | t_ack

`T` is the publisher's time, UTC milliseconds in eight bytes, strictly increasing; `Pub` and `Sub` are keys of a suite
(`suite.py`, Ed25519 by default); `A` is the publisher's alias of the stream. `S` signs everything before it and is the
`Pre` of the next message, so an omission is detectable. An overwrite sets another next `Pre` for a new subscriber
(`handshake.py`).

The forms have no type tag. Bytes under one key cannot be valid as two forms: the key has another offset in data than in
the others; a sealed key never has 64 bytes; the first byte of a time is zero, unlike any text signed elsewhere. A suite
accepts a single encoding of a signature, so a signature identifies its message.
"""

from typing import Final, Literal, TypeAlias, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from zerochat.crypto.structs import Redacted
from zerochat.errors import Malformed
from zerochat.evidence.suite import ED25519, Suite

TIME_BYTES: Final = 8
KEY_BYTES: Final = 32
ALIAS_BYTES: Final = 16
"""The paper has two bytes, where collisions are likely among 300 streams."""
SIGNATURE_BYTES: Final = 64
SEALED_KEY_BYTES: Final = 80
"""A key of 32 bytes in a sealed box."""
_HEAD = TIME_BYTES + KEY_BYTES + ALIAS_BYTES
_TAIL = 2 * SIGNATURE_BYTES
_SHARE_SIZES = TIME_BYTES, KEY_BYTES, KEY_BYTES, ALIAS_BYTES, SEALED_KEY_BYTES, SIGNATURE_BYTES, SIGNATURE_BYTES
DATA_BYTES_MAX = 160 * 1024
ACK_CONTEXT: Final = b"zerochat/ack/1"
ACK_BYTES: Final = KEY_BYTES + ALIAS_BYTES + TIME_BYTES + SIGNATURE_BYTES + TIME_BYTES + SIGNATURE_BYTES
TIME_MAX: Final = 2**53 - 1


class StreamMessage:
    """A message with a position in a stream: it names the signature of its predecessor (`Pre`)."""

    __slots__ = ()

    time: int
    """UTC ms by the publisher's clock, strictly increasing."""
    publisher: bytes
    alias: bytes
    before: bytes
    """`Pre`: the signature of the predecessor."""
    signature: bytes

    def signed_bytes(self) -> bytes:
        raise NotImplementedError

    def serialize(self) -> bytes:
        return self.signed_bytes() + self.signature


class Data(StreamMessage, Redacted, frozen=True):
    """A published message for all subscribers."""

    REDACTED = ("sealed", "before", "signature")

    time: int
    publisher: bytes
    alias: bytes
    sealed: bytes
    """Content encrypted by the group's key mode."""
    before: bytes
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        return _time(self.time) + self.publisher + self.alias + self.sealed + self.before


class Share(StreamMessage, Redacted, frozen=True):
    """A new key for one subscriber, in the place of a data message of its stream (the paper's Fig. 4). A stream of
    several subscribers cannot have one: the others would lack a link. Groups publish new keys as data."""

    REDACTED = ("sealed", "before", "signature")

    time: int
    subscriber: bytes
    publisher: bytes
    alias: bytes
    sealed: bytes
    before: bytes
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        return _time(self.time) + self.subscriber + self.publisher + self.alias + self.sealed + self.before


class Overwrite(StreamMessage, Redacted, frozen=True):
    """Sets the predecessor for one new subscriber to the current head of the stream."""

    REDACTED = ("then", "before", "signature")

    time: int
    subscriber: bytes
    publisher: bytes
    alias: bytes
    then: bytes
    """`S_over`: the `Pre` of the next message."""
    before: bytes
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        return _time(self.time) + self.subscriber + self.publisher + self.alias + self.then + self.before


class Ack(Redacted, frozen=True):
    """Cumulative acknowledgement: the subscriber has this message and its predecessors."""

    REDACTED = ("of", "signature")

    subscriber: bytes
    alias: bytes
    time: int
    """`T_i` of the message."""
    of: bytes
    """`S_i` of the message."""
    at: int
    """Time of the acknowledgement by the subscriber's clock, UTC ms."""
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        return ACK_CONTEXT + self.alias + _time(self.time) + self.of + _time(self.at)

    def serialize(self) -> bytes:
        return self.subscriber + self.signed_bytes()[len(ACK_CONTEXT) :] + self.signature


# --- signing ---------------------------------------------------------------------------------------------------------

_M = TypeVar("_M", bound="Data | Share | Overwrite | Ack")


def data_header(time: int, publisher: bytes, alias: bytes) -> bytes:
    """`T | Pub | A`, the header of data."""
    return _time(time) + publisher + alias


def sign_data(seed: bytes, head: bytes, sealed: bytes, before: bytes, suite: Suite = ED25519) -> bytes:
    """A message with this header, signed with the publisher's seed."""
    covered = head + sealed + before
    return covered + suite.sign(seed, covered)


def data(seed: bytes, time: int, alias: bytes, sealed: bytes, before: bytes, suite: Suite = ED25519) -> Data:
    """A message signed with the publisher's seed."""
    return _signed(Data(time, suite.public(seed), alias, sealed, before), seed, suite)


def share(
    seed: bytes, time: int, subscriber: bytes, alias: bytes, sealed: bytes, before: bytes, suite: Suite = ED25519
) -> Share:
    return _signed(Share(time, subscriber, suite.public(seed), alias, sealed, before), seed, suite)


def overwrite(
    seed: bytes, time: int, subscriber: bytes, alias: bytes, then: bytes, before: bytes, suite: Suite = ED25519
) -> Overwrite:
    return _signed(Overwrite(time, subscriber, suite.public(seed), alias, then, before), seed, suite)


def ack(seed: bytes, message: StreamMessage, at: int, suite: Suite = ED25519) -> Ack:
    """An acknowledgement of `message`, signed with the subscriber's seed. `at`: UTC ms."""
    return sign_ack(seed, message.alias, message.time, message.signature, at, suite)


def sign_ack(seed: bytes, alias: bytes, time: int, of: bytes, at: int, suite: Suite = ED25519) -> Ack:
    """An acknowledgement of the message with this time and signature."""
    return _signed(Ack(suite.public(seed), alias, time, of, at), seed, suite)


def _signed(message: _M, seed: bytes, suite: Suite) -> _M:
    force_setattr(message, "signature", suite.sign(seed, message.signed_bytes()))  # not shared yet
    return message


# --- parsing: raises Malformed for a wrong shape, Unauthentic for an invalid signature --------------------------------


def parse_data(encoded: bytes, suite: Suite = ED25519) -> Data:
    if not _HEAD + _TAIL < len(encoded) <= DATA_BYTES_MAX:
        raise Malformed(why="a signed message of another length")
    time, publisher = _count(encoded[:TIME_BYTES]), encoded[TIME_BYTES : TIME_BYTES + KEY_BYTES]
    alias, sealed, signature = (
        encoded[TIME_BYTES + KEY_BYTES : _HEAD],
        encoded[_HEAD:-_TAIL],
        encoded[-SIGNATURE_BYTES:],
    )
    suite.verify(publisher, encoded[:-SIGNATURE_BYTES], signature)
    return Data(time, publisher, alias, sealed, encoded[-_TAIL:-SIGNATURE_BYTES], signature)


def parse_share(encoded: bytes, suite: Suite = ED25519) -> Share:
    return _for_one(Share, encoded, _SHARE_SIZES, suite)


def parse_link(encoded: bytes, publisher: bytes, subscriber: bytes, suite: Suite = ED25519) -> Data | Share:
    """A message that takes a place in the stream of a publisher for this subscriber: data, or a key share for it. No
    bytes are both, because in data the publisher's key is where a share has the subscriber's."""
    if len(encoded) == sum(_SHARE_SIZES) and encoded[TIME_BYTES : TIME_BYTES + 2 * KEY_BYTES] == subscriber + publisher:
        return parse_share(encoded, suite)
    return parse_data(encoded, suite)


def parse_overwrite(encoded: bytes, suite: Suite = ED25519) -> Overwrite:
    sizes = TIME_BYTES, KEY_BYTES, KEY_BYTES, ALIAS_BYTES, SIGNATURE_BYTES, SIGNATURE_BYTES, SIGNATURE_BYTES
    return _for_one(Overwrite, encoded, sizes, suite)


def parse_ack(encoded: bytes, suite: Suite = ED25519) -> Ack:
    sizes = KEY_BYTES, ALIAS_BYTES, TIME_BYTES, SIGNATURE_BYTES, TIME_BYTES, SIGNATURE_BYTES
    _check(encoded, sizes)
    subscriber, alias, time, of, at, signature = _cut(encoded, *sizes)
    found = Ack(subscriber, alias, _count(time), of, _count(at), signature)
    suite.verify(found.subscriber, found.signed_bytes(), found.signature)
    return found


def ack_time(encoded: bytes) -> int:
    """`T` of the acknowledged message, unverified."""
    at = KEY_BYTES + ALIAS_BYTES
    return int.from_bytes(encoded[at : at + TIME_BYTES], "big")


_ForOne = TypeVar("_ForOne", Share, Overwrite)


def _for_one(kind: type[_ForOne], encoded: bytes, sizes: tuple[int, ...], suite: Suite) -> _ForOne:
    _check(encoded, sizes)
    time, *rest = _cut(encoded, *sizes)
    found = kind(_count(time), *rest)
    if found.subscriber == found.publisher:
        raise Malformed(why="a message to its own sender")
    suite.verify(found.publisher, encoded[:-SIGNATURE_BYTES], found.signature)
    return found


def _check(encoded: bytes, sizes: tuple[int, ...]) -> None:
    if len(encoded) != sum(sizes):
        raise Malformed(why="a signed message of another length")


def _cut(encoded: bytes, *sizes: int) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(encoded[at : at + size])
        at += size
    return pieces


def _time(ms: int) -> bytes:
    return ms.to_bytes(TIME_BYTES, "big")


def _count(encoded: bytes) -> int:
    number = int.from_bytes(encoded, "big")
    if not 0 < number <= TIME_MAX:
        raise Malformed(why="a time out of range")
    return number


# --- equivocation: two messages that an honest stream cannot both contain --------------------------------------------

TIME, PUBLISHER, ALIAS = slice(0, 8), slice(8, 40), slice(40, 56)
BEFORE, SIGNATURE = slice(-128, -64), slice(-64, None)
"""Offsets of the fields in an encoded data message; times compare like their bytes."""
FORK: Final = "fork"
"""Two messages with the same predecessor (E1)."""
TIME_REVERSAL: Final = "time-reversal"
"""A message that is not later than its predecessor (E2)."""
EquivocationKind: TypeAlias = Literal["fork", "time-reversal"]


class Equivocation(Struct, frozen=True):
    """Two signed messages that convict their publisher. For a time reversal, `one` is the predecessor of `other`."""

    kind: EquivocationKind
    one: bytes
    other: bytes


def find_equivocation(one: bytes, other: bytes) -> Equivocation | None:
    """The equivocation proven by two encoded data messages; None: they are consistent. Signatures are not verified."""
    if one == other or (one[PUBLISHER], one[ALIAS]) != (other[PUBLISHER], other[ALIAS]):
        return None
    if one[BEFORE] == other[BEFORE]:
        return Equivocation(FORK, one, other)
    for first, then in ((one, other), (other, one)):
        if first[SIGNATURE] == then[BEFORE] and then[TIME] <= first[TIME]:
            return Equivocation(TIME_REVERSAL, first, then)
    return None
