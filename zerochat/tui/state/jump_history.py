"""The places that a reader has left by a jump, to go back to."""

from typing import Final, NamedTuple

from zerochat.tui.state.conversation import Conversation

TRAIL_MAX: Final = 50
"""Places that one can go back to."""


class Spot(NamedTuple):
    """Where somebody was reading."""

    group: str
    event: str
    """The row at the top of the pane; empty: the end was followed."""


def spot_of(conversation: Conversation | None) -> Spot | None:
    """Where the reader of this one is."""
    if conversation is None:
        return None
    place = conversation.place
    return Spot(conversation.info.id, "" if place.following or place.key is None else place.key[2])


class Trail:
    """The places that were left by a jump, the last one last."""

    def __init__(self) -> None:
        self._spots: list[Spot] = []

    def leave(self, conversation: Conversation | None) -> None:
        """Keep where the reader of this one is."""
        self.keep(spot_of(conversation))

    def keep(self, spot: Spot | None) -> None:
        if spot is not None and (not self._spots or self._spots[-1] != spot):
            self._spots.append(spot)
            del self._spots[:-TRAIL_MAX]

    def back(self) -> Spot | None:
        return self._spots.pop() if self._spots else None
