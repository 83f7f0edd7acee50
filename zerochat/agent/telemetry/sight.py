"""One step of the core, as the recorder sees it: what was heard, what the agent was and is, what it says, and when."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from zerochat.agent.telemetry.store import Store
from zerochat.group.effects import Effect
from zerochat.group.hearing import whose
from zerochat.group.state import Agent, Group
from zerochat.group.stimuli import Mailed, Received, Stimulus


@dataclass(slots=True)
class Sight:
    """Times in microseconds since 1970, UTC, by the clock that the members know us by."""

    stimulus: Stimulus
    before: Agent
    after: Agent
    effects: Sequence[Effect]
    begun_us: int
    took_us: int
    store: Store
    changed: list[tuple[str, Group | None, Group]] = field(init=False)
    """The groups that are not as they were, with what they were."""
    sender: str = field(init=False)
    """The member behind the link that something came over; empty: nothing did, or there is none."""

    def __post_init__(self) -> None:
        old, new = self.before.groups, self.after.groups
        self.changed = []
        if new is not old:
            self.changed = [(name, old.get(name), group) for name, group in new.items() if old.get(name) is not group]
        found = self.whose(self.stimulus.link) if isinstance(self.stimulus, Received) else None
        self.sender = found[1] if found is not None else ""

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
