"""A world in which the machines and lines of some fail for a while, beside whatever else its members do."""

import random
from collections.abc import Callable
from typing import Any, get_args

from zerochat.errors import LocalError
from zerochat.group.effects import Effect, Refuse, Remembered
from zerochat.group.inputs import Command, Received, Stimulus
from zerochat.sim.world import World

OFF_MS_MAX, CUT_MS_MAX = 20_000, 20_000
_REMEMBERED = frozenset(get_args(Remembered))


class Off(LocalError):
    """The simulated machine is off."""


class Fragile(World):
    """Processes die between any two things that a turn says, are started again, and lines are cut one way or both."""

    def __init__(self, *given: Any) -> None:
        self.cut: dict[tuple[str, str], int] = {}
        """Until when nothing goes from the first to the second."""
        self.off: set[str] = set()
        self.dying: dict[str, int] = {}
        """Whose process ends in its next turn, and a lot for when."""
        self.started: Callable[[str], None] = lambda name: None
        """Told whenever a node's process has started again."""
        super().__init__(*given)

    def mishap(self, dice: random.Random, name: str) -> None:
        """Something goes wrong at this node."""
        other = dice.choice([one for one in self.nodes if one != name])
        match dice.randrange(4):
            case 0:
                self.die(name, dice.randint(1, OFF_MS_MAX))
            case 1:
                self.dying[name] = dice.getrandbits(16)
            case 2:
                self.cut[name, other] = self.now + dice.randint(1, CUT_MS_MAX)
            case _:
                self.cut[name, other] = self.cut[other, name] = self.now + dice.randint(1, CUT_MS_MAX)

    def mend(self) -> None:
        """Nothing of the kind is wrong any more."""
        self.cut.clear()
        self.dying.clear()
        for name in sorted(self.off):
            self._come_back(name)

    def die(self, name: str, for_ms: int) -> None:
        """The node's process ends, and another one begins a little later."""
        self.off.add(name)
        self.stop(name)
        self.after(for_ms, lambda: self._come_back(name))

    def _come_back(self, name: str) -> None:
        if name in self.off:
            self.off.discard(name)
            self.start(name)
            self.started(name)

    def ask(self, name: str, command: Command) -> Effect:
        self.dying.pop(name, None)  # a process that is asked something lives on; others die of what they hear
        return Refuse(0, Off()) if name in self.off else super().ask(name, command)

    def hear(self, name: str, stimulus: Stimulus) -> None:
        if name in self.off:
            return
        lot = self.dying.pop(name, None)
        if lot is None:
            super().hear(name, stimulus)
            return
        node = self.nodes[name]
        effects = self._step(node, stimulus)
        spoken = [one for one in effects if type(one) not in _REMEMBERED]
        for effect in effects:
            if type(effect) in _REMEMBERED:
                self._perform(node, effect)
        for effect in spoken[: lot % (len(spoken) + 1)]:
            self._perform(node, effect)
        self.die(name, 1 + lot % OFF_MS_MAX)

    def _frame(self, name: str, stimulus: Received) -> None:
        sender = self.nodes[name].connected.get(stimulus.link, "")
        if self.cut.get((sender, name), 0) <= self.now:
            super()._frame(name, stimulus)
