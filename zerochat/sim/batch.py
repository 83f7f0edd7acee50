"""Many histories, one after the other or several at a time in processes of their own; what is said of them has one
order."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from zerochat.sim.byzantine import Tally, play_byzantine
from zerochat.sim.history import play
from zerochat.sim.world import Faults, Violation, World

PROGRESS_S = 10.0
"""How often it is said how far it has come."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How each history of a batch is played."""

    faults: Faults = Faults()
    byzantine: bool = False
    twice: bool = False
    trace: bool = False


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one history."""

    seed: int
    steps: int = 0
    violation: str = ""
    tally: Tally = field(default_factory=Tally)


def play_one(plan: Plan, seed: int) -> Played:
    """Play the history of one seed; twice where it is to be compared."""
    tally, steps = Tally(), 0
    try:
        world = _play(plan, seed, tally)
        steps = world.steps
        if plan.twice and _play(plan, seed, Tally()).digest.digest() != world.digest.digest():
            raise Violation(f"seed {seed}: a second run went another way")
    except Violation as violation:
        return Played(seed, steps, str(violation), tally)
    return Played(seed, steps, "", tally)


def _play(plan: Plan, seed: int, tally: Tally) -> World:
    say = print if plan.trace else None
    if plan.byzantine:
        return play_byzantine(seed, faults=plan.faults, say=say, tally=tally)
    return play(seed, faults=plan.faults, say=say)


def play_all(plan: Plan, seeds: Sequence[int], jobs: int) -> Iterator[Played]:
    """What came of each of these seeds, in their order, played in so many processes."""
    if jobs == 1:
        yield from map(partial(play_one, plan), seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(partial(play_one, plan), seeds)


def main(arguments: list[str] | None = None) -> int:
    """`python -m zerochat.sim`: play many seeds, or tell the story of one."""
    parser = argparse.ArgumentParser(prog="python -m zerochat.sim", description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many histories, from --first on (default 100)")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, help="play this one only")
    parser.add_argument("--loss", type=float, default=Faults().loss)
    parser.add_argument("--duplication", type=float, default=Faults().duplication)
    parser.add_argument("--byzantine", action="store_true", help="have some members break the rules")
    parser.add_argument("--trace", "--verbose", action="store_true", help="tell what happens (in one process)")
    parser.add_argument("--twice", action="store_true", help="play each seed twice and compare")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time, each in a process of its own")
    options = parser.parse_args(arguments)
    plan = Plan(Faults(options.loss, options.duplication), options.byzantine, options.twice, options.trace)
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    kind, tally = " --byzantine" if options.byzantine else "", Tally()
    begun, steps, broken = time.monotonic(), 0, 0
    told = begun
    for count, one in enumerate(play_all(plan, seeds, 1 if options.trace else options.jobs), 1):
        steps += one.steps
        tally.add(one.tally)
        if one.violation:
            broken += 1
            again = f"python -m zerochat.sim{kind} --seed {one.seed} --verbose"
            print(f"{one.violation}\n  again: {again}", file=sys.stderr)
        now = time.monotonic()
        if now >= told + PROGRESS_S:
            told = now
            pace = count / (now - begun)
            print(f"{count} of {len(seeds)} histories, {broken} broken, {pace:.1f} a second", file=sys.stderr)
    if options.byzantine:
        print(tally.table())
    print(f"{len(seeds)} histories, {broken} broken, {steps} steps, {time.monotonic() - begun:.1f} s")
    return 1 if broken else 0
