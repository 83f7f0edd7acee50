"""Rate limits by token bucket: per member, per inviter of ours, and per invitation for unauthenticated joiners.

A member has three buckets: envelopes, bytes, and *work*, the processor time that its messages cause here. Some messages
cost far more than their length says: a history request makes us read and encrypt, a membership event may make us
resolve the whole view. The work is estimated and charged before it is done. Every envelope is work, so those of a
member that has none left are dropped unopened.

A *branch* has two more, for the membership events that its members bring, their own or relayed: one for all of them,
and one that is refilled slowly for those of authors that are proven to equivocate, and those that exceed the limits
(`membership/quota.py`). A branch is a member with all who came in through it, seen from our own place in the tree of
admissions: it begins below the founder or below a member through whom we came in. So a member gets no second share for
the Sybils that it adds, and members that came in through the same one as we do not share theirs. Nor do those of a
branch with more than a quarter of the members: it divides into the branches of those that its first member has added.
The founder has no such limit. The shares are small, so that members that are told different events have those of each
other before they have accepted many.

On the ring members bring the messages of others. There each author has an account, though it is no peer: it pays for
what it has signed, its bearer for what no member has signed, and for what is here already.

A dropped envelope is not lost: its author retransmits unacknowledged events, ever more slowly. A member with that much
data gets it through at a pace at which the others are still served. Joiners retry as well.
"""

from collections import Counter
from collections.abc import Iterator

from msgspec.structs import replace

from zerochat.errors import Refused
from zerochat.group.effects import Measure
from zerochat.group.state import BranchRate, Group
from zerochat.group.state.peers import RateLimit
from zerochat.group.transaction import Transaction
from zerochat.limits import MEMBERS_MAX

ENVELOPES_PER_S, ENVELOPES_MAX = 100, 1_000
"""Sustained rate and burst of a member. An envelope contains all events of one step, so users and busy bots stay far
below."""
BYTES_PER_S, BYTES_MAX = 2 << 20, 16 << 20
WORK_US_PER_S, WORK_US_MAX = 75_000, 2_000_000
"""The sustained rate and the burst of a member. With what is dropped unopened, a member that floods takes a tenth of a
processor."""
ENVELOPE_WORK_US = 1_200
"""The work of reading, opening and committing an envelope, as measured where each is a batch of its own."""
STEP_WORK_US_MAX = 100_000
"""The most in one step, so that the agent commits and serves the others between two expensive envelopes."""
JOIN_ENVELOPES_PER_USE, JOIN_ENVELOPES_BURST = 4, 26
"""The burst under an invitation, for each of its uses and in addition: a joiner's request, its confirmation and its
join request are three envelopes, and a busy machine repeats some."""
JOIN_ENVELOPES_PER_S = 2
"""The sustained rate; for many uses half their number, as each joiner repeats itself every six seconds."""
JOIN_ENVELOPE_BYTES = 16 * 1024
"""A longer envelope counts once more for each this many bytes. A join request takes five thousand bytes."""

BRANCH_EVENTS_MAX, BRANCH_EVENT_INTERVAL_MS = 256, 1_000
"""Membership events of branches at once, divided by the number of members; each gets one more after each interval."""
EXCEEDING_MAX, EXCEEDING_REFILL_MS = 512, 3_600_000
"""The same for those that exceed the limits, or that an equivocator has signed. A branch gets its share again in this
time. More than all members accept from an equivocator before they know, so that they have each other's soon."""
LARGE_BRANCH = 4
"""A branch with more than this part of the members (a quarter) divides into its branches."""
EQUIVOCATOR_COST = 8
"""An event that an equivocator brings itself counts so often, so that it is slowed more than those that relay."""

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
    payer = tx.payer(name, member)
    if payer is None:
        return False
    after, accepted = _spend(tx, payer.rate_limit, size)
    if after is not payer.rate_limit:
        tx.update_payer(name, member, rate_limit=after)
    return accepted


def is_exhausted(tx: Transaction, name: str, member: str) -> bool:
    """Whether a member exceeds its rate limit already, so that not even looking at its envelope is worth it."""
    payer = tx.payer(name, member)
    return payer is None or not _spend(tx, payer.rate_limit, 0)[1]


def spend_inviter_envelope(tx: Transaction, link: bytes, size: int) -> bool:
    """Count an envelope of this many bytes from the inviter of our join on this link; False when it exceeds the rate
    limit, which is that of a member."""
    join = tx.agent.joins[link]
    after, accepted = _spend(tx, join.rate_limit, size)
    if after is not join.rate_limit:
        tx.update_agent(joins={**tx.agent.joins, link: replace(join, rate_limit=after)})
    return accepted


def _spend(tx: Transaction, one: RateLimit, size: int) -> tuple[RateLimit, bool]:
    """The buckets after an envelope of this many bytes, and whether they allow it. A rejected one changes nothing, and
    so costs no write."""
    if not one.at <= tx.now:  # the clock has been set back
        one = replace(one, at=tx.now)
    passed, work = tx.now - one.at, _work_left(tx, one)
    envelopes = min(ENVELOPES_MAX, one.envelopes + passed * ENVELOPES_PER_S // 1000)
    room = min(BYTES_MAX, one.bytes + passed * BYTES_PER_S // 1000)
    if envelopes <= 0 or room <= 0 or work <= 0:
        tx.emit(Measure("throttled"))
        return one, False
    work -= ENVELOPE_WORK_US
    return replace(one, envelopes=envelopes - 1, bytes=room - size, at=tx.now, work=work, work_at=tx.now), True


def refund_envelope(tx: Transaction, name: str, member: str, size: int) -> None:
    """Undo counting an envelope of this many bytes: we had requested its content."""
    peer = tx.payer(name, member)
    if peer is not None:
        one = peer.rate_limit
        envelopes, room = min(ENVELOPES_MAX, one.envelopes + 1), min(BYTES_MAX, one.bytes + size)
        tx.update_payer(name, member, rate_limit=replace(one, envelopes=envelopes, bytes=room))
        settle_work(tx, name, member, -ENVELOPE_WORK_US)


def charge_bytes(tx: Transaction, name: str, member: str, size: int) -> None:
    """Count additional bytes: what an envelope contained after decompression."""
    peer = tx.payer(name, member)
    if peer is not None:
        tx.update_payer(name, member, rate_limit=replace(peer.rate_limit, bytes=peer.rate_limit.bytes - size))


def charge_work(
    tx: Transaction, name: str, member: str, cost_us: int, step_us_max: int = STEP_WORK_US_MAX, size: int = 0
) -> None:
    """Charge a member for work that is about to be done for it, in us, and count additional bytes (`charge_bytes`).
    Raises TooMuchWork if it has none left, or has caused `step_us_max` in this step; a single expensive piece may
    overdraw both."""
    peer = tx.payer(name, member)
    if peer is None:
        return
    left = _work_left(tx, peer.rate_limit)
    if left <= 0 or tx.work_us >= step_us_max:
        tx.emit(Measure("throttled"))
        raise TooMuchWork
    tx.work_us += cost_us
    more = peer.rate_limit.bytes - size
    tx.update_payer(name, member, rate_limit=replace(peer.rate_limit, bytes=more, work=left - cost_us, work_at=tx.now))


def settle_work(tx: Transaction, name: str, member: str, more_us: int) -> None:
    """Correct an estimate: `more_us` (less, if negative) has been spent than was charged."""
    peer = tx.payer(name, member)
    if peer is not None:
        left = min(WORK_US_MAX, _work_left(tx, peer.rate_limit) - more_us)
        tx.update_payer(name, member, rate_limit=replace(peer.rate_limit, work=left, work_at=tx.now))


def charge_inviter_work(tx: Transaction, link: bytes, cost_us: int) -> None:
    """Charge the inviter of our join on this link for work, in us, as a member. Raises TooMuchWork if it has none
    left."""
    if _work_left(tx, tx.agent.joins[link].rate_limit) <= 0:
        tx.emit(Measure("throttled"))
        raise TooMuchWork
    tx.work_us += cost_us
    settle_inviter_work(tx, link, cost_us)


def settle_inviter_work(tx: Transaction, link: bytes, cost_us: int) -> None:
    """Count work that the inviter of our join on this link has caused, us."""
    join = tx.agent.joins[link]
    limit = replace(join.rate_limit, work=_work_left(tx, join.rate_limit) - cost_us, work_at=tx.now)
    tx.update_agent(joins={**tx.agent.joins, link: replace(join, rate_limit=limit)})


def _work_left(tx: Transaction, one: RateLimit) -> int:
    if not 0 < one.work_at <= tx.now:  # never charged, or the clock has been set back
        return WORK_US_MAX
    return min(WORK_US_MAX, one.work + (tx.now - one.work_at) * WORK_US_PER_S // 1000)


def spend_statement(tx: Transaction, name: str, member: str) -> bool:
    """Count a subscription request or answer that a member has caused; False: it exceeds the limit."""
    payer = tx.payer(name, member)
    if payer is None:
        return False
    one = payer.rate_limit
    left, at = _refilled(tx, one.statements, one.statements_at, STATEMENTS_MAX, STATEMENT_INTERVAL_MS)
    if left > 0 or tx.now < one.statements_at:
        tx.update_payer(name, member, rate_limit=replace(one, statements=max(0, left - 1), statements_at=at))
    return left > 0


def spend_move(tx: Transaction, name: str, member: str) -> bool:
    """Count a change of a member's addresses; False: it exceeds the limit, and counts when it is repeated later."""
    one = tx.peer(name, member).rate_limit
    left, at = _refilled(tx, one.moves, one.moves_at, MOVES_MAX, MOVE_INTERVAL_MS)
    if left > 0 or tx.now < one.moves_at:
        tx.update_payer(name, member, rate_limit=replace(one, moves=max(0, left - 1), moves_at=at))
    return left > 0


def spend_branch_event(tx: Transaction, name: str, member: str, *, exceeding: int = 0) -> bool:
    """Count a membership event that a member brings, for its branch; False: it must come again later. `exceeding`: how
    often it counts in the bucket of those that exceed the limits; 0: it goes by the other one."""
    group = tx.group(name)
    branch = _branch_of(group, member)
    if not branch:
        return True
    rates = {
        did: one for did, one in group.links.branch_rates.items() if tx.now < max(one.full_at, one.exceeding_full_at)
    }
    rate = rates.get(branch, BranchRate())
    share = max(1, (EXCEEDING_MAX if exceeding else BRANCH_EVENTS_MAX) // max(1, len(group.view.members)))
    interval_ms = EXCEEDING_REFILL_MS // share if exceeding else BRANCH_EVENT_INTERVAL_MS
    last = tx.now + share * interval_ms
    full_at = max(tx.now, min(last, rate.exceeding_full_at if exceeding else rate.full_at))
    full_at += min(max(1, exceeding), share) * interval_ms
    if full_at > last:
        tx.emit(Measure("throttled"))
        return False
    rate = replace(rate, exceeding_full_at=full_at) if exceeding else replace(rate, full_at=full_at)
    tx.update_links(name, branch_rates={**rates, branch: rate})
    return True


def _branch_of(group: Group, member: str) -> str:
    """The member with which the branch of this one begins, seen from us; empty for the founder."""
    path, ours = [*_admitters(group, member)], {*_admitters(group, group.me)}
    if len(path) == 1 and group.view.known(member) is not None:
        return ""
    members = group.view.members
    sizes = Counter(did for one in members for did in _admitters(group, one))
    small = (did for did in reversed(path) if did not in ours and sizes[did] * LARGE_BRANCH <= len(members))
    return next(small, member)


def _admitters(group: Group, did: str) -> Iterator[str]:
    """A member, the one that added it, the one that added that, and so on to the founder."""
    for _ in range(len(group.view.members) + len(group.view.former)):  # an equivocator may close a cycle
        yield did
        known = group.view.known(did)
        if known is None or known.added_by is None:
            return
        did = known.added_by


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
