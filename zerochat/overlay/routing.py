"""Unicast over the ring's links: the next hop on a shortest path, with path-vector loop prevention.

All members compute the same graph from the view: the ring links of every member. Each hop takes the peer that is
nearest to the recipient. So in equal views without failures the distance falls with every hop, and no loop exists.

A member knows only which of its own peers are down. Detours around them could lead back, as could different views, so
a message carries the members that it has passed (as BGP's AS path), and none of them gets it again. It ends at
`HOPS_MAX` hops, at a member without another peer, or at one that does not know the recipient; the author retransmits,
over another peer.

The distances of all pairs are computed at once, by sets of members as bits: the members within n+1 hops are those that
the neighbours have within n.
"""

from collections.abc import Callable, Collection, Container
from functools import reduce
from operator import or_
from typing import Final

from zerochat.overlay.forwarding import sample
from zerochat.overlay.ring import Ring

HOPS_MAX: Final = 10
"""Links that a message crosses. Among 1,000 members the longest of the shortest paths has 5."""


class Routes:
    """The distances between all members of a view; a snapshot of the ring. About 1 kB a member among 1,000."""

    def __init__(self, ring: Ring) -> None:
        members = ring.members
        self._bits = {member: 1 << place for place, member in enumerate(members)}
        links = [(member, ring.links(member).all) for member in members]
        within, everyone = dict(self._bits), (1 << len(members)) - 1
        self._within = [within]
        while any(reached != everyone for reached in within.values()):
            last = within
            within = {member: reduce(or_, map(last.__getitem__, near), last[member]) for member, near in links}
            if within == last:  # not connected, which no ring is
                break
            self._within.append(within)

    def __contains__(self, member: str) -> bool:
        return member in self._bits

    @property
    def diameter(self) -> int:
        """The hops of the longest of all shortest paths."""
        return len(self._within) - 1

    def distance(self, one: str, other: str) -> int | None:
        """The hops of a shortest path; None where one of both is no member."""
        if (bit := self._bits.get(other)) is None or one not in self._bits:
            return None
        return next((hops for hops, within in enumerate(self._within) if within[one] & bit), None)

    def next_hop(
        self,
        recipient: str,
        peers: Collection[str],
        passed: Container[str],
        random: Callable[[int], bytes],
        detour: int = 0,
    ) -> str | None:
        """The peer that a message for `recipient` goes to; None: there is none, and the message ends here.

        `peers`: the members that we are connected to, ring neighbours or not. `passed`: those that have had the
        message, with us. `random(n)` returns n random bytes, for the choice among peers that are equally near.
        `detour`: peers that are so many hops further than the nearest count as near, for a retransmission: a member on
        the shortest paths may drop what it should forward.
        """
        if recipient in peers and recipient not in passed and not detour:
            return recipient
        distances = {
            peer: hops for peer in peers if peer not in passed and (hops := self.distance(peer, recipient)) is not None
        }
        if not distances:
            return None
        limit = min(distances.values()) + detour
        return sample(sorted(peer for peer, hops in distances.items() if hops <= limit), 1, random)[0]
