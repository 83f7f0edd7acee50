"""Journal queries of the transparency log's machines, and their results: the core reads no disk."""

from typing import TypeAlias

from msgspec import Struct

from zerochat.crypto.structs import Redacted


class UnplacedEntries(Struct, frozen=True):
    """Which of these records are not in the log yet and have their blobs here: found as `Records`, in order. Witnesses
    do not cosign entries without available blobs."""

    submitter: str
    """The member that submitted them."""
    records: tuple[bytes, ...]


class MissingBlobs(Struct, frozen=True):
    """Which of these entries lack their blobs here: found as `Hashes`."""

    sender: str
    """The member that sent this extension."""
    old: int
    records: tuple[bytes, ...]
    note: str


class ExtensionQuery(Struct, frozen=True):
    """The entries after `after`, up to the next complete checkpoint, or to the end if there is none: found as
    `Extension`, of at most `limit` entries."""

    member: str
    """The requester."""
    after: int
    limit: int


class BlobQuery(Struct, frozen=True):
    """The blobs of these entries, as far as they are here and fit an answer: found as `Blobs`."""

    members: tuple[str, ...]
    """The recipients."""
    records: tuple[bytes, ...]
    """The entries."""
    submitted: bool = False
    """They are our own submissions; otherwise the members requested them."""


class UnreadEntries(Struct, frozen=True):
    """Others' messages in the log from `after` on that were not received here, and entries of other kinds without their
    blobs: found as `MissingEntries`, after looking at no more than `limit` entries."""

    me: str
    after: int
    limit: int


class Owed(Struct, frozen=True):
    """The messages owed to a subscriber: later than `begun`, up to `until` (both `T`)."""

    member: str
    begun: int
    until: int


class OverdueMessages(Struct, frozen=True):
    """The messages of this stream of ours later than `after` and up to `upto` without a signed acknowledgement of all
    subscribers to whom they are owed: found as `Messages`."""

    author: str
    """Ourselves."""
    alias: bytes
    after: int
    upto: int
    owed: tuple[Owed, ...]


TlogQuery: TypeAlias = UnplacedEntries | MissingBlobs | ExtensionQuery | BlobQuery | UnreadEntries | OverdueMessages


class Records(Struct, frozen=True, tag=True):
    records: tuple[bytes, ...]


class Hashes(Struct, frozen=True, tag=True):
    hashes: tuple[str, ...]
    full: bool = False
    """The quota of an author is used up here."""


class Extension(Struct, frozen=True, tag=True):
    records: tuple[bytes, ...]
    note: str
    """The checkpoint at their end; empty: it is not complete."""


class Blobs(Redacted, frozen=True, tag=True):
    REDACTED = ("found",)

    found: tuple[tuple[bytes, bytes], ...]
    """Records and their blobs."""


class MissingEntries(Struct, frozen=True, tag=True):
    upto: int
    """How many entries were looked at, from the beginning of the log."""
    records: tuple[bytes, ...]


class Messages(Redacted, frozen=True, tag=True):
    REDACTED = ("found",)

    found: tuple[bytes, ...]
    upto: int
    """All up to this `T` are included."""


TlogResult: TypeAlias = Records | Hashes | Extension | Blobs | MissingEntries | Messages
