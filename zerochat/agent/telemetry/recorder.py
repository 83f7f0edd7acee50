"""From what the agent thread sees to facts, and from there to the journal.

The thread calls it at four places: when it turns to new work, after each step of the core, when a turn is on disk and
said, and before it waits. A turn that could not be remembered has not happened, and neither have its facts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from zerochat.agent.telemetry.changes import Links, Queues, Reason, Repairs, view, views
from zerochat.agent.telemetry.joins import Joins
from zerochat.agent.telemetry.messages import Arrivals, acknowledged, sent
from zerochat.agent.telemetry.rows import Fact, Recv, Send
from zerochat.agent.telemetry.sight import Sight
from zerochat.agent.telemetry.store import BATCH_ROWS_MAX, Store
from zerochat.group import effects as say
from zerochat.group import notices
from zerochat.group.effects import Effect
from zerochat.group.state import Agent
from zerochat.group.stimuli import Ask, Say, SendPost, Stimulus, TurnOver

FLUSH_US: Final = 5_000_000
"""Facts are written so long after they have come, at the latest: what a power cut costs."""
MEBIBYTE: Final = 1 << 20


_WANTED: Final = frozenset(
    {
        *(say.Remember, say.Repeated, say.Receipt, say.Measure, say.Forget),
        *(notices.Gap, notices.JoinProgress, notices.Seating, notices.HistoryFetched),
    }
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept."""

    mebibytes: int
    days: int


@dataclass(frozen=True, slots=True)
class Outside:
    """What the recorder asks the thread's other things."""

    reason: Callable[[bytes], Reason]
    """Why a link is up, or is not."""
    faces_b: Callable[[], int]
    """Bytes that wait to be read by faces."""
    unsent: Callable[[], int]
    """Envelopes that the sockets have not taken, ever."""


class Recorder:
    """The facts of one agent, from when this is made until `close`. Raises what the journal raises, where it writes."""

    def __init__(self, store: Store, agent: Agent, me: str, bounds: Bounds, outside: Outside) -> None:
        """`me`: what stands for this profile where no group's member does."""
        self.bounds = bounds
        self._store, self._outside = store, outside
        now = self._now_us(agent)
        self._arrivals, self._repairs, self._joins = Arrivals(), Repairs(), Joins()
        self._links = Links(outside.reason, now)
        self._queues = Queues(store.number("", me))
        self._turn: list[Fact] = []
        """Of the turn that is under way."""
        self._kept: list[Fact] = [view(store, group, now) for group in agent.groups.values() if group.state != "left"]
        """Of turns that are on disk, and themselves not yet written."""
        self._untold: list[Recv] = []
        """As many of them as no face was told of yet."""
        self._forgotten: list[str] = []
        self._flushed = self._woke = time.perf_counter_ns()
        self._unsent = outside.unsent()

    # --- a turn -----------------------------------------------------------------------------------------------------

    def woke(self) -> None:
        """There is something to do."""
        self._woke = time.perf_counter_ns()

    def step(self, stimulus: Stimulus, before: Agent, after: Agent, effects: list[Effect], took_us: int) -> None:
        """The core has made one step, which took so long and is over now."""
        if (after is before and not effects) or _is_own_word(stimulus):
            return
        sight = Sight(stimulus, before, after, effects, self._now_us(after) - took_us, took_us, self._store)
        rows = self._turn
        if isinstance(stimulus, TurnOver):
            rows += sent(sight)
        told: dict[type, list[Any]] = {}
        for effect in effects:
            one = effect.notice if isinstance(effect, say.Notify) else effect
            kind = type(one)
            if kind in _WANTED and not (kind is say.Remember and one.author == after.groups[one.group].me):  # type: ignore[union-attr]
                told.setdefault(kind, []).append(one)
        moved = _moved(sight)
        seen = [*told.get(say.Remember, ()), *told.get(say.Repeated, ())]
        if seen or "waiting" in moved:
            rows += self._arrivals.come(sight, seen)
        if say.Receipt in told:
            rows += acknowledged(sight, told[say.Receipt])
        if "view" in moved:
            rows += views(sight)
        if self._repairs.waits or notices.Gap in told or "waiting" in moved:
            rows += self._repairs.moved(sight, told.get(notices.Gap, ()))
        if after.up is not before.up:
            rows += self._links.moved(sight)
        if "view" in moved:
            rows += self._joins.let_in(sight)
        if notices.JoinProgress in told:
            rows += self._joins.told(sight, told[notices.JoinProgress])
        if self._joins.waits:
            rows += self._joins.seated(sight, told.get(notices.Seating, ()))
        if "fetching" in moved or self._joins.fetches:
            history = [(one.group, len(one.record)) for one in told.get(say.Remember, ()) if one.history]
            rows += self._joins.fetched(sight, told.get(notices.HistoryFetched, ()), history)
        if say.Measure in told:
            self._queues.dropped(told[say.Measure])
        self._forgotten += [one.group for one in told.get(say.Forget, ())]

    def spoke(self, agent: Agent) -> None:
        """The turn is on disk, and what it says is on its way."""
        if not self._turn and not self._forgotten:
            return
        now = self._now_us(agent)
        self._joins.announced(now)
        waited = (time.perf_counter_ns() - self._woke) // 1000
        for row in self._turn:
            if isinstance(row, Send):
                row.queue_us = waited
            elif isinstance(row, Recv):
                self._untold.append(row)
        self._kept += self._turn
        self._turn = []
        for group in self._forgotten:
            self._store.forgot(group)
            self._repairs.forget(group)
            self._joins.forget(group)
        self._forgotten = []

    def undone(self) -> None:
        """The turn could not be remembered."""
        self._turn, self._forgotten = [], []

    # --- between turns ----------------------------------------------------------------------------------------------

    def told(self, agent: Agent, *, faces: bool) -> None:
        """Whatever is new is on its way to the faces, if there are any. Writes what has come together."""
        if self._untold:
            now = self._now_us(agent)
            for row in self._untold if faces else ():
                row.display_us = max(0, now - row.t_recv_us)
            self._untold = []
        clock = time.perf_counter_ns()
        if len(self._kept) >= BATCH_ROWS_MAX or clock - self._flushed >= FLUSH_US * 1000:
            self._flushed = clock
            self.flush(agent)

    def flush(self, agent: Agent) -> None:
        """Write what there is."""
        now = self._now_us(agent)
        unsent = self._outside.unsent()
        self._kept += self._queues.look(now, agent, self._outside.faces_b(), unsent - self._unsent)
        self._unsent = unsent
        while self._kept:
            rows, self._kept = self._kept[:BATCH_ROWS_MAX], self._kept[BATCH_ROWS_MAX:]
            self._store.append(rows, now, self.bounds.mebibytes * MEBIBYTE, self.bounds.days)

    def close(self, agent: Agent) -> None:
        """Recording ends, with the agent or before it."""
        now = self._now_us(agent)
        self._kept += self._links.stopped(self._store, agent, now)
        self._kept += self._queues.over()
        self.flush(agent)

    def _now_us(self, agent: Agent) -> int:
        return time.time_ns() // 1000 - agent.leap * 1000


def _is_own_word(stimulus: Stimulus) -> bool:
    """Whether somebody here says something, which is looked at when it goes out, at the end of the turn."""
    return isinstance(stimulus, Ask) and isinstance(stimulus.command, SendPost | Say)


def _moved(sight: Sight) -> set[str]:
    """What of the groups is not as it was. Most steps change little, and nothing is to be looked for that has not."""
    found: set[str] = set()
    for _, before, after in sight.changed:
        if before is None or before.view is not after.view:
            found.add("view")
        if before is None or before.limbo is not after.limbo or before.waiting is not after.waiting:
            found.add("waiting")
        if before is None or before.fetching is not after.fetching:
            found.add("fetching")
    return found
