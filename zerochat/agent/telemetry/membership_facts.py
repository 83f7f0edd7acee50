"""Who is in, who is connected, what was missing and asked for."""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from msgspec import Struct, field

from zerochat.agent.telemetry.observation import Reason, Sight
from zerochat.agent.telemetry.schema import Link, Queue, Repair, View
from zerochat.agent.telemetry.store import Store
from zerochat.crypto.primitives import sha256
from zerochat.group.effects import Measure
from zerochat.group.notifications import Gap
from zerochat.group.state import Agent, Group

MINUTE_US: Final = 60_000_000
ASKED_MAX: Final = 1_000
"""Repairs that are waited for at once."""


# --- views ------------------------------------------------------------------------------------------------------------


def view(store: Store, group: Group, at_us: int) -> View:
    """Who is in a group, as the observer sees it."""
    roster = [store.number(group.id, did) for did in group.view.members]
    seen = int.from_bytes(sha256(group.view.checksum.encode())[:7], "big")
    return View(store.number(group.id, group.me), store.number(group.id), roster, seen, at_us)


def views(sight: Sight) -> Iterator[View]:
    """Of the groups whose members are not as they were."""
    for _, before, group in sight.changed:
        if before is None or before.view.checksum != group.view.checksum:
            yield view(sight.store, group, sight.ended_us)


# --- links ------------------------------------------------------------------------------------------------------------


class Links(Struct):
    """Since when each link is as it is."""

    begun_us: int
    """When recording began: what was before that nobody knows."""
    _since: dict[bytes, int] = field(default_factory=dict)
    early: dict[bytes, tuple[Reason, int]] = field(default_factory=dict)
    """Why and when links came up whose members are not known yet: a joiner dials its inviter before it is let in."""

    def moved(self, sight: Sight) -> Iterator[Link]:
        """Of the links that have come up or gone down in a step."""
        for link in sight.after.up ^ sight.before.up:
            up, reason = link in sight.after.up, sight.reasons.get(link, "unknown")
            self.early.pop(link, None)
            if (found := sight.whose(link)) is not None:
                yield self._seen(sight, found, link, up, reason, sight.ended_us)
            elif up and not (link in sight.after.joins or link in sight.after.invitations):
                self.early[link] = reason, sight.ended_us

    def met(self, sight: Sight) -> Iterator[Link]:
        """Of the early ones whose members are known now."""
        for link, (reason, at_us) in list(self.early.items()):
            if (found := sight.whose(link)) is not None:
                del self.early[link]
                yield self._seen(sight, found, link, True, reason, at_us)

    def stopped(self, store: Store, agent: Agent, at_us: int) -> Iterator[Link]:
        """The agent ends, and with it all links that are up."""
        for group in agent.groups.values():
            for member, peer in group.peers.items():
                if peer.link in agent.up:
                    yield self._row(store, group, member, peer.link, False, "stopped", at_us)

    def _seen(self, sight: Sight, found: tuple[str, str], link: bytes, up: bool, reason: Reason, at_us: int) -> Link:
        name, member = found
        group = sight.after.groups.get(name) or sight.before.groups[name]
        return self._row(sight.store, group, member, link, up, reason, at_us)

    def _row(self, store: Store, group: Group, member: str, link: bytes, up: bool, reason: Reason, at_us: int) -> Link:
        since = self._since.get(link, self.begun_us)
        self._since[link] = at_us
        me, peer = store.number(group.id, group.me), store.number(group.id, member)
        return Link(me, peer, up, reason, max(0, at_us - since), at_us)


# --- repairs ----------------------------------------------------------------------------------------------------------


class _Asked(Struct):
    at_us: int
    after: int
    upto: int
    whom: str


class Repairs(Struct):
    """What is missing of whose chain, and asked for."""

    _asked: dict[tuple[str, str], _Asked] = field(default_factory=dict)
    """By group and author."""

    @property
    def waits(self) -> bool:
        return bool(self._asked)

    def moved(self, sight: Sight, gaps: Iterable[Gap]) -> Iterator[Repair]:
        """What was answered in a step, or will not be. What it asks for is noted."""
        for gap in gaps:
            key = gap.group, gap.author
            if gap.state == "asked":
                self._ask(key, _Asked(sight.ended_us, gap.after, gap.upto, gap.author))
            elif key in self._asked:
                yield self._row(sight, key, answered=gap.state == "filled")
        for name, before, group in sight.changed:
            if before is not None and group.errands is not before.errands:
                for member, errand in group.errands.items():
                    for author, _, _ in errand.want if not (errand.back or errand.purpose) else ():
                        if (name, author) in self._asked:
                            self._asked[name, author].whom = member
            if before is None or group.limbo is not before.limbo:
                self._look_for_holes(name, before, group, sight)
            if before is not None and self._asked and group.chains is not before.chains:
                for author in [author for key, author in self._asked if key == name]:
                    if group.chain(author).seq >= self._asked[name, author].upto:
                        yield self._row(sight, (name, author), answered=True)

    def _look_for_holes(self, name: str, before: Group | None, group: Group, sight: Sight) -> None:
        """An author that has said something later is asked for what is missing before it."""
        for author, held in group.limbo.items():
            seq, first = group.chain(author).seq, min(held.records, default=0)
            if (before is None or author not in before.limbo) and first > seq + 1:
                self._ask((name, author), _Asked(sight.ended_us, seq, first - 1, author))

    def _ask(self, key: tuple[str, str], asked: _Asked) -> None:
        if len(self._asked) < ASKED_MAX:
            self._asked.setdefault(key, asked)

    def _row(self, sight: Sight, key: tuple[str, str], answered: bool) -> Repair:
        asked, (name, author) = self._asked.pop(key), key
        group = sight.after.groups.get(name) or sight.before.groups[name]
        return Repair(
            observer=sight.me(group),
            group=sight.number(name),
            sender=sight.number(name, author),
            asked=sight.number(name, asked.whom),
            after=asked.after,
            upto=asked.upto,
            t_us=asked.at_us,
            us=max(0, sight.ended_us - asked.at_us) if answered else None,
            outcome="answered" if answered else "unanswered",
        )

    def forget(self, group: str) -> None:
        self._asked = {key: one for key, one in self._asked.items() if key[0] != group}


# --- queues -----------------------------------------------------------------------------------------------------------


class Queues(Struct):
    """The most that was seen waiting, and what was dropped, minute by minute."""

    observer: int
    minute_us: int = 0
    high: dict[str, int] = field(default_factory=dict)
    drops: dict[str, int] = field(default_factory=dict)

    def dropped(self, measures: Iterable[Measure]) -> None:
        for one in measures:
            if one.name == "dropped" and one.detail == "LimboFull":
                self.drops["limbo"] = self.drops.get("limbo", 0) + 1

    def look(self, now_us: int, agent: Agent, faces_b: int, unsent: int) -> Iterator[Queue]:
        """What waits now; the rows of a minute that is over. `unsent`: envelopes dropped since the last look."""
        minute = now_us - now_us % MINUTE_US
        if minute != self.minute_us:
            yield from self.over()
            self.minute_us = minute
        limbo = sum(len(held.records) for group in agent.groups.values() for held in group.limbo.values())
        outbox = sum(map(_outbox, agent.groups.values()))
        for name, size in (("outbox", outbox), ("limbo", limbo), ("faces", faces_b)):
            self.high[name] = max(size, self.high.get(name, 0))
        self.drops["outbox"] = self.drops.get("outbox", 0) + unsent

    def over(self) -> Iterator[Queue]:
        """The rows of the minute until now."""
        names: tuple[Literal["outbox", "limbo", "faces"], ...] = ("outbox", "limbo", "faces")
        for name in names:
            high, drops = self.high.get(name, 0), self.drops.get(name, 0)
            if high or drops:
                yield Queue(self.observer, name, high, drops, self.minute_us)
        self.high.clear()
        self.drops.clear()


def _outbox(group: Group) -> int:
    """Events of the observer's own that some member lacks."""
    if group.state != "active":
        return 0
    lacks = [
        group.seq - max(peer.acked.get(group.me, 0), peer.base)
        for did, peer in group.peers.items()
        if did in group.view.members
    ]
    return max(lacks, default=0)
