"""Floods by a member: how long the messages of the others take while one member spends its whole allowance.

Three agents on loopback, each in its own process, and members whose keys flood one of them (`ours/flooder.py`). In
turns without and with each flood, two agents send to each other at an even pace; the clock covers each message from the
request to send it until the other agent has notified its client. A flood begins with the full burst that the rate
limits allow, and goes on at the sustained rate. Between rounds all token buckets fill up.

The flood of sybils is last, as it is for good: one member adds many, which rename themselves again and again.
"""

import contextlib
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import quantiles

from benchmarks import Figure, Report, Row, processor_s, scaled
from benchmarks.ours.agents import GROUP, STEP_S_MAX, Agents, Member
from benchmarks.ours.flooder import FloodingMember
from zerochat.group.links.rate_limits import WORK_US_MAX, WORK_US_PER_S
from zerochat.rpc import Event
from zerochat.sim.floods import FLOODS

KEYS = "sender-key"
"""The key mode with signed streams, so that all kinds of messages exist."""
ROUNDS, ROUNDS_QUICK = 3, 1
FLOOD_S, FLOOD_S_QUICK = 20.0, 10.0
QUIET_MESSAGES = 50
PACE_S = 0.05
POSTS, POST_BYTES = 200, 8_000
"""The history that can be requested."""
FILE_BYTES = 4 << 20
REFILL_S = WORK_US_MAX / WORK_US_PER_S
RATIO_MAX = 2.0
SUSTAINED_MAX = 10.0
"""Percent of a core."""
ANSWER_MS_MAX = 250.0
SYBILS = "sybils"
SYBILS_S, SYBILS_S_QUICK = 30.0, 15.0
SYBILS_WORK_S_MAX = 2.0


class Round:
    """One round: the times of all messages and of the flooded agent's answers, ms, and the part of a processor that it
    took."""

    def __init__(self, times: Sequence[float], answers: Sequence[float], processor: float) -> None:
        self.times, self.answers, self.processor = times, answers, processor

    def __add__(self, other: "Round") -> "Round":
        return Round(
            (*self.times, *other.times), (*self.answers, *other.answers), (self.processor + other.processor) / 2
        )

    @property
    def median(self) -> float:
        return Figure.of(self.times).median

    @property
    def p95(self) -> float:
        return quantiles(self.times, n=20)[-1]


def talk(one: Member, other: Member, messages: int, for_s: float = 0.0) -> Round:
    """Send messages in both directions, so many or for so long; nothing may be lost."""
    times: list[float] = []
    answers: list[float] = []
    began, taken = time.monotonic(), processor_s([one.process.pid])
    while len(times) < messages or time.monotonic() < began + for_s:
        for speaker, listener in ((other, one), (one, other)):
            text = f"{time.monotonic_ns()}"
            sent = time.monotonic()
            speaker.client.send_message(GROUP, text)
            answered = time.monotonic()
            _hear(listener, text)
            times.append((time.monotonic() - sent) * 1000)
            if speaker is one:
                answers.append((answered - sent) * 1000)
            time.sleep(max(0.0, PACE_S / 2))
    spent = processor_s([one.process.pid]) - taken
    return Round(times, answers, spent / (time.monotonic() - began))


def _hear(listener: Member, text: str) -> None:
    deadline = time.monotonic() + STEP_S_MAX
    while (item := listener.news.next_notification(max(0.0, deadline - time.monotonic()))) is not None:
        if isinstance(item.params, Event) and item.params.body.get("text") == text:
            return
    raise TimeoutError("a message was not delivered")


KINDS = [*FLOODS, SYBILS]


def options(parser: ArgumentParser) -> None:
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="only these floods")


def measure(quick: bool, kinds: Sequence[str] = KINDS) -> Report:
    rounds, flood_s = scaled(quick, (ROUNDS, FLOOD_S), (ROUNDS_QUICK, FLOOD_S_QUICK), (1, 0.3))
    quiet_messages = scaled(quick, QUIET_MESSAGES, QUIET_MESSAGES, 2)
    refill_s = scaled(quick, REFILL_S, REFILL_S, 0.0)
    sybils_s = scaled(quick, SYBILS_S, SYBILS_S_QUICK, 1.0)
    floods = [kind for kind in kinds if kind != SYBILS]
    found: dict[str, list[tuple[Round, Round, Round]]] = {kind: [] for kind in floods}
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="zca-", dir="/tmp")))
        agents = stack.enter_context(Agents(folder, KEYS, lambda text: None))
        agents.grow(1)
        agents.publisher.news.subscribe()
        one, other = agents.publisher, agents.listeners[0]
        _make_history(one, folder, scaled(quick, POSTS, POSTS, 5))
        members = [FloodingMember(folder, f"flooder{number}", one) for number in range(rounds)]
        talk(one, other, quiet_messages)
        for number, member in enumerate(members):
            for kind in floods if number % 2 == 0 else floods[::-1]:
                before = talk(one, other, quiet_messages)
                flood = member.flood(kind, one, flood_s)
                with flood.running():
                    under = talk(one, other, 4, flood_s / 2), talk(one, other, 4, flood_s / 2)
                time.sleep(refill_s)
                found[kind].append((before + talk(one, other, quiet_messages), *under))
        if SYBILS in kinds:
            rows = _sybil_rows(agents, members[0], quiet_messages, sybils_s)
    return Report([*(row for kind in floods for row in _flood_rows(kind, found[kind])), *rows])


def _flood_rows(kind: str, rounds: Sequence[tuple[Round, Round, Round]]) -> list[Row]:
    """The rows of a flood, from its rounds: without it, while it begins with a burst, and while it goes on."""
    case, floor_is = f"a message during a flood of {kind}", "without a flood, in turns"
    pairs = [(quiet, burst + sustained) for quiet, burst, sustained in rounds]
    medians = [Figure.of([one.median for one in side]) for side in zip(*pairs, strict=True)]
    p95s = [Figure.of([one.p95 for one in side]) for side in zip(*pairs, strict=True)]
    ratio = Figure.of([flooded.median / quiet.median for quiet, flooded in pairs])
    ratio95 = Figure.of([flooded.p95 / quiet.p95 for quiet, flooded in pairs])
    answers = [Figure.of([max(one.answers) for one in side]) for side in zip(*pairs, strict=True)]
    spent = [Figure.of([one.processor * 100 for one in side]) for side in zip(*pairs, strict=True)]
    more = Figure.of([(sustained.processor - quiet.processor) * 100 for quiet, _, sustained in rounds])
    by_it = f"a flood of {kind}, the flooded agent's"
    return [
        Row(f"{case}, median", "ms", "lower", medians[1], medians[0], floor_is),
        Row(f"{case}, 95 of 100", "ms", "lower", p95s[1], p95s[0], floor_is),
        Row(f"{case}, ratio of the medians", "times", "lower", ratio, goal=RATIO_MAX),
        Row(f"{case}, ratio of the 95 of 100", "times", "lower", ratio95, goal=RATIO_MAX),
        Row(f"{by_it} slowest answer to a client", "ms", "lower", answers[1], answers[0], floor_is, goal=ANSWER_MS_MAX),
        Row(f"{by_it} processor time, with the burst", "%", "lower", spent[1], spent[0], floor_is),
        Row(f"{by_it} processor time that it causes, sustained", "%", "lower", more, goal=SUSTAINED_MAX),
    ]


def _sybil_rows(agents: Agents, by: FloodingMember, quiet_messages: int, for_s: float) -> list[Row]:
    """A member adds others, which change their names again and again. Then another member renames itself and one more
    joins, or this raises."""
    one, other = agents.publisher, agents.listeners[0]
    quiet = talk(one, other, quiet_messages)
    began, taken = time.monotonic(), [processor_s([member.process.pid]) for member in (one, other)]
    with by.sybils(one).running():
        under = talk(one, other, 4, for_s)
    passed = time.monotonic() - began
    spent = [processor_s([member.process.pid]) - before for member, before in zip((one, other), taken, strict=True)]
    more = max(spent) - quiet.processor * passed
    other.client.set_display_name(GROUP, "another name")
    _until(lambda: any(member.nick == "another name" for member in one.client.list_members(GROUP)))
    agents.add()
    case = "a flood of membership events by sybils, the flooded agents'"
    floor = Figure.of([max(quiet.answers)])
    return [
        Row(f"{case} processor time", "s", "lower", Figure.of([more]), goal=SYBILS_WORK_S_MAX),
        Row(
            f"{case} slowest answer to a client",
            "ms",
            "lower",
            Figure.of([max(under.answers)]),
            floor,
            "without a flood",
            goal=ANSWER_MS_MAX,
        ),
    ]


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STEP_S_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what another member has changed was not heard")
        time.sleep(PACE_S)


def _make_history(member: Member, folder: Path, posts: int) -> None:
    """Posts and a file."""
    for number in range(posts):
        member.client.send_message(GROUP, str(number).zfill(POST_BYTES))
    path = folder / "file"
    path.write_bytes(bytes(FILE_BYTES))
    member.client.send_files(GROUP, [str(path)])
