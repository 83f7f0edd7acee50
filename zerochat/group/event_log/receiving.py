"""Receiving events: from their author, in a signed stream, with a member's state, or relayed by a member."""

from collections.abc import Sequence

from zerochat.errors import Malformed, Refused, RemoteError
from zerochat.group import retention
from zerochat.group.effects import DuplicateEvent, Measure
from zerochat.group.event_log import delivery, lamport
from zerochat.group.event_log.event import (
    Event,
)
from zerochat.group.links import mediator_mail, pairing, peers, rate_limits, storage_quota
from zerochat.group.signed_streams import subscriptions
from zerochat.group.state import Chain, EarlyEvent, Group, ReorderBuffer
from zerochat.group.sync import acknowledgements, anti_entropy, reinstated_posts, relay, relayed_events, stale_profile
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import Run, read_runs, runs_of
from zerochat.group.wire.messages import EventsBody, ReachBody, StatusBody, SyncBody

POST_WORK_US, READ_WORK_US = 80, 40
"""The work of delivering and storing a post or annotation, and of reading any other event, known or not; us."""


def receive_events(tx: Transaction, name: str, sender: str, body: EventsBody) -> None:
    """Receive events from a member. Raises RemoteError, and then nothing has changed."""
    acknowledgements.record_state(tx, name, sender, body.view, body.have, body.have_from)
    before = tx.group(name).view.checksum
    _receive_runs(tx, name, sender, runs_of(body.runs, body.packed))
    _record_state_after(tx, name, sender, body, before)


def receive_status(tx: Transaction, name: str, sender: str, body: StatusBody) -> None:
    """Receive a member's status broadcast. Raises RemoteError, and then nothing has changed."""
    if body.group != name:
        raise Malformed(why="status: another group")
    if body.reach is not None:
        _receive_reach(tx, name, sender, body.reach)
    acknowledgements.record_state(tx, name, sender, body.view, body.have, body.have_from)
    before = tx.group(name).view.checksum
    _receive_runs(tx, name, sender, body.runs, posts=False)
    _record_state_after(tx, name, sender, body, before)


def _record_state_after(tx: Transaction, name: str, sender: str, body: EventsBody | StatusBody, before: str) -> None:
    """The positions in a message refer to the view that its own events may have made, from the one `before`: record
    them then. So the removal that follows a vote knows how far the voter has the chain."""
    view = tx.group(name).view
    if before != view.checksum == body.view and sender in view.members:
        acknowledgements.record_state(tx, name, sender, body.view, body.have, body.have_from)


def receive_signed_events(
    tx: Transaction, name: str, sender: str, body: EventsBody, *, from_author: bool = True
) -> int:
    """Receive the events of a signed stream message, all or none; returns the last place that it covers.

    `from_author`: sent now by its author, not relayed. Raises RemoteError.
    """
    if from_author:
        acknowledgements.record_state(tx, name, sender, body.view, body.have, body.have_from)
    seqs = []
    for event in read_runs(name, runs_of(body.runs, body.packed), sender):
        rate_limits.charge_bytes(tx, name, sender, len(event.record))
        rate_limits.charge_work(tx, name, sender, POST_WORK_US)
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
    """Receive events one after the other; those after a rejected one are dropped and come again.

    Without `posts` only membership events may come: the status queue is for nothing else. Where keys sign, unsigned
    posts are accepted only from before our subscription to the author's stream.
    """
    for index, event in enumerate(read_runs(name, runs, sender)):
        before, emitted = tx.agent, len(tx.effects)
        rate_limits.charge_bytes(tx, name, sender, len(event.record))
        try:
            rate_limits.charge_work(tx, name, sender, READ_WORK_US if event.is_control else POST_WORK_US)
            if not (posts or event.is_control):
                raise Refused(why="a post on the status queue")
            if not _may_be_unsigned(tx.group(name), sender, event):
                raise Refused(why="an unsigned post in a group whose keys sign")
            if not (event.is_control or _is_stored(tx.group(name), event)) and lacks_room(tx, name, sender, event.seq):
                continue
            receive_event(tx, name, sender, event)
        except RemoteError as error:
            if index == 0:
                raise
            tx.agent = before
            del tx.effects[emitted:]
            tx.emit(Measure("dropped", error.code))
            return


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
    """Whether this event may lack a signature: where keys sign, only if it dates from before our subscription to its
    author's stream."""
    stream = group.streams.followed.get(sender)
    if event.is_control or not group.mode.signs:
        return True
    return (
        stream is not None and event.seq <= stream.after and event.lamport <= stream.accepted_at + lamport.AHEAD_MS_MAX
    )


def receive_event(tx: Transaction, name: str, sender: str, event: Event) -> None:
    """Receive one event from `sender`. Raises RemoteError."""
    if event.group_id != name:
        raise Refused(why="an event of another group")
    retention.check_received(tx, name, event)
    if event.is_control:
        if not delivery.receive_control(tx, name, sender, event):
            return
    elif event.author != sender:
        raise Refused(why="an unsigned event of another author")
    elif event.sig:
        event.check_signature()
    if event.author == sender:
        _receive_in_chain(tx, name, event)


def receive_sync(tx: Transaction, name: str, sender: str, body: SyncBody) -> None:
    """Receive a member's state, and answer with what it lacks."""
    if body.group != name:
        raise Malformed(why="sync: another group")
    _receive_reach(tx, name, sender, body.reach)
    lamport.confirm_clock(tx, sender, body.reach.at)
    retention.confirm_clock(tx, body.reach.at)
    if not mediator_mail.goes_by_mail(tx, name, sender):  # a mediator may have held it for days
        tx.update_shown(name, sender, clock_ahead_ms=body.reach.at - tx.context.now)
    if body.head is not None and relayed_events.on_author_head(tx, name, sender, *body.head, body.start_seq):
        acknowledgements.schedule_ack(tx, name, sender)
    delivery.start_chain(tx, name, sender, body.start_seq, body.start_id)
    was_behind = acknowledgements.is_behind(tx.group(name), sender)
    acknowledgements.record_regression(tx, name, sender, body.view, body.have, body.reach.at, body.have_from)
    acknowledgements.record_state(tx, name, sender, body.view, body.have, body.have_from)
    group = tx.group(name)
    former = {did: upto for did, upto in body.former if did in group.view.former}
    acknowledgements.record_acks(tx, name, sender, {**former, group.me: body.acked})
    acknowledgements.record_room(tx, name, sender, body.room_ms)
    stale_profile.receive_claim(tx, name, sender, max(body.acked, body.highest_seen))
    if group.mode.signs:
        subscriptions.receive_sync(tx, name, sender, body)
    if was_behind and not acknowledgements.is_behind(tx.group(name), sender):
        relay.schedule(tx, name)
    if body.gap:
        acknowledgements.retransmit_on_gap(tx, name, sender)
    acknowledgements.retransmit_on_return(tx, name, sender)
    view = tx.group(name).view.checksum
    if body.view != view:
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
    if event.sig:
        event.check_signature()
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
        tx.update_log(name, chains={**group.log.chains, event.author: chain_start})
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
        relayed_by = "" if reinstated_posts.is_confirmed(group, event.author, event.seq) else member
        reinstated_posts.record(tx, name, event, valid=True)
        delivery.store_content(tx, name, event, late=True, relayed_by=relayed_by)
