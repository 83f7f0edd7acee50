"""Joining a large group: what the 300th join costs beside the 30th.

The cores are real, and so are the journals of those that are watched: the joiner, its inviter, and some other members.
The network is simulated, without loss. The members before the joiner have founded the group together
(`sim/large/founding.py`), with their channels and history complete. A member that is not concerned by the join has
costs, too: what it does in the same time without a join is subtracted.

A join has to reach all members, so all of them together have more work in a larger group. What must not grow is the
work of each.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any, get_args

from msgspec.structs import replace

from benchmarks import Figure, Report, Row, Scale, scaled
from zerochat.agent.storage.journal import Journal
from zerochat.agent.storage.state_parts import changes
from zerochat.group.dcgka import ring_channels
from zerochat.group.effects import CommandDone, InvitationCreated, JournalEffect
from zerochat.group.inputs import AcceptInvitation, CreateGroup, CreateInvitation, Input, Received, StepContext
from zerochat.group.key_agreement.state import ChannelResets
from zerochat.group.transaction import Transaction
from zerochat.limits import KEYS_DEFAULT
from zerochat.sim.fast_crypto import cached_signatures
from zerochat.sim.large.founding import found
from zerochat.sim.large.wide_caches import wide_caches
from zerochat.sim.world import SIMULATED_PACKERS, Faults, Node, World

PLACES, PLACES_QUICK, PLACES_LEAST = (30, 100, 200, 300), (30, 100), (6, 8)
"""The joins that are measured: the 30th member and so on."""
WATCHED = 8
"""Other members with a journal. The inviter is one of the last, as in a group that grows."""
FOUNDED_MS, WINDOW_MS = 60_000, 30_000
"""Virtual time until a founded group is at rest, and of each measurement."""
GROWTH_GOAL = 2.0
"""Of the last join beside the first."""
KEY = bytes(32)
UNITS = {"steps": "steps", "cpu_ms": "ms", "network": "B", "written": "B"}
CASES = {
    "steps": "steps of the core",
    "cpu_ms": "processor time, with the journal",
    "network": "received and sent",
    "written": "changed state in the journal",
}


@dataclass(slots=True)
class Costs:
    """What one node has done."""

    steps: float = 0
    cpu_ms: float = 0
    network: float = 0
    written: float = 0

    def beyond(self, other: "Costs") -> "Costs":
        """These without those."""
        return Costs(*(max(0, getattr(self, name) - getattr(other, name)) for name in UNITS))


@dataclass(slots=True)
class Watched:
    """A node with a journal."""

    journal: Journal
    costs: Costs = field(default_factory=Costs)


class JournalledWorld(World):
    """A world in which some nodes have real journals."""

    def __init__(self, members: int) -> None:
        self.watched: dict[str, Watched] = {}
        super().__init__(1, members, Faults(0, 0, 20), "didcomm/v2")

    def watch(self, name: str, folder: Path) -> Journal:
        """Give a node a journal, and count what it does from now on."""
        node, journal = self.nodes[name], Journal.create(folder / name, KEY)
        journal.commit(node.agent, node.log)
        self.watched[name] = Watched(journal)
        return journal

    def process(self, name: str, input_: Input) -> None:
        one, node = self.watched.get(name), self.nodes[name]
        if one is None:
            super().process(name, input_)
            return
        before, began = node.agent, time.process_time()
        effects = self._step(node, input_)
        one.journal.commit(node.agent, [effect for effect in effects if isinstance(effect, get_args(JournalEffect))])
        one.costs.cpu_ms += (time.process_time() - began) * 1000
        one.costs.steps += 1
        one.costs.written += sum(len(value or b"") for _, value in changes(before, node.agent))
        for effect in effects:
            self._perform(node, effect)

    def _frame(self, name: str, input_: Received) -> None:
        sender = input_.handle.partition(b" ")[0].decode() if input_.handle else self._at[input_.host].name
        for end in (name, sender):
            if end in self.watched:
                self.watched[end].costs.network += len(input_.envelope)
        super()._frame(name, input_)

    def take(self) -> dict[str, Costs]:
        """What each watched node has done since the last call."""
        taken = {name: one.costs for name, one in self.watched.items()}
        for one in self.watched.values():
            one.costs = Costs()
        return taken


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--places", type=int, nargs="+", metavar="N", help="measure the joins of these members")


def measure(quick: bool, places: Sequence[int] | None = None) -> Report:
    chosen = sorted(places or scaled(quick, PLACES, PLACES_QUICK, PLACES_LEAST))
    joins = {place: join_of(place) for place in chosen}
    return Report([*rows_of(joins)], notes=[f"Each for {WINDOW_MS // 1000} virtual seconds from the invitation on."])


def join_of(place: int) -> dict[str, Costs]:
    """What the join of the member with this number costs the joiner, its inviter, and another member on average."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        stack.enter_context(wide_caches(place))
        world = JournalledWorld(place)
        stack.callback(world.dispose)
        *members, joiner = world.nodes
        inviter, others = members[-1], members[:: max(1, len(members) // WATCHED)][:WATCHED]
        with cached_signatures():
            created = CreateGroup("club", members[0], world.envelope, KEYS_DEFAULT, path="ring")
            group = found(world, members, created)
            for name in members:
                complete(world, world.nodes[name], group)
            world.run(for_ms=FOUNDED_MS)
        for name in {joiner, inviter, *others}:
            stack.callback(world.watch(name, folder).close)
        world.run(for_ms=scaled(False, WINDOW_MS, WINDOW_MS, 1_000))
        idle = world.take()
        answer = world.run_command(inviter, CreateInvitation(group, 86_400, 1))
        assert isinstance(answer, CommandDone) and isinstance(answer.result, InvitationCreated), answer
        world.run_command(joiner, AcceptInvitation(answer.result.invitation, joiner))
        world.run(for_ms=WINDOW_MS)
        assert group in world.nodes[joiner].agent.groups, f"{joiner} has not joined"
        costs = {name: one.beyond(idle[name]) for name, one in world.take().items()}
        rest = [costs[name] for name in others if name != inviter]
        average = Costs(*(mean(getattr(one, unit) for one in rest) for unit in UNITS))
        return {"joiner": costs[joiner], "inviter": costs[inviter], "another member": average}


def complete(world: World, node: Node, group: str) -> None:
    """A founder has all history, and the pre-keys of all others, who have its own."""
    tx = Transaction(node.agent, StepContext(world.now, world.rng.randbytes), SIMULATED_PACKERS)
    keys, done = ring_channels.with_channels(tx, group), ChannelResets(sent=world.now, received=1, confirmed=True)
    tx.update_dcgka(group, keys=replace(keys, resets=dict.fromkeys(tx.group(group).others, done)))
    tx.update_sync(group, backfill=None)
    node.agent = tx.agent


def rows_of(joins: "dict[int, dict[str, Costs]]") -> Iterator[Row]:
    for place, parts in joins.items():
        for who, costs in parts.items():
            for unit, case in CASES.items():
                ours = Figure.of([getattr(costs, unit)])
                yield Row(f"join of member {place}, {who}: {case}", UNITS[unit], "lower", ours)
    (first, few), *_, (last, many) = joins.items()
    for who in few if first != last else ():
        for unit, case in CASES.items():
            base: Any = getattr(few[who], unit)
            ratio = Figure.of([getattr(many[who], unit) / max(1, base)])
            goal = None if Scale.smoke else GROWTH_GOAL
            yield Row(f"{who}: member {last} to member {first}, {case}", "times", "lower", ratio, goal=goal)
