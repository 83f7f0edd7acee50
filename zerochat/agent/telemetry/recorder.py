"""Telemetry recorder: turns committed batches into records and appends these to the journal.

The agent thread calls it before it waits, with the batches committed since. A batch that was rolled back leaves no
records. Work is deferred and done for many batches together (`_make_records`): for a single message, most of the cost
would be cold caches. Effects are grouped by type once per step, and each part runs only when its state changed; the one
loop per event of a burst is `message_records.Arrivals.received`.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, cast

from msgspec import Struct

from zerochat.agent.telemetry.join_records import Joins
from zerochat.agent.telemetry.membership_records import Gaps, Links, Queues, view, views
from zerochat.agent.telemetry.message_records import Arrivals, acknowledged, sent
from zerochat.agent.telemetry.observation import CommittedBatch, ObservedStep, RawStep
from zerochat.agent.telemetry.schema import Record, Span
from zerochat.agent.telemetry.store import BATCH_ROWS_MAX, TelemetryStore
from zerochat.group import effects, notifications
from zerochat.group.inputs import BatchEnded
from zerochat.group.state import Agent

FLUSH_US: Final = 10_000_000
"""Maximum age of an unwritten record, in us: the loss at a power cut."""
VIEWS_US: Final = 43_200_000_000
"""Interval of view records, in us: old ones expire, and the remaining records need one."""
STEPS_MAX, EFFECTS_MAX = 48, 256
"""Bounds of deferred work, in steps and effects: deferred steps keep old states in memory."""
MEBIBYTE: Final = 1 << 20


_EFFECTS: Final = frozenset(
    {effects.DuplicateEvent, effects.StoreReceipt, effects.Measure, effects.DeleteLog, effects.Dial}
)
_NOTIFICATIONS: Final = frozenset(
    {notifications.Gap, notifications.JoinProgress, notifications.MemberConnections, notifications.HistoryProgress}
)


class RetentionLimits(Struct, frozen=True):
    """How much telemetry the journal keeps."""

    mebibytes: int
    days: int


class QueueProbes(Struct, frozen=True):
    """Queue sizes outside the core."""

    client_backlog_b: Callable[[], int]
    """Bytes that clients have not read yet."""
    dropped_envelopes: Callable[[], int]
    """Envelopes that the sockets refused, since the start of the agent."""


class Recorder:
    """The records of one agent, from construction to `close`. Methods that write raise the journal's errors."""

    def __init__(
        self, store: TelemetryStore, agent: Agent, observer: str, limits: RetentionLimits, probes: QueueProbes
    ) -> None:
        """`observer`: the profile's name in records that belong to no group."""
        self.limits = limits
        self._store, self._probes = store, probes
        store.reset()
        now = self._now_us(agent)
        self._arrivals, self._gaps, self._joins = Arrivals(), Gaps(), Joins()
        self._links = Links(now)
        self._observer = store.number("", observer)
        self._queues = Queues(self._observer)
        self._batches: list[tuple[CommittedBatch, int | None]] = []
        """Batches without records yet, with the time when clients were notified (us); None: no client."""
        self._count_steps = self._count_effects = 0
        self._since_us = store.recorded_until({group.id: group.me for group in agent.groups.values()}, now)
        """End of the recorded interval, us."""
        self._viewed_us = now
        """Time of the last view records, us."""
        self._unwritten: list[Record] = list(self._views(agent, now))
        self._flushed_s = time.monotonic()
        self._dropped_seen = probes.dropped_envelopes()

    def is_due(self, now_s: float) -> bool:
        """Whether a flush is due. `now_s`: monotonic."""
        return now_s - self._flushed_s >= FLUSH_US / 1e6

    def observe(self, agent: Agent, batches: Iterable[CommittedBatch], now_s: float, *, clients: bool) -> None:
        """Take batches whose effects were executed; flush when due. `clients`: clients were notified; `now_s`:
        monotonic."""
        notified_us = self._now_us(agent) if clients else None
        for batch in batches:
            self._batches.append((batch, notified_us))
            self._count_steps += len(batch[0])
            self._count_effects += sum([len(step[3]) for step in batch[0]])
        if self._count_steps >= STEPS_MAX or self._count_effects >= EFFECTS_MAX:
            self._make_records()
        if len(self._unwritten) >= BATCH_ROWS_MAX or now_s - self._flushed_s >= FLUSH_US / 1e6:
            self._flushed_s = now_s
            self.flush(agent)

    def flush(self, agent: Agent, *, on_request: bool = False) -> None:
        """Write the pending records. `on_request`: write a span even without records."""
        self._make_records()
        now = self._now_us(agent)
        if not 0 <= now - self._viewed_us < VIEWS_US:
            self._viewed_us = now
            self._unwritten += self._views(agent, now)
        dropped = self._probes.dropped_envelopes()
        self._unwritten += self._queues.sample(
            now, agent, self._probes.client_backlog_b(), dropped - self._dropped_seen
        )
        self._dropped_seen = dropped
        if self._unwritten or (on_request and now - self._since_us >= FLUSH_US):
            if self._since_us < now:  # false after the clock was set back
                self._unwritten.append(Span(self._observer, self._since_us, now))
            self._since_us = now
        while self._unwritten:
            rows, self._unwritten = self._unwritten[:BATCH_ROWS_MAX], self._unwritten[BATCH_ROWS_MAX:]
            size, days = self.limits.mebibytes * MEBIBYTE, self.limits.days
            self._store.append(rows, now, size, days, complete=not self._unwritten)

    def close(self, agent: Agent) -> None:
        """End recording and write everything."""
        self._make_records()
        now = self._now_us(agent)
        self._unwritten += self._links.stopped(self._store, agent, now)
        self._unwritten += self._queues.finish_minute()
        self.flush(agent, on_request=True)

    # --- records ----------------------------------------------------------------------------------------------------

    def _make_records(self) -> None:
        batches, self._batches = self._batches, []
        self._count_steps = self._count_effects = 0
        for (steps, woke_ns, said_ns), notified_us in batches:
            # Negative when the clock was set back meanwhile.
            queue_us = max(0, said_ns - woke_ns) // 1000
            for one in steps:
                self._unwritten += self._records_of(one, queue_us, notified_us)
            if self._joins.admitting:
                self._joins.announced(said_ns // 1000 - steps[-1][2].clock_offset_ms * 1000)

    def _records_of(self, raw: RawStep, queue_us: int, notified_us: int | None) -> list[Record]:
        input_, before, after, emitted, begun_ns, ended_ns, reasons = raw
        ended_us, took_us = ended_ns // 1000 - after.clock_offset_ms * 1000, max(0, ended_ns - begun_ns) // 1000
        step = ObservedStep(input_, before, after, emitted, ended_us - took_us, took_us, reasons or {}, self._store)
        rows: list[Record] = []
        if input_.__class__ is BatchEnded:
            rows += sent(step, queue_us)
        delivered, by_type = _effects_by_type(step)
        delivered += by_type.get(effects.DuplicateEvent, ())
        changed = _changed_parts(step)
        if delivered or "waiting" in changed:
            rows += self._arrivals.received(step, delivered, notified_us)
        if effects.StoreReceipt in by_type:
            rows += acknowledged(step, by_type[effects.StoreReceipt])
        if "view" in changed:
            rows += views(step)
        if self._gaps.pending or notifications.Gap in by_type or "waiting" in changed:
            rows += self._gaps.changed(step, by_type.get(notifications.Gap, ()))
        if after.links_up is not before.links_up:
            rows += self._links.changed(step)
            self._joins.link_up(step)
        if self._links.unresolved and step.changed:
            rows += self._links.resolved(step)
        if "view" in changed:
            rows += self._joins.admitted(step)
        if notifications.JoinProgress in by_type:
            rows += self._joins.progressed(step, by_type[notifications.JoinProgress])
        if effects.Dial in by_type:
            self._joins.dialled(step, by_type[effects.Dial])
        if self._joins.admitting:
            rows += self._joins.member_connected(step, by_type.get(notifications.MemberConnections, ()))
        if "fetching" in changed or self._joins.backfilling:
            history = [
                (one.group, len(one.record)) for one in delivered if one.__class__ is effects.StoreEvent and one.history
            ]
            rows += self._joins.backfilled(step, by_type.get(notifications.HistoryProgress, ()), history)
        if effects.Measure in by_type:
            self._queues.count_drops(by_type[effects.Measure])
        for one in by_type.get(effects.DeleteLog, ()):
            self._store.forget(one.group)
            self._gaps.forget(one.group)
            self._joins.forget(one.group)
        return rows

    def _views(self, agent: Agent, at_us: int) -> Iterator[Record]:
        return (view(self._store, group, at_us) for group in agent.groups.values() if group.state != "left")

    def _now_us(self, agent: Agent) -> int:
        return time.time_ns() // 1000 - agent.clock_offset_ms * 1000


def _effects_by_type(step: ObservedStep) -> tuple[list[Any], dict[type, list[Any]]]:
    """Delivered events of other members, and the effects and notifications that telemetry needs, by type."""
    delivered: list[Any] = []
    by_type: dict[type, list[Any]] = {}
    groups, emitted = step.after.groups, cast(Iterable[Any], step.effects)
    name, me = "", None
    for effect in emitted:
        kind: type = effect.__class__
        if kind is effects.StoreEvent:
            if effect.group != name:
                name = effect.group
                me = groups[name].me if name in groups else None
            if me is not None and effect.author != me:
                delivered.append(effect)
        elif kind is effects.Notify:
            kind = effect.notification.__class__
            if kind in _NOTIFICATIONS:
                by_type.setdefault(kind, []).append(effect.notification)
        elif kind in _EFFECTS:
            by_type.setdefault(kind, []).append(effect)
    return delivered, by_type


def _changed_parts(step: ObservedStep) -> set[str]:
    """Which parts of the group states changed; most steps change little."""
    found = set()
    for _, before, after in step.changed:
        if before is None or before.view is not after.view:
            found.add("view")
        if (
            before is None
            or before.log.reorder_buffers is not after.log.reorder_buffers
            or before.log.blocked is not after.log.blocked
        ):
            found.add("waiting")
        if before is None or before.sync.backfill is not after.sync.backfill:
            found.add("fetching")
    return found
