"""Modes: how one message becomes the envelopes that a group needs, and back again.

A mode is what a group picked as its *keys*. Pairwise keys have no state beside the relationships, so a mode is a value
without any; one that has secrets of its own will keep them in the group's state.
"""

from collections.abc import Mapping

from zerochat.group.modes.mode import Mode, Place, Reader, Sealed
from zerochat.group.modes.pairwise import PairwiseMulti, PairwiseSingle

__all__ = ["MODES", "Mode", "Place", "Reader", "Sealed"]

MODES: Mapping[str, Mode] = {mode.name: mode for mode in (PairwiseMulti(), PairwiseSingle())}
"""Every kind of keys by the name that a group's genesis event gives."""
