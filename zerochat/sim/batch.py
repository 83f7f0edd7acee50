"""Many histories, one after the other or several at a time in processes of their own; what is said of them has one
order."""

import gc
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.sim.byzantine import Tally, play_byzantine
from zerochat.sim.episode import play_episode, script_of
from zerochat.sim.fault_schedule import Ordeal
from zerochat.sim.history import play
from zerochat.sim.initial_groups import beginning_of, begun
from zerochat.sim.shrink import Script, shrunk
from zerochat.sim.tlog_histories import play_accountable
from zerochat.sim.world import Faults, Violation, World

CHUNK = 50
"""Episodes that a process plays before it says so: each takes some milliseconds."""
Kind: TypeAlias = Literal["episodes", "histories", "byzantine", "accountable"]


class Plan(Struct, frozen=True):
    """How each history of a batch is played."""

    kind: Kind = "histories"
    faults: Faults | None = None
    """What happens to frames; None: what is usual."""
    twice: bool = False
    say: Callable[[str], None] | None = None
    """Who is told what happens, sentence by sentence; then all is played in this process."""


class Played(Struct, frozen=True):
    """What came of one history."""

    seed: int
    steps: int = 0
    violation: str = ""
    faults: int = 0
    """How often something went wrong in an episode, beside what happened to frames."""
    tally: Tally = field(default_factory=Tally)


def play_one(plan: Plan, seed: int) -> Played:
    """Play the history of one seed; twice where it is to be compared."""
    tally, violation, steps, faults = Tally(), "", 0, 0
    worlds: list[World] = []
    try:
        digest = _play(plan, seed, tally, worlds.append).digest.digest()
        again = replace(plan, say=None)
        if plan.twice and _play(again, seed, Tally(), worlds.append).digest.digest() != digest:
            raise Violation(f"seed {seed}: a second run went another way")
    except Violation as error:
        violation = str(error)
    if worlds:  # also of one that has broken a promise
        steps, faults = worlds[0].steps, worlds[0].done if isinstance(worlds[0], Ordeal) else 0
    for world in worlds:
        world.over()
    return Played(seed, steps, violation, faults, tally)


def _play(plan: Plan, seed: int, tally: Tally, made: Callable[[World], None]) -> World:
    match plan.kind:
        case "episodes":
            return play_episode(seed, faults=plan.faults, say=plan.say, made=made)
        case "byzantine":
            return play_byzantine(seed, faults=plan.faults, say=plan.say, tally=tally, made=made)
        case "accountable":
            return play_accountable(seed, faults=plan.faults, say=plan.say, made=made)
        case "histories":
            return play(seed, faults=plan.faults, say=plan.say, made=made)


def play_all(plan: Plan, seeds: Sequence[int], jobs: int) -> Iterator[Played]:
    """What came of each of these seeds, in their order, played in so many processes."""
    if jobs == 1:
        yield from map(partial(play_one, plan), seeds)
        return
    chunk = max(1, min(CHUNK, len(seeds) // (4 * jobs))) if plan.kind == "episodes" else 1
    # Ctrl+C reaches every process of a terminal; here it is for this one to end the others.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool = get_context("spawn").Pool(jobs, _collect_seldom)
    finally:
        signal.signal(signal.SIGINT, before)
    with pool:
        yield from pool.imap(partial(play_one, plan), seeds, chunk)


def _collect_seldom() -> None:
    """A tenth of the time went into looking for cycles in groups that stand for as long as the process does."""
    gc.set_threshold(50_000, 20, 100)


def least(seed: int, faults: Faults | None = None) -> Script:
    """The part of a seed's script that it takes to break a promise; the seed has to break one."""
    *names, outsider = begun(beginning_of(seed)).nodes

    def broken(script: Script) -> bool:
        try:
            play_episode(seed, script, faults)
        except Violation:
            return True
        return False

    return shrunk(script_of(seed, names, outsider), broken)


class Summary(Struct, frozen=True):
    """What came of a batch."""

    kind: Kind
    played: int
    broken: int
    faults: int
    """In episodes, beside what happened to frames."""
    steps: int
    seconds: float
    tally: Tally


class Interrupted(KeyboardInterrupt):
    """Ctrl+C has ended a batch: what came of it by then."""

    def __init__(self, so_far: Summary) -> None:
        super().__init__()
        self.so_far = so_far


def run(plan: Plan, seeds: Sequence[int], jobs: int, heed: Callable[[Played], None]) -> Summary:
    """Play all of these, and have each heard (`heed`) as it comes. Raises Interrupted where Ctrl+C ends it."""
    tally, played, steps, broken, faults, begun_at = Tally(), 0, 0, 0, 0, time.monotonic()

    def summary() -> Summary:
        return Summary(plan.kind, played, broken, faults, steps, time.monotonic() - begun_at, tally)

    try:
        for one in play_all(plan, seeds, 1 if plan.say else min(jobs, len(seeds))):
            played, broken = played + 1, broken + bool(one.violation)
            steps, faults = steps + one.steps, faults + one.faults
            tally.add(one.tally)
            heed(one)
    except KeyboardInterrupt:
        raise Interrupted(summary()) from None
    return summary()
