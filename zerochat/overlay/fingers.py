"""Fingers: a few links to dissimilar peers, which keep clusters of one interest connected.

Clusters by similarity have few links between them, and those are weak bridges: they go away with single peers. As the
long-range links of a small world do, fingers lead out of the cluster. Changed beside the usual rule, the least similar
peer of the whole stream: a finger is the least similar of `CHOICES` peers of the uniform sample. Filters can be made
dissimilar to everyone, and by the usual rule their owners would be the fingers of all; by this one they are at most
`CHOICES` times their fair share.
"""

from collections.abc import Callable, Iterable
from typing import Final

from zerochat.overlay.blip import is_plausible, similarity
from zerochat.overlay.cyclon import Descriptor
from zerochat.overlay.forwarding import sample

FINGERS: Final = 6
CHOICES: Final = 4
REFRESH_MS: Final = 60_000
"""Between two calls of `refreshed`: the oldest finger is replaced."""


def refreshed(
    fingers: tuple[Descriptor, ...], own: int, sampled: Iterable[Descriptor], random: Callable[[int], bytes]
) -> tuple[Descriptor, ...]:
    """The fingers, oldest first, after one was added and, if there are too many, the oldest dropped. `own`: our
    true filter; `sampled`: live peers of the uniform sample."""
    held = {one.peer for one in fingers}
    able = [one for one in sampled if one.peer not in held and is_plausible(one.filter)]
    some = sample(able, CHOICES, random)
    if not some:
        return fingers
    best = min(some, key=lambda one: (similarity(own, one.filter), one.peer))
    return (*fingers, best)[-FINGERS:]
