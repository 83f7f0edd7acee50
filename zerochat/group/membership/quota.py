"""Quotas on membership events: by author, and by branch of the tree of admissions.

All membership events are kept for good and given to every joiner, so each costs every member work and memory. A limit
for the group alone would let one member use it up with the events of members that it has added itself (a Sybil attack),
and close the group to all others. So an event counts for its author and for each member through whom its author
came in, except the founder, through whom all came in: the *branches* that it belongs to. A member that only the founder
is above therefore spends its own branch, however many members it adds.

- A full branch does not silence its members: each may create a few events more (`RESERVE`), and vote about each other
  member, so that an honest member of a branch which another has filled can still admit, rename and remove. Those who
  are added meanwhile may not, or a chain of Sybils, of which each adds the next one and leaves, would have no end.
- What a member leaves behind when it has left or was removed, and the event that added it, counts a quarter. So a
  branch recovers when its members remove an abuser.
- The order of arrival decides which concurrent events are refused: an equivocator, or Sybils that tell each member
  something else, would divide the honest members for good. So while a group has fewer than `RELAYED_MAX` events, one
  that a member of no common branch relays need only be within its author's limit in its own causal past, which is the
  same for all: an honest member relays what it has accepted.
- The first leave and the first removal of a member never count: they must be possible however full the log is. A
  member's first vote about another does not count for its author, for the same reason, but for its branches.
"""

from collections.abc import Iterable, Iterator, Mapping

from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, LEAVE, REMOVE, VOTE, Event
from zerochat.group.membership.bodies import add_of, remove_of, vote_of
from zerochat.limits import MEMBERS_MAX

CONTROL_MAX = 4096
"""Membership events of one group, apart from the reserves."""
BRANCH_MAX = 512
"""Membership events of one branch, apart from the reserves."""
AUTHOR_CONTROL_MAX = 256
"""Membership events of one author."""
RESERVE = 8
"""Events of an author that are accepted although its branch or the group is full, besides `MEMBERS_MAX` votes."""
DEPARTED_WEIGHT = 4
"""How many events of former members count as one."""
RELAYED_MAX = CONTROL_MAX // 2
"""Membership events of a group up to which relayed ones may exceed the limits of their author and branches. Fewer than
a joiner accepts, since checking concurrent events takes it a time in proportion to their square
(`log.CHECK_WORK_US_MAX`)."""
RECEIVED_MAX = DEPARTED_WEIGHT * CONTROL_MAX
"""Membership events that a joiner accepts: those that count, and those of former members."""


class Count:
    """Events of members, and of those who have departed."""

    __slots__ = ("departed", "present")

    def __init__(self) -> None:
        self.present = self.departed = 0

    @property
    def weight(self) -> int:
        return self.present + self.departed // DEPARTED_WEIGHT

    def depart(self, events: int) -> None:
        """So many of these events are of a former member from now on."""
        events = min(events, self.present)
        self.present -= events
        self.departed += events


class EventQuota:
    """Counts the membership events of a group."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.all = Count()
        self.by_author: dict[str, Count] = {}
        self.by_branch: dict[str, Count] = {}
        self._adders: dict[str, str] = {}
        self._votes: dict[str, int] = {}
        """By author: its first votes about others."""
        self._late: set[str] = set()
        """The members that were added when their branch or the group was full."""
        self._departed: set[str] = set()
        self._free: set[tuple[str, ...]] = set()
        for event in events:
            self.add(event)

    def check_author(self, event: Event) -> None:
        """Raise Refused where one more event exceeds the limit of its author."""
        own = self.by_author.get(event.author, Count()).weight
        if own >= AUTHOR_CONTROL_MAX and self._counts(event)[1] and not self._is_first_vote(event):
            raise Refused(why="too many membership events")

    def check(self, event: Event, sender: str = "") -> None:
        """Raise Refused where an event that does not exceed the limit of its author in its own past exceeds one here.
        `sender`: the member that it comes from, if not its author."""
        if self._is_relayed(event.author, sender):
            return
        self.check_author(event)
        in_all, by_author = self._counts(event)
        own, reserve = self.by_author.get(event.author, Count()).weight, RESERVE
        if self._is_first_vote(event):
            own, reserve = self._votes.get(event.author, 0), MEMBERS_MAX
        if self._is_full(event.author, in_all, by_author) and (own >= reserve or event.author in self._late):
            raise Refused(why="too many membership events")

    def _is_relayed(self, author: str, sender: str) -> bool:
        """Whether a member that shares no branch with the author relays, while there is room for it."""
        if sender in ("", author) or self.all.present + self.all.departed >= RELAYED_MAX:
            return False
        branches = [*self._branches(author)]
        return not any(one is other for one in self._branches(sender) for other in branches)

    def _is_full(self, author: str, in_all: bool = True, by_author: bool = True) -> bool:
        full = in_all and self.all.weight >= CONTROL_MAX
        return full or (by_author and any(one.weight >= BRANCH_MAX for one in self._branches(author)))

    def check_whole(self) -> None:
        """Raise Refused where these events, none of which exceeds the limit of its author in its own past, exceed the
        limits in whatever order they came. If they were accepted one by one, in any order, they do not."""
        reserves = {did: min(own.present + own.departed, RESERVE) for did, own in self.by_author.items()}
        for did, votes in self._votes.items():
            reserves[did] = reserves.get(did, 0) + min(votes, MEMBERS_MAX)
        spare: dict[int, int] = {}
        for did, reserve in reserves.items():
            for branch in self._branches(did):
                spare[id(branch)] = spare.get(id(branch), 0) + reserve
        over = self.all.weight - sum(reserves.values()) > CONTROL_MAX
        over = over or any(own.weight > RELAYED_MAX for own in self.by_author.values())
        if over or any(one.weight - spare.get(id(one), 0) > RELAYED_MAX for one in self.by_branch.values()):
            raise Refused(why="too many membership events")

    def add(self, event: Event) -> None:
        """Count an event."""
        in_all, by_author = self._counts(event)
        if event.type == ADD and self._is_full(event.author):
            self._late.add(add_of(event).member)
        self.all.present += in_all
        if self._is_first_vote(event):
            self._votes[event.author] = self._votes.get(event.author, 0) + 1
            counts = [*self._branches(event.author)]
        else:
            counts = [self.by_author.setdefault(event.author, Count()), *self._branches(event.author)]
        for count in counts if by_author else ():
            count.present += 1
            count.depart(event.author in self._departed)
        if event.type == ADD:
            self._adders.setdefault(add_of(event).member, event.author)
        elif event.type == VOTE:
            self._free.add((VOTE, vote_of(event).member, event.author))
        elif event.type in (LEAVE, REMOVE):
            goes = event.author if event.type == LEAVE else remove_of(event).member
            self._free |= {(event.type, goes), (event.type, goes, event.author)}
            self._depart(goes)

    def _branches(self, author: str) -> Iterator[Count]:
        """The counts of all branches that this author belongs to; the founder's is none."""
        seen = set()
        while author in self._adders and author not in seen:  # an equivocator may close a cycle
            seen.add(author)
            yield self.by_branch.setdefault(author, Count())
            author = self._adders[author]

    def _depart(self, did: str) -> None:
        if did in self._departed:
            return
        self._departed.add(did)
        own = self.by_author.get(did, Count())
        events = own.present
        own.depart(events)
        for count in (self.all, *self._branches(did)):
            count.depart(events + self._votes.get(did, 0))
        adder = self._adders.get(did)
        if adder is not None and adder not in self._departed:
            for count in (self.all, self.by_author.setdefault(adder, Count()), *self._branches(adder)):
                count.depart(1)

    def _is_first_vote(self, event: Event) -> bool:
        return event.type == VOTE and (VOTE, vote_of(event).member, event.author) not in self._free

    def _counts(self, event: Event) -> tuple[bool, bool]:
        """Whether the event counts for the group, and for its author and its branches."""
        if event.type in (LEAVE, REMOVE):
            goes = event.author if event.type == LEAVE else remove_of(event).member
            return (event.type, goes) in self._free, (event.type, goes, event.author) in self._free
        return True, True


def check_in_past(event: Event, past: Mapping[str, Event]) -> None:
    """Raise Refused where an event exceeds the limit of its author in its own causal past: the same for all members, in
    whatever order events come."""
    if sum(other.author == event.author for other in past.values()) >= AUTHOR_CONTROL_MAX:
        EventQuota(sorted(past.values(), key=lambda other: (other.lamport, other.id))).check_author(event)
