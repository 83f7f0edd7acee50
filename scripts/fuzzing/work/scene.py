"""A group of three as one of them has it, and everything that the hostile one of the other two needs.

Built once in the simulator, with genuine keys; a machine begins with it as often as wanted.
"""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from fuzzing.work.machine import Machine, StoredFile
from zerochat.crypto.encoding import b64url
from zerochat.didcomm.invitation import Invitation
from zerochat.group.effects import CommandDone, Effect, GroupCreated, InvitationCreated, JournalEffect
from zerochat.group.files.descriptor import File
from zerochat.group.files.hash_tree import PART_BYTES, leaf, levels_over
from zerochat.group.inputs import (
    AcceptInvitation,
    Command,
    CreateGroup,
    CreateInvitation,
    SendPost,
    SetTlogTerms,
    SubmitTlogEntry,
)
from zerochat.group.membership import Policy
from zerochat.group.settings import Indicators
from zerochat.group.state import Agent
from zerochat.group.state.peers import RateLimit
from zerochat.limits import RING_KEYS
from zerochat.sim import Faults, Node, World

VICTIM, ROGUE, OTHER = "n0", "n1", "n2"
POSTS, LONG_POSTS = 120, 24
"""Posts in the log of the first group, and how many of them have forty thousand bytes."""
_PARTS = tuple(bytes([number]) * PART_BYTES for number in range(40))
_LEVELS = levels_over([leaf(part) for part in _PARTS])
FILE = File(b64url(_LEVELS[-1][0]), len(_PARTS) * PART_BYTES, "map.png", "image/png")
FILES = {FILE.id: StoredFile(_PARTS, _LEVELS)}
ENTRIES = 24
"""Entries in the transparency log."""


class _Recorded(World):
    """A world that keeps what the victim stores."""

    def __init__(self) -> None:
        self.stored: list[JournalEffect] = []
        super().__init__(1, 3, Faults(loss=0, duplication=0, delay_ms_max=5), "didcomm/v2")

    def _perform(self, node: Node, effect: Effect) -> None:
        if node.name == VICTIM and isinstance(effect, JournalEffect):
            self.stored.append(effect)
        super()._perform(node, effect)


class Scene(Struct, frozen=True):
    """The agents of the victim and the rogue at one moment."""

    victim: Agent
    rogue: Agent
    stored: tuple[JournalEffect, ...]
    """What the victim has stored."""
    now: int
    """UTC ms."""
    groups: Mapping[str, str]
    """`plain`: a pairwise group; `signed`: one with sender keys and a transparency log that the victim operates and
    witnesses; `healing`: one whose keys heal; `ring`: one on the ring."""
    invitation: Invitation
    """An invitation of the victim that is open."""
    post: str
    """The id of a post of the rogue."""
    asked: str
    """The link of a join of the victim, which waits for the rogue's decision."""
    files: Mapping[str, StoredFile] = field(default_factory=lambda: FILES)

    def machine(self, folder: Path) -> Machine:
        """The victim's agent. The rogue has used up its bursts before: only what it may do for ever counts."""
        agent = self.victim
        for name in self.groups.values():
            group, rogue = agent.groups[name], self.rogue.groups[name].me
            limit = RateLimit(at=self.now, work_at=self.now, given_at=self.now, statements_at=self.now)
            peers = {**group.links.peers, rogue: replace(group.links.peers[rogue], rate_limit=limit)}
            group = replace(group, links=replace(group.links, peers=peers))
            agent = replace(agent, groups={**agent.groups, name: group})
        return Machine(folder, agent, self.stored, self.files, self.now)


@cache
def scene() -> Scene:
    """The same at every start."""
    world = _Recorded()
    plain = _found(world, VICTIM, CreateGroup("friends", VICTIM, "didcomm/v2", "pairwise-multi"), (ROGUE, OTHER))
    signed = _found(
        world,
        VICTIM,
        CreateGroup("court", VICTIM, "didcomm/v2", "sender-key", Policy(remove="anyone", quorum=0), "tlog"),
        (ROGUE, OTHER),
    )
    healing = _found(world, VICTIM, CreateGroup("clinic", VICTIM, "didcomm/v2", "dcgka"), (ROGUE, OTHER))
    for name in world.nodes:
        _done(world, name, SendPost(healing, "hello"))
        world.run(for_ms=1_000)
    for number in range(POSTS):
        size = 40_000 if number % (POSTS // LONG_POSTS) == 0 else 200
        text = b64url(world.rng.randbytes(size * 3 // 4))
        _done(world, (VICTIM, ROGUE, OTHER)[number % 3], SendPost(plain, text))
        world.run(for_ms=300)
    _done(world, VICTIM, SendPost(plain, "look", files=(FILE,)))
    _done(world, ROGUE, SendPost(signed, "signed"))
    world.run(for_ms=240_000)
    everybody = tuple(world.nodes[name].agent.groups[signed].me for name in world.nodes)
    _done(world, VICTIM, SetTlogTerms(signed, everybody[0], everybody))
    world.run(for_ms=120_000)
    for number in range(ENTRIES):
        _done(world, ROGUE, SubmitTlogEntry(signed, "close", b"entry %d" % number))
    world.run(for_ms=240_000)
    invited = _done(world, VICTIM, CreateInvitation(plain, 86_400, 8)).result
    assert isinstance(invited, InvitationCreated)
    asked = _ask(world)
    ring = _found(world, VICTIM, CreateGroup("ring", VICTIM, "didcomm/v2", RING_KEYS, path="ring"), (ROGUE, OTHER))
    _done(world, ROGUE, SendPost(ring, "hello"))
    world.run(for_ms=30_000)
    agents = [world.nodes[name].agent for name in (VICTIM, ROGUE)]
    post = next(row for row in world.nodes[VICTIM].log if row.group == plain and b'"post"' in row.record)
    assert agents[0].groups[signed].tlogs.by_name and json.loads(post.record)
    listening = replace(agents[0], indicators=Indicators(True, True))
    groups = {"plain": plain, "signed": signed, "healing": healing, "ring": ring}
    return Scene(listening, agents[1], tuple(world.stored), world.now, groups, invited.invitation, post.id, asked)


def _done(world: World, name: str, command: Command) -> CommandDone:
    answer = world.run_command(name, command)
    assert isinstance(answer, CommandDone), answer
    return answer


def _found(world: World, founder: str, command: CreateGroup, others: tuple[str, ...]) -> str:
    """A group with these members; its id."""
    founded = _done(world, founder, command).result
    assert isinstance(founded, GroupCreated)
    for name in others:
        invited = _done(world, founder, CreateInvitation(founded.group, 3600, 1)).result
        assert isinstance(invited, InvitationCreated)
        _done(world, name, AcceptInvitation(invited.invitation, name))
        world.run(for_ms=30_000)
        assert founded.group in world.nodes[name].agent.groups
    return founded.group


def _ask(world: World) -> str:
    """The victim asks to join a group of the rogue, which decides later; the link of its join."""
    theirs = _found(world, ROGUE, CreateGroup("lair", ROGUE, "didcomm/v2", policy=Policy(join="ask")), ())
    invited = _done(world, ROGUE, CreateInvitation(theirs, 86_400, 1)).result
    assert isinstance(invited, InvitationCreated)
    _done(world, VICTIM, AcceptInvitation(invited.invitation, VICTIM))
    world.run(for_ms=5_000)
    (link,) = world.nodes[VICTIM].agent.joins.keys() & world.nodes[ROGUE].agent.invitations.keys() or (b"",)
    return link.hex()
