"""The membership events of a group with what follows from them, extended by one event at a time.

An event that names all heads, as nearly all do, has every other event in its past: nothing is concurrent with it, so it
is judged by the present view and applied to it. The same holds for the view after an event that is the last in order,
takes no rights from another member, and has seen all events that do; unless an event is void. Any other event, and
each one once concurrent additions exceed the seats, makes the view be resolved anew (`resolve.py`), which takes time in
proportion to all of them.

`MembershipLog` objects are a cache: what they hold is a function of the events alone.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from zerochat.group.event_log.event import ADD, GENESIS, REMOVE, UPGRADE, Event
from zerochat.group.membership.bodies import genesis_of, policy_of
from zerochat.group.membership.event_graph import EventGraph, is_revocation
from zerochat.group.membership.past_view import PastViews, steps_us
from zerochat.group.membership.quota import EventQuota
from zerochat.group.membership.resolve import RecentCache, ViewBuilder, ancestors, in_order, voters_for
from zerochat.group.membership.rights import check_body, check_causes, check_genesis, check_right
from zerochat.group.membership.upgrades import upgraders
from zerochat.group.membership.view import View

LOGS_MAX = 64
"""Cached logs, one for each group."""
EVENT_WORK_US, RESOLVE_WORK_US = 300, 6
"""The work of a membership event, and more for each known one where the view must be resolved anew; us. Only an
estimate: where a machine is slower, its share of work per member is larger."""


class MembershipLog:
    """Membership events, all of them checked, in a form that is cheap to extend."""

    def __init__(self, control: dict[str, Event]) -> None:
        self.control = control
        self.heads = set(control).difference(*(event.deps for event in control.values()))
        self._sorted_heads: tuple[str, ...] | None = None
        self.by_author: dict[str, list[Event]] = {}
        self.quota = EventQuota()
        self._revocations: set[str] = set()
        self._latest = (0, "")
        self._builder: ViewBuilder | None = None
        self._pasts: PastViews | None = None
        self._parties: dict[tuple[frozenset[str], str], set[str]] = {}
        """By members and the one that agrees last: every message asks, while an upgrade is under way."""
        self._steps = 0
        """The most that resolving the present or a past has taken (`EventGraph.steps`)."""
        self._crowded = False
        """Of the last view that was resolved anew."""
        self.size = 0
        for _, event in in_order(control):
            self._count(event)

    def work_us(self, event: Event) -> int:
        """The estimated work of checking and applying an event, us."""
        is_last = self.heads == set(event.deps) and event.type not in (REMOVE, UPGRADE) and not self._crowded
        return EVENT_WORK_US + (0 if is_last else self.resolve_us + steps_us(self._steps, self.size))

    @property
    def resolve_us(self) -> int:
        """The estimated work of resolving the present or a past anew, us."""
        return RESOLVE_WORK_US * self.size + steps_us(self._steps, self.size)

    def check(self, event: Event) -> None:
        """Reject an event that its author had no right to create, or had created too many before, in its own causal
        past. Raises Unauthentic, Malformed or Refused."""
        event.check_signature()
        if event.type == GENESIS:
            check_genesis(event, self.control)
            return
        check_causes(event, self.control)
        check_body(event)
        if self.heads == set(event.deps):
            view = self._present().current
            check_right(
                event,
                view,
                lambda target: voters_for(self.control, view, target),
                lambda: upgraders(self.control, view),
                lambda members: self.parties(members, event.author),
            )
            self.quota.check_author(event)
        else:
            with self._past_views() as pasts:
                pasts.check(event)

    def extend(self, event: Event, control: dict[str, Event]) -> None:
        """Add a checked event; `control` has it, and otherwise the same events as before."""
        self.control = control
        if event.type == GENESIS:
            self._builder = ViewBuilder(event)
        elif self._builder is not None:
            past = None if self.heads == set(event.deps) else ancestors(control, event.deps)
            if self._is_harmless(event, past):
                self._builder.extend(event, past)
            else:
                self._builder = None
        self._pasts, self._parties = None, {}
        self.heads = (self.heads - set(event.deps)) | {event.id}
        self._sorted_heads = None
        self._count(event)

    def parties(self, members: Collection[str], last: str) -> set[str]:
        """Those of these members whose agreement to an upgrade counts, if this one agrees last."""
        asked = frozenset(members), last
        if asked not in self._parties:
            with self._past_views() as pasts:
                self._parties[asked] = pasts.parties(members, last, pasts.graph.all)
        return self._parties[asked]

    @contextmanager
    def _past_views(self) -> Iterator[PastViews]:
        """The views of pasts; what they cost within this context is noted."""
        if self._pasts is None:
            self._pasts = PastViews(self._graph())
        before = self._pasts.graph.steps
        yield self._pasts
        self._steps = max(self._steps, self._pasts.graph.steps - before)

    def last_seq(self, author: str) -> int:
        """The last place in an author's chain at which it has a membership event; 0: it has none."""
        return max((event.seq for event in self.by_author.get(author, ())), default=0)

    def view(self) -> View:
        """The view of all these events."""
        return self._present().view(self.sorted_heads)

    @property
    def sorted_heads(self) -> tuple[str, ...]:
        """The events that no other one names."""
        if self._sorted_heads is None:
            self._sorted_heads = tuple(sorted(self.heads))
        return self._sorted_heads

    def _present(self) -> ViewBuilder:
        if self._builder is None:
            self._builder = ViewBuilder.of(self.control)
            if self._builder.graph is not None:
                self._steps = max(self._steps, self._builder.graph.steps)
            self._crowded = self._builder.crowded
        return self._builder

    def _graph(self) -> EventGraph:
        graph = self._builder.graph if self._builder is not None else None
        if graph is None or len(graph.events) != self.size:
            order = in_order(self.control)
            graph = EventGraph(order, policy_of(genesis_of(order[0][1]).policy))
        return graph

    def _is_harmless(self, event: Event, past: Collection[str] | None) -> bool:
        """Whether the view after the event is the present one with the event applied."""
        present = self._present()
        if present.crowded:  # it shows what its author had seen, which decides who has a seat
            return False
        if past is None:  # a removal by quorum may be void all the same, since not every vote counts
            return event.type != REMOVE or present.policy.remove != "quorum"
        ever = len(present.members) + len(present.former)
        if present.has_void or (event.type == ADD and ever >= present.current.members_max):
            return False  # it may depend on a void event, or exceed the seats
        last = (event.lamport, event.id) > self._latest
        return last and not is_revocation(event) and all(name in past for name in self._revocations)

    def _count(self, event: Event) -> None:
        self.size += 1
        self.quota.add(event)
        self.by_author.setdefault(event.author, []).append(event)
        self._latest = max(self._latest, (event.lamport, event.id))
        if is_revocation(event):
            self._revocations.add(event.id)


_logs: RecentCache[int, MembershipLog] = RecentCache(LOGS_MAX)
"""By the identities of the mappings that they are of; each holds its mapping, so no other can have that identity."""


def log_of(control: dict[str, Event]) -> MembershipLog:
    """The log of these events, all of them checked."""
    log = _logs.get(id(control), lambda: MembershipLog(control))
    if log.control is not control or log.size != len(control):
        log = MembershipLog(control)
        _logs.put(id(control), log)
    return log


def check_control(event: Event, control: dict[str, Event], sender: str = "") -> bool:
    """Reject a membership event that its author had no right to create, in its own causal past. Returns whether it
    exceeds a limit, as a relayed event may.

    All of its `deps` must be in `control` already. `sender`: the member that it comes from, if not its author. Raises
    Unauthentic, Malformed or Refused.
    """
    log = log_of(control)
    log.check(event)
    return log.quota.check(event, sender)


def extend_control(control: dict[str, Event], event: Event) -> tuple[dict[str, Event], View]:
    """These events with one more (`check_control`), and the view of all."""
    log = log_of(control)
    _logs.take(id(control))
    extended = {**control, event.id: event}
    log.extend(event, extended)
    _logs.put(id(extended), log)
    return extended, log.view()


def missing(control: Mapping[str, Event], their_heads: Collection[str]) -> list[Event]:
    """The membership events that a peer with these heads lacks, causes first. Unknown heads are ignored."""
    theirs = ancestors(control, (name for name in their_heads if name in control))
    return sorted((e for name, e in control.items() if name not in theirs), key=lambda e: (e.lamport, e.author, e.id))
