"""The ring among thousands of members: `zerochat/overlay` in discrete events, with dead members and repair.

Members are nothing but their links and what they have, so that ten thousand fit; what a member sends where is decided
by the same functions as in the core. The worst case is simulated: the dead have died before the first message, and no
member has noticed by the time of the last one. Then the links to them are down, and each live member does one round of
anti-entropy.
"""

import random
from collections.abc import Callable, Iterable
from math import ceil

from msgspec import Struct

from zerochat.overlay.forwarding import FAN_OUT, SeenMessages, targets
from zerochat.overlay.repair import partners, wanted
from zerochat.overlay.ring import Links, Ring
from zerochat.sim.overlay.events import Events, Latency
from zerochat.sim.overlay.measures import Measures

FORMER = 0.01
"""Members that have left, per member: the ring has to forget them."""
INTERVAL_MS = 200.0
"""Between two messages: many are under way at a time."""


class RingPlan(Struct, frozen=True):
    """What is simulated."""

    nodes: int = 10_000
    fan_out: int = FAN_OUT
    dead: float = 0.0
    """The part of the members that is dead, 0 to 1."""
    messages: int = 10


class Member:
    """A member: its links, its memory of ids, and the messages that it has."""

    __slots__ = ("links", "log", "seen")

    def __init__(self, links: Links) -> None:
        self.links, self.seen, self.log = links, SeenMessages(), set[str]()


def links_of_members(group: str, nodes: int) -> dict[str, Links]:
    """The links of so many members of a group, after some others have left it."""
    names, left = [f"n{at}" for at in range(nodes)], [f"former{at}" for at in range(ceil(FORMER * nodes))]
    ring = Ring(group, [*names, *left])
    for name in left:
        ring.discard(name)
    return {name: ring.links(name) for name in names}


class RingWorld:
    """One run: publish, forward, repair."""

    def __init__(self, plan: RingPlan, links: dict[str, Links], seed: int, latency: Latency) -> None:
        self.plan, self.latency = plan, latency
        self.rng = random.Random(f"ring {seed}")
        self.events = Events()
        self.members = {name: Member(own) for name, own in links.items()}
        names = list(links)
        self.dead = frozenset(self.rng.sample(names, min(int(plan.dead * len(names)), len(names) - 1)))
        self.alive = [name for name in names if name not in self.dead]
        self.measures = Measures(2 * (plan.fan_out + 1) * plan.messages * len(names))
        self.direct_from: dict[str, str] = {}
        """By message that its author has sent to each member of its view: the author."""
        self.named: dict[str, tuple[str, ...]] = {}
        """By message: the heads that its author had."""
        self.sent: list[int] = []
        """How many copies a member has sent of one message, for each member and message."""
        self.returned = 0
        """Copies sent back to the member that has just brought the message."""
        self.outside = 0
        """Copies and questions sent to nodes that are no members."""
        self.repair_control = self.repaired = self.repair_copies = 0
        self._requested: dict[tuple[str, str], set[str]] = {}

    def publish_all(self) -> None:
        """Publish the messages of random live members, and run until all copies have arrived."""
        for number in range(self.plan.messages):
            self.events.after(number * INTERVAL_MS, self._publish, self.rng.choice(self.alive), f"m{number}")
        self.events.run()

    def _publish(self, author: str, message: str) -> None:
        self.named[message] = self.heads(author)
        if self.members[author].links.mesh:
            self.direct_from[message] = author
        self.measures.publish(message, self.events.now, len(self.alive) - 1)
        self._forward(author, None, message, 0)

    def _named_by(self, name: str) -> set[str]:
        """What the messages of a member name."""
        return set[str]().union(*(self.named[message] for message in self.members[name].log))

    def heads(self, name: str) -> tuple[str, ...]:
        """The messages of a member that no other one of its messages names."""
        return tuple(sorted(self.members[name].log - self._named_by(name)))

    def _arrive(self, name: str, bearer: str, message: str, hops: int) -> None:
        if name in self.dead:
            return
        if name not in self.members:
            self.outside += 1
        elif self._forward(name, bearer, message, hops):
            self.measures.deliver(message, self.events.now, hops)

    def _forward(self, name: str, bearer: str | None, message: str, hops: int) -> bool:
        """Remember a message and send it on; whether it is new."""
        member = self.members[name]
        if not member.seen.remember(message, self.events.now):
            return False
        member.log.add(message)
        direct = bearer is not None and self.direct_from.get(message) == bearer
        chosen = targets(member.links, bearer, self.rng.randbytes, self.plan.fan_out, direct=direct)
        self.sent.append(len(chosen))
        self.returned += bearer in chosen
        for target in chosen:
            self.measures.send()
            self.events.after(self.latency(), self._arrive, target, name, message, hops + 1)
        return True

    def repair(self) -> None:
        """One round of anti-entropy: each live member asks some of its live neighbours."""
        self._requested.clear()
        for name in self.alive:
            for partner in partners(self.members[name].links.without(self.dead), self.rng.randbytes):
                self._ask(self._answer_heads, partner, name)
        self.events.run()

    def _ask(self, answer: Callable[..., None], *arguments: object) -> None:
        self.repair_control += 1
        self.events.after(self.latency(), answer, *arguments)

    def _answer_heads(self, name: str, asker: str) -> None:
        if name not in self.members:
            self.outside += 1
            return
        self._ask(self._compare, asker, name, self.heads(name))

    def _compare(self, name: str, partner: str, heads: Iterable[str]) -> None:
        """Request the partner's heads, and what our own messages name, as far as it is not here."""
        self._request(name, partner, [*heads, *sorted(self._named_by(name))])

    def _request(self, name: str, partner: str, named: Iterable[str]) -> None:
        requested = self._requested.setdefault((name, partner), set())
        if ids := wanted(self.members[name].log, named, requested):
            requested.update(ids)
            self._ask(self._answer_ids, partner, name, ids)

    def _answer_ids(self, name: str, asker: str, ids: Iterable[str]) -> None:
        for message in ids:
            if message in self.members[name].log:
                self.repair_copies += 1
                self.events.after(self.latency(), self._take, asker, name, message)

    def _take(self, name: str, partner: str, message: str) -> None:
        member = self.members[name]
        if member.seen.remember(message, self.events.now):
            member.log.add(message)
            self.repaired += 1
        self._request(name, partner, self.named[message])

    @property
    def completeness(self) -> float:
        """The part of all messages that live members have, their own included."""
        have = sum(len(self.members[name].log) for name in self.alive)
        return have / max(1, len(self.alive) * len(self.named))
