"""What can wait when many are met at once: lines that nobody needs yet give way to those that somebody waits for.

A link works as soon as one of two peers has reached the other. A second connection for what goes to one, and those for
the queues, are there for later: the first one may break, and what goes to many goes out once. Each takes a handshake at
both ends, and where a crowd meets there are as many of them as there are pairs. So of two who have just met one dials
first; and queues, without which the same comes over the link, are subscribed to when the crowd is over.
"""

from collections import deque

FIRST_S = 2.0
"""How long whoever is to dial second waits for the other to come: longer than a handshake over a wide-area line."""
FIRST_S_CROWD = 6.0
"""The same where a crowd meets, whose handshakes take turns."""
SECOND_S = 10.0
"""And when it has come: then the second connection is for the day when the first one breaks."""
CROWD, CROWD_S = 4, 5.0
"""More new peers than this within so many seconds are a crowd."""
QUEUES_S_MAX = 10.0
"""No queue waits longer than this for the end of one."""


class Patience:
    """When what was put off is due; every `now` is in seconds, monotonic."""

    def __init__(self) -> None:
        self._met: deque[float] = deque(maxlen=CROWD + 1)
        """When the last peers were dialled for the first time."""
        self._due: dict[bytes, float] = {}
        self._until: dict[bytes, float] = {}
        """By link, when its queues have waited for long enough."""

    @property
    def due(self) -> float:
        """When something that was put off is due next."""
        return min(self._due.values(), default=float("inf"))

    def met(self, now: float) -> None:
        """A peer is dialled for the first time."""
        self._met.append(now)

    def crowded(self, now: float) -> bool:
        """Whether many peers are met at once."""
        return len(self._met) > CROWD and now < self._met[0] + CROWD_S

    def crowd_is_over(self, link: bytes, now: float) -> bool:
        """Whether this link's queues may be subscribed to now; if not, they are put off."""
        ends = self._met[0] + CROWD_S if self.crowded(now) else now
        until = self._until.setdefault(link, now + QUEUES_S_MAX)
        if min(ends, until) <= now:
            del self._until[link]
            return True
        self.put_off(link, min(ends, until))
        return False

    def put_off(self, link: bytes, until: float) -> None:
        """Look at this link again at that time, or sooner if that was said before."""
        self._due[link] = min(until, self._due.get(link, until))

    def over(self, now: float) -> list[bytes]:
        """The links whose time has come."""
        over = [link for link, when in self._due.items() if when <= now]
        for link in over:
            del self._due[link]
        return over

    def forget(self, link: bytes) -> None:
        """Nothing of this link is waited for any more."""
        self._due.pop(link, None)
        self._until.pop(link, None)
