"""Large groups: what a delivery costs among 200 members beside 32, and the 300th join beside the 30th.

Deliveries are those of `zerochat sim --large` in its quiet phase, under packet loss alone. Both groups are founded
once, then send messages in turns, in one process: its processor time is that of all members and of the network.

In joins the cores are real, and so are the journals of those that are watched: the joiner, its inviter, and some
other members.
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

from benchmarks import Figure, Report, Row, Scale, scaled, take_turns
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
from zerochat.sim.large.scenario import LargePlan, Phase, Scenario
from zerochat.sim.large.wide_caches import wide_caches
from zerochat.sim.world import SIMULATED_PACKERS, Faults, Node, World

SIZES, SIZES_QUICK, SIZES_LEAST = (32, 200), (32, 100), (6, 8)
"""The groups in which deliveries are measured."""
DELIVERY_SEED = 10
"""One of a group with real encryption."""
ROUNDS, ROUNDS_QUICK = 3, 2
DELIVERY_GOAL = 1.5
"""Of a delivery in the largest group beside the smallest."""
DELIVERY_CASES = {"processor time": "us", "received and sent": "B", "copies": "copies"}
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
    parser.add_argument("--places", type=int, nargs="+", metavar="N", help="measure the joins of these members alone")
    parser.add_argument("--members", type=int, nargs="+", metavar="N", help="measure deliveries among so many alone")


def measure(quick: bool, places: Sequence[int] | None = None, members: Sequence[int] | None = None) -> Report:
    rows, notes = list[Row](), list[str]()
    if members or not places:
        rows += delivery_rows(deliveries(sorted(members or scaled(quick, SIZES, SIZES_QUICK, SIZES_LEAST)), quick))
    if places or not members:
        chosen = sorted(places or scaled(quick, PLACES, PLACES_QUICK, PLACES_LEAST))
        rows += rows_of({place: join_of(place) for place in chosen})
        notes.append(f"Each join for {WINDOW_MS // 1000} virtual seconds from the invitation on.")
    return Report(rows, notes=notes)


# --- deliveries -------------------------------------------------------------------------------------------------------


def deliveries(sizes: Sequence[int], quick: bool) -> dict[int, list[Phase]]:
    """By members, the quiet phases of a group of so many, in turns."""
    plan = LargePlan(messages=scaled(quick, 40, 40, 4))
    groups = {size: Scenario(replace(plan, members=size), DELIVERY_SEED) for size in sizes}
    with cached_signatures(), wide_caches(sum(size + one.plan.joiners for size, one in groups.items())):
        for one in groups.values():
            one.gather()
        turns = take_turns(
            {str(size): one.send_quietly for size, one in groups.items()}, scaled(quick, ROUNDS, ROUNDS_QUICK, 1)
        )
    return {size: turns[str(size)] for size in groups}


def delivery_rows(found: dict[int, list[Phase]]) -> Iterator[Row]:
    costs = {size: [[*_costs_of(phase)] for phase in phases] for size, phases in found.items()}
    for size, each in costs.items():
        for at, (case, unit) in enumerate(DELIVERY_CASES.items()):
            yield Row(f"{size} members, one delivery: {case}", unit, "lower", Figure.of([one[at] for one in each]))
    few, *_, many = costs
    for at, case in enumerate(DELIVERY_CASES) if few != many else ():
        ratios = [large[at] / small[at] for small, large in zip(costs[few], costs[many], strict=True)]
        goal = None if Scale.smoke else DELIVERY_GOAL
        yield Row(f"one delivery: {many} members to {few}, {case}", "times", "lower", Figure.of(ratios), goal=goal)


def _costs_of(phase: Phase) -> Iterator[float]:
    yield phase.seconds / phase.deliveries * 1e6
    yield phase.bytes / phase.deliveries
    yield phase.copies / phase.deliveries


# --- joins ------------------------------------------------------------------------------------------------------------


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
