"""The causal graph of membership events, in sets: their pasts, authors, types and subjects."""

from collections.abc import Hashable, Iterator
from functools import cached_property
from typing import TypeVar

from zerochat.group.event_log.event import ADD, LEAVE, REMOVE, ROLE, TERMS, VOTE, Event
from zerochat.group.membership.bodies import Policy, add_of, genesis_of, remove_of, role_of, vote_of
from zerochat.group.membership.view import ADMIN, OWNER, seats_of

K = TypeVar("K", bound=Hashable)
A = TypeVar("A")

MEMOS_MAX = 4096
"""Intermediate results that are remembered, of each kind."""


def is_revocation(event: Event) -> bool:
    """Whether this takes rights from another member: a removal, a demotion below admin, or a transfer of ownership,
    which takes from others the right to remove or demote the new owner."""
    if event.type == ROLE:
        body = role_of(event)
        return body.member != event.author and body.role != ADMIN
    return event.type == REMOVE


class EventGraph:
    """Membership events in order, with what does not depend on which of them are void.

    Sets of events are integers with one bit for each: the union over a whole past is one operation. A causally closed
    part of the graph (`within`) is a set too, so one graph serves the pasts of all its events.
    """

    def __init__(self, order: list[tuple[str, Event]], policy: Policy) -> None:
        self.names = [name for name, _ in order]
        self.events = [event for _, event in order]
        self.all = (1 << len(order)) - 1
        self.policy, self.founder = policy, order[0][1].author
        self.path = genesis_of(order[0][1]).path
        self.members_max = seats_of(self.path)
        self.place = {name: at for at, name in enumerate(self.names)}
        self.past: list[int] = []
        self.after = [0] * len(order)
        """Of each event: those that have it in their past."""
        self.by: dict[str, int] = {}
        self.of_type: dict[str, int] = {}
        for at, event in enumerate(self.events):
            self.past.append(self.past_of(event))
            self.by[event.author] = self.by.get(event.author, 0) | 1 << at
            self.of_type[event.type] = self.of_type.get(event.type, 0) | 1 << at
        for at, event in reversed([*enumerate(self.events)]):
            after = self.after[at] | 1 << at
            for dep in event.deps:
                self.after[self.place[dep]] |= after
        self.added: dict[str, int] = {self.founder: 1}
        """By member: the events that added it."""
        self.joins: list[tuple[int, str, str]] = []
        """The add events in order: adder, and added member."""
        self.adds: dict[str, list[tuple[int, str]]] = {}
        """By adder: its add events, and the member that each added."""
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
        self.grants: list[tuple[int, str]] = []
        """Events that only the owner may create, with their authors; except those of the founder before it was
        demoted. Each needs a transfer to its author in its past."""
        self.powers: dict[str, int] = {}
        """By author: events that only an admin may create, with the same exception. Each needs a promotion."""
        self.counted = 0
        """Removals by quorum."""
        self.revocations = 0
        self.steps = 0
        """How many operations on sets the answers have taken, about: the unit of work."""
        self.voided: dict[int, int] = {}
        """By revocation, as far as they are known (`voided_by`)."""
        for at, event in enumerate(self.events):
            self._index(at, event)
        self.decisive = self.of_type.get(ADD, 0)
        """The events on which others depend, votes apart: additions and promotions."""
        for promotions in self.promotions.values():
            self.decisive |= promotions

    def past_of(self, event: Event) -> int:
        """The causal past of an event whose causes are in this graph."""
        past = 0
        for dep in event.deps:
            at = self.place[dep]
            past |= self.past[at] | 1 << at
        return past

    def _index(self, at: int, event: Event) -> None:
        author, ruled = event.author, self.policy.roles == "admins"
        self.revocations |= is_revocation(event) << at
        if event.type == ADD:
            member = add_of(event).member
            self.added[member] = self.added.get(member, 0) | 1 << at
            self.adds.setdefault(author, []).append((at, member))
            self.joins.append((at, author, member))
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
                self._add_power(at, author, by_owner)
        elif event.type == TERMS:
            if ruled:
                self._add_power(at, author)
        elif event.type == REMOVE:
            target = remove_of(event).member
            self.removals[target] = self.removals.get(target, 0) | 1 << at
            if self.policy.remove == "quorum":
                self.counted |= 1 << at
            elif self.policy.remove == "admins":
                self._add_power(at, author)

    def _add_power(self, at: int, author: str, by_owner: bool = False) -> None:
        if author == self.founder and not self.past[at] & self.demotions:
            return
        if by_owner:
            self.grants.append((at, author))
        else:
            self.powers[author] = self.powers.get(author, 0) | 1 << at

    @cached_property
    def harmful(self) -> int:
        """The revocations that make an event void, unless they are void themselves."""
        return sum(1 << at for at in bits(self.revocations) if self.voided_by(at))

    @cached_property
    def shutting(self) -> int:
        """The removals that make additions void."""
        joins, removals = self.of_type.get(ADD, 0), self.of_type.get(REMOVE, 0)
        return sum(1 << at for at in bits(removals) if self.voided_by(at) & joins)

    def departures_of(self, did: str) -> int:
        """The leave events of a member, and its removals."""
        return self.by.get(did, 0) & self.of_type.get(LEAVE, 0) | self.removals.get(did, 0)

    def voided_by(self, at: int) -> int:
        """The events that a revocation makes void directly, of all: its target's events that are concurrent to it.
        Leave events remain valid."""
        if at not in self.voided:
            self.voided[at] = self._concurrent_of_target(at)
        return self.voided[at]

    def _concurrent_of_target(self, at: int) -> int:
        revocation, after = self.events[at], self.after[at]
        target = remove_of(revocation).member if revocation.type == REMOVE else role_of(revocation).member
        transfers = self.transfers.get(target, 0)
        if transfers >> at & 1:
            voided = self.about[target] & ~transfers
            if self.policy.remove == "admins":
                voided |= self.removals.get(target, 0)
            return voided & ~self.past[at] & ~after
        voided = self.by.get(target, 0) & ~self.past[at] & ~self.of_type.get(LEAVE, 0)
        if revocation.type == ROLE:
            by_right = REMOVE if self.policy.remove == "admins" else ROLE
            voided &= self.of_type[ROLE] | self.of_type.get(by_right, 0) | self.of_type.get(TERMS, 0)
            return voided & ~after
        voided &= after | ~self.removals.get(revocation.author, 0)  # two mutual removals both take effect
        return voided if self.policy.remove == "admins" else voided | transfers & ~self.past[at]

    def pasts_of(self, events: int) -> int:
        """The union of the pasts of these events: of the last ones, which include those of the others."""
        found = 0
        while events:
            at = events.bit_length() - 1
            found |= self.past[at]
            events &= ~(self.past[at] | 1 << at)
        return found

    def authors_of(self, events: int) -> set[str]:
        return {self.events[at].author for at in bits(events)}

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


def first_of(events: int) -> int:
    """The position of the first of these events."""
    return (events & -events).bit_length() - 1


def remember(memo: dict[K, A], key: K, result: A) -> A:
    """Keep an intermediate result; forget all when there are too many."""
    if len(memo) >= MEMOS_MAX:
        memo.clear()
    memo[key] = result
    return result


def bits(events: int) -> Iterator[int]:
    """The positions of these events, in order."""
    while events:
        bit = events & -events
        events ^= bit
        yield bit.bit_length() - 1
