"""Whether the other end of a connection is still there: it is asked after a silence, and given up without an answer.

What counts as a sign of life is a whole frame that opens, or a good piece of a large one. A trickle of bytes does not:
one flipped bit in the length of a frame would make all that follows look like the rest of it, for ever.
"""

from zerochat.agent.net import sockets

PIECE_BYTES = 4 * 1024
"""That much of a large frame within the time for an answer is as good as an answer, on however slow a line."""
BEATS = 2
"""How many times in HEARTBEAT_MS it is looked who is silent, all connections at once: an agent with a hundred of them
is not woken a hundred times. It makes a silence up to half as long again."""


class Pulse:
    """One connection's; every `now` is in seconds, monotonic."""

    def __init__(self, now: float) -> None:
        self._heard_at = now
        self._asked_at: float | None = None
        self._bytes = 0

    def heard(self, now: float) -> None:
        """A frame was opened."""
        self._heard_at, self._asked_at, self._bytes = now, None, 0

    def felt(self, size: int, now: float) -> None:
        """So many bytes were read."""
        self._bytes += size
        if self._bytes >= PIECE_BYTES:
            self.heard(now)

    def due(self) -> float:
        """When to ask, or to give up if there is no answer until then."""
        if self._asked_at is not None:
            return self._asked_at + sockets.HEARTBEAT_TIMEOUT_MS / 1000
        beat = sockets.HEARTBEAT_MS / 1000 / BEATS
        return (self._heard_at // beat + BEATS + 1) * beat

    def ask(self, now: float) -> bool:
        """True when it is time to ask; it has been asked then."""
        if self._asked_at is not None or now < self.due():
            return False
        self._asked_at = now
        return True

    def stopped(self, now: float) -> bool:
        """True when it was asked, and too long ago."""
        return self._asked_at is not None and now >= self.due()
