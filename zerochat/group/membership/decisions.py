"""Commands about members: removal, roles, names, upgrades, verification; and what many have decided together.

`membership` defines the events and permissions. This module handles the user's commands and the consequences of
received events.
"""

from zerochat.errors import LocalError, NotAMember
from zerochat.group.effects import GroupChanged, Notify, Voted
from zerochat.group.event_log import own_events
from zerochat.group.event_log.event import LABEL, REMOVE, ROLE, UPGRADE, VOTE
from zerochat.group.links import outbox
from zerochat.group.lookup import find_author, find_group, find_member
from zerochat.group.membership import (
    ADMIN,
    OWNER,
    READER,
    attestation,
    label_free,
    leave,
    log_of,
    may_change_role,
    may_remove,
    remove_of,
    upgrades,
    vote_of,
    voters_for,
    votes_for,
    votes_needed,
)
from zerochat.group.notifications import IgnoredChanged, RemovedFromGroup, VerificationChanged, ViewChanged
from zerochat.group.state import Chain, Group
from zerochat.group.transaction import Transaction
from zerochat.limits import MEMBERS_MAX


class NoRight(LocalError):
    """You cannot do that in {group}: {why}."""


class NameTaken(LocalError):
    """The name {label} is already taken in {group}. Choose another name."""


class NotYourself(LocalError):
    """This is you. To leave the group, run `zerochat leave {group}`."""


class NoUpgrade(LocalError):
    """The keys of {group} cannot be upgraded: {why}."""


_WHY_NO_REMOVAL = {
    "admins": "only admins can remove members, and the owner cannot be removed",
    "quorum": "removing a member takes several votes",
}


def remove(tx: Transaction, group_ref: str, member_ref: str) -> Voted:
    """Remove a member, or vote to remove it where that takes a quorum."""
    group = _active_group(tx, group_ref)
    member = find_member(group, member_ref)
    if member == group.me:
        raise NotYourself(group=group.name)
    needed = votes_needed(group.view) if group.view.policy.remove == "quorum" else 1
    if group.view.policy.remove == "quorum" and group.me not in voters_for(group.control, group.view, member):
        own_events.append(tx, group.id, VOTE, {"member": member})
        group = tx.group(group.id)
    votes = votes_for(group.control, group.view, member)
    if may_remove(group.view, group.me, member, votes):
        _append_removal(tx, group, member)
    elif group.view.policy.remove != "quorum":
        raise NoRight(group=group.name, why=_WHY_NO_REMOVAL.get(group.view.policy.remove, "you are not a member"))
    return Voted(group.id, member, max(1, len(votes)), needed)


def _append_removal(tx: Transaction, group: Group, member: str) -> None:
    own_events.append(tx, group.id, REMOVE, {"member": member, "after": _confirmed_position(group, member)})


def _confirmed_position(group: Group, member: str) -> int:
    """Up to where we have a member's chain, as far as at least one other member has it too.

    The start of a chain is its author's claim, so only events that we have received count, and no events that the
    author sent to us alone.
    """
    chain = group.log.chains.get(member, Chain())
    others = [group.links.acked(did, member) for did in group.links.peers if did != member]
    return min(chain.seq, max(others, default=chain.seq)) if chain.head_id else 0


def change_role(tx: Transaction, group_ref: str, member_ref: str, role: str) -> GroupChanged:
    """Make a member, or ourselves, a reader, writer or admin, or another member the owner in our place."""
    group = _active_group(tx, group_ref)
    member = find_member(group, member_ref) if member_ref else group.me
    if group.view.members[member].role == role:
        return GroupChanged(group.id)
    if not may_change_role(group.view, group.me, member, role):
        raise NoRight(group=group.name, why=_why_no_role(group, member, role))
    if member == group.me:
        after = group.seq + 1
    elif role == READER:
        after = _confirmed_position(group, member)
    else:  # Posts from its time as a reader must not begin to count: members who dropped them no longer have them.
        chain = group.chain(member)
        after = chain.seq if chain.head_id else 0
    own_events.append(tx, group.id, ROLE, {"member": member, "role": role, "after": after})
    return GroupChanged(group.id)


def _why_no_role(group: Group, member: str, role: str) -> str:
    if group.view.policy.roles == "flat":
        given = role in (ADMIN, OWNER)
        return "this group has no owner and no admins" if given else "in this group each member sets only its own role"
    if role == OWNER:
        return "only the owner can hand over the group"
    if group.view.members[member].role == OWNER:
        return "the owner's role only changes when the owner hands over the group"
    return "only the owner can appoint admins" if role == ADMIN else "only admins can do that"


def upgrade(tx: Transaction, group_ref: str) -> GroupChanged:
    """Agree to the upgrade of the group's keys, which takes effect once enough members have. After that, agreeing
    changes nothing."""
    group = _active_group(tx, group_ref)
    if group.keys != group.profile.keys:
        return GroupChanged(group.id)
    keys = upgrades.target_of_upgrade(group.view)
    if not keys:
        why = (
            "it has a transparency log, which rests on its keys"
            if group.view.has_tlog
            else f"they are {group.keys}, and a group stays on its path ({group.view.path}) for good"
        )
        raise NoUpgrade(group=group.name, why=why)
    if not upgrades.may_upgrade(group.view, group.me, keys):
        raise NoRight(group=group.name, why="only the owner and the admins upgrade the keys")
    if group.me not in upgrades.upgraders(group.control, group.view):
        _append_upgrade(tx, group)
    return GroupChanged(group.id)


def _append_upgrade(tx: Transaction, group: Group) -> None:
    agreed = {group.me, *upgrades.upgraders(group.control, group.view)}
    final = upgrades.is_enough(group.view, agreed, _parties_of(group))
    own_events.append(tx, group.id, UPGRADE, {"keys": upgrades.target_of_upgrade(group.view), "final": final})


def _parties_of(group: Group) -> upgrades.Parties:
    """Whose agreement to an upgrade counts, if we agree last."""
    return lambda members: log_of(group.control).parties(members, group.me)


def change_label(tx: Transaction, group_ref: str, label: str) -> GroupChanged:
    """Change our display name."""
    group = _active_group(tx, group_ref)
    if group.view.members[group.me].label == label:
        return GroupChanged(group.id)
    if not label_free(group.view, label, but=group.me):
        raise NameTaken(group=group.name, label=label)
    own_events.append(tx, group.id, LABEL, {"label": label})
    return GroupChanged(group.id)


def verify(tx: Transaction, group_ref: str, member_ref: str, verified: bool) -> GroupChanged:
    """Record that the user compared a member's safety words and they match, or undo that."""
    group = find_group(tx.agent, group_ref)
    member = find_member(group, member_ref)
    if member == group.me:
        raise NotYourself(group=group.name)
    rest = {did: label for did, label in group.trust.verified.items() if did != member}
    label = group.view.members[member].label
    tx.update_trust(group.id, verified={**rest, member: label} if verified else rest)
    tx.emit(Notify(VerificationChanged(group.id, member)))
    return GroupChanged(group.id)


def ignore(tx: Transaction, group_ref: str, member_ref: str, ignored: bool) -> GroupChanged:
    """Record that the user does not want to see the messages of a member or former member, or wants to again."""
    group = find_group(tx.agent, group_ref)
    member = find_author(group, member_ref)
    if member == group.me:
        raise NotYourself(group=group.name)
    if ignored != (member in group.trust.ignored):
        rest = tuple(did for did in group.trust.ignored if did != member)
        tx.update_trust(group.id, ignored=(*rest, member)[-MEMBERS_MAX:] if ignored else rest)
        tx.emit(Notify(IgnoredChanged(group.id, member)))
    return GroupChanged(group.id)


def dismiss_warnings(tx: Transaction, group_ref: str, member_ref: str) -> GroupChanged:
    """Record that the user has seen the warnings about one member (a label or a DID), or all warnings."""
    group = find_group(tx.agent, group_ref)
    warnings = attestation.warnings_of(group)
    known = {one.subject: group.view.known(one.subject) for one in warnings}
    labels = {did: one.label.casefold() for did, one in known.items() if one is not None}
    seen = [
        one.name
        for one in warnings
        if member_ref in ("", one.subject) or labels.get(one.subject) == member_ref.casefold()
    ]
    tx.update_trust(group.id, dismissed_warnings=(*group.trust.dismissed_warnings, *seen))
    tx.emit(Notify(ViewChanged(group.id)))
    return GroupChanged(group.id)


def _active_group(tx: Transaction, group_ref: str) -> Group:
    group = find_group(tx.agent, group_ref)
    if group.state != "active":
        raise NotAMember(group=group.name)
    return group


def enforce_decisions(tx: Transaction, name: str) -> None:
    """After an event was received: close the group if we were removed; remove members whose removal has enough votes,
    and complete an upgrade to which enough members have agreed concurrently."""
    group = tx.group(name)
    if group.state == "left":
        return
    if group.me not in group.view.members and group.state == "active":
        why = [e for e in group.control.values() if e.type == REMOVE and remove_of(e).member == group.me]
        by = [event.author for event in why]
        # The remover may have informed no other member, and the others would wait for us indefinitely.
        causes = [group.control[cause] for event in why for cause in event.deps]
        others = [did for did in group.others if did in group.links.peers]
        if why:
            outbox.publish_events(tx, name, [*causes, *why], others, status=True)
        tx.update_group(name, removed_by=min(by, default=group.me))
        leave.close_group(tx, name, goodbye=False)
        tx.emit(Notify(RemovedFromGroup(name, min(by, default=""))))
        return
    if group.view.policy.remove != "quorum" or group.state != "active":
        return
    own_events = log_of(group.control).by_author.get(group.me, ())
    have_agreed = any(event.type == UPGRADE for event in own_events)
    if have_agreed and upgrades.is_due(group.control, group.view, group.me, _parties_of(group)):
        with tx.attempt():
            _append_upgrade(tx, group)
    ours = [vote_of(event).member for event in own_events if event.type == VOTE]
    for target in ours:
        group = tx.group(name)
        if target in group.view.members and may_remove(
            group.view, group.me, target, votes_for(group.control, group.view, target)
        ):
            # Another member's invalid action must not discard the input that we just received.
            with tx.attempt():
                _append_removal(tx, group, target)
