"""What a member may have of a log, and how much of that goes into one answer: for whoever reads the log for it.

A member may have whatever is not older than the event that brought it in; of what is older, what the group's rule and
its own both allow (`Policy.history`): `none`, `all`, `last:N` posts, or what was said `since:T`. The Lamport time of an
event is in UTC milliseconds, so it tells both.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from zerochat.group.wire.event_runs import RUN_BYTES_MAX

Want = Sequence[tuple[str, int, int]]
"""Authors, and of each the places after the first number, up to the second."""


class Entry(NamedTuple):
    """An event of a log."""

    author: str
    position: int
    lamport: int
    record: bytes


def floor_of(rules: Iterable[str], joined: int, nth_post: Callable[[int, int], int]) -> int:
    """The oldest Lamport time that a member may have events of.

    `joined`: that of the event which brought it in. `nth_post(n, joined)`: that of the n-th last post before it, 0
    where there are fewer. A rule that this version does not know allows nothing.
    """
    return max((_floor(rule, joined, nth_post) for rule in rules), default=joined)


def _floor(rule: str, joined: int, nth_post: Callable[[int, int], int]) -> int:
    kind, _, number = rule.partition(":")
    match kind:
        case "all":
            return 0
        case "last" if number.isdecimal():
            # Several may have been said at one time, and never does anybody get more than the rule gives.
            too_many = nth_post(int(number) + 1, joined)
            return too_many + 1 if too_many else 0
        case "since" if number.isdecimal():
            return min(int(number), joined)
        case _:
            return joined


def portion(entries: Iterable[Entry], want: Want, floor: int, limit: int) -> tuple[list[bytes], bool]:
    """As much of these entries as was asked for and goes into one answer, and whether there is more of it.

    Going back in time, whatever is older than `floor` is the end; it is passed over otherwise.
    """
    wanted = {author: (after, upto) for author, after, upto in want}
    records: list[bytes] = []
    size = 0
    for entry in entries:
        after, upto = wanted.get(entry.author, (0, 0))
        if after < entry.position <= upto and entry.lamport >= floor:
            size += len(entry.record)
            if len(records) == limit or (records and size > RUN_BYTES_MAX):
                return records, True
            records.append(entry.record)
    return records, False
