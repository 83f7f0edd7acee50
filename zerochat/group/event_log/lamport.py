"""The hybrid Lamport clock: UTC milliseconds, raised above every timestamp that the author has read.

A timestamp grows along every causal path, agrees with the wall clock otherwise, and sorts a conversation identically at
every member (`sort_key`). It is the clock of the thesis, section 7.3, with milliseconds and bounds.
"""

from operator import attrgetter
from typing import Final

from zerochat.errors import Refused
from zerochat.group.transaction import Transaction

SORT_FIELDS: Final = ("lamport", "author", "id")
"""The sort order of a conversation, here and in the journal."""
sort_key = attrgetter(*SORT_FIELDS)
"""The position of an event, or of its row in a log, in that order: smaller is shown above."""
AHEAD_MS_MAX = 5 * 60 * 1000
"""How far a peer's timestamp may run ahead of our clock. Without a bound one member could exhaust the clock of all;
five minutes exceed the usual drift of unsynchronised laptops."""


def is_older(at: int, known: int, now: int) -> bool:
    """Whether a member wrote this state before the known one, by the times of its own clock (UTC ms). One from a time
    when that clock was far ahead does not outrank those that follow its correction."""
    return at < known and not at <= now + AHEAD_MS_MAX < known


CONFIRMATIONS: Final = 2
"""How many members must confirm the new time after a change of our clock."""


def tick(latest: int, now: int) -> int:
    """The timestamp of a new event after everything up to `latest` was read. Both in UTC milliseconds."""
    return max(now, latest + 1)


class AheadOfTime(Refused):
    """An event is dated more than five minutes in the future: its author's clock is wrong, or ours is."""


def check_not_ahead(lamport: int, now: int) -> None:
    """Raise AheadOfTime for a peer's timestamp that is further ahead than `AHEAD_MS_MAX`.

    Measured against our clock alone: measured against the latest event, each accepted event would move the bound.
    Nothing is lost: an unacknowledged event is retransmitted, and accepted once the clocks agree.
    """
    if lamport > now + AHEAD_MS_MAX:
        raise AheadOfTime


def confirm_clock(tx: Transaction, member: str, at: int) -> None:
    """A member reports its time (UTC ms), as every `sync` does. After a clock change of ours, it confirms the new time
    if its own is nearer to that than to the continued one. The new time is adopted when two members have confirmed it,
    as one may lie; where there is one other member, when it has."""
    if not tx.agent.clock_offset_ms or abs(at - tx.context.now) >= abs(at - tx.now):
        return
    confirmed = tuple(dict.fromkeys((*tx.agent.clock_confirmed_by, member)))
    others = {did for group in tx.agent.groups.values() if group.state != "left" for did in group.others}
    if len(confirmed) >= min(CONFIRMATIONS, len(others)):
        tx.update_agent(clock_offset_ms=0, clock_confirmed_by=())
    else:
        tx.update_agent(clock_confirmed_by=confirmed)
