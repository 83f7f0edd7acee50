"""Telemetry: the cost of recording for the agents.

Real agents over loopback, a publisher and its recipients; all of them record. Two measurements, both of the processor
time of the agents' processes, so that a loaded machine can take them:

directly    the time inside the recorder's functions on the agent thread, with everything that they write, as a share of
            the processes' time. These agents have a clock around the recorder; the clock's own cost is subtracted
by pairs    the same agents, without that clock, record in one of two short runs; the median of the pairs' ratios with
            its 95 % interval. It includes side effects on caches and the garbage collector, and noise that exceeds the
            goal, so the goal applies to the first measurement alone

One message at a time is the other extreme: few events share work, in recording and elsewhere.
"""

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import Figure, Report, Row, Scale, processor_s, scaled, take_turns
from benchmarks.ours.agents import ZEROCHAT, Agents, Member
from zerochat.rpc.telemetry import TelemetryStatus

TEXT_BYTES = 64
AGAIN = 16
"""Repetitions of the direct measurement, so that its buffered writes, every ten seconds and at the end, are
averaged."""
GOAL = 0.02
SPENT = "recording-ns"
"""Where an agent with a clock writes its measurements."""
WITH_A_CLOCK = f"""
import sys, time
from zerochat.agent.telemetry.switch import Recording
from zerochat.cli import main

run, handle, spent = Recording._run, Recording.handle, 0
clock = sorted(-(time.thread_time_ns() - time.thread_time_ns()) for _ in range(1001))[500]

def timed(self, work):
    global spent
    begun = time.thread_time_ns()
    run(self, work)
    spent += time.thread_time_ns() - begun - clock

def handling(self, method, params, agent, now_s):
    answer = handle(self, method, params, agent, now_s)
    (self._journal.path.parent / {SPENT!r}).write_text(str(spent))
    return answer

Recording._run, Recording.handle = timed, handling
sys.exit(main())
"""
Work = Callable[[Agents], int]
"""Has the agents do something; how many deliveries that was."""


def measure(quick: bool) -> Report:
    pairs, rounds, burst, listeners = scaled(quick, (40, 6, 400, 2), (8, 2, 200, 2), (1, 1, 8, 1))
    works: dict[str, Work] = {
        f"bursts of {burst} messages": partial(a_burst, burst),
        f"{burst // 8} messages, each when all have the last": partial(one_at_a_time, burst // 8),
    }
    rows = []
    with started(listeners, ("-c", WITH_A_CLOCK)) as agents:
        for what, work in works.items():
            if not Scale.smoke:
                direct_share(agents, work)  # the first one warms up
            shares = [direct_share(agents, work) for _ in range(rounds)]
            rows.append(
                Row(f"{what}, to {listeners}: time in recording", "share", "lower", Figure.of(shares), goal=GOAL)
            )
    with started(listeners) as agents:
        for what, work in works.items():
            runs = {
                "off": partial(spent_on, agents, work, recording=False),
                "on": partial(spent_on, agents, work, recording=True),
            }
            found = take_turns(runs, pairs)
            each = {name: Figure.of(told) for name, told in found.items()}
            case = f"{what}, to {listeners}: the agents, recording"
            rows.append(Row(case, "us/delivery", "lower", each["on"], each["off"], "the same agents, not recording"))
            ratios = [on / off for off, on in zip(found["off"], found["on"], strict=True)]
            case = f"the same by {pairs} pairs, as a multiple, [95 %]"
            rows.append(Row(case, "ratio", "lower", median_within(ratios)))
    return Report(rows)


@contextmanager
def started(listeners: int, program: Sequence[str] = ZEROCHAT) -> Iterator[Agents]:
    """Agents that are connected."""
    with (
        tempfile.TemporaryDirectory(prefix="zerochat-bench-") as folder,
        Agents(Path(folder), None, lambda text: None, program) as agents,
    ):
        agents.grow(listeners)
        yield agents


# --- actions -----------------------------------------------------------------------------------------------------


def a_burst(count: int, agents: Agents) -> int:
    return agents.burst(count, TEXT_BYTES).came


def one_at_a_time(count: int, agents: Agents) -> int:
    return sum(agents.burst(1, TEXT_BYTES).came for _ in range(count))


# --- costs --------------------------------------------------------------------------------------------------


def direct_share(agents: Agents, work: Work) -> float:
    """The share of the agents' processor time that recording takes."""
    switch(agents, on=True)
    agents.rest()
    before_ms, begun_ms = recording_ms(agents), used_ms(agents)
    for _ in range(1 if Scale.smoke else AGAIN):
        work(agents)
    agents.rest()
    for member in everybody(agents):
        member.client.call("get_telemetry")  # which writes the buffered records and the clock's result
    return (recording_ms(agents) - before_ms) / (used_ms(agents) - begun_ms)


def spent_on(agents: Agents, work: Work, *, recording: bool) -> float:
    """The agents' processor time for each delivery (us)."""
    switch(agents, on=recording)
    agents.rest()
    before = used_ms(agents)
    came = work(agents)
    agents.rest()  # acknowledgements are part of it
    return (used_ms(agents) - before) * 1000 / max(1, came)


def switch(agents: Agents, *, on: bool) -> None:
    """Have all agents record, or not."""
    for member in everybody(agents):
        status: TelemetryStatus = member.client.call("get_telemetry")
        status = member.client.call("set_telemetry", on=on, consent=status.consent)
        assert status.recording is on, status


def everybody(agents: Agents) -> list[Member]:
    return [agents.publisher, *agents.listeners]


def used_ms(agents: Agents) -> float:
    """The processor time that the agents' processes have taken."""
    return processor_s(agents.pids()) * 1000


def recording_ms(agents: Agents) -> float:
    """The time that the agents with a clock have spent on recording, as last reported."""
    said = [member.places.data / SPENT for member in everybody(agents)]
    return sum(int(path.read_text()) for path in said if path.exists()) / 1e6


def median_within(values: Sequence[float]) -> Figure:
    """The median, and the values between which that of all such runs is with 95 %, whatever their distribution."""
    ranked, count = sorted(values), len(values)
    outside = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return Figure(statistics.median(ranked), ranked[outside], ranked[count - 1 - outside])
