"""Key modes: how one message becomes the envelopes for a group's members, and back.

A mode implements a group's choice of *keys*, and has no state. Pairwise keys are in the relationships; sender keys are
in the group's state (`signed_streams/`).
"""

from collections.abc import Mapping

from zerochat.group.key_modes.dcgka import Dcgka
from zerochat.group.key_modes.deniable import Deniable
from zerochat.group.key_modes.mode import Mode, OwnPlace, Recipient, SealedEnvelope
from zerochat.group.key_modes.pairwise import PairwiseMulti, PairwiseSingle
from zerochat.group.key_modes.sender_key import SenderKey

__all__ = ["MODES", "OFFERED", "Mode", "OwnPlace", "Recipient", "SealedEnvelope"]

MODES: Mapping[str, Mode] = {
    mode.name: mode for mode in (PairwiseMulti(), PairwiseSingle(), SenderKey(), Dcgka(), Deniable())
}
"""Every key mode by its name in the genesis event."""
OFFERED: tuple[str, ...] = tuple(MODES)
"""Those that users can choose."""
