"""What real cores want remembered: the turns of simulated histories, to be written to real journals."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any
from unittest.mock import patch

from zerochat.group.effects import Remembered
from zerochat.group.state import Agent
from zerochat.sim import Node, World, play


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One turn of one agent: what `Journal.commit` is given."""

    state: Agent
    remembered: tuple[Remembered, ...]


@cache
def histories(seed: int, members: int = 4, posts: int = 12) -> tuple[tuple[Step, ...], ...]:
    """One history, for each of its members all turns in which something has changed, in their order."""
    steps: dict[str, list[Step]] = {}
    said: list[Remembered] = []
    hear, remember = World.hear, Node.remember

    def heard(world: World, name: str, stimulus: Any) -> None:
        node = world.nodes[name]
        before = node.agent
        said.clear()
        hear(world, name, stimulus)
        if said or node.agent is not before:
            steps.setdefault(name, []).append(Step(node.agent, tuple(said)))

    def remembered(node: Node, effect: Remembered) -> None:
        said.append(effect)
        remember(node, effect)

    with patch.object(World, "hear", heard), patch.object(Node, "remember", remembered):
        play(seed, members, posts)
    return tuple(map(tuple, steps.values()))


def together(steps: Sequence[Step]) -> Step:
    """Several turns' work in one, as when much comes in at once."""
    return Step(steps[-1].state, tuple(effect for step in steps for effect in step.remembered))
