"""Modes: how one message becomes the envelopes that a group needs, and back again.

A mode is what a group picked as its *keys*, and a value without state. Pairwise keys have none beside the
relationships; sender keys stand in the group's (`streams/`).
"""

from collections.abc import Mapping

from zerochat.group.key_modes.mode import Mode, Place, Reader, Sealed
from zerochat.group.key_modes.pairwise import PairwiseMulti, PairwiseSingle
from zerochat.group.key_modes.sender_key import SenderKey

__all__ = ["MODES", "Mode", "Place", "Reader", "Sealed"]

MODES: Mapping[str, Mode] = {mode.name: mode for mode in (PairwiseMulti(), PairwiseSingle(), SenderKey())}
"""Every kind of keys by the name that a group's genesis event gives."""
