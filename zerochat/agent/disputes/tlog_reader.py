"""Read access to transparency logs for disputes: cosigned entries, blobs, receipts and checkpoints."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, Protocol

from msgspec import Struct

from zerochat.errors import RemoteError
from zerochat.evidence.case import Rules
from zerochat.evidence.handshake import STATEMENT_BYTES_MAX, Accept, Close, parse_statement
from zerochat.evidence.note import Note
from zerochat.evidence.witness import Receipt, is_kind, parse_entry

PAGE_ENTRIES: Final = 1024
"""Entries read at a time."""


class TlogReader(Protocol):
    """The transparency logs of one profile's groups. `origin`: the name of a log; indices count from 0."""

    def all_rules(self, group: str) -> list[Rules]:
        """The rules of a group's logs, oldest log first."""

    def size(self, group: str, origin: str) -> int:
        """Number of entries under the latest complete checkpoint."""

    def entries(self, group: str, origin: str, after: int, limit: int) -> list[bytes]:
        """At most `limit` entries after the first `after`, in order."""

    def blob(self, group: str, hash_: str) -> bytes | None:
        """The blob with this hash; None: not stored."""

    def receipt(self, group: str, origin: str, record: bytes, since: int = 0) -> Receipt | None:
        """Receipt of an entry's first occurrence from index `since` on, under the first complete checkpoint over it."""

    def checkpoint_after(self, group: str, origin: str, at_ms: int) -> Note | None:
        """The first checkpoint complete until `at_ms` (UTC ms) or later."""

    def latest_checkpoint(self, group: str, origin: str) -> Note | None:
        """The latest complete checkpoint."""


def rules_of(tlog: TlogReader, group: str, digest: str) -> Rules | None:
    """The rules with this digest; None: no log of the group has them."""
    return next((one for one in tlog.all_rules(group) if one.digest == digest), None)


class EndedSubscription(Struct, frozen=True):
    """A publisher's logged end of a subscription."""

    close: Close
    receipt: Receipt
    at: int
    """Time of the end by the witnesses, UTC ms."""


def ended_subscription(tlog: TlogReader, group: str, rules: Rules, accept: Accept) -> EndedSubscription | None:
    """The logged end of a subscription by its publisher; None: none that can be proven."""
    for _, record in entries_from(tlog, group, rules.origin, 0):
        if not is_kind(record, "close"):
            continue
        entry = parse_entry(record)
        blob = tlog.blob(group, entry.hash) if entry.author == accept.publisher else None
        receipt = tlog.receipt(group, rules.origin, record) if blob is not None else None
        if blob is None or receipt is None or len(blob) > STATEMENT_BYTES_MAX:
            continue
        with suppress(RemoteError):
            close = parse_statement(blob)
            close.check()
            if isinstance(close, Close) and (close.accept, close.author) == (accept.digest, accept.publisher):
                return EndedSubscription(close, receipt, receipt.posted_ms(entry, rules.quorum))
    return None


def entries_from(
    tlog: TlogReader, group: str, origin: str, since: int, upto: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Indices and entries from `since` to `upto`, exclusive."""
    place = since
    while upto is None or place < upto:
        found = tlog.entries(group, origin, place, PAGE_ENTRIES if upto is None else min(PAGE_ENTRIES, upto - place))
        yield from enumerate(found, place)
        place += len(found)
        if not found:
            return
