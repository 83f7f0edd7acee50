"""History requests: pull missing events from members that report having them, and answer such requests.

An author retransmits unacknowledged events. If it is away or has left, others can help: every message reports how far
its sender has each chain. A member that lacks something waits a moment, asks the author if it is reachable, then one
member that has it, with backoff. Only responses to an open request are accepted. Events received this way are
unconfirmed (`relayed_events.py`).
"""

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from zerochat.didcomm.message import Message, new_id
from zerochat.errors import Malformed, Refused
from zerochat.group import retention
from zerochat.group.effects import Notify, ReadHistory
from zerochat.group.event_log import receiving
from zerochat.group.event_log.event import Event, load_event
from zerochat.group.inputs import HistoryRead
from zerochat.group.links import content_keys, mediator_mail, neighbours, outbox, rate_limits, storage_quota
from zerochat.group.membership import attestation, log_of
from zerochat.group.notifications import Gap, GapsFilled, GapState
from zerochat.group.state import Group, MissingRange, PullPurpose, PullRequest
from zerochat.group.sync import (
    acknowledgements,
    backfill,
    corroboration,
    fork_detection,
    pull_requests,
    reinstated_posts,
    relayed_events,
    unreachable_authors,
)
from zerochat.group.sync.history_policy import Ranges
from zerochat.group.sync.relayed_events import UNCONFIRMED_MAX
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX, compress_runs, read_runs, runs_of, write_runs
from zerochat.group.wire.messages import HISTORY_RESPONSE, RANGES_MAX, HistoryRequestBody, HistoryResponseBody

TRIES_MAX = 6
"""After so many requests with doubling delays a gap counts as lost; it is still requested, rarely."""
RETRY_MS, BACKGROUND_MS = 1_000, 60_000
TURN_MS, TURN_TRIES = 2_000, 12
"""On the ring, the interval of requests to one neighbour after the other, and so many of them before the backoff: a few
neighbours may drop what they should forward, and answer no request. Also for what we have but cannot open: each gets
it, unless its author has signed an end that does not exist."""
NEW_MEMBER_MS = 5_000
"""A member that has never announced its chain has mostly just joined, and is about to."""
RANGE_WORK_US, PAGE_WORK_US = 60, 4_500
"""The work of finding one range in the log, and the most of answering with one page."""
PAGE_WORK_US_MIN, EVENT_WORK_US, KIB_WORK_US = 800, 10, 12
"""The work of a page, of each event in it, and of each KiB of their records, as measured: read, packed and sent."""
RESPONSE_EVENTS_MAX = 64
"""Events in one response to a gap request; backfill allows more."""


# --- gaps -------------------------------------------------------------------------------------------------------------


def missing_ends(group: Group) -> dict[str, int]:
    """By author: the greatest reported end of its chain that is beyond ours."""
    result: dict[str, int] = {}
    for member in group.links.peers if group.sync.ahead else ():
        if member in group.view.members:
            for author, upto in reported_beyond(group, member):
                result[author] = max(upto, result.get(author, 0))
    for author, early in group.dcgka.early.items():  # on the ring, messages that we cannot open yet
        if early.end > group.chain(author).seq:
            result[author] = max(early.end, result.get(author, 0))
    for author, record in group.view.former.items():  # a member that has left has signed its last place
        if record.until is not None and author not in group.view.removed and author in group.log.chains:
            result[author] = record.until
    return {author: upto for author, reported in result.items() if (upto := _requestable_end(group, author, reported))}


def reported_beyond(group: Group, member: str) -> list[tuple[str, int]]:
    """The ends of chains beyond ours that a member has reported, and that of its own which we have refused."""
    ahead, links, peer = group.sync.ahead, group.links, group.links.peers[member]
    found = [one for one in ahead if one != member and links.acked(member, one) > group.chain(one).seq]
    if len(found) > 1:
        order = {number: place for place, number in enumerate(peer.acks.upto)}
        found.sort(key=lambda author: order[links.numbers[author]])
    ends = [(author, links.acked(member, author)) for author in found]
    if member in ahead and peer.stored.refused_upto > group.chain(member).seq:
        ends.append((member, peer.stored.refused_upto))
    return ends


def _forget_reached(tx: Transaction, name: str) -> None:
    """No member has reported more of some chains than we have by now."""
    group = tx.group(name)
    if group.sync.ahead:
        beyond = (author for member in group.links.peers for author, _ in reported_beyond(group, member))
        if (ahead := frozenset(beyond)) != group.sync.ahead:
            tx.update_sync(name, ahead=ahead)


def _requestable_end(group: Group, author: str, upto: int) -> int:
    """That end, capped by what can be meant for us; 0: nothing is missing."""
    author_record = group.view.known(author)
    if author_record is None or author == group.me or author in group.trust.quarantine:
        return 0
    upto = upto if author_record.until is None else min(upto, author_record.until)
    chain = group.chain(author)
    upto = min(upto, _announced_seq(group, author) + UNCONFIRMED_MAX)
    if chain.is_unannounced and group.trust.attestation_deadline:
        return 0
    if relayed_events.is_unreachable(group, author) and (
        author in group.view.members or not unreachable_authors.has_sources(group, author)
    ):
        return 0  # usually the author announces in a moment where its chain begins for us
    return upto if upto > chain.seq else 0


def _announced_seq(group: Group, author: str) -> int:
    """The last place that an author has announced of its chain itself, or the start of what others relayed."""
    chain = group.chain(author)
    start = chain.backfill.first - 1 if chain.backfill is not None else 0
    confirmed = chain.seq if chain.confirmed is None else chain.confirmed.seq
    return max(confirmed, start, log_of(group.control).last_seq(author))


def request_missing(tx: Transaction, name: str) -> None:
    """Request the gaps that are due."""
    _forget_reached(tx, name)
    group = tx.group(name)
    ends = missing_ends(group)
    gaps = {author: _updated_range(tx, group, author, upto) for author, upto in ends.items()}
    for author, gap in group.sync.gaps.items():
        if author not in gaps:
            tx.emit(Notify(Gap(name, author, group.chain(author).seq, gap.upto, "filled")))
    if group.sync.gaps and not gaps:
        tx.emit(Notify(GapsFilled(name, group.log.lamport, tx.now)))
    if gaps != group.sync.gaps:
        tx.update_sync(name, gaps=gaps)
    pull_requests.expire(tx, name)
    _send_requests(
        tx,
        name,
        [author for author, gap in gaps.items() if gap.retry_at <= tx.now and storage_quota.has_room(tx, name, author)],
    )
    delays = [
        max(RETRY_MS, gap.retry_at - tx.now, min(BACKGROUND_MS, storage_quota.wait_ms(tx, name, author)))
        for author, gap in tx.group(name).sync.gaps.items()
    ]
    delays += [
        wait for seek_more in (reinstated_posts.request, unreachable_authors.request) if (wait := seek_more(tx, name))
    ]
    if delays:
        tx.set_timer(TimerKind.GAPS, name, min(delays))


def _updated_range(tx: Transaction, group: Group, author: str, upto: int) -> MissingRange:
    gap = group.sync.gaps.get(author)
    if gap is None:
        state: GapState = "asked" if storage_quota.has_room(tx, group.id, author) else "held"
        tx.emit(Notify(Gap(group.id, author, group.chain(author).seq, upto, state)))
        return MissingRange(upto, since=tx.now)
    return gap if gap.upto == upto else replace(gap, upto=upto)


def _send_requests(tx: Transaction, name: str, authors: Sequence[str]) -> None:
    group = tx.group(name)
    ranges_by_member: dict[str, list[tuple[str, int, int]]] = {}
    for author in authors:
        gap = group.sync.gaps[author]
        target = _choose_peer(tx, name, author, gap)
        if target is None:
            continue  # no member that has it is free
        tries = gap.tries + 1
        doubled = tries - TURN_TRIES if neighbours.is_ring(group) else tries
        delay = BACKGROUND_MS
        if doubled < TRIES_MAX:
            delay = RETRY_MS << doubled if doubled >= 0 else TURN_MS
        group = tx.update_sync(
            name, gaps={**group.sync.gaps, author: replace(gap, tries=tries, retry_at=tx.now + delay)}
        )
        if doubled == TRIES_MAX and not group.dcgka.early_end(author):
            tx.emit(Notify(Gap(name, author, group.chain(author).seq, gap.upto, "lost")))
        if target == author:
            acknowledgements.request_missing(tx, name, author)
        else:
            ranges_by_member.setdefault(target, []).append((author, group.chain(author).seq, gap.upto))
    for member, ranges in ranges_by_member.items():
        pull_requests.send(tx, name, member, ranges[:RANGES_MAX], RESPONSE_EVENTS_MAX)


def _choose_peer(tx: Transaction, name: str, author: str, gap: MissingRange) -> str | None:
    """The next member to ask: the author for the first tries, then a random member that has the events, on the ring one
    after the other; mail last. What we have refused to an author that is reachable, it alone is asked for: others would
    pay for it with their quota."""
    group = tx.group(name)
    seq = group.chain(author).seq
    is_member = author in group.view.members
    peer = group.links.peers.get(author)
    is_refused = peer is not None and peer.stored.refused_upto > seq
    if is_member and (gap.tries < 2 or is_refused) and mediator_mail.reachable(tx, name, author):
        return author
    if is_member and not seq and tx.now < gap.since + NEW_MEMBER_MS:
        return None
    candidates = [
        member
        for member in group.links.peers
        if group.links.acked(member, author) > seq and member != author and pull_requests.is_source(tx, name, member)
    ]
    # No member reports its place in a former member's chain, and on the ring they do so late.
    if not candidates and (author not in group.view.members or group.dcgka.early_end(author)):
        candidates = [member for member in group.links.peers if pull_requests.is_source(tx, name, member)]
    linked = [member for member in candidates if not mediator_mail.goes_by_mail(tx, name, member)]
    candidates = linked or candidates
    if candidates and neighbours.is_ring(group):
        order = list(group.links.peers)
        turn = (gap.since + gap.tries) % len(order)  # members begin with different ones
        return next(member for member in order[turn:] + order[:turn] if member in candidates)
    return candidates[tx.context.random(1)[0] % len(candidates)] if candidates else None


# --- answering --------------------------------------------------------------------------------------------------------


def receive_request(tx: Transaction, name: str, member: str, message: Message, body: HistoryRequestBody) -> None:
    """A member requests history: read the log. Raises Refused."""
    group = tx.group(name)
    requester = group.view.members.get(member)
    if body.group != name or requester is None or member in group.trust.quarantine:
        raise Refused(why="a history request of another group, or from a non-member")
    if len({author for author, _, _ in body.ranges}) < len(body.ranges):
        raise Malformed(why="history request: the same chain twice")
    rate_limits.charge_work(tx, name, member, PAGE_WORK_US + RANGE_WORK_US * len(body.ranges))
    content_keys.record(tx, name, member, body.content_key)
    ranges = tuple((author, after, upto) for author, after, upto in body.ranges if group.view.known(author))
    limit = min(body.limit, RUN_EVENTS_MAX if body.backwards else RESPONSE_EVENTS_MAX)
    rules = retention.history_rules(tx, name, requester.history)
    pages = body.pages if body.backwards else 1
    tx.emit(ReadHistory(name, member, message.id, ranges, body.backwards, limit, requester.joined, rules, 0, pages))


def send_response(tx: Transaction, result: HistoryRead) -> None:
    """The log was read: send the response, and charge its real cost; the next page only if the member may cause it."""
    group = tx.agent.groups.get(result.group)
    relationship = group.links.relationships.get(result.member) if group is not None else None
    if group is None or relationship is None or not relationship.established or result.member not in group.links.peers:
        return
    withheld = attestation.withheld_events(group)
    read = list(map(load_event, result.records))
    events = retention.for_others(tx, group.id, (event for event in read if event.id not in withheld))
    events.sort(key=lambda event: (event.author, event.seq))  # consecutive events of one author are encoded compactly
    body = {"group": group.id, "more": result.more, "page": result.page, "runs": write_runs(events, group.me)}
    message = compress_runs(Message(type=HISTORY_RESPONSE, id=new_id(tx.context.random), thid=result.thread, body=body))
    outbox.send_content(tx, group.id, result.member, message)
    spent_us = PAGE_WORK_US_MIN + EVENT_WORK_US * len(read) + KIB_WORK_US * (sum(map(len, result.records)) >> 10)
    rate_limits.settle_work(tx, group.id, result.member, spent_us - PAGE_WORK_US)
    if result.more and result.page + 1 < result.pages:
        with tx.attempt():
            _read_next_page(tx, result, pull_requests.ranges_below(result.ranges, read))


def _read_next_page(tx: Transaction, result: HistoryRead, ranges: Ranges) -> None:
    """Read the page after this one. Raises Refused where the member may not have it, or not now."""
    group = tx.group(result.group)
    requester = group.view.members.get(result.member)
    if requester is None or result.member in group.trust.quarantine:
        raise Refused(why="a history request by a non-member")
    rate_limits.charge_work(tx, group.id, result.member, PAGE_WORK_US + RANGE_WORK_US * len(ranges))
    rules = retention.history_rules(tx, group.id, requester.history)
    page, pages, joined = result.page + 1, result.pages, requester.joined
    place = result.group, result.member, result.thread
    tx.emit(ReadHistory(*place, tuple(ranges), True, RUN_EVENTS_MAX, joined, rules, page, pages))


# --- receiving --------------------------------------------------------------------------------------------------------


def receive_response(tx: Transaction, name: str, member: str, message: Message, body: HistoryResponseBody) -> bool:
    """Process a response; False if its request has timed out. Raises RemoteError if there was none."""
    group = tx.group(name)
    request = group.sync.pull_requests.get(member)
    outdated = request is not None and request.backwards and (message.thid, body.page) != (request.thread, request.page)
    if body.group == name and outdated:
        backfill.on_lost_page(tx, name, member, message.thid)
        return False
    if body.group != name or request is None or message.thid != request.thread:
        raise Refused(why="a history response without a request")
    events = list(read_runs(name, runs_of(body.runs, body.packed), member))
    _check_ranges(request, events)
    pull_requests.on_response(tx, name, member, events, more=body.more)
    match request.purpose:
        case PullPurpose.COMPARE:
            fork_detection.receive_differing(tx, name, member, events)
            return True
        case PullPurpose.CORROBORATE:
            corroboration.receive(tx, name, member, events)
            return True
        case PullPurpose.UNREACHABLE_AUTHOR:
            unreachable_authors.receive(tx, name, member, request, events)
            return True
        case PullPurpose.REINSTATE:
            for event in _causal_order(events):
                receiving.receive_reinstated(tx, name, member, event)
            tx.set_timer(TimerKind.GAPS, name, RETRY_MS, if_unset=True)
            return True
    corroboration.schedule(tx, name)
    if request.backwards:
        backfill.receive_page(tx, name, member, request, events, body.more)
        return True
    for event in _causal_order(events):
        with tx.attempt():
            receiving.receive_relayed(tx, name, member, event)
    _request_rest(tx, name, request)
    return True


def _check_ranges(request: PullRequest, events: Iterable[Event]) -> None:
    """Reject events that were not requested."""
    wanted = {author: (after, upto) for author, after, upto in request.ranges}
    for event in events:
        after, upto = wanted.get(event.author, (0, 0))
        if not after < event.seq <= upto:
            raise Malformed(why="a history response with events that were not requested")


def _causal_order(events: Iterable[Event]) -> Iterator[Event]:
    """Causal order: dependencies before the events that name them, each author's in chain order."""
    return iter(sorted(events, key=lambda event: (event.lamport, event.seq, event.author)))


def _request_rest(tx: Transaction, name: str, request: PullRequest) -> None:
    """A member that sent something may have more: request the rest of these chains without the backoff."""
    group = tx.group(name)
    gaps = {}
    for author, gap in group.sync.gaps.items():
        progressed = any(did == author and group.chain(did).seq > after for did, after, _ in request.ranges)
        gaps[author] = replace(gap, tries=0, retry_at=tx.now) if progressed else gap
    tx.update_sync(name, gaps=gaps)
    tx.set_timer(TimerKind.GAPS, name, 1)
