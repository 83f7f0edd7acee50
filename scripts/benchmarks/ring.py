"""A large group of real agents: joins, links, and messages over the ring, on one machine's loopback.

Each member is a process with a journal on disk (about 45 MB each), joined through real invitations. More than 24
members form a ring, so that no member is linked to all. The joins are over once each is connected with all of its
neighbours. Then random members send messages, one after the other; a message counts when it is in a member's history.
With `--kills` so many members are killed during the messages and started again.

Copies, duplicates and repairs are what the agents count (`zerochat overlay`). All processes share this machine's cores,
so the times say little; a share of deliveries below 1 is a fault. `--members` and `--messages` select the size.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import Figure, Report, Row, processor_s, scaled
from benchmarks.group import terminated_politely
from benchmarks.ours.agents import GROUP, Agents, Member, NotReady
from zerochat.rpc import Event, GroupInfo, OverlayInfo

MEMBERS, MESSAGES = (32, 26, 3), (100, 20, 3)
"""As a whole, with --quick, with --smoke."""
LINKS_MAX, COPIES_MAX = 24, 3.1
WAIT_S_MAX = 240.0
"""How long the last deliveries may take before they count as missing."""
SEED = 46


class RingAgents(Agents):
    """The members of a large group."""

    def is_linked(self, member: Member, group: GroupInfo) -> bool:
        links = member.client.get_overlay(GROUP).links
        return bool(links) and all(one.connection == "connected" for one in links if one.place != "guest")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, metavar="N", help="members of the group")
    parser.add_argument("--messages", type=int, metavar="N", help="messages")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="members that are killed meanwhile")


def measure(quick: bool, members: int | None = None, messages: int | None = None, kills: int = 0) -> Report:
    members, messages = members or scaled(quick, *MEMBERS), messages or scaled(quick, *MESSAGES)
    notes: list[str] = []
    with (
        terminated_politely(),
        tempfile.TemporaryDirectory(prefix="zcb-") as folder,
        RingAgents(Path(folder), None, notes.append) as agents,
    ):
        agents.kind = ["--kind", "large"]
        begun = time.monotonic()
        try:
            agents.grow(members - 1)
        except NotReady as error:
            return Report([], [f"everything: {error}"], notes)
        joined_s, used = time.monotonic() - begun, processor_s(agents.pids())
        rows = [Row(f"{members} members: all joins", "s", "lower", Figure.of([joined_s]))]
        rows += traffic_rows(agents, members, messages, kills)
        busy = processor_s(agents.pids()) - used
        if not kills:
            each = 1000 * busy / (messages * (members - 1))
            rows.append(Row(f"{members} members: processor time per delivery", "ms", "lower", Figure.of([each])))
    return Report(rows, notes=notes)


def traffic_rows(agents: Agents, members: int, messages: int, kills: int) -> Iterator[Row]:
    draw, case = random.Random(SEED), f"{members} members: "
    before = [one.client.get_overlay(GROUP) for one in agents.members]
    begun = time.monotonic()
    victims = dict.fromkeys(draw.sample(range(messages // 4, messages), kills))
    ids = []
    for number in range(messages):
        author = draw.choice(agents.members)
        ids.append(author.client.send_message(GROUP, f"message {number}").id)
        if number in victims:
            agents.restart(draw.choice([one for one in agents.members if one is not author]))
    share, last_s = _delivered(agents.members, ids, begun)
    after = [one.client.get_overlay(GROUP) for one in agents.members]
    yield Row(f"{case}share of deliveries", "", "higher", Figure.of([share]), goal=1.0)
    yield Row(f"{case}until the last delivery of {messages}", "s", "lower", Figure.of([last_s]))
    links = [len(one.links) for one in after]
    yield Row(f"{case}links of one member, at most", "links", "lower", Figure.of([max(links)]), goal=LINKS_MAX)
    yield Row(f"{case}links of one member", "links", "lower", Figure.of(links))
    if not kills:
        copies = sum(one.copies for one in after) - sum(one.copies for one in before)
        each = copies / (messages * (members - 1))
        yield Row(f"{case}copies per delivery", "copies", "lower", Figure.of([each]), goal=COPIES_MAX)
    yield Row(f"{case}events repaired by pull", "events", "lower", Figure.of([_repaired(after) - _repaired(before)]))


def _repaired(all_: Sequence[OverlayInfo]) -> int:
    return sum(link.repaired for one in all_ for link in one.links)


def _delivered(members: Sequence[Member], ids: Sequence[str], begun: float) -> tuple[float, float]:
    """The share of deliveries, and the seconds until the last one."""
    wanted, lacking, last_s = set(ids), list(members), 0.0
    while lacking and time.monotonic() < begun + WAIT_S_MAX:
        lacking = [one for one in lacking if wanted - _posts(one)]
        last_s = time.monotonic() - begun
        time.sleep(0.2)
    missing = sum(len(wanted - _posts(one)) for one in lacking)
    return 1 - missing / (len(ids) * len(members)), last_s


def _posts(member: Member) -> set[str]:
    events: list[Event] = member.client.get_history(GROUP, limit=500).events
    return {event.id for event in events if event.type == "message"}
