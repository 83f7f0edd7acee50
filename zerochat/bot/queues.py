"""Per-group FIFO queues that spill to disk.

The agent bounds the unacknowledged items of a bot (its credit) over all groups, and an acknowledgement covers
everything up to a number. A slow group would therefore block the others. Before that happens, the queued items are
*spilled*: stored in the bot's database in one transaction, and acknowledged. They are handled in their group's order,
also by the next process. Only ids of log events are stored; the contents stay in the agent's journal.

A relayed event may be refuted by its author while it is spilled. It is then not handled, but stays recorded as
*refuted* and is looked up at intervals: it may be reinstated, and the agent, which has its acknowledgement, does not
redeliver it.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import msgspec

from zerochat.bot.acknowledgement import AckTracker
from zerochat.bot.store import SpilledItem, Store
from zerochat.rpc.subscriptions import Item

SPILLED_MAX: Final = 100_000
"""Maximum number of spilled items; beyond it a slow group blocks the others."""


@dataclass(slots=True)
class QueuedItem:
    """An item that waits to be handled."""

    id: str
    item: Item | None
    """The item; None if it was spilled and must be read from the log."""
    spilled: bool = False
    """Whether it is stored in the database and acknowledged."""


@dataclass(slots=True)
class _Queue:
    front: deque[QueuedItem] = field(default_factory=deque)
    """The first items; the first one is in progress."""
    on_disk: bool = False
    """Whether items between `front` and `back` are only in the database."""
    back: deque[QueuedItem] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.front or self.on_disk or self.back)


class Queues:
    """The queues of one run. Every method may raise the store's errors."""

    def __init__(self, store: Store, acks: AckTracker, memory_max: int) -> None:
        """`memory_max`: spilled items of one group that are kept in memory."""
        self._store, self._acks, self._memory_max = store, acks, memory_max
        self._queues = {group: _Queue(on_disk=True) for group in store.spilled_groups()}
        self._spilled = store.spilled_ids()
        self._refuted = store.refuted()
        self._finished: list[str] = []
        """Handled spilled items that are still in the database."""

    @property
    def idle(self) -> bool:
        return not any(self._queues.values()) and not self._finished

    @property
    def groups(self) -> list[str]:
        """Groups with queued items."""
        return [group for group, queue in self._queues.items() if queue]

    def has(self, group: str) -> bool:
        return group in self._queues

    def add(self, item: Item) -> bool:
        """Append an item. Returns False if the previous process spilled it, so it is queued already."""
        if item.id in self._spilled:
            return False
        if item.id in self._refuted:  # redelivered: the agent has no acknowledgement of it
            self.forget_refuted(item.id)
        queue = self._queues.setdefault(item.group, _Queue())
        (queue.back if queue.on_disk else queue.front).append(QueuedItem(item.id, item))
        return True

    def head(self, group: str) -> QueuedItem | None:
        """The next item of a group, which stays queued until `pop_handled`; None, and the queue is removed, if there is
        none."""
        queue = self._queues[group]
        if not queue.front and queue.on_disk:
            self.purge_finished()  # otherwise handled items would be read again
            queue.front.extend(_queued(one) for one in self._store.spilled(group, self._memory_max))
            if not queue.front:
                queue.on_disk, queue.front, queue.back = False, queue.back, deque()
        if queue.front:
            return queue.front[0]
        del self._queues[group]
        return None

    def pop_handled(self, group: str) -> None:
        """Remove the first item of a group, which is handled."""
        done = self._queues[group].front.popleft()
        if done.spilled:
            self._finished.append(done.id)
        elif done.item is not None:
            self._acks.mark_handled(done.item.seq)

    @property
    def refuted(self) -> dict[str, str]:
        """Group by event id of the spilled events that were refuted, oldest first."""
        return dict(self._refuted)

    def refute(self, group: str) -> None:
        """Remove the first item of a group, a spilled event that was refuted."""
        event = self._queues[group].front.popleft().id
        self._store.refute(group, event)
        self._spilled.discard(event)
        self._refuted = self._store.refuted()

    def requeue(self, event: str) -> None:
        """Append an event that was refuted and has been reinstated."""
        group = self._refuted.pop(event)
        self._store.requeue(group, event)
        self._spilled.add(event)
        queue = self._queues.setdefault(group, _Queue())
        if not queue.on_disk:  # otherwise it is read from the database
            queue.front.append(QueuedItem(event, None, spilled=True))

    def forget_refuted(self, event: str) -> None:
        """Stop looking up a refuted event."""
        self._store.drop_refuted(event)
        del self._refuted[event]

    def spill(self) -> int:
        """Store all queued items and release them for acknowledgement. Returns how many."""
        if len(self._spilled) >= SPILLED_MAX:
            return 0
        waiting = [one for queue in self._queues.values() for one in (*queue.front, *queue.back)]
        fresh = [one.item for one in waiting if not one.spilled and one.item is not None]
        if not fresh:
            return 0
        self._store.spill(SpilledItem(item.group, item.id, _event_body(item)) for item in fresh)
        self._spilled |= {item.id for item in fresh}
        for item in fresh:
            self._acks.mark_handled(item.seq)
        for one in waiting:
            one.spilled = True
        for queue in self._queues.values():
            queue.on_disk = queue.on_disk or len(queue.front) > self._memory_max
            while len(queue.front) > self._memory_max:
                queue.front.pop()
            queue.back.clear()
        return len(fresh)

    def purge_finished(self) -> None:
        """Delete handled items from the database."""
        over, self._finished = self._finished, []
        if over:
            self._store.drop_spilled(over)
            self._spilled.difference_update(over)


def _event_body(item: Item) -> str:
    """The serialised item if it is not in the log; otherwise empty."""
    return "" if item.author is not None else msgspec.json.encode(item).decode()


def _queued(one: SpilledItem) -> QueuedItem:
    return QueuedItem(one.event, msgspec.json.decode(one.body, type=Item) if one.body else None, spilled=True)
