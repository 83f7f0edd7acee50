"""Cumulative acknowledgement over items that groups handle concurrently. Pure: no clock, no I/O."""

from collections import deque


class AckTracker:
    """Computes how far items may be acknowledged. An acknowledgement covers *every* item up to a sequence number, and
    groups are handled concurrently, so it ends before the first unhandled item."""

    def __init__(self) -> None:
        self._received: deque[int] = deque()
        """Sequence numbers received over this connection and not yet acknowledged, in order."""
        self._in_progress: set[int] = set()
        """Sequence numbers that were given to a handler and are not yet handled."""
        self._handled: set[int] = set()
        """Sequence numbers that are handled and not yet acknowledged."""

    def reset(self) -> None:
        """Start a new connection: the agent redelivers everything that is not acknowledged."""
        self._received.clear()

    def received(self, seq: int) -> bool:
        """Register an item. Returns whether it must be handled; False if it is in progress or handled already."""
        if not self._received:
            self._handled = {handled for handled in self._handled if handled >= seq}  # older ones are acknowledged
        self._received.append(seq)
        if seq in self._in_progress or seq in self._handled:
            return False
        self._in_progress.add(seq)
        return True

    def mark_handled(self, seq: int) -> None:
        self._in_progress.discard(seq)
        self._handled.add(seq)

    def mark_dropped(self, seq: int) -> None:
        """Give an item up for this run: it is neither handled nor in progress."""
        self._in_progress.discard(seq)

    def take_ackable(self) -> int | None:
        """The highest sequence number that may be acknowledged now, returned once; None if there is nothing new."""
        upto = None
        while self._received and self._received[0] in self._handled:
            upto = self._received.popleft()
        return upto

    def mark_acknowledged(self, upto: int) -> None:
        """Record that the agent has stored the acknowledgement up to this number."""
        self._handled = {seq for seq in self._handled if seq > upto}

    @property
    def unacknowledged(self) -> int:
        """Number of items received over this connection and not yet returned by `take_ackable`."""
        return len(self._received)

    @property
    def span(self) -> tuple[int, int]:
        """First and last sequence number of the unacknowledged items; (0, 0) if there are none."""
        return (self._received[0], self._received[-1]) if self._received else (0, 0)

    @property
    def idle(self) -> bool:
        """Whether every received item is handled and returned for acknowledgement."""
        return not self._received and not self._in_progress
