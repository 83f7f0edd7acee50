"""The wide-area line itself: its measured delay, and TCP's behaviour over it.

`line.py` builds the line, `agents.py` runs real agents on its hosts, `bare.py` bare sockets, `thesis.py` has the
published figures and distances. `wan.py` and `join.py` beside this package measure over the line.
"""

import time

from benchmarks import Figure, Report, Row
from benchmarks.wide.bare import MESSAGE_BYTES, TOPIC_BYTES, Bare
from benchmarks.wide.line import Host, Line, NoLine, ping_ms
from benchmarks.wide.thesis import BURST_MS, BURST_RTT_MS

FRAME_BYTES = 42
"""The overhead of CURVE and ZMTP for a message."""
SEGMENT_BYTES, WINDOW_SEGMENTS = 1448, 10
IDLE_S = 2.0
"""Between two bursts: longer than the retransmission timeout, so that slow start begins again."""


def measure(quick: bool) -> Report:
    rounds, bursts = (1, (1, 30, 200)) if quick else (3, tuple(BURST_MS))
    cases = ["a ping", *(_case(burst) for burst in bursts)]
    try:
        with Line({"near": 0.0, "far": BURST_RTT_MS / 2}) as line:
            near, far = line.hosts["near"], line.hosts["far"]
            pings = Figure.of(ping_ms(near, far.address))
            rtt = Figure(BURST_RTT_MS, BURST_RTT_MS, BURST_RTT_MS)
            rows = [Row(cases[0], "ms", "lower", pings, rtt, "the delay that was asked for")]
            times = burst_ms(near, far, [burst for burst in bursts for _ in range(rounds)])
    except NoLine as error:
        return Report([], [f"{case} ({error})" for case in cases])
    for number, burst in enumerate(bursts):
        ours = Figure.of(times[number * rounds : (number + 1) * rounds])
        floor = _slow_start_rounds(burst) * BURST_RTT_MS
        peers = {"thesis": Figure(BURST_MS[burst], BURST_MS[burst], BURST_MS[burst])}
        rows.append(
            Row(_case(burst), "ms", "lower", ours, Figure(floor, floor, floor), "round trips of slow start", peers)
        )
    return Report([*rows, *rows_of(line)])


def rows_of(line: Line) -> list[Row]:
    """Statistics of a line, now closed. If it was late by more than a few ms, the other figures are not valid."""
    if line.carried is None:
        return []
    usual_ms, worst_ms = line.carried.late_us_p99 / 1000, line.carried.late_us_max / 1000
    case = f"the line: how late of {line.carried.carried} packets the worst hundredth is"
    rows = [Row(case, "ms", "lower", Figure(usual_ms, usual_ms, worst_ms))]
    if line.carried.dropped:
        dropped = Figure.of([line.carried.dropped])
        rows.append(Row("the line: packets dropped", "packets", "lower", dropped, goal=0))
    return rows


def _case(burst: int) -> str:
    return f"the line: {burst} bare messages at once, and half a round trip"


def _slow_start_rounds(messages: int) -> int:
    """Round trips until so many messages and a word back have arrived: windows of 10, 20, 40, ... segments."""
    segments = -(-messages * (MESSAGE_BYTES + TOPIC_BYTES + FRAME_BYTES) // SEGMENT_BYTES)
    rounds, room = 1, WINDOW_SEGMENTS
    while segments > room:
        rounds, segments, room = rounds + 1, segments - room, room * 2
    return rounds


def burst_ms(publisher: Host, subscriber: Host, bursts: list[int]) -> list[float]:
    """Publish each burst over one CURVE connection after a pause; gives the time until its last message is there, with
    the way back of a confirmation."""
    times = []
    with Bare(publisher, [subscriber]) as bare:
        for burst in bursts:
            time.sleep(IDLE_S)
            times.append(bare.burst_ms(burst) + BURST_RTT_MS / 2)
    return times
