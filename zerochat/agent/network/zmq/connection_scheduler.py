"""Connection scheduling: defers redundant connections while many new peers are dialled at once.

A link works as soon as one of two peers has reached the other. The second pair connection (redundancy) and the queue
connections (one publication for many recipients) can wait. Each costs a handshake at both ends, and where many peers
meet there is one per pair of them. So of two new peers one dials first, and queues, whose messages meanwhile go over
the link, are subscribed to when the crowd is over.
"""

from collections import deque

FIRST_S = 2.0
"""How long the peer that dials second waits for the first one: longer than a handshake over a wide-area network."""
FIRST_S_CROWD = 6.0
"""The same in a crowd, whose handshakes queue up."""
SECOND_S = 10.0
"""Delay of the second connection once the first one is up: it is only needed when the first one breaks."""
CROWD, CROWD_S = 4, 5.0
"""A crowd: more new peers than this within so many seconds."""
QUEUES_S_MAX = 10.0
"""Longest delay of a queue subscription."""


class ConnectionScheduler:
    """Due times of deferred connections, by link; every `now` in seconds, monotonic."""

    def __init__(self) -> None:
        self._met: deque[float] = deque(maxlen=CROWD + 1)
        """Times of the latest first dials to a new peer."""
        self._due: dict[bytes, float] = {}
        self._queues_until: dict[bytes, float] = {}
        """By link, the latest time for its queue subscription."""

    @property
    def due(self) -> float:
        """The earliest due time; infinity: none."""
        return min(self._due.values(), default=float("inf"))

    def met(self, now: float) -> None:
        """Count the first dial to a peer."""
        self._met.append(now)

    def crowded(self, now: float) -> bool:
        return len(self._met) > CROWD and now < self._met[0] + CROWD_S

    def may_subscribe(self, link: bytes, now: float) -> bool:
        """Whether this link's queues may be subscribed to now; otherwise they are deferred."""
        ends = self._met[0] + CROWD_S if self.crowded(now) else now
        until = self._queues_until.setdefault(link, now + QUEUES_S_MAX)
        if min(ends, until) <= now:
            del self._queues_until[link]
            return True
        self.defer(link, min(ends, until))
        return False

    def defer(self, link: bytes, until: float) -> None:
        """Make this link due at that time, unless it is due earlier."""
        self._due[link] = min(until, self._due.get(link, until))

    def take_due(self, now: float) -> list[bytes]:
        """The links that are due; they are deferred no longer."""
        due = [link for link, when in self._due.items() if when <= now]
        for link in due:
            del self._due[link]
        return due

    def cancel(self, link: bytes) -> None:
        """Drop everything deferred for this link."""
        self._due.pop(link, None)
        self._queues_until.pop(link, None)
