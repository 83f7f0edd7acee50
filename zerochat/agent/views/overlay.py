"""The overlay as the control protocol shows it: the links of a group with their places and counts."""

from collections.abc import Iterator

from zerochat.agent.link_counters import GroupCounts, LinkCounters
from zerochat.agent.views.delivery import reach
from zerochat.group.links.contact import member_link
from zerochat.group.links.neighbours import is_forwarding, links_of
from zerochat.group.state import Agent, Group
from zerochat.limits import MEMBER_PAGE_MAX
from zerochat.rpc import LinkInfo, OverlayInfo
from zerochat.rpc.common import timestamp
from zerochat.rpc.overlay import LinkPlace


def overlay_info(agent: Agent, group: Group, counters: LinkCounters) -> OverlayInfo:
    counts = counters.groups.get(group.id, GroupCounts())
    is_over = group.me not in group.view.members
    places = {} if is_over else dict(_places(group))
    return OverlayInfo(
        group=group.id,
        path=group.view.path,
        forwards=not is_over and is_forwarding(group),
        members=len(group.view.members),
        since=timestamp(counters.since),
        own=counts.own,
        forwarded=counts.forwarded,
        copies=counts.copies,
        links=[_link(agent, group, did, place, counters) for did, place in list(places.items())[:MEMBER_PAGE_MAX]],
    )


def _places(group: Group) -> Iterator[tuple[str, LinkPlace]]:
    """The members that we are linked to, or should be, in the order in which they are shown."""
    if not is_forwarding(group):
        for did in group.view.eldest:
            if did != group.me:
                yield did, "member"
        return
    links = links_of(group, group.me)
    for did in links.successors:
        yield did, "successor"
    for did in links.predecessors:
        yield did, "predecessor"
    for did in links.shortcuts:
        yield did, "shortcut"
    for did in group.links.peers:
        if did in group.view.members and did not in links.all:
            yield did, "guest"


def _link(agent: Agent, group: Group, did: str, place: LinkPlace, counters: LinkCounters) -> LinkInfo:
    connection, via = reach(agent, group, did)
    counts = counters.of(member_link(group.id, group.me, did))
    return LinkInfo(
        did=did,
        nick=group.view.members[did].label,
        place=place,
        connection=connection,
        via=via,
        sent=counts.sent,
        sent_bytes=counts.sent_bytes,
        received=counts.received,
        received_bytes=counts.received_bytes,
        brought=counts.brought,
        duplicates=counts.duplicates,
        repaired=counts.repaired,
        repaired_at=timestamp(counts.repaired_at) if counts.repaired_at else "",
    )
