"""Quotas on membership events: by author, and by branch of the tree of admissions.

All membership events are kept for good and given to every joiner, so each costs every member work and memory. A limit
for the group alone would let one member use it up with the events of members that it has added itself (a Sybil attack),
and close the group to all others. So an event counts for its author and for each member through whom its author
came in, except the founder, through whom all came in: the *branches* that it belongs to. A member that only the founder
is above therefore spends its own branch, however many members it adds.

- A full branch does not silence its members: each may create a few events more (`RESERVE`), and vote about each other
  member, so that an honest member of a branch which another has filled can still admit, rename and remove. Those who
  are added meanwhile may not, or a chain of Sybils, of which each adds the next one and leaves, would have no end.
- The reserves of all members of a branch are bounded together (`RESERVED_BRANCH_MAX`), or the Sybils of one member
  would fill the group with theirs. A branch may take no more of the common reserve of the branch above it than it
  leaves there: so a member and its Sybils take at most half of what the member that has added it shares with others.
- What a member leaves behind when it has left or was removed, and the event that added it, counts a quarter. So a
  branch recovers when its members remove an abuser.
- The order of arrival decides which concurrent events are refused: an equivocator, or Sybils that tell each member
  something else, would divide the honest members for good. So an event that another member relays may exceed the
  limits here, if it is within its author's limit in its own causal past, which is the same for all: an honest member
  relays what it has accepted. That holds while the group has fewer than `RELAYED_MAX` events and, where the two share
  branches, while those have fewer than `RELAYED_BRANCH_MAX`.
- Token buckets keep the honest members together (`links/rate_limits.py`). No member accepts many events before it has
  those of the others, so all count much the same and refuse the next event of an author together; what they accepted
  apart fits into `RELAYED_MAX`. Two concurrent events of an author prove that it equivocates. From then on its events
  wait for a slow bucket, longest those that it brings itself. They wait and are not refused: others may have them.
- Limit: an accomplice relays other events of an equivocator to each member too, at the rate of an honest member that
  relays what it has accepted. So it can reach `RELAYED_MAX` in time, unless its victims remove both.
- The first leave and the first removal of a member never count: they must be possible however full the log is. A
  member's first vote about another does not count for its author, for the same reason, but for its branches. So do
  concurrent removals of one member by others: Sybils can make as many as the square of their number. A full branch
  does not prevent them before its common reserve is used up.
- Limit: a member that adds Sybils itself can use up the reserve of all that came in through it.
"""

from collections.abc import Iterable, Iterator

from zerochat.errors import Refused
from zerochat.group.event_log.event import ADD, GENESIS, LEAVE, REMOVE, VOTE, Event
from zerochat.group.membership.bodies import add_of, genesis_of, remove_of, vote_of
from zerochat.limits import MEMBERS_MAX, MEMBERS_MAX_BY_PATH

CONTROL_MAX = 4096
"""Membership events of one group, apart from the reserves."""
BRANCH_MAX = 512
"""Membership events of one branch, apart from the reserves."""
AUTHOR_CONTROL_MAX = 256
"""Membership events of one author."""
RING_ADDITIONS = MEMBERS_MAX_BY_PATH["ring"]
"""So many more on the ring, where one member may admit all others."""
RESERVE = 8
"""Events of an author that are accepted although its branch or the group is full, besides `MEMBERS_MAX` votes."""
DEPARTED_WEIGHT = 4
"""How many events of former members count as one."""
RELAYED_MAX = CONTROL_MAX * 5 // 8
"""Membership events of a group up to which relayed ones may exceed the limits. Fewer than a joiner accepts, since
checking concurrent events takes it a time in proportion to their square (`past_check.py`)."""
RELAYED_BRANCH_MAX = 2 * BRANCH_MAX
"""The same for a branch, where a member of the branch relays: Sybils relay the events of each other."""
RESERVED_BRANCH_MAX = RELAYED_BRANCH_MAX + BRANCH_MAX
"""Membership events of one branch, the reserves of its members included. More than relayed ones can use up."""
RECEIVED_MAX = DEPARTED_WEIGHT * CONTROL_MAX + MEMBERS_MAX * (RESERVE + MEMBERS_MAX)
"""Membership events of a group, and so of a welcome, apart from each member's first leave and removal: as many as
count if all are of former members, and the reserves."""


class TooManyEvents(Refused):
    """A membership event exceeds the limits, so others that do not depend on it may be accepted: {why}."""


def author_max(path: str) -> int:
    """How many membership events one author may have in a group with this path."""
    return AUTHOR_CONTROL_MAX + (RING_ADDITIONS if path == "ring" else 0)


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
        self._own_removals: dict[str, int] = {}
        """By author: its first removals of members that another one had removed."""
        self._late: set[str] = set()
        """The members that were added when their branch or the group was full."""
        self._departed: set[str] = set()
        self._path = ""
        self._free: set[tuple[str, ...]] = set()
        for event in events:
            self.add(event)

    def check_author(self, event: Event) -> None:
        """Raise Refused where one more event exceeds the limit of its author."""
        own = self.by_author.get(event.author, Count()).weight
        if own >= author_max(self._path) and self._counts(event)[1] and not self._is_first_vote(event):
            raise TooManyEvents(why="too many membership events")

    def check(self, event: Event, sender: str = "") -> bool:
        """Whether an event that does not exceed the limit of its author in its own past exceeds one here. `sender`: the
        member that it comes from, if not its author. Raises TooManyEvents where it may not."""
        try:
            self._check_limits(event)
        except TooManyEvents:
            if not self._may_exceed(event.author, sender):
                raise
            return True
        return False

    def _check_limits(self, event: Event) -> None:
        self.check_author(event)
        in_all, by_author = self._counts(event)
        if in_all and self.all.present + self.all.departed >= RECEIVED_MAX:
            raise Refused(why="too many membership events")
        if in_all and not self._has_reserve(event.author):
            raise TooManyEvents(why="too many membership events")
        own, reserve = self.by_author.get(event.author, Count()).weight, RESERVE
        if self._is_first_vote(event):
            own, reserve = self._votes.get(event.author, 0), MEMBERS_MAX
        if self._is_full(event.author, in_all, by_author) and (own >= reserve or event.author in self._late):
            raise TooManyEvents(why="too many membership events")

    def _may_exceed(self, author: str, sender: str) -> bool:
        """Whether the sender relays, while there is room for it."""
        if sender in ("", author) or self.all.present + self.all.departed >= RELAYED_MAX:
            return False
        ours = {id(one) for one in self._branches(sender)}
        return all(one.weight < RELAYED_BRANCH_MAX for one in self._branches(author) if id(one) in ours)

    def _is_full(self, author: str, in_all: bool = True, by_author: bool = True) -> bool:
        full = in_all and self.all.weight >= CONTROL_MAX
        return full or (by_author and any(one.weight >= BRANCH_MAX for one in self._branches(author)))

    def _has_reserve(self, author: str) -> bool:
        """Whether each branch of this author has used less of the reserve than the branch above it has left."""
        left = RESERVED_BRANCH_MAX
        for branch in reversed([*self._branches(author)]):
            if max(0, branch.weight - RELAYED_BRANCH_MAX) >= left:
                return False
            left = RESERVED_BRANCH_MAX - branch.weight
        return left > 0

    def check_whole(self) -> None:
        """Raise Refused where these events, none of which exceeds the limit of its author in its own past, exceed the
        limits in whatever order they came. If they were accepted one by one, in any order, they do not. Of a member
        that two have added, the order decides whose branch it belongs to, so branches are not compared."""
        reserves = {did: min(own.present + own.departed, RESERVE) for did, own in self.by_author.items()}
        for did, votes in self._votes.items():
            reserves[did] = reserves.get(did, 0) + min(votes, MEMBERS_MAX)
        over = self.all.weight - sum(reserves.values()) - sum(self._own_removals.values()) > CONTROL_MAX
        over = over or self.all.present + self.all.departed > RECEIVED_MAX
        if over or any(own.weight > RELAYED_MAX for own in self.by_author.values()):
            raise Refused(why="too many membership events")

    def add(self, event: Event) -> None:
        """Count an event."""
        if event.type == GENESIS:
            self._path = genesis_of(event).path
        in_all, by_author = self._counts(event)
        if event.type == ADD and self._is_full(event.author):
            self._late.add(add_of(event).member)
        counts = [self.all, *self._branches(event.author)] if in_all else []
        if self._is_first_vote(event):
            self._votes[event.author] = self._votes.get(event.author, 0) + 1
        elif by_author:
            counts.append(self.by_author.setdefault(event.author, Count()))
        elif in_all:
            self._own_removals[event.author] = self._own_removals.get(event.author, 0) + 1
        for count in counts:
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
            count.depart(events + self._votes.get(did, 0) + self._own_removals.get(did, 0))
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
