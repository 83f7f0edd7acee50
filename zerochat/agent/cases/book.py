"""What is asked of a group's log by whoever makes cases: the entries that a quorum has cosigned, the bytes behind some
of them, and the checkpoints."""

from collections.abc import Iterator
from typing import Final, Protocol

from zerochat.evidence.case import Rules
from zerochat.evidence.note import Note
from zerochat.evidence.witness import Receipt

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
