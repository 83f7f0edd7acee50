"""A large group of real agents: joins, links, and messages over the ring, on one machine's loopback.

Each member is a process with a journal on disk (about 45 MB each), joined through real invitations. More than 24
members form a ring, so that no member is linked to all. The joins are over once each is connected with all of its
neighbours. Each member sends a message first: with it go its first keys, to all others. Then random members send
messages, one after the other. A message counts when it is in a member's history. With `--kills` as many messages
follow, and so many members are killed meanwhile (SIGKILL) and started again. `--crowd` is 100 members, of which each
sends one message, and then 100 messages and 10 kills.

Copies and repairs are what the agents count (`zerochat overlay`). All processes share this machine's cores, so the
times say little; a share of deliveries below 1 is a fault. `--members` and `--messages` select the size. Links that
have no use are closed a minute later, so the links of a young group are more than those of the overlay
(`ring_wan.py`).
"""

import argparse
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks import Figure, Report, Row, processor_s, scaled
from benchmarks.group import terminated_politely
from benchmarks.ours.agents import GROUP, WAVE, Agents, Member, NotReady
from zerochat.errors import LocalError
from zerochat.rpc import Event, GroupInfo, OverlayInfo

MEMBERS, MESSAGES = (32, 26, 3), (100, 20, 3)
"""As a whole, with --quick, with --smoke."""
CROWD, CROWD_KILLS = 100, 10
LINKS_MAX, COPIES_MAX = 24, 3.1
JOINS_S_MAX = 420.0
WAIT_S_MAX = 240.0
"""How long the last deliveries may take before they count as missing."""
LOOK_S = 0.3
SEED = 46


class RingAgents(Agents):
    """The members of a large group. Each wave joins through another one, as many do in such a group."""

    @property
    def inviter(self) -> Member:
        return self.members[max(0, len(self.members) - WAVE) // 2]

    def is_linked(self, member: Member, group: GroupInfo) -> bool:
        links = member.client.get_overlay(GROUP).links
        return bool(links) and all(one.connection == "connected" for one in links if one.place != "guest")


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--members", type=int, metavar="N", help="members of the group")
    parser.add_argument("--messages", type=int, metavar="N", help="messages")
    parser.add_argument("--kills", type=int, default=0, metavar="N", help="members that are killed meanwhile")
    parser.add_argument("--crowd", action="store_true", help=f"{CROWD} members and {CROWD_KILLS} kills")


def measure(
    quick: bool, members: int | None = None, messages: int | None = None, kills: int = 0, *, crowd: bool = False
) -> Report:
    messages = messages or scaled(quick, *MESSAGES)
    members = members or (CROWD if crowd else scaled(quick, *MEMBERS))
    kills = kills or (CROWD_KILLS if crowd else 0)
    notes: list[str] = []
    with (
        terminated_politely(),
        tempfile.TemporaryDirectory(prefix="zcb-") as folder,
        RingAgents(Path(folder), None, notes.append) as agents,
    ):
        agents.kind = ["--kind", "large"]
        begun = time.monotonic()
        try:
            grow(agents, members)
        except (NotReady, LocalError) as error:
            return Report([], [f"everything: {error}"], notes)
        rows = [Row(f"{members} members: all joins", "s", "lower", Figure.of([time.monotonic() - begun]))]
        draw = random.Random(SEED)
        rows += traffic_rows(f"{members} members, first messages: ", agents, list(agents.members))
        if not crowd:
            authors = [draw.choice(agents.members) for _ in range(messages)]
            rows += traffic_rows(f"{members} members, {messages} messages: ", agents, authors)
        if kills:
            authors = [draw.choice(agents.members) for _ in range(messages)]
            rows += traffic_rows(f"{members} members, {kills} kills: ", agents, authors, draw.sample(authors, kills))
        memory = Figure.of([resident_mb(pid) for pid in agents.pids()])
        rows.append(Row(f"{members} members: memory of an agent", "MB", "lower", memory))
    return Report(rows, notes=notes)


def grow(agents: RingAgents, members: int) -> None:
    """Let all members join, wave by wave. Raises NotReady."""
    deadline = time.monotonic() + JOINS_S_MAX
    for count in (*range(WAVE, members - 1, WAVE), members - 1):
        if time.monotonic() > deadline:
            raise NotReady(f"{len(agents.members)} of {members} members have joined in {JOINS_S_MAX:.0f} s")
        agents.grow(count)


def resident_mb(pid: int) -> float:
    """The memory of a process, shared pages divided among those that share them (Pss)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def traffic_rows(case: str, agents: Agents, authors: Sequence[Member], victims: Sequence[Member] = ()) -> Iterator[Row]:
    """The figures of one message by each of these authors in turn. The agents of `victims` are killed meanwhile."""
    before = [one.client.get_overlay(GROUP) for one in agents.members]
    begun, used = time.monotonic(), 0.0 if victims else processor_s(agents.pids())
    ids, waiting = [], list(victims)
    for number, author in enumerate(authors):
        ids.append(author.client.send_message(GROUP, f"message {number}").id)
        if waiting and number >= (len(victims) - len(waiting) + 1) * len(authors) // (len(victims) + 1):
            agents.restart(waiting.pop())
    share, last_s = delivered(agents.members, ids, begun)
    after = [one.client.get_overlay(GROUP) for one in agents.members]
    deliveries = len(ids) * (len(agents.members) - 1)
    yield Row(f"{case}share of deliveries", "", "higher", Figure.of([share]), goal=1.0)
    yield Row(f"{case}until the last delivery", "s", "lower", Figure.of([last_s]))
    links = [len(one.links) for one in after]
    yield Row(f"{case}links of one member", "links", "lower", Figure.of(links))
    yield Row(f"{case}links of one member, at most", "links", "lower", Figure.of([max(links)]), goal=LINKS_MAX)
    if victims:  # what they have counted is gone
        return
    each = len(ids) * len(agents.members)
    copies = (sum(one.copies for one in after) - sum(one.copies for one in before)) / each
    yield Row(f"{case}copies of a message, for each member", "copies", "lower", Figure.of([copies]), goal=COPIES_MAX)
    sent = (linked(after, "sent") - linked(before, "sent")) / each
    yield Row(f"{case}envelopes of any kind, the same", "envelopes", "lower", Figure.of([sent]))
    pulled = linked(after, "repaired") - linked(before, "repaired")
    yield Row(f"{case}events repaired by pull", "events", "lower", Figure.of([pulled]))
    busy = 1000 * (processor_s(agents.pids()) - used) / deliveries
    yield Row(f"{case}processor time per delivery", "ms", "lower", Figure.of([busy]))


def linked(found: Sequence[OverlayInfo], count: str) -> int:
    """A count of `LinkInfo` over all links of all members."""
    return sum(getattr(link, count) for one in found for link in one.links)


def delivered(members: Sequence[Member], ids: Sequence[str], begun: float) -> tuple[float, float]:
    """The share of deliveries, and the seconds until the last one."""
    wanted, lacking, last_s = set(ids), list(members), 0.0
    while lacking and time.monotonic() < begun + WAIT_S_MAX:
        lacking = [one for one in lacking if wanted - posts(one)]
        last_s = time.monotonic() - begun
        time.sleep(LOOK_S)
    missing = sum(len(wanted - posts(one)) for one in lacking)
    return 1 - missing / (len(ids) * len(members)), last_s


def posts(member: Member) -> set[str]:
    """The ids of the last messages that a member has."""
    events: list[Event] = member.client.get_history(GROUP, limit=500).events
    return {event.id for event in events if event.type == "message"}
