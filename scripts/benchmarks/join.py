"""Joining over a wide-area line: the time until a joiner is a connected member of a group that is far away.

Every joiner is on the tester's host; the inviter, Alice, is 145 ms away. The clock starts when the client requests the
join ("from nothing") and, within the same join, when the inviter is known and the join request goes out; it stops when
the joiner is a member and every member is connected. A round trip is the slowest member's. The phases are those that a
client is notified of (the welcome shows as the first member list); their times add up to the whole join.

In the thesis the inviter is always known, and its figures are for a joiner that has exchanged DIDs with all members
before, or with none of the others. A fresh agent of ours knows no member, and is compared with the latter; where the
inviter is the only member, the two cases coincide. "Members known before" is an agent that shares another group with
all members and has been connected with them for a while. That is less than the thesis assumes: DIDs belong to one pair
in one group, so it exchanges them with every member like a fresh agent, but over open lines.

The agents of all hosts share this machine's cores. Each pair exchanges DIDs, so if many join at once, their processor
time may exceed the line's time. The floor beside it is that processor time divided by the number of cores. The goal of
sixteen at once is one and a half times one join, or, where that is more, 1.3 times this floor.

With `--record DIR` the joiners record their telemetry too (`ours/recording.py`).
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from benchmarks import Figure, Report, Row, Scale, any_goal, processor_s, scaled, wide
from benchmarks.ours import recording
from benchmarks.ours.recording import Recording
from benchmarks.wide.agents import Agents, Seat, Stuck, drain, grow, listen, until
from benchmarks.wide.line import Line, NoLine
from benchmarks.wide.thesis import (
    JOINED_AT_ONCE_MS,
    JOINED_MS,
    TESTER,
    member_names,
    one_way_ms,
    slowest_ms,
)
from zerochat.agent.api.client_protocol import Notification
from zerochat.agent.network.zmq.connection_scheduler import SECOND_S
from zerochat.errors import LocalError
from zerochat.rpc import JoinStatus, ViewNotification

SIZES, SIZES_QUICK = (1, 2, 4, 8, 16, 32), (1, 4)
ATTEMPTS = 3
AT_ONCE = ((4, 4), (4, 16), (16, 4), (16, 16))
RTTS_MAX_KNOWN, RTTS_MAX = 4.0, 6.0
KNOWN, UNKNOWN = "thesis, members known before", "thesis, members not known"
ACQUAINTED = ", members known before"
AT_ONCE_RATIO_MAX, AT_ONCE_WORK_MAX = 1.5, 1.3
JOIN_S_MAX = 75.0
NEWCOMERS = 8
"""Members that join at once while a group is built, as many as this machine can serve."""
ACQUAINTED_S = SECOND_S + 2.0
"""How long an agent has known the members before it joins another group of theirs. Of each two members one dials, and
is dialled back `SECOND_S` later; only then are the lines open both ways."""
SETTLE_S = 8.0
"""The pause between building a group and the timed join, in which its members finish their exchanges. 33 members that
share another group are busy for some seconds."""

PHASES = {
    "dialling": "until the link to the inviter is up",
    "exchanging": "until its answer to the exchange of DIDs",
    "asking": "until its welcome to the group",
    "welcomed": "from there until every member is connected",
}


@dataclass(frozen=True, slots=True)
class Join:
    """The start of each phase in ms after the request: those of PHASES, and `joined`, which ends it."""

    began_ms: dict[str, float]
    whole: bool
    """Whether every member was connected when it counted as done."""
    seat: Seat
    busy_s: float = 0.0
    """The processor time that the agents of all members and joiners took meanwhile."""
    busy_from_request_s: float = 0.0
    """The part of it after the first join request."""

    @property
    def from_nothing(self) -> float:
        return self.began_ms["joined"]

    @property
    def from_request(self) -> float:
        return self.began_ms["joined"] - self.began_ms["asking"]

    def phase_ms(self) -> dict[str, float]:
        """How long each phase took; 0 for one that was passed over."""
        there = [phase for phase in (*PHASES, "joined") if phase in self.began_ms]
        took = {phase: self.began_ms[after] - self.began_ms[phase] for phase, after in pairwise(there)}
        return {phase: took.get(phase, 0.0) for phase in PHASES}


options = recording.options


def measure(quick: bool, record: Path | None = None) -> Report:
    recorded = Recording(record) if record is not None else None
    sizes = scaled(quick, SIZES, SIZES_QUICK, (1,))
    at_once = () if quick else AT_ONCE
    rows: list[Row] = []
    missing: list[str] = []
    try:
        line = Line(one_way_ms(max(sizes)))
    except NoLine as error:
        cases = [case_of(size, "") for size in sizes] + [f"{many} joiners at once into {n}" for n, many in at_once]
        return Report([], [f"{case} ({error})" for case in cases])
    try:
        with line, Agents(line) as agents:
            seats: list[Seat] = []
            attempts = range(1 if quick else ATTEMPTS)
            for size in sizes:
                seats += [agents.start(host) for host in member_names(size)[len(seats) :]]
                alone = [
                    join for _ in attempts for join in join_afresh(agents, seats, 1, missing, recorded) if join.whole
                ]
                peer, goal = (UNKNOWN, RTTS_MAX) if size > 1 else (KNOWN, RTTS_MAX_KNOWN)
                rows += rows_of_one(size, "", alone, peer, goal)
                known = join_acquainted(agents, seats, len(attempts), missing, recorded)
                rows += rows_of_one(size, ACQUAINTED, known, KNOWN, RTTS_MAX_KNOWN)
                for joiners in (many for there, many in at_once if there == size):
                    together = join_afresh(agents, seats, joiners, missing, recorded)
                    if len(together) == joiners:
                        rows += rows_at_once(size, together, alone)
    except (Stuck, LocalError) as error:
        missing.append(f"everything from here on ({error})")
    if recorded is not None:
        recorded.close("join")
    return Report([*wide.rows_of(line), *rows], missing)


def join_afresh(
    agents: Agents, seats: Sequence[Seat], joiners: int, missing: list[str], recorded: Recording | None = None
) -> list[Join]:
    """Have this many fresh agents join a new group of these agents, and end. Failed joins are added to `missing`.
    Raises Stuck."""
    newcomers = [agents.start(TESTER, f"{TESTER}-{number}") for number in range(joiners)]
    joins = join_new_group(seats, newcomers, missing, recorded)
    for seat in newcomers:
        stop(agents, seat, recorded)
    return joins


def join_acquainted(
    agents: Agents, seats: Sequence[Seat], attempts: int, missing: list[str], recorded: Recording | None = None
) -> list[Join]:
    """Have an agent that shares another group with all these agents join new groups of theirs, one after the other, and
    end. Returns the successful joins; failed ones are added to `missing`. Raises Stuck."""
    neighbours = new_group(seats)
    newcomer = agents.start(TESTER, f"{TESTER}-known")
    grow(neighbours, seats[0], [newcomer], len(seats) + 1)
    until(f"{len(seats)} neighbours", lambda: newcomer.connected(neighbours) == len(seats))
    drain([newcomer.face], 0 if Scale.smoke else ACQUAINTED_S)
    tries = [join_new_group(seats, [newcomer], missing, recorded) for _ in range(attempts)]
    joins = [join for joins in tries for join in joins if join.whole]
    leave(neighbours, [*seats, newcomer])
    stop(agents, newcomer, recorded)
    return joins


def stop(agents: Agents, seat: Seat, recorded: Recording | None) -> None:
    """End an agent, after exporting its telemetry."""
    if recorded is not None:
        recorded.end(recording_name(seat))
    agents.stop(seat)


def recording_name(seat: Seat) -> str:
    return f"joiner-{seat.process.pid}"


def new_group(seats: Sequence[Seat]) -> str:
    """Make a group of all these agents; gives its id. Raises Stuck."""
    client = seats[0].client
    group = client.create_group(f"hikers-{len(client.list_groups())}").id
    for begin in range(1, len(seats), NEWCOMERS):
        newcomers = seats[begin : begin + NEWCOMERS]
        grow(group, seats[0], newcomers, begin + len(newcomers))
    return group


def leave(group: str, seats: Sequence[Seat]) -> None:
    """Have all these agents leave the group, the last of them first."""
    for seat in reversed(seats):
        seat.client.leave_group(group)


def join_new_group(
    seats: Sequence[Seat], newcomers: Sequence[Seat], missing: list[str], recorded: Recording | None
) -> list[Join]:
    """Have the joiners join a new group of all these agents at once; all leave it afterwards, since a group with former
    members has more to send. Raises Stuck."""
    group = new_group(seats)
    if recorded is not None:
        for seat in newcomers:
            recorded.begin(recording_name(seat), seat.client)
    joins = join_at_once(group, seats, newcomers)
    if recorded is not None:
        recorded.runs += [run_of(join, group, len(seats), len(newcomers), recorded) for join in joins]
    if partly := len(newcomers) - sum(join.whole for join in joins):
        case = case_of(len(seats), "")
        missing.append(f"{case}: {partly} of {len(newcomers)} at once did not end with every member connected")
    leave(group, seats)
    return joins


def run_of(join: Join, group: str, members: int, at_once: int, recorded: Recording) -> dict[str, Any]:
    """A join as it is written beside the exports. `joiner`: its pseudonym in them."""
    me = next(one.did for one in join.seat.client.list_members(group) if one.connection == "self")
    return {
        "joiner": recorded.member(group, me),
        "members": members,
        "at_once": at_once,
        "from_nothing_ms": join.from_nothing,
        "from_request_ms": join.from_request,
    }


def join_at_once(group: str, members: Sequence[Seat], newcomers: Sequence[Seat]) -> list[Join]:
    """Have all newcomers join the group of these members together, invited by the first of them; gives the joins that
    came to their end. Raises Stuck."""
    faces = [seat.face for seat in newcomers]
    invitation = members[0].client.create_invitation(group, uses=len(newcomers)).url
    drain(faces, 0 if Scale.smoke else SETTLE_S)
    processes = [seat.process.pid for seat in (*members, *newcomers)]
    started_s, requested_s = processor_s(processes), 0.0
    asked = [face.ask([("join_group", {"invitation": invitation})]) for face in faces]
    told: list[list[tuple[float, str, JoinStatus | None]]] = [[] for _ in faces]

    def all_ended() -> bool:
        nonlocal requested_s
        for face, one in zip(faces, told, strict=True):
            for when, said in face.heard:
                if isinstance(said, Notification) and isinstance(said.params, JoinStatus):
                    one.append((when, said.params.phase, said.params))
                elif (
                    isinstance(said, Notification)
                    and isinstance(said.params, ViewNotification)
                    and said.params.group == group
                ):
                    one.append((when, "welcomed", None))
            face.heard.clear()
            if not requested_s and any(phase == "asking" for _, phase, _ in one):
                requested_s = processor_s(processes)
        return all(any(phase in ("joined", "failed") for _, phase, _ in one) for one in told)

    listen(faces, all_ended, JOIN_S_MAX)
    ended_s = processor_s(processes)
    joins = []
    for seat, begun, one in zip(newcomers, asked, told, strict=True):
        began_ms: dict[str, float] = {}
        for when, phase, _ in one:
            began_ms.setdefault(phase, (when - begun) * 1000)
        end = next((status for _, phase, status in one if status is not None and phase == "joined"), None)
        if end is not None and "asking" in began_ms:
            busy_s = ended_s - started_s, ended_s - requested_s
            joins.append(Join(began_ms, end.connected == end.members, seat, *busy_s))
    return joins


def case_of(size: int, how: str) -> str:
    members = "1 member" if size == 1 else f"{size} members"
    return f"joining {members} (round trip {slowest_ms(size):.0f} ms){how}"


def rows_of_one(size: int, who: str, joins: Sequence[Join], peer: str, rtts_max: float) -> list[Row]:
    """Joins of one at a time, beside the thesis' figure of that name."""
    if not joins:
        return []
    rtt = slowest_ms(size)
    rows = []
    published = {peer: Figure.of(JOINED_MS[size][(KNOWN, UNKNOWN).index(peer)])}
    ways = (
        ("from the request", [join.from_request for join in joins], published, rtts_max),
        ("from nothing", [join.from_nothing for join in joins], dict[str, Figure](), None),
    )
    for how, times, peers, goal in ways:
        in_rtts = {each: _divided(figure, rtt) for each, figure in peers.items()}
        case, ours = case_of(size, f"{who}, {how}"), Figure.of(times)
        rows.append(Row(case, "ms", "lower", ours, peers=peers))
        rows.append(Row(case, "round trips", "lower", _divided(ours, rtt), peers=in_rtts, goal=goal))
    phases = defaultdict(list)
    for join in joins:
        for phase, took in join.phase_ms().items():
            phases[phase].append(took)
    for phase, what in PHASES.items():
        rows.append(Row(case_of(size, f"{who}: {what}"), "ms", "lower", Figure.of(phases[phase])))
    return rows


def rows_at_once(size: int, joins: Sequence[Join], alone: Sequence[Join]) -> list[Row]:
    """Joins of several at a time, beside those of one."""
    rows = []
    cores, work_is = os.cpu_count() or 1, "all agents' work on these cores"
    ways = (
        ("the request", attrgetter("from_request"), joins[0].busy_from_request_s),
        ("nothing", attrgetter("from_nothing"), joins[0].busy_s),
    )
    for how, time_of, busy_s in ways:
        together, work = [time_of(join) for join in joins], Figure.of([busy_s / cores * 1000])
        case = case_of(size, f", {len(joins)} at once, from {how}: until the last one is connected")
        published = dict(zip((KNOWN, UNKNOWN), map(float, JOINED_AT_ONCE_MS[size, len(joins)]), strict=True))
        last = max(together)
        beside = {name: Figure.of([time]) for name, time in published.items()}
        rows.append(Row(case, "ms", "lower", Figure(last, min(together), last), work, work_is, beside))
        if alone:
            one_ms = Figure.of([time_of(join) for join in alone]).median
            ratio, floor = Figure.of([last / one_ms]), _divided(work, one_ms)
            goal, goal_is = None, ""
            if len(joins) == max(many for _, many in AT_ONCE):
                by_work = f"{AT_ONCE_WORK_MAX} times {work_is}"
                goals = {f"{AT_ONCE_RATIO_MAX} times one join": AT_ONCE_RATIO_MAX}
                goal, goal_is = any_goal(ratio.median, goals | {by_work: AT_ONCE_WORK_MAX * floor.median})
            one = dict(zip((KNOWN, UNKNOWN), JOINED_MS[size], strict=True))
            peers = {name: Figure.of([published[name] / Figure.of(one[name]).median]) for name in published}
            rows.append(Row(case, "times one join", "lower", ratio, floor, work_is, peers, goal, goal_is=goal_is))
    return rows


def _divided(figure: Figure, by: float) -> Figure:
    return Figure(figure.median / by, figure.low / by, figure.high / by)
