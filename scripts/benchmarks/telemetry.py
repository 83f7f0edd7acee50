"""Telemetry: what recording costs the agents.

Real agents over loopback, a publisher and its listeners; all of them record, for receiving is recorded too. It is
measured in two ways, both by the processor time of the agents' processes and not by the clock on the wall, so that a
busy machine can show it:

directly    the time inside of whatever the agent thread has its recorder do, with all that it writes, as a share of all
            that the agents' processes take. These agents have a clock around it, less what the clock itself takes
by pairs    the same agents, without a clock, record in one of two short runs and not in the other, this one first and
            then that one; the median of the pairs' ratios, with the interval in which it is with 95 %. Whatever
            recording costs besides, for what it does to caches and to the collector of garbage, is in it, and so is all
            the noise, which is larger than the goal, so the goal is one for the first way alone; what is written only
            every few seconds mostly is not in it

A message at a time is the other end of what there is: little is shared by many events there, in recording and in
everything else.
"""

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks import Figure, Report, Row, processor_s, take_turns
from benchmarks.ours.agents import ZEROCHAT, Agents, Member
from zerochat.rpc.telemetry import TelemetryStatus

TEXT_BYTES = 64
AGAIN = 16
"""So often in a row where the time is taken directly, which is seconds: what is written every ten of them, and in the
end, when it is asked for, shall not be there much more often."""
GOAL = 0.02
SPENT = "recording-ns"
"""Where an agent with a clock of its own writes what it says."""
WITH_A_CLOCK = f"""
import sys, time
from zerochat.agent.telemetry.switch import Recording
from zerochat.agent.loop import AgentThread
from zerochat.cli import main

note, telemetry, spent = Recording._note, AgentThread._telemetry, 0
clock = sorted(-(time.thread_time_ns() - time.thread_time_ns()) for _ in range(1001))[500]

def timed(self, work):
    global spent
    begun = time.thread_time_ns()
    note(self, work)
    spent += time.thread_time_ns() - begun - clock

def telling(self, method, params):
    answer = telemetry(self, method, params)
    (self._places.data / {SPENT!r}).write_text(str(spent))
    return answer

Recording._note, AgentThread._telemetry = timed, telling
sys.exit(main())
"""
Work = Callable[[Agents], int]
"""Has the agents do something; how many deliveries that was."""


def measure(quick: bool) -> Report:
    pairs, rounds, burst, listeners = (8, 2, 200, 2) if quick else (40, 6, 400, 2)
    works: dict[str, Work] = {
        f"bursts of {burst} messages": partial(a_burst, burst),
        f"{burst // 8} messages, each when all have the last": partial(one_at_a_time, burst // 8),
    }
    rows = []
    with started(listeners, ("-c", WITH_A_CLOCK)) as agents:
        for what, work in works.items():
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
    """Agents who have met."""
    with (
        tempfile.TemporaryDirectory(prefix="zerochat-bench-") as folder,
        Agents(Path(folder), None, lambda text: None, program) as agents,
    ):
        agents.grow(listeners)
        yield agents


# --- what they do -----------------------------------------------------------------------------------------------------


def a_burst(count: int, agents: Agents) -> int:
    return agents.burst(count, TEXT_BYTES).came


def one_at_a_time(count: int, agents: Agents) -> int:
    return sum(agents.burst(1, TEXT_BYTES).came for _ in range(count))


# --- what that costs --------------------------------------------------------------------------------------------------


def direct_share(agents: Agents, work: Work) -> float:
    """How much of the agents' processor time goes into recording."""
    switch(agents, on=True)
    agents.rest()
    before_ms, begun_ms = recording_ms(agents), used_ms(agents)
    for _ in range(AGAIN):
        work(agents)
    agents.rest()
    for member in everybody(agents):
        member.client.call("telemetry")  # which writes what there is, and the clock's hand with it
    return (recording_ms(agents) - before_ms) / (used_ms(agents) - begun_ms)


def spent_on(agents: Agents, work: Work, *, recording: bool) -> float:
    """The agents' processor time for each delivery (us)."""
    switch(agents, on=recording)
    agents.rest()
    before = used_ms(agents)
    came = work(agents)
    agents.rest()  # what is acknowledged belongs to it
    return (used_ms(agents) - before) * 1000 / max(1, came)


def switch(agents: Agents, *, on: bool) -> None:
    """Have all agents record, or not."""
    for member in everybody(agents):
        status: TelemetryStatus = member.client.call("telemetry")
        status = member.client.call("telemetry_set", on=on, consent=status.consent)
        assert status.recording is on, status


def everybody(agents: Agents) -> list[Member]:
    return [agents.publisher, *agents.listeners]


def used_ms(agents: Agents) -> float:
    """The processor time that the agents' processes have taken."""
    return processor_s(agents.pids()) * 1000


def recording_ms(agents: Agents) -> float:
    """What the agents with a clock of their own have spent on recording, as they last said."""
    said = [member.places.data / SPENT for member in everybody(agents)]
    return sum(int(path.read_text()) for path in said if path.exists()) / 1e6


def median_within(values: Sequence[float]) -> Figure:
    """The median, and the values between which that of all such runs is with 95 %, whatever their distribution."""
    ranked, count = sorted(values), len(values)
    outside = max(0, math.floor((count - 1.96 * math.sqrt(count)) / 2))
    return Figure(statistics.median(ranked), ranked[outside], ranked[count - 1 - outside])
