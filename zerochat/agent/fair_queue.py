"""Start-time fair queueing of inputs: the source that has had the least time is served next.

Goyal, Vin and Cheng, "Start-time Fair Queueing", 1996, with the time that each input has taken as its cost. The inputs
of one source keep their order. A source that was idle waits for one input of the others, not for all that they have
sent: a member that floods us delays itself. Idle time earns no credit.
"""

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Waiting items by source. No clock: the caller reports the cost of each, in any unit."""

    def __init__(self) -> None:
        self.size = 0
        """The sizes of all waiting items."""
        self._waiting: dict[Hashable, deque[tuple[T, int]]] = {}
        self._count = 0
        self._tags: dict[Hashable, float] = {}
        """By source: the virtual time when its next item may be served."""
        self._now = 0.0
        """The virtual time: the tag of the source that was served last."""

    def __len__(self) -> int:
        return self._count

    def __contains__(self, source: object) -> bool:
        """Whether a source has anything waiting."""
        return source in self._waiting

    def put(self, source: Hashable, item: T, size: int = 0) -> None:
        """Append an item of this source."""
        if source not in self._waiting:
            self._waiting[source] = deque()
            self._tags[source] = max(self._now, self._tags.get(source, 0.0))
        self._waiting[source].append((item, size))
        self._count += 1
        self.size += size

    def next_source(self) -> Hashable:
        """The source of the item that `take` returns next. The queue must not be empty."""
        return min(self._waiting, key=self._tags.__getitem__)

    def take(self) -> T:
        """Remove and return the next item; `charge` reports its cost. The queue must not be empty."""
        source = self.next_source()
        waiting = self._waiting[source]
        item, size = waiting.popleft()
        if not waiting:
            del self._waiting[source]
        self._count -= 1
        self.size -= size
        self._now = max(self._now, self._tags[source])
        return item

    def charge(self, source: Hashable, cost: float) -> None:
        """A source has taken this much. When nothing waits, all sources are equal again."""
        if self._waiting:
            self._tags[source] = max(self._now, self._tags.get(source, 0.0)) + cost
        else:
            self._tags.clear()
            self._now = 0.0
