"""Whole histories: a group is created, members join, post and leave, under network faults."""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from zerochat.group.inputs import CreateGroup
from zerochat.group.key_modes import MODES
from zerochat.group.membership import Policy
from zerochat.sim.actions import Users, random_accountability, random_policy, random_rotation
from zerochat.sim.fast_crypto import cached_signatures
from zerochat.sim.low_limits import with_low_limits
from zerochat.sim.world import Faults, Violation, World

MEDIATED_EVERY = 4
FAULTS_MS, AWAY_MS_MAX = 30_000, 30_000
"""Duration of web faults, and the longest outage of a mediator."""
RESTART_EVERY = 5
"""In one history of so many, a process restarts."""


@cached_signatures()
@with_low_limits
def play_history(
    seed: int,
    members: int | None = None,
    posts: int = 12,
    faults: Faults | None = None,
    trace: Callable[[str], None] | None = None,
    on_world: Callable[[World], None] | None = None,
) -> World:
    """One whole history: members join while others post, change names, roles and keys, remove members or leave; in the
    end all members must agree.

    `on_world` receives the world before the run. Returns the world; raises Violation.
    """
    count = members or 3 + seed % 3
    world = World(seed, count, faults, trace=trace, **_mediator_arguments(seed, count))
    world.check_deliveries = True
    if on_world:
        on_world(world)
    world.set_rotation(random_rotation(f"{seed}"))
    _schedule_faults(world)
    rng, names = random.Random(f"people {seed}"), list(world.nodes)
    lots, upgrades = random.Random(f"looks {seed}"), random.Random(f"upgrades {seed}")
    people = Users(world, rng, names)
    world.on_notification = people.on_notification
    policy = Policy() if seed % 3 == 0 else random_policy(rng)
    keys = list(MODES)[seed % 7 % len(MODES)]
    chosen = world.envelope, keys, policy, random_accountability(keys, f"{seed}")
    world.run_command(names[0], CreateGroup("sim", names[0], *chosen))
    deeds = rng.randint(0, 6)

    def pass_time(most: int) -> None:
        nonlocal deeds
        for _ in range(rng.randint(0, most)):
            if people.posted < posts:
                people.post()
            if deeds and rng.random() < 0.4:
                deeds -= 1
                people.act()
            people.upgrade_rarely(upgrades)
            world.run(for_ms=rng.randint(0, 300))
            world.check_node(lots.choice(names))

    def inside(name: str) -> bool:
        return bool(world.nodes[name].agent.groups)

    for name in names[1:]:
        people.join(name, names)
        pass_time(3)
        if rng.random() < 0.6:  # otherwise the next one joins concurrently
            world.run(lambda name=name: inside(name), for_ms=300_000)  # type: ignore[misc]
    for name in names:
        if not world.run(lambda name=name: inside(name) or not people.active(), for_ms=900_000):  # type: ignore[misc]
            raise Violation(f"seed {seed}: {name} never joined the group")
    while people.posted < posts and people.active():
        pass_time(4)
    world.run(lambda: world.fully_connected() and not any(world.missing()), for_ms=1_800_000)
    if people.active():
        world.check()
    world.check_joins()
    return world


def _mediator_arguments(seed: int, members: int) -> "MediatorArguments":
    """In one history of four, some members only dial out, behind one or two mediators."""
    if seed % MEDIATED_EVERY != MEDIATED_EVERY - 1:
        return {}
    rng = random.Random(f"mediated {seed}")
    mediators = rng.randint(1, 2)
    chained = mediators == 2 and rng.random() < 0.4
    hidden = rng.sample([f"n{number}" for number in range(members)], rng.randint(1, 2))
    everyone = [f"m{number}" for number in range(mediators)]
    behind = {name: [everyone[-1]] if chained else rng.sample(everyone, rng.randint(1, mediators)) for name in hidden}
    return {"mediators": mediators, "behind": behind, "chained": chained}


class MediatorArguments(TypedDict, total=False):
    """The arguments of a world with mediators."""

    mediators: int
    behind: Mapping[str, Sequence[str]]
    chained: bool


def _schedule_faults(world: World) -> None:
    """Schedule broken WebSockets, outages of mediators and restarts."""
    rng, web = world.rng, world.web
    if world.faults.loss == 0:
        return
    if not web.mediators:
        if world.seed % RESTART_EVERY == 0:
            node = rng.choice(list(world.nodes))
            world.after(rng.randint(0, FAULTS_MS), lambda: world.restart(node))
        return
    for node in rng.sample(list(world.nodes), rng.randint(0, 2)):
        world.after(rng.randint(0, FAULTS_MS), lambda node=node: world.restart(node))  # type: ignore[misc]
    for name, mediator in web.mediators.items():
        for _ in range(rng.randint(0, 3)):
            begin = rng.randint(0, FAULTS_MS)
            world.after(begin, lambda name=name: web.stop_mediator(name))  # type: ignore[misc]
            world.after(begin + rng.randint(1_000, AWAY_MS_MAX), lambda name=name: web.start_mediator(name))  # type: ignore[misc]
        for node in world.nodes:
            for _ in range(rng.randint(0, 6)):
                world.after(rng.randint(0, FAULTS_MS), lambda node=node, uri=mediator.ws: web.cut(node, uri))  # type: ignore[misc]
