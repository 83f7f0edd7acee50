"""Mixing: random detours through mediators and size padding (`mix` of the first DIDComm v2 draft).

A sender may request that its mediator routes a message through other mediators and pads it, against traffic analysis.
Only zerochat mediators support it, among those configured with `zerochat mediator --mix-with`. Decisions only;
randomness is a parameter.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from zerochat.errors import Malformed

HOP_DECAY_MAX: Final = 0.99
"""From the draft: without decay a message could circulate for ever."""
NOISE_BYTES_MAX: Final = 4096
"""A few times the size of a short message."""


class Mix(Struct, frozen=True):
    """Mixing parameters of a sender; probabilities from 0 to 1."""

    hop_chance: float
    """Probability of another detour."""
    hop_decay: float = 0.5
    """Factor of the probability per detour."""
    noise_chance: float = 0.0
    """Probability of padding."""

    def __post_init__(self) -> None:
        if not all(0 <= chance <= 1 for chance in (self.hop_chance, self.hop_decay, self.noise_chance)):
            raise Malformed(why="forward: a chance that is not between 0 and 1")
        force_setattr(self, "hop_decay", min(self.hop_decay, HOP_DECAY_MAX))


class Detour(Struct, frozen=True):
    """A chosen detour: the mediator, its parameters, and padding in bytes."""

    via: str
    mix: Mix
    noise: int


def detour(
    mix: Mix | None, nodes: Sequence[str], random: Callable[[int], bytes], noise_chance: float = 0.0
) -> Detour | None:
    """Decide on a detour through one of `nodes`; None: no detour.

    `noise_chance`: the mediator's own; the greater one counts.
    """
    if mix is None or not nodes or not _happens(mix.hop_chance, random):
        return None
    via = nodes[below(len(nodes), random)]
    further = replace(mix, hop_chance=mix.hop_chance * mix.hop_decay)
    noisy = _happens(max(mix.noise_chance, noise_chance), random)
    return Detour(via, further, 1 + below(NOISE_BYTES_MAX, random) if noisy else 0)


def _happens(chance: float, random: Callable[[int], bytes]) -> bool:
    return int.from_bytes(random(6), "big") / 2**48 < chance


def below(limit: int, random: Callable[[int], bytes]) -> int:
    """A uniform number below `limit`; 16 bytes make the bias negligible."""
    return int.from_bytes(random(16), "big") % limit
