"""The hybrid Lamport clock that orders what a group says.

A timestamp is UTC milliseconds, bumped above everything that its author had read (the thesis, section 7.3, with its
one-second resolution and its missing bounds mended). So it grows along every cause, agrees with the wall clock where
nothing forces it away, and sorts a conversation the same way at every member (`place`).
"""

from operator import attrgetter
from typing import Final

from zerochat.errors import Refused
from zerochat.group.transaction import Turn

SORTED_BY: Final = ("lamport", "author", "id")
"""What a conversation is sorted by, here and in the journal: of whatever has one place, an author and a name."""
place = attrgetter(*SORTED_BY)
"""Where an event, or its row in a log, stands among all others: what is smaller is shown above."""
AHEAD_MS_MAX = 5 * 60 * 1000
"""How far a peer's timestamp may run ahead of ours. Without a bound one member could use up everybody's clock; five
minutes is more than unsynchronised laptops usually differ, and few enough that an absurd time never reaches the log."""


def tick(latest: int, now: int) -> int:
    """The timestamp of a new event, after everything with `latest` was read. Both in UTC milliseconds."""
    return max(now, latest + 1)


class AheadOfTime(Refused):
    """An event comes from more than five minutes in the future: its author's clock is wrong, or ours is."""


def check(lamport: int, now: int) -> None:
    """Raise AheadOfTime for a peer's timestamp that is further ahead than `AHEAD_MS_MAX`.

    Measured from our own clock alone: measured from what has been read, every accepted event would move the bound on,
    and one member could run everybody's time away. Nothing is lost: what is not acknowledged is sent again, and is
    accepted when the clocks agree.
    """
    if lamport > now + AHEAD_MS_MAX:
        raise AheadOfTime


def hear(turn: Turn, at: int) -> None:
    """A member has told what time it is for it (UTC ms), as every `sync` does. Where our clock was set: if that is
    nearer to it than to the time as it has gone on for us, the clock is right, and we go by it from now on."""
    if turn.agent.leap and abs(at - turn.moment.now) < abs(at - turn.now):
        turn.change(leap=0)
