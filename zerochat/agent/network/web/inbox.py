"""What the web thread has for its owner: written here, taken there, and bounded by what has not been taken.

A deque may be used from two threads without a lock; the counts belong to the web thread, and the owner sends word of
what it has taken. So a slow owner makes senders wait, and never makes this process grow.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

from zerochat.agent.network.web.events import Arrived, Note
from zerochat.agent.network.web.limits import UNSEEN_MAX, Limits


class Inbox:
    """`notes` is shared with the owner; everything else is the web thread's."""

    def __init__(self, wake: Callable[[], None], limits: Limits) -> None:
        self.notes: deque[Note] = deque()
        self.counts: Counter[str] = Counter()
        """`web.*`, by what was refused, cut or lost."""
        self.rung = False
        """Set when the owner has been woken and has not come yet. The owner clears it before it looks."""
        self._wake, self._limits = wake, limits
        self._messages = self._bytes = self._reading = 0
        self._room: asyncio.Event | None = None

    def tell(self, note: Note) -> None:
        if isinstance(note, Arrived):
            self._messages += 1
            self._bytes += len(note.envelope)
        self.notes.append(note)
        if not self.rung:
            self.rung = True
            with suppress(OSError):  # the owner's bell is gone: so is the owner
                self._wake()

    def has_room(self) -> bool:
        return (
            self._messages < self._limits.inbox_messages
            and self._bytes < self._limits.inbox_bytes
            and len(self.notes) < UNSEEN_MAX
        )

    async def room(self) -> None:
        """Wait until there is some."""
        while not self.has_room():
            if self._room is None:
                self._room = asyncio.Event()
            await self._room.wait()

    def may_read(self) -> bool:
        """Whether there is room for more of what is being read. It is counted by itself: whoever sends a part of many
        bodies and then waits must not take the room of those who send whole ones."""
        return self._reading < self._limits.reading_bytes

    def grow(self, size: int) -> None:
        """Count bytes that are being read; a negative size when they have become an Arrived, or nothing."""
        self._reading += size

    def taken(self, messages: int, size: int) -> None:
        """The owner has these."""
        self._messages -= messages
        self._bytes -= size
        self._ease()

    def _ease(self) -> None:
        if self._room is not None and self.has_room():
            self._room.set()
            self._room = None
