"""Counters of links: what each peer has brought and was sent, in memory, since the agent started.

They are taken from the inputs and effects of committed batches, so the core counts nothing. There is one record for
each link that has carried something; those of closed links go when there is a new one. Mail over mediators is not
counted: it names no link.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from zerochat.group.dispatch import link_owner
from zerochat.group.effects import DuplicateEvent, Effect, Measure, Publish, SendEnvelope, StoreEvent
from zerochat.group.event_log.event import CONTROL
from zerochat.group.inputs import Input, Received
from zerochat.group.key_modes.forwarded import is_forwarded
from zerochat.group.state import Agent, Group
from zerochat.group.wire.queue_names import state_queue

_DUPLICATE: Final = Measure("duplicate", "forwarded")


@dataclass(slots=True)
class LinkCounts:
    """The traffic of one link."""

    group: str
    member: str
    sent: int = 0
    """Envelopes of any kind."""
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    brought: int = 0
    """Forwarded messages, by any author, that it was the first to bring."""
    duplicates: int = 0
    """Messages that were here already."""
    repaired: int = 0
    """Events of others that a response of this peer brought: a pull has filled a gap."""
    repaired_at: int = 0
    """The time of the last of them, UTC ms; 0: never."""


@dataclass(slots=True)
class GroupCounts:
    """What we have sent of a group's messages."""

    own: int = 0
    """Our posts and annotations."""
    forwarded: int = 0
    """Messages of others that we sent on."""
    copies: int = 0
    """The copies of both, one for each link, without retransmissions."""


@dataclass(slots=True)
class LinkCounters:
    """The counters of all links."""

    since: int = 0
    """When the first batch was counted, UTC ms."""
    groups: dict[str, GroupCounts] = field(default_factory=dict)
    _links: dict[bytes, LinkCounts] = field(default_factory=dict)

    def of(self, link: bytes) -> LinkCounts:
        """The counts of a link; zeros, where it has carried nothing."""
        return self._links.get(link) or LinkCounts("", "")

    def observe(
        self, before: Agent, after: Agent, steps: Iterable[tuple[Input, Sequence[Effect]]], now_ms: int
    ) -> None:
        """Count a committed batch. `before`, `after`: the state before and after it."""
        self.since = self.since or now_ms
        for each, effects in steps:
            bearer = self._received(after, each, effects) if isinstance(each, Received) else None
            forwarded = ""
            for effect in effects:
                match effect:
                    case SendEnvelope(link, envelope):
                        counts = self._sent(after, link, envelope)
                        if counts is not None and is_forwarded(envelope):
                            self._group(counts.group).copies += 1
                            forwarded = counts.group
                    case Publish():
                        self._published(after, effect)
                    case StoreEvent(group=name, author=author, type=kind):
                        if kind in CONTROL or (group := after.groups.get(name)) is None:
                            continue
                        if author == group.me:
                            self._group(name).own += not effect.history
                        elif bearer is not None and _is_repaired(before, bearer, effect):
                            bearer.repaired += 1
                            bearer.repaired_at = now_ms
                    case DuplicateEvent() if bearer is not None:
                        bearer.duplicates += 1
                    case _:
                        pass
            if forwarded and isinstance(each, Received):
                self._group(forwarded).forwarded += 1

    def _group(self, name: str) -> GroupCounts:
        found = self.groups.get(name)
        if found is None:
            found = self.groups[name] = GroupCounts()
        return found

    def _received(self, agent: Agent, each: Received, effects: Sequence[Effect]) -> LinkCounts | None:
        """Count an envelope; the counts of the peer that may have repaired something with it."""
        counts = self._counts(agent, each.link)
        if counts is None:
            return None
        counts.received += 1
        counts.received_bytes += len(each.envelope)
        if not is_forwarded(each.envelope):
            return counts
        if _DUPLICATE in effects:
            counts.duplicates += 1
        elif effects and not any(isinstance(one, Measure) and one.name == "dropped" for one in effects):
            counts.brought += 1  # else it was refused, or not even looked at
        return None

    def _sent(self, agent: Agent, link: bytes, envelope: bytes) -> LinkCounts | None:
        counts = self._counts(agent, link)
        if counts is not None:
            counts.sent += 1
            counts.sent_bytes += len(envelope)
        return counts

    def _published(self, agent: Agent, effect: Publish) -> None:
        found = [counts for link in effect.links if (counts := self._sent(agent, link, effect.envelope)) is not None]
        group = agent.groups.get(found[0].group) if found else None
        if group is not None and effect.queue != state_queue(group.id, group.me):
            self._group(group.id).copies += len(found)

    def _counts(self, agent: Agent, link: bytes) -> LinkCounts | None:
        """The counts of a member's link; None: it is no member's."""
        found = self._links.get(link)
        if found is None and (owner := link_owner(agent, link)) is not None:
            self._forget(agent)
            found = self._links[link] = LinkCounts(*owner)
        return found

    def _forget(self, agent: Agent) -> None:
        """Drop the counts of links that are closed, and of groups that are gone."""
        for link, counts in list(self._links.items()):
            group = agent.groups.get(counts.group)
            if group is None or counts.member not in group.links.peers:
                del self._links[link]
        for name in self.groups.keys() - agent.groups.keys():
            del self.groups[name]


def _is_repaired(before: Agent, bearer: LinkCounts, event: StoreEvent) -> bool:
    """Whether a peer has brought this event of another member when we asked: not as news, not as earlier history, and
    not as the last thing that it waited for here."""
    if event.group != bearer.group or event.author == bearer.member or event.history:
        return False
    group = before.groups.get(event.group)
    return group is not None and not _was_waiting(group, event)


def _was_waiting(group: Group, event: StoreEvent) -> bool:
    """Whether an event, or a message of its author, was here and could not be delivered yet."""
    buffered = group.log.reorder_buffers.get(event.author)
    return event.author in group.dcgka.early or (buffered is not None and event.seq in buffered.events)
