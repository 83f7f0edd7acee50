"""The seats of a group: which of concurrent additions are void because there is no seat (`void_events.py` says why)."""

from collections.abc import Iterable

from zerochat.group.event_log.event import ADD
from zerochat.group.membership.event_graph import EventGraph, bits

SEAT_STEPS, SENIORITY_STEPS = 2, 8
"""The operations on sets (`EventGraph.steps`): for each addition, and for each event where the additions exceed the
seats."""


def without_seat(graph: EventGraph, within: int, dead: int) -> int:
    """The additions of the members for whom there is no seat; `dead` are the void events. 0: there are enough for
    all."""
    joins = graph.of_type.get(ADD, 0) & within
    if joins.bit_count() < graph.members_max - 1:
        return 0
    graph.steps += SEAT_STEPS * joins.bit_count()
    added: dict[str, int] = {}
    for at, _, member in graph.joins:
        if joins & ~dead & 1 << at:
            added.setdefault(member, at)
    if len(added) < graph.members_max:
        return 0
    departures = {did: graph.departures_of(did) & within & ~dead for did in (graph.founder, *added)}
    if not _beyond_seats(graph, added, added, departures):
        return 0  # whatever the order is, it matters only if it does
    beyond = _beyond_seats(graph, _by_seniority(graph, added, within & ~dead), added, departures)
    return joins & sum(graph.added[member] for member in beyond)


def _beyond_seats(
    graph: EventGraph, order: Iterable[str], added: dict[str, int], departures: dict[str, int]
) -> set[str]:
    """The members that find no seat if seats are taken in this order. A departure frees the seat for an addition
    that has it in its past."""
    beyond: set[str] = set()
    once, more = departures[graph.founder], []
    """The departures of members that departed once, and of each that did so by several concurrent events."""
    if once.bit_count() > 1:
        once, more = 0, [once]
    taken = 1
    for did in order:
        past = graph.past[added[did]]
        if taken - (once & past).bit_count() - sum(bool(events & past) for events in more) >= graph.members_max:
            beyond.add(did)
            continue
        taken += 1
        if departures[did].bit_count() > 1:
            more.append(departures[did])
        else:
            once |= departures[did]
    return beyond


def _by_seniority(graph: EventGraph, added: dict[str, int], alive: int) -> list[str]:
    """These members in the order in which they get seats. `added`: the event that added each, in order."""
    root, adders = graph.founder, {did: graph.events[at].author for did, at in added.items()}
    while len(own := [did for did, adder in adders.items() if adder == root]) == 1:
        root = own[0]
    branches: dict[str, str] = {}
    """Empty for those that did not come in through the root."""
    size: dict[str, int] = {}
    place: dict[str, int] = {}
    """In its branch."""
    additions: dict[str, int] = {}
    """By branch."""
    for did, adder in adders.items():
        branch = branches[did] = did if adder == root else branches.get(adder, "")
        place[did] = size[branch] = size.get(branch, 0) + 1
        additions[branch] = additions.get(branch, 0) | 1 << added[did]
    of_all = sum(1 << at for at in added.values())
    by_root: dict[int, int] = {}
    by_other: dict[int, int] = {}
    """By addition: twice the place of the first event by the root, or by another branch, that has it in its past;
    an addition by the root comes just after what it has in its past."""
    root_knows = other_knows = 0
    graph.steps += SENIORITY_STEPS * alive.bit_count()
    for at in bits(alive):
        event, past = graph.events[at], graph.past[at] & of_all
        others = past & ~additions.get(branches.get(event.author, ""), 0)
        by_other |= dict.fromkeys(bits(others & ~other_knows), 2 * at)
        other_knows |= others
        if event.author == root:
            by_root |= dict.fromkeys(bits(past & ~root_knows), 2 * at)
            root_knows |= past
            if of_all >> at & 1:
                root_knows |= 1 << at
                by_root[at] = 2 * at + 1
    last = 2 * len(graph.events)
    return sorted(
        added,
        key=lambda did: (by_root.get(added[did], last), by_other.get(added[did], last), place[did], added[did]),
    )
