"""`zerochat sim --overlay`: the ring among thousands of simulated members, run by run."""

from argparse import ArgumentTypeError
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from zerochat.cli.exit_codes import ExitCode
from zerochat.cli.grammar import Options, Parser
from zerochat.cli.output import Output
from zerochat.cli.simulation_runs import Runs, print_runs
from zerochat.cli.value_types import between, chance

if TYPE_CHECKING:
    from zerochat.sim.overlay.ring_run import RingResult

NODES_MAX = 200_000
"""More do not fit: each takes some kilobytes."""
FAN_OUT_MAX = 6
"""With more, a member may have too few links."""
DEAD_MAX = 0.9


def add_options(parser: Parser) -> None:
    """The options that `--overlay` needs. The defaults in their help are those of `RingPlan`."""
    overlay = parser.add_argument_group("with --overlay")
    overlay.add_argument("--nodes", type=between(2, NODES_MAX), metavar="N", help="members (default: 10000)")
    overlay.add_argument(
        "--fan-out",
        type=between(2, FAN_OUT_MAX),
        metavar="N",
        help="copies of a message that each member sends (default: 3)",
    )
    overlay.add_argument(
        "--dead", type=_dead, metavar="P", help="part of the members that is dead, and not noticed (default: 0)"
    )


def _dead(text: str) -> float:
    if (part := chance(text)) > DEAD_MAX:
        raise ArgumentTypeError(f"{text!r} is more than {DEAD_MAX}")
    return part


def simulate_overlay(options: Options, seeds: Sequence[int], out: Output) -> ExitCode:
    """Run these seeds and print each result, with the guarantees that it violated."""
    from zerochat.sim.overlay.ring_run import run_ring
    from zerochat.sim.overlay.ring_world import RingPlan

    given = {name: getattr(options, name) for name in RingPlan.__struct_fields__}
    plan = RingPlan(**{name: value for name, value in given.items() if value is not None})
    return print_runs(Runs("overlay", "overlays", partial(run_ring, plan), _lines), seeds, options.jobs, out)


def _lines(one: "RingResult") -> list[str]:
    plan, equal, varied = one.plan, one.equal, one.lognormal
    hits = min(equal.hit_ratio, varied.hit_ratio)
    sent = f"{one.sent_min}" if one.sent_min == one.sent_max else f"{one.sent_min} to {one.sent_max}"
    hops = [
        f"mean {figures.hops_mean:.2f}, p99 {figures.hops_p99}, max {figures.hops_max} under {delays} delays"
        for delays, figures in (("equal", equal), ("lognormal", varied))
    ]
    latency = [
        f"{name} {ms:.0f} ms"
        for name, ms in (
            ("p50", varied.latency_p50),
            ("p95", varied.latency_p95),
            ("p99", varied.latency_p99),
            ("max", varied.latency_max),
        )
    ]
    links = ", ".join(f"{links} of {members:,}" for links, members in one.links.items())
    return [
        f"Seed {one.seed}: {plan.nodes:,} members, {plan.dead:.1%} of them dead; fan-out {plan.fan_out}",
        f"  delivered        {hits:.6f} of {plan.messages} messages; {one.repaired_ratio:.6f} after one repair round",
        f"  copies           {varied.copies:.3f} per delivery; each member sent {sent} of a message",
        f"  hops             {hops[0]}",
        f"                   {hops[1]}",
        f"  latency          {', '.join(latency)} under lognormal delays",
        f"  links            {links} members",
        f"  non-members      handled {one.outside} copies",
        f"  repair           {one.repair_control:.2f} messages per member, {one.repair_copies:,} copies",
    ]
