"""Anti-entropy by pull: comparing heads with random neighbours, and requesting missing messages by id.

A message names the heads that its author had. A member that has received nothing for a while asks neighbours for their
heads, requests those that it lacks and the messages that its own ones name, and so on with each message that comes,
until nothing is missing. Only the member that lacks something asks, and a neighbour only answers, so no member can
push. It is the pull of Demers et al., "Epidemic Algorithms for Replicated Database Maintenance", PODC 1987.
"""

from collections.abc import Callable, Container, Iterable
from itertools import islice

from zerochat.overlay.forwarding import sample
from zerochat.overlay.ring import Links

SILENCE_MS = 30_000
"""After this time without a new message a member asks."""
PARTNERS = 2
"""Neighbours asked in one round: the chance that all of them lack the same message is the square of a small one."""
WANTED_MAX = 64
"""Ids in one request."""


def is_due(received_at: float, asked_at: float, now: float) -> bool:
    """Whether to ask: neither a new message nor a round of ours for `SILENCE_MS`. Times in ms."""
    return now - max(received_at, asked_at) >= SILENCE_MS


def partners(links: Links, random: Callable[[int], bytes], count: int = PARTNERS) -> list[str]:
    """Whom to ask in this round: random shortcuts of the links that are up, or any links where these are too few. Ring
    neighbours are cut off together, so they are the last who can help."""
    pool = links.shortcuts if len(links.shortcuts) >= count else links.all
    return sample(list(pool), count, random)


def wanted(here: Container[str], named: Iterable[str], requested: Container[str] = ()) -> tuple[str, ...]:
    """Which ids to request, of those that a neighbour or a message names: each once that is neither here nor requested,
    at most `WANTED_MAX`."""
    missing = (one for one in dict.fromkeys(named) if one not in here and one not in requested)
    return tuple(islice(missing, WANTED_MAX))
