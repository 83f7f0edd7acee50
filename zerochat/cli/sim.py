"""The verb sim."""

import sys
import time
from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output, narrate
from zerochat.cli.parser import Options
from zerochat.sim import Faults
from zerochat.sim.batch import Plan, Played, Summary, least, run

PROGRESS_S = 2.0
"""How often it is said how far it has come."""
SHRUNK_MAX = 3
"""Of so many that break a promise it is said what it takes."""


def sim(options: Options, out: Output) -> ExitCode:
    faults = replace(Faults(), loss=options.loss) if options.loss is not None else None
    plan = Plan(options.kind, faults, options.twice, options.trace)
    seeds = [options.seed] if options.seed is not None else range(options.first, options.first + options.seeds)
    watch = _Watch(plan, seeds, out)
    found = run(plan, seeds, options.jobs, watch.heed)
    watch.end()
    told = {"kind": found.kind, "played": found.played, "broken": found.broken, "faults": found.faults}
    out.data({**told, "steps": found.steps, "seconds": round(found.seconds, 1)}, _lines(found))
    return ExitCode.INTEGRITY if found.broken else ExitCode.OK


def _lines(found: Summary) -> list[str]:
    each = f", {found.faults / found.played:.1f} faults each" if found.kind == "episodes" else ""
    counted = f"{found.played:,} {found.kind} played{each}, {found.steps:,} steps in {found.seconds:.1f} s"
    verdict = f"{found.broken} broke a promise." if found.broken else "No promise was broken."
    return [*(found.tally.table().splitlines() if found.kind == "byzantine" else ()), f"{counted}. {verdict}"]


class _Watch:
    """Says how far it has come, and what was found."""

    def __init__(self, plan: Plan, seeds: Sequence[int], out: Output) -> None:
        self._plan, self._seeds, self._out = plan, seeds, out
        self._played = self._broken = 0
        self._begun = self._told = time.monotonic()
        self._bar = sys.stderr.isatty() and not plan.trace

    def heed(self, one: Played) -> None:
        self._played += 1
        if one.violation:
            self._broken += 1
            self.end()
            self._say(one)
        now = time.monotonic()
        if self._bar and now >= self._told + PROGRESS_S:
            self._told = now
            pace = self._played / (now - self._begun)
            text = f"{self._played:,} of {len(self._seeds):,} {self._plan.kind}, {pace:,.0f} a second"
            print(f"\r{text:60}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """The line of the progress is free again."""
        if self._bar:
            print(f"\r{'':60}\r", end="", file=sys.stderr, flush=True)

    def _say(self, one: Played) -> None:
        flag = "" if self._plan.kind == "episodes" else f" --{self._plan.kind}"
        script = least(one.seed, self._plan.faults) if self._least_wanted() else ()
        told = [f"{act.at_ms / 1000:6.3f}  {act.sentence()}" for act in script]
        if self._out.jsonl:
            self._out.data({"seed": one.seed, "violation": one.violation, "script": told}, ())
            return
        narrate(one.violation)
        if told:
            narrate("  It takes no more than this (seconds, and what happens):")
            narrate("\n".join(f"    {line}" for line in told))
        narrate(f"  The whole story: zerochat sim{flag} --seed {one.seed} --trace")

    def _least_wanted(self) -> bool:
        return self._plan.kind == "episodes" and self._broken <= SHRUNK_MAX and not self._plan.twice
