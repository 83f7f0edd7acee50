"""When a new key is drawn for what we say in groups whose keys sign. A person may set it, within bounds."""

from typing import Final

from msgspec import Struct

MESSAGES_MAX: Final = 256
"""As many messages follow from one key (Megolm's clients take a new one after a hundred)."""
DAYS_MAX: Final = 90
REMOVALS_MAX: Final = 16
DAY_MS: Final = 24 * 3_600_000


class Rotation(Struct, frozen=True):
    """A key is replaced before our next message when any of these is reached."""

    messages: int = MESSAGES_MAX
    """So many have gone out under it, those that bring a key not counted."""
    days: int = 7
    """It is so old."""
    removals: int = 1
    """So many members have left since it was drawn, or were put out.

    With 1, nobody who has gone can open what is said afterwards. With more, whoever has gone can open it until the key
    is replaced: when so many have gone, or by one of the other two limits. We send it none of that; but a member can
    hand it the messages, or somebody who has recorded them."""
