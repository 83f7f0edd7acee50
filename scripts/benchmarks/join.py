"""Joining over a wide-area line: how long somebody waits for a seat in a group that is far away.

Every joiner is on the tester's host; the inviter is alice, 145 ms away. The clock starts when the face asks to join
("from nothing") and, within the same join, when the inviter is known and the request to join goes out to it; it stops
when the joiner is seated and every member is connected. A round trip is the slowest member's. The phases are those that
a face is told of (the welcome shows in the news that the group has members); their times add up to the whole join.

In the thesis the inviter is always known, and its figures are for somebody who has exchanged DIDs with all members
before, or with none of the others. A fresh agent of ours knows nobody, and stands beside the latter; where the inviter
is the only member, the thesis makes no difference between the two, and neither do we. "Members known before" is an
agent that is in another group with all members, and has been connected with them there for a while. It knows them in
less than the thesis' sense: DIDs are made for one pair in one group, so it exchanges them with every member all the
same, as a fresh agent does, but over the lines that are open.

The agents of all hosts share this machine's cores, and each pair exchanges DIDs, so where many join at once their work
may take longer than the way: no join of them can be shorter than that work by the number of cores, which stands beside
it as the floor.

With `--record DIR` the joiners record their telemetry too (`ours/recording.py`).
"""

import os
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import Figure, Report, Row, processor_s, wide
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
from zerochat.agent.api.client import News
from zerochat.agent.network.zmq.connection_scheduler import SECOND_S
from zerochat.errors import LocalError
from zerochat.rpc import JoinStatus, ViewNews

SIZES, SIZES_QUICK = (1, 2, 4, 8, 16, 32), (1, 4)
ATTEMPTS = 3
AT_ONCE = ((4, 4), (4, 16), (16, 4), (16, 16))
RTTS_MAX_KNOWN, RTTS_MAX = 4.0, 6.0
KNOWN, UNKNOWN = "thesis, members known before", "thesis, members not known"
ACQUAINTED = ", members known before"
AT_ONCE_RATIO_MAX = 1.5
JOIN_S_MAX = 75.0
NEWCOMERS = 8
"""Members that join at once while a group is made, so that this machine can keep up with them."""
ACQUAINTED_S = SECOND_S + 2.0
"""How long an agent has known the members before it joins another group of theirs: of each two who meet, one dials the
other, and is dialled back `SECOND_S` later; only then are the lines open both ways."""
SETTLE_S = 8.0
"""Between making a group and the join that is timed: what its members still have to tell each other is told. Those
of 33 who know each other from another group are busy with that for some seconds."""

PHASES = {
    "dialling": "until the link to the inviter is up",
    "exchanging": "until its answer to the exchange of DIDs",
    "asking": "until its welcome to the group",
    "welcomed": "from there until every member is connected",
}


@dataclass(frozen=True, slots=True)
class Join:
    """When each phase began, in ms after the face asked: those of PHASES, and `joined`, which ends it."""

    began_ms: dict[str, float]
    whole: bool
    """Whether every member was connected when it counted as done."""
    seat: Seat
    busy_s: float = 0.0
    """The processor time that the agents of all members and joiners took meanwhile."""

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
    sizes = SIZES_QUICK if quick else SIZES
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
    """Have so many fresh agents join a new group of all these, and end. What did not end well is said in `missing`.
    Raises Stuck."""
    newcomers = [agents.start(TESTER, f"{TESTER}-{number}") for number in range(joiners)]
    joins = join_new_group(seats, newcomers, missing, recorded)
    for seat in newcomers:
        stop(agents, seat, recorded)
    return joins


def join_acquainted(
    agents: Agents, seats: Sequence[Seat], attempts: int, missing: list[str], recorded: Recording | None = None
) -> list[Join]:
    """Have an agent that is connected with all these in another group join new groups of theirs, one after the other,
    and end; gives the joins that ended well. What did not is said in `missing`. Raises Stuck."""
    neighbours = new_group(seats)
    newcomer = agents.start(TESTER, f"{TESTER}-known")
    grow(neighbours, seats[0], [newcomer], len(seats) + 1)
    until(f"{len(seats)} neighbours", lambda: newcomer.connected(neighbours) == len(seats))
    drain([newcomer.face], ACQUAINTED_S)
    tries = [join_new_group(seats, [newcomer], missing, recorded) for _ in range(attempts)]
    joins = [join for joins in tries for join in joins if join.whole]
    leave(neighbours, [*seats, newcomer])
    stop(agents, newcomer, recorded)
    return joins


def stop(agents: Agents, seat: Seat, recorded: Recording | None) -> None:
    """End an agent; what it has recorded is exported first."""
    if recorded is not None:
        recorded.end(recording_name(seat))
    agents.stop(seat)


def recording_name(seat: Seat) -> str:
    return f"joiner-{seat.process.pid}"


def new_group(seats: Sequence[Seat]) -> str:
    """Make a group of all these agents; gives its id. Raises Stuck."""
    client = seats[0].client
    group = client.new(f"hikers-{len(client.groups())}").id
    for begin in range(1, len(seats), NEWCOMERS):
        newcomers = seats[begin : begin + NEWCOMERS]
        grow(group, seats[0], newcomers, begin + len(newcomers))
    return group


def leave(group: str, seats: Sequence[Seat]) -> None:
    """Have all these agents leave the group, the last of them first."""
    for seat in reversed(seats):
        seat.client.leave(group)


def join_new_group(
    seats: Sequence[Seat], newcomers: Sequence[Seat], missing: list[str], recorded: Recording | None
) -> list[Join]:
    """Have the newcomers join a new group of all these agents at once, which everybody leaves again afterwards: a group
    that others had joined and left before would have more to tell. Raises Stuck."""
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
    me = next(one.did for one in join.seat.client.members(group) if one.connection == "self")
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
    invitation = members[0].client.invite(group, uses=len(newcomers)).url
    drain(faces, SETTLE_S)
    processes = [seat.process.pid for seat in (*members, *newcomers)]
    busy_s = -processor_s(processes)
    asked = [face.ask([("join", {"invitation": invitation})]) for face in faces]
    told: list[list[tuple[float, str, JoinStatus | None]]] = [[] for _ in faces]

    def all_ended() -> bool:
        for face, one in zip(faces, told, strict=True):
            for when, said in face.heard:
                if isinstance(said, News) and isinstance(said.item, JoinStatus):
                    one.append((when, said.item.phase, said.item))
                elif isinstance(said, News) and isinstance(said.item, ViewNews) and said.item.group == group:
                    one.append((when, "welcomed", None))
            face.heard.clear()
        return all(any(phase in ("joined", "failed") for _, phase, _ in one) for one in told)

    listen(faces, all_ended, JOIN_S_MAX)
    busy_s += processor_s(processes)
    joins = []
    for seat, begun, one in zip(newcomers, asked, told, strict=True):
        began_ms: dict[str, float] = {}
        for when, phase, _ in one:
            began_ms.setdefault(phase, (when - begun) * 1000)
        end = next((status for _, phase, status in one if status is not None and phase == "joined"), None)
        if end is not None and "asking" in began_ms:
            joins.append(Join(began_ms, end.connected == end.members, seat, busy_s))
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
    work = Figure.of([joins[0].busy_s / (os.cpu_count() or 1) * 1000])
    ways = (
        (", from the request", [join.from_request for join in joins], [join.from_request for join in alone], None),
        (", from nothing", [join.from_nothing for join in joins], [join.from_nothing for join in alone], work),
    )
    for how, together, single, least in ways:
        case = case_of(size, f", {len(joins)} at once{how}: until the last one has its seat")
        published = dict(zip((KNOWN, UNKNOWN), map(float, JOINED_AT_ONCE_MS[size, len(joins)]), strict=True))
        last, least_is = max(together), "all agents' work on these cores" if least else ""
        beside = {name: Figure.of([time]) for name, time in published.items()}
        rows.append(Row(case, "ms", "lower", Figure(last, min(together), last), least, least_is, beside))
        if single:
            one_ms = Figure.of(single).median
            ratio, floor = Figure.of([last / one_ms]), least and _divided(least, one_ms)
            goal = AT_ONCE_RATIO_MAX if len(joins) == max(many for _, many in AT_ONCE) else None
            one = dict(zip((KNOWN, UNKNOWN), JOINED_MS[size], strict=True))
            peers = {name: Figure.of([published[name] / Figure.of(one[name]).median]) for name in published}
            rows.append(Row(case, "times one join", "lower", ratio, floor, least_is, peers, goal))
    return rows


def _divided(figure: Figure, by: float) -> Figure:
    return Figure(figure.median / by, figure.low / by, figure.high / by)
