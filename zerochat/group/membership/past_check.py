"""The check of a whole past: what a joiner does with its welcome, and a reader with an exported log.

Each event is judged by the view of its own causal past. Events that have seen all before them are judged by one view
that grows with them. The pasts of the others are parts of one graph (`void_events.py`), which is made once, and their
views show no more than rights depend on (`past_view.py`). A hostile branch can make thousands of concurrent events, so
the check goes in slices: no past that members have accepted takes too long for a joiner.
"""

from collections.abc import Iterable
from math import inf

from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, GENESIS, REMOVE, Event
from zerochat.group.membership.bodies import genesis_of, policy_of
from zerochat.group.membership.event_graph import EventGraph
from zerochat.group.membership.past_view import PastViews, steps_us
from zerochat.group.membership.quota import EventQuota
from zerochat.group.membership.resolve import ViewBuilder
from zerochat.group.membership.rights import check_body, check_causes, check_genesis

ALONE_WORK_US, ADD_WORK_US = 100, 600
"""The work of checking an event by itself: its signature; for an addition, the consent of the new member too; us."""
GRAPH_WORK_US, RIGHT_WORK_US = 6, 20
"""The work of an event in the graph, and of judging it by a view that is there, us."""


class PastCheck:
    """The check of a whole past, in slices: of each event by itself first, then of its author's right in its past."""

    def __init__(self, events: Iterable[Event]) -> None:
        """In any order, each once."""
        self.control: dict[str, Event] = {}
        """The events that were checked by themselves."""
        self.current: Event | None = None
        """The event that is checked, or was the last."""
        self._order = sorted(events, key=lambda event: (event.lamport, event.id))
        self._quota = EventQuota()
        self.graph: EventGraph | None = None
        """Of all events, once each is checked by itself."""
        self._judge: _Judge | None = None

    def advance(self, most_us: float = inf) -> bool:
        """Check as many more events as this much work allows, at least one; True: all are checked. Raises Unauthentic,
        Malformed or Refused."""
        left_us = most_us
        while left_us > 0 and len(self.control) < len(self._order):
            self.current = self._order[len(self.control)]
            left_us -= self._check_alone(self.current)
        if left_us <= 0 or not self._order:
            return not self._order
        if self._judge is None:
            self._quota.check_whole()
            self._judge = _Judge(self._order)
            self.graph = self._judge.pasts.graph
            left_us -= GRAPH_WORK_US * len(self._order)
        while left_us > 0 and self._judge.at < len(self._order):
            self.current = self._order[self._judge.at]
            left_us -= self._judge.check_next()
        return self._judge.at == len(self._order)

    def _check_alone(self, event: Event) -> int:
        if event.id in self.control:
            raise Refused(why="a membership event twice")
        event.check_signature()
        if event.type == GENESIS:
            check_genesis(event, self.control)
        else:
            check_causes(event, self.control)
            check_body(event)
        self.control[event.id] = event
        self._quota.add(event)
        return ADD_WORK_US if event.type == ADD else ALONE_WORK_US


class _Judge:
    """Checks the rights of events in order."""

    def __init__(self, order: list[Event]) -> None:
        self.at = 1
        """How many of them are checked."""
        self._order = order
        self._heads = {order[0].id}
        policy = policy_of(genesis_of(order[0]).policy)
        self.pasts = PastViews(EventGraph([(event.id, event) for event in order], policy))
        self._builder: ViewBuilder | None = ViewBuilder(order[0])
        """None: an event was concurrent to another."""

    def check_next(self) -> int:
        """Check the next one; returns the estimated work, us."""
        event, graph, builder = self._order[self.at], self.pasts.graph, self._builder
        before = graph.steps
        if builder is not None and self._heads == set(event.deps):
            view, past = builder.current, (1 << self.at) - 1
            self.pasts.check_right(event, view, past)
            self.pasts.check_author_quota(event, past)
            builder.apply(event)
            if event.type == REMOVE and builder.policy.remove == "quorum":
                self._builder = None  # it may be void, since not every vote counts
        else:
            self._builder = None
            self.pasts.check(event)
        self._heads = (self._heads - set(event.deps)) | {event.id}
        self.at += 1
        return RIGHT_WORK_US + steps_us(graph.steps - before, len(self._order))


def check_all(events: Iterable[Event]) -> dict[str, Event]:
    """Check a whole past at once; returns it by id. Raises Unauthentic, Malformed or Refused."""
    check = PastCheck(events)
    check.advance()
    return check.control
