"""Detours between mediators, as the first draft of DIDComm v2 had them (`mix`) and the final specification has not.

A sender may ask its mediator to let a message wander through others before it is delivered, and to distort its size on
the way, so that who watches the network learns less. Only zerochat's mediators know that, and only those that have been
told of each other (`zerochat mediator --mix-with`). These are the decisions alone; dice come in.
"""

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from zerochat.errors import Malformed

HOP_DECAY_MAX: Final = 0.99
"""So says the draft: a chance that did not decay would let a message wander for ever."""
NOISE_BYTES_MAX: Final = 4096
"""A few times the size of a short message: enough that a size tells little, and cheap."""


class Mix(Struct, frozen=True):
    """What a sender asks of mediators that know other mediators (the draft's `mix`). Chances from 0 to 1."""

    hop_chance: float
    """That another mediator comes in between."""
    hop_decay: float = 0.5
    """What the chance is multiplied by at every such detour."""
    noise_chance: float = 0.0
    """That the size is distorted on the way to it."""

    def __post_init__(self) -> None:
        if not all(0 <= chance <= 1 for chance in (self.hop_chance, self.hop_decay, self.noise_chance)):
            raise Malformed(why="forward: a chance that is not between 0 and 1")
        force_setattr(self, "hop_decay", min(self.hop_decay, HOP_DECAY_MAX))


class Detour(Struct, frozen=True):
    """A mediator that is to come in between, with what it is to be told, and noise in bytes."""

    via: str
    mix: Mix
    noise: int


def detour(
    mix: Mix | None, nodes: Sequence[str], random: Callable[[int], bytes], noise_chance: float = 0.0
) -> Detour | None:
    """Whether another mediator comes in between, and which of `nodes`; each of them is one of ours that knows mixing.

    `noise_chance` is the mediator's own, and the greater one counts.
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
    """A number from 0 to `limit` - 1; 16 bytes leave no bias that anybody could measure."""
    return int.from_bytes(random(16), "big") % limit
