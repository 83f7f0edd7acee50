"""Who an event is for and how many have it: counts by bisection over sorted acknowledged positions."""

from bisect import bisect_left
from functools import cached_property

from msgspec import Struct

from zerochat.group.joining.private_conversations import is_waiting
from zerochat.group.links.neighbours import is_ring
from zerochat.group.state import Group
from zerochat.group.sync.aggregation import known_upto
from zerochat.rpc import Delivery


def audience(group: Group, author: str, position: int, lamport: int) -> list[str]:
    """The other members that an event is for, in the order of joining; in a private conversation also the one that has
    not joined, by its DID in the group from which it was begun."""
    if group.private is not None and author == group.me and is_waiting(group):
        return [group.private.member]
    members, peers = group.view.members, group.links.peers
    if author == group.me and not is_ring(group):
        return [did for did in group.view.eldest if did in peers and peers[did].start_seq < position]
    return [did for did in group.view.eldest if did != author and members[did].joined < lamport]


def has(group: Group, member: str, author: str, position: int) -> bool:
    """Whether a member is known to have this event, which is in the log."""
    if member in (group.me, author):
        return True
    return known_upto(group, member, author) >= position


class _Places(Struct, frozen=True):
    """Up to where the recipients have an author's chain."""

    acked: list[int]
    """In the order in which they begin to receive; -1: the author itself."""
    ascending: list[int]
    """The same, sorted."""

    def reached(self, position: int, begun: int) -> int:
        """How many of the first `begun` have this position."""
        late = self.acked[begun:]
        return len(self.ascending) - bisect_left(self.ascending, position) - sum(position <= upto for upto in late)


class DeliveryCounts:
    """Counts of events of one state of a group. The first event of an author takes time linear in the members, each
    further one a bisection; one older than the newest members, also time linear in these."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._known: dict[str, _Places] = {}
        self._began: list[int] = []
        """Of the recipients of our own chain: the last position that each does not receive, ascending."""

    @cached_property
    def _others(self) -> list[str]:
        """The other members in the order of joining."""
        return [did for did in self._group.view.eldest if did != self._group.me]

    @cached_property
    def _joined(self) -> list[int]:
        members = self._group.view.members
        return [members[did].joined for did in self._others]

    @cached_property
    def _acked(self) -> list[dict[int, int]]:
        """What the other members have acknowledged, by the authors' numbers."""
        peers = self._group.links.peers
        return [peers[did].acks.upto if did in peers else {} for did in self._others]

    def of(self, author: str, position: int, lamport: int) -> Delivery:
        """How many recipients are known to have an event."""
        group = self._group
        if group.private is not None:
            meant = audience(group, author, position, lamport)
            return Delivery(sum(has(group, member, author, position) for member in meant), len(meant))
        if author == group.me and not is_ring(group):
            places = self._known.get(author) or self._own()
            begun = bisect_left(self._began, position)
            return Delivery(places.reached(position, begun), begun)
        places = self._known.get(author) or self._of_other(author)
        begun = bisect_left(self._joined, lamport)
        members = group.view.members
        if author == group.me:
            return Delivery(places.reached(position, begun), begun)
        mine = group.me in members and members[group.me].joined < lamport  # this profile has what is in its log
        itself = author in members and members[author].joined < lamport
        return Delivery(places.reached(position, begun) + mine, begun + mine - itself)

    def _own(self) -> _Places:
        group = self._group
        peers = ((did, peer) for did, peer in group.links.peers.items() if did in group.view.members)
        pairs = sorted((peer.start_seq, group.links.acked(did, group.me)) for did, peer in peers)
        self._began = [begin for begin, _ in pairs]
        return self._keep(group.me, [upto for _, upto in pairs])

    def _of_other(self, author: str) -> _Places:
        if is_ring(self._group):
            acked = [known_upto(self._group, did, author) for did in self._others]
        else:
            number = self._group.links.numbers.get(author, -1)
            acked = [upto.get(number, 0) for upto in self._acked]
        if author in self._group.view.members and author != self._group.me:
            acked[self._others.index(author)] = -1
        return self._keep(author, acked)

    def _keep(self, author: str, acked: list[int]) -> _Places:
        found = self._known[author] = _Places(acked, sorted(acked))
        return found
