"""Event queue from the web thread to its owner, with back-pressure on senders.

The deque is thread-safe without a lock; the counters belong to the web thread, and the owner reports what it has taken.
So a slow owner delays senders instead of growing this process.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

from zerochat.agent.network.web.events import Arrived, ThreadEvent
from zerochat.agent.network.web.limits import PENDING_EVENTS_MAX, Limits


class EventQueue:
    """`notes` is shared with the owner; everything else is the web thread's."""

    def __init__(self, wake: Callable[[], None], limits: Limits) -> None:
        self.pending: deque[ThreadEvent] = deque()
        self.counts: Counter[str] = Counter()
        """Counters `web.*` of what was refused, cut or lost."""
        self.woken = False
        """Whether the owner was woken; it clears this before it takes events."""
        self._wake, self._limits = wake, limits
        self._messages = self._bytes = self._reading = 0
        self._room: asyncio.Event | None = None

    def put(self, note: ThreadEvent) -> None:
        if isinstance(note, Arrived):
            self._messages += 1
            self._bytes += len(note.envelope)
        self.pending.append(note)
        if not self.woken:
            self.woken = True
            with suppress(OSError):  # the owner has closed its wake-up pipe
                self._wake()

    def has_room(self) -> bool:
        return (
            self._messages < self._limits.inbox_messages
            and self._bytes < self._limits.inbox_bytes
            and len(self.pending) < PENDING_EVENTS_MAX
        )

    async def room(self) -> None:
        """Wait until there is room."""
        while not self.has_room():
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def may_read(self) -> bool:
        """Whether there is room for unfinished bodies. They have a limit of their own, so that clients with many
        unfinished bodies take no room from complete envelopes."""
        return self._reading < self._limits.reading_bytes

    def grow(self, size: int) -> None:
        """Count bytes of unfinished bodies; negative when a body has ended."""
        self._reading += size

    def taken(self, messages: int, size: int) -> None:
        """The owner has taken so many envelopes and bytes."""
        self._messages -= messages
        self._bytes -= size
        self._signal_room()

    def _signal_room(self) -> None:
        if self._room is not None and self.has_room():
            self._room.set()
            self._room = None
