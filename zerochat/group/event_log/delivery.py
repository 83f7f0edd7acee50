"""Causal delivery: each author's events in chain order, after the membership events that they name.

Early events wait in a bounded reorder buffer; excess events are dropped, since their author retransmits them until they
are acknowledged. Membership events are signed and form a graph of their own: they apply as soon as their dependencies
are there, from any sender.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from zerochat.errors import Refused, RemoteError
from zerochat.group import retention
from zerochat.group.effects import Measure, Notify, StoreEvent
from zerochat.group.event_log import lamport
from zerochat.group.event_log.event import (
    DELETE,
    LEAVE,
    POST,
    REMOVE,
    Event,
    keep_decoded,
    load_event,
)
from zerochat.group.event_log.signing import check_signed, must_be_signed
from zerochat.group.files import catalogue, download
from zerochat.group.links import neighbours, outbox, peers, rate_limits, ring_links, storage_quota
from zerochat.group.membership import (
    TooManyEvents,
    attestation,
    check_control,
    extend_control,
    log_of,
    may_post,
    missing,
    remove_of,
    validity_changes,
)
from zerochat.group.messages.bodies import target_of
from zerochat.group.notifications import Delivered, ForkDetected, ValidityChanged, ViewChanged
from zerochat.group.signed_streams import publisher
from zerochat.group.state import BlockedEvent, Group, ReorderBuffer
from zerochat.group.sync import (
    acknowledgements,
    aggregation,
    anti_entropy,
    reinstated_posts,
    relayed_events,
    ring_starts,
)
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.tlog import adoption, pending_entries
from zerochat.group.transaction import Transaction

SIGNATURE_WORK_US = 100
"""The work of checking a signature, and of storing what it signs."""
BUFFER_EVENTS_MAX = 256
"""Buffered events of one author: four retransmissions."""
BUFFER_BYTES_MAX = 1 << 20
"""Their bytes, for one author."""
BLOCKED_MAX = 64
"""Blocked membership events from one sender: one retransmission."""
REMOVED_AUTHOR_MS = 2_000
"""The delay after a removal until missing events of the removed member are requested from others."""
BLOCKED_TOTAL_MAX = 4 * BLOCKED_MAX
"""Blocked membership events in all: they may take effect in one step."""


def receive_control(tx: Transaction, name: str, sender: str, event: Event) -> bool:
    """Apply a membership event, or block it until its dependencies are there. True when it is applied."""
    group = tx.group(name)
    if event.id in group.control:
        return True
    if any(dep not in group.control for dep in event.deps):
        rate_limits.charge_work(tx, name, sender, SIGNATURE_WORK_US)
        event.check_signature()
        from_sender = sum(blocked_event.sender == sender for blocked_event in group.log.blocked.values())
        if from_sender < BLOCKED_MAX and len(group.log.blocked) < BLOCKED_TOTAL_MAX:
            tx.update_log(name, blocked={**group.log.blocked, event.id: BlockedEvent(sender, event.record)})
        acknowledgements.request_missing(tx, name, sender)
        return False
    _check_control(tx, name, sender, event)
    _apply_control(tx, name, event)
    return True


def _check_control(tx: Transaction, name: str, sender: str, event: Event) -> None:
    """Check a membership event whose dependencies are there, at the expense of its sender, or on the ring of its
    author. Raises RemoteError; TooManyEvents where it exceeds the limits, for good or for now."""
    group = tx.group(name)
    payer = _payer(tx, name, sender, event)
    leaves = event.type == LEAVE and event.author in group.view.members
    is_forked = event.author in group.view.forked and not leaves
    cost = rate_limits.EQUIVOCATOR_COST if sender == event.author else 1
    if not rate_limits.spend_branch_event(tx, name, payer, exceeding=cost if is_forked else 0):
        raise TooManyEvents(why="too many membership events for now") if is_forked else rate_limits.TooMuchWork
    rate_limits.charge_work(tx, name, payer, log_of(group.control).work_us(event))
    exceeds = check_control(event, group.control, sender)
    lamport.check_not_ahead(event.lamport, tx.now)
    if exceeds and not is_forked and not rate_limits.spend_branch_event(tx, name, payer, exceeding=1):
        raise TooManyEvents(why="too many membership events for now")


def _payer(tx: Transaction, name: str, sender: str, event: Event) -> str:
    """Who pays for a membership event: its sender, or on the ring, where members bring those of others, the author that
    has signed it. Raises Unauthentic or TooMuchWork."""
    if event.author == sender or not neighbours.is_ring(tx.group(name)) or tx.payer(name, event.author) is None:
        return sender
    rate_limits.charge_work(tx, name, sender, SIGNATURE_WORK_US)
    event.check_signature()
    return event.author


def _apply_control(tx: Transaction, name: str, event: Event) -> None:
    """Apply a membership event whose dependencies are there, and the events that it unblocks. What exceeds the work of
    their sender is dropped, and comes again when the views are compared."""
    _commit_control(tx, name, event)
    waiting = {key: load_event(blocked.record) for key, blocked in tx.group(name).log.blocked.items()}
    while (unblocked := _take_unblocked(tx, name, waiting)) is not None:
        event, sender = unblocked
        try:
            _check_control(tx, name, sender, event)
        except RemoteError as error:
            tx.emit(Measure("dropped", error.code))
        else:
            _commit_control(tx, name, event)
    for author in list(tx.group(name).log.reorder_buffers):
        drain_buffer(tx, name, author)
    if tx.group(name).dcgka.held:  # for membership events
        tx.set_timer(TimerKind.KEY_EVENTS, name, 1)


def _take_unblocked(tx: Transaction, name: str, waiting: dict[str, Event]) -> tuple[Event, str] | None:
    """Remove and return one blocked membership event whose dependencies are there, and its sender. `waiting`: the
    blocked events."""
    group = tx.group(name)
    for blocked_id, blocked_event in group.log.blocked.items():
        event = waiting[blocked_id]
        if has_dependencies(group, event):
            tx.update_log(name, blocked={key: other for key, other in group.log.blocked.items() if key != blocked_id})
            return event, blocked_event.sender
    return None


def _commit_control(tx: Transaction, name: str, event: Event) -> None:
    before = tx.group(name)
    late = event.lamport < before.log.lamport
    control, view = extend_control(before.control, event)
    heads = tuple(sorted({*before.log.heads, event.id}.difference(event.deps)))
    log = replace(before.log, heads=heads, lamport=max(before.log.lamport, event.lamport))
    tx.update_group(name, control=control, view=view, log=log)
    relayed_events.on_signed_event(tx, name, event)
    store_event(tx, name, event, late)
    attestation.announce_forks(tx, name, before.view.forked)
    if view.has_tlog:
        adoption.adopt_terms(tx, name, before.view)
    tx.emit(Notify(ViewChanged(name)))
    if tx.group(name).keys != before.keys:
        _begin_keys(tx, name)
    for did, chain in before.log.chains.items():
        for after, upto, counts in validity_changes(before.view, view, did, chain.seq):
            tx.emit(Notify(ValidityChanged(name, did, after, upto, counts)))
    for did in sorted(view.members.keys() - before.view.members.keys() - {before.me}):
        peers.add_peer(tx, name, did)
    for did in sorted(before.view.members.keys() - view.members.keys() - {before.me}):
        publisher.member_left(tx, name)
        if view.has_tlog:
            pending_entries.end_subscription(tx, name, did)
        peers.begin_close(tx, name, did)
        # It retransmits nothing from now on.
        tx.set_timer(TimerKind.GAPS, name, REMOVED_AUTHOR_MS, if_unset=True)
    if event.type == REMOVE and remove_of(event).member == before.me and before.me in view.members:
        # The remover has not received what invalidates the removal, and will soon stop accepting our messages.
        outbox.send_events(
            tx, name, event.author, missing(control, [event.id])[: acknowledgements.RETRANSMIT_EVENTS_MAX]
        )
    reinstated_posts.schedule(tx, name)
    if before.view.members.keys() != view.members.keys():
        ring_links.view_changed(tx, name)
    aggregation.view_changed(tx, name, before.view)
    acknowledgements.view_changed(tx, name)


def _begin_keys(tx: Transaction, name: str) -> None:
    """The keys were upgraded: posts come on other queues from now on, and the key agreement begins."""
    tx.set_timer(TimerKind.KEY_EVENTS, name, 1)
    for member in tx.group(name).links.peers:
        if member in tx.group(name).view.members:
            peers.dial_peer(tx, name, member)
            acknowledgements.schedule_ack(tx, name, member)  # it carries our pre-key


def report_fork(tx: Transaction, name: str, event: Event) -> None:
    """The author equivocates at this place: notify once, however often either event is repeated."""
    group = tx.group(name)
    chain = group.log.chains[event.author]
    if chain.fork_seq != event.seq:
        tx.update_chain(name, event.author, replace(chain, fork_seq=event.seq))
        tx.emit(Notify(ForkDetected(name, event.author, event.seq)))


def is_next(group: Group, event: Event, *, shared: bool = False) -> bool:
    """Whether this is its author's next event and its dependencies are there. `shared`: relayed by another member."""
    chain = group.chain(event.author)
    if chain.is_unannounced and event.author in group.view.members and not shared:
        return False  # the author announces first where its chain begins for us
    return event.seq == chain.seq + 1 and has_dependencies(group, event)


def has_dependencies(group: Group, event: Event) -> bool:
    return all(dep in group.control for dep in event.deps)


def deliver_next(tx: Transaction, name: str, event: Event, relayed_by: str = "") -> None:
    """Check what depends on the place in the chain, then deliver. `relayed_by`: the member that relays the event."""
    group = tx.group(name)
    check_signed(group, event)  # when it came, its dependencies were not known
    chain = group.chain(event.author)
    if chain.head_id and event.pre != chain.head_id:
        if relayed_by:
            raise Refused(why="an event that does not continue its chain")
        report_fork(tx, name, event)
        return
    if event.lamport <= chain.lamport:
        raise Refused(why="a Lamport time that decreases")
    lamport.check_not_ahead(event.lamport, tx.now)
    deliver(tx, name, event, relayed_by)
    if not relayed_by:
        acknowledgements.schedule_ack(tx, name, event.author)


def drain_buffer(tx: Transaction, name: str, author: str) -> None:
    """Deliver buffered events that have become next."""
    while True:
        group = tx.group(name)
        if author not in group.log.reorder_buffers:
            return
        buffered = group.log.reorder_buffers[author].events
        seq = group.chain(author).seq
        remaining = {place: event for place, event in buffered.items() if place > seq}
        following = load_event(remaining[seq + 1].record) if seq + 1 in remaining else None
        if following is not None:  # a buffered event comes from its author: it may contradict relayed ones
            relayed_events.on_author_event(tx, name, following)
            if tx.group(name).chain(author).seq < seq:
                return  # the events before it are sent again
        ready = following is not None and is_next(group, following)
        if ready:
            del remaining[seq + 1]
        if remaining != buffered:
            buffers = (
                {**group.log.reorder_buffers, author: ReorderBuffer(remaining)}
                if remaining
                else _without(group.log.reorder_buffers, author)
            )
            tx.update_log(name, reorder_buffers=buffers)
        if not ready or following is None:
            return
        try:
            deliver_next(tx, name, following)
        except Refused as error:
            tx.emit(Measure("dropped", error.code))
            return
        if following.is_control and author not in tx.group(name).log.reorder_buffers:
            tx.emit(Notify(ViewChanged(name)))  # it was known, so no other news says that the gap before it is closed


def _without(buffers: Mapping[str, ReorderBuffer], author: str) -> dict[str, ReorderBuffer]:
    return {key: buffered for key, buffered in buffers.items() if key != author}


def start_chain(tx: Transaction, name: str, author: str, since: int, pre: str = "") -> None:
    """The author announces that its chain begins for us after `since`, whose event is `pre`: skip earlier events and
    leave them to backfill.

    Settled once a post of the chain was delivered from its author: a later start would hide the events between.
    """
    group = tx.group(name)
    chain = group.chain(author)
    if neighbours.is_ring(group):
        _start_on_ring(tx, name, author, since)
    elif not chain.is_fixed and (author not in group.log.chains or chain.is_unannounced or since > chain.seq):
        chain_start = relayed_events.announced_chain(tx, name, author, since)
        tx.update_chain(name, author, chain_start)
        if chain_start.backfill is not None:
            relayed_events.reopen_backfill(tx, name, author)
        # Now the missing part is known.
        tx.set_timer(TimerKind.GAPS, name, acknowledgements.GAP_DELAY_MS, if_unset=True)
    if pre:
        relayed_events.anchor_backfill(tx, name, author, since, pre)
    drain_buffer(tx, name, author)


def _start_on_ring(tx: Transaction, name: str, author: str, since: int) -> None:
    """The author announces a start to us alone, perhaps long after we joined: it begins a chain that has not begun."""
    group = tx.group(name)
    if author not in group.log.chains and group.joining.event and not relayed_events.is_whole_chain_ours(group, author):
        ring_starts.begin(tx, name, author, since)
        tx.set_timer(TimerKind.GAPS, name, acknowledgements.GAP_DELAY_MS, if_unset=True)


def deliver(tx: Transaction, name: str, event: Event, relayed_by: str = "") -> None:
    """Append the event to its author's chain.

    A reader's post takes its place too, so the chain goes on, but it is not stored.
    """
    group = tx.group(name)
    late = event.lamport < group.log.lamport
    is_known = event.id in group.control
    counts = event.is_control or may_post(group.view, event.author, event.seq)
    chain = relayed_events.extended_chain(tx, name, event, relayed_by)
    covered = {event.pre, *event.deps, *event.conc}
    heads = set(group.log.heads) - covered if is_known or not counts else {*group.log.heads, event.id} - covered
    tx.update_chain(name, event.author, chain)
    tx.update_log(name, heads=tuple(sorted(heads)), lamport=max(group.log.lamport, event.lamport))
    if event.is_control and not is_known:
        _apply_control(tx, name, event)
    elif not counts:
        tx.emit(Measure("dropped", "ReadOnly"))
    elif not is_known:
        store_content(tx, name, event, late, relayed_by)
    reinstated_posts.record(tx, name, event, valid=counts)
    aggregation.on_delivered(tx, name, event)
    if event.author != group.me:
        anti_entropy.report_soon(tx, name)


def store_content(tx: Transaction, name: str, event: Event, late: bool, relayed_by: str) -> None:
    """Store valid content, and apply it to the file catalogue. Of expired content only the header is stored."""
    event = retention.as_kept(tx, name, event)
    storage_quota.charge(tx, name, relayed_by or event.author, len(event.record))
    store_event(tx, name, event, late, relayed_by)
    if event.is_erased:
        return
    if event.type == POST:
        download.handle_post(tx, name, event)
    elif event.type == DELETE and relayed_by:
        catalogue.mark_deletion_relayed(tx, name, event.author, target_of(event), event.seq)
    elif event.type == DELETE:
        catalogue.remove_files_of(tx, name, event.author, target_of(event))


def store_event(tx: Transaction, name: str, event: Event, late: bool, relayed_by: str = "") -> None:
    """Store a delivered event and notify the clients, except of one without content. A post of ours that is still to be
    signed is stored then (`own_events.sign_batch`)."""
    if not event.sig and must_be_signed(tx.group(name), event):
        return
    keep_decoded(event)
    kind = event.stored_type
    row = name, event.id, event.author, event.seq, event.lamport, kind, event.record, tx.now, late, relayed_by
    tx.emit(StoreEvent(*row, target=target_of(event)))
    if not event.is_erased:
        tx.emit(Notify(Delivered(name, event.id)))
