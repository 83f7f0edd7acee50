"""The most urgent warning about the agent, as one sentence for the user."""

import os
import time
from pathlib import Path
from typing import Final

from zerochat.rpc import ReplacedPort

CLOCKS_DIFFER: Final = (
    "Messages are dated more than five minutes in the future: the clock of this machine is slow, or the sender's is"
    " fast. They are kept until the clocks agree."
)
CLOCKS_S: Final = 120.0
"""Authors retransmit at least every half minute, so two minutes without one mean that it is over."""
CLOCK_SET: Final = (
    "The clock of this machine was set {by} while zerochat was running, and too few members have confirmed it."
    " Your messages use the old time until two members do, or the only other one."
)
STALE_PROFILE: Final = (
    "This is an older copy of the profile, for example from a backup, and other members may have newer messages of"
    " yours. You can write in a group again once all its members have reported them. If one of them is gone for good,"
    " use `resume`."
)
BANNED: Final = (
    "A peer is banned for ten minutes because it sent too many refused messages. The log has details; `zerochat paths"
    " log` prints its path."
)
LOW_DISK: Final = (
    "The disk has only {free} MB left. Messages are stored until everyone has received them; when the disk is full,"
    " nothing can be sent or received."
)
PORT_REPLACED: Final = (
    "Port {port} was in use when the agent started, so it listens on port {by}: open invitations name the old port, and"
    " a router may forward only that. Free the port and restart the agent."
)
FREE_BYTES_MIN: Final = 100 << 20
"""A busy group writes some megabytes per day, so this leaves time to free space."""
DISK_CHECK_S: Final = 30.0


class Attention:
    """Selects the warning to show."""

    def __init__(self, folder: Path) -> None:
        """`folder`: where the journal is."""
        self.fault = ""
        """Why the last batch could not be committed; empty: it was."""
        self.replaced: list[ReplacedPort] = []
        """The ports on which the agent does not listen as requested."""
        self._folder = folder
        self._clocks_until = 0.0
        self._checked_at, self._free_bytes = -DISK_CHECK_S, FREE_BYTES_MIN

    def failed(self, fault: str) -> None:
        """A batch could not be committed. A smaller one may fit, so the free space is measured again."""
        self.fault, self._checked_at = fault, -DISK_CHECK_S

    def clocks_differ(self) -> None:
        """A message was dated in the future."""
        self._clocks_until = time.monotonic() + CLOCKS_S

    def sentence(self, *, stale: bool, banned: bool, leap_ms: int = 0, unsent: str = "") -> str:
        """The most urgent warning; empty: none.

        `stale`: members have newer events of ours than this profile. `banned`: a peer is banned. `leap_ms`: an
        unconfirmed step of our clock. `unsent`: why nothing can be sent; empty: it can.
        """
        now = time.monotonic()
        if self.fault:
            return self.fault
        if unsent:
            return unsent
        if now < self._clocks_until:
            return CLOCKS_DIFFER
        if leap_ms:
            return CLOCK_SET.format(by=_duration(leap_ms))
        if stale:
            return STALE_PROFILE
        if now >= self._checked_at + DISK_CHECK_S:
            self._checked_at, self._free_bytes = now, self._free()
        if self._free_bytes < FREE_BYTES_MIN:
            return LOW_DISK.format(free=self._free_bytes >> 20)
        if self.replaced:
            return PORT_REPLACED.format(port=self.replaced[0].port, by=self.replaced[0].by)
        return BANNED if banned else ""

    def _free(self) -> int:
        try:
            disk = os.statvfs(self._folder)
        except OSError:
            return FREE_BYTES_MIN
        return disk.f_bavail * disk.f_frsize


def _duration(ms: int) -> str:
    """The direction and size of a clock step, in the largest unit of which it has at least one and a half."""
    minutes, way = abs(ms) / 60_000, "forward" if ms > 0 else "back"
    for unit, size in (("days", 24 * 60), ("hours", 60), ("minutes", 1)):
        if minutes >= 1.5 * size:
            return f"{way} by {minutes / size:,.0f} {unit}"
    return f"{way} by 1 minute"
