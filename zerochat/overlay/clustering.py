"""VICINITY: semantic clustering, the view of the peers with the most similar subscriptions.

After Voulgaris and van Steen, "VICINITY: A Pinch of Randomness Brings out the Structure" (Middleware 2013): a peer
keeps the most similar of the peers that it hears of, and asks one of them for its own most similar ones; random peers
from peer sampling are candidates at both, or a cluster would never find the others like it. Changed:

- Pull only, like peer sampling: the requester shows its descriptor, and the answer is what is most similar to it.
- A peer ranks by its own true filter and the BLIP filters of others: with noise on both sides, common subscriptions
  are lost in it unless they are many. In an answer there is no other way, so half of it is what is near to ourselves.
- Similarity is multiplied with trust, as in UPSYCLE: filters are public, so an attacker can copy that of a victim.

So the view is no sample: accomplices with copied filters can take all of it. Random links and fingers stay beside it.
"""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from typing import Final

from zerochat.overlay.blip import is_plausible, similarity
from zerochat.overlay.cyclon import Descriptor, View, merged, oldest
from zerochat.overlay.forwarding import sample

VIEW: Final = 20
EXCHANGE: Final = 8
TRUST_EXPONENT: Final = 1.0
"""From 0, similarity alone, to 2, trust alone."""


def partner(cluster: View, random_view: View, rounds: int, random: Callable[[int], bytes]) -> str | None:
    """Whom to ask: in turns the oldest of the view and a random peer; None: we know no peer."""
    chosen = oldest(cluster) if rounds % 2 else None
    return chosen or next(iter(sample(list(random_view), 1, random)), None)


def score(similar: float, trust: float) -> float:
    """The rank of a candidate."""
    rank: float = max(0.0, similar) ** (2 - TRUST_EXPONENT) * trust**TRUST_EXPONENT
    return rank


def most_similar(
    own: int, candidates: Iterable[Descriptor], count: int, trust: Callable[[str], float] = lambda peer: 1.0
) -> list[Descriptor]:
    """The candidates that rank highest beside the filter `own`, best first, without those whose filter is not
    plausible."""
    ranked = (
        (-score(similarity(own, one.filter), trust(one.peer)), one.peer, one)
        for one in candidates
        if is_plausible(one.filter)
    )
    return [one for *_, one in nsmallest(count, ranked, key=lambda entry: entry[:2])]


def answer(
    requester: Descriptor, cluster: View, random_view: View, random: Callable[[int], bytes]
) -> tuple[Descriptor, ...]:
    """What to send a requester: some of our cluster, and the most similar to it of all that we know."""
    known = {peer: one for peer, one in {**random_view, **cluster}.items() if peer != requester.peer}
    half = sample([known[peer] for peer in cluster if peer in known], EXCHANGE // 2, random)
    others = [one for one in known.values() if one not in half]
    return (*half, *most_similar(requester.filter, others, EXCHANGE - len(half)))


def updated(
    me: str,
    own: int,
    cluster: View,
    received: Iterable[Descriptor],
    random_view: View,
    now: float,
    trust: Callable[[str], float] = lambda peer: 1.0,
) -> dict[str, Descriptor]:
    """The view after an answer: the best of our own entries, the received and the random ones. `own`: our true filter;
    `now` in ms."""
    known = merged(me, (cluster.values(), received, random_view.values()), now)
    return {one.peer: one for one in most_similar(own, known.values(), VIEW, trust)}
