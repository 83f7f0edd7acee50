"""Transactions of simulated histories, to be written to real journals."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

from zerochat.group.effects import JournalEffect
from zerochat.group.state import Agent
from zerochat.sim import Node, World, play_history


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One turn of one agent: what `Journal.commit` is given."""

    state: Agent
    remembered: tuple[JournalEffect, ...]


@cache
def histories(seed: int, members: int = 4, posts: int = 12) -> tuple[tuple[Step, ...], ...]:
    """One history, for each of its members all turns in which something has changed, in their order."""
    steps: dict[str, list[Step]] = {}
    effects: list[JournalEffect] = []
    process, store = World.process, Node.store

    def processed(world: World, name: str, input_: Any) -> None:
        node = world.nodes[name]
        before = node.agent
        effects.clear()
        process(world, name, input_)
        if effects or node.agent is not before:
            steps.setdefault(name, []).append(Step(node.agent, tuple(effects)))

    def stored(node: Node, effect: JournalEffect) -> None:
        effects.append(effect)
        store(node, effect)

    with patch.object(World, "process", processed), patch.object(Node, "store", stored):
        play_history(seed, members, posts)
    return tuple(map(tuple, steps.values()))


def together(steps: Sequence[Step]) -> Step:
    """Several turns' work in one, as when much comes in at once."""
    return Step(steps[-1].state, tuple(effect for step in steps for effect in step.remembered))
