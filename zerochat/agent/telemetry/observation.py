"""One step of the core, as the recorder sees it: what was heard, what the agent was and is, what it says, and when."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from zerochat.agent.telemetry.store import Store
from zerochat.group.dispatch import whose
from zerochat.group.effects import Effect
from zerochat.group.inputs import Mailed, Received, Stimulus
from zerochat.group.state import Agent, Group

Reason: TypeAlias = Literal["dialled", "accepted", "silent", "closed", "stopped", "unknown"]
Step: TypeAlias = tuple[Stimulus, Agent, Agent, list[Effect], int, int, Mapping[bytes, Reason] | None]
"""A step as the thread notes it, who has no time to do more: what was heard, what the agent was and is, what it says,
when that began and was over (ns since 1970, by this machine's clock), and why links have come up or gone down with it,
if any have."""
Turn: TypeAlias = tuple[list[Step], int, int]
"""One that is on disk, with a step at least: its steps, when the thread turned to it, and when what it says was on its
way (ns since 1970)."""


@dataclass(slots=True)
class Sight:
    """Times in microseconds since 1970, UTC, by the clock that the members know us by."""

    stimulus: Stimulus
    before: Agent
    after: Agent
    effects: Sequence[Effect]
    begun_us: int
    took_us: int
    reasons: Mapping[bytes, Reason]
    """Why the links that have come up or gone down in it did so."""
    store: Store
    changed: list[tuple[str, Group | None, Group]] = field(init=False)
    """The groups that are not as they were, with what they were."""

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
        """The member behind the link that something came over; empty: nothing did, or there is none."""
        found = self.whose(self.stimulus.link) if isinstance(self.stimulus, Received) else None
        return found[1] if found is not None else ""

    @property
    def ended_us(self) -> int:
        return self.begun_us + self.took_us

    @property
    def size(self) -> int:
        """Of the envelope that came, in bytes; 0: none did."""
        return len(self.stimulus.envelope) if isinstance(self.stimulus, Received | Mailed) else 0

    @property
    def mailed(self) -> bool:
        """Whether it came over a mediator, or the web."""
        return isinstance(self.stimulus, Mailed)

    @property
    def queued(self) -> bool:
        return isinstance(self.stimulus, Received) and self.stimulus.queued

    @property
    def joining(self) -> bool:
        """Whether it came from somebody who lets us in."""
        return isinstance(self.stimulus, Received) and self.stimulus.link in self.before.joins

    def whose(self, link: bytes) -> tuple[str, str] | None:
        """The group and the member behind a link."""
        for group, _, one in self.changed:  # mostly it is about what has changed by it
            for member, peer in one.peers.items():
                if peer.link == link:
                    return group, member
        return whose(self.after, link) or whose(self.before, link)

    def number(self, group: str, did: str = "") -> int:
        return self.store.number(group, did)

    def me(self, group: Group) -> int:
        """The number of the observer in one group."""
        return self.store.number(group.id, group.me)
