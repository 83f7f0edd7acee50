"""Runs many seeds, optionally in several processes, and shrinks failing scripts by delta debugging.

Delta debugging: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002.
"""

import gc
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from typing import Literal, TypeAlias, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from zerochat.sim.byzantine import Tally, play_byzantine
from zerochat.sim.episode import Action, make_script, play_episode
from zerochat.sim.fault_schedule import FaultyWorld
from zerochat.sim.history import play_history
from zerochat.sim.initial_groups import build_world, initial_group_for
from zerochat.sim.retention_histories import play_retention
from zerochat.sim.tlog_histories import play_accountable
from zerochat.sim.world import Faults, Violation, World

CHUNK = 50
"""Episodes per task of a worker process: each takes some milliseconds."""
T = TypeVar("T")
Script: TypeAlias = tuple[Action, ...]
Kind: TypeAlias = Literal["episodes", "histories", "byzantine", "accountable", "retention"]


class BatchPlan(Struct, frozen=True):
    """How each seed of a batch is run."""

    kind: Kind = "histories"
    faults: Faults | None = None
    """Packet faults; None: the defaults."""
    check_determinism: bool = False
    trace: Callable[[str], None] | None = None
    """Receives every step as a sentence; then everything runs in this process."""


class SeedResult(Struct, frozen=True):
    """The result of one seed."""

    seed: int
    steps: int = 0
    violation: str = ""
    faults: int = 0
    """Faults in an episode, packet faults excluded."""
    tally: Tally = field(default_factory=Tally)


def run_one(plan: BatchPlan, seed: int) -> SeedResult:
    """Run one seed, twice where determinism is checked."""
    tally, violation, steps, faults = Tally(), "", 0, 0
    worlds: list[World] = []
    try:
        digest = _play(plan, seed, tally, worlds.append).digest.digest()
        again = replace(plan, trace=None)
        if plan.check_determinism and _play(again, seed, Tally(), worlds.append).digest.digest() != digest:
            raise Violation(f"seed {seed}: a second run gave another result")
    except Violation as error:
        violation = str(error)
    if worlds:  # after a violation too
        steps, faults = worlds[0].steps, worlds[0].fault_count if isinstance(worlds[0], FaultyWorld) else 0
    for world in worlds:
        world.dispose()
    return SeedResult(seed, steps, violation, faults, tally)


def _play(plan: BatchPlan, seed: int, tally: Tally, on_world: Callable[[World], None]) -> World:
    match plan.kind:
        case "episodes":
            return play_episode(seed, faults=plan.faults, trace=plan.trace, on_world=on_world)
        case "byzantine":
            return play_byzantine(seed, faults=plan.faults, trace=plan.trace, tally=tally, on_world=on_world)
        case "accountable":
            return play_accountable(seed, faults=plan.faults, trace=plan.trace, on_world=on_world)
        case "retention":
            return play_retention(seed, faults=plan.faults, trace=plan.trace, on_world=on_world)
        case "histories":
            return play_history(seed, faults=plan.faults, trace=plan.trace, on_world=on_world)


def run_all(plan: BatchPlan, seeds: Sequence[int], jobs: int) -> Iterator[SeedResult]:
    """The results of these seeds in order, run in `jobs` processes."""
    chunk = max(1, min(CHUNK, len(seeds) // (4 * jobs))) if plan.kind == "episodes" else 1
    return in_processes(partial(run_one, plan), seeds, jobs, chunk)


def in_processes(run_seed: Callable[[int], T], seeds: Sequence[int], jobs: int, chunk: int = 1) -> Iterator[T]:
    """The results of a function that can be pickled, in the order of the seeds, in `jobs` processes."""
    if jobs == 1:
        yield from map(run_seed, seeds)
        return
    # Ctrl+C reaches every process of the terminal; only this one handles it and ends the others.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pool = get_context("spawn").Pool(jobs, _tune_gc)
    finally:
        signal.signal(signal.SIGINT, before)
    with pool:
        yield from pool.imap(run_seed, seeds, chunk)


def _tune_gc() -> None:
    """Collect garbage rarely: worlds are full of long-lived cycles, and collections took a tenth of the time."""
    gc.set_threshold(50_000, 20, 100)


def minimal_script(seed: int, faults: Faults | None = None) -> Script:
    """A minimal script that still violates a guarantee; the seed has to violate one."""
    *names, outsider = build_world(initial_group_for(seed)).nodes

    def broken(script: Script) -> bool:
        try:
            play_episode(seed, script, faults)
        except Violation:
            return True
        return False

    return shrink(make_script(seed, names, outsider), broken)


def shrink(script: Sequence[Action], broken: Callable[[Script], bool]) -> Script:
    """A part of the script that still fails, of which no action can be left out, with durations as short as possible.
    Runs some dozens of episodes."""
    return _shorten_durations(_remove_actions(tuple(script), broken), broken)


def _remove_actions(script: Script, broken: Callable[[Script], bool]) -> Script:
    pieces = 2
    while len(script) > 1 and pieces <= len(script):
        size = -(-len(script) // pieces)
        for start in range(0, len(script), size):
            rest = script[:start] + script[start + size :]
            if broken(rest):
                script, pieces = rest, max(2, pieces - 1)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(script))
    return script


def _shorten_durations(script: Script, broken: Callable[[Script], bool]) -> Script:
    for at, act in enumerate(script):
        for for_ms in (500, 2_000, 6_000):
            if for_ms < act.for_ms:
                less = (*script[:at], replace(act, for_ms=for_ms), *script[at + 1 :])
                if broken(less):
                    script = less
                    break
    return script


class Summary(Struct, frozen=True):
    """The result of a batch."""

    kind: Kind
    runs: int
    violations: int
    faults: int
    """Faults in episodes, packet faults excluded."""
    steps: int
    seconds: float
    tally: Tally


class Interrupted(KeyboardInterrupt):
    """Ctrl+C ended a batch; carries the result so far."""

    def __init__(self, so_far: Summary) -> None:
        super().__init__()
        self.so_far = so_far


def run(plan: BatchPlan, seeds: Sequence[int], jobs: int, on_result: Callable[[SeedResult], None]) -> Summary:
    """Run these seeds and report each result. Raises Interrupted on Ctrl+C."""
    tally, played, steps, broken, faults, begun_at = Tally(), 0, 0, 0, 0, time.monotonic()

    def summary() -> Summary:
        return Summary(plan.kind, played, broken, faults, steps, time.monotonic() - begun_at, tally)

    try:
        for one in run_all(plan, seeds, 1 if plan.trace else min(jobs, len(seeds))):
            played, broken = played + 1, broken + bool(one.violation)
            steps, faults = steps + one.steps, faults + one.faults
            tally.merge(one.tally)
            on_result(one)
    except KeyboardInterrupt:
        raise Interrupted(summary()) from None
    return summary()
