"""What the machines of a group's log ask the journal, and what it answers: the core reads no disk (`effects.LookUp`,
`stimuli.LookedUp`)."""

from typing import TypeAlias

from msgspec import Struct

from zerochat.crypto.redacted import Veiled


class Unplaced(Struct, frozen=True):
    """Which of these records have no place in the log yet, and could have one, since the bytes behind them are here:
    found as `Records`, in their order. No witness would cosign what nobody can give it, nor what stands behind it."""

    by: str
    """Who has posted them."""
    records: tuple[bytes, ...]


class Unheld(Struct, frozen=True):
    """The bytes behind which of these entries are not here: found as `Hashes`."""

    by: str
    """Who has shown us this piece."""
    old: int
    records: tuple[bytes, ...]
    note: str


class Piece(Struct, frozen=True):
    """What comes after so many entries, up to the next checkpoint that was whole, or up to the end where there is none:
    found as `Stretch`, of `limit` entries at most."""

    member: str
    """Who wants it."""
    after: int
    limit: int


class Bytes(Struct, frozen=True):
    """The bytes with these hashes, as far as they are here and fit an answer: found as `Blobs`."""

    members: tuple[str, ...]
    """Who are to get them."""
    records: tuple[bytes, ...]
    """The entries that speak of them."""
    posted: bool = False
    """They are ours, and we post them; else the members have asked for them."""


class Unread(Struct, frozen=True):
    """The messages that others have in the log in a place from `after` on and that were not heard here, and the entries
    of other kinds of which the bytes are not here: found as `Lacking`, looking at no more than `limit` entries."""

    me: str
    after: int
    limit: int


class Owed(Struct, frozen=True):
    """What a subscriber was to get: all messages later than `begun`, up to `until` (both `T`)."""

    member: str
    begun: int
    until: int


class Overdue(Struct, frozen=True):
    """The messages of this stream of ours that are later than `after` and not later than `upto`, and for which one of
    those to whom they were owed has not signed: found as `Messages`."""

    author: str
    """Ourselves."""
    alias: bytes
    after: int
    upto: int
    owed: tuple[Owed, ...]


Lookup: TypeAlias = Unplaced | Unheld | Piece | Bytes | Unread | Overdue


class Records(Struct, frozen=True, tag=True):
    records: tuple[bytes, ...]


class Hashes(Struct, frozen=True, tag=True):
    hashes: tuple[str, ...]
    full: bool = False
    """There is no room here for more of somebody's."""


class Stretch(Struct, frozen=True, tag=True):
    records: tuple[bytes, ...]
    note: str
    """The checkpoint at their end; empty: none there is whole."""


class Blobs(Veiled, frozen=True, tag=True):
    VEILED = ("found",)

    found: tuple[tuple[bytes, bytes], ...]
    """Records, and the bytes that they speak of."""


class Lacking(Struct, frozen=True, tag=True):
    upto: int
    """So many entries were looked at, from the beginning of the log."""
    records: tuple[bytes, ...]


class Messages(Veiled, frozen=True, tag=True):
    VEILED = ("found",)

    found: tuple[bytes, ...]
    upto: int
    """Up to this `T` these are all."""


Found: TypeAlias = Records | Hashes | Stretch | Blobs | Lacking | Messages
