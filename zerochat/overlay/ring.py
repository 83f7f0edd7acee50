"""Ring of members by hash, with random shortcuts (RingCast inside PolderCast; Law-Siu H-graph).

Members stand on a ring by the hash of member and group. A member links to two successors and two predecessors, which
makes dissemination certain while the ring is whole (Voulgaris and van Steen, "Hybrid Dissemination", Middleware 2007;
per topic: Setty et al., "PolderCast", Middleware 2012).

Shortcuts are the neighbours on four more rings of other hashes: a union of random Hamilton cycles, which is an expander
with high probability (Law and Siu, "Distributed Construction of Random Expander Networks", INFOCOM 2003). They follow
from the view alone, are mutual, and no member has more of them than another; a joiner or leaver changes only the links
of its own neighbours. So a member has at most `LINKS_MAX` links. Up to `MESH_MEMBERS_MAX` members the ring is the whole
mesh.
"""

import struct
from bisect import bisect_left, insort
from collections.abc import Container, Iterable, Iterator, Mapping

from msgspec import Struct

from zerochat.crypto.primitives import blake2b_keyed, sha256

MESH_MEMBERS_MAX = 24
"""Up to so many members each is linked to each."""
REACH = 2
"""Successors, and predecessors, that a member is linked to: the second one replaces a first that is down."""
SHORTCUT_RINGS = 4
LINKS_MAX = 2 * REACH + 2 * SHORTCUT_RINGS
PURPOSE = b"zerochat/ring/1"
_POSITIONS = struct.Struct(f">{1 + SHORTCUT_RINGS}Q")


def positions(member: str, group: str) -> tuple[int, ...]:
    """The positions of a member on the ring of a group and on the rings of its shortcuts: `1 + SHORTCUT_RINGS` unsigned
    integers of 64 bits, by BLAKE2b keyed with the group.

    A joiner that chooses `member` freely can try keys until it stands next to a victim. The id of the event that
    admitted the member is safer, since its inviter has a part in it."""
    return _POSITIONS.unpack(blake2b_keyed(sha256(group.encode()), PURPOSE, member.encode(), length=_POSITIONS.size))


class Links(Struct, frozen=True):
    """The links of one member; no member is in two of the tuples."""

    successors: tuple[str, ...] = ()
    """Nearest first, as `predecessors`."""
    predecessors: tuple[str, ...] = ()
    shortcuts: tuple[str, ...] = ()
    mesh: bool = False
    """Whether these are all other members; then an author sends to each of them."""

    @property
    def all(self) -> tuple[str, ...]:
        return self.successors + self.predecessors + self.shortcuts

    def without(self, down: Container[str]) -> "Links":
        """The links that remain while these members cannot be reached."""
        ways = self.successors, self.predecessors, self.shortcuts
        nexts, before, shortcuts = (tuple(one for one in way if one not in down) for way in ways)
        return Links(nexts, before, shortcuts, self.mesh)


class Ring:
    """The members of a group in ring order: an index that follows a view. Adding and discarding take a binary search
    and one insertion in each of `1 + SHORTCUT_RINGS` sorted lists."""

    def __init__(self, group: str, members: Iterable[str] = (), names: Mapping[str, str] | None = None) -> None:
        """`names`: by member, what its positions derive from instead of the member itself."""
        self.group = group
        named = names or {}
        self._positions = {member: positions(named.get(member, member), group) for member in members}
        self._rings = [
            sorted((places[ring], member) for member, places in self._positions.items())
            for ring in range(1 + SHORTCUT_RINGS)
        ]

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, member: str) -> bool:
        return member in self._positions

    @property
    def members(self) -> tuple[str, ...]:
        """In ring order."""
        return tuple(member for _, member in self._rings[0])

    def add(self, member: str) -> None:
        """Without effect on a member that is there."""
        if member not in self._positions:
            places = self._positions[member] = positions(member, self.group)
            for ring, position in zip(self._rings, places, strict=True):
                insort(ring, (position, member))

    def discard(self, member: str) -> None:
        """Without effect on a member that is not there."""
        if member in self._positions:
            for ring, position in zip(self._rings, self._positions.pop(member), strict=True):
                del ring[bisect_left(ring, (position, member))]

    def links(self, member: str) -> Links:
        """The links of a member. Raises KeyError where it is none."""
        first, *others = (self._around(ring, member) for ring in range(1 + SHORTCUT_RINGS))
        taken = {member}
        successors: list[str] = []
        predecessors: list[str] = []
        for place in range(REACH):  # nearest first, since one member may be in both directions
            for found, kept in zip(first, (successors, predecessors), strict=True):
                if found[place] not in taken:
                    taken.add(found[place])
                    kept.append(found[place])
        if mesh := len(self) <= MESH_MEMBERS_MAX:
            shortcuts = [other for _, other in self._rings[0] if other not in taken]
        else:
            near = (found[0] for ring in others for found in ring)
            shortcuts = [other for other in dict.fromkeys(near) if other not in taken]
        return Links(tuple(successors), tuple(predecessors), tuple(shortcuts), mesh)

    def onward(self, member: str, *, back: bool = False) -> Iterator[str]:
        """All other members in the order of the ring: from this one's successor on, or `back` from its predecessor.
        Raises KeyError where it is no member."""
        ring = self._rings[0]
        here, step = bisect_left(ring, (self._positions[member][0], member)), -1 if back else 1
        return (ring[(here + step * far) % len(ring)][1] for far in range(1, len(ring)))

    def in_order(self, member: str, others: Iterable[str]) -> list[str]:
        """Some other members in the order of the ring from this one on. Raises KeyError where any is no member."""
        here = self._positions[member][0], member
        places = {other: (self._positions[other][0], other) for other in others}
        return sorted(places, key=lambda other: (places[other] < here, places[other]))

    def _around(self, number: int, member: str) -> tuple[list[str], list[str]]:
        """The next and the previous `REACH` members on a ring, which has no end; in a small one the member itself."""
        ring = self._rings[number]
        here, size = bisect_left(ring, (self._positions[member][number], member)), len(ring)
        nexts = [ring[(here + step) % size][1] for step in range(1, REACH + 1)]
        return nexts, [ring[(here - step) % size][1] for step in range(1, REACH + 1)]
