"""DCGKA: group keys that heal (`group/key_agreement/`), and events that their authors sign.

The author's signature is in each event, so any member may bring it: its author has vouched for it, not its bearer. One
encryption serves all members, under the key of this message in the author's key ratchet:

    2 | epoch (8) | number (4) | commitment, ciphertext and tag (`sender_key.py`)

The epoch is the beginning of the id of the author's key event that began it. Only its author could make two with the
same beginning, by 2^32 trials, and would make its own messages unreadable until it retransmits them. The associated
data are the header, the whole id, the group and the author.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import ClassVar, Final

from msgspec import Struct

from zerochat.crypto.encoding import b64url_bytes, did_key_bytes
from zerochat.didcomm.packer import ENVELOPE_BYTES_MAX
from zerochat.errors import Malformed
from zerochat.group.key_modes.pairwise import PairwiseSingle
from zerochat.group.key_modes.sender_key import open_sealed, seal_content

_VERSION = b"\x02"
_EPOCH_BYTES, _NUMBER_BYTES = 8, 4
HEADER_BYTES: Final = len(_VERSION) + _EPOCH_BYTES + _NUMBER_BYTES
EPOCHS_CACHED: Final = 1024
"""Ids of epochs in memory, about 200 kB."""


class Dcgka(PairwiseSingle, frozen=True):
    """Every event is signed by its author. Other messages travel as with pairwise keys."""

    name: ClassVar[str] = "dcgka"
    signs_events: ClassVar[bool] = True
    heals: ClassVar[bool] = True


class Place(Struct, frozen=True):
    """Which key opens a message."""

    epoch: str
    """The id of the author's key event that began the epoch."""
    number: int
    """Messages of an epoch count from 0."""

    @property
    def header(self) -> bytes:
        return _VERSION + _bytes_of(self.epoch)[:_EPOCH_BYTES] + self.number.to_bytes(_NUMBER_BYTES, "big")


def is_sealed(envelope: bytes) -> bool:
    """Whether these bytes are such a message, not a frame, a stream message or a DIDComm envelope."""
    return envelope[:1] == _VERSION


def place_of(envelope: bytes, epochs: Iterable[str]) -> Place | None:
    """Which key opens a message; None: it is of none of these epochs, the ids of key events. Raises Malformed."""
    if not is_sealed(envelope) or not HEADER_BYTES < len(envelope) <= ENVELOPE_BYTES_MAX:
        raise Malformed(why="a sealed message of a wrong size")
    end = len(_VERSION) + _EPOCH_BYTES
    beginning, number = envelope[len(_VERSION) : end], int.from_bytes(envelope[end:HEADER_BYTES], "big")
    return next((Place(epoch, number) for epoch in epochs if _bytes_of(epoch).startswith(beginning)), None)


@lru_cache(maxsize=EPOCHS_CACHED)
def _bytes_of(epoch: str) -> bytes:
    return b64url_bytes(epoch)


def seal(key: bytes, place: Place, group: str, author: str, body: dict[str, object]) -> bytes:
    """The message with these events (the body of an `events` message)."""
    header = place.header
    return header + seal_content(key, body, _bound(header, place, group, author))


def open_(key: bytes, place: Place, envelope: bytes, group: str, author: str) -> object:
    """The body of a message with this place (`place_of`). Raises Malformed or Unauthentic."""
    return open_sealed(key, envelope[HEADER_BYTES:], _bound(place.header, place, group, author))


def _bound(header: bytes, place: Place, group: str, author: str) -> bytes:
    return header + _bytes_of(place.epoch) + group.encode() + did_key_bytes(author)
