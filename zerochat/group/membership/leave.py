"""Leaving: saying goodbye to everybody, and staying until somebody has heard it; and forgetting a group afterwards.

An owner may leave like everybody else. The admins that there are stay, and what it has decided holds; but nobody makes
admins any more, and a group without any keeps its roles as they are for good (`membership.may_change_role`).
"""

from msgspec.structs import replace

from zerochat.errors import LocalError, NotAMember
from zerochat.group.effects import Forget, Hangup, Notify
from zerochat.group.event_log import log
from zerochat.group.event_log.event import ADD, LEAVE
from zerochat.group.joining import invitations, requests
from zerochat.group.links import mediator_receipts, peers
from zerochat.group.membership.bodies import add_of
from zerochat.group.notifications import ViewChanged
from zerochat.group.state import Group
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Turn

LEAVE_MS_MAX = 20_000
"""How long a leaver stays to repeat its farewell to whoever has not acknowledged it."""


class StillIn(LocalError):
    """You are in {group}, and only a group that you have left can be forgotten: `zerochat leave {group}`. An older one
    of that name is meant by its id, which `zerochat status` has."""


class StillLeaving(LocalError):
    """You are leaving {group}, and nobody there has heard of it yet. Leave once more to go all the same, then forget
    it."""


def leave(turn: Turn, group: Group) -> str:
    """Say goodbye and go; asked a second time, go although nobody has heard it."""
    if group.state == "leaving":
        settle(turn, group.id, forced=True)
        return group.id
    if group.state != "active":
        raise NotAMember(group=group.name)
    log.append(turn, group.id, LEAVE, {})
    turn.edit(group.id, state="leaving")
    joins = {k: replace(j, seated=True) if j.group == group.id else j for k, j in turn.agent.joins.items()}
    turn.change(joins=joins)
    requests.close(turn, group.id)
    turn.timer("leave", group.id, LEAVE_MS_MAX)
    settle(turn, group.id)
    return group.id


def settle(turn: Turn, name: str, final: bool = False, forced: bool = False) -> None:
    """A leaver goes for good when everybody has heard of it, or after a while when those have who tell the others.

    As long as nobody has, it stays, over restarts too: else the others would wait for it for ever. It also stays as
    long as only somebody has of whom the others have not heard yet that it is in: they would never listen to that one.
    """
    group = turn.group(name)
    if group.state != "leaving":
        return
    # Whoever has ended its relationship with us has heard it, or has left as well.
    untold = [
        member
        for member in group.others
        if member in group.peers and not _has_ended(group, member) and acknowledgements.lacks(group, member)
    ]
    if final and not _reached(group, set(group.others) - set(untold)) >= set(group.others):
        turn.timer("leave", name, LEAVE_MS_MAX)
    elif final or forced or not untold:
        close(turn, name)


def close(turn: Turn, name: str, *, goodbye: bool = True) -> None:
    """Close everything towards a group. Without `goodbye` we were put out, and whoever does not know that yet must
    still be able to read it."""
    log.publish(turn, name)  # what this turn has still to say
    requests.close(turn, name)
    group = turn.group(name)
    for link, open_ in turn.agent.invitations.items():
        if open_.group == name:
            invitations.close(turn, link)
    for member, peer in group.peers.items():
        if goodbye:
            peers.end(turn, name, member)
        turn.say(Hangup(peer.link))
        peers.shut(turn, name, member)
    # What the peers had acknowledged stays: it says who has what was said.
    turn.edit(name, state="left", relationships={}, offers={}, limbo={}, waiting={})
    turn.say(Notify(ViewChanged(name)))


def forget(turn: Turn, group: Group) -> str:
    """Delete what is kept here of a group that we are not in any more. Raises StillIn or StillLeaving."""
    if group.state != "left":
        raise (StillLeaving if group.state == "leaving" else StillIn)(group=group.name)
    joins = turn.agent.joins.items()
    over = {k for k, one in joins if one.group == group.id and one.phase in ("done", "failed") and not one.parting}
    turn.change(
        groups={name: one for name, one in turn.agent.groups.items() if name != group.id},
        joins={k: one for k, one in joins if k not in over},
    )
    mediator_receipts.forget(turn, group.id)
    turn.say(Forget(group.id), Notify(ViewChanged(group.id)))
    return group.id


def _reached(group: Group, told: set[str]) -> set[str]:
    """Whom these members can tell something, through others too: two of them listen to each other if both have heard
    that we have let the other one in."""
    mine = [event for event in group.control.values() if event.author == group.me and event.type == ADD]
    let_in = {add_of(event).member: event.seq for event in mine}

    def knows(one: str, other: str) -> bool:
        peer = group.peers.get(one)
        if one in told or peer is None:
            return True
        # Whoever was let in later has been told of those who were in by then.
        return max(peer.acked.get(group.me, 0), let_in.get(one, 0)) >= let_in.get(other, 0)

    reached, todo = set(told), list(told)
    while todo:
        one = todo.pop()
        near = [did for did in group.others if did not in reached and knows(one, did) and knows(did, one)]
        reached.update(near)
        todo += near
    return reached


def _has_ended(group: Group, member: str) -> bool:
    return member not in group.relationships and group.peers[member].ended > 0
