"""Heartbeats (ZMTP PING and PONG): the dialling side pings, and gives a connection up when no answer comes.

One ping serves both ends: the PONG shows us that the host is alive, and the PING shows the host that we are, with a TTL
(`ClientSession.ping`) after which libzmq closes the connection. libzmq forgets the TTL with the next frame, so anything
else that is sent is followed by a ping (`DialedConnection.flush`).

A sign of life is a whole frame that decrypts, or `PIECE_BYTES` of a large one. A trickle of bytes is not: after one
flipped bit in the length of a frame, all that follows would count as the rest of that frame.
"""

import random

from zerochat.agent.network.zmq import socket_options

PIECE_BYTES = 4 * 1024
"""Bytes of an unfinished frame that count as an answer, on however slow a line."""
PING_INTERVAL_S, PING_BURST_MAX = 0.5, 20
"""Token bucket of extra pings: a host's budget for heartbeats is small (`tcp_control.HEARTBEAT_BYTES_PER_S`)."""
PHASE_S = random.uniform(0.0, 60.0)  # noqa: S311  # only to spread the load
"""Offset of the ping times of this process. All its connections ping at the same moment, so that an agent with a
hundred of them is not woken a hundred times; agents on one machine have different offsets."""


class Heartbeat:
    """The ping state of one connection; every `now` in seconds, monotonic."""

    def __init__(self, now: float, every_ms: int) -> None:
        """`every_ms`: the longest interval between pings."""
        self._every_s = every_ms / 1000
        self._ping_at = self._next(now)
        self._bucket_full_at = now
        """When the token bucket of extra pings is full again."""
        self._unanswered_since: float | None = None
        """Time of the first ping without an answer since."""
        self._bytes = 0

    def frame_received(self) -> None:
        """A frame was decrypted."""
        self._unanswered_since, self._bytes = None, 0

    def bytes_received(self, size: int) -> None:
        """So many bytes were read."""
        self._bytes += size
        if self._bytes >= PIECE_BYTES:
            self.frame_received()

    def ping_sent(self, now: float) -> None:
        self._ping_at = self._next(now)
        self._bucket_full_at = max(self._bucket_full_at, now) + PING_INTERVAL_S
        if self._unanswered_since is None:
            self._unanswered_since = now

    def due(self) -> float:
        """Time of the next ping, or of the timeout of the last one."""
        if self._unanswered_since is None:
            return self._ping_at
        return self._unanswered_since + socket_options.HEARTBEAT_TIMEOUT_MS / 1000

    def may_ping(self, now: float) -> bool:
        """Whether the token bucket allows an extra ping."""
        return self._bucket_full_at < now + PING_INTERVAL_S * PING_BURST_MAX

    def must_ping(self, now: float) -> bool:
        return self._unanswered_since is None and now >= self._ping_at

    def timed_out(self, now: float) -> bool:
        """Whether a ping has gone unanswered for too long."""
        return self._unanswered_since is not None and now >= self.due()

    def _next(self, now: float) -> float:
        """The next of the moments at which all connections ping."""
        return ((now + PHASE_S) // self._every_s + 1) * self._every_s - PHASE_S
