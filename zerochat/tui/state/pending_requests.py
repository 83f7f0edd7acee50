"""Pending queries to peers, resolved by notifications with the same thread id.

The agent responds with the thread id at once; the peer's response arrives later as a notification. The notification
may be handled first, so unexpected responses are kept for a moment.
"""

from collections.abc import Callable
from typing import TypeAlias

from zerochat.rpc import FeaturesNotification, PongNotification

Response: TypeAlias = PongNotification | FeaturesNotification

KEPT_MAX = 16
"""Unexpected responses kept; most belong to other clients."""


class PendingRequests:
    """Pending queries by thread id."""

    def __init__(self) -> None:
        self._waiting: dict[str, Callable[[Response], None]] = {}
        self._kept: dict[str, Response] = {}
        self.rotating: set[str] = set()
        """Members (GROUP/DID) that have not confirmed our new DID yet."""

    def expect(self, thread: str, show: Callable[[Response], None]) -> None:
        if (answer := self._kept.pop(thread, None)) is not None:
            show(answer)
        else:
            self._waiting[thread] = show

    def cancel(self, thread: str) -> bool:
        """Stop waiting; True when no response had arrived."""
        return self._waiting.pop(thread, None) is not None

    def resolve(self, answer: Response) -> None:
        if (show := self._waiting.pop(answer.thread, None)) is not None:
            show(answer)
            return
        self._kept[answer.thread] = answer
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
