"""A world in which everything around the core goes wrong: lines, machines, disks and clocks.

Lines are cut in one direction or both, between two or between all of two parts, clogged, slowed down, reset, or garble
what they carry; a process ends at any moment, also between a turn's being remembered and any of what it says; a disk is
full for a while; a clock is set, also while no process runs.
What a node has remembered is on its disk from then on, as behind the real core (`agent/loop.py`); a disk that is
`lazy` only says so, which nothing but a test asks for.
"""

import hashlib
import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import get_args

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.errors import LocalError
from zerochat.group.effects import Admit, Effect, Refuse, Remember, Remembered
from zerochat.group.event_log.event import LEAVE, REMOVE
from zerochat.group.inputs import (
    Ask,
    ClockSet,
    Command,
    LinkDown,
    LinkUp,
    Received,
    SendPost,
    Started,
    Stimulus,
    TimerFired,
)
from zerochat.group.membership import remove_of
from zerochat.group.state import Agent, Group
from zerochat.sim.file_store import FileEffect, file_of
from zerochat.sim.node import Node, Violation
from zerochat.sim.web import SimulatedWeb
from zerochat.sim.world import Faults, World

NOTICED_MS = 3_500
"""A line over which nothing has come for so long is taken for broken (the heartbeats of `agent/net/`)."""
REDIAL_MS_MAX = 2_000
"""A broken line that could be there again is dialled within so long."""
REBOOT_MS = 1_000
SAYS_MIN = (1, 2, 5, 12)
"""A process that dies in the middle of a turn does so in one that says so much, or more."""
RETRY_MS = 5_000
"""After a turn that could not be remembered, its timers come again this much later (`agent/loop.py`)."""

_REMEMBERED = frozenset(get_args(Remembered))
"""A set of classes, none of which has others below it: to look one up takes a fraction of what `isinstance` does."""

Pair = tuple[str, str]
"""Two nodes: from the first to the second."""


class DiskFull(LocalError):
    """There is no space left on the simulated disk."""


class Off(LocalError):
    """The simulated machine is off."""


class Machine(Struct):
    """What is wrong with one node's machine, beside what its core knows."""

    off: bool = False
    dies: int | None = None
    """Its process ends in the next turn that says enough: at which moment of that turn is drawn from this number
    (`moment_of_death`)."""
    off_ms: int = 0
    """And for how long it stays off then."""
    full: bool = False
    """Nothing can be remembered."""
    ahead_ms: int = 0
    """By how much its clock is wrong."""
    known_ms: int = 0
    """By how much its process knows that it was set."""
    anew: bool = False
    """It has started anew since its process last ran."""
    slow_ms: int = 0
    """By how much later everything reaches it."""
    kept: tuple[Agent, list[Remember]] | None = None
    """Where its disk is lazy: what would be left after a power cut."""
    unkept: int = 0
    """The turns since then."""
    start: Started | None = None
    """That its process has begun, where that could not be remembered yet."""


def moment_of_death(lot: int, said: int) -> int | None:
    """After how many of the things that a turn says its process ends; -1: before the turn is remembered; None: in
    another turn, for this one says too little. Most say next to nothing, and order matters in the others."""
    if lot % 8 == 0:
        return -1
    return lot // 32 % (said + 1) if said >= SAYS_MIN[lot // 8 % 4] else None


class Lines(Struct):
    """What is wrong with the lines from one node to another, each until some moment of the world's time."""

    cut: dict[Pair, int] = field(default_factory=dict)
    clogged: dict[Pair, int] = field(default_factory=dict)
    garbled: dict[Pair, int] = field(default_factory=dict)
    broken: set[frozenset[str]] = field(default_factory=set)
    """Of these both ends have noticed it."""


class Ordeal(World):
    """Nodes that already know each other (`fork`), and everything that can happen to them."""

    lines: Lines
    machines: dict[str, Machine]
    lazy_turns = 0
    """Every so many turns a disk really keeps what it was told to; 0: always."""
    started: Callable[[str], None]
    """Told whenever a node's process has started again."""
    posted: dict[str, bytes]
    """By id: what was in the files that somebody has posted."""
    done: int
    """How many faults there were, beside what happens to each frame."""

    @classmethod
    def fork(cls, begun: World, seed: int, faults: Faults) -> "Ordeal":
        """The same nodes as they are in `begun`, which is left as it is, with dice of their own from now on."""
        world = object.__new__(cls)
        vars(world).update(vars(begun))
        world.seed, world.dice, world.faults, world.began = seed, random.Random(seed), faults, begun.now
        world.digest, world.steps = hashlib.sha256(str(seed).encode()), 0
        world.made, world._queue = set(begun.made), list(begun._queue)
        world.web = SimulatedWeb(world, faults.loss / 4, faults.delay_ms_max)
        world.nodes = {name: node.copy() for name, node in begun.nodes.items()}
        world._at = {node.server_key: node for node in world.nodes.values()}
        world.posted = {}
        world.lines, world.machines, world.done = Lines(), {name: Machine() for name in world.nodes}, 0
        world.started, world.watchful = lambda name: None, True
        return world

    # --- turns ------------------------------------------------------------------------------------------------------

    def ask(self, name: str, command: Command) -> Effect:
        if self.machines[name].off:
            return Refuse(0, Off())
        self._ticket += 1
        self.hear(name, Ask(self._ticket, command))
        return self.nodes[name].answers.pop(self._ticket, Refuse(0, Off()))

    def hear(self, name: str, stimulus: Stimulus) -> None:
        node, machine = self.nodes[name], self.machines[name]
        if not isinstance(stimulus, ClockSet | Started):  # nothing is heard before that a process has begun
            self._look_at_clock(name)
        if machine.off:
            return
        if machine.start is not None and not isinstance(stimulus, Started):
            self._start_again(name)
        before = node.agent
        effects = self._step(node, stimulus)
        if machine.full:
            self._undo(node, before, stimulus)
            return
        if machine.dies is not None and moment_of_death(machine.dies, 0) == -1:
            self._undo(node, before, stimulus)
            self._die(node)
            return
        if self.lazy_turns:
            self._keep_lazily(node, machine, before)
        spoken: list[Effect] = []
        for effect in effects:
            if type(effect) not in _REMEMBERED:
                spoken.append(effect)
                continue
            self._perform(node, effect)
        last = None if machine.dies is None else moment_of_death(machine.dies, len(spoken))
        for effect in spoken[:last]:
            self._perform(node, effect)
        if last is not None:
            self._die(node)

    def _undo(self, node: Node, before: Agent, stimulus: Stimulus) -> None:
        """The turn could not be remembered, so it has not happened (`AgentThread._undo`)."""
        node.agent = before
        match stimulus:
            case Ask(ticket):
                node.answers[ticket] = Refuse(ticket, DiskFull())
            case TimerFired(key):
                node.timers[key] = self.now + RETRY_MS
                self._later(RETRY_MS, node.name, key)
            case LinkUp(link) | LinkDown(link):
                self.after(RETRY_MS, lambda: self._tell_again(node, link))
            case Started():
                self.machines[node.name].start = stimulus
                self.after(RETRY_MS, partial(self._start_again, node.name))
            case ClockSet(by_ms):
                self.machines[node.name].known_ms -= by_ms

    def _start_again(self, name: str) -> None:
        """Before anything else is heard, if it could not be remembered (`AgentThread._wait`)."""
        start, self.machines[name].start = self.machines[name].start, None
        if start is not None:
            self.hear(name, start)

    def _tell_again(self, node: Node, link: bytes) -> None:
        """The last news of a link takes the place of what could not be remembered (`AgentThread._in_order`)."""
        self.hear(node.name, LinkUp(link) if link in node.connected else LinkDown(link))

    def _keep_lazily(self, node: Node, machine: Machine, before: Agent) -> None:
        if machine.kept is None or machine.unkept >= self.lazy_turns:
            machine.kept, machine.unkept = (before, list(node.log)), 0
        machine.unkept += 1

    def _clock(self, node: Node) -> int:
        return self.now + self.machines[node.name].ahead_ms

    # --- machines ---------------------------------------------------------------------------------------------------

    def _die(self, node: Node) -> None:
        machine = self.machines[node.name]
        machine.dies = None
        self.switch_off(node.name, machine.off_ms)

    def switch_off(self, name: str, for_ms: int) -> None:
        """The process ends now, and starts again after so long."""
        node, machine = self.nodes[name], self.machines[name]
        if machine.off:
            return
        # Whoever has begun and could not remember it begins for the first time again.
        machine.anew |= machine.start is not None and machine.start.anew
        machine.off, machine.start = True, None
        self.stop(name)
        if machine.kept is not None:
            node.agent, node.log = machine.kept
            machine.kept = None
        self.after(for_ms, lambda: self.switch_on(name))

    def switch_on(self, name: str) -> None:
        machine = self.machines[name]
        if machine.off:
            machine.off = False
            anew, machine.anew = machine.anew, False
            self.start(name, anew=anew)
            if self.posted:
                self.hear(name, self.nodes[name].files.found())
            self._look_at_clock(name)
            self.started(name)

    def set_clock(self, name: str, ahead_ms: int) -> None:
        """From now on the node's clock is wrong by so much; its machine notices that somebody has set it. Nobody sets
        that of one that is just starting: what it says then, nothing could tell from the truth."""
        if self.machines[name].anew:
            return
        self.machines[name].ahead_ms = ahead_ms
        self._look_at_clock(name)

    def reboot(self, name: str, ahead_ms: int) -> None:
        """The machine starts anew with a clock that is wrong by so much, and nothing tells that it was another one."""
        machine = self.machines[name]
        machine.ahead_ms = machine.known_ms = ahead_ms
        machine.anew = True
        self.switch_off(name, REBOOT_MS)

    def _look_at_clock(self, name: str) -> None:
        machine = self.machines[name]
        if not machine.off and machine.ahead_ms != machine.known_ms:
            by_ms, machine.known_ms = machine.ahead_ms - machine.known_ms, machine.ahead_ms
            self.hear(name, ClockSet(by_ms))

    # --- lines ------------------------------------------------------------------------------------------------------

    def cut(self, pairs: list[Pair], for_ms: int) -> None:
        """Nothing goes from the first to the second of each; after a while both ends notice."""
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
        self.after(self.dice.randint(1, REDIAL_MS_MAX), self._connect_all)

    def reset(self, one: str, other: str) -> None:
        """The connections between these two break; they come again unless something is in the way."""
        for name, end in ((one, other), (other, one)):
            node = self.nodes[name]
            for link in [link for link, there in node.connected.items() if there == end]:
                self._disconnect(node, link)
        self.after(self.dice.randint(1, REDIAL_MS_MAX), self._connect_all)

    def heal(self, loss: float = 1.0) -> None:
        """Nothing is wrong any more, and what is broken is dialled again; only frames are still lost now and then: of
        so many at the most."""
        self.lines, self.faults = Lines(), replace(self.faults, loss=min(self.faults.loss, loss))
        for name, machine in self.machines.items():
            machine.full, machine.slow_ms, machine.dies = False, 0, None
            self.switch_on(name)
            self.set_clock(name, 0)
        self._connect_all()

    def _ends(self, node: Node, link: bytes) -> tuple[Node, Admit] | None:
        ends = super()._ends(node, link)
        broken = self.lines.broken
        if broken and ends is not None and frozenset((node.name, ends[0].name)) in broken:
            return None
        return ends

    def _frame(self, name: str, stimulus: Received) -> None:
        lines, sender = self.lines, self.nodes[name].connected.get(stimulus.link, "")
        way = sender, name
        if lines.cut.get(way, 0) > self.now:
            self._tell_lost(name, stimulus, "is lost: the line is cut")
            return
        if lines.garbled.get(way, 0) > self.now:
            self._tell_lost(name, stimulus, "has a bit flipped")
            stimulus = self._garbled(stimulus)
        late = max(0, lines.clogged.get(way, 0) - self.now) + self.machines[name].slow_ms
        self._arrive(name, stimulus, late)

    def _garbled(self, stimulus: Received) -> Received:
        """With one bit of its envelope the other way round."""
        changed = bytearray(stimulus.envelope)
        changed[self.dice.randrange(len(changed))] ^= 1 << self.dice.randrange(8)
        return Received(stimulus.link, bytes(changed), stimulus.handle)

    # --- files ------------------------------------------------------------------------------------------------------

    def attach(self, name: str, data: bytes) -> None:
        """Somebody posts a file."""
        group, file = self.group(name).id, file_of("a file", data)
        self.nodes[name].files.put(group, file.id, data)
        self.posted[file.id] = data
        self.ask(name, SendPost(group, "look", files=(file,)))

    def _file(self, node: Node, effect: FileEffect) -> None:
        answer = node.files.do(effect)
        if answer is not None:
            self._later(1, node.name, answer)

    def lacking(self, active: dict[str, Group]) -> Iterator[str]:
        yield from super().lacking(active)
        for file in self.posted:
            has = {name for name, group in active.items() if file in group.files and group.files[file].state == "here"}
            for name, group in active.items():
                near = any(active[other].me in group.peers for other in has)
                if near and name not in has and file in group.files:
                    yield f"{name} lacks a file that somebody has"

    def _check_files(self) -> None:
        """Raise Violation where a file is called here that is not as it was posted."""
        for node in self.nodes.values():
            for group in node.agent.groups.values():
                for key, one in group.files.items():
                    if one.state == "here" and node.files.content(group.id, key) != self.posted[key]:
                        raise Violation(f"seed {self.seed}: {node.name} has another file than was posted")

    # --- what is wrong ----------------------------------------------------------------------------------------------

    def _outside(self) -> Iterator[str]:
        """Those who have begun to come in and never got there; whoever has not tried is no harm.

        Nor is whoever waits for the answer of somebody who has left: it is told so, and where that word gets lost it
        waits for a day.
        """
        open_ = {one.invitation.id for node in self.nodes.values() for one in node.agent.invitations.values()}
        for name, node in self.nodes.items():
            joins = [join for join in node.agent.joins.values() if join.phase != "failed"]
            if not node.agent.groups and any(not join.pending or join.invitation.id in open_ for join in joins):
                yield f"{name} is not in the group"

    def check(self) -> None:
        super().check()
        self._check_files()
        self._check_gone()

    def _check_gone(self) -> None:
        """Raise Violation unless whoever is out has left or was put out, and whoever has left was heard."""
        groups = {name: group for name, node in self.nodes.items() for group in node.agent.groups.values()}
        if not groups:
            return
        everything, active = self._together(groups), self.inside()
        for name, group in groups.items():
            # Whoever has gone because it was put out does not come back where that turns out to be void.
            put_out = any(one.type == REMOVE and remove_of(one).member == group.me for one in group.control.values())
            if group.state == "left" and group.me in everything.members and not put_out:
                raise Violation(f"seed {self.seed}: {name} is out, and nobody has wanted that")
            farewell = [key for key, one in group.control.items() if (one.type, one.author) == (LEAVE, group.me)]
            heard = any(key in one.control for key in farewell for one in active.values())
            if group.state == "left" and farewell and active and not heard and group.me not in everything.removed:
                raise Violation(f"seed {self.seed}: {name} has left, and nobody knows of it")
