"""What is asked of a group's log by whoever makes cases: the entries that a quorum has cosigned, the bytes behind some
of them, and the checkpoints."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Protocol

from msgspec import Struct

from zerochat.errors import RemoteError
from zerochat.evidence.case import Rules
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX, Accept, Close, parse_statement
from zerochat.evidence.note import Note
from zerochat.evidence.witness import Receipt, is_kind, parse_entry

PIECE: Final = 1024
"""Entries that are read at once."""


class Book(Protocol):
    """The logs of one profile's groups. `origin`: the name of a log. Places count from 0."""

    def origins(self, group: str) -> list[Rules]:
        """The logs of a group, with the rules of each, in the order in which they began."""

    def size(self, group: str, origin: str) -> int:
        """How many entries are known to be under a whole checkpoint."""

    def entries(self, group: str, origin: str, after: int, limit: int) -> list[bytes]:
        """At most `limit` entries behind the first `after` ones, in their order."""

    def blob(self, group: str, hash_: str) -> bytes | None:
        """The bytes behind an entry."""

    def receipt(self, group: str, origin: str, record: bytes, since: int = 0) -> Receipt | None:
        """What shows that this entry is in the log, by the first whole checkpoint over its first place from `since`
        on."""

    def note_after(self, group: str, origin: str, at_ms: int) -> Note | None:
        """The first whole checkpoint that a quorum gives a time of `at_ms` (UTC milliseconds) or later."""

    def last(self, group: str, origin: str) -> Note | None:
        """The last whole checkpoint."""


def rules_of(book: Book, group: str, digest: str) -> Rules | None:
    """The rules with this digest, if they are those of a log of the group."""
    return next((one for one in book.origins(group) if one.digest == digest), None)


class Ended(Struct, frozen=True):
    """A publisher has ended a subscription, and the log has that."""

    close: Close
    receipt: Receipt
    at: int
    """Since when, UTC milliseconds, by the witnesses."""


def ended(book: Book, group: str, rules: Rules, accept: Accept) -> Ended | None:
    """The first word in a log by which a publisher has ended the subscription that began with this answer of its; None:
    there is none that could be shown."""
    for _, record in entries_from(book, group, rules.origin, 0):
        if not is_kind(record, "close"):
            continue
        entry = parse_entry(record)
        blob = book.blob(group, entry.hash) if entry.author == accept.publisher else None
        receipt = book.receipt(group, rules.origin, record) if blob is not None else None
        if blob is None or receipt is None or len(blob) > STATEMENT_BYTES_MAX:
            continue
        with suppress(RemoteError):
            close = parse_statement(blob)
            close.check()
            if isinstance(close, Close) and (close.accept, close.by) == (accept.digest, accept.publisher):
                return Ended(close, receipt, receipt.posted_ms(entry, rules.quorum))
    return None


def entries_from(
    book: Book, group: str, origin: str, since: int, upto: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """The entries with their places, from place `since` up to `upto` (that one not)."""
    place = since
    while upto is None or place < upto:
        found = book.entries(group, origin, place, PIECE if upto is None else min(PIECE, upto - place))
        yield from enumerate(found, place)
        place += len(found)
        if not found:
            return
