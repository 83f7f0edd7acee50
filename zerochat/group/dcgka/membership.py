"""The membership that the key agreement goes by: the members at the membership events that a key event names."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from zerochat.group.event_log.event import ADD, Event
from zerochat.group.key_agreement.state import Membership
from zerochat.group.key_agreement.wire import HEADS_MAX
from zerochat.group.membership import (
    add_of,
    ancestors,
    attestation,
    descendants,
    heads_of,
    log_of,
    remove_of,
    resolve_view,
)
from zerochat.group.membership.resolve import RecentCache
from zerochat.group.state import Group

VIEWS_MAX: Final = 256
"""Cached views of all groups."""

GROUPS_MAX: Final = 64
"""Cached present memberships."""

_views: RecentCache[tuple[str, ...], frozenset[str]] = RecentCache(VIEWS_MAX)
"""Members by heads: the ids are hashes of all that is below them."""
_present: RecentCache[tuple[object, ...], tuple[tuple[object, ...], Membership]] = RecentCache(GROUPS_MAX)
"""By the identities of what it depends on, which are stored with it, so that no other object can have them."""


def membership_of(group: Group) -> Membership:
    """The present membership, by the events that every member can obtain; by all, where we are no member by those."""
    about = group.control, group.view, group.trust.quarantine
    return _present.get((*map(id, about), group.me), lambda: (about, _find(group)))[1]


def _find(group: Group) -> Membership:
    found = _membership(group, attestation.endorsed_events(group))
    return found if group.me in found.members else _membership(group, group.control)


def _membership(group: Group, control: Mapping[str, Event]) -> Membership:
    heads = named_heads(control, group.me)
    members = _members_at(group, heads) & group.view.members.keys()
    at = partial(_members_at, group)
    return Membership(frozenset(members), heads, at, exports=group.view.path == "ring")


def named_heads(control: Mapping[str, Event], me: str) -> tuple[str, ...]:
    """The heads of these membership events, sorted; of more than `HEADS_MAX` one that has our own addition in its past,
    without which others refuse our key events, and those that add most departed members, then added ones, to the past
    that the heads before them cover.

    What a key event does not name, its recipients take as unknown to its author: an update then does not count as
    healing from a former member, and a newcomer gets what it cannot open by retransmission.
    """
    heads = heads_of(control)
    if len(heads) <= HEADS_MAX:
        return heads
    covered, departed, added, changes = set[str](), set[str](), set[str](), dict[str, tuple[int, int]]()
    for head in heads:
        before, waiting = (len(departed), len(added)), [head]
        while waiting:
            if (name := waiting.pop()) not in covered:
                covered.add(name)
                waiting.extend(control[name].deps)
                _count(control[name], departed, added)
        changes[head] = len(departed) - before[0], len(added) - before[1]
    ours = descendants(control, [name for name, one in control.items() if one.type == ADD and add_of(one).member == me])
    own = max(ours.intersection(heads), key=changes.__getitem__, default="")
    return tuple(sorted(sorted(heads, key=lambda head: (head == own, changes[head]), reverse=True)[:HEADS_MAX]))


def _count(event: Event, departed: set[str], added: set[str]) -> None:
    """Note the member that an event removes or adds."""
    match event.type:
        case "remove":
            departed.add(remove_of(event).member)
        case "leave":
            departed.add(event.author)
        case "add":
            added.add(add_of(event).member)


def knows(group: Group, heads: Sequence[str]) -> bool:
    """Whether all these membership events are here."""
    return all(head in group.control for head in heads)


def work_us(group: Group, heads: tuple[str, ...]) -> int:
    """The estimated work of finding the members at these heads, us."""
    log = log_of(group.control)
    return 0 if heads == log.sorted_heads or heads in _views else log.resolve_us


def _members_at(group: Group, heads: tuple[str, ...]) -> frozenset[str]:
    if heads == log_of(group.control).sorted_heads:
        return frozenset(group.view.members)
    return _views.get(heads, lambda: _resolved(group, heads))


def _resolved(group: Group, heads: tuple[str, ...]) -> frozenset[str]:
    past = {name: group.control[name] for name in ancestors(group.control, heads)}
    return frozenset(resolve_view(past).members)
