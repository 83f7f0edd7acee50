"""A world in which lines, machines, disks and clocks fail.

Lines are cut one way or both, partitioned, delayed, reset, or corrupt frames. A process ends at any moment, also
between the commit of a step and any of its effects. Disks fill up. Clocks are set, also while no process runs. As in
the agent, state is on disk once it is committed; a *lazy* disk only claims so, which tests use.
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import get_args

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.errors import LocalError
from zerochat.group.effects import AllowClient, CommandFailed, Effect, JournalEffect, StoreEvent
from zerochat.group.event_log.event import LEAVE, REMOVE
from zerochat.group.inputs import (
    ClockSet,
    Command,
    CommandInput,
    Input,
    LinkDown,
    LinkUp,
    Received,
    SendPost,
    Started,
    TimerFired,
)
from zerochat.group.membership import remove_of
from zerochat.group.state import Agent, Group
from zerochat.group.state.joins import ENDS
from zerochat.sim.dial_index import DialIndex
from zerochat.sim.file_store import FileEffect, file_of
from zerochat.sim.invariants import main_groups
from zerochat.sim.node import Node, Violation
from zerochat.sim.web import SimulatedWeb
from zerochat.sim.world import Faults, World

NOTICED_MS = 3_500
"""A line without traffic for this long counts as broken (heartbeats of `agent/network/`)."""
REDIAL_MS_MAX = 2_000
"""A broken line is dialled again within this time."""
REBOOT_MS = 1_000
CRASH_EFFECTS_MIN = (1, 2, 5, 12)
"""A process that crashes between effects does so in a step with at least this many."""
RETRY_MS = 5_000
"""Timers of a step that could not be committed fire again after this time (`agent/deferred_inputs.py`)."""

_JOURNAL_EFFECTS = frozenset(get_args(JournalEffect))
"""Concrete classes: a set lookup is much faster than `isinstance`."""

Pair = tuple[str, str]
"""From the first node to the second."""


class DiskFull(LocalError):
    """There is no space left on the simulated disk."""


class MachineOff(LocalError):
    """The simulated machine is off."""


class Machine(Struct):
    """The faults of one node's machine."""

    off: bool = False
    crash_seed: int | None = None
    """The process ends in the next step with enough effects; the seed determines where (`crash_point`)."""
    off_ms: int = 0
    """How long the machine stays off then."""
    full: bool = False
    """Whether the disk is full: commits fail."""
    clock_offset_ms: int = 0
    """Clock error."""
    reported_offset_ms: int = 0
    """The part of the clock error that the process was informed of."""
    rebooted: bool = False
    """Whether the machine has rebooted since its process last ran."""
    slow_ms: int = 0
    """Extra delay of frames to the node."""
    on_disk: tuple[Agent, list[StoreEvent]] | None = None
    """For a lazy disk: what a power cut would leave."""
    unsynced_steps: int = 0
    """Steps since then."""
    pending_start: Started | None = None
    """The start input that could not be committed yet."""


def crash_point(lot: int, said: int) -> int | None:
    """Number of effects after which the process ends; -1: before the commit; None: not in this step, which has too few
    effects. Most steps have hardly any, and order matters in the others."""
    if lot % 8 == 0:
        return -1
    return lot // 32 % (said + 1) if said >= CRASH_EFFECTS_MIN[lot // 8 % 4] else None


class LineFaults(Struct):
    """The faults of lines, each until a time."""

    cut: dict[Pair, int] = field(default_factory=dict)
    clogged: dict[Pair, int] = field(default_factory=dict)
    garbled: dict[Pair, int] = field(default_factory=dict)
    broken: set[frozenset[str]] = field(default_factory=set)
    """Lines that both ends have noticed to be cut."""


class FaultyWorld(World):
    """Nodes that already know each other (`fork`), under all kinds of faults."""

    lines: LineFaults
    machines: dict[str, Machine]
    sync_every_steps = 0
    """A lazy disk persists every so many steps; 0: always."""
    on_restart: Callable[[str], None]
    """Called after a node's process has restarted."""
    posted_files: dict[str, bytes]
    """Contents of the posted files by id."""
    fault_count: int
    """Number of faults, packet faults excluded."""

    @classmethod
    def fork(cls, begun: World, seed: int, faults: Faults) -> "FaultyWorld":
        """A copy of a world with its own seed."""
        world = object.__new__(cls)
        vars(world).update(vars(begun))
        world.seed, world.rng, world.faults, world.began = seed, random.Random(seed), faults, begun.now
        world.digest, world.steps = hashlib.sha256(str(seed).encode()), 0
        world.authored, world._queue = set(begun.authored), list(begun._queue)
        world.web = SimulatedWeb(world, faults.loss / 4, faults.delay_ms_max)
        world.nodes = {name: node.copy() for name, node in begun.nodes.items()}
        world._at = {node.server_key: node for node in world.nodes.values()}
        world._dials = DialIndex()
        for node in world.nodes.values():
            world._dials.add_node(node)
        world.posted_files, world._before_next = {}, {}
        world.lines, world.machines, world.fault_count = LineFaults(), {name: Machine() for name in world.nodes}, 0
        world.on_restart, world.check_deliveries = lambda name: None, True
        return world

    # --- steps ------------------------------------------------------------------------------------------------------

    def run_command(self, name: str, command: Command) -> Effect:
        if self.machines[name].off:
            return CommandFailed(0, MachineOff())
        self._ticket += 1
        self.process(name, CommandInput(self._ticket, command))
        return self.nodes[name].answers.pop(self._ticket, CommandFailed(0, MachineOff()))

    def process(self, name: str, input_: Input) -> None:
        node, machine = self.nodes[name], self.machines[name]
        if not isinstance(input_, ClockSet | Started):  # a process starts before any other input
            self._report_clock_change(name)
        if machine.off:
            return
        if machine.pending_start is not None and not isinstance(input_, Started):
            self._start_again(name)
        before = node.agent
        effects = self._step(node, input_)
        if machine.full:
            self._undo(node, before, input_)
            return
        if machine.crash_seed is not None and crash_point(machine.crash_seed, 0) == -1:
            self._undo(node, before, input_)
            self._crash(node)
            return
        if self.sync_every_steps:
            self._sync_lazily(node, machine, before)
        spoken: list[Effect] = []
        for effect in effects:
            if type(effect) not in _JOURNAL_EFFECTS:
                spoken.append(effect)
                continue
            self._perform(node, effect)
        last = None if machine.crash_seed is None else crash_point(machine.crash_seed, len(spoken))
        for effect in spoken[:last]:
            self._perform(node, effect)
        if last is not None:
            self._crash(node)

    def _undo(self, node: Node, before: Agent, input_: Input) -> None:
        """Roll back a step that could not be committed (as the agent loop does)."""
        node.agent = before
        match input_:
            case CommandInput(ticket):
                node.answers[ticket] = CommandFailed(ticket, DiskFull())
            case TimerFired(key):
                node.timers[key] = self.now + RETRY_MS
                self._later(RETRY_MS, node.name, key)
            case LinkUp(link) | LinkDown(link):
                self.after(RETRY_MS, lambda: self._replay_link_state(node, link))
            case Started():
                self.machines[node.name].pending_start = input_
                self.after(RETRY_MS, partial(self._start_again, node.name))
            case ClockSet(by_ms):
                self.machines[node.name].reported_offset_ms -= by_ms

    def _start_again(self, name: str) -> None:
        """Process the start input again, before any other input."""
        start, self.machines[name].pending_start = self.machines[name].pending_start, None
        if start is not None:
            self.process(name, start)

    def _replay_link_state(self, node: Node, link: bytes) -> None:
        """Report the current state of a link instead of the change that could not be committed."""
        self.process(node.name, LinkUp(link) if link in node.connected else LinkDown(link))

    def _sync_lazily(self, node: Node, machine: Machine, before: Agent) -> None:
        if machine.on_disk is None or machine.unsynced_steps >= self.sync_every_steps:
            machine.on_disk, machine.unsynced_steps = (before, list(node.log)), 0
        machine.unsynced_steps += 1

    def _clock(self, node: Node) -> int:
        return self.now + self.machines[node.name].clock_offset_ms

    # --- machines ---------------------------------------------------------------------------------------------------

    def _crash(self, node: Node) -> None:
        machine = self.machines[node.name]
        machine.crash_seed = None
        self.power_off(node.name, machine.off_ms)

    def power_off(self, name: str, for_ms: int) -> None:
        """End the process now and restart it later."""
        node, machine = self.nodes[name], self.machines[name]
        if machine.off:
            return
        # A start that could not be committed is repeated as a first start.
        machine.rebooted |= machine.pending_start is not None and machine.pending_start.rebooted
        machine.off, machine.pending_start = True, None
        self.stop(name)
        if machine.on_disk is not None:
            node.agent, node.log = machine.on_disk
            machine.on_disk = None
        self.after(for_ms, lambda: self.power_on(name))

    def power_on(self, name: str) -> None:
        machine = self.machines[name]
        if machine.off:
            machine.off = False
            anew, machine.rebooted = machine.rebooted, False
            self.start(name, anew=anew)
            if self.posted_files:
                self.process(name, self.nodes[name].files.found())
            self._report_clock_change(name)
            self.on_restart(name)

    def set_clock(self, name: str, ahead_ms: int) -> None:
        """Set a node's clock; the machine reports the change. A rebooting machine is left alone: it could not detect
        the change."""
        if self.machines[name].rebooted:
            return
        self.machines[name].clock_offset_ms = ahead_ms
        self._report_clock_change(name)

    def reboot(self, name: str, ahead_ms: int) -> None:
        """Restart the machine with a wrong clock, without a report of the change."""
        machine = self.machines[name]
        machine.clock_offset_ms = machine.reported_offset_ms = ahead_ms
        machine.rebooted = True
        self.power_off(name, REBOOT_MS)

    def _report_clock_change(self, name: str) -> None:
        machine = self.machines[name]
        if not machine.off and machine.clock_offset_ms != machine.reported_offset_ms:
            by_ms, machine.reported_offset_ms = (
                machine.clock_offset_ms - machine.reported_offset_ms,
                machine.clock_offset_ms,
            )
            self.process(name, ClockSet(by_ms))

    # --- lines ------------------------------------------------------------------------------------------------------

    def cut(self, pairs: list[Pair], for_ms: int) -> None:
        """Drop frames from the first to the second of each pair; after a while both ends notice."""
        for pair in pairs:
            self.lines.cut[pair] = max(self.lines.cut.get(pair, 0), self.now + for_ms)
        self.after(NOTICED_MS, lambda: self._notice(pairs))
        self.after(for_ms + 1, lambda: self._mend(pairs))

    def _notice(self, pairs: list[Pair]) -> None:
        for pair in pairs:
            if self.lines.cut.get(pair, 0) > self.now and frozenset(pair) not in self.lines.broken:
                self.reset(*pair)
                self.lines.broken.add(frozenset(pair))

    def _mend(self, pairs: list[Pair]) -> None:
        for one, other in pairs:
            if max(self.lines.cut.get((one, other), 0), self.lines.cut.get((other, one), 0)) <= self.now:
                self.lines.broken.discard(frozenset((one, other)))
        self._dials.retry()
        self.after(self.rng.randint(1, REDIAL_MS_MAX), self._connect_all)

    def reset(self, one: str, other: str) -> None:
        """Break the connections between two nodes; they are dialled again unless the line is cut."""
        for name, end in ((one, other), (other, one)):
            node = self.nodes[name]
            for link in [link for link, there in node.connected.items() if there == end]:
                self._disconnect(node, link)
        self.after(self.rng.randint(1, REDIAL_MS_MAX), self._connect_all)

    def heal(self, loss: float = 1.0) -> None:
        """End all faults and reconnect; packet loss remains, up to `loss`."""
        self.lines, self.faults = LineFaults(), replace(self.faults, loss=min(self.faults.loss, loss))
        self._dials.retry()
        for name, machine in self.machines.items():
            machine.full, machine.slow_ms, machine.crash_seed = False, 0, None
            self.power_on(name)
            self.set_clock(name, 0)
        self._connect_all()

    def _ends(self, node: Node, link: bytes) -> tuple[Node, AllowClient] | None:
        ends = super()._ends(node, link)
        broken = self.lines.broken
        if broken and ends is not None and frozenset((node.name, ends[0].name)) in broken:
            return None
        return ends

    def _frame(self, name: str, input_: Received) -> None:
        lines, sender = self.lines, self.nodes[name].connected.get(input_.link, "")
        way = sender, name
        if lines.cut.get(way, 0) > self.now:
            self._trace_lost(name, input_, "is lost: the line is cut")
            return
        if lines.garbled.get(way, 0) > self.now:
            self._trace_lost(name, input_, "has a bit flipped")
            input_ = self._garbled(input_)
        late = max(0, lines.clogged.get(way, 0) - self.now) + self.machines[name].slow_ms
        self._arrive(name, input_, late)

    def _garbled(self, input_: Received) -> Received:
        """The frame with one bit flipped."""
        changed = bytearray(input_.envelope)
        changed[self.rng.randrange(len(changed))] ^= 1 << self.rng.randrange(8)
        return Received(input_.link, bytes(changed), input_.handle)

    # --- files ------------------------------------------------------------------------------------------------------

    def attach(self, name: str, data: bytes) -> None:
        """Post a file."""
        group, file = self.group(name).id, file_of("a file", data)
        self.nodes[name].files.put(group, file.id, data)
        self.posted_files[file.id] = data
        self.run_command(name, SendPost(group, "look", files=(file,)))

    def _file(self, node: Node, effect: FileEffect) -> None:
        answer = node.files.perform(effect)
        if answer is not None:
            self._later(1, node.name, answer)

    def missing_in(self, active: dict[str, Group]) -> Iterator[str]:
        yield from super().missing_in(active)
        for file in self.posted_files:
            has = {name for name, group in active.items() if file in group.files and group.files[file].state == "here"}
            for name, group in active.items():
                near = any(active[other].me in group.links.peers for other in has)
                if near and name not in has and file in group.files:
                    yield f"{name} lacks a file that another member has"

    def _check_files(self) -> None:
        """Raise Violation if a complete file differs from the posted one."""
        for node in self.nodes.values():
            for group in node.agent.groups.values():
                for key, one in group.files.items():
                    if one.state == "here" and node.files.content(group.id, key) != self.posted_files[key]:
                        raise Violation(f"seed {self.seed}: {node.name} has another file than was posted")

    # --- invariants -------------------------------------------------------------------------------------------------

    def _not_joined(self) -> Iterator[str]:
        """Joiners that never completed. A node that has not tried counts as fine, and so does one that waits for an
        inviter who has left."""
        open_ = {one.invitation.id for node in self.nodes.values() for one in node.agent.invitations.values()}
        for name, node in self.nodes.items():
            joins = [join for join in node.agent.joins.values() if join.state not in ENDS]
            if not node.agent.groups and any(not join.pending_tries or join.invitation.id in open_ for join in joins):
                yield f"{name} is not in the group"

    def check(self) -> None:
        super().check()
        self._check_files()
        self._check_gone()

    def _check_gone(self) -> None:
        """Raise Violation unless every absent member left or was removed, and every departure is known."""
        groups = {name: group for name, node in self.nodes.items() for group in main_groups(node)}
        if not groups:
            return
        everything, active = self._merged_view(groups), self.active_groups()
        for name, group in groups.items():
            # A member that left after its removal does not return if the removal becomes void.
            remove_member = any(
                one.type == REMOVE and remove_of(one).member == group.me for one in group.control.values()
            )
            if group.state == "left" and group.me in everything.members and not remove_member:
                raise Violation(f"seed {self.seed}: {name} is out without a removal")
            farewell = [key for key, one in group.control.items() if (one.type, one.author) == (LEAVE, group.me)]
            heard = any(key in one.control for key in farewell for one in active.values())
            if group.state == "left" and farewell and active and not heard and group.me not in everything.removed:
                raise Violation(f"seed {self.seed}: {name} has left and no member knows it")
