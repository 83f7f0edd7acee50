"""Routed items: what one member of a large group sends another one over the members between them.

    item     =  [author, recipient, kind, number, time, content, signature, passed]                          MessagePack
    bundle   =  the items of a message of type `routed` from one member to the next hop

The author's signature covers the group and all fields but the last, so every member on the way can check that it passes
on what the author has sent, and the recipient needs no link to the author. `passed` names the members that have had the
item, in 4 bytes each; who brings it may change that, as it may drop the item. The time makes a retransmission another
item: members on the way drop one that they have had.

    direct   a direct message of the author's key event with this number (`key_agreement/wire.py`)
    ack      the author has the recipient's key events up to this number
    event    the author's key event with this number, for a member that lacks it
    reset    a reset of the channel (`key_agreement/channel_reset.py`), after the author's key event with this number
"""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import cached_property
from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from zerochat.crypto.encoding import INTEGER_MAX, compact_msgpack, did_key, did_key_bytes
from zerochat.crypto.primitives import ed25519_sign, ed25519_verify, sha256
from zerochat.group.key_agreement.wire import EVENT_BYTES_MAX, parse_array
from zerochat.overlay.routing import HOPS_MAX

TAG_BYTES: Final = 4
"""How `passed` names a member: the beginning of its public key. A member with the same beginning is only passed by."""
CONTENT_BYTES_MAX: Final = EVENT_BYTES_MAX
ITEM_BYTES_MAX: Final = CONTENT_BYTES_MAX + 256
ITEMS_MAX: Final = 64
"""Items of one bundle."""
BUNDLE_BYTES_MAX: Final = 48 * 1024
"""The items of one bundle, before base64."""

_CONTEXT = b"zerochat/routed/1\n"
_Key = Annotated[bytes, Meta(min_length=32, max_length=32)]
_Number = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]


class RoutedKind(IntEnum):
    DIRECT = 0
    ACK = 1
    RESET = 2
    EVENT = 3


class _Item(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    author: _Key
    recipient: _Key
    kind: RoutedKind
    number: _Number
    at: _Number
    content: Annotated[bytes, Meta(min_length=1, max_length=CONTENT_BYTES_MAX)]
    sig: Annotated[bytes, Meta(min_length=64, max_length=64)]
    passed: Annotated[bytes, Meta(max_length=TAG_BYTES * HOPS_MAX)]

    def __post_init__(self) -> None:
        if len(self.passed) % TAG_BYTES or self.author == self.recipient:
            raise ValueError("a part of a tag, or an item for its author")


class RoutedItem(Struct, frozen=True, dict=True):
    """One item."""

    group: str
    author: str
    recipient: str
    kind: RoutedKind
    number: int
    """A key event of the author, or of the recipient in an acknowledgement; 0: none."""
    at: int
    """When the author sent it, UTC ms by its own clock."""
    content: bytes
    sig: bytes = b""
    passed: bytes = b""

    @cached_property
    def id(self) -> bytes:
        """SHA-256 over the group and what the author has signed; 32 bytes."""
        return sha256(_CONTEXT + self.group.encode() + compact_msgpack(self._signed_fields))

    @property
    def _signed_fields(self) -> list[object]:
        keys = did_key_bytes(self.author), did_key_bytes(self.recipient)
        return [*keys, self.kind, self.number, self.at, self.content]

    def signed(self, seed: bytes) -> "RoutedItem":
        """The same item, signed with this Ed25519 seed."""
        return replace(self, sig=ed25519_sign(seed, _CONTEXT + self.id))

    def check_signature(self) -> None:
        """Raise Unauthentic unless `sig` is the author's signature."""
        ed25519_verify(did_key_bytes(self.author), _CONTEXT + self.id, self.sig)

    @property
    def hops(self) -> int:
        """The members that have passed it on, with its author."""
        return len(self.passed) // TAG_BYTES

    def has_passed(self, member: str) -> bool:
        tag = tag_of(member)
        return any(self.passed[at : at + TAG_BYTES] == tag for at in range(0, len(self.passed), TAG_BYTES))

    def passed_by(self, member: str) -> "RoutedItem":
        """The same item, after this member. Of too many, the first is forgotten; the caller bounds the hops."""
        passed = replace(self, passed=(self.passed + tag_of(member))[-TAG_BYTES * HOPS_MAX :])
        if "id" in self.__dict__:
            passed.__dict__["id"] = self.id
        return passed

    @cached_property
    def wire(self) -> bytes:
        return compact_msgpack([*self._signed_fields, self.sig, self.passed])


class RoutedAck(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The content of an acknowledgement."""

    lacks: bool
    """Whether the author knows of later key events, which have not come."""
    lost: bool
    """Whether the author does not follow the recipient's key ratchet."""
    reset: _Number
    """The counter of the recipient's last reset that the author has taken; 0: none."""
    taken_at: _Number
    """The number of the author's last key event then."""

    @property
    def wire(self) -> bytes:
        return compact_msgpack(self)


def tag_of(member: str) -> bytes:
    """How `passed` names a member."""
    return did_key_bytes(member)[:TAG_BYTES]


def parse_item(data: bytes, group: str) -> RoutedItem:
    """The item in bytes from a member. Its signature is not checked here, nor its content read. Raises Malformed."""
    found = parse_array(data, _Item, ITEM_BYTES_MAX)
    dids = did_key(found.author), did_key(found.recipient)
    return RoutedItem(group, *dids, found.kind, found.number, found.at, found.content, found.sig, found.passed)


def parse_ack(content: bytes) -> RoutedAck:
    """The content of an acknowledgement. Raises Malformed."""
    return parse_array(content, RoutedAck, CONTENT_BYTES_MAX)


def bundles(items: Iterable[bytes]) -> Iterator[list[bytes]]:
    """These items in order, in bundles of at most `ITEMS_MAX` and `BUNDLE_BYTES_MAX`."""
    bundle, size = list[bytes](), 0
    for item in items:
        if bundle and (len(bundle) == ITEMS_MAX or size + len(item) > BUNDLE_BYTES_MAX):
            yield bundle
            bundle, size = [], 0
        bundle.append(item)
        size += len(item)
    if bundle:
        yield bundle
