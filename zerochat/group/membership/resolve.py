"""From membership events to a view: a pure function of the set of events, whatever the order of their arrival.

The rule is *strong remove*. A removal (and, for what takes an admin, a demotion) is a *cut*: what its target did
without having seen it is void, unless whoever cut had seen that. So nobody who is on the way out brings friends in,
or others down. Whatever rests on a void event is void as well: members who came in through it and all that they did,
removals that lack its vote, what was done with a right that it gave. A removal that takes a quorum is void where the
votes that it had seen are too few among all who are members by now (`votes.py`).

Cuts can be void themselves. They are decided from the outside in: whatever no undecided cut could make void holds, what
it makes void falls, and so on. Two who remove each other are both out; and where cuts threaten each other in a ring,
all of them hold.
"""

from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url, canonical_json
from zerochat.crypto.primitives import sha256
from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, GENESIS, LEAVE, REMOVE, ROLE, TERMS, VOTE, Event
from zerochat.group.links.contact import client_key
from zerochat.group.membership.bodies import (
    LEDGER,
    GenesisBody,
    Policy,
    add_of,
    genesis_of,
    label_of,
    policy_of,
    remove_of,
    role_of,
    rules_of,
    vote_of,
)
from zerochat.group.membership.view import ADMIN, OWNER, WRITER, Member, Terms, View, votes_needed
from zerochat.group.membership.votes import Standing
from zerochat.group.recent_cache import Latest

_heads: Latest[tuple[str, ...], tuple[str, ...]] = Latest()
"""By the ids of all the events: whoever tells how far it is says them every time."""


def ancestors(control: Mapping[str, Event], heads: Iterable[str]) -> set[str]:
    """The ids of these membership events and of everything before them."""
    seen: set[str] = set()
    todo = list(heads)
    while todo:
        name = todo.pop()
        if name not in seen:
            seen.add(name)
            todo += control[name].deps
    return seen


def heads_of(control: Mapping[str, Event]) -> tuple[str, ...]:
    """The membership events that no other one names, sorted."""
    named = (event.deps for event in control.values())
    return _heads.answer(tuple(control), lambda: tuple(sorted(set(control).difference(*named))))


def in_order(control: Mapping[str, Event]) -> list[tuple[str, Event]]:
    """These events by id, causes first, in an order that is the same everywhere."""
    return sorted(control.items(), key=lambda item: (item[1].lamport, item[0]))


def is_cut(event: Event) -> bool:
    """Whether this takes something from somebody else: a removal, or a role below that of an admin."""
    if event.type == ROLE:
        body = role_of(event)
        return body.member != event.author and body.role != ADMIN
    return event.type == REMOVE


def _newcomer(event: Event) -> Member:
    """Whoever comes in with a genesis or an add."""
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
    )


_views: Latest[tuple[str, ...], View] = Latest()
"""By heads: ids are hashes over the causes too, so heads say all that a view follows from."""


def resolve_view(control: Mapping[str, Event]) -> View:
    """The view that follows from a causally closed set of membership events that were all in order (`check_control`).
    Raises Refused where there is no beginning."""
    heads = heads_of(control)
    return _views.answer(heads, lambda: Roll.of(control).view(heads))


def voters_for(control: Mapping[str, Event], view: View, target: str) -> set[str]:
    """The members who want this one out, and who are members still (`view` is that of `control`)."""
    votes = (event for event in control.values() if event.type == VOTE and vote_of(event).member == target)
    return {event.author for event in votes if event.author in view.members}


def votes_for(control: Mapping[str, Event], view: View, target: str) -> set[str]:
    """The members for whom the votes to put this one out count; `view` is that of `control`. Where they are enough
    (`quorum_met`), a removal that has seen all this takes effect. Where even all who have voted are too few, it is
    those."""
    voters = voters_for(control, view, target)
    if len(voters) < votes_needed(view) or not voters or target not in view.members:
        return voters
    order = in_order(control)
    graph = _Graph(order, view.policy)
    return graph.tally(target, graph.void())


class Roll:
    """The members while events are applied one after the other."""

    def __init__(self, genesis: Event) -> None:
        self.policy = policy_of(genesis_of(genesis).policy)
        self.members = {genesis.author: genesis.once(_newcomer)}
        self.former: dict[str, Member] = {}
        self.removed: dict[str, int] = {}
        self.forked: dict[str, tuple[str, str]] = {}
        self.ledger = genesis_of(genesis).accountability == LEDGER
        self.terms: Terms | None = None
        """The last that were said, whether or not they can hold."""
        self.live = View(self.members, self.former, "", self.policy, self.removed, self.forked, self.ledger)
        """For whoever asks between two events; it changes with the next one."""

    @classmethod
    def of(cls, control: Mapping[str, Event]) -> "Roll":
        """Everything of these events that is not void, applied."""
        order = in_order(control)
        if not order or order[0][1].type != GENESIS:
            raise Refused(why="membership events without a beginning")
        roll = cls(order[0][1])
        graph = _Graph(order, roll.policy)
        void = graph.void() if any(is_cut(event) for _, event in order) else frozenset[str]()
        # Who was added twice at once may have spoken before the one of the two that counts.
        for name, event in order[1:]:
            if event.type == ADD and name not in void:
                roll.apply(event)
        for name, event in order[1:]:
            if event.type != ADD and name not in void:
                roll.apply(event)
        roll.forked.update(graph.forked())
        for name, event in order[1:]:
            if event.type == ADD and name in void and roll.live.known(add_of(event).member) is None:
                roll.shut_out(event)
        return roll

    def view(self, heads: tuple[str, ...]) -> View:
        members, former = dict(sorted(self.members.items())), dict(sorted(self.former.items()))
        digest = sha256(canonical_json(["zerochat/view/1", list(members), list(heads)]))
        removed, forked = dict(sorted(self.removed.items())), dict(sorted(self.forked.items()))
        named = b64url(digest[:16])
        return View(members, former, named, self.policy, removed, forked, self.ledger, self._terms_in_force())

    def _terms_in_force(self) -> Terms | None:
        """None too where its operator has gone, or so many witnesses that no quorum is left."""
        if self.terms is None:
            return None
        rules = self.terms.rules
        left = sum(did in self.members for did in rules.witnesses)
        return self.terms if rules.operator in self.members and left >= rules.quorum.needed else None

    def apply(self, event: Event) -> None:
        """The event takes effect, after those before it."""
        match event.type:
            case "add":
                member = event.once(_newcomer)
                if self.live.known(member.did) is None:  # of two adds at once the first counts
                    self.members[member.did] = member
            case "leave":
                self._go(event.author, event.seq)
            case "remove":
                body = remove_of(event)
                self.removed[body.member] = min(body.after, self.removed.get(body.member, body.after))
                self._go(body.member, body.after)
            case "label":
                self._change(event.author, label=label_of(event).label)
            case "terms":
                self.terms = Terms(event.id, event.author, event.lamport, rules_of(event))
            case "role":
                role = role_of(event)
                whom = self.live.known(role.member)
                if whom is not None:
                    before = tuple(one for one in whom.roles if one[0] < role.after)
                    self._change(role.member, roles=(*before, (role.after, role.role)), role_by=event.author)

    def shut_out(self, event: Event) -> None:
        """Somebody whom nobody has brought in who had not been cut off: it never was a member, and cannot become one
        with this key."""
        member = event.once(_newcomer)
        self.former[member.did] = replace(member, until=0)
        self.removed[member.did] = 0

    def _go(self, did: str, until: int) -> None:
        member = self.live.known(did)
        if member is not None:
            self.members.pop(did, None)
            until = until if member.until is None else min(until, member.until)
            self.former[did] = replace(member, until=until)

    def _change(self, did: str, **changes: object) -> None:
        for where in (self.members, self.former):
            if did in where:
                where[did] = replace(where[did], **changes)


class _Graph:
    """The events of a past, in order, what of them is void, and who has signed two histories.

    Sets of events are integers, one bit for each: to unite those of a whole past is one operation.
    """

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
        """By adder: its adds, and whom each brought in."""
        self.joins: list[tuple[int, str, str]] = []
        """The adds in order: by whom, and whom each brought in."""
        self.promotions: dict[str, int] = {}
        """By member: what made it an admin."""
        self.votes: dict[str, int] = {}
        """By target."""
        self.powers: list[tuple[int, str]] = []
        """What only an admin may do, and who did, but for the owner."""
        self.counted: list[tuple[int, str]] = []
        """Removals that rest on votes, and of whom."""
        self._enough: dict[tuple[int, int], bool] = {}
        """By removal and what of its past is not void."""
        for at, event in enumerate(self.events):
            self._file(at, event)

    def _file(self, at: int, event: Event) -> None:
        author, ruled = event.author, self.policy.roles == "admins"
        if event.type == ADD:
            self.adds.setdefault(author, []).append((at, add_of(event).member))
            self.joins.append((at, author, add_of(event).member))
        elif event.type == VOTE:
            target = vote_of(event).member
            self.votes[target] = self.votes.get(target, 0) | 1 << at
        elif event.type == ROLE:
            role = role_of(event)
            if role.role == ADMIN:
                self.promotions[role.member] = self.promotions.get(role.member, 0) | 1 << at
            if ruled and author not in (role.member, self.founder):
                self.powers.append((at, author))
        elif event.type == TERMS:
            if ruled and author != self.founder:
                self.powers.append((at, author))
        elif event.type == REMOVE:
            if self.policy.remove == "quorum":
                self.counted.append((at, remove_of(event).member))
            elif self.policy.remove == "admins" and author != self.founder:
                self.powers.append((at, author))

    def void(self) -> frozenset[str]:
        """The names of the void events."""
        undecided = {at: self._kills(at) for at, event in enumerate(self.events) if is_cut(event)}
        held, killed, dead = 0, 0, self._closure(0) if self.counted else 0
        while undecided := {at: kills for at, kills in undecided.items() if not dead >> at & 1}:
            pool = killed
            for kills in undecided.values():
                pool |= kills
            threatened = self._closure(pool) if pool else dead
            free = [at for at in undecided if not threatened >> at & 1] or list(undecided)
            for at in free:
                held |= 1 << at
                killed |= undecided.pop(at)
            dead = self._closure(killed) if killed else dead
        dead &= ~held
        return frozenset(name for at, name in enumerate(self.names) if dead >> at & 1) if dead else frozenset()

    def _kills(self, at: int) -> int:
        """What a cut makes void at once: what its target did without having seen it, and it without having seen that.
        Whoever leaves has left all the same."""
        cut = self.events[at]
        target = remove_of(cut).member if cut.type == REMOVE else role_of(cut).member
        kills = self.by.get(target, 0) & ~self.past[at] & ~self.of_type.get(LEAVE, 0)
        if cut.type == ROLE:
            by_right = REMOVE if self.policy.remove == "admins" else ROLE
            kills &= self.of_type[ROLE] | self.of_type.get(by_right, 0) | self.of_type.get(TERMS, 0)
            return kills & ~self._after(at, kills)
        answers = kills & self.of_type[REMOVE]
        while answers:  # two removals of each other both hold
            bit = answers & -answers
            answers ^= bit
            other = bit.bit_length() - 1
            if remove_of(self.events[other]).member == cut.author and not self.past[other] >> at & 1:
                kills ^= bit
        return kills

    def _after(self, at: int, events: int) -> int:
        """Those of these events that had seen this one."""
        found = 0
        while events:
            bit = events & -events
            events ^= bit
            if self.past[bit.bit_length() - 1] >> at & 1:
                found |= bit
        return found

    def _closure(self, dead: int) -> int:
        """These events, and all that rest on them."""
        seated, todo = {self.founder}, [self.founder]
        while todo:
            for at, member in self.adds.get(todo.pop(), ()):
                if member not in seated and not dead >> at & 1:
                    seated.add(member)
                    todo.append(member)
        for author, events in self.by.items():
            if author not in seated:
                dead |= events
        for at, author in self.powers:
            if not self.promotions.get(author, 0) & self.past[at] & ~dead:
                dead |= 1 << at
        for at, target in self.counted:
            seen = self.past[at] & ~dead
            if (at, seen) not in self._enough:
                self._enough[at, seen] = self._carried(target, seen, at)
            if not self._enough[at, seen]:
                dead |= 1 << at
        return dead

    def _carried(self, target: str, seen: int, at: int) -> bool:
        """Whether the votes in a past are enough for the removal `at`."""
        voters = len(self._authors(self.votes.get(target, 0) & seen))
        standing, joins = self._standing(target, seen, at, voters if voters < self.policy.quorum else len(self.events))
        if len(standing.others) > voters and voters < self.policy.quorum:
            return False  # the votes are too few whosever they are
        return len(self._parties(target, seen, standing, joins)) >= max(
            1, min(self.policy.quorum, len(standing.others))
        )

    def tally(self, target: str, dead: frozenset[str]) -> set[str]:
        """For whom the votes against this member count now; `dead` are the void events."""
        seen = sum(1 << at for at, name in enumerate(self.names) if name not in dead)
        standing, joins = self._standing(target, seen, len(self.events), len(self.events))
        return self._parties(target, seen, standing, joins)

    def _standing(self, target: str, seen: int, at: int, most: int) -> tuple[Standing, dict[str, int]]:
        """Who could have a say in a removal of this member that knew these events, and which event brought in each.
        Of those who have gone, it must have seen that. Once there are more than `most`, no more are looked for."""
        gone, shut = {target}, 0
        for cut in _bits(seen & (self.of_type.get(LEAVE, 0) | self.of_type.get(REMOVE, 0))):
            event = self.events[cut]
            gone.add(event.author if event.type == LEAVE else remove_of(event).member)
            shut |= self._kills(cut) if event.type == REMOVE else 0
        adders, joins = {self.founder: ""}, {self.founder: 0}
        others = int(self.founder not in gone)
        for place, adder, member in self.joins:
            if others > most:
                break
            if member not in adders and adder in adders and not (shut >> place | self.past[place] >> at) & 1:
                adders[member], joins[member] = adder, place
                others += member not in gone
        return Standing(adders, adders.keys() - gone), joins

    def _parties(self, target: str, seen: int, standing: Standing, joins: dict[str, int]) -> set[str]:
        known: dict[str, int] = {}
        once = twice = 0

        def witnessed(did: str) -> bool:
            nonlocal once, twice
            if not known:  # by branch: what its members had seen when they acted; and what two branches had
                for place in _bits(seen):
                    branch = standing.branch.get(self.events[place].author)
                    if branch is not None:
                        known[branch] = known.get(branch, 0) | self.past[place]
                for events in known.values():
                    once, twice = once | events, twice | once & events
            outside = once & ~known.get(standing.branch[did], 0) | twice
            return bool(outside >> joins[did] & 1)

        return standing.counted(self._authors(self.votes.get(target, 0) & seen), witnessed)

    def forked(self) -> dict[str, tuple[str, str]]:
        """By author: two events in one place of its chain, or of which neither had seen the other; whoever is honest
        knows what it has said itself."""
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
    """The places of these events, in order."""
    while events:
        bit = events & -events
        events ^= bit
        yield bit.bit_length() - 1
