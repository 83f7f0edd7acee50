"""What the rights of an event depend on in its causal past: the view without what only clients need.

A check of an event takes the members with their names, keys and roles, and who has ever been a member. From the sets of
an `EventGraph` these follow in a time in proportion to the members, not to the events. `resolve.ViewBuilder` gives the
same members, and `quota.EventQuota` the same limits; tests compare them.
"""

from collections.abc import Collection

from msgspec.structs import replace

from zerochat.group.event_log.event import LABEL, LEAVE, ROLE, UPGRADE, Event
from zerochat.group.membership import quota
from zerochat.group.membership.bodies import TLOG, genesis_of, label_of, remove_of, role_of, upgrade_of, vote_of
from zerochat.group.membership.event_graph import EventGraph, bits, first_of, remember
from zerochat.group.membership.resolve import added_member
from zerochat.group.membership.rights import check_right
from zerochat.group.membership.view import ADMIN, OWNER, Member, View
from zerochat.group.membership.void_events import VoidEvents

STEP_NS, STEP_NS_PER_EVENT = 150, 0.02
"""The work of an operation on sets of events, and more for each event of the graph; ns."""
VIEW_STEPS = 3
"""The operations of a view, for each member of the graph."""


def steps_us(steps: int, events: int) -> int:
    """The estimated work of these operations on sets of so many events (`EventGraph.steps`), us."""
    return int(steps * (STEP_NS + STEP_NS_PER_EVENT * events)) // 1000


class PastViews:
    """The views of causally closed parts of a graph, as far as rights depend on them."""

    def __init__(self, graph: EventGraph) -> None:
        self.graph = graph
        self._void = VoidEvents(graph)
        genesis = genesis_of(graph.events[0])
        self._has_tlog, self._keys = genesis.accountability == TLOG, genesis.keys
        self._upgrades = 0
        """The final upgrades, which are never void."""
        for at in bits(graph.of_type.get(UPGRADE, 0)):
            self._upgrades |= upgrade_of(graph.events[at]).final << at
        self._members: dict[tuple[str, int, int, int], Member] = {}
        """By member: the event that added it, the last that renamed it, those that changed its role."""
        self._transfers = 0
        for transfers in graph.transfers.values():
            self._transfers |= transfers

    def check(self, event: Event) -> None:
        """Reject an event that its author had no right to create, or had created too many before, in its past. Raises
        Malformed or Refused."""
        past = self.graph.past_of(event)
        self.check_right(event, self.view(past), past)
        self.check_author_quota(event, past)

    def check_right(self, event: Event, view: View, within: int) -> None:
        """Reject what the author of an event may not do by this view, which is that of these events. Raises Malformed
        or Refused."""
        check_right(
            event,
            view,
            lambda target: self.voters(view, within, target),
            lambda: self.upgraders(view, within),
            lambda members: self.parties(members, event.author, within),
        )

    def view(self, within: int) -> View:
        """The view of these events, without checksum, forks, removals and terms. Of its former members only those
        fields are valid that never change."""
        graph = self.graph
        alive = within & ~self._void.within(within)
        graph.steps += VIEW_STEPS * len(graph.added)
        labels, roles = graph.of_type.get(LABEL, 0) & alive, self._role_changes(alive)
        members, former = {}, {}
        for did, added in graph.added.items():
            if not added & within:
                continue
            valid = added & alive
            if valid and not graph.departures_of(did) & alive:
                label = (graph.by.get(did, 0) & labels).bit_length() - 1 if labels else -1
                members[did] = self._member(did, first_of(valid), label, roles.get(did, 0))
            else:
                former[did] = graph.events[first_of(valid or added & within)].memoised(added_member)
        final = next(bits(self._upgrades & within), None)
        keys = self._keys if final is None else upgrade_of(graph.events[final]).keys
        return View(members, former, "", graph.policy, {}, {}, self._has_tlog, keys=keys, path=graph.path)

    def voters(self, view: View, within: int, target: str) -> set[str]:
        """The members that voted to remove this one; `view` is that of these events."""
        votes = self.graph.votes.get(target, 0) & within
        return {did for did in view.members if votes & self.graph.by.get(did, 0)} if votes else set()

    def upgraders(self, view: View, within: int) -> set[str]:
        """The members that agreed to an upgrade; `view` is that of these events."""
        agreed = self.graph.of_type.get(UPGRADE, 0) & within
        return {did for did in view.members if agreed & self.graph.by.get(did, 0)} if agreed else set()

    def parties(self, members: Collection[str], last: str, within: int) -> set[str]:
        """Those of these members whose agreement to an upgrade counts; the one that agrees `last` has these events in
        its past."""
        return self._void.ballots.agreeing(members, last, within & ~self._void.within(within))

    def check_author_quota(self, event: Event, within: int) -> None:
        """Raise Refused where an event exceeds the limit of its author in its causal past, these events: the same for
        all members, in whatever order events come."""
        graph = self.graph
        own = graph.by.get(event.author, 0) & within
        if own.bit_count() < quota.author_max(graph.path):
            return
        leaves = own & graph.of_type.get(LEAVE, 0)
        match event.type:
            case "leave":
                counts = bool(leaves)
            case "remove":
                counts = bool(graph.removals.get(remove_of(event).member, 0) & own)
            case "vote":
                counts = bool(graph.votes.get(vote_of(event).member, 0) & own)
            case _:
                counts = True
        firsts = sum(bool(events & own) for about in (graph.votes, graph.removals) for events in about.values())
        count = quota.Count()
        departed = {did for did in graph.added if graph.departures_of(did) & within}  # void departures included
        count.present = own.bit_count() - firsts - bool(leaves)
        adders = (graph.events[first_of(graph.added[did] & within)].author for did in departed)
        count.depart(count.present if event.author in departed else sum(one == event.author for one in adders))
        if counts and count.weight >= quota.author_max(graph.path):
            raise quota.TooManyEvents(why="too many membership events")

    def _member(self, did: str, added: int, label: int, roles: int) -> Member:
        key = did, added, label, roles
        if (known := self._members.get(key)) is not None:
            return known
        member = self.graph.events[added].memoised(added_member)
        if label >= 0:
            member = replace(member, label=label_of(self.graph.events[label]).label)
        for at in bits(roles):
            event = self.graph.events[at]
            role = role_of(event)
            after, given = (role.after, role.role) if role.member == did else (event.seq, ADMIN)
            before = tuple(one for one in member.roles if one[0] < after)
            member = replace(member, roles=(*before, (after, given)), role_by=event.author)
        return remember(self._members, key, member)

    def _role_changes(self, alive: int) -> dict[str, int]:
        """By member: the events that changed its role; for a former owner also its transfer."""
        graph, all_changes = self.graph, self.graph.of_type.get(ROLE, 0) & alive
        if not all_changes:
            return {}
        if not self._transfers & alive:
            return {did: changes for did, about in graph.about.items() if (changes := about & alive)}
        now = {graph.founder: OWNER}
        found: dict[str, int] = {}
        for at in bits(all_changes):
            author, role = graph.events[at].author, role_of(graph.events[at])
            if role.role == OWNER:
                present = self._is_member(author, alive, at) and self._is_member(role.member, alive, at)
                if now.get(author) != OWNER or not present:
                    continue  # of several transfers by a member that equivocates, the first counts
                now[author] = ADMIN
                found[author] = found.get(author, 0) | 1 << at
            now[role.member] = role.role
            found[role.member] = found.get(role.member, 0) | 1 << at
        return found

    def _is_member(self, did: str, alive: int, at: int) -> bool:
        """Whether it is one by the events of these that come before this one."""
        before = alive & ((1 << at) - 1)
        return bool(self.graph.added.get(did, 0) & alive) and not self.graph.departures_of(did) & before
