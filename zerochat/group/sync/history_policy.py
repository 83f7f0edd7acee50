"""History policy: which events a member may have, and how many fit one response.

A member may have everything from the event that admitted it on. Older events must be allowed by both the group's rule
and its own (`Policy.history`): `none`, `all`, `last:N` posts, or `since:T`. Lamport times are UTC milliseconds, so they
serve for both.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from zerochat.group.wire.event_runs import RUN_BYTES_MAX

Ranges = Sequence[tuple[str, int, int]]
"""Authors with a half-open range of their chain each: after, up to."""


class Entry(NamedTuple):
    """A row of the log."""

    author: str
    position: int
    lamport: int
    size: int
    """The bytes of its record."""
    key: int
    """By which its record is found."""


def oldest_allowed(rules: Iterable[str], joined: int, nth_post: Callable[[int, int], int]) -> int:
    """The lowest Lamport time of the events that a member may have.

    `joined`: that of the event that admitted it. `nth_post(n, joined)`: that of the n-th last post before it, 0 if
    there are fewer. An unknown rule allows nothing.
    """
    return max((_floor(rule, joined, nth_post) for rule in rules), default=joined)


def _floor(rule: str, joined: int, nth_post: Callable[[int, int], int]) -> int:
    kind, _, number = rule.partition(":")
    match kind:
        case "all":
            return 0
        case "last" if number.isdecimal():
            # Several posts may have one timestamp, and no member gets more than the rule allows.
            too_many = nth_post(int(number) + 1, joined)
            return too_many + 1 if too_many else 0
        case "since" if number.isdecimal():
            return min(int(number), joined)
        case _:
            return joined


def take_page(entries: Iterable[Entry], ranges: Ranges, floor: int, limit: int) -> tuple[list[Entry], bool]:
    """The requested entries that fit one response, and whether there are more. Records that do not fit are not read.

    Backwards, the first entry older than `floor` is the end; otherwise it is skipped.
    """
    bounds = {author: (after, upto) for author, after, upto in ranges}
    page: list[Entry] = []
    size = 0
    for entry in entries:
        after, upto = bounds.get(entry.author, (0, 0))
        if after < entry.position <= upto and entry.lamport >= floor:
            size += entry.size
            if len(page) == limit or (page and size > RUN_BYTES_MAX):
                return page, True
            page.append(entry)
    return page, False
