"""Accounting of stored messages and of work, per recipient, DID and shared mailbox, in memory.

Stored messages are counted from disk at a start. Work is counted since the start, for the operator: it shows the
recipients that cause it.
"""

from collections import defaultdict
from collections.abc import Iterable
from math import inf

from msgspec import Struct

from zerochat.agent.mediator.limits import Limits


class QueueUsage(Struct):
    """Number and bytes of stored messages."""

    messages: int = 0
    bytes: int = 0

    def add(self, messages: int, size: int) -> None:
        self.messages += messages
        self.bytes += size


class Work(Struct):
    """What a recipient has caused since the start of the mediator."""

    requests: int = 0
    """Messages from the recipient."""
    written: int = 0
    """Bytes of envelopes written for it, also those that were deleted since."""
    allowance: float = inf
    """Requests that its rate admits, `at` this time (UTC seconds)."""
    at: int = 0


class Usage:
    """Usage by recipient, by DID, and in total."""

    def __init__(self) -> None:
        self.total = QueueUsage()
        self.recipients: defaultdict[int, QueueUsage] = defaultdict(QueueUsage)
        self.delayed: defaultdict[int, QueueUsage] = defaultdict(QueueUsage)
        """Part of it by recipient: delayed messages, and those to be relayed."""
        self._dids: dict[int, QueueUsage] = {}
        self._delayed_dids: dict[int, QueueUsage] = {}
        self.work: defaultdict[int, Work] = defaultdict(Work)

    def add(self, recipient: int, did: int, messages: int, size: int, *, delayed: bool = False) -> None:
        """Count stored messages (negative: deleted ones)."""
        self.recipients[recipient].add(messages, size)
        self.total.add(messages, size)
        _add(self._dids, did, messages, size)
        if delayed:
            self.delayed[recipient].add(messages, size)
            _add(self._delayed_dids, did, messages, size)

    def of_did(self, did: int) -> QueueUsage:
        return self._dids.get(did, QueueUsage())

    def delayed_of_did(self, did: int) -> QueueUsage:
        return self._delayed_dids.get(did, QueueUsage())

    def forget(self, recipient: int, dids: Iterable[int]) -> None:
        """A recipient and its messages were deleted."""
        gone = self.recipients.pop(recipient, QueueUsage())
        self.delayed.pop(recipient, None)
        self.work.pop(recipient, None)
        for did in dids:
            self._dids.pop(did, None)
            self._delayed_dids.pop(did, None)
        self.total.add(-gone.messages, -gone.bytes)

    def clear(self) -> None:
        """Forget the stored messages, to count them again from disk."""
        for each in (self.recipients, self.delayed, self._dids, self._delayed_dids):
            each.clear()
        self.total = QueueUsage()

    def heaviest(self, count: int) -> list[tuple[int, QueueUsage, Work]]:
        """The recipients with most bytes written and stored."""
        numbers = {*self.work, *self.recipients}
        rows = [
            (number, self.recipients.get(number, QueueUsage()), self.work.get(number, Work())) for number in numbers
        ]
        return sorted(rows, key=lambda row: (row[2].written + row[1].bytes, row[2].requests), reverse=True)[:count]


class CopyRates:
    """Token buckets of the copies that posts to shared mailboxes cause, by shared key; those that are full are left
    out."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left: dict[str, tuple[float, int]] = {}
        """The copies that are left, and since when (UTC seconds)."""

    def spend(self, key: str, copies: int, now_s: int) -> bool:
        """Count so many copies; False: they exceed the rate."""
        left = self._now(key, now_s)
        if left < copies:
            return False
        self._left[key] = left - copies, now_s
        return True

    def sweep(self, now_s: int) -> None:
        """Forget the buckets that are full again."""
        full = [key for key in self._left if self._now(key, now_s) >= self._limits.copies_burst]
        for key in full:
            del self._left[key]

    def __len__(self) -> int:
        return len(self._left)

    def _now(self, key: str, now_s: int) -> float:
        burst = float(self._limits.copies_burst)
        left, at = self._left.get(key, (burst, now_s))
        if now_s < at:  # the clock was set back
            return burst
        return min(left + (now_s - at) * self._limits.copies_per_s, burst)


def _add(usage: dict[int, QueueUsage], did: int, messages: int, size: int) -> None:
    kept = usage.setdefault(did, QueueUsage())
    kept.add(messages, size)
    if not kept.messages:
        del usage[did]
