"""Key events and direct messages as bytes: canonical MessagePack arrays, every field bounded.

A direct message goes to one member, which knows that it is the recipient.

    key event        [record, signature]               about 220 bytes for an update
    direct message   [message, index, size, path]      about 490 bytes in a group of 1,000
"""

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

from zerochat.crypto.encoding import INTEGER_MAX, b64url, compact_msgpack, did_key
from zerochat.crypto.two_party import OVERHEAD_BYTES
from zerochat.errors import Malformed
from zerochat.evidence.merkle import HASH_BYTES
from zerochat.group.key_agreement.key_event import ADOPTS_MAX, TO_MAX, WANTS_MAX, Direct, KeyEvent
from zerochat.group.key_agreement.key_schedule import KEY_BYTES

HEADS_MAX: Final = 32
"""Heads of the membership events that one key event names."""
DIRECTS_MAX: Final = 1 << 12
"""Direct messages of one key event: more than a group has members."""
EVENT_BYTES_MAX: Final = 4096
"""With all lists full, an event has about 3,600 bytes."""
DIRECT_BYTES_MAX: Final = 1024

_Hash = Annotated[bytes, Meta(min_length=32, max_length=32)]
_HashOrNone = Annotated[bytes, Meta(max_length=32)]
_Number = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]


class _Record(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    author: _Hash
    number: _Number
    control: Annotated[tuple[_Hash, ...], Meta(min_length=1, max_length=HEADS_MAX)]
    adopts: Annotated[tuple[_Hash, ...], Meta(max_length=ADOPTS_MAX)]
    sent: Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
    commitment: _HashOrNone
    to: Annotated[tuple[_Hash, ...], Meta(max_length=TO_MAX)]
    wants: Annotated[tuple[_Hash, ...], Meta(max_length=WANTS_MAX)]
    root: _HashOrNone
    prekey: _HashOrNone

    def __post_init__(self) -> None:
        if any(len(one) not in (0, 32) for one in (self.commitment, self.root, self.prekey)):
            raise ValueError("a hash or key of the wrong length")
        if any(len({*some}) != len(some) for some in (self.control, self.adopts, self.to, self.wants)):
            raise ValueError("a member or an event is named twice")
        if self.commitment and (self.to or self.adopts):
            raise ValueError("an update that does something else")
        if (self.to and not self.root) or (self.prekey and not self.commitment):
            raise ValueError("direct messages without a root, or a reset without an update")


class _Envelope(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    record: bytes
    sig: Annotated[bytes, Meta(min_length=64, max_length=64)]


class _Direct(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    message: Annotated[bytes, Meta(max_length=OVERHEAD_BYTES + KEY_BYTES)]
    index: Annotated[int, Meta(ge=0, lt=DIRECTS_MAX)]
    size: Annotated[int, Meta(ge=1, le=DIRECTS_MAX)]
    path: Annotated[bytes, Meta(max_length=HASH_BYTES * (DIRECTS_MAX.bit_length() - 1))]


_S = TypeVar("_S", bound=Struct)


def parse_array(data: bytes, shape: type[_S], size_max: int) -> _S:
    """A canonical MessagePack array from a peer. Raises Malformed."""
    if len(data) > size_max:
        raise Malformed(why=f"more than {size_max} bytes")
    try:
        found = msgspec.msgpack.decode(data, type=shape)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(why=f"key event: {error}") from None
    if compact_msgpack(found) != data:
        raise Malformed(why="key event: not canonical")
    return found


def event_bytes(event: KeyEvent) -> bytes:
    """A signed event on its way to the members."""
    return compact_msgpack(_Envelope(event.record, event.sig))


def parse_key_event(data: bytes, group: str) -> KeyEvent:
    """The event in bytes from a peer. Its signature is not checked here. Raises Malformed."""
    envelope = parse_array(data, _Envelope, EVENT_BYTES_MAX)
    record = parse_array(envelope.record, _Record, EVENT_BYTES_MAX)
    control, adopts = (tuple(map(b64url, some)) for some in (record.control, record.adopts))
    to, wants = (tuple(map(did_key, some)) for some in (record.to, record.wants))
    return KeyEvent(
        group,
        did_key(record.author),
        record.number,
        control,
        adopts,
        record.sent,
        record.commitment,
        to,
        wants,
        record.root,
        record.prekey,
        envelope.sig,
    )


def direct_bytes(direct: Direct) -> bytes:
    """A direct message on its way to its recipient."""
    return compact_msgpack(_Direct(direct.message, direct.index, direct.size, b"".join(direct.path)))


def parse_direct(data: bytes, recipient: str) -> Direct:
    """The direct message for us, in bytes from a peer. Its proof is not checked here. Raises Malformed."""
    found = parse_array(data, _Direct, DIRECT_BYTES_MAX)
    if len(found.path) % HASH_BYTES:
        raise Malformed(why="direct message: a path of the wrong length")
    path = tuple(found.path[at : at + HASH_BYTES] for at in range(0, len(found.path), HASH_BYTES))
    return Direct(recipient, found.message, found.index, found.size, path)
