"""Permission checks: whether the author of a membership event had the right to create it, in the event's causal past.

The graph may fork, so two permitted events can conflict; `resolve.py` decides which of them takes effect. The checks
here depend on an event and its past alone, so all members accept the same events.
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
from zerochat.group.membership.resolve import ViewBuilder, ancestors, resolve_view, voters_for
from zerochat.group.membership.view import (
    View,
    may_add,
    may_change_role,
    may_label,
    may_remove,
    may_set_terms,
    may_vote,
)
from zerochat.group.membership.void_events import is_revocation

CONTROL_MAX = 4096
"""Membership events of one group. All are kept for good and given to every joiner, so they are limited."""
AUTHOR_CONTROL_MAX = 256
"""Membership events of one author, so that no author alone fills the log."""


def check_control(event: Event, control: Mapping[str, Event]) -> None:
    """Reject a membership event that its author had no right to create, in its own causal past.

    All of its `deps` must be in `control` already. Raises Unauthentic, Malformed or Refused.
    """
    event.check_signature()
    if event.type == GENESIS:
        _check_genesis(event, control)
        return
    _check_causes(event, control)
    quota = EventQuota(control.values())
    past = {name: control[name] for name in ancestors(control, event.deps)}
    _check_right(event, resolve_view(past), past)
    quota.add(event)


def check_all(events: Iterable[Event]) -> dict[str, Event]:
    """Check a whole past at once, causes first; returns it by id.

    An event that names all heads so far, as nearly all do, has everything before it in its past, which need not be
    computed. Nor must the view be rebuilt after one that does not, unless revocations are involved that it had not
    seen.
    """
    control: dict[str, Event] = {}
    heads: set[str] = set()
    revocations: set[str] = set()
    quota, builder, latest = EventQuota(()), None, (0, "")
    for event in events:
        event.check_signature()
        if event.type == GENESIS:
            _check_genesis(event, control)
            builder = ViewBuilder(event)
        else:
            _check_causes(event, control)
            harmless = True
            if heads == set(event.deps):
                builder = builder or ViewBuilder.of(control)
                _check_right(event, builder.current, control)
            else:
                names = ancestors(control, event.deps)
                past = {name: control[name] for name in names}
                _check_right(event, resolve_view(past), past)
                harmless = revocations <= names and not is_revocation(event) and (event.lamport, event.id) > latest
            if builder is not None and harmless:
                builder.apply(event)
            else:
                builder = None
        quota.add(event)
        control[event.id] = event
        heads = (heads - set(event.deps)) | {event.id}
        latest = max(latest, (event.lamport, event.id))
        if is_revocation(event):
            revocations.add(event.id)
    return control


def _check_genesis(event: Event, control: Mapping[str, Event]) -> None:
    if control or event.deps:
        raise Refused(why="a second genesis event")
    body = genesis_of(event)
    check_possession(body.possession, body.transport, "", event.author)
    reach_of_did(body.contact)


def _check_causes(event: Event, control: Mapping[str, Event]) -> None:
    if not event.deps or any(dep not in control for dep in event.deps):
        raise Refused(why="a membership event without its causes")
    if event.lamport <= max(control[name].lamport for name in event.deps):
        raise Refused(why="a membership event older than its causes")


def _check_right(event: Event, view: View, past: Mapping[str, Event]) -> None:
    """Reject what its author may not do by this view, which is that of the event's past."""
    me, allowed = event.author, True
    if me not in view.members:
        raise Refused(why="a membership event by a non-member")
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
            # Its author chose this past; whether the votes suffice among all members is decided in `void_events.py`.
            votes = voters_for(past, view, target) if view.policy.remove == "quorum" else ()
            allowed = may_remove(view, me, target, votes)
        case "vote":
            allowed = may_vote(view, me, vote_of(event).member)
        case "role":
            role = role_of(event)
            allowed = may_change_role(view, me, role.member, role.role)
            if role.member == me and role.after != event.seq:
                raise Malformed(why="role: one's own role must count from this event")
        case "label":
            allowed = may_label(view, me, label_of(event).label)
        case "terms":
            allowed = may_set_terms(view, me, terms_of(event))
        case _:
            raise Malformed(why="a membership event of an unknown type")
    if not allowed:
        raise Refused(why=f"no permission: {event.type}")


class EventQuota:
    """Counts the membership events, in total and by author.

    The first leave and the first removal of a member, and each member's first vote about another, do not count: they
    must be possible however full the log is. Whether a set of events is within the limits does not depend on their
    order, so a joiner accepts in one piece events that the others have accepted one by one.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.all = 0
        self.by: dict[str, int] = {}
        self._free: set[tuple[str, ...]] = set()
        for event in events:
            self._count(event)

    def add(self, event: Event) -> None:
        """Count an event. Raises Refused beyond the limits."""
        in_all, by_author = self._count(event)
        if (in_all and self.all > CONTROL_MAX) or (by_author and self.by[event.author] > AUTHOR_CONTROL_MAX):
            raise Refused(why="too many membership events")

    def _count(self, event: Event) -> tuple[bool, bool]:
        """Whether the event counts in total, and for its author."""
        in_all = by_author = True
        if event.type == VOTE:
            in_all = by_author = self._seen_before(VOTE, vote_of(event).member, event.author)
        elif event.type in (LEAVE, REMOVE):
            goes = event.author if event.type == LEAVE else remove_of(event).member
            in_all = self._seen_before(event.type, goes)
            by_author = self._seen_before(event.type, goes, event.author)
        self.all += in_all
        self.by[event.author] = self.by.get(event.author, 0) + by_author
        return in_all, by_author

    def _seen_before(self, *key: str) -> bool:
        known = key in self._free
        self._free.add(key)
        return known


def missing(control: Mapping[str, Event], their_heads: Collection[str]) -> list[Event]:
    """The membership events that a peer with these heads lacks, causes first. Unknown heads are ignored."""
    theirs = ancestors(control, (name for name in their_heads if name in control))
    return sorted((e for name, e in control.items() if name not in theirs), key=lambda e: (e.lamport, e.author, e.id))
