"""The reference for `void_events.py`: which events of one past are void, by the rules as they read, without any memory.

Each past is a graph of its own, and each round goes over all of its events.
"""

from collections.abc import Iterable, Iterator

from zerochat.group.event_log.event import ADD, LEAVE, REMOVE, ROLE, TERMS, VOTE, Event
from zerochat.group.membership.bodies import Policy, add_of, remove_of, role_of, vote_of
from zerochat.group.membership.electorate import Electorate
from zerochat.group.membership.event_graph import is_revocation
from zerochat.group.membership.view import ADMIN, OWNER
from zerochat.limits import MEMBERS_MAX


class ReferenceGraph:
    """The events of one past in order, which of them are void, and who has equivocated."""

    def __init__(self, order: list[tuple[str, Event]], policy: Policy) -> None:
        self.names = [name for name, _ in order]
        self.events = [event for _, event in order]
        self.policy, self.founder = policy, order[0][1].author
        place = {name: at for at, name in enumerate(self.names)}
        self.past: list[int] = []
        self.by: dict[str, int] = {}
        self.of_type: dict[str, int] = {}
        for at, event in enumerate(self.events):
            past = 0
            for dep in event.deps:
                past |= self.past[place[dep]] | 1 << place[dep]
            self.past.append(past)
            self.by[event.author] = self.by.get(event.author, 0) | 1 << at
            self.of_type[event.type] = self.of_type.get(event.type, 0) | 1 << at
        self.adds: dict[str, list[tuple[int, str]]] = {}
        """By adder: its add events, and the member that each added."""
        self.joins: list[tuple[int, str, str]] = []
        """The add events in order: adder, and added member."""
        self.promotions: dict[str, int] = {}
        """By member: the events that made it an admin or the owner."""
        self.transfers: dict[str, int] = {}
        """By member: the events that made it the owner."""
        self.about: dict[str, int] = {}
        """By member: the events that change its role."""
        self.removals: dict[str, int] = {}
        """By target."""
        self.demotions = 0
        """The events that take the founder's rights."""
        self.votes: dict[str, int] = {}
        """By target."""
        self.powers: list[tuple[int, dict[str, int], str]] = []
        """Events that only an admin or the owner may create, the promotions of which one is needed, and their authors;
        except those of the founder before it was demoted."""
        self.counted: list[tuple[int, str]] = []
        """Removals by quorum, and their targets."""
        self.crowded = False
        """Whether concurrent additions exceeded the seats (`void`)."""
        self._enough: dict[tuple[int, int], bool] = {}
        """By removal and the part of its past that is not void."""
        for at, event in enumerate(self.events):
            self._index(at, event)

    def _index(self, at: int, event: Event) -> None:
        author, ruled = event.author, self.policy.roles == "admins"
        if event.type == ADD:
            self.adds.setdefault(author, []).append((at, add_of(event).member))
            self.joins.append((at, author, add_of(event).member))
        elif event.type == VOTE:
            target = vote_of(event).member
            self.votes[target] = self.votes.get(target, 0) | 1 << at
        elif event.type == ROLE:
            role = role_of(event)
            self.about[role.member] = self.about.get(role.member, 0) | 1 << at
            by_owner = role.role in (ADMIN, OWNER)
            if by_owner:
                self.promotions[role.member] = self.promotions.get(role.member, 0) | 1 << at
            elif role.member == self.founder:
                self.demotions |= 1 << at
            if role.role == OWNER:
                self.transfers[role.member] = self.transfers.get(role.member, 0) | 1 << at
            if ruled and author != role.member:
                self._add_power(at, author, self.transfers if by_owner else self.promotions)
        elif event.type == TERMS:
            if ruled:
                self._add_power(at, author, self.promotions)
        elif event.type == REMOVE:
            target = remove_of(event).member
            self.removals[target] = self.removals.get(target, 0) | 1 << at
            if self.policy.remove == "quorum":
                self.counted.append((at, target))
            elif self.policy.remove == "admins":
                self._add_power(at, author, self.promotions)

    def _add_power(self, at: int, author: str, promotions: dict[str, int]) -> None:
        if author != self.founder or self.past[at] & self.demotions:
            self.powers.append((at, promotions, author))

    def void(self) -> frozenset[str]:
        """The names of the void events."""
        without_seat = 0
        while True:
            dead = self._void(without_seat)
            more = self._without_seat(dead)
            if not more:
                return frozenset(self.names[at] for at in _bits(dead))
            without_seat |= more

    def _void(self, without_seat: int) -> int:
        undecided = {at: self._voided_by(at) for at, event in enumerate(self.events) if is_revocation(event)}
        held, killed = 0, self._declined() | without_seat
        dead = self._closure(killed) if self.counted or killed else 0
        while undecided := {at: voided for at, voided in undecided.items() if not dead >> at & 1}:
            pool = killed
            for voided in undecided.values():
                pool |= voided
            threatened = self._closure(pool) if pool else dead
            free = [at for at in undecided if not threatened >> at & 1] or list(undecided)
            for at in free:
                held |= 1 << at
                killed |= undecided.pop(at)
            dead = self._closure(killed) if killed else dead
        return dead & ~held

    def _without_seat(self, dead: int) -> int:
        """The additions of the members for whom there is no seat; `dead` are the void events. None: there are enough
        for all."""
        added: dict[str, int] = {}
        for at, _, member in self.joins:
            if not dead >> at & 1:
                added.setdefault(member, at)
        if len(added) < MEMBERS_MAX:
            return 0
        departures = {
            did: (self.by.get(did, 0) & self.of_type.get(LEAVE, 0) | self.removals.get(did, 0)) & ~dead
            for did in (self.founder, *added)
        }
        if not self._beyond_seats(added, added, departures):
            return 0  # whatever the order is, it matters only if it does
        self.crowded = True
        beyond = self._beyond_seats(self._by_seniority(added, dead), added, departures)
        return sum(1 << at for at, _, member in self.joins if member in beyond)

    def _beyond_seats(self, order: Iterable[str], added: dict[str, int], departures: dict[str, int]) -> set[str]:
        """The members that find no seat if seats are taken in this order. A departure frees the seat for an addition
        that has it in its past."""
        beyond: set[str] = set()
        once, more = departures[self.founder], []
        """The departures of members that departed once, and of each that did so by several concurrent events."""
        if once.bit_count() > 1:
            once, more = 0, [once]
        taken = 1
        for did in order:
            past = self.past[added[did]]
            if taken - (once & past).bit_count() - sum(bool(events & past) for events in more) >= MEMBERS_MAX:
                beyond.add(did)
                continue
            taken += 1
            if departures[did].bit_count() > 1:
                more.append(departures[did])
            else:
                once |= departures[did]
        return beyond

    def _by_seniority(self, added: dict[str, int], dead: int) -> list[str]:
        """These members in the order in which they get seats. `added`: the event that added each, in order."""
        root, adders = self.founder, {did: self.events[at].author for did, at in added.items()}
        while len(own := [did for did, adder in adders.items() if adder == root]) == 1:
            root = own[0]
        branches: dict[str, str] = {}
        """Empty for those that did not come in through the root."""
        size: dict[str, int] = {}
        place: dict[str, int] = {}
        """In its branch."""
        additions: dict[str, int] = {}
        """By branch."""
        for did, adder in adders.items():
            branch = branches[did] = did if adder == root else branches.get(adder, "")
            place[did] = size[branch] = size.get(branch, 0) + 1
            additions[branch] = additions.get(branch, 0) | 1 << added[did]
        of_all = sum(1 << at for at in added.values())
        by_root: dict[int, int] = {}
        by_other: dict[int, int] = {}
        """By addition: twice the place of the first event by the root, or by another branch, that has it in its past;
        an addition by the root comes just after what it has in its past."""
        root_knows = other_knows = 0
        for at, event in enumerate(self.events):
            if dead >> at & 1:
                continue
            past = self.past[at] & of_all
            others = past & ~additions.get(branches.get(event.author, ""), 0)
            by_other |= dict.fromkeys(_bits(others & ~other_knows), 2 * at)
            other_knows |= others
            if event.author == root:
                by_root |= dict.fromkeys(_bits(past & ~root_knows), 2 * at)
                root_knows |= past
                if of_all >> at & 1:
                    root_knows |= 1 << at
                    by_root[at] = 2 * at + 1
        last = 2 * len(self.events)
        return sorted(
            added,
            key=lambda did: (by_root.get(added[did], last), by_other.get(added[did], last), place[did], added[did]),
        )

    def _declined(self) -> int:
        """The transfers of ownership to a member that left concurrently."""
        found = 0
        for member, transfers in self.transfers.items():
            for leave in _bits(self.by.get(member, 0) & self.of_type.get(LEAVE, 0)):
                found |= transfers & ~self.past[leave] & ~self._successors_among(leave, transfers)
        return found

    def _voided_by(self, at: int) -> int:
        """The events that a revocation makes void directly: its target's events that are concurrent to it. Leave events
        remain valid."""
        revocation = self.events[at]
        target = remove_of(revocation).member if revocation.type == REMOVE else role_of(revocation).member
        transfers = self.transfers.get(target, 0)
        if transfers >> at & 1:
            voided = self.about[target] & ~transfers
            if self.policy.remove == "admins":
                voided |= self.removals.get(target, 0)
            voided &= ~self.past[at]
            return voided & ~self._successors_among(at, voided)
        voided = self.by.get(target, 0) & ~self.past[at] & ~self.of_type.get(LEAVE, 0)
        if revocation.type == ROLE:
            by_right = REMOVE if self.policy.remove == "admins" else ROLE
            voided &= self.of_type[ROLE] | self.of_type.get(by_right, 0) | self.of_type.get(TERMS, 0)
            return voided & ~self._successors_among(at, voided)
        answers = voided & self.of_type[REMOVE]
        while answers:  # two mutual removals both take effect
            bit = answers & -answers
            answers ^= bit
            other = bit.bit_length() - 1
            if remove_of(self.events[other]).member == revocation.author and not self.past[other] >> at & 1:
                voided ^= bit
        return voided if self.policy.remove == "admins" else voided | transfers & ~self.past[at]

    def _successors_among(self, at: int, events: int) -> int:
        """Those of these events that have this one in their past."""
        found = 0
        while events:
            bit = events & -events
            events ^= bit
            if self.past[bit.bit_length() - 1] >> at & 1:
                found |= bit
        return found

    def _closure(self, dead: int) -> int:
        """These events, and all that depend on them."""
        admitted, todo = {self.founder}, [self.founder]
        while todo:
            for at, member in self.adds.get(todo.pop(), ()):
                if member not in admitted and not dead >> at & 1:
                    admitted.add(member)
                    todo.append(member)
        for author, events in self.by.items():
            if author not in admitted:
                dead |= events
        for at, promotions, author in self.powers:
            if not promotions.get(author, 0) & self.past[at] & ~dead:
                dead |= 1 << at
        for at, target in self.counted:
            seen = self.past[at] & ~dead
            if (at, seen) not in self._enough:
                self._enough[at, seen] = self._has_quorum(target, seen, at)
            if not self._enough[at, seen]:
                dead |= 1 << at
        return dead

    def _has_quorum(self, target: str, seen: int, at: int) -> bool:
        """Whether the votes in a past are enough for the removal `at`."""
        voters = len(self._authors(self.votes.get(target, 0) & seen))
        electorate, joins = self._electorate(
            target, seen, at, voters if voters < self.policy.quorum else len(self.events)
        )
        if len(electorate.others) > voters and voters < self.policy.quorum:
            return False  # too few votes in any case
        return len(self._parties_for(target, seen, electorate, joins)) >= max(
            1, min(self.policy.quorum, len(electorate.others))
        )

    def counted_voters(self, target: str, dead: frozenset[str]) -> set[str]:
        """The parties whose votes against this member count now; `dead` are the void events."""
        seen = sum(1 << at for at, name in enumerate(self.names) if name not in dead)
        electorate, joins = self._electorate(target, seen, len(self.events), len(self.events))
        return self._parties_for(target, seen, electorate, joins)

    def _electorate(self, target: str, seen: int, at: int, most: int) -> tuple[Electorate, dict[str, int]]:
        """The electorate of a removal of this member with these events in its past, and the event that added each.
        Departures must be in that past. Stops once there are more than `most`."""
        gone, shut = {target}, 0
        for revocation in _bits(seen & (self.of_type.get(LEAVE, 0) | self.of_type.get(REMOVE, 0))):
            event = self.events[revocation]
            gone.add(event.author if event.type == LEAVE else remove_of(event).member)
            shut |= self._voided_by(revocation) if event.type == REMOVE else 0
        adders, joins = {self.founder: ""}, {self.founder: 0}
        others = int(self.founder not in gone)
        for place, adder, member in self.joins:
            if others > most:
                break
            if member not in adders and adder in adders and not (shut >> place | self.past[place] >> at) & 1:
                adders[member], joins[member] = adder, place
                others += member not in gone
        return Electorate(adders, adders.keys() - gone), joins

    def _parties_for(self, target: str, seen: int, electorate: Electorate, joins: dict[str, int]) -> set[str]:
        known: dict[str, int] = {}
        once = twice = 0

        def was_seen(did: str) -> bool:
            nonlocal once, twice
            if not known:  # by branch: the past of its members' events; and what two branches had in their past
                for place in _bits(seen):
                    branch = electorate.branch.get(self.events[place].author)
                    if branch is not None:
                        known[branch] = known.get(branch, 0) | self.past[place]
                for events in known.values():
                    once, twice = once | events, twice | once & events
            outside = once & ~known.get(electorate.branch[did], 0) | twice
            return bool(outside >> joins[did] & 1)

        return electorate.counted(self._authors(self.votes.get(target, 0) & seen), was_seen)

    def forks(self) -> dict[str, tuple[str, str]]:
        """By author: two events at one position of its chain, or two concurrent ones; an honest author knows its own
        events."""
        found: dict[str, tuple[str, str]] = {}
        latest: dict[str, int] = {}
        places: dict[tuple[str, int], int] = {}
        for at, event in enumerate(self.events):
            before = latest.get(event.author, at)
            same = places.setdefault((event.author, event.seq), at)
            other = before if before != at and not self.past[at] >> before & 1 else same
            if other != at and event.author not in found:
                one, two = sorted((self.names[other], self.names[at]))
                found[event.author] = one, two
            latest[event.author] = at
        return found

    def _authors(self, events: int) -> set[str]:
        return {self.events[at].author for at in _bits(events)}


def _bits(events: int) -> Iterator[int]:
    """The positions of these events, in order."""
    while events:
        bit = events & -events
        events ^= bit
        yield bit.bit_length() - 1
