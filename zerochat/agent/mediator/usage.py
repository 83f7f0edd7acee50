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
    """Token buckets of the copies that posts to shared mailboxes cause: one for each shared key, and one for all. Those
    that are full are left out."""

    def __init__(self, limits: Limits) -> None:
        self._keys = Buckets(limits.copies_burst, limits.copies_per_s)
        self._total = Buckets(limits.total_copies_burst, limits.total_copies_per_s)

    def spend(self, key: str, copies: int, now_s: int) -> bool:
        """Count so many copies; False: they exceed a rate, and none is counted."""
        if min(self._keys.left(key, now_s), self._total.left("", now_s)) < copies:
            return False
        self._keys.take(key, copies, now_s)
        self._total.take("", copies, now_s)
        return True

    def sweep(self, now_s: int) -> None:
        """Forget the buckets that are full again."""
        self._keys.sweep(now_s)
        self._total.sweep(now_s)

    def __len__(self) -> int:
        return len(self._keys)


class Buckets:
    """Token buckets of one size and rate, by key."""

    def __init__(self, burst: int, per_s: int) -> None:
        self._burst, self._per_s = float(burst), per_s
        self._left: dict[str, tuple[float, int]] = {}
        """The tokens that are left, and since when (UTC seconds)."""

    def left(self, key: str, now_s: int) -> float:
        """The tokens of a bucket now."""
        left, at = self._left.get(key, (self._burst, now_s))
        if now_s < at:  # the clock was set back
            return self._burst
        return min(left + (now_s - at) * self._per_s, self._burst)

    def take(self, key: str, tokens: int, now_s: int) -> None:
        """Take tokens that are left out of a bucket."""
        self._left[key] = self.left(key, now_s) - tokens, now_s

    def sweep(self, now_s: int) -> None:
        """Forget the buckets that are full."""
        for key in [key for key in self._left if self.left(key, now_s) >= self._burst]:
            del self._left[key]

    def __len__(self) -> int:
        return len(self._left)


def _add(usage: dict[int, QueueUsage], did: int, messages: int, size: int) -> None:
    kept = usage.setdefault(did, QueueUsage())
    kept.add(messages, size)
    if not kept.messages:
        del usage[did]
