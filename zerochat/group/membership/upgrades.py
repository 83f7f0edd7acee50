"""Upgrades of a group's key mode: to keys that heal, by agreement, and never back.

Members agree by signed events. In a group with admins, one of them decides; otherwise as many members as a removal
takes: with signed messages, members give up that they can deny them. They are counted as the votes of a removal
(`void_events.py`), so that no member agrees once more through those that it adds; as there, the founder is trusted with
its additions. The event with which enough have agreed is final.

Whether it is final depends on its own causal past, and a final event is never void, although its author may be removed
concurrently: members may have posted under the new keys already, and no removal may send the group back to weaker ones.
So views converge in any order, and a set of events that has a final one keeps it. The price: a former member can, with
the help of a member, still produce an upgrade from its time, which makes messages signed; members are told of it, and
nothing that was said before becomes less protected.

A post has the form of the keys that its author had: with a final event in its causal past (`is_upgraded_at`) it must
have the new form, and all later posts of its chain too.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final, TypeAlias

from zerochat.group.event_log.event import UPGRADE, Event
from zerochat.group.membership.bodies import upgrade_of
from zerochat.group.membership.resolve import RecentCache, descendants
from zerochat.group.membership.view import ADMIN, OWNER, View

Parties: TypeAlias = Callable[[Collection[str]], Collection[str]]
"""Of members that agree: those whose agreement counts (`Ballots.agreeing`)."""

UPGRADES: Final = {"pairwise-multi": "dcgka", "pairwise-single": "dcgka", "sender-key": "dcgka"}
"""The only upgrades, by the present keys. A group with a transparency log has none: its log rests on sender keys."""
GROUPS_MAX: Final = 64

_after: RecentCache[tuple[int, int], tuple[Mapping[str, Event], frozenset[str]]] = RecentCache(GROUPS_MAX)
"""Events after a final one, by the identity and the size of the membership events, which only grow; they are stored
with it, so that no other object can have that identity. Every unsigned post asks."""


def target_of_upgrade(view: View) -> str:
    """The keys that the group can be upgraded to; empty: none."""
    return "" if view.has_tlog else UPGRADES.get(view.keys, "")


def may_upgrade(view: View, actor: str, keys: str) -> bool:
    """Whether the actor may agree to these keys."""
    me = view.members.get(actor)
    if me is None or not keys or target_of_upgrade(view) != keys:
        return False
    return view.policy.roles != "admins" or me.role in (ADMIN, OWNER)


def upgraders(control: Mapping[str, Event], view: View) -> set[str]:
    """The current members that have agreed to an upgrade; `view` is that of `control`."""
    return {event.author for event in control.values() if event.type == UPGRADE and event.author in view.members}


def agreement_needed(view: View) -> int:
    """How many members must agree."""
    by_quorum = view.policy.roles == "flat" and view.policy.remove == "quorum"
    return max(1, min(view.policy.quorum, len(view.members))) if by_quorum else 1


def counted(view: View, agreed: Collection[str], parties: Parties) -> Collection[str]:
    """Those of these members whose agreement counts; if they are too few in any case, all."""
    needed = agreement_needed(view)
    return agreed if needed == 1 or len(agreed) < needed else parties(agreed)


def is_enough(view: View, agreed: Collection[str], parties: Parties) -> bool:
    """Whether the agreement of these members is final."""
    return len(counted(view, agreed, parties)) >= agreement_needed(view)


def is_due(control: Mapping[str, Event], view: View, me: str, parties: Parties) -> bool:
    """Whether we have agreed, and so have enough others, but none of us knew of all the others."""
    agreed = upgraders(control, view)
    may = me in agreed and may_upgrade(view, me, target_of_upgrade(view))
    return may and is_enough(view, agreed, parties)


def is_right(event: Event, view: View, agreed: Collection[str], parties: Parties) -> bool:
    """Whether the author may create this upgrade, and says correctly whether it is final. `view` is that of the event's
    past, in which these members have `agreed`."""
    body = upgrade_of(event)
    if not may_upgrade(view, event.author, body.keys):
        return False
    is_final = is_enough(view, {event.author, *agreed}, parties)
    return body.final == is_final and (is_final or event.author not in agreed)


def is_upgraded_at(control: Mapping[str, Event], heads: Collection[str]) -> bool:
    """Whether a final upgrade is among these membership events or in their past; unknown ones are ignored."""
    if not heads:
        return False
    after = _after.get((id(control), len(control)), lambda: (control, _after_final(control)))[1]
    return not after.isdisjoint(heads)


def _after_final(control: Mapping[str, Event]) -> frozenset[str]:
    """The final upgrades, and all events that have one in their past."""
    final = [name for name, event in control.items() if event.type == UPGRADE and upgrade_of(event).final]
    return frozenset(descendants(control, final))
