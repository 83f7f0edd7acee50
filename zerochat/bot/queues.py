"""What waits to be handled, group by group.

What the agent has told and nobody has acknowledged is bounded by the bot's credit, for all groups together, and an
acknowledgement says that *everything* up to a number is handled. So a group that is slow would hold all the others up
as soon as that much has come behind the item that it is at. Before that, what waits is *put aside*: noted in the bot's
own file, in one transaction, and acknowledged. From there it is handled as if it had just come, in its group's order,
also by the next process. Only ids are noted of what was said: the words stay in the agent's journal.

What another member had handed over may be refuted by its author while it lies there. Then it is not handled; but it
may come anew, and the agent, to whom it is acknowledged, does not tell it again. So it is kept as *refuted*, and looked
for.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

import msgspec

from zerochat.bot.acknowledgement import Intake
from zerochat.bot.store import Aside, Store
from zerochat.rpc.subscriptions import Item

ASIDE_MAX: Final = 100_000
"""What a bot puts aside at most; then a slow group holds the others up after all, until it has come further."""


@dataclass(slots=True)
class Waiting:
    """Something that is to be handled."""

    id: str
    item: Item | None
    """None: it was put aside, and has to be looked up in the log."""
    aside: bool = False
    """It is in the file, and acknowledged."""


@dataclass(slots=True)
class _Queue:
    front: deque[Waiting] = field(default_factory=deque)
    """What comes first; the first of it is at work."""
    more: bool = False
    """Between `front` and `back` there is what is only in the file."""
    back: deque[Waiting] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.front or self.more or self.back)


class Queues:
    """The queues of one run. Every method may raise what the store raises."""

    def __init__(self, store: Store, intake: Intake, share: int) -> None:
        """`share`: how much of a group's is kept in memory, of what was put aside."""
        self._store, self._intake, self._share = store, intake, share
        self._queues = {group: _Queue(more=True) for group in store.aside_groups()}
        self._aside = store.aside_ids()
        self._refuted = store.refuted()
        self._over: list[str] = []
        """Of what was put aside, what is handled and still in the file."""

    @property
    def idle(self) -> bool:
        return not any(self._queues.values()) and not self._over

    @property
    def groups(self) -> list[str]:
        """Where something waits."""
        return [group for group, queue in self._queues.items() if queue]

    def has(self, group: str) -> bool:
        return group in self._queues

    def add(self, item: Item) -> bool:
        """Something was told. False: it was put aside by the process before this one, and comes to its turn."""
        if item.id in self._aside:
            return False
        if item.id in self._refuted:  # the agent does tell it anew: it does not know of its having been acknowledged
            self.gone(item.id)
        queue = self._queues.setdefault(item.group, _Queue())
        (queue.back if queue.more else queue.front).append(Waiting(item.id, item))
        return True

    def first(self, group: str) -> Waiting | None:
        """What is to be handled next, which stays where it is until `handled`; None: nothing, and nobody needs to work
        for this group."""
        queue = self._queues[group]
        if not queue.front and queue.more:
            self.settle()  # else what is handled would be found again
            queue.front.extend(_found(one) for one in self._store.aside(group, self._share))
            if not queue.front:
                queue.more, queue.front, queue.back = False, queue.back, deque()
        if queue.front:
            return queue.front[0]
        del self._queues[group]
        return None

    def handled(self, group: str) -> None:
        """The first one of a group is handled."""
        done = self._queues[group].front.popleft()
        if done.aside:
            self._over.append(done.id)
        elif done.item is not None:
            self._intake.handled(done.item.seq)

    @property
    def refuted(self) -> dict[str, str]:
        """What was refuted before its turn and may come anew: its group by the event's id, oldest first."""
        return dict(self._refuted)

    def refute(self, group: str) -> None:
        """The first one of a group, which was put aside, is refuted."""
        event = self._queues[group].front.popleft().id
        self._store.refute(group, event)
        self._aside.discard(event)
        self._refuted = self._store.refuted()

    def put_back(self, event: str) -> None:
        """What was refuted has come anew, and waits behind what waits already."""
        group = self._refuted.pop(event)
        self._store.put_back(group, event)
        self._aside.add(event)
        queue = self._queues.setdefault(group, _Queue())
        if not queue.more:  # else it is found in the file
            queue.front.append(Waiting(event, None, aside=True))

    def gone(self, event: str) -> None:
        """What was refuted is not looked for any more."""
        self._store.drop_refuted(event)
        del self._refuted[event]

    def put_aside(self) -> int:
        """Note everything that waits in the file, and have it acknowledged; how many that are."""
        if len(self._aside) >= ASIDE_MAX:
            return 0
        waiting = [one for queue in self._queues.values() for one in (*queue.front, *queue.back)]
        fresh = [one.item for one in waiting if not one.aside and one.item is not None]
        if not fresh:
            return 0
        self._store.put_aside(Aside(item.group, item.id, _body(item)) for item in fresh)
        self._aside |= {item.id for item in fresh}
        for item in fresh:
            self._intake.handled(item.seq)
        for one in waiting:
            one.aside = True
        for queue in self._queues.values():
            queue.more = queue.more or len(queue.front) > self._share
            while len(queue.front) > self._share:
                queue.front.pop()
            queue.back.clear()
        return len(fresh)

    def settle(self) -> None:
        """Take out of the file what is handled."""
        over, self._over = self._over, []
        if over:
            self._store.drop_aside(over)
            self._aside.difference_update(over)


def _body(item: Item) -> str:
    """Of what is told besides the log: all of it, for it is nowhere else."""
    return "" if item.author is not None else msgspec.json.encode(item).decode()


def _found(one: Aside) -> Waiting:
    return Waiting(one.event, msgspec.json.decode(one.body, type=Item) if one.body else None, aside=True)
