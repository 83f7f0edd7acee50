"""The wide-area line itself: whether it is as long as it says, and whether TCP over it behaves as on a real one.

`line.py` makes the line, `agents.py` puts real agents on its hosts, `thesis.py` has the published figures and the
distances that they were taken over. What is measured over the line is in `wan.py` and `join.py` beside this package.
"""

import time
from collections.abc import Callable

import zmq

from benchmarks import Figure, Report, Row
from benchmarks.wide.line import Host, Line, NoLine, ping_ms
from benchmarks.wide.thesis import BURST_MS, BURST_RTT_MS

MESSAGE_BYTES, TOPIC_BYTES, FRAME_BYTES = 773, 37, 42
"""A message of the thesis', the name of its queue with what parts the two, and what CURVE and ZMTP add."""
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
    """What a line, now closed, says of itself. Where it was late by more than a few ms, do not believe the rest."""
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
    server_public, server_secret = zmq.curve_keypair()
    client_public, client_secret = zmq.curve_keypair()
    topic = b"t" * (TOPIC_BYTES - 1)
    # A context keeps to the host on which its first socket was made: its threads begin there.
    with _context(publisher) as sending, _context(subscriber) as hearing:
        pub = publisher.call(sending.socket, zmq.XPUB)
        pub.curve_secretkey, pub.curve_publickey, pub.curve_server = server_secret, server_public, True
        port = publisher.call(pub.bind_to_random_port, f"tcp://{publisher.address}")
        sub = subscriber.call(hearing.socket, zmq.SUB)
        sub.curve_secretkey, sub.curve_publickey, sub.curve_serverkey = client_secret, client_public, server_public
        sub.rcvtimeo = pub.rcvtimeo = 10_000
        sub.subscribe(topic)
        sub.connect(f"tcp://{publisher.address}:{port}")
        pub.recv()
        times = []
        for burst in bursts:
            time.sleep(IDLE_S)
            begun = time.monotonic()
            for _ in range(burst):
                pub.send(topic + b" " + bytes(MESSAGE_BYTES))
            for _ in range(burst):
                sub.recv()
            times.append((time.monotonic() - begun) * 1000 + BURST_RTT_MS / 2)
        return times


class _context:
    """A context of libzmq's whose own threads are on this host."""

    def __init__(self, host: Host) -> None:
        make: Callable[[], zmq.Context[zmq.Socket[bytes]]] = zmq.Context
        self._context = host.call(make)

    def __enter__(self) -> "zmq.Context[zmq.Socket[bytes]]":
        return self._context

    def __exit__(self, *what: object) -> None:
        self._context.destroy(0)
