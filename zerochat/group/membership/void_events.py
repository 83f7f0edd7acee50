"""Void membership events: what concurrent removals undo, and which votes a removal counts.

The author of an event chooses its past, so a vote count may not depend on that choice alone. Therefore:

*How many* votes are needed is computed over all members by any event that is not a successor of the removal, not only
over those in the past that its author chose. Members added later do not undo it.

*Which* votes count depends on who added the voters. Let the root be the last member through whom all members came in
(mostly the founder, who need not be a member any more). The root and the members that it added itself have a vote of
their own. Each of the latter is a branch, with all members that came in through it; of these, a member has a vote of
its own if a member outside of the branch acted, before the removal, having seen its addition. Other votes count as
votes of the adder. So no member gains a second vote by adding a puppet that others have not seen, back-dated or not.

In a group whose founder added all members, all votes count from the beginning. If all others came in through one
member, that member is the root, so the others are not powerless. A vote never takes away another's, and if others vote
as well, their votes show that they had seen all members.

A transfer of ownership protects its target: concurrent changes of the target's role are void, and, where only admins
remove members, concurrent removals of the target too, since the owner cannot be removed. Otherwise such a removal makes
the transfer void, as does a concurrent leave of the target, so that the group keeps an owner. A former owner that
equivocates is limited like a demoted admin: only when the new owner demotes or removes it, its concurrent actions
become void.

A group has so many seats (`View.members_max`). Each addition was made with a seat free in its own past, but concurrent
ones can exceed them together; then the additions without a seat are void, for good. Seats are given in order of
seniority:

1. what the founder added, or had in the past of a later event, in that order (a mainline);
2. then what another branch had in the past of an event, in that order;
3. then the others: the first of each branch, the second of each branch, and so on.

A back-dated addition can thus precede an older one only if another branch has seen it, or if the older one was seen by
none; and a member that adds many before others see them competes with itself. A seat is free again only for an addition
that has the departure in its past, so void additions are no queue for the seats of those who leave. The founder always
has a seat. Where the founder added one member only, that member takes its part.

Limits: a puppet that all members have seen for a while is an ordinary member; the founder is trusted with its
additions; and members of two branches can confirm each other's puppets. If the quorum exceeds the group size, if the
group has two members, or if all others came in through one member that the target had added itself, the target can
prevent its removal by concurrently adding a member: in doubt no member is removed. In the last of these cases the next
removal counts, since the adder has seen the others by then; but the added member stays until it is removed itself.
"""

from zerochat.group.event_log.event import ADD, LEAVE
from zerochat.group.membership.electorate import Ballots
from zerochat.group.membership.event_graph import EventGraph, bits, remember
from zerochat.group.membership.seats import without_seat

VOID_STEPS, EFFECT_STEPS, ROUND_STEPS = 8, 4, 16
"""The operations on sets (`EventGraph.steps`): of a search for void events, for each revocation that makes some void,
and for each round."""


class VoidEvents:
    """Which events of a graph are void, in any causally closed part of it."""

    def __init__(self, graph: EventGraph) -> None:
        self.graph = graph
        self.crowded = False
        """Whether concurrent additions exceeded the seats of the last part."""
        self.ballots = Ballots(graph)
        self._outside: dict[int, int] = {}
        """By additions: the events of members that they do not admit."""

    def within(self, part: int) -> int:
        """The void events of this part."""
        self.crowded, beyond = False, 0
        while True:
            dead = self._without(part, beyond)
            more = without_seat(self.graph, part, dead)
            if not more:
                return dead
            self.crowded = True
            beyond |= more

    def _without(self, part: int, beyond: int) -> int:
        """The void events, if there is no seat for these additions."""
        graph, held = self.graph, 0
        undecided = graph.revocations & part
        effects = {at: voided for at in bits(undecided & graph.harmful) if (voided := graph.voided[at] & part)}
        graph.steps += VOID_STEPS + EFFECT_STEPS * len(effects)
        killed = self._declined(part) | beyond
        if not (effects or killed or graph.counted & part):
            return 0
        threats, of_killed, of_pool = _Threats(effects), _Closure(self, part), _Closure(self, part)
        dead = of_killed.of(killed)
        while undecided := undecided & ~dead:
            graph.steps += ROUND_STEPS
            threats.take(dead)
            threatened = of_pool.of(killed | threats.all)
            free = undecided & ~threatened or undecided
            held |= free
            undecided &= ~free
            killed |= threats.take(free)
            dead = of_killed.of(killed)
        return dead & ~held

    def _declined(self, part: int) -> int:
        """The transfers of ownership to a member that left concurrently."""
        graph, found = self.graph, 0
        for member, transfers in graph.transfers.items():
            for leave in bits(graph.by.get(member, 0) & graph.of_type.get(LEAVE, 0) & part):
                found |= transfers & ~graph.past[leave] & ~graph.after[leave]
        return found & part

    def outside(self, additions: int) -> int:
        """The events of authors that these additions do not admit."""
        if (known := self._outside.get(additions)) is not None:
            return known
        graph = self.graph
        graph.steps += len(graph.joins) + len(graph.by)
        admitted, todo, found = {graph.founder}, [graph.founder], 0
        while todo:
            for at, member in graph.adds.get(todo.pop(), ()):
                if member not in admitted and additions >> at & 1:
                    admitted.add(member)
                    todo.append(member)
        for author, events in graph.by.items():
            if author not in admitted:
                found |= events
        return remember(self._outside, additions, found)

    def without_right(self, alive: int) -> int:
        """Those of these events that need a promotion or transfer, and have none of these in their past."""
        graph, found = self.graph, 0
        graph.steps += len(graph.grants) + len(graph.powers)
        for at, author in graph.grants:
            if alive >> at & 1 and not graph.transfers.get(author, 0) & graph.past[at] & alive:
                found |= 1 << at
                alive &= ~(1 << at)
        for author, powers in graph.powers.items():
            events = powers & alive
            for promotion in bits(graph.promotions.get(author, 0) & alive) if events else ():
                events &= ~graph.after[promotion]
                if not events:
                    break
            found |= events
        return found


class _Closure:
    """Some events of a part, and all that depend on them. Remembers the last result: it changes only with what others
    depend on, which is rare from one round to the next."""

    def __init__(self, events: VoidEvents, part: int) -> None:
        self._events, self._part = events, part
        self._decisive = self._more = 0

    def of(self, dead: int) -> int:
        """`dead` with all that depends on it."""
        graph, part = self._events.graph, self._part
        decisive = dead & graph.decisive
        if decisive != self._decisive:
            joins, self._more = graph.of_type.get(ADD, 0), 0
            if dead & joins:
                self._more = self._events.outside(joins & part & ~dead) & part
            self._more |= self._events.without_right(part & ~dead & ~self._more)
            self._decisive = decisive
        dead |= self._more
        if graph.counted & part:
            dead |= self._events.ballots.without_quorum(part & ~dead, part)
        return dead


class _Threats:
    """The events that undecided revocations would make void, in all: the root of a segment tree over the revocations,
    which is made when some of them are decided before the others."""

    def __init__(self, effects: dict[int, int]) -> None:
        self._effects = effects
        self._tree: list[int] = []
        self._leaf: dict[int, int] = {}
        self._undecided = 0
        self.all = 0
        for at, voided in effects.items():
            self._undecided |= 1 << at
            self.all |= voided

    def take(self, decided: int) -> int:
        """Remove those of these events that are here; returns what they make void."""
        decided &= self._undecided
        self._undecided &= ~decided
        if not self._undecided:
            found, self.all = self.all, 0
            return found
        found, tree = 0, self._tree
        for at in bits(decided):
            tree = self._tree or self._grow()
            found |= self._effects[at]
            node = self._leaf[at]
            tree[node] = 0
            while (node := node >> 1) > 0:
                tree[node] = tree[2 * node] | tree[2 * node + 1]
        if decided:
            self.all = tree[1]
        return found

    def _grow(self) -> list[int]:
        count = len(self._effects)
        self._leaf = {at: count + index for index, at in enumerate(self._effects)}
        self._tree = [0] * count + [*self._effects.values()]
        for node in range(count - 1, 0, -1):
            self._tree[node] = self._tree[2 * node] | self._tree[2 * node + 1]
        return self._tree
