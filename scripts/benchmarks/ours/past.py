"""A member with a long history for the benchmarks: its group has posted for long, and all others are offline.

The core itself writes its journal: the group is founded and joined in a simulated world, its own posts are commands,
and the others' posts come from their cores. Only the envelopes are left out.
"""

import random
from collections.abc import Iterator
from typing import Any

from benchmarks.ours.core import sample_text
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.paths import ProfilePaths
from zerochat.agent.storage.profiles import SERVER_SECRET, create_profile, unlock
from zerochat.crypto.primitives import x25519_public
from zerochat.didcomm import PACKERS
from zerochat.didcomm.endpoint import Endpoint
from zerochat.group.effects import CommandDone, Effect, InvitationCreated, JournalEffect
from zerochat.group.engine import step
from zerochat.group.event_log import lamport as clock
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import (
    AcceptInvitation,
    BatchEnded,
    CommandInput,
    CreateGroup,
    CreateInvitation,
    SendPost,
    Started,
    StepContext,
)
from zerochat.group.state import Agent
from zerochat.group.transaction import Transaction
from zerochat.sim.world import Faults, Node, World

OLD = "n0"
AUTHORS = 8
"""So many authors that each has posted less than `UNCONFIRMED_MAX`: an absent author confirms nothing."""
BATCH = 1_000
"""Posts in one commit."""
GAP_MS = 20_000
TEXT_BYTES = (5, 120)
JOIN_MS_MAX = 120_000
"""Virtual time."""


def fill(home: ProfilePaths, group: str, posts: int) -> None:
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
    """A group of AUTHORS members, at addresses without agents."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self.kept: list[JournalEffect] = []
        """The content of the member's journal."""
        super().__init__(seed=1, members=AUTHORS, faults=Faults(0, 0, 1), envelope="didcomm/v2")

    def found(self, group: str) -> None:
        self.run_command(OLD, CreateGroup(group, OLD, "didcomm/v2", "pairwise-multi"))
        for name in list(self.nodes)[1:]:
            answer = self.run_command(OLD, CreateInvitation(group, 86_400, 1))
            assert isinstance(answer, CommandDone) and isinstance(answer.result, InvitationCreated), answer
            self.run_command(name, AcceptInvitation(answer.result.invitation, name))
            if not self.run(lambda: bool(self.nodes[name].agent.groups) and self.seated_so_far(), JOIN_MS_MAX):  # noqa: B023
                raise AssertionError(f"{name} did not join")
            self.run(for_ms=5_000)

    def seated_so_far(self) -> bool:
        inside = [node for node in self.nodes.values() if node.agent.groups]
        return all(len(self.group(node.name).view.members) == len(inside) for node in inside)

    def talk(self, posts: int) -> Iterator[tuple[Agent, list[JournalEffect]]]:
        """Post this much; yields the member's state and its new rows, a batch at a time."""
        dice = random.Random(1)
        agent, effects = self.nodes[OLD].agent, list[Effect]()
        (name,) = agent.groups
        authors = [self.group(node).me for node in self.nodes]
        for number in range(posts):
            self.now += GAP_MS
            moment = StepContext(self.now, self.rng.randbytes)
            text = f"{number} {sample_text(dice.randint(*TEXT_BYTES))}"
            author = authors[number % AUTHORS]
            if author == authors[0]:
                agent, said = step(agent, CommandInput(0, SendPost(name, text)), moment)
            else:
                tx = Transaction(agent, moment, PACKERS)
                receiving.receive_event(tx, name, author, self._post(agent, author, text))
                agent, said = tx.agent, tx.effects
            effects += said
            if (number + 1) % BATCH == 0 or number + 1 == posts:
                agent, said = step(agent, BatchEnded(), moment)
                yield agent, [one for one in (*effects, *said) if isinstance(one, JournalEffect)]
                effects = []

    def _post(self, agent: Agent, author: str, text: str) -> Event:
        """The next output of this author's core, which has received everything that the member has."""
        (group,) = agent.groups.values()
        chain = group.chain(author)
        conc = tuple(head for head in group.log.heads if head != chain.head_id)
        lamport = clock.tick(group.log.lamport, self.now)
        body = {"text": text}
        return Event(group.id, POST, author, chain.seq + 1, chain.head_id, (), conc, lamport, self.now, body)

    # --- of the simulated machine room --------------------------------------------------------------------------------

    def start(self, name: str, *, restored: bool = False, anew: bool = False) -> None:
        node = self.nodes[name]
        number = int(name[1:])
        node.address, node.queue_address = Endpoint("127.0.0.1", 2 * number + 1), Endpoint("127.0.0.1", 2 * number + 2)
        if name == OLD:
            node.server_key = x25519_public(self._secret)
            self._at[node.server_key] = node
        self.process(name, Started(node.address, node.queue_address, node.server_key, restored=restored))

    def _perform(self, node: Node, effect: Any) -> None:
        if node.name == OLD and isinstance(effect, JournalEffect):
            self.kept.append(effect)
        super()._perform(node, effect)
