"""One observed step of the core: input, state before and after, effects and times."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from zerochat.agent.telemetry.store import TelemetryStore
from zerochat.group.dispatch import link_owner
from zerochat.group.effects import Effect
from zerochat.group.inputs import Input, Received, WebReceived
from zerochat.group.state import Agent, Group

Reason: TypeAlias = Literal["dialled", "accepted", "silent", "closed", "stopped", "unknown"]
RawStep: TypeAlias = tuple[Input, Agent, Agent, list[Effect], int, int, Mapping[bytes, Reason] | None]
"""A step as the agent thread notes it, a tuple for speed: input, state before and after, effects, begin and end (ns
since 1970, machine clock), reasons of link changes."""
CommittedBatch: TypeAlias = tuple[list[RawStep], int, int]
"""A committed batch: its steps (at least one), the wake-up of the thread and the hand-over to the sockets (ns since
1970)."""


@dataclass(slots=True)
class ObservedStep:
    """Times in microseconds since 1970, UTC, by the clock that the other members know us by."""

    input: Input
    before: Agent
    after: Agent
    effects: Sequence[Effect]
    begun_us: int
    took_us: int
    reasons: Mapping[bytes, Reason]
    """Causes of the link changes in the step."""
    store: TelemetryStore
    changed: list[tuple[str, Group | None, Group]] = field(init=False)
    """Changed groups: id, state before, state after."""

    def __post_init__(self) -> None:
        old, new = self.before.groups, self.after.groups
        self.changed = []
        if new is not old:
            for name, group in new.items():
                was = old.get(name)
                if was is not group:
                    self.changed.append((name, was, group))

    @property
    def sender(self) -> str:
        """The member at the other end of the link that the input arrived on; empty: none."""
        found = self.member_of(self.input.link) if isinstance(self.input, Received) else None
        return found[1] if found is not None else ""

    @property
    def ended_us(self) -> int:
        return self.begun_us + self.took_us

    @property
    def envelope_b(self) -> int:
        """Size of the received envelope in bytes; 0: none."""
        return len(self.input.envelope) if isinstance(self.input, Received | WebReceived) else 0

    @property
    def by_mediator(self) -> bool:
        """Whether the envelope arrived over a mediator or HTTP."""
        return isinstance(self.input, WebReceived)

    @property
    def from_queue(self) -> bool:
        return isinstance(self.input, Received) and self.input.from_queue

    @property
    def from_inviter(self) -> bool:
        """Whether the envelope arrived from the inviter of a join in progress."""
        return isinstance(self.input, Received) and self.input.link in self.before.joins

    def member_of(self, link: bytes) -> tuple[str, str] | None:
        """The group and the member at the other end of a link."""
        for group, _, one in self.changed:  # the common case
            for member, peer in one.links.peers.items():
                if peer.link == link:
                    return group, member
        return link_owner(self.after, link) or link_owner(self.before, link)

    def number(self, group: str, did: str = "") -> int:
        return self.store.number(group, did)

    def observer_number(self, group: Group) -> int:
        """The number of the observer in a group."""
        return self.store.number(group.id, group.me)
