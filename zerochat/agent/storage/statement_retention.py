"""Which of the signed statements about subscriptions between us and a member are kept no longer.

Each time that somebody asks anew, three more are kept (`group/links/rate_limits.py` says how often that may be), and most of
these subscriptions come to nothing. What they are kept for is a case: whoever accuses shows those by which it was owed
something, and whoever is accused needs its own answers, whatever came of them, for it may be accused by each.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from zerochat.evidence.handshake import Accept, Close, Confirm, Request, parse_statement

LOOK_EVERY: Final = 192
"""So many statements between us and a member, and all of them are looked through."""
RECENT: Final = 4
"""The last requests, and the last subscriptions, stay in any case: something of them may be on its way."""
SUBSCRIPTIONS_MAX: Final = 1024
"""In each direction; then the oldest go."""
ANSWERS_MS_MIN: Final = 90 * 24 * 3_600_000
"""But no answer of ours goes before so long: by that a member could accuse us of what we could show otherwise."""


class Stated(Struct, frozen=True):
    """A signed statement about a subscription."""

    digest: str
    member: str
    """The other one of the two."""
    says: str
    statement: bytes
    at: int
    """When it came, or was made, UTC ms."""


def unused(member: str, known: Sequence[Stated], said: Callable[[str, int, int], bool], now: int) -> set[str]:
    """The digests of those that go. `known`: what is kept between us and a member, in the order in which it came;
    `said`: whether the member has said anything in the stream of this alias after a time, up to another (UTC ms, by its
    clock). `now`: UTC ms."""
    read = [parse_statement(one.statement) for one in known]
    at = {one.digest: one.at for one in known}
    theirs = [one for one in read if isinstance(one, Accept) and one.publisher == member]
    ours = [one for one in read if isinstance(one, Accept) and one.publisher != member]
    answered = {one.request for one in theirs}
    asked = [one.digest for one in read if isinstance(one, Request) and one.publisher == member]
    found = {digest for digest in asked[:-RECENT] if digest not in answered}
    gone = _came_to_nothing(theirs, said)
    theirs = [one for one in theirs if one not in gone]
    gone += theirs[:-SUBSCRIPTIONS_MAX]
    gone += [one for one in ours[:-SUBSCRIPTIONS_MAX] if at[one.digest] < now - ANSWERS_MS_MIN]
    about: defaultdict[str, list[str]] = defaultdict(list)
    for one in read:
        if isinstance(one, Confirm | Close):
            about[one.accept].append(one.digest)
    for accept in gone:
        found |= {accept.digest, accept.request, *about[accept.digest]}
    return found


def _came_to_nothing(theirs: Iterable[Accept], said: Callable[[str, int, int], bool]) -> list[Accept]:
    """The subscriptions in which nothing came until the next one began: what comes later is owed by that."""
    given = list(theirs)
    in_order = sorted(given, key=lambda one: (one.time, one.digest))  # as `disputes/case_files.py` takes them
    recent = {one.digest for one in (*given[-RECENT:], *in_order[-RECENT:])}
    return [
        one
        for one, later in pairwise(in_order)
        if one.digest not in recent and not said(one.alias, one.time, later.time)
    ]
