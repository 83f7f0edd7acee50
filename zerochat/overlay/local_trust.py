"""Local trust in peers (after TAPS), and weighted sampling without replacement.

TAPS weights peer sampling by trust along paths of acquaintances, which the peers send each other. UPSYCLE's variant is
kept here: trust is local and asymmetric, and never sent, so it reveals no contact and cannot be claimed. Changed:

- An entry that a source brings has the trust of the source times `DECAY` for a peer that we do not know, and our own
  trust for one that we do know: its descriptor is signed, so the bearer is no reason to trust it less.
- A stranger brought by a stranger still has `STRANGER`. The paper's product would be 0.1 * 0.1 * 0.9, below its own
  limit of 0.1, so a view among strangers, as in a channel, would stay empty.
- Verdicts of a judge subtract.

The view is drawn as by Efraimidis and Spirakis, "Weighted random sampling with a reservoir" (2006): each entry has the
key u ** (1 / weight) for a random u, and the greatest keys win.
"""

from collections.abc import Callable, Mapping
from heapq import nsmallest
from math import log
from typing import Final, TypeVar

from msgspec import Struct

VERIFIED: Final = 1.0
SAME_GROUP: Final = 0.6
FRIEND_OF_FRIEND: Final = 0.4
STRANGER: Final = 0.1
TRUST_MIN: Final = 0.1
"""Peers with less are never in a view."""
DECAY: Final = 0.9
VERDICT: Final = 0.5
"""What each verdict subtracts."""

K = TypeVar("K")


class Acquaintance(Struct, frozen=True):
    """What we know of a peer by ourselves."""

    verified: bool = False
    """Its words have been compared."""
    groups: int = 0
    """Common groups."""
    friends: int = 0
    """Common contacts, by private set intersection."""
    verdicts: int = 0
    """Verdicts of judges against it."""


def own_trust(known: Acquaintance) -> float:
    """Our trust in a peer, 0 to 1."""
    if known.verified:
        base = VERIFIED
    elif known.groups:
        base = SAME_GROUP
    else:
        base = FRIEND_OF_FRIEND if known.friends else STRANGER
    return max(0.0, base - VERDICT * known.verdicts)


def introduced(own: float, source: float) -> float:
    """The trust in an entry: ours in its subject, and ours in the source that brought it. 0: it is dropped."""
    if own < TRUST_MIN:
        return 0.0
    return max(own, source * DECAY) if own <= STRANGER else own


def weighted_sample(weights: Mapping[K, float], count: int, random: Callable[[int], bytes]) -> list[K]:
    """`count` of these keys, or all with a positive weight, each drawn in proportion to its weight."""
    able = [(key, weight) for key, weight in weights.items() if weight > 0]
    if len(able) <= count:
        return [key for key, _ in able]
    lots = random(4 * len(able))
    waits = [
        # An exponential time with this rate: in the order of u ** (1 / weight), backwards.
        (-log((int.from_bytes(lots[4 * place : 4 * place + 4], "big") + 0.5) / 2**32) / weight, place)
        for place, (_, weight) in enumerate(able)
    ]
    return [able[place][0] for _, place in nsmallest(count, waits)]
