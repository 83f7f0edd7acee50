"""Whole histories: a group is founded, people join, talk and leave, while the network does its worst."""

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict

from zerochat.didcomm.invitation import Invitation
from zerochat.group.effects import (
    Answer,
    InvitationCreated,
)
from zerochat.group.modes import MODES
from zerochat.group.stimuli import (
    AcceptInvitation,
    CreateGroup,
    CreateInvitation,
    LeaveGroup,
    SendPost,
)
from zerochat.sim.world import Faults, Violation, World

MEDIATED_EVERY = 4
JOIN_AGAIN_MS = 70_000
TROUBLE_MS, AWAY_MS_MAX = 30_000, 30_000
"""How long the web makes trouble, and how long a mediator may be away."""


def play(
    seed: int,
    members: int | None = None,
    posts: int = 12,
    faults: Faults | None = None,
    say: Callable[[str], None] | None = None,
) -> World:
    """One whole history: a group is founded, people join while others talk, one may leave, and all must agree.

    Returns the world at its end. Raises Violation with the seed when a promise is broken.
    """
    world = World(seed, members or 3 + seed % 3, faults, say=say, **_mediated(seed, members or 3 + seed % 3))
    _trouble(world)
    dice, names = world.dice, list(world.nodes)
    keys = list(MODES)[seed % 7 % len(MODES)]
    world.ask(names[0], CreateGroup("sim", names[0], world.envelope, keys))
    group = world.group(names[0]).id
    talked = 0

    def talk(most: int) -> None:
        nonlocal talked
        for _ in range(dice.randint(0, most)):
            inside = [n for n in names if n in world.nodes and world.nodes[n].agent.groups]
            speaker = dice.choice(inside)
            if talked < posts and world.group(speaker).state == "active":
                talked += 1
                world.ask(speaker, SendPost(group, f"word {talked}"))
            world.run(for_ms=dice.randint(0, 300))

    for name in names[1:]:
        insiders = [n for n in names if world.nodes[n].agent.groups and world.group(n).state == "active"]
        inviter = dice.choice(insiders)
        answer = world.ask(inviter, CreateInvitation(group, 86_400, 1))
        assert isinstance(answer, Answer) and isinstance(answer.result, InvitationCreated)
        _join(world, name, answer.result.invitation)
        talk(3)
        if dice.random() < 0.6:  # else the next one joins while this one still does
            world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=300_000)  # type: ignore[misc]
    for name in names:
        if not world.run(lambda name=name: bool(world.nodes[name].agent.groups), for_ms=600_000):  # type: ignore[misc]
            raise Violation(f"seed {seed}: {name} never got into the group")
    if dice.random() < 0.3:
        talk(3)
        world.ask(dice.choice(names[1:]), LeaveGroup(group))
    while talked < posts:
        talk(4)
    world.run(lambda: world.seated() and not any(world.missing()), for_ms=1_800_000)
    world.check()
    return world


def _join(world: World, name: str, invitation: Invitation) -> None:
    """Begin to join; the core itself repeats what the network loses. A mediator may be away for longer than a joiner
    has patience: then it tries again."""

    def again() -> None:
        if not world.nodes[name].agent.groups:
            world.ask(name, AcceptInvitation(invitation, name))
            world.after(JOIN_AGAIN_MS, again)

    world.ask(name, AcceptInvitation(invitation, name))
    if world.web.mediators:
        world.after(JOIN_AGAIN_MS, again)


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
    if world.faults.loss == 0 or not web.mediators:
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


def main(arguments: list[str] | None = None) -> int:
    """`python -m zerochat.sim`: play many seeds, or tell the story of one."""
    parser = argparse.ArgumentParser(prog="python -m zerochat.sim", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many histories, from --first on (default 100)")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="play this one only")
    parser.add_argument("--loss", type=float, default=Faults().loss)
    parser.add_argument("--duplication", type=float, default=Faults().duplication)
    parser.add_argument("--trace", action="store_true", help="tell what happens")
    parser.add_argument("--twice", action="store_true", help="play each seed twice and compare")
    options = parser.parse_args(arguments)
    faults = Faults(options.loss, options.duplication)
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    begun, steps, failed = time.monotonic(), 0, []
    for seed in seeds:
        try:
            world = play(seed, faults=faults, say=print if options.trace else None)
            steps += world.steps
            if options.twice and play(seed, faults=faults).digest.digest() != world.digest.digest():
                raise Violation(f"seed {seed}: a second run went another way")
        except Violation as violation:
            failed.append(seed)
            print(f"{violation}\n  again: python -m zerochat.sim --seed {seed} --trace", file=sys.stderr)
    took = time.monotonic() - begun
    print(f"{len(seeds)} histories, {len(failed)} broken, {steps} steps, {took:.1f} s")
    return 1 if failed else 0
