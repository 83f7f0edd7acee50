"""Checks a group's log from its first event on: that every record is what its id says, that no chain is broken, that
whoever changed the group had the right to, and that all of it comes to what the agent's state says.

Rows go in one after the other, in the order that every member sees; nothing is kept of them but the membership events
and where each chain has got to, so a log of any length can be checked. It needs no keys: what is signed is checked by
the authors' own DIDs, and what is not (posts of pairwise groups) by the hashes that hold it in its author's chain.
"""

from collections.abc import Iterator

from msgspec import Struct, field

from zerochat.errors import RemoteError
from zerochat.group.event_log.event import POST, Event, foreign_event
from zerochat.group.membership import View, check_all, may_post, resolve_view
from zerochat.rpc import Height, Ledger, LogRow

BREAKS_MAX = 1_000
"""More are counted and not named."""
PLACES_MAX = 100_000
"""Of the places missing in a chain: so many are looked at one by one."""


class Break(Struct, frozen=True, kw_only=True):
    """Something that is not as it must be."""

    what: str
    """What, without a full stop; about the event with this id, or about the whole log."""
    author: str = ""
    position: int = 0
    id: str = ""


class Verdict(Struct, frozen=True, kw_only=True):
    """What was checked, and what came of it."""

    group: str
    name: str
    sound: bool
    events: int
    posts: int
    membership: int
    """Membership events, all of them signed."""
    authors: int
    signed: int
    """How many signatures were checked."""
    vouched: int
    """Events that only somebody else than their author has said so far."""
    late: int
    refuted: int
    """Events that are kept apart, because their authors have never said them."""
    view: str
    """The checksum of the members that the membership events come to; empty: they do not come to anything."""
    breaks: list[Break]
    more: int = 0
    """Breaks that are not named."""


class _Thread(Struct):
    """How far the chain of one author has been followed."""

    position: int = 0
    ids: set[str] = field(default_factory=lambda: {""})
    """Of what stands there: more than one where its author has said two things in one place."""
    lamport: int = 0
    posted: int = 0
    """The position of the first post."""
    holes: list[tuple[int, int]] = field(default_factory=list)
    """Stretches that are not here: after a position, before another."""


class Audit(Struct):
    """One check, of the log that `ledger` speaks of. `take` every row, then ask for the `verdict`."""

    ledger: Ledger
    breaks: list[Break] = field(default_factory=list)
    more: int = 0
    events: int = 0
    _posts: int = 0
    _signed: int = 0
    _vouched: int = 0
    _late: int = 0
    _last: tuple[int, str, str] = (0, "", "")
    _chains: dict[str, _Thread] = field(default_factory=dict)
    _control: dict[str, Event] = field(default_factory=dict)
    _heights: dict[str, Height] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    """The authors whose chains end as the state says."""

    def __post_init__(self) -> None:
        self._heights = {height.author: height for height in self.ledger.heights}

    def take(self, row: LogRow) -> None:
        """Check the next row."""
        self.events += 1
        self._late += row.late
        self._vouched += bool(row.vouched)
        place = row.lamport, row.author, row.id
        if place <= self._last:
            self._broken("it does not stand where its time puts it", row)
        self._last = place
        event = self._read(row)
        if event is not None:
            self._follow(event, row)

    def verdict(self) -> Verdict:
        """What came of it, once all rows were taken."""
        view = self._members()
        self._ends(view)
        for one in self.ledger.disputes:
            what = "its author has said something else in this place, too"
            if not one.forked:
                what = "a member has something else in this place or before it; `why` says who"
            self._broken(what, author=one.author, position=one.position)
        if self.events != self.ledger.events:
            self._broken(f"{self.events} events are there, and {self.ledger.events} should be")
        return Verdict(
            group=self.ledger.group,
            name=self.ledger.name,
            sound=not self.breaks,
            events=self.events,
            posts=self._posts,
            membership=len(self._control),
            authors=len(self._chains),
            signed=self._signed,
            vouched=self._vouched,
            late=self._late,
            refuted=self.ledger.refuted,
            view=view.checksum if view else "",
            breaks=self.breaks,
            more=self.more,
        )

    # --- single events ----------------------------------------------------------------------------------------------

    def _read(self, row: LogRow) -> Event | None:
        """The event of a row, where its record is one; what the row says of it must be so."""
        try:
            event = foreign_event(row.record)
        except RemoteError:
            self._broken("its record cannot be read", row)
            return None
        if event.id != row.id:
            self._broken("its record is not the one that its id names", row)
        elif event.record != row.record:
            self._broken("its record is not written as it was hashed", row)
        said = event.author, event.seq, event.lamport, event.type, event.group_id
        if said != (row.author, row.position, row.lamport, row.type, self.ledger.group):
            self._broken("it is filed as something else than what it says of itself", row)
            return None
        if event.sig and not event.is_control:
            self._signed += 1
            try:
                event.check_signature()
            except RemoteError:
                self._broken("its signature is not its author's", row)
        return event

    def _follow(self, event: Event, row: LogRow) -> None:
        """Its place in its author's chain, and what it rests on."""
        if event.is_control:
            self._control[event.id] = event
        else:
            self._posts += event.type == POST
            self._posted(event, row)
        for dep in event.deps:
            if dep not in self._control:
                self._broken("a membership event that it rests on is missing", row)
        height = self._heights.get(event.author)
        if height is not None and event.seq == height.seq and height.tip in ("", event.id):
            self._ended.add(event.author)
        chain = self._chains.setdefault(event.author, _Thread())
        if event.seq == chain.position:
            chain.ids.add(event.id)
            self._broken("its author has said something else in the same place", row)
            return
        if event.seq < chain.position:
            self._broken("its author's chain runs backwards here", row)
            return
        if not event.is_control and not chain.posted:
            chain.posted = event.seq
        if event.seq > chain.position + 1:
            chain.holes.append((chain.position, event.seq))
        elif event.pre not in chain.ids:
            self._broken("it does not follow what stands before it in its author's chain", row)
        if event.lamport <= chain.lamport:
            self._broken("its time is not after that of what its author said before", row)
        chain.position, chain.ids, chain.lamport = event.seq, {event.id}, event.lamport

    def _posted(self, event: Event, row: LogRow) -> None:
        """Whether the state knows of this post."""
        if row.vouched or row.history:
            return  # it may stand outside of what counts as here, until it is joined to that
        height = self._heights.get(event.author)
        if height is None or not height.seq:
            self._broken("the state knows nothing of what its author has said", row)
        elif event.seq < height.first or event.seq > height.seq:
            self._broken(f"the state knows its author's chain from {height.first} to {height.seq} only", row)

    # --- all of it --------------------------------------------------------------------------------------------------

    def _members(self) -> View | None:
        """Who is in, by the membership events; None: they do not hang together."""
        reading: list[Event] = []

        def causes_first() -> Iterator[Event]:
            for event in self._control.values():
                reading[:] = [event]
                yield event

        try:
            view = resolve_view(check_all(causes_first()))
        except RemoteError as error:
            for event in reading:
                what = f"its author could not do this ({type(error).__name__}: {error})"
                self._broken(what, author=event.author, position=event.seq, id=event.id)
            return None
        self._signed += len(self._control)
        if view.checksum != self.ledger.view:
            self._broken(f"the members come to {view.checksum}, and the state has {self.ledger.view}")
        return view

    def _ends(self, view: View | None) -> None:
        """Every chain is whole, as far as the state says that it is here, and nobody speaks who was never in."""
        for author, chain in self._chains.items():
            if view is not None and view.known(author) is None:
                self._broken("somebody is among the authors who was never a member", author=author)
            height = self._heights.get(author)
            if height is None or not height.seq:
                continue
            first = height.first or chain.posted
            for after, before in chain.holes:
                missing = range(max(after + 1, first), min(before, height.seq + 1))
                if counting := self._counting(view, author, missing):
                    be = "event is" if counting == 1 else "events are"
                    what = f"{counting} {be} missing before it in its author's chain, from number {missing.start} on"
                    self._broken(what, author=author, position=before)
        for author, height in self._heights.items():
            if not height.seq or author in self._ended:
                continue
            here = self._chains.get(author, _Thread()).position
            # A reader's post at the end has its place, and is not kept.
            if here >= height.seq or self._counting(view, author, range(max(here + 1, height.first), height.seq + 1)):
                with_ = f" with {height.tip}" if height.tip else ""
                what = f"its author's chain should end at {height.seq}{with_}, and does not"
                self._broken(what, author=author, position=height.seq)

    @staticmethod
    def _counting(view: View | None, author: str, places: range) -> int:
        """How many of these places of a chain must have an event: a post of somebody who may only read is not kept."""
        if view is None:
            return len(places)
        return sum(may_post(view, author, place) for place in places[:PLACES_MAX])

    def _broken(
        self, what: str, row: LogRow | None = None, *, author: str = "", position: int = 0, id: str = ""
    ) -> None:
        if row is not None:
            author, position, id = row.author, row.position, row.id
        if len(self.breaks) < BREAKS_MAX:
            self.breaks.append(Break(what=what, author=author, position=position, id=id))
        else:
            self.more += 1
