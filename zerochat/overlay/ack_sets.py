"""Aggregated acknowledgements: per author and chain position, the set of members that have it, merged by union.

Counts cannot be gossiped: what arrives over two paths would count twice. Sets can: union is commutative, associative
and idempotent, so the order, the paths and the repetitions of messages do not matter (a state-based CRDT, Shapiro et
al., 2011). A set is a bitmap over the members of a view.

Acknowledgements are cumulative, so a set holds for all earlier positions too. Only a few positions of a chain have a
set: on each of `GRIDS` the newest `KEPT` multiples. The finest grid has the end of the chain; a coarser one moves on
slowly, so that its set fills up although the author goes on. A position that arrives counts on each grid for the last
multiple before it, so which positions stay depends only on what has arrived, not on the order.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from msgspec import Struct

GRIDS: Final = (1, 16, 256)
"""Distances of the positions that have a set; each divides the next."""
KEPT: Final = 2
SETS_MAX: Final = KEPT * len(GRIDS)
"""Sets of one author."""


class AckSet(Struct, frozen=True):
    """The members that are known to have an author's chain up to a position."""

    seq: int
    members: bytes
    """A bitmap by their places, the first one in the lowest bit of the first byte; without zero bytes at the end."""
    changed: int = 0
    """The number of the last change of this set, by a counter of ours."""


AckSets: TypeAlias = tuple[AckSet, ...]
"""The sets of one author, by ascending position. Each contains the next."""


def bits_of(members: bytes) -> int:
    """The bitmap as an integer."""
    return int.from_bytes(members, "little")


def bytes_of(bits: int) -> bytes:
    """The shortest bitmap."""
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


def places_of(bits: int) -> Iterator[int]:
    """The places in a set, ascending."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def holders(sets: AckSets, seq: int) -> int:
    """The members known to have the chain up to this position: the set of the first position from there on."""
    return next((bits_of(one.members) for one in sets if one.seq >= seq), 0)


def merged(sets: AckSets, seq: int, bits: int, number: int) -> AckSets:
    """The sets after the members `bits` are reported to have the chain up to `seq`; the same object if that changes
    nothing. `number`: of this change. Positions below 1 have no set."""
    if seq < 1 or not bits:
        return sets
    before = {one.seq: one for one in sets}
    found = {at: bits_of(one.members) for at, one in before.items()}
    for at in {seq - seq % grid for grid in GRIDS} - {0}:
        found.setdefault(at, holders(sets, at))
    kept = _kept(found)
    if kept == [*before] and all(found[at] | bits == found[at] for at in kept if at <= seq):
        return sets
    after = []
    for at in kept:
        now = found[at] | bits if at <= seq else found[at]
        is_same = at in before and now == found[at]
        after.append(before[at] if is_same else AckSet(at, bytes_of(now), number))
    return tuple(after)


def _kept(positions: Mapping[int, int]) -> list[int]:
    """The positions that keep a set, ascending."""
    ordered = sorted(positions)
    kept = {at for grid in GRIDS for at in [at for at in ordered if at % grid == 0][-KEPT:]}
    return [at for at in ordered if at in kept]


def distinct(sets: AckSets) -> Iterator[AckSet]:
    """The sets that say more than the next one, which they contain."""
    for place, one in enumerate(sets):
        if place + 1 == len(sets) or one.members != sets[place + 1].members:
            yield one


def moved(bits: int, places: Sequence[int | None]) -> int:
    """The set in another order of the members. `places`: by old place the new one; None: no member any more."""
    after = 0
    for old in places_of(bits):
        if old < len(places) and (new := places[old]) is not None:
            after |= 1 << new
    return after


def reordered(sets: AckSets, before: Sequence[str], after: Mapping[str, int]) -> AckSets:
    """The sets after a change of the view. `before`: the members by their old places; `after`: their new places. Takes
    time linear in the members."""
    places = [after.get(member) for member in before]
    if all(old == new for old, new in enumerate(places)):
        return sets
    return tuple(AckSet(one.seq, bytes_of(moved(bits_of(one.members), places)), one.changed) for one in sets)
