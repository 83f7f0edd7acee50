"""Whether the other end of a connection is still there: it is asked now and then, and given up without an answer.

Whoever has dialled asks, and nobody else: one question serves both ends. To us the answer shows that the host is there.
To the host the question shows that we are, and says how long that holds good (`Session.ping`): libzmq ends a connection
on which nothing more comes for so long. But it forgets that time with the next thing it hears, so whatever else is said
is followed by a question (`Line.flush`).

What counts as a sign of life is a whole frame that opens, or a good piece of a large one. A trickle of bytes does not:
one flipped bit in the length of a frame would make all that follows look like the rest of it, for ever.
"""

import random

from zerochat.agent.network.zmq import socket_options

PIECE_BYTES = 4 * 1024
"""That much of a large frame within the time for an answer is as good as an answer, on however slow a line."""
BREATH_S, BREATHS_MAX = 0.5, 20
"""Whoever has much to say asks no more often than this in the long run, with so many questions ahead: a host reckons
with few (`cut.HEARTBEAT_BYTES_PER_S`)."""
PHASE_S = random.uniform(0.0, 60.0)  # noqa: S311  # only to spread the load
"""All connections of an agent are asked at one moment, so that one with a hundred of them is not woken a hundred times;
but not those of all agents of a machine."""


class Pulse:
    """One connection's; every `now` is in seconds, monotonic."""

    def __init__(self, now: float, every_ms: int) -> None:
        """`every_ms`: how often to ask, at least."""
        self._every_s = every_ms / 1000
        self._ask_at = self._next(now)
        self._rested_at = now
        """When it could be asked as often at once as ever."""
        self._asked_at: float | None = None
        """When it was asked first without an answer since."""
        self._bytes = 0

    def heard(self) -> None:
        """A frame was opened."""
        self._asked_at, self._bytes = None, 0

    def felt(self, size: int) -> None:
        """So many bytes were read."""
        self._bytes += size
        if self._bytes >= PIECE_BYTES:
            self.heard()

    def asked(self, now: float) -> None:
        """It has just been asked."""
        self._ask_at = self._next(now)
        self._rested_at = max(self._rested_at, now) + BREATH_S
        if self._asked_at is None:
            self._asked_at = now

    def due(self) -> float:
        """When to ask, or to give up if there is no answer until then."""
        if self._asked_at is None:
            return self._ask_at
        return self._asked_at + socket_options.HEARTBEAT_TIMEOUT_MS / 1000

    def may_ask(self, now: float) -> bool:
        """False when it has been asked too often of late."""
        return self._rested_at < now + BREATH_S * BREATHS_MAX

    def must_ask(self, now: float) -> bool:
        """True when it is time to ask."""
        return self._asked_at is None and now >= self._ask_at

    def stopped(self, now: float) -> bool:
        """True when it was asked, and too long ago."""
        return self._asked_at is not None and now >= self.due()

    def _next(self, now: float) -> float:
        """The next of the moments at which all connections are asked."""
        return ((now + PHASE_S) // self._every_s + 1) * self._every_s - PHASE_S
