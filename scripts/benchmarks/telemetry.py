"""Telemetry: what recording costs the agents.

Real agents over loopback, a publisher and its listeners. Recording is turned on and off between bursts in the very same
processes, there and back, so that nothing else differs; both take part in it, for receiving is recorded too. Processor
time is what the kernel counts for the agents' processes, in ticks of 10 ms mostly: believe the long run.
"""

import os
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks import Figure, Report, Row, take_turns
from benchmarks.ours.agents import Agents
from zerochat.agent.schema.telemetry import TelemetryStatus

TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
TEXT_BYTES = 64


def measure(quick: bool) -> Report:
    rounds, burst, listeners = (5, 200, 2) if quick else (15, 1_000, 4)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zerochat-bench-")))
        agents = stack.enter_context(Agents(folder, None, lambda text: None))
        agents.grow(listeners)
        runs: dict[str, Callable[[], tuple[float, float, float]]] = {
            "off": partial(one_burst, agents, burst, False),
            "on": partial(one_burst, agents, burst, True),
        }
        found = take_turns(runs, rounds)
        rows = sum(switch(agents, on=False))
    rates = {name: Figure.of([rate for rate, _, _ in told]) for name, told in found.items()}
    spent = {name: Figure.of([spent for _, spent, _ in told]) for name, told in found.items()}
    pairs = list(zip(found["off"], found["on"], strict=True))
    cost = Figure.of([on[1] / off[1] for off, on in pairs if off[1]])
    speed = Figure.of([on[0] / off[0] for off, on in pairs if off[0]])
    total = sum(on[2] for on in found["on"]) / max(1.0, sum(off[2] for off in found["off"]))
    what = f"a burst of {burst} messages to {listeners}"
    return Report(
        [
            Row(
                f"{what}, recording",
                "deliveries/s",
                "higher",
                rates["on"],
                rates["off"],
                "the same agents, not recording",
            ),
            Row(
                f"{what}, processor time of all agents, recording",
                "us/delivery",
                "lower",
                spent["on"],
                spent["off"],
                "the same agents, not recording",
            ),
            Row("deliveries in a second, recording as a share of not recording", "ratio", "higher", speed),
            Row("processor time, recording as a multiple of not recording, by pairs", "ratio", "lower", cost),
            Row(
                f"the same of the whole run, {rows:,} facts recorded",
                "ratio",
                "lower",
                Figure.of([total]),
                goal=1.02,
            ),
        ]
    )


def one_burst(agents: Agents, count: int, recording: bool) -> tuple[float, float, float]:
    """Deliveries in a second, and the agents' processor time for each (us) and for all (ms)."""
    switch(agents, on=recording)
    agents.rest()
    before = sum(map(used_ms, agents.pids()))
    burst = agents.burst(count, TEXT_BYTES)
    agents.rest()  # what is acknowledged and written belongs to it
    spent = sum(map(used_ms, agents.pids())) - before
    return burst.came / burst.ms * 1000, spent * 1000 / max(1, burst.came), spent


def switch(agents: Agents, *, on: bool) -> list[int]:
    """Have all agents record, or not; how many facts each has then."""
    rows = []
    for member in (agents.publisher, *agents.listeners):
        status: TelemetryStatus = member.client.call("telemetry")
        status = member.client.call("telemetry_set", on=on, consent=status.consent)
        assert status.recording is on, status
        rows.append(status.rows)
    return rows


def used_ms(pid: int) -> float:
    """The processor time that a process has taken (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_MS
