"""Leaving a group, staying connected until other members have acknowledged it; forgetting a group.

An owner may leave like every member. The admins remain, and its decisions stand; but no new admins can be appointed,
and a group without admins keeps its roles for good (`membership.may_change_role`).
"""

from zerochat.errors import LocalError, NotAMember
from zerochat.group.effects import DeleteLog, Disconnect, Notify
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import ADD, LEAVE
from zerochat.group.joining import invitations, requests
from zerochat.group.links import mediator_receipts, neighbours, peers
from zerochat.group.membership.bodies import add_of
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import Group, JoinState
from zerochat.group.state.content_keys import ContentKeys
from zerochat.group.state.dcgka import Dcgka
from zerochat.group.state.joins import ADMITTED
from zerochat.group.sync import acknowledgements
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction

LEAVE_MS_MAX = 20_000
"""How long a leaver retransmits its leave event to members that have not acknowledged it."""


class StillMember(LocalError):
    """You are still a member of {group}. Leave it first (`zerochat leave {group}`), or, if you mean an older group of
    the same name, use its id from `zerochat status`."""


class StillLeaving(LocalError):
    """You are leaving {group}, and some members have not been informed yet. Leave again (`zerochat leave {group}`) to
    leave at once, then forget the group."""


def leave(tx: Transaction, group: Group) -> str:
    """Announce that we leave, then go. A second call goes at once, even if no member has acknowledged it."""
    if group.state == "leaving":
        finish_leaving(tx, group.id, forced=True)
        return group.id
    if group.state != "active":
        raise NotAMember(group=group.name)
    own_events.append(tx, group.id, LEAVE, {})
    tx.update_group(group.id, state="leaving")
    joins = {
        link: join.moved_to(JoinState.JOINED) if join.group == group.id and join.state is JoinState.CONNECTING else join
        for link, join in tx.agent.joins.items()
    }
    tx.update_agent(joins=joins)
    requests.close_requests(tx, group.id)
    tx.set_timer(TimerKind.LEAVE, group.id, LEAVE_MS_MAX)
    finish_leaving(tx, group.id)
    return group.id


def finish_leaving(tx: Transaction, name: str, final: bool = False, forced: bool = False) -> None:
    """Leave for good once all members have the leave event; with `final`, once those have it who can inform the others.

    Until then the leaver stays, across restarts too, because members would otherwise wait for it indefinitely. It also
    stays while the informed members do not yet know of another member that they would have to inform.
    """
    group = tx.group(name)
    if group.state != "leaving":
        return
    # A member that has ended its relationship with us knows, or has left as well.
    uninformed = [
        member
        for member in group.others
        if member in group.links.peers and not _has_ended(group, member) and acknowledgements.is_behind(group, member)
    ]
    if final and not _is_passed_on(group, set(group.counterparts) - set(uninformed)):
        tx.set_timer(TimerKind.LEAVE, name, LEAVE_MS_MAX)
    elif final or forced or not uninformed:
        close_group(tx, name)


def close_group(tx: Transaction, name: str, *, goodbye: bool = True) -> None:
    """Close all links of a group. Without `goodbye` we were removed: relationships stay readable for members that do
    not know of the removal yet."""
    own_events.sign_batch(tx, name)  # Events of this step that are not published yet.
    own_events.publish_batch(tx, name)
    requests.close_requests(tx, name)
    group = tx.group(name)
    for link, open_ in tx.agent.invitations.items():
        if open_.group == name:
            invitations.close_invitation(tx, link)
    for member, peer in group.links.peers.items():
        if goodbye:
            peers.end_relationship(tx, name, member)
        tx.emit(Disconnect(peer.link))
        peers.revoke_access(tx, name, member)
    # The peers' acknowledgements stay: they show who has our events. Keys would: no timer of the group runs any more.
    tx.update_group(name, state="left", dcgka=Dcgka(), content_keys=ContentKeys())
    tx.update_links(name, relationships={}, offers={})
    tx.update_log(name, reorder_buffers={}, blocked={})
    tx.emit(Notify(ViewChanged(name)))


def forget_group(tx: Transaction, group: Group) -> str:
    """Delete the local data of a group that we have left. Raises StillMember or StillLeaving."""
    if group.state != "left":
        raise (StillLeaving if group.state == "leaving" else StillMember)(group=group.name)
    joins = tx.agent.joins.items()
    over = {k for k, one in joins if one.group == group.id and one.state in ADMITTED | {JoinState.FAILED}}
    tx.update_agent(
        groups={name: one for name, one in tx.agent.groups.items() if name != group.id},
        joins={k: one for k, one in joins if k not in over},
    )
    mediator_receipts.stop_awaiting(tx, group.id)
    tx.emit(DeleteLog(group.id), Notify(ViewChanged(group.id)))
    return group.id


def _is_passed_on(group: Group, informed: set[str]) -> bool:
    """Whether these informed members can inform all others. On the ring one is enough: it forwards."""
    if neighbours.is_ring(group):
        return bool(informed)
    return _reachable_through(group, informed) >= set(group.others)


def _reachable_through(group: Group, informed: set[str]) -> set[str]:
    """The members that these informed members can reach, directly or through others. Two members talk to each other
    once both know that we added the other."""
    mine = [event for event in group.control.values() if event.author == group.me and event.type == ADD]
    admitted_at = {add_of(event).member: event.seq for event in mine}

    def knows(one: str, other: str) -> bool:
        peer = group.links.peers.get(one)
        if one in informed or peer is None:
            return True
        # A member added later was informed of those who were members then.
        return max(group.links.acked(one, group.me), admitted_at.get(one, 0)) >= admitted_at.get(other, 0)

    reached, todo = set(informed), list(informed)
    while todo:
        one = todo.pop()
        near = [did for did in group.others if did not in reached and knows(one, did) and knows(did, one)]
        reached.update(near)
        todo += near
    return reached


def _has_ended(group: Group, member: str) -> bool:
    return member not in group.links.relationships and group.links.peers[member].exchange.ended_at > 0
