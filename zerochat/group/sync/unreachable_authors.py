"""Unreachable authors: events of members that have never reached us, fetched from others.

Only an author can announce where its chain begins for a new member; one that cannot be reached does not. So other
members are asked for its events since we joined, newest first. Where that begins, its chain begins for us; what follows
is requested like any gap (`history_requests.py`), earlier events are backfill (`backfill.py`). All of it is unconfirmed
until the author reaches us (`relayed_events.py`).

A member that has nothing for us may lie: several older members must say so before the search ends. Nor is one member
believed alone that the chain begins beyond all other claims.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from zerochat.group.backoff import Backoff
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import Event
from zerochat.group.links import mediator_mail, neighbours
from zerochat.group.membership import log_of
from zerochat.group.state import Chain, Group, PullPurpose, PullRequest, UnreachableAuthor
from zerochat.group.sync import pull_requests, ring_starts
from zerochat.group.sync.relayed_events import (
    is_past_claims,
    is_unreachable,
    is_whole_chain_ours,
    open_backfill,
    reopen_backfill,
    roll_back,
)
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX

ANSWERS = 3
"""The members that must answer before the search ends."""
RETRY_MS = 1_000
RETRY = Backoff(RETRY_MS, 60_000)


def request(tx: Transaction, name: str) -> int:
    """Make the requests that are due; returns the time until the next check in ms, 0 if no member claims more."""
    group = tx.group(name)
    authors_in_question = () if group.trust.attestation_deadline else (*group.view.members, *group.view.removed)
    authors = [did for did in authors_in_question if is_unreachable(group, did)]
    searches = {
        did: group.sync.unreachable_authors.get(did, UnreachableAuthor())
        for did in authors
        if did not in group.trust.quarantine
    }
    delays = []
    for author, search in searches.items():
        members = sources(group, author, search)
        if not members or mediator_mail.reachable(tx, name, author):
            continue
        if search.retry_at <= tx.now:
            candidates = [member for member in members if pull_requests.is_source(tx, name, member)]
            linked = [member for member in candidates if not mediator_mail.goes_by_mail(tx, name, member)] or candidates
            if linked:
                target = linked[tx.context.random(1)[0] % len(linked)]
                upto = max(group.dcgka.early_end(author), _claimed_seq(group, author, target))
                ranges = [(author, _request_after(group, author, target), upto)]
                pull_requests.send(
                    tx, name, target, ranges, RUN_EVENTS_MAX, backwards=True, purpose=PullPurpose.UNREACHABLE_AUTHOR
                )
            delay = RETRY.delay_ms(search.tries)
            searches[author] = search = replace(search, tries=search.tries + 1, retry_at=tx.now + delay)
        delays.append(max(RETRY_MS, search.retry_at - tx.now))
    searches = {did: search for did, search in searches.items() if search != UnreachableAuthor()}
    if not group.trust.attestation_deadline and searches != group.sync.unreachable_authors:
        tx.update_sync(name, unreachable_authors=searches)
    return min(delays, default=0)


def sources(group: Group, author: str, search: UnreachableAuthor) -> list[str]:
    """The members that claim more of this chain than their last answer covered, and than enough others answered for. On
    the ring any may have what we have but cannot open."""
    here = group.dcgka.early_end(author)
    claims = {did: max(here, _claimed_seq(group, author, did)) for did in group.links.peers if did != author}
    # Newer members need not have it.
    answered = [height for did, height in search.answered_upto.items() if not is_whole_chain_ours(group, did)]
    return [
        did
        for did, upto in claims.items()
        if upto > max(search.answered_upto.get(did, 0), _request_after(group, author, did))
        and sum(height >= upto for height in answered) < ANSWERS
    ]


def has_sources(group: Group, author: str) -> bool:
    """Whether a member may still have something that this author has sent since we joined."""
    return bool(sources(group, author, group.sync.unreachable_authors.get(author, UnreachableAuthor())))


def _claimed_seq(group: Group, author: str, member: str) -> int:
    """How far this member claims to have the valid part of the chain."""
    known = group.view.known(author)
    acked = group.links.acked(member, author)
    return acked if known is None or known.until is None else min(acked, known.until)


def _request_after(group: Group, author: str, member: str) -> int:
    """After which place this member is asked for the chain."""
    chain = group.chain(author)
    if is_past_claims(group, author) and member != chain.relayed_by:
        return 0
    return max(chain.seq, _signed_before_us(group, author)) if neighbours.is_ring(group) else chain.seq


def _signed_before_us(group: Group, author: str) -> int:
    """The place of the author's last membership event from before we joined: what is earlier is not sought here."""
    me = group.view.known(group.me)
    signed = log_of(group.control).by_author.get(author, ())
    return max((event.seq for event in signed if me is not None and event.lamport < me.joined), default=0)


class Unusable(Exception):
    """Events whose dependencies are unknown: they cannot begin a chain."""


def begin_chain(tx: Transaction, name: str, member: str, author: str, events: Sequence[Event]) -> None:
    """Begin the author's chain with these events, or continue it. Raises RemoteError or Unusable."""
    group = tx.group(name)
    if not events:
        if neighbours.is_ring(group):  # what it has sent before is history
            reopen_backfill(tx, name, author)
        return
    if is_past_claims(group, author) and member != group.chain(author).relayed_by:
        roll_back(tx, name, author)
    chain = tx.group(name).chain(author)
    if events[0].seq != chain.seq + 1:
        detached = chain.detached or chain.confirmed is not None
        since = events[0].seq - 1
        is_ring = neighbours.is_ring(group)
        chain_start = ring_starts.begun_in(group, author, since) if is_ring else Chain.relayed(since, detached=detached)
        tx.update_chain(name, author, chain_start)
    for event in events:
        receiving.receive_relayed(tx, name, member, event)
    if tx.group(name).chain(author).seq < events[0].seq:
        raise Unusable
    open_backfill(tx, name, author)


def receive(tx: Transaction, name: str, member: str, request: PullRequest, events: Sequence[Event]) -> None:
    """Process a member's answer about an unreachable author."""
    ((author, _, upto),) = request.ranges
    group = tx.group(name)
    me = group.view.members.get(group.me)
    if me is None or not is_unreachable(group, author):
        return
    relevant = sorted((event for event in events if event.lamport >= me.joined), key=lambda event: event.seq)
    try:
        with tx.attempt():
            begin_chain(tx, name, member, author, relevant)
    except Unusable:
        pass  # requested again
    else:
        group = tx.group(name)
        search = group.sync.unreachable_authors.get(author, UnreachableAuthor())
        # On the ring others are asked as well: an empty answer of one that has claimed nothing says nothing.
        is_claimed = _claimed_seq(group, author, member) >= upto or not neighbours.is_ring(group)
        answered = {did: upto for did, upto in search.answered_upto.items() if did in group.links.peers} | {
            member: upto if is_claimed else 0
        }
        if relevant or is_claimed:
            search = replace(search, tries=0, retry_at=tx.now)
        tx.update_sync(
            name,
            unreachable_authors={
                **group.sync.unreachable_authors,
                author: replace(search, answered_upto=answered),
            },
        )
    tx.set_timer(TimerKind.GAPS, name, RETRY_MS, if_unset=True)
