"""Backfill: history from before we joined, fetched from the newest event back, verified by hash links.

A new member first receives live events, then requests older ones page by page, preferably from a history keeper. Each
event names its predecessor by its hash, so a page is confirmed wherever its author has sent or signed a later event;
the rest stays unconfirmed until the author speaks. The group and the invitation limit what a new member may have
(`Policy.history`); every member that answers enforces that.
"""

from collections.abc import Container, Iterable, Sequence
from itertools import groupby, takewhile

from msgspec.structs import replace

from zerochat.errors import Refused, RemoteError
from zerochat.group import retention
from zerochat.group.backoff import Backoff
from zerochat.group.effects import Measure, Notify, StoreEvent
from zerochat.group.event_log import delivery
from zerochat.group.event_log.event import Event
from zerochat.group.event_log.lamport import AHEAD_MS_MAX
from zerochat.group.event_log.signing import check_author
from zerochat.group.links import mediator_mail, neighbours, storage_quota
from zerochat.group.membership import log_of, may_post
from zerochat.group.messages.bodies import target_of
from zerochat.group.notifications import HistoryProgress
from zerochat.group.state import (
    Backfill,
    BackfillProgress,
    Chain,
    ChainPosition,
    ChainStart,
    Group,
    PullPurpose,
    PullRequest,
)
from zerochat.group.sync import aggregation, pull_requests, reinstated_posts, ring_starts, unreachable_authors
from zerochat.group.sync.relayed_events import UNCONFIRMED_MAX, contradicts_signed, is_full, signed_by
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import RUN_EVENTS_MAX
from zerochat.group.wire.messages import PAGES_MAX, RANGES_MAX

NEWEST = 2**53 - 1
"""The place of the newest event, when it is unknown."""
RETRY_MS, RETRY_MS_MAX = 1_000, 60_000
RETRY = Backoff(RETRY_MS, RETRY_MS_MAX)
WAITS_MAX, NO_PEER_MS = 5, 10_000
TRIES_MAX = 5
"""A former or absent author may have sent events that no present member stores."""
PEERS_MAX = 8
"""Up to so many members are asked three times: an answer may be lost, or a lie."""
RECHECK_MS, RECHECKS_MAX = 300_000, 8
"""A member without news may have been backfilling too: it is asked again, with doubling intervals."""


def start(tx: Transaction, name: str) -> None:
    """We have joined a group: start the backfill, if the history rules allow any."""
    group = tx.group(name)
    me = group.view.members.get(group.me)
    if me is None or group.sync.backfill is not None or "none" in (group.view.policy.history, me.history):
        return
    tx.update_sync(name, backfill=BackfillProgress())
    tx.set_timer(TimerKind.BACKFILL, name, 1)


def _incomplete_chains(group: Group) -> dict[str, Backfill]:
    """The chains with a known missing part below what we have."""
    chains_found = {}
    for author in (*group.view.members, *group.view.former):
        if author == group.me or author in group.trust.quarantine:
            continue
        chain = group.chain(author)
        if chain.backfill is not None and chain.backfill.first > 1:
            chains_found[author] = chain.backfill
        elif author not in group.log.chains and group.joining.event and _has_chain(group, author):
            until = group.view.former[author].until if author in group.view.former else None
            if until != 0:
                chains_found[author] = Backfill(NEWEST if until is None else until + 1)
    return chains_found


def _has_chain(group: Group, author: str) -> bool:
    """Whether an author that we have nothing of may have made events; on the ring, where few members are linked to it
    and many never post, whether a member reports any."""
    return not neighbours.is_ring(group) or author in group.view.former or author in group.sync.ahead


def _fetchable_chains(group: Group) -> dict[str, Backfill]:
    """Those of which we may have more, and may store more."""
    chains_found = {author: backfill for author, backfill in _incomplete_chains(group).items() if not is_full(backfill)}
    if "none" not in _rules(group):
        return chains_found
    truncated = _truncated_chains(group)
    return {author: backfill for author, backfill in chains_found.items() if author in truncated}


def remaining(group: Group) -> tuple[bool, int]:
    """Whether older events may be missing, and how many are known of."""
    chains = _incomplete_chains(group)
    return bool(chains), sum(record.first - 1 for record in chains.values() if record.first < NEWEST)


def request_page(tx: Transaction, name: str) -> None:
    """Request the next page."""
    group = tx.group(name)
    progress = group.sync.backfill
    if progress is None or group.me not in group.view.members:
        return
    pull_requests.expire(tx, name)
    _extend_by_control(tx, name)
    group = tx.group(name)
    chains = _fetchable_chains(group)
    if chains and any(one.backwards for one in tx.group(name).sync.pull_requests.values()):
        tx.set_timer(TimerKind.BACKFILL, name, RETRY_MS)
        return
    progress = _discount_lost_request(group, progress)
    if progress.done and not progress.requested_authors >= chains.keys():
        progress = progress.reopened()  # more history turned out to exist
    elif progress.done:
        recheck = _recheck(tx, group, progress) if _is_rechecked(group, chains) else None
        if recheck is None:
            return
        progress = recheck
    if not chains:
        _report(tx, name, replace(progress, done=True))
        return
    target, tries = _choose_peer(tx, name, progress), progress.tries
    if target is not None:
        progress = _send_request(tx, group, target, chains, progress)
        tx.update_sync(name, backfill=progress)
    elif progress.idle_rounds < WAITS_MAX or progress != group.sync.backfill:
        tx.update_sync(name, backfill=replace(progress, idle_rounds=min(progress.idle_rounds + 1, WAITS_MAX)))
    delay = RETRY.delay_ms(tries)
    tx.set_timer(
        TimerKind.BACKFILL,
        name,
        max(delay, NO_PEER_MS) if target is None and progress.idle_rounds >= WAITS_MAX else delay,
    )


def _is_rechecked(group: Group, chains: Iterable[str]) -> bool:
    """Whether members are asked again for these chains after all were asked in vain."""
    return any(_is_full_history(group) or group.chain(author).is_sought for author in chains)


def _recheck(tx: Transaction, group: Group, progress: BackfillProgress) -> BackfillProgress | None:
    """The next round of requests after the backfill was done; None: it is not due."""
    if progress.tries < _tries_max(group):
        return progress
    if 0 < progress.recheck_at - tx.now <= RECHECK_MS << progress.rechecks:
        tx.set_timer(TimerKind.BACKFILL, group.id, progress.recheck_at - tx.now)
        return None
    if progress.rechecks >= RECHECKS_MAX:
        return None
    tries = max(0, _tries_max(group) - min(len(group.links.peers), PEERS_MAX))
    return replace(progress, rechecks=progress.rechecks + 1, tries=tries, lost=0)


def _send_request(
    tx: Transaction, group: Group, target: str, chains: dict[str, Backfill], progress: BackfillProgress
) -> BackfillProgress:
    """Request a page from this member; returns the progress after that."""
    name, requests = group.id, _request_counts(group, progress)
    authors = _authors_to_request(chains, target, requests[target])
    ranges = [(author, 0, chains[author].first - 1) for author in authors]
    by_mail = mediator_mail.goes_by_mail(tx, name, target)
    pages = 1 if by_mail else progress.pages  # mail may be reordered
    pull_requests.send(
        tx, name, target, ranges, RUN_EVENTS_MAX, backwards=True, purpose=PullPurpose.BACKFILL, pages=pages
    )
    requests[target] += 1
    progress = replace(
        progress,
        tries=progress.tries + 1,
        thread="" if by_mail else tx.group(name).sync.pull_requests[target].thread,
        requested_authors=progress.requested_authors.union(authors),
        requests=requests,
        # No member has our view: do not wait for one again.
        idle_rounds=0 if _has_same_view(group, target) else progress.idle_rounds,
    )
    if progress.done and progress.tries >= _tries_max(group):  # the last one of this round
        progress = replace(progress, recheck_at=tx.now + (RECHECK_MS << progress.rechecks))
    return progress


def _discount_lost_request(group: Group, progress: BackfillProgress) -> BackfillProgress:
    """The same after the open request has timed out. A request over a live link may have been lost, so it does not
    count as a try, up to once per member."""
    if progress.thread and progress.tries and progress.lost < min(len(group.links.peers), PEERS_MAX):
        progress = replace(progress, tries=progress.tries - 1, lost=progress.lost + 1)
    return replace(progress, thread="")


def _tries_max(group: Group) -> int:
    """After so many requests in vain the backfill is done for now."""
    candidates = min(len(group.links.peers), PEERS_MAX)
    if _is_full_history(group):
        return max(TRIES_MAX, 3 * candidates)
    return max(2, 2 * candidates) if _truncated_chains(group) else 2


def _truncated_chains(group: Group) -> set[str]:
    """Chains of which a relaying member had only the end: those of former and unreachable authors, whose start is not
    announced, and those of authors that learned of us later than others."""
    authors = (*group.view.former, *group.view.members)
    chains_found = {author: group.log.chains[author] for author in authors if author in group.log.chains}
    pasts = {
        did: chain.backfill
        for did, chain in chains_found.items()
        if chain.backfill is not None and chain.backfill.first > 1
    }
    return {did for did, backfill in pasts.items() if backfill.since_joining or chains_found[did].is_unannounced}


def _rules(group: Group) -> tuple[str, str]:
    return group.view.policy.history, group.view.members[group.me].history


def _is_full_history(group: Group) -> bool:
    """Whether the rules allow us the full history."""
    return _rules(group) == ("all", "all") and not group.view.policy.keep


def _choose_peer(tx: Transaction, name: str, progress: BackfillProgress) -> str | None:
    """The next member to ask: the one asked least often, history keepers first, mail only without a link, and for a
    while only members with our view, since validity depends on it. Once all of those were asked twice in vain, every
    member is eligible: they could be liars."""
    group = tx.group(name)
    keepers = group.view.keepers
    candidates = [member for member in group.links.peers if pull_requests.is_source(tx, name, member)]
    agreed = [member for member in candidates if _has_same_view(group, member)]
    if progress.idle_rounds < WAITS_MAX and (not agreed or progress.tries < 2 * len(agreed)):
        candidates = agreed
    linked = [member for member in candidates if not mediator_mail.goes_by_mail(tx, name, member)] or candidates
    requests = _request_counts(group, progress)
    order = {did: (requests[did], did not in keepers, group.view.members[did].joined, did) for did in linked}
    return min(linked, key=order.__getitem__, default=None)


def _has_same_view(group: Group, member: str) -> bool:
    """Whether it reports our view: the same members and roles."""
    return group.links.peers[member].anti_entropy.view == group.view.checksum


def _authors_to_request(chains: dict[str, Backfill], target: str, requests: int) -> list[str]:
    """The chains to request from this member after so many requests to it: its own, and those of all others or, if they
    are too many, a rotating part."""
    confirmed = [target] if target in chains else []
    others = sorted(chains.keys() - confirmed, key=lambda did: (chains[did].first == NEWEST, did))
    room = RANGES_MAX - len(confirmed)
    begin = requests * room % len(others) if len(others) > room else 0
    return confirmed + (others[begin:] + others[:begin])[:room]


def _request_counts(group: Group, progress: BackfillProgress) -> dict[str, int]:
    """By member: the requests to it. A new member starts at the lowest count and does not have to catch up."""
    record = {did: count for did, count in progress.requests.items() if did in group.links.peers}
    return dict.fromkeys(group.links.peers, min(record.values(), default=0)) | record


# --- receiving --------------------------------------------------------------------------------------------------------


def receive_page(
    tx: Transaction, name: str, member: str, request: PullRequest, events: Sequence[Event], more: bool
) -> None:
    """Process a page of history from this member."""
    group = tx.group(name)
    progress = group.sync.backfill
    if progress is None or group.me not in group.view.members:
        raise Refused(why="history without an open request")
    if "none" in _rules(group):  # of former members, only what dates from our own time
        joined = group.view.members[group.me].joined
        events = [event for event in events if event.lamport >= joined]
    received, confirmed = 0, False
    for author, stretch in groupby(sorted(events, key=lambda e: (e.author, -e.seq)), key=lambda e: e.author):
        if count := _receive_stretch(tx, name, member, author, [*stretch]):
            received += count
            backfill = tx.group(name).chain(author).backfill
            confirmed = confirmed or (backfill is not None and backfill.unconfirmed_top is None)
    if not more:
        ring_starts.on_last_page(tx, name, member, request, events)
    # Although there should be more: a member that claims so without showing any must not be asked for ever.
    no_progress = not received
    exhausted = not received and progress.tries >= _tries_max(group)
    wanted = _fetchable_chains(tx.group(name))
    finished = not more and (not wanted or (exhausted and progress.requested_authors >= wanted.keys()))
    page_follows = member in group.sync.pull_requests
    pages = 1 if no_progress else progress.pages if page_follows else min(PAGES_MAX, progress.pages * 2)
    is_news = not (progress.done and no_progress)  # a recheck is none
    done = finished or not is_news
    progress = replace(progress, received=progress.received + received, done=done, pages=pages, thread="")
    if not no_progress:
        progress = replace(progress, tries=0, lost=0, rechecks=0)
    # It has kept its turn; unconfirmed events do not.
    if confirmed and request.page == 0 and progress.requests.get(member):
        progress = replace(progress, requests={**progress.requests, member: progress.requests[member] - 1})
    if finished:
        progress = replace(progress, recheck_at=tx.now + (RECHECK_MS << progress.rechecks))
    if is_news:
        _report(tx, name, progress)
    else:
        tx.update_sync(name, backfill=progress)
    if finished and (_is_full_history(group) or _is_rechecked(tx.group(name), wanted)):
        tx.set_timer(TimerKind.BACKFILL, name, RECHECK_MS << progress.rechecks)
    if not finished and not (no_progress and more):  # else with backoff, as set by `request_page`
        tx.set_timer(TimerKind.BACKFILL, name, RETRY_MS if no_progress or page_follows else 1)
    if no_progress and more and not page_follows:
        _request_others(tx, name, member, request, {event.author for event in events})


def _request_others(tx: Transaction, name: str, member: str, request: PullRequest, unusable: Container[str]) -> None:
    """Ask a member for the same chains without those whose events of the last page do not fit. The newest come first,
    so these would fill each page if the next event is too large for the same page (head-of-line blocking)."""
    left = [one for one in request.ranges if one[0] not in unusable]
    if not left or len(left) == len(request.ranges):
        return
    pull_requests.send(tx, name, member, left, RUN_EVENTS_MAX, backwards=True, purpose=PullPurpose.BACKFILL, pages=1)
    group = tx.group(name)
    assert group.sync.backfill is not None
    thread = "" if mediator_mail.goes_by_mail(tx, name, member) else group.sync.pull_requests[member].thread
    tx.update_sync(name, backfill=replace(group.sync.backfill, thread=thread))


def on_lost_page(tx: Transaction, name: str, member: str, thread: str | None) -> None:
    """A response arrived out of order or too late: one before it was lost. Request one page at a time again."""
    group = tx.group(name)
    tx.emit(Measure("dropped", "HistoryOutOfOrder"))
    if group.sync.backfill is not None and group.sync.pull_requests[member].thread == thread:
        open_requests = {did: one for did, one in group.sync.pull_requests.items() if did != member}
        tx.update_sync(name, pull_requests=open_requests, backfill=replace(group.sync.backfill, pages=1))
        tx.set_timer(TimerKind.BACKFILL, name, RETRY_MS)


def _report(tx: Transaction, name: str, progress: BackfillProgress) -> None:
    group = tx.update_sync(name, backfill=progress)
    tx.emit(Notify(HistoryProgress(name, progress.received, remaining(group)[1], progress.done)))


def _receive_stretch(tx: Transaction, name: str, member: str, author: str, events: Sequence[Event]) -> int:
    """Store events of one author, newest first; returns their number. On the ring a chain begins with those from after
    we joined, which are news like any that is delivered: its author pays for them, and they wait until it has room."""
    group = tx.group(name)
    if not neighbours.is_ring(group) or author == group.me:
        return _prepend(tx, name, member, author, events)
    ours = [event for event in events if event.lamport >= ring_starts.joined(group)]
    if ours and not storage_quota.has_room(tx, name, author):
        tx.emit(Measure("dropped", "StorageQuota"))
        return 0
    if author in group.log.chains:
        return _prepend(tx, name, member, author, events)
    try:
        with tx.attempt():
            unreachable_authors.begin_chain(tx, name, member, author, ours[::-1])
    except unreachable_authors.Unusable:
        return 0
    if ours and author not in tx.group(name).log.chains:
        return 0
    return len(ours) + _prepend(tx, name, member, author, events[len(ours) :])


def _prepend(tx: Transaction, name: str, member: str, author: str, events: Iterable[Event]) -> int:
    """Store events of one author, newest first, that lead up to the chain that we have; returns their number. The first
    one that does not fit ends the page."""
    group = tx.group(name)
    chain, received, read = group.chain(author), 0, group.log.lamport
    backfill = chain.backfill or Backfill(NEWEST)
    unconfirmed_top, anchored, now = backfill.unconfirmed_top, backfill.anchored, tx.now
    first, before = backfill.first if chain.seq else 0, backfill.previous_id
    record = author != group.me and group.view.known(author) is not None
    signed = signed_by(group, author)
    if not first and author in group.view.former and author not in group.view.removed:
        first = max(signed, default=-1) + 1  # a member that has left has signed its last place
    lamport = now + AHEAD_MS_MAX + 1
    stored_bytes = stored = 0
    live_since, live = ring_starts.joined(group) if neighbours.is_ring(group) else lamport, list[Event]()
    last = None
    for event in events:
        fault = _fault(group, first, before, event) if record else "HistoryOfOtherAuthor"
        if retention.is_premature(tx, name, event):
            fault = fault or "ContentMissing"
        if contradicts_signed(signed, event) or event.lamport >= lamport:
            fault = fault or "HistoryContradicted"
        fault = fault or _signature_fault(group, event)
        anchored, lamport = anchored or event.seq + 1 in signed, event.lamport
        if unconfirmed_top is not None and not anchored and unconfirmed_top.seq - event.seq >= UNCONFIRMED_MAX:
            fault = "HistoryTooLong"
        if fault:
            tx.emit(Measure("dropped", fault))
            break
        # Confirmed once a confirmed event names it; a signed event confirms everything below it.
        anchored = anchored or event.is_control or bool(event.sig)
        by = "" if anchored else member
        if by and unconfirmed_top is None:
            unconfirmed_top = ChainPosition(event.seq, event.id, event.lamport)
        first, before = event.seq, event.pre
        chain = chain if chain.seq else _begun(group, member, event)
        is_stored = not event.is_control and may_post(group.view, author, event.seq)
        if is_stored and event.lamport >= live_since:
            live.append(event)
        elif is_stored:
            stored_bytes, stored = stored_bytes + _store(tx, name, event, by), stored + 1
            read = max(read, event.lamport)  # answers to it sort below it
        elif not event.is_control:
            reinstated_posts.record(tx, name, event, valid=False)
        received, last = received + 1, event
    read = _store_live(tx, name, live[::-1], read)
    storage_quota.charge(tx, name, member, stored_bytes, stored)
    if last is not None:
        source = (backfill.relayed_by or member) if unconfirmed_top else ""
        since_joining = (chain.backfill or backfill).since_joining
        backfill = Backfill(first, before, anchored, unconfirmed_top, source, since_joining)
        tx.update_chain(name, author, replace(chain, backfill=backfill))
        ring_starts.on_extended(tx, name, author, last)
        aggregation.on_progress(tx, name, author)
        tx.update_log(name, lamport=read)
    return received


def _begun(group: Group, member: str, event: Event) -> Chain:
    """A chain that ends with this event. Off the ring its author has not announced where it begins for us, and may
    never do so."""
    if neighbours.is_ring(group):
        return replace(ring_starts.begun_in(group, event.author, event.seq), head_id=event.id, lamport=event.lamport)
    start = ChainStart.UNANNOUNCED
    return Chain(event.seq, event.id, event.lamport, confirmed=ChainPosition(), relayed_by=member, start=start)


def _store_live(tx: Transaction, name: str, events: Iterable[Event], read: int) -> int:
    """Store posts from after we joined, oldest first. `read`, and the result: the latest Lamport time of those that are
    stored, as answers to a post sort below it."""
    for event in events:
        delivery.store_content(tx, name, event, late=event.lamport < read, relayed_by="")
        read = max(read, event.lamport)
    return read


def _store(tx: Transaction, name: str, event: Event, by: str) -> int:
    """Store a post of the history, relayed by this member if it is unconfirmed; the bytes of its record."""
    kept = retention.as_kept(tx, name, event)
    row = kept.id, kept.author, kept.seq, kept.lamport, kept.stored_type, kept.record, tx.now
    tx.emit(StoreEvent(name, *row, late=False, relayed_by=by, history=True, target=target_of(kept)))
    return len(kept.record)


def _extend_by_control(tx: Transaction, name: str) -> None:
    """On the ring, extend chains by membership events that are here: the welcome had all of them, and the chains of
    many members have nothing else."""
    group = tx.group(name)
    if not neighbours.is_ring(group):
        return
    signed = log_of(group.control).by_author
    for author, backfill in _incomplete_chains(group).items():
        by_place = {event.seq: event for event in signed.get(author, ())}
        if len(by_place) < len(signed.get(author, ())):
            continue  # two at one place
        first = backfill.first
        if first == NEWEST:
            first = max(by_place, default=0) + 1
            if any(group.links.acked(member, author) >= first for member in group.links.peers):
                continue  # there are later posts
        if events := [by_place[seq] for seq in takewhile(by_place.__contains__, range(first - 1, 0, -1))]:
            _prepend(tx, name, author, author, events)


def prepend(tx: Transaction, name: str, by: str, author: str, events: Sequence[Event]) -> int:
    """Store events of one author, newest first, from a file: relayed by `by`. Returns their number, as in
    `receive_page`."""
    received = _prepend(tx, name, by, author, events)
    progress = tx.group(name).sync.backfill
    if received and progress is not None:
        _report(tx, name, replace(progress, received=progress.received + received))
    elif received:
        tx.emit(Notify(HistoryProgress(name, received, remaining(tx.group(name))[1], True)))
    return received


def _signature_fault(group: Group, event: Event) -> str:
    """What is wrong with its author's signature; empty: nothing."""
    if event.is_control:
        return ""  # it is among the membership events, or contradicts them
    try:
        check_author(group, event)
    except RemoteError:
        return "HistoryUnsigned"
    return ""


def _fault(group: Group, first: int, before: str, event: Event) -> str:
    """Why this event cannot be the predecessor of place `first` (0: the chain's last event) with the id `before`
    (empty: any); empty: it can."""
    if event.group_id != group.id:
        return "HistoryOfOtherAuthor"
    if first and event.seq != first - 1:
        return "HistoryWithGap"
    if before and event.id != before:
        return "HistoryContradicted"
    if any(dep not in group.control for dep in event.deps) or (event.is_control and event.id not in group.control):
        return "HistoryWithoutDependencies"
    return ""
