"""From what the agent thread sees to facts, and from there to the journal.

The thread calls it before it waits, with the turns that are on disk and said. A turn that could not be remembered has
not happened, and neither have its facts.

All of that is time taken from the chat, and most of it would go into bringing this code and what it looks at back into
the processor's caches for one message. So it is called once for all that was done since the thread last waited, and
facts are made of many turns together (`_make_facts`). There one look sorts what a step has said, each part is asked
only where something of its own has moved, and the one loop that runs for every event of a burst is in
`messages.Arrivals.come`.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

from msgspec import Struct

from zerochat.agent.telemetry.join_facts import Joins
from zerochat.agent.telemetry.membership_facts import Links, Queues, Repairs, view, views
from zerochat.agent.telemetry.message_facts import Arrivals, acknowledged, sent
from zerochat.agent.telemetry.observation import Sight, Step, Turn
from zerochat.agent.telemetry.schema import Fact, Span
from zerochat.agent.telemetry.store import BATCH_ROWS_MAX, Store
from zerochat.group import effects as say
from zerochat.group import notifications
from zerochat.group.inputs import TurnOver
from zerochat.group.state import Agent

FLUSH_US: Final = 10_000_000
"""Facts are written so long after they have come, at the latest: what a power cut costs."""
VIEWS_US: Final = 43_200_000_000
"""Who is in each group is written again so often: what is older than its time goes, and the rest needs one."""
STEPS_MAX, EFFECTS_MAX = 48, 256
"""Facts are made as soon as turns have had so many steps, or as many effects: they keep in memory whatever those were
about, and a burst is enough for itself."""
MEBIBYTE: Final = 1 << 20


_WANTED: Final = frozenset({say.Repeated, say.Receipt, say.Measure, say.Forget, say.Dial})
_NOTICES: Final = frozenset(
    {notifications.Gap, notifications.JoinProgress, notifications.Seating, notifications.HistoryFetched}
)


class Bounds(Struct, frozen=True):
    """How much is kept."""

    mebibytes: int
    days: int


class Outside(Struct, frozen=True):
    """What the recorder asks the thread's other things."""

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
        store.begin()
        now = self._now_us(agent)
        self._arrivals, self._repairs, self._joins = Arrivals(), Repairs(), Joins()
        self._links = Links(now)
        self._me = store.number("", me)
        self._queues = Queues(self._me)
        self._turns: list[tuple[Turn, int | None]] = []
        """Those of which no facts are made yet, with when the faces were told; None: none was there."""
        self._count_steps = self._count_effects = 0
        self._since_us = store.recorded({group.id: group.me for group in agent.groups.values()}, now)
        """Up to when all that has come is written, and from when it will be."""
        self._viewed_us = now
        """When it was last said who is in each group."""
        self._kept: list[Fact] = list(self._views(agent, now))
        """Facts that are not yet written."""
        self._flushed_s = time.monotonic()
        self._unsent = outside.unsent()

    def is_due(self, now_s: float) -> bool:
        """Whether there is something to do besides turns. `now_s`: monotonic."""
        return now_s - self._flushed_s >= FLUSH_US / 1e6

    def told(self, agent: Agent, turns: Iterable[Turn], now_s: float, *, faces: bool) -> None:
        """Whatever these turns said is on its way, and also to the faces, if there are any. Writes what has come
        together. `now_s`: monotonic."""
        told_us = self._now_us(agent) if faces else None
        for turn in turns:
            self._turns.append((turn, told_us))
            self._count_steps += len(turn[0])
            self._count_effects += sum([len(step[3]) for step in turn[0]])
        if self._count_steps >= STEPS_MAX or self._count_effects >= EFFECTS_MAX:
            self._make_facts()
        if len(self._kept) >= BATCH_ROWS_MAX or now_s - self._flushed_s >= FLUSH_US / 1e6:
            self._flushed_s = now_s
            self.flush(agent)

    def flush(self, agent: Agent, *, asked: bool = False) -> None:
        """Write what there is. `asked`: somebody wants to know, and hears of quiet times too."""
        self._make_facts()
        now = self._now_us(agent)
        if not 0 <= now - self._viewed_us < VIEWS_US:
            self._viewed_us = now
            self._kept += self._views(agent, now)
        unsent = self._outside.unsent()
        self._kept += self._queues.look(now, agent, self._outside.faces_b(), unsent - self._unsent)
        self._unsent = unsent
        if self._kept or (asked and now - self._since_us >= FLUSH_US):
            if self._since_us < now:  # else the clock was set back
                self._kept.append(Span(self._me, self._since_us, now))
            self._since_us = now
        while self._kept:
            rows, self._kept = self._kept[:BATCH_ROWS_MAX], self._kept[BATCH_ROWS_MAX:]
            bounds = self.bounds
            self._store.append(rows, now, bounds.mebibytes * MEBIBYTE, bounds.days, whole=not self._kept)

    def close(self, agent: Agent) -> None:
        """Recording ends, with the agent or before it."""
        self._make_facts()
        now = self._now_us(agent)
        self._kept += self._links.stopped(self._store, agent, now)
        self._kept += self._queues.over()
        self.flush(agent, asked=True)

    # --- facts ------------------------------------------------------------------------------------------------------

    def _make_facts(self) -> None:
        turns, self._turns = self._turns, []
        self._count_steps = self._count_effects = 0
        for (steps, woke_ns, said_ns), told_us in turns:
            # Less than nothing where the clock was set back meanwhile.
            queue_us = max(0, said_ns - woke_ns) // 1000
            for one in steps:
                self._kept += self._facts_of(one, queue_us, told_us)
            if self._joins.waits:
                self._joins.announced(said_ns // 1000 - steps[-1][2].leap * 1000)

    def _facts_of(self, step: Step, queue_us: int, told_us: int | None) -> list[Fact]:
        stimulus, before, after, effects, begun_ns, ended_ns, reasons = step
        ended_us, took_us = ended_ns // 1000 - after.leap * 1000, max(0, ended_ns - begun_ns) // 1000
        sight = Sight(stimulus, before, after, effects, ended_us - took_us, took_us, reasons or {}, self._store)
        rows: list[Fact] = []
        if stimulus.__class__ is TurnOver:
            rows += sent(sight, queue_us)
        seen, told = _sorted(sight)
        seen += told.get(say.Repeated, ())
        moved = _moved(sight)
        if seen or "waiting" in moved:
            rows += self._arrivals.come(sight, seen, told_us)
        if say.Receipt in told:
            rows += acknowledged(sight, told[say.Receipt])
        if "view" in moved:
            rows += views(sight)
        if self._repairs.waits or notifications.Gap in told or "waiting" in moved:
            rows += self._repairs.moved(sight, told.get(notifications.Gap, ()))
        if after.up is not before.up:
            rows += self._links.moved(sight)
            self._joins.came_up(sight)
        if self._links.early and sight.changed:
            rows += self._links.met(sight)
        if "view" in moved:
            rows += self._joins.let_in(sight)
        if notifications.JoinProgress in told:
            rows += self._joins.told(sight, told[notifications.JoinProgress])
        if say.Dial in told:
            self._joins.dialled(sight, told[say.Dial])
        if self._joins.waits:
            rows += self._joins.seated(sight, told.get(notifications.Seating, ()))
        if "fetching" in moved or self._joins.fetches:
            history = [(one.group, len(one.record)) for one in seen if one.__class__ is say.Remember and one.history]
            rows += self._joins.fetched(sight, told.get(notifications.HistoryFetched, ()), history)
        if say.Measure in told:
            self._queues.dropped(told[say.Measure])
        for one in told.get(say.Forget, ()):
            self._store.forgot(one.group)
            self._repairs.forget(one.group)
            self._joins.forget(one.group)
        return rows

    def _views(self, agent: Agent, at_us: int) -> Iterator[Fact]:
        return (view(self._store, group, at_us) for group in agent.groups.values() if group.state != "left")

    def _now_us(self, agent: Agent) -> int:
        return time.time_ns() // 1000 - agent.leap * 1000


def _sorted(sight: Sight) -> tuple[list[Any], dict[type, list[Any]]]:
    """What others have said and now has its place in a log, and whatever else of a step is wanted, by its type."""
    seen: list[Any] = []
    told: dict[type, list[Any]] = {}
    groups, effects = sight.after.groups, cast(Iterable[Any], sight.effects)
    name, me = "", None
    for effect in effects:
        kind: type = effect.__class__
        if kind is say.Remember:
            if effect.group != name:
                name = effect.group
                me = groups[name].me if name in groups else None
            if me is not None and effect.author != me:
                seen.append(effect)
        elif kind is say.Notify:
            kind = effect.notice.__class__
            if kind in _NOTICES:
                told.setdefault(kind, []).append(effect.notice)
        elif kind in _WANTED:
            told.setdefault(kind, []).append(effect)
    return seen, told


def _moved(sight: Sight) -> set[str]:
    """What of the groups is not as it was. Most steps change little, and nothing is to be looked for that has not."""
    found = set()
    for _, before, after in sight.changed:
        if before is None or before.view is not after.view:
            found.add("view")
        if before is None or before.limbo is not after.limbo or before.waiting is not after.waiting:
            found.add("waiting")
        if before is None or before.fetching is not after.fetching:
            found.add("fetching")
    return found
