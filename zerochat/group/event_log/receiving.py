"""Receiving events: from their author, in a signed stream, with a member's state, or relayed by a member."""

from collections.abc import Sequence

from zerochat.errors import Malformed, Refused, RemoteError
from zerochat.group import retention
from zerochat.group.dcgka import forwarding
from zerochat.group.effects import DuplicateEvent, Measure
from zerochat.group.event_log import delivery, lamport
from zerochat.group.event_log.event import (
    Event,
)
from zerochat.group.event_log.signing import check_author
from zerochat.group.links import (
    content_keys,
    mediator_mail,
    neighbours,
    outbox,
    pairing,
    peers,
    rate_limits,
    storage_quota,
)
from zerochat.group.membership import TooManyEvents
from zerochat.group.signed_streams import subscriptions
from zerochat.group.state import Chain, EarlyEvent, Group, ReorderBuffer
from zerochat.group.sync import (
    acknowledgements,
    aggregation,
    anti_entropy,
    reinstated_posts,
    relay,
    relayed_events,
    ring_starts,
    stale_profile,
)
from zerochat.group.sync.positions import reported
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import Run, message_batches, read_runs, runs_of
from zerochat.group.wire.messages import EventsBody, ReachBody, StatusBody, SyncBody

POST_WORK_US, READ_WORK_US = 80, 40
"""The work of delivering and storing a post or annotation, and of reading any other event, known or not; us."""


def receive_events(tx: Transaction, name: str, sender: str, body: EventsBody) -> None:
    """Receive events from a member. Raises RemoteError, and then nothing has changed."""
    acknowledgements.record_state(tx, name, sender, body)
    before = tx.group(name).view.checksum
    _receive_runs(tx, name, sender, runs_of(body.runs, body.packed))
    _record_state_after(tx, name, sender, body, before)


def receive_status(tx: Transaction, name: str, sender: str, body: StatusBody) -> None:
    """Receive a member's status broadcast. Raises RemoteError, and then nothing has changed."""
    if body.group != name:
        raise Malformed(why="status: another group")
    if body.reach is not None:
        _receive_reach(tx, name, sender, body.reach)
    acknowledgements.record_state(tx, name, sender, body)
    before, known = tx.group(name).view.checksum, tx.group(name).control
    _receive_runs(tx, name, sender, body.runs, posts=False)
    _record_state_after(tx, name, sender, body, before)
    if (group := tx.group(name)).control is not known and neighbours.is_forwarding(group):
        _forward_control(tx, name, sender, [event for key, event in group.control.items() if key not in known])


def _forward_control(tx: Transaction, name: str, bearer: str, events: Sequence[Event]) -> None:
    """Send new membership events on along the ring at once. Those that come in answer to a comparison of views go no
    further: others compare as well."""
    to = forwarding.next_members(tx, name, bearer)
    for portion in message_batches(events):
        for member in to:
            outbox.send_status(tx, name, member, portion)


def _record_state_after(tx: Transaction, name: str, sender: str, body: EventsBody | StatusBody, before: str) -> None:
    """The positions in a message refer to the view that its own events may have made, from the one `before`: record
    them then. So the removal that follows a vote knows how far the voter has the chain."""
    view = tx.group(name).view
    if before != view.checksum == body.view and sender in view.members:
        acknowledgements.record_state(tx, name, sender, body)


def receive_signed_events(
    tx: Transaction, name: str, sender: str, body: EventsBody, *, from_author: bool = True
) -> int:
    """Receive the events of a signed stream message, all or none; returns the last place that it covers.

    `from_author`: sent now by its author, not relayed. Raises RemoteError.
    """
    if from_author:
        acknowledgements.record_state(tx, name, sender, body)
    events = [*read_runs(name, runs_of(body.runs, body.packed), sender)]
    _charge_posts(tx, name, sender, events)
    seqs = []
    for event in events:
        if event.author != sender or event.is_control:
            raise Refused(why="a signed message with events of another author")
        receive_event(tx, name, sender, event)
        seqs.append(event.seq)
    group = tx.group(name)
    chain, buffered = group.chain(sender), group.log.reorder_buffers.get(sender, ReorderBuffer()).events
    if any(index > chain.seq and index not in buffered and chain.fork_seq not in seqs for index in seqs):
        raise Refused(why="a signed message with more events than the buffer holds")
    return max(seqs, default=chain.seq)


def _receive_runs(tx: Transaction, name: str, sender: str, runs: Sequence[Run], *, posts: bool = True) -> None:
    """Receive events one after the other; those after a rejected one are dropped and come again. Of those after one
    that exceeds the limits, only those that depend on it.

    Without `posts` only membership events may come: the status queue is for nothing else. Where keys sign, unsigned
    posts are accepted only from before our subscription to the author's stream.
    """
    exceeding: set[str] = set()
    events = [*read_runs(name, runs, sender)]
    _charge_posts(tx, name, sender, events)
    for index, event in enumerate(events):
        if not exceeding.isdisjoint((event.pre, *event.deps)):
            exceeding.add(event.id)
            continue
        before, emitted = tx.agent, len(tx.effects)
        try:
            if event.is_control:
                rate_limits.charge_bytes(tx, name, sender, len(event.record))
                rate_limits.charge_work(tx, name, sender, READ_WORK_US)
            if not (posts or event.is_control):
                raise Refused(why="a post on the status queue")
            if not _may_be_unsigned(tx.group(name), sender, event):
                raise Refused(why="an unsigned post in a group whose keys sign")
            if not (event.is_control or _is_stored(tx.group(name), event)):
                author = event.author if event.sig and tx.payer(name, event.author) is not None else sender
                if author != sender and not storage_quota.has_room(tx, name, author):
                    event.check_signature()  # its place is taken for the author's word
                if lacks_room(tx, name, author, event.seq):
                    continue
            receive_event(tx, name, sender, event)
        except RemoteError as error:
            if index == 0 and not isinstance(error, TooManyEvents):
                raise
            tx.agent = before
            del tx.effects[emitted:]
            tx.emit(Measure("dropped", error.code))
            if not isinstance(error, TooManyEvents):
                return
            exceeding.add(event.id)


def _charge_posts(tx: Transaction, name: str, sender: str, events: Sequence[Event]) -> None:
    """Charge a member for the posts and annotations in its message, all at once. Raises TooMuchWork."""
    posts = [event for event in events if not event.is_control]
    if posts:
        rate_limits.charge_bytes(tx, name, sender, sum(len(event.record) for event in posts))
        work_us = map(_work_us, posts, [None, *posts])
        rate_limits.charge_work(tx, name, sender, sum(work_us))


def _work_us(post: Event, previous: Event | None) -> int:
    """The work of receiving a post after the one before it in its message, us. A signature that posts share is checked
    once."""
    is_verified = previous is not None and post.shares_signature(previous)
    return POST_WORK_US + (delivery.SIGNATURE_WORK_US if post.sig and not is_verified else 0)


def _is_stored(group: Group, event: Event) -> bool:
    return event.seq <= group.chain(event.author).seq


def lacks_room(tx: Transaction, name: str, sender: str, seq: int) -> bool:
    """Whether a new post of this member at this place of its chain exceeds its daily quota. It is refused then, and our
    acknowledgement says when there is room again."""
    if storage_quota.has_room(tx, name, sender):
        return False
    storage_quota.refuse(tx, name, sender, seq)
    acknowledgements.schedule_ack(tx, name, sender)
    tx.set_timer(TimerKind.GAPS, name, acknowledgements.GAP_DELAY_MS, if_unset=True)
    tx.emit(Measure("dropped", "StorageQuota"))
    return True


def _may_be_unsigned(group: Group, sender: str, event: Event) -> bool:
    """Whether this event may be outside of a signed stream: where keys sign, only if it dates from before our
    subscription to its author's stream."""
    stream = group.streams.followed.get(sender)
    if event.is_control or not group.first_mode.signs or (event.sig and group.mode.signs_events):
        return True
    return (
        stream is not None and event.seq <= stream.after and event.lamport <= stream.accepted_at + lamport.AHEAD_MS_MAX
    )


def receive_event(tx: Transaction, name: str, sender: str, event: Event) -> None:
    """Receive one event from `sender`. Raises RemoteError."""
    if event.group_id != name:
        raise Refused(why="an event of another group")
    retention.check_received(tx, name, event)
    is_signed = tx.group(name).mode.signs_events and bool(event.sig)
    if event.is_control:
        if not delivery.receive_control(tx, name, sender, event):
            return
    elif event.author != sender and not is_signed:
        raise Refused(why="an unsigned event of another author")
    else:
        check_author(tx.group(name), event)
    if event.author == sender or (is_signed and not event.is_control) or _is_forwarded(tx.group(name), event):
        _receive_in_chain(tx, name, event)


def _is_forwarded(group: Group, event: Event) -> bool:
    """Whether this is a membership event that any member may bring in its author's place, and no old one."""
    me = group.view.known(group.me)
    return neighbours.is_ring(group) and event.author != group.me and me is not None and event.lamport >= me.joined


def receive_sync(tx: Transaction, name: str, sender: str, body: SyncBody) -> None:
    """Receive a member's state, and answer with what it lacks."""
    if body.group != name:
        raise Malformed(why="sync: another group")
    _receive_reach(tx, name, sender, body.reach)
    content_keys.record(tx, name, sender, body.content_key)
    lamport.confirm_clock(tx, sender, body.reach.at)
    retention.confirm_clock(tx, body.reach.at)
    if not tx.is_mail:
        tx.update_shown(name, sender, clock_ahead_ms=body.reach.at - tx.context.now)
    if body.head is not None and relayed_events.on_author_head(tx, name, sender, *body.head, body.start_seq):
        acknowledgements.schedule_ack(tx, name, sender)
    delivery.start_chain(tx, name, sender, body.start_seq, body.start_id)
    was_behind = acknowledgements.is_behind(tx.group(name), sender)
    acknowledgements.record_regression(tx, name, sender, body.view, body.acked, body.reach.at)
    acknowledgements.record_state(tx, name, sender, body)
    group = tx.group(name)
    # Of our own chain, after we have left, `acked` tells: `former` may count an end that was relayed without the rest.
    former = [(did, upto) for did, upto in body.former if did in group.view.former and did != group.me]
    acknowledgements.record_acks(tx, name, sender, [*former, (group.me, body.acked)])
    acknowledgements.record_room(tx, name, sender, body.room_ms)
    aggregation.receive(tx, name, sender, body.view, body.ack_sets)
    stale_profile.receive_claim(tx, name, sender, max(body.acked, body.highest_seen))
    if group.first_mode.signs:
        subscriptions.receive_sync(tx, name, sender, body)
    if was_behind and not acknowledgements.is_behind(tx.group(name), sender):
        relay.schedule(tx, name)
    if body.gap:
        acknowledgements.retransmit_on_gap(tx, name, sender)
    acknowledgements.retransmit_on_return(tx, name, sender)
    view = tx.group(name).view.checksum
    if body.view == view:
        anti_entropy.record_heads(tx, name, sender, body.heads)
        anti_entropy.answer_report(tx, name, sender, reported(tx.group(name).view, body))
    else:
        anti_entropy.reconcile_views(tx, name, sender, body.heads)
    group = tx.group(name)
    if group.links.peers[sender].exchange.greeting_due:
        if not group.trust.quarantine:  # in quarantine our attestation would not count yet
            pairing.send_greeting(tx, name, sender)
    elif body.view == view and body.your_view != view:
        acknowledgements.schedule_ack(tx, name, sender)  # the views agree, and only we know it
    relay.receive_request(tx, name, sender, body.view, body.unreachable)


def _receive_reach(tx: Transaction, name: str, sender: str, body: ReachBody) -> None:
    """A member announces where it is reached; send waiting messages over the new route."""
    out_of_reach = not mediator_mail.reachable(tx, name, sender)
    peers.update_reach(tx, name, sender, body)
    if out_of_reach and mediator_mail.reachable(tx, name, sender):
        peers.handle_mail_up(tx, name, sender)


def _receive_in_chain(tx: Transaction, name: str, event: Event) -> None:
    """Deliver the author's next event, or buffer an early one."""
    group = tx.group(name)
    author = group.view.known(event.author)
    if author is None:
        raise Refused(why="an event by a non-member")
    if author.until is not None and event.seq > author.until:
        if event.is_control:
            return  # valid when it was made; only its place in the chain is void
        raise Refused(why="an event by a former member")
    relayed_events.on_author_event(tx, name, event)
    if neighbours.is_ring(group):
        _begin_chain(tx, name, event)
    chain = tx.group(name).chain(event.author)
    if event.seq <= chain.seq:
        if event.seq == chain.seq and chain.head_id not in ("", event.id):
            delivery.report_fork(tx, name, event)
        tx.emit(DuplicateEvent(name, event.author, event.seq, event.type, event.record))
        acknowledgements.schedule_ack(tx, name, event.author)  # our acknowledgement was lost
        return
    if delivery.is_next(tx.group(name), event):
        delivery.deliver_next(tx, name, event)
        delivery.drain_buffer(tx, name, event.author)
        return
    buffer = group.log.reorder_buffers.get(event.author, ReorderBuffer())
    if len(buffer.events) < delivery.BUFFER_EVENTS_MAX and buffer.size + len(event.record) <= delivery.BUFFER_BYTES_MAX:
        known = buffer.events.get(event.seq)
        if known is None or known.record != event.record:
            buffer = ReorderBuffer({**buffer.events, event.seq: EarlyEvent(event.record)})
            tx.update_log(name, reorder_buffers={**group.log.reorder_buffers, event.author: buffer})
    else:
        tx.emit(Measure("dropped", "ReorderBufferFull"))
    acknowledgements.schedule_ack(tx, name, event.author)


def _begin_chain(tx: Transaction, name: str, event: Event) -> None:
    """Begin the chain of an author on the ring, that was here before us, with the first event that comes of it. Raises
    Refused for one from before we joined: what follows it may not be ours."""
    group, author = tx.group(name), event.author
    if author not in group.log.chains and group.joining.event and not relayed_events.is_whole_chain_ours(group, author):
        me = group.view.known(group.me)
        if me is None or event.lamport < me.joined:
            raise Refused(why="an event from before we joined, unrequested")
        ring_starts.begin(tx, name, author, event.seq - 1)


def receive_relayed(tx: Transaction, name: str, sender: str, event: Event) -> None:
    """Receive the next event of another author's chain, from a member that we requested it from. Raises RemoteError."""
    if event.group_id != name:
        raise Refused(why="an event of another group")
    retention.check_received(tx, name, event)
    if event.is_control and not delivery.receive_control(tx, name, sender, event):
        return
    group = tx.group(name)
    author = group.view.known(event.author)
    if author is None or (event.author == group.me and not stale_profile.is_suspended(group)):
        raise Refused(why="an event by a non-member or by ourselves")
    if event.author == group.me and not (event.is_control or stale_profile.is_ours(group, event)):
        raise Refused(why="a forged post in our name")
    if author.until is not None and event.seq > author.until:
        return
    check_author(group, event)
    if event.sig:
        relayed_events.on_author_event(tx, name, event)
    elif relayed_events.contradicts_signed(relayed_events.signed_by(group, event.author), event):
        raise Refused(why="an event that contradicts its author's signatures")
    elif event.author != group.me:
        relayed_events.on_relayed_event(tx, name, event)
    group = tx.group(name)
    chain = group.chain(event.author)
    # A former member no longer announces where its chain begins for us; if it joined after us, all of it is ours.
    former = event.author in group.view.former
    starts_here = (
        former and chain.seq == 0 and event.seq > 1 and not relayed_events.is_whole_chain_ours(group, event.author)
    )
    if starts_here and delivery.has_dependencies(group, event):
        chain_start = Chain.relayed(event.seq - 1)
        tx.update_chain(name, event.author, chain_start)
        relayed_events.open_backfill(tx, name, event.author)
    if delivery.is_next(tx.group(name), event, shared=True):
        is_own = event.author == group.me  # authenticated by our own mark
        delivery.deliver_next(tx, name, event, relayed_by="" if event.sig or is_own else sender)
        delivery.drain_buffer(tx, name, event.author)
        if event.author == group.me:
            stale_profile.on_progress(tx, name)


def receive_reinstated(tx: Transaction, name: str, member: str, event: Event) -> None:
    """Receive a post that was rejected as a reader's, if this is one and it is valid by now. `member` relays it."""
    group = tx.group(name)
    retention.check_received(tx, name, event)
    if reinstated_posts.is_wanted(group, event):
        check_author(group, event)
        is_confirmed = bool(event.sig) or reinstated_posts.is_confirmed(group, event.author, event.seq)
        relayed_by = "" if is_confirmed else member
        reinstated_posts.record(tx, name, event, valid=True)
        delivery.store_content(tx, name, event, late=True, relayed_by=relayed_by)
