"""The stack of reading positions before jumps."""

from typing import Final, NamedTuple

from zerochat.tui.state.conversation import Conversation

JUMPS_MAX: Final = 50
"""Maximum positions kept."""


class ReadingPosition(NamedTuple):
    """A reading position."""

    group: str
    event: str
    """Id of the top row; empty: following the end."""


def position_of(conversation: Conversation | None) -> ReadingPosition | None:
    """The reading position of a conversation."""
    if conversation is None:
        return None
    place = conversation.place
    return ReadingPosition(conversation.info.id, "" if place.following or place.key is None else place.key[2])


class JumpHistory:
    """The positions left by jumps, newest last."""

    def __init__(self) -> None:
        self._spots: list[ReadingPosition] = []

    def push_current(self, conversation: Conversation | None) -> None:
        """Push the reading position of a conversation."""
        self.push(position_of(conversation))

    def push(self, spot: ReadingPosition | None) -> None:
        if spot is not None and (not self._spots or self._spots[-1] != spot):
            self._spots.append(spot)
            del self._spots[:-JUMPS_MAX]

    def pop(self) -> ReadingPosition | None:
        return self._spots.pop() if self._spots else None
