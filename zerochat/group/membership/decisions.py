"""What members decide about members: roles, names, and who has to go.

The events themselves, and who may make them, are `membership`; here is what a person asks for, and what follows at this
agent when such an event has come.
"""

from zerochat.errors import LocalError, NotAMember, RemoteError
from zerochat.group.effects import Changed, Measure, Notify, Voted
from zerochat.group.event_log import log
from zerochat.group.event_log.event import LABEL, REMOVE, ROLE, VOTE
from zerochat.group.links import outbox
from zerochat.group.lookup import find_group, find_member
from zerochat.group.membership import (
    ADMIN,
    OWNER,
    READER,
    attestation,
    label_free,
    leave,
    may_change_role,
    may_remove,
    remove_of,
    vote_of,
    voters_for,
    votes_for,
    votes_needed,
)
from zerochat.group.notifications import Removed, TrustChanged, ViewChanged
from zerochat.group.state import Chain, Group
from zerochat.group.transaction import Turn


class NoRight(LocalError):
    """You cannot do that in {group}: {why}."""


class NameTaken(LocalError):
    """Somebody in {group} is called {label} already. Choose another name."""


class NotYourself(LocalError):
    """That is you. To go yourself: `zerochat leave {group}`."""


_REMOVERS = {
    "admins": "only admins remove members there, and nobody removes the owner",
    "quorum": "members are removed there by several who want it, one after the other",
}


def remove(turn: Turn, wanted: str, whom: str) -> Voted:
    """Put a member out, or say that we want that, where it takes several of us."""
    group = _active(turn, wanted)
    member = find_member(group, whom)
    if member == group.me:
        raise NotYourself(group=group.name)
    needed = votes_needed(group.view) if group.view.policy.remove == "quorum" else 1
    if group.view.policy.remove == "quorum" and group.me not in voters_for(group.control, group.view, member):
        log.append(turn, group.id, VOTE, {"member": member})
        group = turn.group(group.id)
    votes = votes_for(group.control, group.view, member)
    if may_remove(group.view, group.me, member, votes):
        _put_out(turn, group, member)
    elif group.view.policy.remove != "quorum":
        raise NoRight(group=group.name, why=_REMOVERS.get(group.view.policy.remove, "you are not a member"))
    return Voted(group.id, member, max(1, len(votes)), needed)


def _put_out(turn: Turn, group: Group, member: str) -> None:
    log.append(turn, group.id, REMOVE, {"member": member, "after": _heard_of(group, member)})


def _heard_of(group: Group, member: str) -> int:
    """Up to where we have a member's chain, as far as anybody else has it too.

    Where a chain begins for us its author says, and may say anything; so nothing counts that we have not been shown,
    nor what it has shown to us alone.
    """
    chain = group.chains.get(member, Chain())
    others = [peer.acked.get(member, 0) for did, peer in group.peers.items() if did != member]
    return min(chain.seq, max(others, default=chain.seq)) if chain.tip else 0


def change_role(turn: Turn, wanted: str, whom: str, role: str) -> Changed:
    """Make a member, or ourselves, a reader, writer or admin."""
    group = _active(turn, wanted)
    member = find_member(group, whom) if whom else group.me
    if group.view.members[member].role == role:
        return Changed(group.id)
    if not may_change_role(group.view, group.me, member, role):
        raise NoRight(group=group.name, why=_why_no_role(group, member, role))
    if member == group.me:
        after = group.seq + 1
    elif role == READER:
        after = _heard_of(group, member)
    else:  # what it had said as a reader does not begin to count: whoever has left it out has it no more
        chain = group.chain(member)
        after = chain.seq if chain.tip else 0
    log.append(turn, group.id, ROLE, {"member": member, "role": role, "after": after})
    return Changed(group.id)


def _why_no_role(group: Group, member: str, role: str) -> str:
    if group.view.policy.roles == "flat":
        return "there are no admins in this group" if role == ADMIN else "there everybody decides that for themselves"
    if group.view.members[member].role == OWNER:
        return "the owner's role is fixed"
    return "only the owner makes admins" if role == ADMIN else "only an admin can do that"


def change_label(turn: Turn, wanted: str, label: str) -> Changed:
    """Go by another name."""
    group = _active(turn, wanted)
    if group.view.members[group.me].label == label:
        return Changed(group.id)
    if not label_free(group.view, label, but=group.me):
        raise NameTaken(group=group.name, label=label)
    log.append(turn, group.id, LABEL, {"label": label})
    return Changed(group.id)


def verify(turn: Turn, wanted: str, whom: str, verified: bool) -> Changed:
    """Keep that a member's words were compared and are the same, or take that back."""
    group = find_group(turn.agent, wanted)
    member = find_member(group, whom)
    if member == group.me:
        raise NotYourself(group=group.name)
    rest = {did: label for did, label in group.verified.items() if did != member}
    label = group.view.members[member].label
    turn.edit(group.id, verified={**rest, member: label} if verified else rest)
    turn.say(Notify(TrustChanged(group.id, member)))
    return Changed(group.id)


def dismiss(turn: Turn, wanted: str, whom: str) -> Changed:
    """Keep that a person has seen what casts doubt on what the members say: of one (a label or a DID), or all."""
    group = find_group(turn.agent, wanted)
    doubts = attestation.doubts(group)
    known = {one.about: group.view.known(one.about) for one in doubts}
    labels = {did: one.label.casefold() for did, one in known.items() if one is not None}
    seen = [one.name for one in doubts if whom in ("", one.about) or labels.get(one.about) == whom.casefold()]
    turn.edit(group.id, dismissed=(*group.dismissed, *seen))
    turn.say(Notify(ViewChanged(group.id)))
    return Changed(group.id)


def _active(turn: Turn, wanted: str) -> Group:
    group = find_group(turn.agent, wanted)
    if group.state != "active":
        raise NotAMember(group=group.name)
    return group


def settle(turn: Turn, name: str) -> None:
    """After something was heard: go if we have been put out, and put out whom enough of us want out."""
    group = turn.group(name)
    if group.state == "left":
        return
    if group.me not in group.view.members and group.state == "active":
        why = [e for e in group.control.values() if e.type == REMOVE and remove_of(e).member == group.me]
        by = [event.author for event in why]
        # Whoever has put us out may have told nobody else, and the others would wait for us for ever.
        causes = [group.control[cause] for event in why for cause in event.deps]
        others = [did for did in group.others if did in group.peers]
        if why:
            outbox.publish(turn, name, [*causes, *why], others, status=True)
        turn.edit(name, removed_by=min(by, default=group.me))
        leave.close(turn, name, goodbye=False)
        turn.say(Notify(Removed(name, min(by, default=""))))
        return
    if group.view.policy.remove != "quorum" or group.state != "active":
        return
    ours = [vote_of(e).member for e in group.control.values() if e.type == VOTE and e.author == group.me]
    for target in ours:
        group = turn.group(name)
        if target in group.view.members and may_remove(
            group.view, group.me, target, votes_for(group.control, group.view, target)
        ):
            before, said = turn.agent, len(turn.effects)
            try:
                _put_out(turn, group, target)
            except RemoteError as error:  # what somebody else has done must not cost us what we have just heard
                turn.agent = before
                del turn.effects[said:]
                turn.say(Measure("dropped", error.code))
