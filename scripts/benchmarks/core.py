"""The core alone: the processor time of a delivery, an acknowledgement and a join as a group grows.

Each group is a simulated one in a process of its own (`ours/mesh.py`), and the sizes take turns. What counts is how the
figures grow: they are ratios to those of the smallest group in the same round, so that a busy machine changes little.
`--members` takes sizes beyond the limit of real groups too, `--keys` another key mode.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from benchmarks import ROOT, Figure, Report, Row, scaled, take_turns
from benchmarks.ours.core import MULTI
from benchmarks.ours.mesh import Costs
from zerochat.group.key_modes import MODES

MEMBERS, MEMBERS_QUICK, MEMBERS_LEAST = (8, 32, 64), (8, 24), (3,)
POSTS = 16
ROUNDS, ROUNDS_QUICK = 3, 2
GROWTH_GOAL = 1.5
"""Of a delivery, from the smallest group to the largest."""
CASES = {
    "each": "one delivery: posted, received, acknowledged",
    "chat": "one delivery where all post within a second",
    "post": "of a delivery: posting, for each recipient",
    "delivery": "of a delivery: receiving",
    "acknowledging": "sending an acknowledgement",
    "acknowledged": "receiving an acknowledgement",
    "join": "joins, for each pair of members",
}
GROWS = {"delivery": "each", "chat": "chat", "join": "join", "state written": "written_bytes"}


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, nargs="+", metavar="N", help="groups of so many")
    parser.add_argument("--keys", choices=sorted(MODES), default=MULTI, help=f"the key mode ({MULTI})")


def measure(quick: bool, members: Sequence[int] | None = None, keys: str = MULTI) -> Report:
    sizes = sorted(members or scaled(quick, MEMBERS, MEMBERS_QUICK, MEMBERS_LEAST))
    runs: dict[str, Callable[[], Costs]] = {str(size): partial(costs_of, size, keys) for size in sizes}
    return Report(list(rows_of(take_turns(runs, scaled(quick, ROUNDS, ROUNDS_QUICK, 1)))))


def costs_of(members: int, keys: str) -> Costs:
    command = [sys.executable, "-m", "benchmarks.ours.mesh", str(members), str(POSTS), keys]
    search = {"PYTHONPATH": f"{ROOT}/scripts:{ROOT}"}
    return Costs(**json.loads(subprocess.run(command, env=search, stdout=subprocess.PIPE, check=True).stdout))


def rows_of(found: dict[str, list[Costs]]) -> Iterator[Row]:
    for size, costs in found.items():
        for field, name in CASES.items():
            yield Row(f"{size} members, {name}", "us", "lower", Figure.of([getattr(one, field) for one in costs]))
        yield Row(f"{size} members, the joins of all", "s", "lower", Figure.of([one.joins_s for one in costs]))
        written = Figure.of([one.written_bytes for one in costs])
        yield Row(f"{size} members, state written for one delivery", "B", "lower", written)
        yield Row(f"{size} members, one member's state", "B", "lower", Figure.of([one.state_bytes for one in costs]))
    smallest, largest = next(iter(found)), next(reversed(found))
    for case, field in GROWS.items() if largest != smallest else ():
        ratios = [
            getattr(large, field) / getattr(small, field)
            for small, large in zip(found[smallest], found[largest], strict=True)
        ]
        goal = None if case == "join" else GROWTH_GOAL
        yield Row(f"{case}: {largest} members to {smallest}", "times", "lower", Figure.of(ratios), goal=goal)
