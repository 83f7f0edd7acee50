"""A ring beside a mesh over delay lines: links, deliveries and latencies of the same real agents.

All members belong to two groups with the same keys, one on the ring (`zerochat new --kind large`) and one in which each
is linked to all. They are real agents on the hosts of a simulated line (`wide/line.py`): network namespaces on this
machine, whose packets are delayed as between the thesis' regions. After each member's first message, which carries its
first keys, random members send one message at a time, in both groups in turn, so that background load affects both
alike. A latency is the time from the sender's request to the notification of one member's client.

Members that come to know that a link is of no use close it a minute later. The links are counted once they are the
neighbours alone, or at the end of the patience for that; `zerochat overlay` shows the same. All agents share this
machine's cores, so latencies include waiting for a core: compare the two groups.
"""

import argparse
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from benchmarks import Figure, Report, Row, scaled, wide
from benchmarks.wide.agents import Agents, Seat, Stuck, drain, grow, listen, until
from benchmarks.wide.line import Line, NoLine
from benchmarks.wide.thesis import member_names, one_way_ms
from zerochat.agent.api.client_protocol import Notification
from zerochat.errors import LocalError
from zerochat.limits import RING_KEYS
from zerochat.overlay.ring import LINKS_MAX
from zerochat.rpc import Event, LinkInfo

MEMBERS, MESSAGES = (32, 26, 3), (100, 20, 2)
"""As a whole, with --quick, with --smoke."""
LATENCY_RATIO_MAX = 3.0
"""Of the ring's median beside the mesh's."""
WAVE = 8
"""Members that join at once."""
LINKED_S_MAX, AT_REST_S_MAX = 120.0, 180.0
FIRST_S_MAX, ARRIVE_S_MAX = 120.0, 30.0
"""After this long a message that has not arrived counts as missing."""
BREATH_S = 0.3
"""Between two messages, so that the acknowledgements of one do not delay the next."""
SEED = 46
PATHS = ("ring", "mesh")


@dataclass(slots=True)
class Traffic:
    """What came of the messages in one group."""

    latencies_ms: list[float] = field(default_factory=list)
    wanted: int = 0

    def percentile(self, percent: int) -> float:
        return statistics.quantiles(self.latencies_ms, n=100, method="inclusive")[percent - 1]


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, metavar="N", help="members of both groups")
    parser.add_argument("--messages", type=int, metavar="N", help="messages in each group")


def measure(quick: bool, members: int | None = None, messages: int | None = None) -> Report:
    members, messages = members or scaled(quick, *MEMBERS), messages or scaled(quick, *MESSAGES)
    cases = [f"{members} members, {path}" for path in PATHS]
    try:
        line = Line(one_way_ms(members))
    except NoLine as error:
        return Report([], [f"{case} ({error})" for case in cases])
    rows: list[Row] = []
    try:
        with line, Agents(line) as agents:
            seats = [agents.start(host) for host in member_names(members)]
            groups = {path: grown(seats, path) for path in PATHS}
            first = {path: Traffic() for path in PATHS}
            for path, group in groups.items():
                send(seats, group, [(seat, f"first of {seat.host}") for seat in seats], first[path], FIRST_S_MAX)
            links = at_rest(seats, groups["ring"])
            traffic = exchanged(seats, groups, messages)
            links = [max(pair, key=len) for pair in zip(links, links_of(seats, groups["ring"]), strict=True)]
            rows += rows_of(f"{members} members over the line", links, first, traffic)
    except (Stuck, LocalError) as error:
        return Report(rows, [f"everything ({error})"])
    note = "The line is simulated: its delays are those of the thesis."
    return Report([*wide.rows_of(line), *rows], notes=[note])


def grown(seats: Sequence[Seat], path: str) -> str:
    """A group of all, created by the first, in which each is connected with its neighbours. Raises Stuck."""
    first, *others = seats
    group = first.client.create_group(path, keys=RING_KEYS, path=path).id
    for begin in range(0, len(others), WAVE):
        wave = others[begin : begin + WAVE]
        grow(group, first, wave, 1 + begin + len(wave))
    for seat in seats:
        until(f"{seat.host} linked in the {path}", partial(is_linked, seat, group, len(seats)), LINKED_S_MAX)
    return group


def is_linked(seat: Seat, group: str, members: int) -> bool:
    overlay = seat.client.get_overlay(group)
    neighbours = [link for link in overlay.links if link.place != "guest"]
    return overlay.members == members and all(link.connection == "connected" for link in neighbours)


def at_rest(seats: Sequence[Seat], group: str) -> list[list[LinkInfo]]:
    """The links of each member, once all have their neighbours alone, or when that has taken too long."""
    deadline = time.monotonic() + AT_REST_S_MAX
    while True:
        links = links_of(seats, group)
        if time.monotonic() > deadline or not any(link.place == "guest" for each in links for link in each):
            return links
        drain([seat.face for seat in seats], 1.0)


def links_of(seats: Sequence[Seat], group: str) -> list[list[LinkInfo]]:
    return [seat.client.get_overlay(group).links for seat in seats]


def exchanged(seats: Sequence[Seat], groups: dict[str, str], messages: int) -> dict[str, Traffic]:
    """The messages of random members, each in all groups in turn."""
    traffic, draw = {path: Traffic() for path in groups}, random.Random(SEED)
    for number in range(messages):
        author = draw.choice(seats)
        for path in list(groups)[:: 1 if number % 2 == 0 else -1]:
            send(seats, groups[path], [(author, f"message {number}")], traffic[path], ARRIVE_S_MAX)
            drain([seat.face for seat in seats], BREATH_S)
    return traffic


def send(
    seats: Sequence[Seat], group: str, messages: Sequence[tuple[Seat, str]], traffic: Traffic, within_s: float
) -> None:
    """Send these messages, whose texts differ, at once, and wait until all others have them or the time is over."""
    faces = {seat.host: seat.face for seat in seats}
    begun = {}
    for author, text in messages:
        begun[text] = author.host, author.face.ask([("send_message", {"group": group, "text": text})])
    wanted, before = len(messages) * (len(seats) - 1), len(traffic.latencies_ms)

    def all_there() -> bool:
        for host, face in faces.items():
            for when, said in face.heard:
                author, since = begun.get(text_of(said, group), (host, 0.0))
                if author != host:
                    traffic.latencies_ms.append((when - since) * 1000)
            face.heard.clear()
        return len(traffic.latencies_ms) - before >= wanted

    listen(list(faces.values()), all_there, within_s)
    traffic.wanted += wanted


def text_of(said: object, group: str) -> str:
    """The text of a message in this group that a client is notified of; empty: it is something else."""
    if isinstance(said, Notification) and isinstance(event := said.params, Event):
        return str(event.body["text"]) if event.group == group and event.type == "message" else ""
    return ""


def rows_of(
    case: str, links: Sequence[Sequence[LinkInfo]], first: dict[str, Traffic], traffic: dict[str, Traffic]
) -> Iterator[Row]:
    counts = [len(each) for each in links]
    yield Row(f"{case}: links of a member on the ring", "links", "lower", Figure.of(counts))
    yield Row(f"{case}: the most links of a member", "links", "lower", Figure.of([max(counts)]), goal=LINKS_MAX)
    for what, some in (("first messages", first), ("messages", traffic)):
        shares = {path: Figure.of([100 * len(one.latencies_ms) / one.wanted]) for path, one in some.items()}
        peers = {"mesh": shares["mesh"]}
        yield Row(f"{case}: {what} delivered", "%", "higher", shares["ring"], peers=peers, goal=100)
    for name, percent, goal in (("median", 50, LATENCY_RATIO_MAX), ("99th percentile", 99, None)):
        ours, mesh = (traffic[path].percentile(percent) for path in PATHS)
        peers = {"mesh": Figure.of([mesh])}
        yield Row(f"{case}: latency, {name}", "ms", "lower", Figure.of([ours]), peers=peers)
        yield Row(f"{case}: {name} beside the mesh's", "times", "lower", Figure.of([ours / mesh]), goal=goal)
