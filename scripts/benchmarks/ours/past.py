"""An old member for the benchmarks: a profile whose group has talked for long, while everybody else has gone away.

Its journal is written by the core itself: the group is founded and joined in a simulated world, its own posts are asked
for, and the others' are made as their cores would make them and heard as from them. Only envelopes are left out.
"""

import random
from collections.abc import Iterator
from typing import Any

from benchmarks.ours.core import sample_text
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import Places
from zerochat.agent.storage.profiles import SERVER_SECRET, create_profile, unlock
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.effects import Answer, Effect, InvitationCreated, Remembered
from zerochat.group.engine import step
from zerochat.group.event_log import lamport as clock
from zerochat.group.event_log import log
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    Ask,
    CreateGroup,
    CreateInvitation,
    Moment,
    SendPost,
    Started,
    TurnOver,
)
from zerochat.group.state import Agent
from zerochat.group.transaction import Turn
from zerochat.sim.world import Faults, Node, World

OLD = "n0"
AUTHORS = 8
"""So many that each has said less than others may vouch for (`VOUCHED_MAX`): whoever is away confirms nothing."""
BATCH = 1_000
"""Posts in one commit."""
GAP_MS = 20_000
TEXT_BYTES = (5, 120)
JOIN_MS_MAX = 120_000
"""Virtual time."""


def fill(home: Places, group: str, posts: int) -> None:
    """Make the profile of a member of a group of AUTHORS members, with so many posts, by each in its turn."""
    create_profile(home, OLD, None)
    with Journal.open(home.journal, unlock(home, None)) as journal:
        journal.load(Agent)
        world = _Past(journal.meta_get(SERVER_SECRET) or b"")
        world.found(group)
        journal.commit(world.nodes[OLD].agent, world.kept)
        for agent, kept in world.talk(posts):
            journal.commit(agent, kept)


class _Past(World):
    """A group of AUTHORS members, on addresses where nobody is."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.kept: list[Remembered] = []
        """What the old member's journal gets."""
        super().__init__(seed=1, members=AUTHORS, faults=Faults(0, 0, 1), envelope="didcomm/v2")

    def found(self, group: str) -> None:
        self.ask(OLD, CreateGroup(group, OLD, "didcomm/v2", "pairwise-multi"))
        for name in list(self.nodes)[1:]:
            answer = self.ask(OLD, CreateInvitation(group, 86_400, 1))
            assert isinstance(answer, Answer) and isinstance(answer.result, InvitationCreated), answer
            self.ask(name, AcceptInvitation(answer.result.invitation, name))
            if not self.run(lambda: bool(self.nodes[name].agent.groups) and self.seated_so_far(), JOIN_MS_MAX):  # noqa: B023
                raise AssertionError(f"{name} did not join")
            self.run(for_ms=5_000)

    def seated_so_far(self) -> bool:
        inside = [node for node in self.nodes.values() if node.agent.groups]
        return all(len(self.group(node.name).view.members) == len(inside) for node in inside)

    def talk(self, posts: int) -> Iterator[tuple[Agent, list[Remembered]]]:
        """Say so much, and give the old member's state and what it remembers, a batch at a time."""
        dice = random.Random(1)
        agent, effects = self.nodes[OLD].agent, list[Effect]()
        (name,) = agent.groups
        authors = [self.group(node).me for node in self.nodes]
        for number in range(posts):
            self.now += GAP_MS
            moment = Moment(self.now, self.dice.randbytes)
            text = f"{number} {sample_text(dice.randint(*TEXT_BYTES))}"
            author = authors[number % AUTHORS]
            if author == authors[0]:
                agent, said = step(agent, Ask(0, SendPost(name, text)), moment)
            else:
                turn = Turn(agent, moment, PACKERS)
                log.hear_event(turn, name, author, self._post(agent, author, text))
                agent, said = turn.agent, turn.effects
            effects += said
            if (number + 1) % BATCH == 0 or number + 1 == posts:
                agent, said = step(agent, TurnOver(), moment)
                yield agent, [one for one in (*effects, *said) if isinstance(one, Remembered)]
                effects = []

    def _post(self, agent: Agent, author: str, text: str) -> Event:
        """What this author's core would say next, having heard all that the old member has."""
        (group,) = agent.groups.values()
        chain = group.chain(author)
        conc = tuple(head for head in group.heads if head != chain.tip)
        lamport = clock.tick(group.lamport, self.now)
        body = {"text": text}
        return Event(group.id, POST, author, chain.seq + 1, chain.tip, (), conc, lamport, self.now, body)

    # --- of the simulated machine room --------------------------------------------------------------------------------

    def start(self, name: str, *, restored: bool = False, anew: bool = False) -> None:
        node = self.nodes[name]
        number = int(name[1:])
        node.address, node.queue_address = Endpoint("127.0.0.1", 2 * number + 1), Endpoint("127.0.0.1", 2 * number + 2)
        if name == OLD:
            node.server_key = x25519_public(self._secret)
            self._at[node.server_key] = node
        self.hear(name, Started(node.address, node.queue_address, node.server_key, restored=restored))

    def _perform(self, node: Node, effect: Any) -> None:
        if node.name == OLD and isinstance(effect, Remembered):
            self.kept.append(effect)
        super()._perform(node, effect)
