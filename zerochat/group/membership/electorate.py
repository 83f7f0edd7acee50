"""The electorate of a removal or upgrade: who has a say, and whose votes count as one (`void_events.py` says why)."""

from collections.abc import Callable, Collection

from zerochat.group.event_log.event import ADD
from zerochat.group.membership.bodies import remove_of
from zerochat.group.membership.event_graph import EventGraph, bits, remember

QUORUM_STEPS = 3
"""The operations on sets (`EventGraph.steps`) for each removal by quorum."""


class Electorate:
    """The members with a say in a removal, and through whom they came in."""

    def __init__(self, adders: dict[str, str], others: Collection[str]) -> None:
        """`adders`: by current and former member, its adder; in order of addition, beginning with the founder, whose
        adder is empty. `others`: the current members except the target."""
        self.adders, self.others = adders, others
        weight = {did: int(did in others) for did in adders}
        for did in reversed(adders):
            if adders[did]:
                weight[adders[did]] += weight[did]
        root = [did for did in adders if weight[did] == len(others)][-1]
        self.root = root
        """The last member through whom all of them came in; it need not be one of them."""
        self.branch: dict[str, str] = {}
        """Empty for the root and those that did not come in through it."""
        for did, adder in adders.items():
            self.branch[did] = did if adder == root else self.branch.get(adder, "")

    def counted(self, voters: Collection[str], seen: Callable[[str], bool]) -> set[str]:
        """The parties of these votes, at most as many as voters. `seen`: whether a member outside of this member's
        branch had acted having seen its addition; called only where that matters."""
        parties = set()
        for voter in voters:
            if voter in self.others:
                party = voter
                while self.branch[party] not in ("", party) and not seen(party):
                    party = self.adders[party]
                parties.add(party)
        return parties


class Ballots:
    """Which removals of a graph have enough votes, and who agrees to an upgrade."""

    def __init__(self, graph: EventGraph) -> None:
        self._graph = graph
        self._enough: dict[tuple[int, int, int], bool] = {}
        """By removal, the part of its past that is not void, and the additions that it may not have seen."""
        self._last: dict[int, tuple[int, int, bool]] = {}
        """The last of these, by removal: comparing sets is faster than hashing them."""
        self._came_in: dict[int, tuple[dict[str, str], dict[str, int]]] = {}
        """By additions: the members' adders, and the event that added each."""

    def without_quorum(self, alive: int, within: int) -> int:
        """The removals that too few of the votes among these events in their past permit."""
        found = 0
        self._graph.steps += QUORUM_STEPS * (self._graph.counted & alive).bit_count()
        for at in bits(self._graph.counted & alive):
            if not self._has_quorum(at, self._graph.past[at] & alive, within):
                found |= 1 << at
                alive &= ~(1 << at)
        return found

    def _has_quorum(self, at: int, seen: int, within: int) -> bool:
        """Whether the votes in a past are enough for the removal `at`."""
        joins = self._graph.of_type.get(ADD, 0) & within & ~self._graph.after[at]
        last_seen, last_joins, enough = self._last.get(at, (-1, -1, False))
        if seen == last_seen and joins == last_joins:
            return enough
        if (known := self._enough.get((at, seen, joins))) is None:
            known = remember(self._enough, (at, seen, joins), self._count_votes(at, seen, joins))
        self._last[at] = seen, joins, known
        return known

    def _count_votes(self, at: int, seen: int, joins: int) -> bool:
        target, quorum = remove_of(self._graph.events[at]).member, self._graph.policy.quorum
        voters = len(self._graph.authors_of(self._graph.votes.get(target, 0) & seen))
        electorate, added = self._electorate(target, seen, joins)
        if voters < quorum and voters < len(electorate.others):
            return False  # too few in any case
        parties = self._parties(self._voters(target, seen), seen, electorate, added)
        return len(parties) >= max(1, min(quorum, len(electorate.others)))

    def counted_voters(self, target: str, dead: int) -> set[str]:
        """The parties whose votes against this member count now; `dead` are the void events."""
        seen = self._graph.all & ~dead
        electorate, added = self._electorate(target, seen, self._graph.of_type.get(ADD, 0))
        return self._parties(self._voters(target, seen), seen, electorate, added)

    def agreeing(self, members: Collection[str], last: str, seen: int) -> set[str]:
        """The parties of these members, which agree to an upgrade. `last`: the one that agrees last, with these valid
        events in its past."""
        electorate, added = self._electorate("", seen, self._graph.of_type.get(ADD, 0) & seen)
        return self._parties(members, seen, electorate, added, last)

    def _voters(self, target: str, seen: int) -> set[str]:
        return self._graph.authors_of(self._graph.votes.get(target, 0) & seen)

    def _electorate(self, target: str, seen: int, joins: int) -> tuple[Electorate, dict[str, int]]:
        """The electorate of a removal of this member (empty: of an upgrade) with these events in its past and these
        additions in its past or concurrent, and the event that added each. Departures must be in that past."""
        self._graph.steps += 2 * (seen & self._graph.shutting).bit_count()
        for removal in bits(seen & self._graph.shutting):
            joins &= ~self._graph.voided_by(removal)
        if (known := self._came_in.get(joins)) is None:
            self._graph.steps += len(self._graph.joins)
            adders, added = {self._graph.founder: ""}, {self._graph.founder: 0}
            for at, adder, member in self._graph.joins:
                if member not in adders and adder in adders and joins >> at & 1:
                    adders[member], added[member] = adder, at
            known = remember(self._came_in, joins, (adders, added))
        adders, added = known
        self._graph.steps += 4 * len(adders)
        others = {did for did in adders if did != target and not self._graph.departures_of(did) & seen}
        return Electorate(adders, others), added

    def _parties(
        self, voters: Collection[str], seen: int, electorate: Electorate, added: dict[str, int], last: str = ""
    ) -> set[str]:
        """`last`: one that acts with all of these events in its past."""
        known: dict[str, int] = {}
        once = twice = 0

        def was_seen(did: str) -> bool:
            nonlocal once, twice
            if not known:  # by branch: the past of its members' events; and what two branches had in their past
                self._graph.steps += 2 * len(electorate.branch)
                for author, branch in electorate.branch.items():
                    if author == last:
                        known[branch] = seen
                    elif events := self._graph.by.get(author, 0) & seen:
                        known[branch] = known.get(branch, 0) | self._graph.pasts_of(events)
                for events in known.values():
                    once, twice = once | events, twice | once & events
            outside = once & ~known.get(electorate.branch[did], 0) | twice
            return bool(outside >> added[did] & 1)

        return electorate.counted(voters, was_seen)
