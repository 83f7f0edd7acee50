"""The verb sim."""

import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import ClassVar

from msgspec.structs import replace

from zerochat.cli.exits import ExitCode
from zerochat.cli.output import Output
from zerochat.cli.parser import Options
from zerochat.errors import LocalError
from zerochat.sim import Faults
from zerochat.sim.batch import Interrupted, Kind, Plan, Played, Summary, least, run

SEEDS = 1000
LOSS_MAX = 0.5
"""In whole histories."""
ONE: Mapping[Kind, str] = {
    "episodes": "episode",
    "histories": "history",
    "byzantine": "history with members who break the rules",
    "accountable": "history of a group with a log",
}
MANY: Mapping[Kind, str] = {
    "episodes": "episodes",
    "histories": "histories",
    "byzantine": "histories with members who break the rules",
    "accountable": "histories of groups with a log",
}
PROGRESS_S = 2.0
"""How often it is said how far it has come."""
SHRUNK_MAX = 3
"""Of so many that break a promise it is said what it takes."""


class OneSeed(LocalError):
    """`--seed` plays that one history: leave {others} out, or say `--first SEED --seeds N` for several."""

    exit_code: ClassVar[int] = 2


class TooLossy(LocalError):
    """Where frames get lost until the end, as in whole histories, a loss of {loss} leaves too little time for what has
    to come through: {most} is the most. In episodes the loss ends before that, so there it may be 1."""

    exit_code: ClassVar[int] = 2


def sim(options: Options, out: Output) -> ExitCode:
    if options.seed is not None and (options.seeds, options.first) != (None, None):
        given = [f"`--{name}`" for name in ("seeds", "first") if getattr(options, name) is not None]
        raise OneSeed(others=" and ".join(given))
    if options.kind != "episodes" and (options.loss or 0) > LOSS_MAX:
        raise TooLossy(loss=options.loss, most=LOSS_MAX)
    faults = replace(Faults(), loss=options.loss) if options.loss is not None else None
    plan = Plan(options.kind, faults, options.twice, partial(_tell, out) if options.trace else None)
    first = options.first or 0
    seeds = [options.seed] if options.seed is not None else range(first, first + (options.seeds or SEEDS))
    watch = _Watch(plan, seeds, out)
    interrupted = False
    try:
        found = run(plan, seeds, options.jobs, watch.heed)
    except Interrupted as end:
        found, interrupted = end.so_far, True
    watch.end()
    told: dict[str, object] = {"kind": found.kind, "played": found.played, "broken": found.broken}
    if found.kind == "episodes":
        told["faults"] = found.faults
    if found.kind == "byzantine":
        told |= {"attacks": found.tally.rows(), "quarantines": found.tally.quarantines}
    told |= {"steps": found.steps, "seconds": round(found.seconds, 1), "interrupted": interrupted}
    out.data(told, _lines(found, f"Interrupted: of {len(seeds):,}, " if interrupted else "", twice=options.twice))
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.INTEGRITY if found.broken else ExitCode.OK


def _tell(out: Output, sentence: str) -> None:
    """One sentence of the story of a history."""
    out.data({"told": sentence.strip()}, [sentence])


def _lines(found: Summary, before: str, *, twice: bool) -> list[str]:
    each = ""
    if found.kind == "episodes" and found.played:
        most = f"{found.faults / found.played:.1f}" if found.played > 1 else str(found.faults)
        each = f", {most} fault{'s' * (most != '1')}{' each' * (found.played > 1)}"
    again = (" twice each" if found.broken else " twice each, the same way") if twice else ""
    played = f"{_counted(found.played, found.kind)} played{again}"
    counted = f"{before}{played}{each}, {found.steps:,} steps in {found.seconds:.1f} s"
    verdict = f"{found.broken:,} broke a promise." if found.broken else "No promise was broken."
    if not found.played:
        verdict = "Nothing can be said of it."
    return [*(found.tally.table().splitlines() if found.tally.tried else ()), f"{counted}. {verdict}"]


def _counted(count: int, kind: Kind) -> str:
    return f"{count:,} {(ONE if count == 1 else MANY)[kind]}"


class _Watch:
    """Says how far it has come, and what was found."""

    def __init__(self, plan: Plan, seeds: Sequence[int], out: Output) -> None:
        self._plan, self._seeds, self._out = plan, seeds, out
        self._played = self._broken = 0
        self._begun = self._told = time.monotonic()
        self._bar = sys.stderr.isatty() and plan.say is None
        if self._bar:
            self._draw(f"0 of {_counted(len(seeds), plan.kind)}")

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
            text = f"{self._played:,} of {_counted(len(self._seeds), self._plan.kind)}, {pace:,.1f} a second"
            self._draw(text)

    @staticmethod
    def _draw(text: str) -> None:
        print(f"\r{text:60}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """The line of the progress is free again."""
        if self._bar:
            print(f"\r{'':60}\r", end="", file=sys.stderr, flush=True)

    def _say(self, one: Played) -> None:
        script = least(one.seed, self._plan.faults) if self._least_wanted() else ()
        told = [f"{act.at_ms / 1000:6.3f}  {act.sentence()}" for act in script]
        lines = [one.violation]
        if told:
            lines.append("  It takes no more than this, in a history of its own (seconds, and what happens):")
            lines += [f"    {line}" for line in told]
        elif self._plan.kind == "episodes" and self._broken == SHRUNK_MAX + 1:
            lines.append(f"  What it takes is worked out for the first {SHRUNK_MAX}; for this one `--seed` does it.")
        replay = self._replay(one.seed)
        told_of = {"seed": one.seed, "violation": one.violation, "script": told, "replay": replay}
        self._out.data(told_of, [*lines, f"  The whole story: {replay}"])

    def _replay(self, seed: int) -> str:
        """The line that plays it again, with everything in it that decides how it goes."""
        plan = self._plan
        words = ["zerochat sim", *([f"--{plan.kind}"] if plan.kind != "episodes" else ()), f"--seed {seed}"]
        words += [f"--loss {plan.faults.loss}"] if plan.faults is not None else []
        return " ".join([*words, *(["--twice"] if plan.twice else ()), "--trace"])

    def _least_wanted(self) -> bool:
        return self._plan.kind == "episodes" and self._broken <= SHRUNK_MAX and not self._plan.twice
