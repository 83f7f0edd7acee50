"""Whole histories: a group is founded, people join, talk and leave, while the network does its worst."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from zerochat.group.inputs import CreateGroup
from zerochat.group.key_modes import MODES
from zerochat.group.membership import Policy
from zerochat.sim.actions import People, drawn_accountability, drawn_policy, drawn_rotation
from zerochat.sim.crypto_cache import remembering
from zerochat.sim.low_limits import narrowed
from zerochat.sim.world import Faults, Violation, World

MEDIATED_EVERY = 4
TROUBLE_MS, AWAY_MS_MAX = 30_000, 30_000
"""How long the web makes trouble, and how long a mediator may be away."""
RESTART_EVERY = 5
"""In one history of so many somebody's process ends in the middle, and starts again."""


@remembering()
@narrowed
def play(
    seed: int,
    members: int | None = None,
    posts: int = 12,
    faults: Faults | None = None,
    say: Callable[[str], None] | None = None,
    made: Callable[[World], None] | None = None,
) -> World:
    """One whole history: a group is founded, people join while others talk, change names and roles, put somebody out
    or go, and all who are in must agree.

    `made`: handed the world before anything happens in it. Returns the world at its end. Raises Violation with the seed
    when a promise is broken.
    """
    count = members or 3 + seed % 3
    world = World(seed, count, faults, say=say, **_mediated(seed, count))
    world.watchful = True
    if made:
        made(world)
    world.set_rotation(drawn_rotation(f"{seed}"))
    _trouble(world)
    dice, names = random.Random(f"people {seed}"), list(world.nodes)
    lots = random.Random(f"looks {seed}")
    people = People(world, dice, names)
    world.heed = people.heed
    policy = Policy() if seed % 3 == 0 else drawn_policy(dice)
    keys = list(MODES)[seed % 7 % len(MODES)]
    world.ask(
        names[0], CreateGroup("sim", names[0], world.envelope, keys, policy, drawn_accountability(keys, f"{seed}"))
    )
    deeds = dice.randint(0, 6)

    def pass_time(most: int) -> None:
        nonlocal deeds
        for _ in range(dice.randint(0, most)):
            if people.said < posts:
                people.say()
            if deeds and dice.random() < 0.4:
                deeds -= 1
                people.do()
            world.run(for_ms=dice.randint(0, 300))
            world.look_at(lots.choice(names))

    def inside(name: str) -> bool:
        return bool(world.nodes[name].agent.groups)

    for name in names[1:]:
        people.join(name, names)
        pass_time(3)
        if dice.random() < 0.6:  # else the next one joins while this one still does
            world.run(lambda name=name: inside(name), for_ms=300_000)  # type: ignore[misc]
    for name in names:
        if not world.run(lambda name=name: inside(name) or not people.active(), for_ms=900_000):  # type: ignore[misc]
            raise Violation(f"seed {seed}: {name} never got into the group")
    while people.said < posts and people.active():
        pass_time(4)
    world.run(lambda: world.seated() and not any(world.missing()), for_ms=1_800_000)
    if people.active():
        world.check()
    for node in world.nodes.values():
        if any(join.contradiction is not None for join in node.agent.joins.values()):
            raise Violation(f"seed {seed}: {node.name} has evidence against members who keep the rules")
    return world


def _mediated(seed: int, members: int) -> "Mediated":
    """In one history of four some members only dial out, and one or two mediators take in what is for them."""
    if seed % MEDIATED_EVERY != MEDIATED_EVERY - 1:
        return {}
    dice = random.Random(f"mediated {seed}")
    mediators = dice.randint(1, 2)
    chained = mediators == 2 and dice.random() < 0.4
    hidden = dice.sample([f"n{number}" for number in range(members)], dice.randint(1, 2))
    everyone = [f"m{number}" for number in range(mediators)]
    behind = {name: [everyone[-1]] if chained else dice.sample(everyone, dice.randint(1, mediators)) for name in hidden}
    return {"mediators": mediators, "behind": behind, "chained": chained}


class Mediated(TypedDict, total=False):
    """The arguments of a world with mediators."""

    mediators: int
    behind: Mapping[str, Sequence[str]]
    chained: bool


def _trouble(world: World) -> None:
    """Have WebSockets break, mediators go away for a while, and nodes start again, now and then."""
    dice, web = world.dice, world.web
    if world.faults.loss == 0:
        return
    if not web.mediators:
        if world.seed % RESTART_EVERY == 0:
            node = dice.choice(list(world.nodes))
            world.after(dice.randint(0, TROUBLE_MS), lambda: world.restart(node))
        return
    for node in dice.sample(list(world.nodes), dice.randint(0, 2)):
        world.after(dice.randint(0, TROUBLE_MS), lambda node=node: world.restart(node))  # type: ignore[misc]
    for name, mediator in web.mediators.items():
        for _ in range(dice.randint(0, 3)):
            begin = dice.randint(0, TROUBLE_MS)
            world.after(begin, lambda name=name: web.take_down(name))  # type: ignore[misc]
            world.after(begin + dice.randint(1_000, AWAY_MS_MAX), lambda name=name: web.bring_back(name))  # type: ignore[misc]
        for node in world.nodes:
            for _ in range(dice.randint(0, 6)):
                world.after(dice.randint(0, TROUBLE_MS), lambda node=node, uri=mediator.ws: web.cut(node, uri))  # type: ignore[misc]
