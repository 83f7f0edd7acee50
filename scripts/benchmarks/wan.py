"""Posts over a wide-area line: the time until all distant members have a burst, beside the thesis' Tables 5 and 8.

The publisher is on the tester's host, and the members of the case on theirs; all are real agents that have joined one
group by invitation. A burst is requested at once, and timed until the last member's client is notified of the last
post. As in the thesis, each member's time is that of its acknowledgement at the publisher, less half the slowest round
trip. Before each burst, the same number of messages of the thesis' size goes over the same line between bare sockets.
One member also gets bursts of up to a thousand, as in Figures 27 and 28. Between bursts the line is idle until slow
start begins again. Arrivals are counted to the end; the thesis counted those
within about two seconds, so that figure is shown as well.

First come pings between the agents (Trust Ping), beside the HTTP pings of Table 5.

A row is met at or below the published figure, or within two durable commits of bare CURVE sockets on the same line in
the same run: the sender's commit and the member's, on this disk, which the thesis did not have.

The agents of all hosts share this machine's cores: from eight members on, simultaneous work takes longer here than on
machines of their own.
"""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from analytics import thesis
from analytics.thesis import BATCHES
from benchmarks import ROOT, Figure, Report, Row, Scale, any_goal, scaled, wide
from benchmarks.journal import commit_ms
from benchmarks.wide.agents import Agents, Face, Seat, Stuck, drain, grow, listen, until
from benchmarks.wide.bare import Bare
from benchmarks.wide.line import Line, NoLine
from benchmarks.wide.thesis import (
    ARRIVED_PERCENT,
    RTT_MS,
    TESTER,
    member_names,
    one_way_ms,
    slowest_ms,
)
from zerochat.agent.api.client_protocol import AgentError, Notification
from zerochat.errors import LocalError
from zerochat.rpc import Event, GroupInfo, PongNotification

SIZES, SIZES_QUICK = (1, 2, 4, 8, 16), (1, 4)
BATCHES_QUICK = (1, 100)
ONE_MEMBER, ONE_MEMBER_QUICK = (200, 500, 1000), (1000,)
"""Further batches to one member (Figures 27, 28)."""
PINGS, PINGS_QUICK = 10, 3
PING_PAUSE_S = 0.2
ATTEMPTS = 3
IDLE_S = 4.0
"""Before each burst: six times the slowest line's retransmission timeout, so that its window is ten segments again."""
ARRIVE_S_MAX = 30.0
"""After this long without everything, a burst is counted as it is."""
WINDOW_S = 2.0
"""How long the thesis waited."""
COMMITS = 2
"""Of a post before its acknowledgement: at its author and at the member."""

KEYS = {"multi": "pairwise-multi", "single": "pairwise-single"}
"""The thesis' two modes as `zerochat new --keys` calls them: a queue for every pair, or one for all."""


@dataclass(slots=True)
class Burst:
    """The result of one burst: when each member had each post, and the size of the burst."""

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
    sizes, batches = scaled(quick, (SIZES, BATCHES), (SIZES_QUICK, BATCHES_QUICK), ((1,), (1,)))
    further = scaled(quick, ONE_MEMBER, ONE_MEMBER_QUICK, ())
    cases = [
        Case(mode, size, batch)
        for size in sizes
        for mode in KEYS
        for batch in (*batches, *(further if size == 1 else ()))
    ]
    modes, missing = modes_here()
    done: list[Case] = []
    pings: dict[str, list[float]] = {}
    line_rows = wide.measure(quick=True) if quick and not Scale.smoke else Report([])
    try:
        line = Line(one_way_ms(max(sizes)))
    except NoLine as error:
        return Report([], [f"{case.name} ({error})" for case in cases])
    commits_ms = COMMITS * commit_ms()
    attempts, count = (1, PINGS_QUICK) if quick else (ATTEMPTS, PINGS)
    try:
        with line, Agents(line) as agents:
            play(line, agents, [case for case in cases if case.mode in modes], attempts, done, pings, count)
    except (Stuck, LocalError) as error:
        missing += [f"{case.name} ({error})" for case in cases if case.mode in modes and case not in done]
    rows = [ping_row(host, times, commits_ms) for host, times in pings.items()]
    rows += [*line_rows.rows, *wide.rows_of(line), *(row for case in done for row in rows_of(case, commits_ms))]
    return Report(rows, [*missing, *line_rows.missing])


def modes_here() -> tuple[list[str], list[str]]:
    """The modes that this zerochat has, and a word for each that it has not."""
    asked = subprocess.run(
        [sys.executable, "-m", "zerochat", "new", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    chosen = "--keys" in asked.stdout
    here = [mode for mode, keys in KEYS.items() if (keys in asked.stdout if chosen else mode == "multi")]
    return here, [f"{mode} queue: this zerochat has no groups of that kind" for mode in KEYS if mode not in here]


def play(
    line: Line,
    agents: Agents,
    cases: Sequence[Case],
    attempts: int,
    done: list[Case],
    pings: dict[str, list[float]],
    ping_count: int,
) -> None:
    """Let the groups grow, one for each mode and all of the same agents, and run the cases of each size; finished cases
    go into `done`, and so many pings to the first member on each machine into `pings`. Raises Stuck."""
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
        for member in (member for member in members if member.host in thesis.PING_MS and member.host not in pings):
            pings[member.host] = ping_ms(publisher, next(iter(groups.values())), member.host, ping_count)
        with Bare(line.hosts[TESTER], [line.hosts[member.host] for member in members]) as bare:
            for case in (case for case in cases if case.size == size):
                for _ in range(attempts):
                    case.bursts.append(burst(line, groups[case.mode], publisher, members, case.batch, bare))
                done.append(case)


def _is_connected(seat: Seat, group: str, others: int) -> bool:
    return seat.connected(group) == others


def _new(founder: Seat, mode: str) -> str:
    try:
        info: GroupInfo = founder.client.call("create_group", group=mode, keys=KEYS[mode])
    except AgentError:
        info = founder.client.create_group(mode)  # it has only one kind of keys and takes no argument
    if info.keys != KEYS[mode]:
        raise Stuck(f"asked for a group with {KEYS[mode]}, and got {info.keys}")
    return info.id


def burst(line: Line, group: str, publisher: Seat, members: Sequence[Seat], batch: int, bare: Bare) -> Burst:
    """One burst of so many posts, as soon as the line has been idle; and before it one between bare sockets."""
    faces = [member.face for member in members]
    drain([*faces, publisher.face], IDLE_S)
    bare_ms = bare.burst_ms(batch)
    begun = publisher.face.ask(
        [("send_message", {"group": group, "text": f"post {number}"}) for number in range(batch)]
    )
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


def ping_ms(publisher: Seat, group: str, host: str, count: int) -> list[float]:
    """Pings to a member, one after the other, each until the client is notified of the answer. Raises Stuck."""
    times = []
    for _ in range(count):
        drain([publisher.face], PING_PAUSE_S)
        begun = publisher.face.ask([("ping_peer", {"peer": f"{group}/{host}"})])

        def pongs() -> list[float]:
            return [
                when
                for when, said in publisher.face.heard
                if isinstance(said, Notification) and isinstance(said.params, PongNotification)
            ]

        if not listen([publisher.face], lambda: bool(pongs()), ARRIVE_S_MAX):
            raise Stuck(f"no answer to a ping to {host}")
        times.append((pongs()[0] - begun) * 1000)
    return times


def _posts(face: Face, group: str) -> list[float]:
    """When this client was notified of each post so far."""
    found = [
        when
        for when, said in face.heard
        if isinstance(said, Notification)
        and isinstance(said.params, Event)
        and said.params.group == group
        and said.params.type == "message"
    ]
    face.heard.clear()
    return found


def ping_row(host: str, times: Sequence[float], commits_ms: float) -> Row:
    published, round_trip = thesis.PING_MS[host], RTT_MS[host]
    ours = Figure.of(times)
    goals = {"the published figure": published, f"the round trip and {COMMITS} commits": round_trip + commits_ms}
    goal, goal_is = any_goal(ours.median, goals)
    peers = {"thesis (HTTP, with a handshake)": Figure.of([published])}
    floor = Figure.of([round_trip])
    case = f"Table 5: a ping from {TESTER} to {host}"
    return Row(case, "ms", "lower", ours, floor, "the round trip", peers, goal, goal_is=goal_is)


def rows_of(case: Case, commits_ms: float) -> list[Row]:
    published = thesis.whole_ms(KEYS[case.mode], case.size, case.batch)
    theirs = {} if published is None else {"thesis": Figure.of([published])}
    half = Figure.of([slowest_ms(case.size) / 2])
    rows = []
    if whole := [burst for burst in case.bursts if burst.whole]:
        ours = Figure.of([burst.latency_ms for burst in whole])
        bare = Figure.of([burst.bare_ms for burst in whole])
        goal, goal_is = None, ""
        if published is not None:
            near_bare = f"bare sockets and {COMMITS} commits of {commits_ms / COMMITS:.1f} ms"
            goals = {"the published figure": published, near_bare: bare.median + commits_ms}
            goal, goal_is = any_goal(ours.median, goals)
        others = {**theirs, "bare sockets": bare}
        rows.append(
            Row(case.name, "ms", "lower", ours, half, "the way to the slowest member", others, goal, goal_is=goal_is)
        )
    arrived = Figure.of([100 * burst.arrived / burst.of for burst in case.bursts])
    in_window = Figure.of([100 * burst.in_window / burst.of for burst in case.bursts])
    percent = ARRIVED_PERCENT.get((case.mode, case.size, case.batch), 100.0)
    peers = {"thesis": Figure.of([percent])}
    rows.append(Row(f"{case.name}: arrived in the end", "%", "higher", arrived, goal=100))
    rows.append(Row(f"{case.name}: arrived within 2 s", "%", "higher", in_window, peers=peers))
    return rows
