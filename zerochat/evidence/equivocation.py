"""Two messages of one publisher that cannot both stand in an honest stream, found by their bytes.

Which of them was kept first, or taken in, makes no difference to the judge (E1 and E2): both are signed.
"""

from typing import Final, Literal, TypeAlias

from msgspec import Struct

TIME, PUBLISHER, ALIAS = slice(0, 8), slice(8, 40), slice(40, 56)
BEFORE, SIGNATURE = slice(-128, -64), slice(-64, None)
"""Where these stand in a message (`messages.py`); two times compare as their bytes do."""
FORK: Final = "fork"
"""Two messages in one place (E1)."""
CLOCK: Final = "clock"
"""A message that is not later than the one before it (E2)."""
Says: TypeAlias = Literal["fork", "clock"]


class Pair(Struct, frozen=True):
    """What convicts a publisher; of a time that went back, `one` is the message before the `other`."""

    says: Says
    one: bytes
    other: bytes


def contradiction(one: bytes, other: bytes) -> Pair | None:
    """What these two messages convict their publisher of; None: they may both be. Their signatures are not checked
    here."""
    if one == other or (one[PUBLISHER], one[ALIAS]) != (other[PUBLISHER], other[ALIAS]):
        return None
    if one[BEFORE] == other[BEFORE]:
        return Pair(FORK, one, other)
    for first, then in ((one, other), (other, one)):
        if first[SIGNATURE] == then[BEFORE] and then[TIME] <= first[TIME]:
            return Pair(CLOCK, first, then)
    return None
