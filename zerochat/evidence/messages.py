"""What publishers and subscribers sign, byte by byte (SUPRA, with synchronised signatures).

    data       T | Pub | A | Enc_K(D) | Pre | S
    share      T | Sub | Pub | A | Enc_Sub(K') | Pre | S
    overwrite  T | Sub | Pub | A | S_over | Pre | S
    ack        Sub | A | T_i | S_i | t_ack | S_ack,   S_ack over "zerochat/ack/1" | A | T_i | S_i | t_ack

`T` is the publisher's time, UTC milliseconds in eight bytes, greater with each message; `Pub` and `Sub` are keys of a
suite (`suite.py`; Ed25519 unless one says another), `A` is what the publisher calls this stream of messages. `S` signs
all before it, and is the next message's `Pre`: so nothing is left out of a stream unnoticed. An overwrite says which
`Pre` comes next instead, when somebody begins to listen (`handshake.py`).

Nothing in these forms says which of them it is, and it need not: below the signature of one key no two of them can be
the same bytes. The key stands in another place in data than in the two others; a share has no sealed key of 64 bytes;
and the first byte of a time is zero, which no text that is signed elsewhere begins with. A suite takes one spelling of
a signature only, so a signature names its message.
"""

from typing import Final, TypeVar

from msgspec.structs import force_setattr

from zerochat.crypto.redacted import Veiled
from zerochat.errors import Malformed
from zerochat.evidence.suite import ED25519, Suite

TIME_BYTES: Final = 8
KEY_BYTES: Final = 32
ALIAS_BYTES: Final = 16
"""The paper has two bytes, of which two streams in three hundred are the same."""
SIGNATURE_BYTES: Final = 64
SEALED_KEY_BYTES: Final = 80
"""A key of 32 bytes in a sealed box."""
_HEAD = TIME_BYTES + KEY_BYTES + ALIAS_BYTES
_TAIL = 2 * SIGNATURE_BYTES
DATA_BYTES_MAX = 160 * 1024
ACK_CONTEXT: Final = b"zerochat/ack/1"
ACK_BYTES: Final = KEY_BYTES + ALIAS_BYTES + TIME_BYTES + SIGNATURE_BYTES + TIME_BYTES + SIGNATURE_BYTES
TIME_MAX: Final = 2**53 - 1


class InStream:
    """What has a place in a stream: it names the signature before its own (`Pre`), and the next one names its own."""

    __slots__ = ()

    time: int
    """UTC milliseconds, by the publisher's clock; greater with each."""
    publisher: bytes
    alias: bytes
    before: bytes
    """`Pre`: the signature of the message before."""
    signature: bytes

    def signed_bytes(self) -> bytes:
        raise NotImplementedError

    def written(self) -> bytes:
        return self.signed_bytes() + self.signature


class Data(InStream, Veiled, frozen=True):
    """What was published, for all subscribers at once."""

    VEILED = ("sealed", "before", "signature")

    time: int
    publisher: bytes
    alias: bytes
    sealed: bytes
    """Whatever the group's keys make of the content."""
    before: bytes
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        return _time(self.time) + self.publisher + self.alias + self.sealed + self.before


class Share(InStream, Veiled, frozen=True):
    """A new key for one subscriber, in the paper's form: one message each."""

    VEILED = ("sealed", "before", "signature")

    time: int
    subscriber: bytes
    publisher: bytes
    alias: bytes
    sealed: bytes
    before: bytes
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        return _time(self.time) + self.subscriber + self.publisher + self.alias + self.sealed + self.before


class Overwrite(InStream, Veiled, frozen=True):
    """One subscriber goes on behind another signature: where the stream is when it begins to listen."""

    VEILED = ("then", "before", "signature")

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


class Ack(Veiled, frozen=True):
    """A subscriber has this message, and all before it in the stream."""

    VEILED = ("of", "signature")

    subscriber: bytes
    alias: bytes
    time: int
    """`T_i` of the message."""
    of: bytes
    """`S_i` of the message."""
    at: int
    """When it was acknowledged, by the subscriber's clock."""
    signature: bytes = b""

    def signed_bytes(self) -> bytes:
        return ACK_CONTEXT + self.alias + _time(self.time) + self.of + _time(self.at)

    def written(self) -> bytes:
        return self.subscriber + self.signed_bytes()[len(ACK_CONTEXT) :] + self.signature


# --- writing: under the seed of who says it --------------------------------------------------------------------------

_M = TypeVar("_M", bound="Data | Share | Overwrite | Ack")


def heading(time: int, publisher: bytes, alias: bytes) -> bytes:
    """`T | Pub | A`, with which data begins."""
    return _time(time) + publisher + alias


def sign_data(seed: bytes, head: bytes, sealed: bytes, before: bytes, suite: Suite = ED25519) -> bytes:
    """The bytes of a message under the publisher's seed, behind its heading."""
    covered = head + sealed + before
    return covered + suite.sign(seed, covered)


def data(seed: bytes, time: int, alias: bytes, sealed: bytes, before: bytes, suite: Suite = ED25519) -> Data:
    """A message under the publisher's seed."""
    return _signed(Data(time, suite.public(seed), alias, sealed, before), seed, suite)


def share(
    seed: bytes, time: int, subscriber: bytes, alias: bytes, sealed: bytes, before: bytes, suite: Suite = ED25519
) -> Share:
    return _signed(Share(time, subscriber, suite.public(seed), alias, sealed, before), seed, suite)


def overwrite(
    seed: bytes, time: int, subscriber: bytes, alias: bytes, then: bytes, before: bytes, suite: Suite = ED25519
) -> Overwrite:
    return _signed(Overwrite(time, subscriber, suite.public(seed), alias, then, before), seed, suite)


def ack(seed: bytes, message: InStream, at: int, suite: Suite = ED25519) -> Ack:
    """The acknowledgement under the subscriber's seed."""
    return acknowledgement(seed, message.alias, message.time, message.signature, at, suite)


def acknowledgement(seed: bytes, alias: bytes, time: int, of: bytes, at: int, suite: Suite = ED25519) -> Ack:
    """The same of a message of which only its time `T` and its signature are known."""
    return _signed(Ack(suite.public(seed), alias, time, of, at), seed, suite)


def _signed(said: _M, seed: bytes, suite: Suite) -> _M:
    force_setattr(said, "signature", suite.sign(seed, said.signed_bytes()))  # nobody else has it yet
    return said


# --- reading: each raises Malformed for other shapes, and Unauthentic for another signature ---------------------------


def parse_data(written: bytes, suite: Suite = ED25519) -> Data:
    if not _HEAD + _TAIL < len(written) <= DATA_BYTES_MAX:
        raise Malformed(why="a signed message of another length")
    time, publisher = _count(written[:TIME_BYTES]), written[TIME_BYTES : TIME_BYTES + KEY_BYTES]
    alias, sealed, signature = (
        written[TIME_BYTES + KEY_BYTES : _HEAD],
        written[_HEAD:-_TAIL],
        written[-SIGNATURE_BYTES:],
    )
    suite.verify(publisher, written[:-SIGNATURE_BYTES], signature)
    return Data(time, publisher, alias, sealed, written[-_TAIL:-SIGNATURE_BYTES], signature)


def parse_share(written: bytes, suite: Suite = ED25519) -> Share:
    sizes = TIME_BYTES, KEY_BYTES, KEY_BYTES, ALIAS_BYTES, SEALED_KEY_BYTES, SIGNATURE_BYTES, SIGNATURE_BYTES
    return _for_one(Share, written, sizes, suite)


def parse_overwrite(written: bytes, suite: Suite = ED25519) -> Overwrite:
    sizes = TIME_BYTES, KEY_BYTES, KEY_BYTES, ALIAS_BYTES, SIGNATURE_BYTES, SIGNATURE_BYTES, SIGNATURE_BYTES
    return _for_one(Overwrite, written, sizes, suite)


def parse_ack(written: bytes, suite: Suite = ED25519) -> Ack:
    sizes = KEY_BYTES, ALIAS_BYTES, TIME_BYTES, SIGNATURE_BYTES, TIME_BYTES, SIGNATURE_BYTES
    _check(written, sizes)
    subscriber, alias, time, of, at, signature = _cut(written, *sizes)
    found = Ack(subscriber, alias, _count(time), of, _count(at), signature)
    suite.verify(found.subscriber, found.signed_bytes(), found.signature)
    return found


def time_of_ack(written: bytes) -> int:
    """`T` of the message that is said to be acknowledged here; nothing is checked."""
    at = KEY_BYTES + ALIAS_BYTES
    return int.from_bytes(written[at : at + TIME_BYTES], "big")


_ForOne = TypeVar("_ForOne", Share, Overwrite)


def _for_one(kind: type[_ForOne], written: bytes, sizes: tuple[int, ...], suite: Suite) -> _ForOne:
    _check(written, sizes)
    time, *rest = _cut(written, *sizes)
    found = kind(_count(time), *rest)
    if found.subscriber == found.publisher:
        raise Malformed(why="a message of somebody to itself")
    suite.verify(found.publisher, written[:-SIGNATURE_BYTES], found.signature)
    return found


def _check(written: bytes, sizes: tuple[int, ...]) -> None:
    if len(written) != sum(sizes):
        raise Malformed(why="a signed message of another length")


def _cut(written: bytes, *sizes: int) -> list[bytes]:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(written[at : at + size])
        at += size
    return pieces


def _time(ms: int) -> bytes:
    return ms.to_bytes(TIME_BYTES, "big")


def _count(written: bytes) -> int:
    number = int.from_bytes(written, "big")
    if not 0 < number <= TIME_MAX:
        raise Malformed(why="a time that is none")
    return number
