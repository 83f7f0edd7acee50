"""Permission checks: whether the author of a membership event had the right to create it, in the event's causal past.

The graph may fork, so two permitted events can conflict; `resolve.py` decides which of them takes effect. The checks
here depend on an event and its past alone, so all members accept the same events.
"""

from collections.abc import Callable, Collection, Mapping

from zerochat.errors import Malformed, Refused
from zerochat.group.event_log.event import Event
from zerochat.group.links.contact import check_consent, check_possession, client_key, reach_of_did
from zerochat.group.membership import upgrades
from zerochat.group.membership.bodies import (
    add_of,
    genesis_of,
    label_of,
    leave_of,
    remove_of,
    role_of,
    terms_of,
    upgrade_of,
    vote_of,
)
from zerochat.group.membership.electorate import Electorate
from zerochat.group.membership.view import (
    View,
    may_add,
    may_change_role,
    may_label,
    may_remove,
    may_set_terms,
    may_vote,
)

SEATS_RESERVE = 8
"""The last seats of a group, for which a branch that holds as many competes no longer."""


def has_seat_for(view: View, adder: str) -> bool:
    """Whether there is a seat for one that this member adds.

    The last `SEATS_RESERVE` are for those that the founder or a small branch adds, so that no member can close the
    group to newcomers of others, however many it adds itself. Where all members came in through one, that member takes
    the founder's part.
    """
    free = view.members_max - len(view.members)
    if free > SEATS_RESERVE or free <= 0:
        return free > 0
    known = {**view.former, **view.members}
    founder, *others = sorted(known, key=lambda did: (known[did].joined, did))
    adders = {founder: ""}
    for did in others:
        above = known[did].added_by or founder
        adders[did] = above if above in adders else founder
    branches = Electorate(adders, view.members).branch
    branch = branches.get(adder, "")
    return not branch or sum(branches[did] == branch for did in view.members) < SEATS_RESERVE


def check_genesis(event: Event, control: Mapping[str, Event]) -> None:
    """Reject a genesis event that is not the first, or without proof of its keys."""
    if control or event.deps:
        raise Refused(why="a second genesis event")
    body = genesis_of(event)
    check_possession(body.possession, body.transport, "", event.author)
    reach_of_did(body.contact)


def check_causes(event: Event, control: Mapping[str, Event]) -> None:
    """Reject an event whose causes are not here, or that claims to be older than they are."""
    if not event.deps or any(dep not in control for dep in event.deps):
        raise Refused(why="a membership event without its causes")
    if event.lamport <= max(control[name].lamport for name in event.deps):
        raise Refused(why="a membership event older than its causes")


def check_body(event: Event) -> None:
    """Reject an event whose body is invalid whatever its past is. Raises Malformed or Unauthentic."""
    match event.type:
        case "leave":
            leave_of(event)
        case "add":
            add = add_of(event)
            check_possession(add.possession, add.transport, event.group, add.member)
            consented = (add.member, add.label, add.contact, add.role, add.transport)
            check_consent(add.consent, event.group, event.author, *consented)
            reach_of_did(add.contact)
        case "remove":
            remove_of(event)
        case "vote":
            vote_of(event)
        case "role":
            role_of(event)
        case "label":
            label_of(event)
        case "terms":
            terms_of(event)
        case "upgrade":
            upgrade_of(event)
        case _:
            raise Malformed(why="a membership event of an unknown type")


def check_right(
    event: Event,
    view: View,
    voters: Callable[[str], Collection[str]],
    upgraders: Callable[[], Collection[str]],
    parties: upgrades.Parties,
) -> None:
    """Reject what its author may not do by this view, which is that of the event's past. `voters`: the members that
    voted there to remove this one; `upgraders`: those that agreed there to an upgrade; `parties`: of those with its
    author. Raises Malformed or Refused."""
    me, allowed = event.author, True
    if me not in view.members:
        raise Refused(why="a membership event by a non-member")
    match event.type:
        case "add":
            add = add_of(event)
            allowed = has_seat_for(view, me) and may_add(view, me, add.member, add.label, client_key(add.transport))
        case "remove":
            target = remove_of(event).member
            # Its author chose this past; whether the votes suffice among all members is decided in `void_events.py`.
            votes = voters(target) if view.policy.remove == "quorum" else ()
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
        case "upgrade":
            allowed = upgrades.is_right(event, view, upgraders(), parties)
    if not allowed:
        raise Refused(why=f"no permission: {event.type}")
