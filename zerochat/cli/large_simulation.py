"""`zerochat sim --large`: one large group of real cores, run by run."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser
from zerochat.cli.output import Output
from zerochat.cli.simulation_runs import Runs, print_runs
from zerochat.cli.value_types import between
from zerochat.errors import LocalError
from zerochat.limits import MEMBERS_MAX_BY_PATH

if TYPE_CHECKING:
    from zerochat.sim.large.large_run import LargeResult
    from zerochat.sim.large.scenario import Phase

MEMBERS_MIN = 4
"""Fewer could not lose members and be partitioned."""
MEMBERS_MAX = max(MEMBERS_MAX_BY_PATH.values())


class TooManyMembers(LocalError):
    """A group with the path {path} has at most {most} members, and {joiners} join these {members} during the run."""

    exit_code: ClassVar[int] = 2


def add_options(parser: Parser) -> None:
    """The options that `--large` needs. The defaults in their help are those of `LargePlan`."""
    large = parser.add_argument_group("with --large")
    large.add_argument(
        "--members", type=between(MEMBERS_MIN, MEMBERS_MAX), metavar="N", help="members of the group (default: 40)"
    )
    large.add_argument(
        "--path",
        choices=tuple(MEMBERS_MAX_BY_PATH),
        help="ring, or mesh, where each member is linked to each (default: ring)",
    )
    large.add_argument(
        "--joins", action="store_true", help="let each member join by itself; otherwise all found the group together"
    )


def simulate_large(options: Options, seeds: Sequence[int], out: Output) -> ExitCode:
    """Run these seeds and print each result, with the guarantees that it violated."""
    from zerochat.sim.large.large_run import run_large
    from zerochat.sim.large.scenario import LargePlan

    given = {name: getattr(options, name) for name in LargePlan.__struct_fields__}
    plan = LargePlan(**{name: value for name, value in given.items() if value is not None})
    most = MEMBERS_MAX_BY_PATH[plan.path]
    if plan.members + plan.joiners > most:
        raise TooManyMembers(path=plan.path, most=most, joiners=plan.joiners, members=plan.members)
    return print_runs(Runs("large group", "large groups", partial(run_large, plan), _lines), seeds, options.jobs, out)


def _lines(one: "LargeResult") -> list[str]:
    plan = one.plan
    gathered = "joined one by one" if plan.joins else "founded together"
    latency = f"p50 {one.latency_p50:,.0f} ms, p95 {one.latency_p95:,.0f} ms, max {one.latency_max:,.0f} ms"
    return [
        f"Seed {one.seed}: {plan.members:,} members, {plan.path}, {gathered}; {one.members:,} at the end",
        f"  envelopes        {one.envelope}",
        f"  delivered        {one.hit_ratio:.6f} of {one.due:,} deliveries of {plan.messages:,} messages",
        f"  links            {one.links_mean:.1f} per member at the end, {one.links_max} at most",
        f"  copies           {one.copies:.3f} per delivery; non-members were sent {one.outside}",
        f"  latency          {latency}; {one.unnotified:,} came as history",
        f"  cost             {one.cpu_us:,.0f} us of processor time and {one.bytes:,.0f} bytes per delivery",
        f"  memory           {one.memory_mib:,.0f} MiB at most",
        "  phase            processor    virtual       steps      frames       bytes      copies  deliveries",
        *(_row(phase) for phase in one.phases),
    ]


def _row(phase: "Phase") -> str:
    return (
        f"  {phase.name:<12} {phase.seconds:10,.1f} s {phase.virtual_ms / 1000:8,.1f} s {phase.steps:11,}"
        f" {phase.frames:11,} {phase.bytes:11,} {phase.copies:11,} {phase.deliveries:11,}"
    )
