"""Retention of signed subscription statements: which ones are deleted because no dispute can need them.

Each subscription request adds up to three statements (`group/links/rate_limits.py` limits the rate), and most
subscriptions end unused. Statements are kept as evidence: an accuser needs those by which it was owed messages, and the
accused needs its own acceptances, because it may be accused on the basis of each.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final

from msgspec import Struct

from zerochat.evidence.handshake import Accept, Close, Confirm, Request, parse_statement

CLEANUP_EVERY: Final = 192
"""Number of new statements of one member after which its statements are cleaned up."""
RECENT: Final = 4
"""The latest requests and subscriptions are always kept: messages for them may be in flight."""
SUBSCRIPTIONS_MAX: Final = 1024
"""Subscriptions kept in each direction; beyond that the oldest are deleted."""
ACCEPT_RETENTION_MS: Final = 90 * 24 * 3_600_000
"""Our acceptances are kept at least this long: without one we could not refute an accusation based on it."""


class SubscriptionStatement(Struct, frozen=True):
    """A stored signed statement about a subscription."""

    digest: str
    member: str
    """The other party's DID."""
    kind: str
    statement: bytes
    at: int
    """When it was received or made, UTC ms."""


def obsolete_statements(
    member: str, known: Sequence[SubscriptionStatement], has_messages: Callable[[str, int, int], bool], now: int
) -> set[str]:
    """The digests of the statements to delete. `known`: the stored statements with a member, in order of arrival;
    `has_messages(alias, after, upto)`: whether the member has sent a message in this stream in that time (UTC ms, its
    clock). `now`: UTC ms."""
    parsed = [parse_statement(each.statement) for each in known]
    at = {each.digest: each.at for each in known}
    theirs = [each for each in parsed if isinstance(each, Accept) and each.publisher == member]
    ours = [each for each in parsed if isinstance(each, Accept) and each.publisher != member]
    accepted = {each.request for each in theirs}
    requests = [each.digest for each in parsed if isinstance(each, Request) and each.publisher == member]
    obsolete = {digest for digest in requests[:-RECENT] if digest not in accepted}
    ended = _unused(theirs, has_messages)
    theirs = [each for each in theirs if each not in ended]
    ended += theirs[:-SUBSCRIPTIONS_MAX]
    ended += [each for each in ours[:-SUBSCRIPTIONS_MAX] if at[each.digest] < now - ACCEPT_RETENTION_MS]
    following: defaultdict[str, list[str]] = defaultdict(list)
    for each in parsed:
        if isinstance(each, Confirm | Close):
            following[each.accept].append(each.digest)
    for accept in ended:
        obsolete |= {accept.digest, accept.request, *following[accept.digest]}
    return obsolete


def _unused(theirs: Iterable[Accept], has_messages: Callable[[str, int, int], bool]) -> list[Accept]:
    """The subscriptions without messages before the next one began, which covers all later messages."""
    accepts = list(theirs)
    in_order = sorted(accepts, key=lambda each: (each.time, each.digest))  # the order of `disputes/case_files.py`
    recent = {each.digest for each in (*accepts[-RECENT:], *in_order[-RECENT:])}
    return [
        each
        for each, later in pairwise(in_order)
        if each.digest not in recent and not has_messages(each.alias, each.time, later.time)
    ]
