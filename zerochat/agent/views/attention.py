"""What a person should know of the agent, in one sentence: the most urgent of what there is."""

import os
import time
from pathlib import Path
from typing import Final

CLOCKS_DIFFER: Final = (
    "Somebody's messages come from more than five minutes in the future: the clock of this machine is behind, or theirs"
    " is ahead. They are kept back, not lost, until the clocks agree."
)
CLOCKS_S: Final = 120.0
"""An author repeats at least every half minute, so two minutes without one mean that it is over."""
CLOCK_SET: Final = (
    "The clock of this machine was set {by} while zerochat was running, and no member has confirmed the new time."
    " Your messages are dated by the old one until somebody does."
)
OLDER_COPY: Final = (
    "This is an older copy of the profile, from a backup say, and others may have more of your own messages than it"
    " has. You can write again in a group when all its members have told what they have of you; where one of them is"
    " gone for good, `resume` goes on without."
)
SHUT_OUT: Final = (
    "Somebody has sent so much that had to be refused that nothing is heard from there for ten minutes. `zerochat"
    " locate log` names the file that says since when."
)
LITTLE_ROOM: Final = (
    "The disk has only {free} MB left. What you say is kept there until everybody has it; when it is full, nothing more"
    " is taken in or sent."
)
ROOM_MIN: Final = 100 << 20
"""Bytes. A busy group writes some megabytes a day, so this is time enough to make room."""
ROOM_LOOK_S: Final = 30.0


class Attention:
    """Remembers what there is to say, as long as it is worth saying."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the journal is."""
        self.fault = ""
        """Why the last turn could not be remembered, if that is so."""
        self._folder = folder
        self._clocks_until = 0.0
        self._looked, self._room = -ROOM_LOOK_S, ROOM_MIN

    def failed(self, fault: str) -> None:
        """A turn could not be remembered. Smaller ones may still be, so how much room there is matters from now on."""
        self.fault, self._looked = fault, -ROOM_LOOK_S

    def clocks_differ(self) -> None:
        """Somebody's clock is ahead of ours, or ours is behind."""
        self._clocks_until = time.monotonic() + CLOCKS_S

    def sentence(self, *, older: bool, shut_out: bool, leap_ms: int = 0) -> str:
        """`older`: others have more of what we have said than we have. `shut_out`: a peer is not heard for a while.
        `leap_ms`: by how much our clock was set, where nobody has agreed with it since."""
        now = time.monotonic()
        if self.fault:
            return self.fault
        if now < self._clocks_until:
            return CLOCKS_DIFFER
        if leap_ms:
            return CLOCK_SET.format(by=_lead(leap_ms))
        if older:
            return OLDER_COPY
        if now >= self._looked + ROOM_LOOK_S:
            self._looked, self._room = now, self._free()
        if self._room < ROOM_MIN:
            return LITTLE_ROOM.format(free=self._room >> 20)
        return SHUT_OUT if shut_out else ""

    def _free(self) -> int:
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return ROOM_MIN
        return disk.f_bavail * disk.f_frsize


def _lead(ms: int) -> str:
    """How far forward or back, in the largest unit of which there is at least one and a half."""
    minutes, way = abs(ms) / 60_000, "forward" if ms > 0 else "back"
    for unit, size in (("days", 24 * 60), ("hours", 60), ("minutes", 1)):
        if minutes >= 1.5 * size:
            return f"{way} by {minutes / size:,.0f} {unit}"
    return f"{way} by 1 minute"
