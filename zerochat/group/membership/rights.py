"""Whether somebody had the right to make a membership event, seen from what that event had seen.

The graph may fork, so two events that were both in order can be at odds; which of them counts is for `resolve.py`. Here
is only what every event must satisfy by itself, and so everybody accepts the same ones.
"""

from collections.abc import Collection, Iterable, Mapping

from zerochat.errors import Malformed, Refused
from zerochat.group.event_log.event import GENESIS, LEAVE, REMOVE, VOTE, Event
from zerochat.group.links.contact import check_consent, check_possession, client_key, reach_of_did
from zerochat.group.membership.bodies import (
    add_of,
    genesis_of,
    label_of,
    leave_of,
    remove_of,
    role_of,
    terms_of,
    vote_of,
)
from zerochat.group.membership.resolve import Roll, ancestors, is_cut, resolve_view, voters_for
from zerochat.group.membership.view import (
    View,
    may_add,
    may_change_role,
    may_label,
    may_remove,
    may_set_terms,
    may_vote,
)

CONTROL_MAX = 4096
"""Membership events of one group. Every one is kept for ever and given to every newcomer, so they are counted."""
AUTHOR_CONTROL_MAX = 256
"""And those of one author, so that nobody alone fills the log."""


def check_control(event: Event, control: Mapping[str, Event]) -> None:
    """Refuse a membership event that its author had no right to make, seen from its own causal past.

    All of its `deps` must be in `control` already. Raises Unauthentic, Malformed or Refused.
    """
    event.check_signature()
    if event.type == GENESIS:
        _check_beginning(event, control)
        return
    _check_place(event, control)
    load = _Load(control.values())
    past = {name: control[name] for name in ancestors(control, event.deps)}
    _check_right(event, resolve_view(past), past)
    load.take(event)


def check_all(events: Iterable[Event]) -> dict[str, Event]:
    """The same for a whole past at once, causes first; returns it by id.

    Where an event names every head so far, as nearly all do, its past is all that was before, and need not be worked
    out. Nor need the members be worked out anew after one that does not, as long as that takes nothing from anybody
    and nothing was taken that it has not seen.
    """
    control: dict[str, Event] = {}
    heads: set[str] = set()
    cuts: set[str] = set()
    load, roll, latest = _Load(()), None, (0, "")
    for event in events:
        event.check_signature()
        if event.type == GENESIS:
            _check_beginning(event, control)
            roll = Roll(event)
        else:
            _check_place(event, control)
            harmless = True
            if heads == set(event.deps):
                roll = roll or Roll.of(control)
                _check_right(event, roll.live, control)
            else:
                names = ancestors(control, event.deps)
                past = {name: control[name] for name in names}
                _check_right(event, resolve_view(past), past)
                harmless = cuts <= names and not is_cut(event) and (event.lamport, event.id) > latest
            if roll is not None and harmless:
                roll.apply(event)
            else:
                roll = None
        load.take(event)
        control[event.id] = event
        heads = (heads - set(event.deps)) | {event.id}
        latest = max(latest, (event.lamport, event.id))
        if is_cut(event):
            cuts.add(event.id)
    return control


def _check_beginning(event: Event, control: Mapping[str, Event]) -> None:
    if control or event.deps:
        raise Refused(why="a second beginning of the group")
    body = genesis_of(event)
    check_possession(body.possession, body.transport, "", event.author)
    reach_of_did(body.contact)


def _check_place(event: Event, control: Mapping[str, Event]) -> None:
    if not event.deps or any(dep not in control for dep in event.deps):
        raise Refused(why="evidence that does not hang together")
    if event.lamport <= max(control[name].lamport for name in event.deps):
        raise Refused(why="a membership event older than its causes")


def _check_right(event: Event, view: View, past: Mapping[str, Event]) -> None:
    """Refuse what its author could not have done among the members of this view, which is that of the event's past."""
    me, allowed = event.author, True
    if me not in view.members:
        raise Refused(why="a membership event by somebody who was not a member")
    match event.type:
        case "leave":
            leave_of(event)
        case "add":
            add = add_of(event)
            check_possession(add.possession, add.transport, event.group, add.member)
            consented = (add.member, add.label, add.contact, add.role, add.transport)
            check_consent(add.consent, event.group, me, *consented)
            reach_of_did(add.contact)
            allowed = may_add(view, me, add.member, add.label, client_key(add.transport))
        case "remove":
            target = remove_of(event).member
            # Its author has chosen this past; whether the votes are enough among all members is for `resolve.py`.
            votes = voters_for(past, view, target) if view.policy.remove == "quorum" else ()
            allowed = may_remove(view, me, target, votes)
        case "vote":
            allowed = may_vote(view, me, vote_of(event).member)
        case "role":
            role = role_of(event)
            allowed = may_change_role(view, me, role.member, role.role)
            if role.member == me and role.after != event.seq:
                raise Malformed(why="role: one's own counts from the event that says so")
        case "label":
            allowed = may_label(view, me, label_of(event).label)
        case "terms":
            allowed = may_set_terms(view, me, terms_of(event))
        case _:
            raise Malformed(why="a membership event of an unknown type")
    if not allowed:
        raise Refused(why=f"no right to this: {event.type}")


class _Load:
    """How many membership events there are, in all and by author.

    The first leave of a member, the first removal of one, and everybody's first vote about one do not count: they must
    be possible however full the log is. Whether a set of events is within the limits does not depend on their order, so
    a newcomer accepts in one piece what the others have accepted bit by bit.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.all = 0
        self.by: dict[str, int] = {}
        self._free: set[tuple[str, ...]] = set()
        for event in events:
            self._count(event)

    def take(self, event: Event) -> None:
        """Count one more. Raises Refused where that is too many."""
        in_all, by_author = self._count(event)
        if (in_all and self.all > CONTROL_MAX) or (by_author and self.by[event.author] > AUTHOR_CONTROL_MAX):
            raise Refused(why="too many membership events")

    def _count(self, event: Event) -> tuple[bool, bool]:
        """Whether the event counts among all of them, and among its author's."""
        in_all = by_author = True
        if event.type == VOTE:
            in_all = by_author = self._again(VOTE, vote_of(event).member, event.author)
        elif event.type in (LEAVE, REMOVE):
            goes = event.author if event.type == LEAVE else remove_of(event).member
            in_all = self._again(event.type, goes)
            by_author = self._again(event.type, goes, event.author)
        self.all += in_all
        self.by[event.author] = self.by.get(event.author, 0) + by_author
        return in_all, by_author

    def _again(self, *key: str) -> bool:
        known = key in self._free
        self._free.add(key)
        return known


def missing(control: Mapping[str, Event], their_heads: Collection[str]) -> list[Event]:
    """The membership events that a peer with these heads lacks, causes first. Heads unknown to us are passed over."""
    theirs = ancestors(control, (name for name in their_heads if name in control))
    return sorted((e for name, e in control.items() if name not in theirs), key=lambda e: (e.lamport, e.author, e.id))
