"""Links on the ring: to our neighbours, to the next members where those are down, and with members that chose us.

A member dials its own neighbours (`neighbours.py`). Where these are down, the next members in that direction take their
place, until two in each direction are connected: so a group is connected although most of its members are offline. They
are given up once the nearer ones are back. The other end of such a link need not see it that way, so each member
accepts links of any member of the view, up to `LINKS_ACCEPTED_MAX`; its own neighbours have priority.
"""

from collections.abc import Iterator
from typing import Final

from zerochat.group.effects import Notify
from zerochat.group.links import mediator_mail, pairing, peers
from zerochat.group.links.neighbours import (
    AWAIT_MS,
    LINKS_ACCEPTED_MAX,
    is_neighbour,
    is_ring,
    links_of,
    owner_of,
    ring_of,
)
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import Agent, Group
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.overlay.forwarding import sample
from zerochat.overlay.ring import REACH

STAND_INS_MAX: Final = 4
"""Unreachable members in one direction that stay dialled; beyond them, random members are tried. With those that are
awaited and all shortcuts they are `LINKS_ACCEPTED_MAX`."""
SURPLUS_MS: Final = 60_000
"""How long a link stays that we have no need of any more: its nearer member may go again."""


def view_changed(tx: Transaction, name: str) -> None:
    """The view has changed, or what we know of our links: adjust them after this step."""
    if is_ring(tx.group(name)):
        tx.set_timer(TimerKind.NEIGHBOURS, name, 1)


def allow_all(tx: Transaction, name: str) -> None:
    """Our process has started: any member may choose us."""
    group = tx.group(name)
    if is_ring(group):
        for member in group.others:
            if member not in group.links.peers:
                peers.allow_connections(tx, name, member)
        tx.set_timer(TimerKind.NEIGHBOURS, name, AWAIT_MS)


def accept(tx: Transaction, name: str, member: str) -> bool:
    """A member that is not linked to us connects, or sends a message: whether it is linked from now on."""
    group = tx.group(name)
    is_full = len(group.links.peers) >= LINKS_ACCEPTED_MAX
    if group.state == "left" or member in group.trust.quarantine or (is_full and not is_neighbour(group, member)):
        return False
    peers.add_peer(tx, name, member, is_guest=True)
    return member in tx.group(name).links.peers


def settle_glare(tx: Transaction, name: str, member: str) -> None:
    """A member keeps its link to us only because we seem to have chosen it. Where we keep it for the same reason, as
    after both have closed it at once, neither needs it: the later joiner gives it up."""
    group = tx.group(name)
    if is_ring(group) and group.links.peers[member].is_guest and pairing.is_requester(group, member):
        tx.update_peer(name, member, is_guest=False)
        tx.set_timer(TimerKind.NEIGHBOURS, name, AWAIT_MS, if_unset=True)


def choose(tx: Transaction, name: str, member: str) -> None:
    """Something is to be sent to this member itself: link to it for a while, where we are not."""
    group = tx.group(name)
    if is_ring(group) and member in group.view.members and member not in group.links.peers:
        peers.add_peer(tx, name, member, chosen=True)
        tx.set_timer(TimerKind.NEIGHBOURS, name, AWAIT_MS, if_unset=True)


def unlinked_owner(agent: Agent, link: bytes) -> tuple[str, str] | None:
    """The group and the member of a link that is of none of our peers; None: it is of no member."""
    for name, group in agent.groups.items():
        if (member := owner_of(group, link)) is not None and member not in group.links.peers:
            return name, member
    return None


def adjust(tx: Transaction, name: str) -> None:
    """Link to those that we should be linked to, and close links that have no use; come back while any is pending."""
    group = tx.group(name)
    if not is_ring(group) or group.state != "active" or group.me not in group.view.members:
        return
    wanted = {member: None for member in _wanted(tx, group) if member not in group.trust.quarantine}
    for member in wanted:
        if member in group.links.peers and _has_ended(group, member):
            peers.close_peer(tx, name, member)
        if member not in tx.group(name).links.peers:
            peers.add_peer(tx, name, member, chosen=True)
        elif group.links.peers[member].is_guest:
            tx.update_peer(name, member, is_guest=False)
    group = tx.group(name)
    surplus = [did for did in group.links.peers if did in group.view.members and did not in wanted]
    surplus.sort(key=lambda did: group.links.peers[did].linked_at)
    excess = len(group.links.peers) - LINKS_ACCEPTED_MAX
    closed = [did for at, did in enumerate(surplus) if at < excess or _is_useless(tx, group, did)]
    for member in closed:
        peers.close_peer(tx, name, member)
    if closed:
        tx.emit(Notify(ViewChanged(name)))
    group = tx.group(name)
    if any(did not in wanted for did in group.links.peers) or not all(_is_connected(tx, group, did) for did in wanted):
        tx.set_timer(TimerKind.NEIGHBOURS, name, AWAIT_MS)


def _wanted(tx: Transaction, group: Group) -> Iterator[str]:
    """Our neighbours, and the members that take the place of those that are down."""
    links = links_of(group, group.me)
    yield from links.all
    if not links.mesh:
        for back in (False, True):
            yield from _next_reachable(tx, group, back=back)


def _next_reachable(tx: Transaction, group: Group, *, back: bool) -> Iterator[str]:
    """The next members in one direction, until `REACH` of them are connected or are awaited."""
    found = failed = 0
    rest = []
    for member in ring_of(group).onward(group.me, back=back):
        if found == REACH:
            return
        if member in group.trust.quarantine:
            continue
        if failed >= STAND_INS_MAX and not _is_connected(tx, group, member):
            rest.append(member)
            continue
        is_peer = member in group.links.peers
        if is_peer and not _is_connected(tx, group, member) and _is_late(tx, group, member):
            failed += 1
        else:
            found += 1
        yield member
    awaited = [did for did in rest if did in group.links.peers and not _is_late(tx, group, did)]
    untried = [did for did in rest if did not in group.links.peers]
    yield from awaited[: REACH - found] or sample(untried, REACH - found, tx.context.random)


def _is_late(tx: Transaction, group: Group, member: str) -> bool:
    return tx.now >= group.links.peers[member].linked_at + AWAIT_MS


def _is_connected(tx: Transaction, group: Group, member: str) -> bool:
    """Whether we are paired with a member, and can reach it."""
    relationship = group.links.relationships.get(member)
    return relationship is not None and relationship.established and mediator_mail.reachable(tx, group.id, member)


def _has_ended(group: Group, member: str) -> bool:
    """Whether a peer has ended its relationship with us."""
    return member not in group.links.relationships and group.links.peers[member].exchange.ended_at > 0


def _is_useless(tx: Transaction, group: Group, member: str) -> bool:
    """Whether the link to a member that we have no need of may be closed."""
    peer = group.links.peers[member]
    if _has_ended(group, member):
        return True
    if peer.is_guest and _is_connected(tx, group, member):
        return False
    return tx.now >= peer.linked_at + SURPLUS_MS
