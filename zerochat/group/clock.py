"""The hybrid Lamport clock that orders what a group says.

A timestamp is UTC milliseconds, bumped above everything that its author had read (the thesis, section 7.3, with its
one-second resolution and its missing bounds mended). So it grows along every cause, agrees with the wall clock where
nothing forces it away, and sorts a conversation the same way at every member: by (lamport, author, id).
"""

from zerochat.errors import Refused

AHEAD_MS_MAX = 5 * 60 * 1000
"""How far a peer's timestamp may run ahead of ours. Without a bound one member could use up everybody's clock; five
minutes is more than unsynchronised laptops usually differ, and few enough that an absurd time never reaches the log."""


def tick(latest: int, now: int) -> int:
    """The timestamp of a new event, after everything with `latest` was read. Both in UTC milliseconds."""
    return max(now, latest + 1)


def check(lamport: int, latest: int, now: int) -> None:
    """Refuse a peer's timestamp that is further ahead than `AHEAD_MS_MAX`.

    Measured from the later of the wall clock and of what has been read, so that a wall clock that was set back does not
    shut out a group whose time has moved on.
    """
    if lamport > max(latest, now) + AHEAD_MS_MAX:
        raise Refused(why="its clock is more than five minutes ahead of ours")
