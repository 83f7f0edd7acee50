"""A world in which processes crash and lines are cut."""

import random
from collections.abc import Callable
from typing import Any, get_args

from zerochat.errors import LocalError
from zerochat.group.effects import CommandFailed, Effect, JournalEffect
from zerochat.group.inputs import Command, Input, Received
from zerochat.sim.world import World

OFF_MS_MAX, CUT_MS_MAX = 20_000, 20_000
_JOURNAL_EFFECTS = frozenset(get_args(JournalEffect))


class MachineOff(LocalError):
    """The simulated machine is off."""


class FailingWorld(World):
    """Processes end between any two effects of a step and restart; lines are cut one way or both."""

    def __init__(self, *given: Any) -> None:
        self.cut: dict[tuple[str, str], int] = {}
        """Until when frames from the first node to the second are dropped."""
        self.down: set[str] = set()
        self.crashing: dict[str, int] = {}
        """Nodes that crash in their next step, with a seed for the moment."""
        self.on_restart: Callable[[str], None] = lambda name: None
        """Called after a node's process has restarted."""
        super().__init__(*given)

    def random_failure(self, rng: random.Random, name: str) -> None:
        """A random failure at this node."""
        other = rng.choice([one for one in self.nodes if one != name])
        match rng.randrange(4):
            case 0:
                self.kill(name, rng.randint(1, OFF_MS_MAX))
            case 1:
                self.crashing[name] = rng.getrandbits(16)
            case 2:
                self.cut[name, other] = self.now + rng.randint(1, CUT_MS_MAX)
            case _:
                self.cut[name, other] = self.cut[other, name] = self.now + rng.randint(1, CUT_MS_MAX)

    def heal(self) -> None:
        """End all failures."""
        self.cut.clear()
        self.crashing.clear()
        for name in sorted(self.down):
            self._restart_node(name)

    def kill(self, name: str, for_ms: int) -> None:
        """End a node's process; another one starts later."""
        self.down.add(name)
        self.stop(name)
        self.after(for_ms, lambda: self._restart_node(name))

    def _restart_node(self, name: str) -> None:
        if name in self.down:
            self.down.discard(name)
            self.start(name)
            self.on_restart(name)

    def run_command(self, name: str, command: Command) -> Effect:
        self.crashing.pop(name, None)  # a command cancels the crash: only received inputs crash a process
        return CommandFailed(0, MachineOff()) if name in self.down else super().run_command(name, command)

    def process(self, name: str, input_: Input) -> None:
        if name in self.down:
            return
        lot = self.crashing.pop(name, None)
        if lot is None:
            super().process(name, input_)
            return
        node = self.nodes[name]
        effects = self._step(node, input_)
        spoken = [one for one in effects if type(one) not in _JOURNAL_EFFECTS]
        for effect in effects:
            if type(effect) in _JOURNAL_EFFECTS:
                self._perform(node, effect)
        for effect in spoken[: lot % (len(spoken) + 1)]:
            self._perform(node, effect)
        self.kill(name, 1 + lot % OFF_MS_MAX)

    def _frame(self, name: str, input_: Received) -> None:
        sender = self.nodes[name].connected.get(input_.link, "")
        if self.cut.get((sender, name), 0) <= self.now:
            super()._frame(name, input_)
