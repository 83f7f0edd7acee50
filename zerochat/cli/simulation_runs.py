"""Runs a simulation of one seed after the other and prints each result, then a verdict."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct

from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.output import Output

if TYPE_CHECKING:
    from zerochat.sim.large.large_run import LargeResult
    from zerochat.sim.overlay.ring_run import RingResult


R = TypeVar("R", bound="RingResult | LargeResult")


class Runs(Struct, Generic[R], frozen=True):
    """A kind of simulation."""

    kind: str
    plural: str
    run: Callable[[int], R]
    """Simulates one seed; it is pickled where there are several processes."""
    lines: Callable[[R], Sequence[str]]
    """The result as text."""


def print_runs(runs: Runs[R], seeds: Sequence[int], jobs: int, out: Output) -> ExitCode:
    """Run these seeds in up to `jobs` processes and print each result. INTEGRITY if one violated a guarantee."""
    from zerochat.sim.batch import in_processes

    begun_at, played, broken, interrupted = time.monotonic(), 0, 0, False
    try:
        for one in in_processes(runs.run, seeds, min(jobs, len(seeds))):
            played, broken = played + 1, broken + bool(one.violations)
            out.data(one, [*runs.lines(one), *(f"  violated         {fault}" for fault in one.violations)])
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.monotonic() - begun_at
    before = f"Interrupted: of {len(seeds):,}, " if interrupted else ""
    verdict = f"{broken:,} violated a guarantee." if broken else "No guarantee was violated."
    total = {"kind": runs.kind, "played": played, "broken": broken, "seconds": round(seconds, 1)}
    ran = f"{before}{played:,} {runs.kind if played == 1 else runs.plural} run in {seconds:.1f} s."
    out.data(total | {"interrupted": interrupted}, [f"{ran} {verdict if played else 'No result.'}"])
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.INTEGRITY if broken else ExitCode.OK
