"""Telemetry records of views, links, gaps and queues, from the state before and after each step."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from msgspec import Struct, field

from zerochat.agent.telemetry.observation import ObservedStep, Reason
from zerochat.agent.telemetry.schema import Gap, Link, Queue, View
from zerochat.agent.telemetry.store import TelemetryStore
from zerochat.crypto.primitives import sha256
from zerochat.group import notifications
from zerochat.group.effects import Measure
from zerochat.group.state import Agent, Group, PullPurpose

MINUTE_US: Final = 60_000_000
GAPS_MAX: Final = 1_000
"""Gaps tracked at a time."""


# --- views ------------------------------------------------------------------------------------------------------------


def view(store: TelemetryStore, group: Group, at_us: int) -> View:
    """The membership of a group in the observer's view."""
    roster = [store.number(group.id, did) for did in group.view.members]
    seen = int.from_bytes(sha256(group.view.checksum.encode())[:7], "big")
    return View(store.number(group.id, group.me), store.number(group.id), roster, seen, at_us)


def views(step: ObservedStep) -> Iterator[View]:
    """Records of the groups whose membership changed."""
    for _, before, group in step.changed:
        if before is None or before.view.checksum != group.view.checksum:
            yield view(step.store, group, step.ended_us)


# --- links ------------------------------------------------------------------------------------------------------------


class Links(Struct):
    """State of each link and the time of its last change."""

    begun_us: int
    """Start of recording; earlier durations are unknown."""
    _since: dict[bytes, int] = field(default_factory=dict)
    unresolved: dict[bytes, tuple[Reason, int]] = field(default_factory=dict)
    """Links up whose members are not known yet, with reason and time (us): a joiner dials its inviter first."""

    def changed(self, step: ObservedStep) -> Iterator[Link]:
        """Records of the links that changed state in a step."""
        for link in step.after.links_up ^ step.before.links_up:
            up, reason = link in step.after.links_up, step.reasons.get(link, "unknown")
            self.unresolved.pop(link, None)
            if (found := step.member_of(link)) is not None:
                yield self._record(step, found, link, up, reason, step.ended_us)
            elif up and not (link in step.after.joins or link in step.after.invitations):
                self.unresolved[link] = reason, step.ended_us

    def resolved(self, step: ObservedStep) -> Iterator[Link]:
        """Records of unresolved links whose members are known now."""
        for link, (reason, at_us) in list(self.unresolved.items()):
            if (found := step.member_of(link)) is not None:
                del self.unresolved[link]
                yield self._record(step, found, link, True, reason, at_us)

    def stopped(self, store: TelemetryStore, agent: Agent, at_us: int) -> Iterator[Link]:
        """Records for all open links when the agent stops."""
        for group in agent.groups.values():
            for member, peer in group.links.peers.items():
                if peer.link in agent.links_up:
                    yield self._row(store, group, member, peer.link, False, "stopped", at_us)

    def _record(
        self, step: ObservedStep, found: tuple[str, str], link: bytes, up: bool, reason: Reason, at_us: int
    ) -> Link:
        name, member = found
        group = step.after.groups.get(name) or step.before.groups[name]
        return self._row(step.store, group, member, link, up, reason, at_us)

    def _row(
        self, store: TelemetryStore, group: Group, member: str, link: bytes, up: bool, reason: Reason, at_us: int
    ) -> Link:
        since = self._since.get(link, self.begun_us)
        self._since[link] = at_us
        me, peer = store.number(group.id, group.me), store.number(group.id, member)
        return Link(me, peer, up, reason, max(0, at_us - since), at_us)


# --- gaps -------------------------------------------------------------------------------------------------------------


class _OpenGap(Struct):
    at_us: int
    after: int
    upto: int
    peer: str


class Gaps(Struct):
    """Missing ranges of chains that were requested."""

    _open: dict[tuple[str, str], _OpenGap] = field(default_factory=dict)
    """By group and author."""

    @property
    def pending(self) -> bool:
        return bool(self._open)

    def changed(self, step: ObservedStep, gaps: Iterable[notifications.Gap]) -> Iterator[Gap]:
        """Records of gaps that a step filled or gave up; new requests are tracked."""
        for gap in gaps:
            key = gap.group, gap.author
            if gap.state == "asked":
                self._add(key, _OpenGap(step.ended_us, gap.after, gap.upto, gap.author))
            elif key in self._open:
                yield self._row(step, key, answered=gap.state == "filled")
        for name, before, group in step.changed:
            if before is not None and group.sync.pull_requests is not before.sync.pull_requests:
                for member, pull_request in group.sync.pull_requests.items():
                    for author, _, _ in pull_request.ranges if pull_request.purpose is PullPurpose.GAPS else ():
                        if (name, author) in self._open:
                            self._open[name, author].peer = member
            if before is None or group.log.reorder_buffers is not before.log.reorder_buffers:
                self._detect(name, before, group, step)
            if before is not None and self._open and group.log.chains is not before.log.chains:
                for author in [author for key, author in self._open if key == name]:
                    if group.chain(author).seq >= self._open[name, author].upto:
                        yield self._row(step, (name, author), answered=True)

    def _detect(self, name: str, before: Group | None, group: Group, step: ObservedStep) -> None:
        """Track the gap before an event that entered the reorder buffer."""
        for author, held in group.log.reorder_buffers.items():
            seq, first = group.chain(author).seq, min(held.events, default=0)
            if (before is None or author not in before.log.reorder_buffers) and first > seq + 1:
                self._add((name, author), _OpenGap(step.ended_us, seq, first - 1, author))

    def _add(self, key: tuple[str, str], gap: _OpenGap) -> None:
        if len(self._open) < GAPS_MAX:
            self._open.setdefault(key, gap)

    def _row(self, step: ObservedStep, key: tuple[str, str], answered: bool) -> Gap:
        gap, (name, author) = self._open.pop(key), key
        group = step.after.groups.get(name) or step.before.groups[name]
        return Gap(
            observer=step.observer_number(group),
            group=step.number(name),
            sender=step.number(name, author),
            peer=step.number(name, gap.peer),
            after=gap.after,
            upto=gap.upto,
            t_us=gap.at_us,
            us=max(0, step.ended_us - gap.at_us) if answered else None,
            outcome="answered" if answered else "unanswered",
        )

    def forget(self, group: str) -> None:
        self._open = {key: one for key, one in self._open.items() if key[0] != group}


# --- queues -----------------------------------------------------------------------------------------------------------


class Queues(Struct):
    """Queue peaks and drops per minute."""

    observer: int
    minute_us: int = 0
    high: dict[str, int] = field(default_factory=dict)
    drops: dict[str, int] = field(default_factory=dict)

    def count_drops(self, measures: Iterable[Measure]) -> None:
        for one in measures:
            if one.name == "dropped" and one.detail == "ReorderBufferFull":
                self.drops["reorder_buffer"] = self.drops.get("reorder_buffer", 0) + 1

    def sample(self, now_us: int, agent: Agent, client_backlog_b: int, dropped_envelopes: int) -> Iterator[Queue]:
        """Sample the queues; return the records of a completed minute. `dropped_envelopes`: since the last sample."""
        minute = now_us - now_us % MINUTE_US
        if minute != self.minute_us:
            yield from self.finish_minute()
            self.minute_us = minute
        buffered = sum(
            len(held.events) for group in agent.groups.values() for held in group.log.reorder_buffers.values()
        )
        outbox = sum(map(_outbox, agent.groups.values()))
        for name, size in (("outbox", outbox), ("reorder_buffer", buffered), ("clients", client_backlog_b)):
            self.high[name] = max(size, self.high.get(name, 0))
        self.drops["outbox"] = self.drops.get("outbox", 0) + dropped_envelopes

    def finish_minute(self) -> Iterator[Queue]:
        """The records of the current minute."""
        names: tuple[Literal["outbox", "reorder_buffer", "clients"], ...] = ("outbox", "reorder_buffer", "clients")
        for name in names:
            high, drops = self.high.get(name, 0), self.drops.get(name, 0)
            if high or drops:
                yield Queue(self.observer, name, high, drops, self.minute_us)
        self.high.clear()
        self.drops.clear()


def _outbox(group: Group) -> int:
    """Events of the observer that some member has not acknowledged."""
    if group.state != "active":
        return 0
    lacks = [
        group.seq - max(group.links.acked(did, group.me), peer.start_seq)
        for did, peer in group.links.peers.items()
        if did in group.view.members
    ]
    return max(lacks, default=0)
