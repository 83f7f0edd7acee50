"""Audit of a group's log from its first event: hashes, signatures, chains, permissions, and the agent's state.

Rows are checked one after the other in total order; only membership events and chain positions are kept, so a log of
any length can be audited. No keys are needed: signatures are verified with the authors' DIDs, and unsigned events
(posts of pairwise groups) by the hashes of their author's chain.
"""

from msgspec import Struct, field

from zerochat.errors import RemoteError
from zerochat.group.event_log.event import POST, Event, foreign_event
from zerochat.group.membership import PastCheck, View, may_post, resolve_view
from zerochat.rpc import ChainExtent, LogRow, LogSummary

VIOLATIONS_MAX = 1_000
"""Violations listed; further ones are only counted."""
PLACES_MAX = 100_000
"""Missing positions of a chain that are checked one by one."""


class Violation(Struct, frozen=True, kw_only=True):
    """A violation of an invariant."""

    what: str
    """A sentence without a full stop about the event with this id, or about the whole log."""
    author: str = ""
    position: int = 0
    id: str = ""


class AuditReport(Struct, frozen=True, kw_only=True):
    """The result of an audit."""

    group: str
    name: str
    sound: bool
    events: int
    posts: int
    membership: int
    """Number of membership events, which are all signed."""
    authors: int
    signed: int
    """Number of verified signatures."""
    unconfirmed: int
    """Number of relayed events that their authors have not confirmed."""
    late: int
    refuted: int
    """Number of events that contradict their authors' chains and are kept apart."""
    view: str
    """Checksum of the computed membership view; empty: the membership events are inconsistent."""
    violations: list[Violation]
    more: int = 0
    """Breaks that are not named."""


class _Thread(Struct):
    """Progress in one author's chain."""

    position: int = 0
    ids: set[str] = field(default_factory=lambda: {""})
    """Event ids at that position; several after an equivocation."""
    lamport: int = 0
    posted: int = 0
    """Position of the first post."""
    holes: list[tuple[int, int]] = field(default_factory=list)
    """Gaps: after a position, before another."""


class Audit(Struct):
    """One audit of the log that `summary` describes: pass every row, then read the verdict."""

    summary: LogSummary
    violations: list[Violation] = field(default_factory=list)
    more: int = 0
    events: int = 0
    _posts: int = 0
    _signed: int = 0
    _unconfirmed: int = 0
    _late: int = 0
    _last: tuple[int, str, str] = (0, "", "")
    _chains: dict[str, _Thread] = field(default_factory=dict)
    _control: dict[str, Event] = field(default_factory=dict)
    _heights: dict[str, ChainExtent] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    """Authors whose chains end as recorded in the state."""

    def __post_init__(self) -> None:
        self._heights = {height.author: height for height in self.summary.chains}

    def take(self, row: LogRow) -> None:
        """Check the next row."""
        self.events += 1
        self._late += row.late
        self._unconfirmed += bool(row.relayed_by)
        place = row.lamport, row.author, row.id
        if place <= self._last:
            self._broken("it is not in the order of its Lamport time", row)
        self._last = place
        event = self._read(row)
        if event is not None:
            self._follow(event, row)

    def verdict(self) -> AuditReport:
        """The report, after all rows."""
        view = self._members()
        self._ends(view)
        for one in self.summary.conflicts:
            what = "its author has signed another event at this position (a fork)"
            if not one.forked:
                what = "a member has another event at or before this position; `zerochat why` shows the member"
            self._broken(what, author=one.author, position=one.position)
        if self.events != self.summary.events:
            self._broken(f"the log has {self.events} events, and the state expects {self.summary.events}")
        return AuditReport(
            group=self.summary.group,
            name=self.summary.name,
            sound=not self.violations,
            events=self.events,
            posts=self._posts,
            membership=len(self._control),
            authors=len(self._chains),
            signed=self._signed,
            unconfirmed=self._unconfirmed,
            late=self._late,
            refuted=self.summary.refuted,
            view=view.checksum if view else "",
            violations=self.violations,
            more=self.more,
        )

    # --- single events ----------------------------------------------------------------------------------------------

    def _read(self, row: LogRow) -> Event | None:
        """The event of a row, after checking it against the row; None: invalid."""
        try:
            event = foreign_event(row.record)
        except RemoteError:
            self._broken("its record cannot be read", row)
            return None
        if event.id != row.id:
            self._broken("its id is not the hash of its record", row)
        elif event.record != row.record:
            self._broken("its record is not in canonical form", row)
        said = event.author, event.seq, event.lamport, event.stored_type, event.group_id
        if said != (row.author, row.position, row.lamport, row.type, self.summary.group):
            self._broken("its row contradicts its record", row)
            return None
        if event.sig and not event.is_control:
            self._signed += 1
            try:
                event.check_signature()
            except RemoteError:
                self._broken("its signature is invalid", row)
        return event

    def _follow(self, event: Event, row: LogRow) -> None:
        """Check an event's dependencies and its place in its author's chain."""
        if event.is_control:
            self._control[event.id] = event
        else:
            self._posts += event.type == POST
            self._posted(event, row)
        for dep in event.deps:
            if dep not in self._control:
                self._broken("a membership event that it depends on is missing", row)
        height = self._heights.get(event.author)
        if height is not None and event.seq == height.seq and height.head in ("", event.id):
            self._ended.add(event.author)
        chain = self._chains.setdefault(event.author, _Thread())
        if event.seq == chain.position:
            chain.ids.add(event.id)
            self._broken("its author has another event at this position (a fork)", row)
            return
        if event.seq < chain.position:
            self._broken("its position is smaller than that of the event before it", row)
            return
        if not event.is_control and not chain.posted:
            chain.posted = event.seq
        if event.seq > chain.position + 1:
            chain.holes.append((chain.position, event.seq))
        elif event.pre not in chain.ids:
            self._broken("it does not refer to the event before it in its author's chain", row)
        if event.lamport <= chain.lamport:
            self._broken("its Lamport time is not greater than that of its author's previous event", row)
        chain.position, chain.ids, chain.lamport = event.seq, {event.id}, event.lamport

    def _posted(self, event: Event, row: LogRow) -> None:
        """Check a post against the chain extent in the state."""
        if row.relayed_by or row.history:
            return  # backfilled events may precede the recorded extent of the chain
        height = self._heights.get(event.author)
        if height is None or not height.seq:
            self._broken("the state has no chain of its author", row)
        elif event.seq < height.first or event.seq > height.seq:
            self._broken(f"the state knows its author's chain from {height.first} to {height.seq} only", row)

    # --- whole log --------------------------------------------------------------------------------------------------

    def _members(self) -> View | None:
        """The membership view computed from the membership events; None: they are inconsistent."""
        check = PastCheck(self._control.values())
        try:
            check.advance()
            view = resolve_view(check.control)
        except RemoteError as error:
            if (event := check.current) is not None:
                what = f"its author was not allowed to do this ({type(error).__name__}: {error})"
                self._broken(what, author=event.author, position=event.seq, id=event.id)
            return None
        self._signed += len(self._control)
        if view.checksum != self.summary.view:
            self._broken(f"the membership events give the view {view.checksum}, and the state has {self.summary.view}")
        return view

    def _ends(self, view: View | None) -> None:
        """Check that every chain is complete within its recorded extent, and that every author was a member."""
        for author, chain in self._chains.items():
            if view is not None and view.known(author) is None:
                self._broken("an author was never a member", author=author)
            height = self._heights.get(author)
            if height is None or not height.seq:
                continue
            first = height.first or chain.posted
            for after, before in chain.holes:
                missing = range(max(after + 1, first), min(before, height.seq + 1))
                if counting := self._counting(view, author, missing):
                    events = "event is" if counting == 1 else "events are"
                    what = f"{counting} {events} missing before it in its author's chain, from position {missing.start}"
                    self._broken(what, author=author, position=before)
        for author, height in self._heights.items():
            if not height.seq or author in self._ended:
                continue
            here = self._chains.get(author, _Thread()).position
            # A post by a reader takes a position and is not stored.
            if here >= height.seq or self._counting(view, author, range(max(here + 1, height.first), height.seq + 1)):
                with_ = f" with {height.head}" if height.head else ""
                what = f"its author's chain does not end at {height.seq}{with_}"
                self._broken(what, author=author, position=height.seq)

    @staticmethod
    def _counting(view: View | None, author: str, places: range) -> int:
        """The number of these positions that must have an event: posts by readers are not stored."""
        if view is None:
            return len(places)
        return sum(may_post(view, author, place) for place in places[:PLACES_MAX])

    def _broken(
        self, what: str, row: LogRow | None = None, *, author: str = "", position: int = 0, id: str = ""
    ) -> None:
        if row is not None:
            author, position, id = row.author, row.position, row.id
        if len(self.violations) < VIOLATIONS_MAX:
            self.violations.append(Violation(what=what, author=author, position=position, id=id))
        else:
            self.more += 1
