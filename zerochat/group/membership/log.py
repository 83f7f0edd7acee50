"""The membership events of a group with what follows from them, extended by one event at a time.

An event that names all heads, as nearly all do, has every other event in its past: nothing is concurrent with it, so it
is judged by the present view and applied to it. The same holds for the view after an event that is the last in order,
takes no rights from another member, and has seen all events that do; unless an event is void. Any other event, and
each one once concurrent additions exceed the seats, makes the view be resolved anew (`resolve.py`), which takes time in
proportion to all of them.

`MembershipLog` objects are a cache: what they hold is a function of the events alone.
"""

from collections.abc import Collection, Iterable, Mapping

from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, GENESIS, REMOVE, Event
from zerochat.group.membership.quota import RECEIVED_MAX, EventQuota, check_in_past
from zerochat.group.membership.resolve import RecentCache, ViewBuilder, ancestors, in_order, resolve_counted
from zerochat.group.membership.rights import check_causes, check_genesis, check_right
from zerochat.group.membership.view import View
from zerochat.group.membership.void_events import is_revocation
from zerochat.limits import MEMBERS_MAX

LOGS_MAX = 64
"""Cached logs, one for each group."""
EVENT_WORK_US, RESOLVE_WORK_US = 300, 6
"""The work of a membership event, and more for each known one where the view must be resolved anew; us. Only an
estimate: where a machine is slower, its share of work per member is larger."""
CLOSURES_PER_US = 4
"""Revocations that depend on each other take a round each (`EventGraph.closures`), twice: in the event's past and in
the present."""
CHECK_WORK_US_MAX = 30_000_000
"""The most that checking a whole past may take, us: a process that does not respond for longer is ended."""


class MembershipLog:
    """Membership events, all of them checked, in a form that is cheap to extend."""

    def __init__(self, control: dict[str, Event]) -> None:
        self.control = control
        self.heads = set(control).difference(*(event.deps for event in control.values()))
        self.by_author: dict[str, list[Event]] = {}
        self.quota = EventQuota()
        self._revocations: set[str] = set()
        self._latest = (0, "")
        self._builder: ViewBuilder | None = None
        self._closures = 0
        """The most that resolving the present or a past has taken."""
        self._crowded = False
        """Of the last view that was resolved anew."""
        self.size = 0
        for _, event in in_order(control):
            self._count(event)

    def work_us(self, event: Event) -> int:
        """The estimated work of checking and applying an event, us."""
        is_last = self.heads == set(event.deps) and event.type != REMOVE and not self._crowded
        each_us = RESOLVE_WORK_US + self._closures // CLOSURES_PER_US
        return EVENT_WORK_US + (0 if is_last else each_us * self.size)

    def check(self, event: Event) -> None:
        """Reject an event that its author had no right to create, or had created too many before, in its own causal
        past. Raises Unauthentic, Malformed or Refused."""
        event.check_signature()
        if event.type == GENESIS:
            check_genesis(event, self.control)
            return
        check_causes(event, self.control)
        if self.heads == set(event.deps):
            check_right(event, self._present().current, self.control)
            self.quota.check_author(event)
        else:
            past = {name: self.control[name] for name in ancestors(self.control, event.deps)}
            view, closures = resolve_counted(past)
            self._closures = max(self._closures, closures)
            check_right(event, view, past)
            check_in_past(event, past)

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
        self.heads = (self.heads - set(event.deps)) | {event.id}
        self._count(event)

    def view(self) -> View:
        """The view of all these events."""
        return self._present().view(tuple(sorted(self.heads)))

    def _present(self) -> ViewBuilder:
        if self._builder is None:
            self._builder = ViewBuilder.of(self.control)
            self._closures = max(self._closures, self._builder.closures)
            self._crowded = self._builder.crowded
        return self._builder

    def _is_harmless(self, event: Event, past: Collection[str] | None) -> bool:
        """Whether the view after the event is the present one with the event applied."""
        present = self._present()
        if present.crowded:  # it shows what its author had seen, which decides who has a seat
            return False
        if past is None:  # a removal by quorum may be void all the same, since not every vote counts
            return event.type != REMOVE or present.policy.remove != "quorum"
        if present.has_void or (event.type == ADD and len(present.members) + len(present.former) >= MEMBERS_MAX):
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


def check_control(event: Event, control: dict[str, Event], sender: str = "") -> None:
    """Reject a membership event that its author had no right to create, in its own causal past.

    All of its `deps` must be in `control` already. `sender`: the member that it comes from, if not its author. Raises
    Unauthentic, Malformed or Refused.
    """
    log = log_of(control)
    log.check(event)
    log.quota.check(event, sender)


def extend_control(control: dict[str, Event], event: Event) -> tuple[dict[str, Event], View]:
    """These events with one more (`check_control`), and the view of all."""
    log = log_of(control)
    _logs.take(id(control))
    extended = {**control, event.id: event}
    log.extend(event, extended)
    _logs.put(id(extended), log)
    return extended, log.view()


def check_all(events: Iterable[Event]) -> dict[str, Event]:
    """Check a whole past at once, causes first; returns it by id. Raises Unauthentic, Malformed or Refused."""
    control: dict[str, Event] = {}
    log, work_us = MembershipLog(control), 0
    for event in events:
        work_us += log.work_us(event)
        if work_us > CHECK_WORK_US_MAX:
            raise Refused(why="membership events that take too long to check")
        log.check(event)
        control[event.id] = event
        log.extend(event, control)
        if log.size > RECEIVED_MAX:
            raise Refused(why="too many membership events")
    log.quota.check_whole()
    return control


def missing(control: Mapping[str, Event], their_heads: Collection[str]) -> list[Event]:
    """The membership events that a peer with these heads lacks, causes first. Unknown heads are ignored."""
    theirs = ancestors(control, (name for name in their_heads if name in control))
    return sorted((e for name, e in control.items() if name not in theirs), key=lambda e: (e.lamport, e.author, e.id))
