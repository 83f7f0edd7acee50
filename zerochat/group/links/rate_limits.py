"""Rate limits by token bucket: per member, per inviter of ours, and per invitation for unauthenticated joiners.

A member has three buckets: envelopes, bytes, and *work*, the processor time that its messages cause here. Some messages
cost far more than their length says: a history request makes us read and encrypt, a membership event may make us
resolve the whole view. The work is estimated and charged before it is done.

A dropped envelope is not lost: its author retransmits unacknowledged events, ever more slowly. A member with that much
data gets it through at a pace at which the others are still served. Joiners retry as well.
"""

from msgspec.structs import replace

from zerochat.errors import Refused
from zerochat.group.effects import Measure
from zerochat.group.state.peers import RateLimit
from zerochat.group.transaction import Transaction
from zerochat.limits import MEMBERS_MAX

ENVELOPES_PER_S, ENVELOPES_MAX = 100, 1_000
"""Sustained rate and burst of a member. An envelope contains all events of one step, so users and busy bots stay far
below."""
BYTES_PER_S, BYTES_MAX = 2 << 20, 16 << 20
WORK_US_PER_S, WORK_US_MAX = 100_000, 2_000_000
"""A tenth of a processor for each member, and a burst of two seconds."""
STEP_WORK_US_MAX = 100_000
"""The most in one step, so that the agent commits and serves the others between two expensive envelopes."""
JOIN_ENVELOPES_PER_USE, JOIN_ENVELOPES_BURST = 4, 26
"""The burst under an invitation, for each of its uses and in addition: a joiner's request, its confirmation and its
join request are three envelopes, and a busy machine repeats some."""
JOIN_ENVELOPES_PER_S = 2
"""The sustained rate; for many uses half their number, as each joiner repeats itself every six seconds."""
JOIN_ENVELOPE_BYTES = 16 * 1024
"""A longer envelope counts once more for each this many bytes. A join request takes five thousand bytes."""

STATEMENTS_MAX, STATEMENT_INTERVAL_MS = 20, 5 * 60_000
"""Subscription requests and answers that a member may cause at once, and one more after each interval: up to three
signed statements are stored for each. A pair of members takes two, and one or two more when one has lost a key."""

MOVES_MAX, MOVE_INTERVAL_MS = 30, 60_000
"""Changes of a member's addresses at once, and one more after each interval. A restart of an agent behind a mediator
takes two; every `sync` repeats the last one."""


class TooMuchWork(Refused):
    """A member has caused more work than it may for now; the rest of its message was dropped."""


class RateLimited(Refused):
    """The rate limit of this invitation, or of this inviter, is exceeded; the envelope was not opened."""


def spend_envelope(tx: Transaction, name: str, member: str, size: int) -> bool:
    """Count an envelope of this many bytes; False when its sender exceeds its rate limit."""
    before = tx.peer(name, member).rate_limit
    after, accepted = _spend(tx, before, size)
    if after is not before:
        tx.update_peer(name, member, rate_limit=after)
    return accepted


def spend_inviter_envelope(tx: Transaction, link: bytes, size: int) -> bool:
    """Count an envelope of this many bytes from the inviter of our join on this link; False when it exceeds the rate
    limit, which is that of a member."""
    join = tx.agent.joins[link]
    after, accepted = _spend(tx, join.rate_limit, size)
    if after is not join.rate_limit:
        tx.update_agent(joins={**tx.agent.joins, link: replace(join, rate_limit=after)})
    return accepted


def _spend(tx: Transaction, one: RateLimit, size: int) -> tuple[RateLimit, bool]:
    """The buckets after an envelope of this many bytes, and whether they allow it."""
    passed = max(0, tx.now - one.at)
    envelopes = min(ENVELOPES_MAX, one.envelopes + passed * ENVELOPES_PER_S // 1000)
    room = min(BYTES_MAX, one.bytes + passed * BYTES_PER_S // 1000)
    accepted = envelopes > 0 and room > 0
    if accepted:
        envelopes, room = envelopes - 1, room - size
    else:
        tx.emit(Measure("throttled"))
    if accepted or passed >= 1000 // ENVELOPES_PER_S or tx.now < one.at:  # a clock may have been set back
        return replace(one, envelopes=envelopes, bytes=room, at=tx.now), accepted
    return one, accepted


def refund_envelope(tx: Transaction, name: str, member: str, size: int) -> None:
    """Undo counting an envelope of this many bytes: we had requested its content."""
    peer = tx.group(name).links.peers.get(member)
    if peer is not None:
        one = peer.rate_limit
        envelopes, room = min(ENVELOPES_MAX, one.envelopes + 1), min(BYTES_MAX, one.bytes + size)
        tx.update_peer(name, member, rate_limit=replace(one, envelopes=envelopes, bytes=room))


def charge_bytes(tx: Transaction, name: str, member: str, size: int) -> None:
    """Count additional bytes: what an envelope contained after decompression."""
    peer = tx.group(name).links.peers.get(member)
    if peer is not None:
        tx.update_peer(name, member, rate_limit=replace(peer.rate_limit, bytes=peer.rate_limit.bytes - size))


def charge_work(tx: Transaction, name: str, member: str, cost_us: int, step_us_max: int = STEP_WORK_US_MAX) -> None:
    """Charge a member for work that is about to be done for it, in us. Raises TooMuchWork if it has none left, or has
    caused `step_us_max` in this step; a single expensive piece may overdraw both."""
    peer = tx.group(name).links.peers.get(member)
    if peer is None:
        return
    left = _work_left(tx, peer.rate_limit)
    if left <= 0 or tx.work_us >= step_us_max:
        tx.emit(Measure("throttled"))
        raise TooMuchWork
    tx.work_us += cost_us
    tx.update_peer(name, member, rate_limit=replace(peer.rate_limit, work=left - cost_us, work_at=tx.now))


def settle_work(tx: Transaction, name: str, member: str, more_us: int) -> None:
    """Correct an estimate: `more_us` (less, if negative) has been spent than was charged."""
    peer = tx.group(name).links.peers.get(member)
    if peer is not None:
        left = min(WORK_US_MAX, _work_left(tx, peer.rate_limit) - more_us)
        tx.update_peer(name, member, rate_limit=replace(peer.rate_limit, work=left, work_at=tx.now))


def _work_left(tx: Transaction, one: RateLimit) -> int:
    if not 0 < one.work_at <= tx.now:  # never charged, or the clock has been set back
        return WORK_US_MAX
    return min(WORK_US_MAX, one.work + (tx.now - one.work_at) * WORK_US_PER_S // 1000)


def spend_statement(tx: Transaction, name: str, member: str) -> bool:
    """Count a subscription request or answer that a member has caused; False: it exceeds the limit."""
    one = tx.peer(name, member).rate_limit
    left, at = _refilled(tx, one.statements, one.statements_at, STATEMENTS_MAX, STATEMENT_INTERVAL_MS)
    if left > 0 or tx.now < one.statements_at:
        tx.update_peer(name, member, rate_limit=replace(one, statements=max(0, left - 1), statements_at=at))
    return left > 0


def spend_move(tx: Transaction, name: str, member: str) -> bool:
    """Count a change of a member's addresses; False: it exceeds the limit, and counts when it is repeated later."""
    one = tx.peer(name, member).rate_limit
    left, at = _refilled(tx, one.moves, one.moves_at, MOVES_MAX, MOVE_INTERVAL_MS)
    if left > 0 or tx.now < one.moves_at:
        tx.update_peer(name, member, rate_limit=replace(one, moves=max(0, left - 1), moves_at=at))
    return left > 0


def _refilled(tx: Transaction, left: int, at: int, most: int, interval_ms: int) -> tuple[int, int]:
    """A bucket that gets one more after each interval, and the time that its last interval began."""
    more = max(0, tx.now - at) // interval_ms
    left = min(most, left + more)
    on_time = left < most and tx.now >= at  # a clock may have been set back
    return left, at + more * interval_ms if on_time else tx.now


def spend_join_envelope(tx: Transaction, link: bytes, size: int) -> bool:
    """Count an envelope of this many bytes that came under the invitation on this link; False when its holders exceed
    their rate limit. Joiners cannot be distinguished before decryption, which is most of the work, so they share one
    bucket. A rejected envelope changes no state and costs no write."""
    open_ = tx.agent.invitations[link]
    one, uses = open_.rate_limit, open_.uses or MEMBERS_MAX
    passed = max(0, tx.now - one.at)
    per_s, most = JOIN_ENVELOPES_PER_S + uses // 2, JOIN_ENVELOPES_BURST + JOIN_ENVELOPES_PER_USE * uses
    more = passed * per_s // 1000
    envelopes = min(most, one.envelopes + more)
    accepted = envelopes > 0
    if accepted or tx.now < one.at:  # a clock may have been set back
        # The elapsed part of the interval is not lost, however often envelopes come.
        at = one.at + more * 1000 // per_s if one.at <= tx.now and envelopes < most else tx.now
        envelopes = max(0, envelopes - 1 - size // JOIN_ENVELOPE_BYTES) if accepted else envelopes
        open_ = replace(open_, rate_limit=replace(one, envelopes=envelopes, at=at))
        tx.update_agent(invitations={**tx.agent.invitations, link: open_})
    return accepted
