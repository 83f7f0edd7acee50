"""Greedy routing of a join to a subscriber of a topic, by the filters of the neighbours.

A joiner has a link, and its inviter may be gone. It sends the topic's tag to any peer, which forwards it to the
neighbour whose BLIP filter has the most of the tag's bits; clusters of one interest make that a way uphill. Where no
filter has enough of them the join goes to a finger, out of the cluster, or else to any neighbour. It carries the peers
that it has passed (as BGP's AS path), so it never returns, and ends after `HOPS_MAX`; a subscriber answers the joiner
directly. A joiner starts several walks over different peers.

Tags have to change daily, or peers on the way could collect a dictionary of topics; the layer above limits the rate.
"""

from collections.abc import Callable, Collection, Iterable
from typing import Final

from zerochat.overlay.blip import is_plausible, matches
from zerochat.overlay.cyclon import Descriptor
from zerochat.overlay.forwarding import sample

HOPS_MAX: Final = 7
MATCH_MIN: Final = 0.75
"""The part of the tag's bits that a filter must have to be a lead."""
WALKS: Final = 4


def next_hop(
    tag: bytes,
    neighbours: Iterable[Descriptor],
    fingers: Iterable[Descriptor],
    passed: Collection[str],
    random: Callable[[int], bytes],
) -> str | None:
    """The peer that a join goes to; None: it ends here. `passed`: those that have had it, with us."""
    if len(passed) > HOPS_MAX:
        return None
    able = {one.peer: one for one in (*fingers, *neighbours) if one.peer not in passed}
    ranked = {peer: matches(one.filter, tag) for peer, one in able.items() if is_plausible(one.filter)}
    best = max(ranked.values(), default=0.0)
    if best >= MATCH_MIN:
        pool = [peer for peer, part in ranked.items() if part == best]
    else:
        pool = [one.peer for one in fingers if one.peer in able] or list(able)
    return next(iter(sample(pool, 1, random)), None)
