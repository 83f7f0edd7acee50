"""Posts over a wide-area line: how long until everybody far away has a burst of them, beside the thesis' Table 8.

The publisher is on the tester's host, and as many members as the case says are on theirs; all are real agents that have
joined one group by invitation. A burst is asked for at once, and timed until the last member's face has been told of
the last post, so the time is until it is readable there. As the thesis counts it, each member's time is that of its
confirmation at the publisher, less half the slowest round trip. Before each burst, as many messages of the thesis' size
go over the same line between bare sockets. Between bursts the line is idle until slow start begins again. What arrives
is counted to the end; the thesis counted what had arrived within about two seconds, so that is shown as well.

The agents of all hosts share this machine's cores: from eight members on, what they do at the same moment takes longer
here than on machines of their own.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from analytics.thesis import BATCHES
from benchmarks import ROOT, Figure, Report, Row, wide
from benchmarks.wide.agents import Agents, Face, Seat, Stuck, drain, grow, listen, until
from benchmarks.wide.bare import Bare
from benchmarks.wide.line import Line, NoLine
from benchmarks.wide.thesis import (
    ARRIVED_PERCENT,
    PUBLISHED_MS,
    TESTER,
    member_names,
    one_way_ms,
    slowest_ms,
)
from zerochat.agent.api.client import AgentError, News
from zerochat.errors import LocalError
from zerochat.rpc import Event, GroupInfo

SIZES, SIZES_QUICK = (1, 2, 4, 8, 16), (1, 4)
BATCHES_QUICK = (1, 100)
ATTEMPTS = 3
IDLE_S = 4.0
"""Before each burst: six times the slowest line's retransmission timeout, so that its window is ten segments again."""
ARRIVE_S_MAX = 30.0
"""After this long without everything, a burst is counted as it is."""
WINDOW_S = 2.0
"""How long the thesis waited."""
LARGE_BATCH = 100

KEYS = {"multi": "pairwise-multi", "single": "pairwise-single"}
"""The thesis' two modes as `zerochat new --keys` calls them: a queue for every pair, or one for all."""


@dataclass(slots=True)
class Burst:
    """What became of one burst: when each member had which post, and of how many."""

    latency_ms: float
    bare_ms: float
    """How long as many messages of the thesis' size took between bare sockets just before, counted in the same way."""
    arrived: int
    in_window: int
    of: int

    @property
    def whole(self) -> bool:
        return self.arrived == self.of


@dataclass(slots=True)
class Case:
    mode: str
    size: int
    batch: int
    bursts: list[Burst] = field(default_factory=list)

    @property
    def name(self) -> str:
        members = "1 member" if self.size == 1 else f"{self.size} members"
        posts = "1 post" if self.batch == 1 else f"{self.batch} posts at once"
        return f"{posts} to {members}, {self.mode} queue"


def measure(quick: bool) -> Report:
    sizes, batches = (SIZES_QUICK, BATCHES_QUICK) if quick else (SIZES, BATCHES)
    cases = [Case(mode, size, batch) for size in sizes for mode in KEYS for batch in batches]
    modes, missing = modes_here()
    done: list[Case] = []
    line_rows = wide.measure(quick=True) if quick else Report([])
    try:
        line = Line(one_way_ms(max(sizes)))
    except NoLine as error:
        return Report([], [f"{case.name} ({error})" for case in cases])
    try:
        with line, Agents(line) as agents:
            play(line, agents, [case for case in cases if case.mode in modes], 1 if quick else ATTEMPTS, done)
    except (Stuck, LocalError) as error:
        missing += [f"{case.name} ({error})" for case in cases if case.mode in modes and case not in done]
    rows = [*line_rows.rows, *wide.rows_of(line), *(row for case in done for row in rows_of(case))]
    return Report(rows, [*missing, *line_rows.missing])


def modes_here() -> tuple[list[str], list[str]]:
    """The modes that this zerochat has, and a word for each that it has not."""
    asked = subprocess.run(
        [sys.executable, "-m", "zerochat", "new", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    chosen = "--keys" in asked.stdout
    here = [mode for mode, keys in KEYS.items() if (keys in asked.stdout if chosen else mode == "multi")]
    return here, [f"{mode} queue: this zerochat has no groups of that kind" for mode in KEYS if mode not in here]


def play(line: Line, agents: Agents, cases: Sequence[Case], attempts: int, done: list[Case]) -> None:
    """Let the groups grow, one for each mode and all of the same agents, and play the cases of each size; what has been
    played is put into `done`. Raises Stuck."""
    hosts = member_names(max(case.size for case in cases))
    publisher, first = agents.start(TESTER), agents.start(hosts[0])
    members = [first]
    groups = {mode: _new(first, mode) for mode in dict.fromkeys(case.mode for case in cases)}
    for group in groups.values():
        grow(group, first, [publisher], 2)
    for size in dict.fromkeys(case.size for case in cases):
        newcomers = [agents.start(host) for host in hosts[len(members) : size]]
        members += newcomers
        for group in groups.values():
            grow(group, first, newcomers, size + 1)
        # Members need not be connected with each other for this, and in a pair of the slowest some cannot be.
        for group in groups.values():
            until(f"{TESTER} connected with {size}", partial(_is_connected, publisher, group, size))
        with Bare(line.hosts[TESTER], [line.hosts[member.host] for member in members]) as bare:
            for case in (case for case in cases if case.size == size):
                for _ in range(attempts):
                    case.bursts.append(burst(line, groups[case.mode], publisher, members, case.batch, bare))
                done.append(case)


def _is_connected(seat: Seat, group: str, others: int) -> bool:
    return seat.connected(group) == others


def _new(founder: Seat, mode: str) -> str:
    try:
        info: GroupInfo = founder.client.call("new", group=mode, keys=KEYS[mode])
    except AgentError:
        info = founder.client.new(mode)  # it has only one kind, and does not ask which
    if info.keys != KEYS[mode]:
        raise Stuck(f"asked for a group with {KEYS[mode]}, and got {info.keys}")
    return info.id


def burst(line: Line, group: str, publisher: Seat, members: Sequence[Seat], batch: int, bare: Bare) -> Burst:
    """One burst of so many posts, as soon as the line has been idle; and before it one between bare sockets."""
    faces = [member.face for member in members]
    drain([*faces, publisher.face], IDLE_S)
    bare_ms = bare.burst_ms(batch)
    begun = publisher.face.ask([("send", {"group": group, "text": f"post {number}"}) for number in range(batch)])
    times: list[list[float]] = [[] for _ in faces]

    def all_there() -> bool:
        for face, seen in zip(faces, times, strict=True):
            seen += _posts(face, group)
        return all(len(seen) >= batch for seen in times)

    listen([*faces, publisher.face], all_there, ARRIVE_S_MAX)
    ways_s = [line.hosts[member.host].one_way_ms / 1000 for member in members]
    back = [[when - begun + way for when in seen] for seen, way in zip(times, ways_s, strict=True)]
    last = max((when for seen in back for when in seen), default=0.0)
    return Burst(
        latency_ms=(last - slowest_ms(len(members)) / 2000) * 1000,
        bare_ms=bare_ms,
        arrived=sum(map(len, back)),
        in_window=sum(when - way <= WINDOW_S for seen, way in zip(back, ways_s, strict=True) for when in seen),
        of=batch * len(members),
    )


def _posts(face: Face, group: str) -> list[float]:
    """When this face was told of the posts that it has told us of by now."""
    found = [
        when
        for when, said in face.heard
        if isinstance(said, News)
        and isinstance(said.item, Event)
        and said.item.group == group
        and said.item.type == "message"
    ]
    face.heard.clear()
    return found


def rows_of(case: Case) -> list[Row]:
    published = PUBLISHED_MS[case.mode][case.size][BATCHES.index(case.batch)]
    thesis = {} if published is None else {"thesis": Figure.of([published])}
    goal = None if published is None else published / (2 if case.batch == LARGE_BATCH else 1)
    half = Figure.of([slowest_ms(case.size) / 2])
    rows = []
    if whole := [burst for burst in case.bursts if burst.whole]:
        ours = Figure.of([burst.latency_ms for burst in whole])
        others = {**thesis, "bare sockets": Figure.of([burst.bare_ms for burst in whole])}
        rows.append(Row(case.name, "ms", "lower", ours, half, "the way to the slowest member", others, goal))
    arrived = Figure.of([100 * burst.arrived / burst.of for burst in case.bursts])
    in_window = Figure.of([100 * burst.in_window / burst.of for burst in case.bursts])
    percent = ARRIVED_PERCENT.get((case.mode, case.size, case.batch), 100.0)
    peers = {"thesis": Figure.of([percent])}
    rows.append(Row(f"{case.name}: arrived in the end", "%", "higher", arrived, goal=100))
    rows.append(Row(f"{case.name}: arrived within 2 s", "%", "higher", in_window, peers=peers))
    return rows
