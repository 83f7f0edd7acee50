"""Verb sim: runs simulated groups under a fault schedule and checks the guarantees."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from msgspec.structs import replace

from zerochat.cli import large_simulation, overlay_simulation
from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser, Verbs, add_verb
from zerochat.cli.output import Output
from zerochat.cli.value_types import between, chance, count, positive
from zerochat.errors import LocalError

if TYPE_CHECKING:
    from zerochat.sim.batch import BatchPlan, Kind, SeedResult, Summary


def add(verbs: "Verbs[Parser]") -> None:
    parser = add_verb(
        verbs,
        "sim",
        "run simulated groups under faults and check the guarantees",
        "Run short episodes of a group's life: the real core in virtual time, with packet loss, duplication, delay,\n"
        "corruption and partitions, crashes, full disks and clock jumps. Afterwards every member must have every\n"
        "message, once and in the same order. One seed determines one history, to the last byte. For a seed that\n"
        "violates a guarantee it prints a minimal fault schedule; the exit code is then 7. In a terminal it shows\n"
        "its progress; Ctrl+C stops it and prints the result so far.\n"
        "\n"
        "With --overlay it runs the ring of large groups instead: thousands of members that are only their links and\n"
        "messages, with the forwarding functions of the core. It prints who was reached, before and after one repair\n"
        "round, copies, hops, latencies (lognormal, median 50 ms, 95th percentile 180 ms) and links.\n"
        "\n"
        "With --large it runs one large group of real cores: traffic under packet loss alone, then with joins,\n"
        "departures, crashes and a partition, then calm. It prints what a delivery costs and what each phase took.",
        """
zerochat sim
zerochat sim --seeds 100000 --first 5000
zerochat sim --seed 7 --trace
zerochat sim --histories --seeds 200
zerochat sim --byzantine --seeds 200
zerochat sim --accountable --seeds 50
zerochat sim --overlay --nodes 10000 --dead 0.05
zerochat sim --large --members 40 --messages 100
zerochat sim --large --path mesh --members 24 --joins --seed 3
""",
        run=sim,
    )
    parser.add_argument(
        "--seeds", type=positive, metavar="N", help="number of seeds (default: 1000; with --overlay or --large: 1)"
    )
    parser.add_argument("--first", type=count, metavar="SEED", help="first seed (default: 0)")
    parser.add_argument("--seed", type=count, metavar="SEED", help="run only this seed")
    parser.add_argument("--trace", action="store_true", help="print every step")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument(
        "--histories",
        dest="kind",
        action="store_const",
        const="histories",
        default="episodes",
        help="run whole histories, from the creation of a group, instead of short episodes",
    )
    kinds.add_argument(
        "--byzantine", dest="kind", action="store_const", const="byzantine", help="run with malicious members"
    )
    kinds.add_argument(
        "--accountable",
        dest="kind",
        action="store_const",
        const="accountable",
        help="run groups with a transparency log and malicious witnesses",
    )
    kinds.add_argument(
        "--retention", dest="kind", action="store_const", const="retention", help="run groups whose content expires"
    )
    parser.add_argument(
        "--loss",
        type=chance,
        metavar="P",
        help="packet loss, 0 to 1 (default: 0.1 or 0.2). Episodes: until the calm phase, which loses at most 0.1; other"
        " kinds: all the time, at most 0.5",
    )
    parser.add_argument("--repeat", action="store_true", help="run each seed twice and compare the results")
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=positive, default=jobs, metavar="N", help=f"processes (default: {jobs})")
    parser.add_argument(
        "--overlay", action="store_true", help="run the ring among thousands of members that are not whole cores"
    )
    parser.add_argument("--large", action="store_true", help="run one large group of real cores")
    parser.add_argument(
        "--messages",
        type=between(1, MESSAGES_MAX),
        metavar="N",
        help="messages of random members (default: 10), with --large 40",
    )
    overlay_simulation.add_options(parser)
    large_simulation.add_options(parser)


SEEDS = 1000
MESSAGES_MAX = 1_000
LOSS_MAX = 0.5
"""Maximum loss except in episodes."""
SINGULAR: "Mapping[Kind, str]" = {
    "episodes": "episode",
    "histories": "history",
    "byzantine": "history with malicious members",
    "accountable": "history with a transparency log",
    "retention": "history with expiring content",
}
PLURAL: "Mapping[Kind, str]" = {
    "episodes": "episodes",
    "histories": "histories",
    "byzantine": "histories with malicious members",
    "accountable": "histories with a transparency log",
    "retention": "histories with expiring content",
}
PROGRESS_S = 2.0
"""Interval of the progress display."""
SHRUNK_MAX = 3
"""Number of violations for which a minimal fault schedule is computed."""


class OneSeed(LocalError):
    """`--seed` runs a single history: leave {others} out, or use `--first SEED --seeds N` for several."""

    exit_code: ClassVar[int] = 2


class TooLossy(LocalError):
    """A loss of {loss} is too high: the maximum is {most}, except in episodes, where it may be 1."""

    exit_code: ClassVar[int] = 2


def sim(options: Options, out: Output) -> ExitCode:
    from zerochat.sim import Faults
    from zerochat.sim.batch import BatchPlan, Interrupted, run

    if options.seed is not None and (options.seeds, options.first) != (None, None):
        given = [f"`--{name}`" for name in ("seeds", "first") if getattr(options, name) is not None]
        raise OneSeed(others=" and ".join(given))
    if (options.kind != "episodes" or options.large) and (options.loss or 0) > LOSS_MAX:
        raise TooLossy(loss=options.loss, most=LOSS_MAX)
    first, usual = options.first or 0, 1 if options.overlay or options.large else SEEDS
    seeds = [options.seed] if options.seed is not None else range(first, first + (options.seeds or usual))
    if options.overlay:
        return overlay_simulation.simulate_overlay(options, seeds, out)
    if options.large:
        return large_simulation.simulate_large(options, seeds, out)
    faults = replace(Faults(), loss=options.loss) if options.loss is not None else None
    plan = BatchPlan(options.kind, faults, options.repeat, partial(_print_trace, out) if options.trace else None)
    progress = _Progress(plan, seeds, out)
    interrupted = False
    try:
        found = run(plan, seeds, options.jobs, progress.record)
    except Interrupted as end:
        found, interrupted = end.so_far, True
    progress.end()
    result: dict[str, object] = {"kind": found.kind, "played": found.runs, "broken": found.violations}
    if found.kind == "episodes":
        result["faults"] = found.faults
    if found.kind == "byzantine":
        result |= {"attacks": found.tally.rows(), "quarantines": found.tally.quarantines}
    result |= {"steps": found.steps, "seconds": round(found.seconds, 1), "interrupted": interrupted}
    out.data(result, _lines(found, f"Interrupted: of {len(seeds):,}, " if interrupted else "", twice=options.repeat))
    if interrupted:
        return ExitCode.INTERRUPTED
    return ExitCode.INTEGRITY if found.violations else ExitCode.OK


def _print_trace(out: Output, sentence: str) -> None:
    """Print one step of the trace."""
    out.data({"step": sentence.strip()}, [sentence])


def _lines(found: "Summary", before: str, *, twice: bool) -> list[str]:
    each = ""
    if found.kind == "episodes" and found.runs:
        most = f"{found.faults / found.runs:.1f}" if found.runs > 1 else str(found.faults)
        each = f", {most} fault{'s' * (most != '1')}{' each' * (found.runs > 1)}"
    again = (" twice" if found.violations else " twice with equal results") if twice else ""
    played = f"{_counted(found.runs, found.kind)} run{again}"
    counted = f"{before}{played}{each}, {found.steps:,} steps in {found.seconds:.1f} s"
    verdict = f"{found.violations:,} violated a guarantee." if found.violations else "No guarantee was violated."
    if not found.runs:
        verdict = "No result."
    return [*(found.tally.table().splitlines() if found.tally.attempts else ()), f"{counted}. {verdict}"]


def _counted(count: int, kind: "Kind") -> str:
    return f"{count:,} {(SINGULAR if count == 1 else PLURAL)[kind]}"


class _Progress:
    """Progress display, and output of violations."""

    def __init__(self, plan: "BatchPlan", seeds: Sequence[int], out: Output) -> None:
        self._plan, self._seeds, self._out = plan, seeds, out
        self._played = self._broken = 0
        self._begun = self._drawn = time.monotonic()
        self._bar = sys.stderr.isatty() and plan.trace is None
        if self._bar:
            self._draw(f"0 of {_counted(len(seeds), plan.kind)}")

    def record(self, one: "SeedResult") -> None:
        self._played += 1
        if one.violation:
            self._broken += 1
            self.end()
            self._print(one)
        now = time.monotonic()
        if self._bar and now >= self._drawn + PROGRESS_S:
            self._drawn = now
            pace = self._played / (now - self._begun)
            text = f"{self._played:,} of {_counted(len(self._seeds), self._plan.kind)}, {pace:,.1f} per second"
            self._draw(text)

    @staticmethod
    def _draw(text: str) -> None:
        print(f"\r{text:60}", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        """Clear the progress line."""
        if self._bar:
            print(f"\r{'':60}\r", end="", file=sys.stderr, flush=True)

    def _print(self, one: "SeedResult") -> None:
        from zerochat.sim.batch import minimal_script

        script = minimal_script(one.seed, self._plan.faults) if self._shrinks() else ()
        steps = [f"{act.at_ms / 1000:6.3f}  {act.describe()}" for act in script]
        lines = [one.violation]
        if steps:
            lines.append("  Minimal fault schedule (seconds, fault):")
            lines += [f"    {line}" for line in steps]
        elif self._plan.kind == "episodes" and self._broken == SHRUNK_MAX + 1:
            lines.append(
                f"  Minimal schedules are computed for the first {SHRUNK_MAX} violations; run this one with `--seed`."
            )
        replay = self._replay(one.seed)
        result = {"seed": one.seed, "violation": one.violation, "script": steps, "replay": replay}
        self._out.data(result, [*lines, f"  Replay: {replay}"])

    def _replay(self, seed: int) -> str:
        """The command line that reproduces this history."""
        plan = self._plan
        words = ["zerochat sim", *([f"--{plan.kind}"] if plan.kind != "episodes" else ()), f"--seed {seed}"]
        words += [f"--loss {plan.faults.loss}"] if plan.faults is not None else []
        return " ".join([*words, *(["--repeat"] if plan.check_determinism else ()), "--trace"])

    def _shrinks(self) -> bool:
        return self._plan.kind == "episodes" and self._broken <= SHRUNK_MAX and not self._plan.check_determinism
