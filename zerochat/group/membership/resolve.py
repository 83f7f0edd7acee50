"""Strong removal: from a set of membership events to a view, independent of their order of arrival.

A removal (and, for what only admins may do, a demotion) is a *revocation*: it makes its target's concurrent events
void. So a member that is being removed cannot concurrently add or remove others. An event that depends on a void event
is void as well: members added by it and all their events, removals that need its vote, actions with a right that it
granted. A removal by quorum is void if its past contains too few counted votes among all current members
(`void_events.py`).

So are additions for which there is no seat. An upgrade of the keys is never void (`upgrades.py`).

Revocations can be void themselves. They are decided from the outside in: a revocation that no undecided one could make
void takes effect, its void events are dropped, and so on. Two members that remove each other are both out; in a cycle
of revocations all take effect.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, canonical_json
from zerochat.crypto.primitives import sha256
from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, GENESIS, UPGRADE, VOTE, Event
from zerochat.group.links.contact import client_key
from zerochat.group.membership.bodies import (
    TLOG,
    GenesisBody,
    add_of,
    genesis_of,
    label_of,
    policy_of,
    remove_of,
    role_of,
    rules_of,
    upgrade_of,
    vote_of,
)
from zerochat.group.membership.event_graph import EventGraph
from zerochat.group.membership.view import ADMIN, OWNER, WRITER, Member, Terms, View, votes_needed
from zerochat.group.membership.void_events import VoidEvents

RECENT_MAX = 16
K = TypeVar("K", bound=Hashable)
A = TypeVar("A")


class RecentCache(Generic[K, A]):
    """An LRU memo of a few results, for pure functions that are called again and again on the same values.

    Safe to share between threads.
    """

    def __init__(self, most: int = RECENT_MAX) -> None:
        self._results: dict[K, A] = {}
        self.most = most
        """How many results are kept."""

    def get(self, key: K, compute: Callable[[], A]) -> A:
        """The cached result of `compute` for this key, or a fresh one. No result is None."""
        result = self.take(key)
        if result is None:
            result = compute()
        self.put(key, result)
        return result

    def __contains__(self, key: K) -> bool:
        return key in self._results

    def take(self, key: K) -> A | None:
        """Remove and return the cached result for this key, if there is one."""
        return self._results.pop(key, None)

    def put(self, key: K, result: A) -> None:
        """Cache a result, and drop the one that was used least recently when there are too many."""
        self._results[key] = result
        if len(self._results) > self.most:
            oldest, *_ = list(self._results)  # a copy: another thread may change the dict
            self._results.pop(oldest, None)


_heads: RecentCache[tuple[str, ...], tuple[str, ...]] = RecentCache()
"""By the ids of all events: every outgoing sync needs the heads."""


def ancestors(control: Mapping[str, Event], heads: Iterable[str]) -> set[str]:
    """The ids of these membership events and of their causal past."""
    seen: set[str] = set()
    todo = list(heads)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += control[name].deps
    return seen


def descendants(control: Mapping[str, Event], names: Iterable[str]) -> set[str]:
    """The ids of these membership events and of those that have one of them in their causal past."""
    later: dict[str, list[str]] = {}
    for name, event in control.items():
        for dep in event.deps:
            later.setdefault(dep, []).append(name)
    seen, todo = set[str](), list(names)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += later.get(name, ())
    return seen


def heads_of(control: Mapping[str, Event]) -> tuple[str, ...]:
    """The membership events that no other one names, sorted."""
    named = (event.deps for event in control.values())
    return _heads.get(tuple(control), lambda: tuple(sorted(set(control).difference(*named))))


def in_order(control: Mapping[str, Event]) -> list[tuple[str, Event]]:
    """These events by id, causes first, in a deterministic order."""
    return sorted(control.items(), key=lambda item: (item[1].lamport, item[0]))


def added_member(event: Event) -> Member:
    """The member that a genesis or an add event adds."""
    body = genesis_of(event) if event.type == GENESIS else add_of(event)
    if isinstance(body, GenesisBody):
        did, adder, role, history = event.author, None, OWNER if body.policy.roles == "admins" else WRITER, "all"
    else:
        did, adder, role, history = body.member, event.author, body.role, body.history
    return Member(
        did,
        body.label,
        body.contact,
        event.lamport,
        adder,
        client_key(body.transport),
        ((0, role),),
        role_by=event.author,
        history=history,
        admission=event.id,
    )


_views: RecentCache[tuple[str, ...], View] = RecentCache()
"""By heads: ids are hashes that cover the causes, so the heads determine the view."""


def resolve_view(control: Mapping[str, Event]) -> View:
    """The view of a causally closed set of valid membership events (`check_control`). Raises Refused without a genesis
    event."""
    heads = heads_of(control)
    return _views.get(heads, lambda: ViewBuilder.of(control).view(heads))


def voters_for(control: Mapping[str, Event], view: View, target: str) -> set[str]:
    """The current members that voted to remove this one (`view` is that of `control`)."""
    votes = (event for event in control.values() if event.type == VOTE and vote_of(event).member == target)
    return {event.author for event in votes if event.author in view.members}


VOTES_MAX = 64
_votes: RecentCache[tuple[int, int, str], tuple[Mapping[str, Event], set[str]]] = RecentCache(VOTES_MAX)
"""Votes that count, by the identity and the size of the membership events, which are stored with them, and the target.
Every message asks, as long as its recipient has voted and the votes do not suffice."""


def votes_for(control: Mapping[str, Event], view: View, target: str) -> set[str]:
    """The members whose votes to remove this one count; `view` is that of `control`. If they are enough (`quorum_met`),
    a removal with this past takes effect. If all voters together are too few, returns the voters."""
    voters = voters_for(control, view, target)
    if len(voters) < votes_needed(view) or not voters or target not in view.members:
        return voters
    key = id(control), len(control), target
    return _votes.get(key, lambda: (control, _counted(control, view, target)))[1]


def _counted(control: Mapping[str, Event], view: View, target: str) -> set[str]:
    graph = EventGraph(in_order(control), view.policy)
    void = VoidEvents(graph)
    return void.ballots.counted_voters(target, void.within(graph.all))


class ViewBuilder:
    """A view under construction: events are applied one after the other."""

    def __init__(self, genesis: Event) -> None:
        self.policy = policy_of(genesis_of(genesis).policy)
        self.members = {genesis.author: genesis.memoised(added_member)}
        self.former: dict[str, Member] = {}
        self.removed: dict[str, int] = {}
        self.forked: dict[str, tuple[str, str]] = {}
        self.has_tlog = genesis_of(genesis).accountability == TLOG
        self.terms: Terms | None = None
        """The last terms, whether or not they can be in force."""
        self.current = View(
            self.members,
            self.former,
            "",
            self.policy,
            self.removed,
            self.forked,
            self.has_tlog,
            keys=genesis_of(genesis).keys,
            path=genesis_of(genesis).path,
        )
        """The view between two events; it changes with the next one."""
        self.has_void = False
        """Whether an event is void, so that others may depend on it."""
        self.crowded = False
        """Whether concurrent additions exceeded the seats, so that an addition can change who has one."""
        self.graph: EventGraph | None = None
        """Of the events that were applied at first."""
        self._latest = {genesis.author: genesis.id}
        """By author: the last of its events in order."""
        self._places = {(genesis.author, genesis.seq): genesis.id}
        """By author and position: the first event in order."""

    @classmethod
    def of(cls, control: Mapping[str, Event]) -> "ViewBuilder":
        """The builder with all of these events applied that are not void."""
        order = in_order(control)
        if not order or order[0][1].type != GENESIS:
            raise Refused(why="membership events without a genesis event")
        builder = cls(order[0][1])
        builder.graph = graph = EventGraph(order, builder.policy)
        void_events = VoidEvents(graph)
        void = void_events.within(graph.all)
        builder.has_void, builder.crowded = bool(void), void_events.crowded
        # A member that was added by two concurrent events may have acted before the one that counts.
        alive = [event for at, (_, event) in enumerate(order) if event.type == UPGRADE or not void >> at & 1]
        for event in alive:
            if event.type == ADD:
                builder.apply(event)
        for event in alive:
            if event.type not in (ADD, GENESIS):
                builder.apply(event)
        builder.forked.update(graph.forks())
        builder._latest = {event.author: name for name, event in order}
        builder._places = {(event.author, event.seq): name for name, event in reversed(order)}
        for at, (_, event) in enumerate(order):
            if event.type == ADD and void >> at & 1 and builder.current.known(add_of(event).member) is None:
                builder.bar(event)
        return builder

    def view(self, heads: tuple[str, ...]) -> View:
        members, former = dict(sorted(self.members.items())), dict(sorted(self.former.items()))
        digest = sha256(canonical_json(["zerochat/view/1", list(members), list(heads)]))
        removed, forked = dict(sorted(self.removed.items())), dict(sorted(self.forked.items()))
        named = b64url(digest[:16])
        return View(
            members,
            former,
            named,
            self.policy,
            removed,
            forked,
            self.has_tlog,
            self._terms_in_force(),
            self.current.keys,
            self.current.path,
        )

    def _terms_in_force(self) -> Terms | None:
        """None also if the operator has left, or too few witnesses remain for a quorum."""
        if self.terms is None:
            return None
        rules = self.terms.rules
        left = sum(did in self.members for did in rules.witnesses)
        return self.terms if rules.operator in self.members and left >= rules.quorum.threshold else None

    def extend(self, event: Event, past: Collection[str] | None) -> None:
        """Apply the event that is now the last in order. `past`: its causal past; None: all other events."""
        self.apply(event)
        before, same = self._latest.get(event.author), self._places.setdefault((event.author, event.seq), event.id)
        other = before if before is not None and past is not None and before not in past else same
        if other != event.id and event.author not in self.forked:
            one, two = sorted((other, event.id))
            self.forked[event.author] = one, two
        self._latest[event.author] = event.id

    def apply(self, event: Event) -> None:
        """Apply an event after those before it."""
        match event.type:
            case "add":
                member = event.memoised(added_member)
                if self.current.known(member.did) is None:  # of two concurrent adds the first counts
                    self.members[member.did] = member
            case "leave":
                self._depart(event.author, event.seq)
            case "remove":
                body = remove_of(event)
                self.removed[body.member] = min(body.after, self.removed.get(body.member, body.after))
                self._depart(body.member, body.after)
            case "label":
                self._change(event.author, label=label_of(event).label)
            case "terms":
                self.terms = Terms(event.id, event.author, event.lamport, rules_of(event))
            case "upgrade":
                if (upgrade := upgrade_of(event)).final:
                    self.current = replace(self.current, keys=upgrade.keys)
            case "role":
                role = role_of(event)
                if role.role == OWNER:
                    author = self.members.get(event.author)
                    if author is None or author.role != OWNER or role.member not in self.members:
                        return  # of several transfers by a member that equivocates, the first counts
                    self._give_role(event.author, event.seq, ADMIN, event.author)
                self._give_role(role.member, role.after, role.role, event.author)

    def bar(self, event: Event) -> None:
        """A member whose add events are all void never was a member, and cannot become one with this key."""
        member = event.memoised(added_member)
        self.former[member.did] = replace(member, until=0)
        self.removed[member.did] = 0

    def _depart(self, did: str, until: int) -> None:
        member = self.current.known(did)
        if member is not None:
            self.members.pop(did, None)
            until = until if member.until is None else min(until, member.until)
            self.former[did] = replace(member, until=until)

    def _give_role(self, did: str, after: int, role: str, by: str) -> None:
        known = self.current.known(did)
        if known is not None:
            before = tuple(one for one in known.roles if one[0] < after)
            self._change(did, roles=(*before, (after, role)), role_by=by)

    def _change(self, did: str, **changes: object) -> None:
        for where in (self.members, self.former):
            if did in where:
                where[did] = replace(where[did], **changes)
