"""A slow member: the cost for the others if one member gets a tenth of the time.

A publisher sends at an even pace to members on loopback, each an agent in its own process. In every other round one of
them is stopped (SIGSTOP) for nine tenths of every two seconds, so that it stays connected and falls behind. The clock
covers the others alone, from accepting a message until the last of them has notified its client. The floor is the same
group at the same pace without a slow member.
"""

import contextlib
import os
import select
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles

from benchmarks import Figure, Report, Row, scaled, take_turns
from benchmarks.ours.agents import GROUP, STEP_S_MAX, Agents, Member

MEMBERS = 4
"""Recipients; the last one is slow."""
MESSAGES, MESSAGES_QUICK = 100, 30
ROUNDS, ROUNDS_QUICK = 5, 2
PACE_S = 0.05
TEXT_BYTES = 500
PERIOD_S, AWAKE = 2.0, 0.1
"""The slow one is awake for this part of each period. It would be given up if it were silent for longer."""
RATIO_MAX = 1.2
"""More than that and the others would notice; less is this machine's own unrest."""


class Round:
    """One round: each message's time to the last of the fast members, in ms; the largest backlog of the slow member, in
    messages; and the time to clear it at the end, in ms."""

    def __init__(self, times: Sequence[float], behind: int, caught_up_ms: float) -> None:
        self.times, self.behind, self.caught_up_ms = times, behind, caught_up_ms

    @property
    def median(self) -> float:
        return Figure.of(self.times).median

    @property
    def p95(self) -> float:
        return quantiles(self.times, n=20)[-1]


class Ears:
    """Counts the messages of one round of which clients were notified."""

    def __init__(self, members: Sequence[Member], marker: bytes) -> None:
        self._fds = {member.news.fileno(): place for place, member in enumerate(members)}
        self._marker = marker
        self._rest = [b""] * len(members)
        self.counts = [0] * len(members)

    def hear(self, seconds: float) -> None:
        """Receive for at most this long."""
        for fd in select.select(list(self._fds), [], [], max(0.0, seconds))[0]:
            place = self._fds[fd]
            heard = self._rest[place] + os.read(fd, 1 << 18)
            *lines, self._rest[place] = heard.split(b"\n")
            self.counts[place] += sum(self._marker in line for line in lines)

    def wait(self, count: int, places: range) -> None:
        """Until each of these members has so many. Raises TimeoutError."""
        deadline = time.monotonic() + STEP_S_MAX
        while min(self.counts[place] for place in places) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not everybody has {count} messages: {self.counts}")
            self.hear(deadline - time.monotonic())


@contextlib.contextmanager
def slowed(pid: int) -> Iterator[None]:
    """Let a process run for a part of each period only."""
    ended = threading.Event()

    def tick() -> None:
        while not ended.is_set():
            os.kill(pid, signal.SIGSTOP)
            ended.wait(PERIOD_S * (1 - AWAKE))
            os.kill(pid, signal.SIGCONT)
            ended.wait(PERIOD_S * AWAKE)

    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def play(agents: Agents, messages: int, slow: bool) -> Round:
    agents.rest()
    listeners = agents.listeners
    marker = f"{time.monotonic_ns()} "
    ears = Ears(listeners, marker.encode())
    everybody, fast = range(len(listeners)), range(len(listeners) - 1)
    times, behind = [], 0
    with slowed(listeners[-1].process.pid) if slow else contextlib.nullcontext():
        for number in range(messages):
            begun = time.monotonic()
            agents.publisher.client.send_message(GROUP, marker + str(number).zfill(TEXT_BYTES))
            ears.wait(number + 1, fast)
            times.append((time.monotonic() - begun) * 1000)
            behind = max(behind, number + 1 - ears.counts[-1])
            while (left := begun + PACE_S - time.monotonic()) > 0:
                ears.hear(left)
        ended = time.monotonic()
        ears.wait(messages, everybody)
    return Round(times, behind, (time.monotonic() - ended) * 1000)


def measure(quick: bool) -> Report:
    messages, rounds = scaled(quick, (MESSAGES, ROUNDS), (MESSAGES_QUICK, ROUNDS_QUICK), (3, 1))
    with (
        tempfile.TemporaryDirectory(prefix="zcs-", dir="/tmp") as folder,  # short: a socket's path has 107 bytes
        Agents(Path(folder), None, lambda text: None) as agents,
    ):
        agents.grow(MEMBERS)
        found = take_turns(
            {"slow": partial(play, agents, messages, True), "nobody": partial(play, agents, messages, False)}, rounds
        )
    with_slow, without = found["slow"], found["nobody"]
    case = f"{MEMBERS} members, one of them ten times too slow: "
    floor_is = "the same without a slow member"
    medians = Figure.of([one.median for one in with_slow]), Figure.of([one.median for one in without])
    p95s = Figure.of([one.p95 for one in with_slow]), Figure.of([one.p95 for one in without])
    ratio = Figure.of([slow.median / nobody.median for slow, nobody in zip(with_slow, without, strict=True)])
    behind = Figure.of([one.behind for one in with_slow])
    caught_up = Figure.of([one.caught_up_ms for one in with_slow])
    return Report(
        [
            Row(f"{case}a message to the last of the others, median", "ms", "lower", *medians, floor_is),
            Row(f"{case}the same, 95 of 100 messages", "ms", "lower", *p95s, floor_is),
            Row(f"{case}the ratio to the median without a slow member", "times", "lower", ratio, goal=RATIO_MAX),
            Row(f"{case}what it lacks at the worst moment", "messages", "lower", behind),
            Row(f"{case}at the end, until it has everything", "ms", "lower", caught_up),
        ]
    )
