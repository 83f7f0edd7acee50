"""Cumulative acknowledgements, and retransmission by the author.

One message, `sync`, carries the sender's state: how far it has the chains (`positions.py`), where its own chain begins
for the recipient, and which membership events it knows. It is acknowledgement and request in one. Acknowledgements are
piggybacked on posts; alone they go only to the authors concerned, after a short delay, so n members cost n messages and
not n squared. An author retransmits unacknowledged events in order, with exponential backoff and no end; differences in
membership events are exchanged as soon as either side notices.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message, new_id
from zerochat.didcomm.service import Route
from zerochat.group import retention
from zerochat.group.backoff import Backoff
from zerochat.group.dcgka import channels
from zerochat.group.dcgka.publisher import lacks_key_events, resend
from zerochat.group.effects import Notify, ReadOwnEvents
from zerochat.group.event_log.event import load_event
from zerochat.group.event_log.lamport import is_older
from zerochat.group.links import (
    content_keys,
    mediator_mail,
    mediator_receipts,
    neighbours,
    outbox,
    shared_mailboxes,
    storage_quota,
)
from zerochat.group.links.relationship import pack
from zerochat.group.membership import attestation, log_of
from zerochat.group.notifications import Receipt, ViewChanged
from zerochat.group.signed_streams import publisher, statements
from zerochat.group.state import Agent, Group
from zerochat.group.sync import aggregation, relayed_events
from zerochat.group.sync.chain_heads import head_digests
from zerochat.group.sync.positions import position_fields, reported
from zerochat.group.sync.receipts import store_receipt
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import FORMER_MAX, STATUS, SYNC, PositionsBody

ACK_DELAY_MS = 150
"""The delay of an acknowledgement that waits to be piggybacked, times 0.5 to 1.5: random, so that its moment does not
reveal the message that it answers."""
RETRY_MS, RETRY_MS_MAX = 2_000, 30_000
"""The first and the greatest retransmission delay; each one doubles."""
MAIL_RETRY_MS, MAIL_RETRY_MS_MAX = 20_000, 24 * 3_600_000
"""The same over a mediator: it stores unfetched messages, so repetition only piles up."""
NO_ROOM_MS_MAX = 3_600_000
"""The longest that a member's word delays our retransmission to it."""
RETRANSMIT_EVENTS_MAX = 64
"""Events in one retransmission (UPSYCLE has the same bound); the acknowledgement requests the next."""
REGRESSION_MS = 8_000
"""A member that has lost events reports so for at least this long."""
GAP_DELAY_MS = 500
"""Missing events mostly arrive by themselves within this time, times 0.8 to 1.5."""
SYNC_INTERVAL_MS = 500
"""At most one answer to a differing view in this time, per member."""


# --- the state of the other members -----------------------------------------------------------------------------------


def record_state(tx: Transaction, name: str, sender: str, body: PositionsBody) -> None:
    """Record what an authentic message reports of its sender's state."""
    group, view = tx.group(name), body.view
    peer = group.links.peers.get(sender)
    if peer is None:
        return  # on the ring, a message that others have brought
    if view == peer.anti_entropy.view:
        tx.update_peer(name, sender, last_received_at=tx.now)
    else:
        tx.update_peer(name, sender, last_received_at=tx.now, anti_entropy=replace(peer.anti_entropy, view=view))
        tx.emit(Notify(ViewChanged(name)))
    if view == group.view.checksum:
        record_acks(tx, name, sender, reported(group.view, body))
    else:
        # A view that it has reported before is compared when its time comes.
        tx.set_timer(TimerKind.VIEWS, name, SYNC_INTERVAL_MS, if_unset=view == peer.anti_entropy.view)


def record_regression(tx: Transaction, name: str, member: str, view: str, upto: int, at: int) -> None:
    """A member with this view reports how far it has our chain, written `at` this time by its own clock (UTC ms). If it
    keeps reporting less than it had acknowledged, its profile is an older copy: accept that, and retransmit the lost
    events.

    A single report does not suffice: messages on two paths overtake each other. Older, possibly replayed reports are
    ignored. Nor is it accepted often, since a false report costs its sender nothing.
    """
    group = tx.group(name)
    peer = group.links.peers[member]
    written_at = peer.acks.written_at
    if view != group.view.checksum or at == written_at or is_older(at, written_at, tx.now):
        return
    regressed = upto < group.links.acked(member, group.me)
    if regressed and peer.acks.regressed_since and tx.now >= peer.acks.regressed_since + REGRESSION_MS:
        own = {tx.number_author(name, group.me): upto}
        tx.update_acks(name, member, written_at=at, regressed_since=0, upto=own)
        tx.update_retransmission(name, member, tries=0, retry_at=tx.now)
        mediator_receipts.invalidate(tx, name, member)
        retransmit(tx, name)
    else:
        tx.update_acks(
            name, member, written_at=at, regressed_since=(peer.acks.regressed_since or tx.now) if regressed else 0
        )


def record_acks(tx: Transaction, name: str, member: str, positions: Iterable[tuple[str, int]]) -> None:
    """A member reports up to where it has these authors' chains."""
    group = tx.group(name)
    peer = group.links.peers[member]
    known, numbers = peer.acks.upto.get, group.links.numbers
    # Most reports are old.
    news = [one for one in positions if one[1] > known(numbers.get(one[0], -1), 0) and one[0] != member]
    if not news:
        return
    acked = dict(peer.acks.upto)
    for author, upto in news:
        number = tx.number_author(name, author)
        after = acked.get(number, 0)
        if author == group.me:  # our own chain cannot be longer elsewhere
            upto, after = min(upto, group.seq), max(after, peer.start_seq)
        if upto > after:
            acked[number] = upto
            if author == group.me:
                store_receipt(tx, name, member, after, upto, "mediator" if tx.is_mail else "link")
                aggregation.record_direct(tx, name, member, upto)
                continue
            tx.emit(Notify(Receipt(name, member, author, after, upto)))
            if upto > group.chain(author).seq:  # usually still under way
                tx.mark_ahead(name, author)
                if neighbours.is_ring(group) and author not in group.log.chains:
                    relayed_events.reopen_backfill(tx, name, author)
                tx.set_timer(
                    TimerKind.GAPS,
                    name,
                    GAP_DELAY_MS * 4 // 5 + tx.context.random(1)[0] * GAP_DELAY_MS // 365,
                    if_unset=True,
                )
    if acked != peer.acks.upto:
        before = group.links.acked(member, group.me)
        after = acked.get(tx.group(name).links.numbers.get(group.me, -1), 0)
        # A member that has all of a retransmission gets the next one at once, not at the timer.
        at_once = peer.retransmission.tries > 0 and after >= peer.retransmission.upto
        acks, retransmission = replace(peer.acks, upto=acked), peer.retransmission
        if after > before:
            retransmission = replace(retransmission, tries=0, retry_at=tx.now + (0 if at_once else RETRY_MS))
        tx.update_peer(name, member, acks=acks, retransmission=retransmission)
        if after > before and at_once:
            retransmit(tx, name)


# --- acknowledging ----------------------------------------------------------------------------------------------------


def schedule_ack(tx: Transaction, name: str, author: str) -> None:
    """Events of `author` were received: acknowledge them soon."""
    group = tx.group(name)
    if not group.sync.acks_due:
        tx.set_timer(TimerKind.ACKNOWLEDGE, name, ACK_DELAY_MS // 2 + tx.context.random(1)[0] * ACK_DELAY_MS // 255)
    if author not in group.sync.acks_due:
        tx.update_sync(name, acks_due=group.sync.acks_due | {author})


def send_acks(tx: Transaction, name: str) -> None:
    """The delay is over: acknowledge to each author what we have of its chain."""
    group = tx.group(name)
    tx.update_sync(name, acks_due=frozenset())
    for author in sorted(group.sync.acks_due):
        if author in group.links.peers:
            send_sync(tx, name, author, whole=False)


def send_sync(tx: Transaction, name: str, member: str, unreachable: Sequence[str] = (), *, whole: bool = True) -> None:
    """Send our state to one member, if it can be reached. `unreachable`: the members to which it is asked to relay what
    we cannot deliver (`relay.py`). `whole`: as in `positions.position_fields`."""
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    if relationship is None or not relationship.established or tx.agent.reach is None:
        return
    if not mediator_mail.seek(tx, name, member):
        return
    message = sync_message(tx, name, member, unreachable, whole=whole)
    mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random))


def sync_message(
    tx: Transaction, name: str, member: str, unreachable: Sequence[str] = (), *, whole: bool = True
) -> Message:
    """Our state for one member; it counts as sent."""
    group = tx.group(name)
    peer = group.links.peers[member]
    positions, authors = position_fields(tx, group, whole=whole)
    heads, word = attestation.own_attestation(group)
    body: dict[str, Any] = {
        "group": name,
        **positions,
        "start_seq": peer.start_seq,
        "acked": group.chain(member).complete_seq,
        "heads": list(heads),
        "attestation": word,
        "reach": _reach(tx, group),
    }
    if (seen := _highest_seen(group, member)) > body["acked"]:
        body["highest_seen"] = seen
    if peer.anti_entropy.view:
        body["your_view"] = peer.anti_entropy.view
    if peer.start_id:
        body["start_id"] = peer.start_id
    if (
        is_behind(group, member)
        and not group.first_mode.signs
        and (peer.exchange.greeting_due or peer.retransmission.retry_at <= tx.now)
    ):
        # Others may have relayed to it what we have not delivered.
        body["head"] = [
            group.seq,
            group.chain(group.me).head_id,
        ]
    if room_ms := storage_quota.wait_ms(tx, name, member):
        body["room_ms"] = room_ms
    elif group.log.reorder_buffers.get(member) or member in group.streams.early_messages or member in group.sync.gaps:
        body["gap"] = True
    if former := _former_heads(group):
        body["former"] = former
    if group.first_mode.signs:
        body |= statements.sync_fields(tx, name, member)
    if group.mode.heals:
        body |= channels.sync_fields(tx, name, member)
    if size := adoption.current_size(group):
        body["tlog_size"] = size
    body |= aggregation.sync_fields(tx, name, member, whole=whole)
    if peer.is_guest:
        body["guest"] = True
    if unreachable:
        body["unreachable"] = [group.view.places[did] for did in unreachable]
    body |= content_keys.announced(tx, name, member)
    body["head_digests"] = head_digests(group, salt := new_id(tx.context.random), authors)
    if peer.exchange.greeting_due:
        tx.update_exchange(name, member, greeting_due=False)
    if member in group.sync.acks_due:
        tx.update_sync(name, acks_due=group.sync.acks_due - {member})
    return Message(type=SYNC, id=salt, body=body)


def _highest_seen(group: Group, member: str) -> int:
    """The last place of a member's chain of which we have any event: buffered, relayed, or signed."""
    buffer = group.log.reorder_buffers.get(member)
    waiting = [load_event(one.record) for one in group.log.blocked.values()]
    signed = [log_of(group.control).last_seq(member), *(event.seq for event in waiting if event.author == member)]
    return max(group.chain(member).seq, *signed, max(buffer.events, default=0) if buffer is not None else 0)


def _former_heads(group: Group) -> list[list[str | int]]:
    """How far we have the chains of former members, the latest ones first."""
    former = [(group.log.chains[did].lamport, did) for did in group.view.former if did in group.log.chains]
    return [[did, group.log.chains[did].seq] for _, did in sorted(former, reverse=True)[:FORMER_MAX]]


def _reach(tx: Transaction, group: Group) -> dict[str, Any]:
    """Where we are reached, as a `messages.ReachBody`."""
    reach = mediator_mail.own_reach_in(tx, group)
    body: dict[str, Any] = {
        "pair": str(reach.pair or ""),
        "queue": str(reach.queue or ""),
        "at": max(tx.now, group.log.lamport),
    }
    if reach.pair:
        body["key"] = b64url(reach.server_key)
    if reach.routes:
        ours = shared_mailboxes.announced(tx.agent, group)
        body["mail"] = [_route(route, ours.get(shared_mailboxes.mediator_of(route), "")) for route in reach.routes]
    return body


def _route(route: Route, shared: str) -> dict[str, Any]:
    """A route of ours, as a `messages.RouteBody`."""
    return {"uri": route.uri, "keys": list(route.routing_keys), **({"shared": shared} if shared else {})}


def announce_reach(tx: Transaction, name: str) -> None:
    """Our endpoints have changed: announce them to every member at once."""
    send_status(tx, name, {"reach": _reach(tx, tx.group(name))})


def send_status(tx: Transaction, name: str, more: dict[str, Any]) -> None:
    group = tx.group(name)
    positions, _ = position_fields(tx, group, whole=False)
    body = {"group": name, "runs": [], **positions, **more}
    message = Message(type=STATUS, id=new_id(tx.context.random), body=body)
    outbox.publish_message(tx, name, message, [member for member in group.links.peers if member in group.view.members])


def request_missing(tx: Transaction, name: str, member: str) -> None:
    """Send a member our state so that it sends what we lack; at most once per SYNC_INTERVAL_MS."""
    peer = tx.group(name).links.peers.get(member)
    if peer is not None and tx.now >= peer.anti_entropy.sync_sent_at + SYNC_INTERVAL_MS:
        tx.update_anti_entropy(name, member, sync_sent_at=tx.now)
        send_sync(tx, name, member)


# --- retransmission ---------------------------------------------------------------------------------------------------


def is_behind(group: Group, member: str) -> bool:
    """Whether a member has not acknowledged all of our events that are meant for it."""
    return max(group.links.acked(member, group.me), group.links.peers[member].start_seq) < group.seq


def expect_acknowledgement(tx: Transaction, name: str, seq: int, audience: Iterable[str]) -> None:
    """Events from `seq` on were published: start the retransmission timers of their recipients."""
    group = tx.group(name)
    now, me, up = tx.now, group.links.numbers.get(group.me, -1), tx.agent.links_up
    peers, waiting, deadlines, unreached = dict(group.links.peers), set[str](), list[int](), list[str]()
    for member in audience:
        peer = peers[member]
        mailed = peer.link not in up and mediator_mail.route_to(tx, name, member) is not None
        if max(peer.acks.upto.get(me, 0), peer.start_seq) >= seq - 1:
            # A member that lacked nothing gets the full time; one that is behind keeps its deadline.
            retry_at = now + (MAIL_RETRY_MS + tx.agent.mail_rules.delay_ms if mailed else RETRY_MS)
            peers[member] = peer = replace(peer, retransmission=replace(peer.retransmission, retry_at=retry_at))
        if not mailed and peer.link not in up:
            unreached.append(member)
        else:
            waiting.add(member)
            deadlines.append(peer.retransmission.retry_at - now)
    tx.update_links(name, peers=peers)
    for member in unreached:
        mediator_mail.seek(tx, name, member)
    waiting -= group.dcgka.acks_due
    if not waiting.isdisjoint(group.sync.acks_due):
        tx.update_sync(name, acks_due=group.sync.acks_due - waiting)
    if deadlines:
        tx.set_timer(TimerKind.RETRANSMIT, name, min(deadlines))


def expect_key_acks(tx: Transaction, name: str, audience: Iterable[str]) -> None:
    """A key event of ours was sent to these members: start their retransmission timers."""
    delays = []
    for member in audience:
        delay = _retransmission_delay(tx, name, member)
        if not is_behind(tx.group(name), member):
            tx.update_retransmission(name, member, retry_at=tx.now + delay)
        delays.append(delay)
    if delays:
        tx.set_timer(TimerKind.RETRANSMIT, name, min(delays), if_unset=True)


def _retransmission_delay(tx: Transaction, name: str, member: str, tries: int = 0) -> int:
    """The time until the next retransmission, in ms."""
    if mediator_mail.goes_by_mail(tx, name, member):
        return tx.agent.mail_rules.delay_ms + Backoff(MAIL_RETRY_MS, MAIL_RETRY_MS_MAX).delay_ms(tries)
    return Backoff(RETRY_MS, RETRY_MS_MAX).delay_ms(tries)


def retransmit(tx: Transaction, name: str, *, synced: str = "") -> None:
    """Retransmit unacknowledged events to every reachable member in time, and set the next timer. `synced`: the member
    to which this step has sent our state already."""
    group = tx.group(name)
    delays = []
    for member, peer in group.links.peers.items():
        behind = is_behind(group, member)
        lacks_keys = lacks_key_events(group, member)
        if not (behind or lacks_keys or publisher.lacks_signature(group, member)) or member not in group.view.members:
            continue  # most of them
        relationship = group.links.relationships.get(member)
        if relationship is None or not relationship.established or not mediator_mail.reachable(tx, name, member):
            continue
        if peer.retransmission.retry_at <= tx.now:
            delay = _retransmission_delay(tx, name, member, peer.retransmission.tries)
            tx.update_retransmission(name, member, retry_at=tx.now + delay, tries=peer.retransmission.tries + 1)
            if lacks_keys:
                resend(tx, name, member)
            if behind or peer.retransmission.tries:
                after = max(group.links.acked(member, group.me), peer.start_seq)
                tx.emit(
                    ReadOwnEvents(
                        name,
                        member,
                        group.me,
                        after,
                        RETRANSMIT_EVENTS_MAX,
                        *publisher.unacknowledged_of(group, member),
                    )
                )
            if member != synced and (peer.retransmission.tries or not behind):
                # It may not know where our chain begins for it, or that its signature has not arrived.
                send_sync(tx, name, member)
            delays.append(delay)
        else:
            delays.append(peer.retransmission.retry_at - tx.now)
    if delays:
        tx.set_timer(TimerKind.RETRANSMIT, name, min(delays))


def send_retransmission(
    tx: Transaction, name: str, member: str, records: Iterable[bytes], messages: Sequence[tuple[int, bytes]]
) -> None:
    """The journal has read our own events and stream messages: send them to the member that lacks them."""
    events = retention.for_others(tx, name, map(load_event, records))
    upto = events[-1].seq if events else 0
    if tx.group(name).first_mode.signs:
        upto = publisher.retransmit(tx, name, member, events, messages)
    else:
        outbox.send_events(tx, name, member, events)
    if member in tx.group(name).links.peers:
        tx.update_retransmission(name, member, upto=upto)


def record_room(tx: Transaction, name: str, member: str, room_ms: int) -> None:
    """A member stores no more of us for so long (0: it does), since we have used up our daily quota there: retransmit
    soon after there is room again."""
    retransmission = tx.peer(name, member).retransmission
    if room_ms:
        until = tx.now + min(room_ms, NO_ROOM_MS_MAX)
        tx.update_retransmission(name, member, no_room_until=until, retry_at=max(until, retransmission.retry_at))
    elif retransmission.no_room_until:
        # Not at once: a member that says both by turns would have us repeat everything each time.
        retry_at = min(retransmission.retry_at, tx.now + _retransmission_delay(tx, name, member))
        tx.update_retransmission(name, member, no_room_until=0, tries=1, retry_at=retry_at)
        retransmit(tx, name)


def retransmit_on_gap(tx: Transaction, name: str, member: str) -> None:
    """A member reports a gap in our chain: retransmit now, unless that is under way."""
    peer = tx.peer(name, member)
    # `retry_at` is at least RETRY_MS after the last progress, so this happens once for each.
    if (
        peer.retransmission.tries == 0
        and tx.now >= peer.retransmission.retry_at - RETRY_MS + SYNC_INTERVAL_MS
        and is_behind(tx.group(name), member)
    ):
        tx.update_retransmission(name, member, retry_at=tx.now)
        retransmit(tx, name)


def retransmit_on_return(tx: Transaction, name: str, member: str) -> None:
    """A member reached by mail is back and behind: what was sent meanwhile may be lost, so restart the backoff."""
    group, peer = tx.group(name), tx.peer(name, member)
    if (
        peer.retransmission.tries > 0
        and mediator_mail.goes_by_mail(tx, name, member)
        and (is_behind(group, member) or lacks_key_events(group, member))
    ):
        tx.update_retransmission(
            name, member, tries=1, retry_at=min(peer.retransmission.retry_at, tx.now + MAIL_RETRY_MS)
        )
        retransmit(tx, name)


# --- views ------------------------------------------------------------------------------------------------------------


def view_changed(tx: Transaction, name: str) -> None:
    """Our view has changed: views that members reported before count no longer, unless equal to it. Compare soon, after
    concurrent changes have arrived."""
    group = tx.group(name)
    ours = group.view.checksum
    for member, peer in group.links.peers.items():
        if peer.anti_entropy.view not in ("", ours):
            tx.update_anti_entropy(name, member, view="")
    if group.sync.view_comparisons:
        tx.update_sync(name, view_comparisons=0)
    tx.set_timer(TimerKind.VIEWS, name, SYNC_INTERVAL_MS)


def is_ack_timer(timer: str) -> bool:
    """Whether this timer delays an acknowledgement."""
    return timer.startswith("acknowledge ")


def has_unacknowledged(agent: Agent) -> bool:
    """Whether a connected peer has not acknowledged all our events, or we owe an acknowledgement. Offline peers get
    theirs after the next start."""
    for group in agent.groups.values():
        if group.state == "left":
            continue
        if group.sync.acks_due:
            return True
        for member in group.view.members:
            peer = group.links.peers.get(member)
            if peer is not None and peer.link in agent.links_up and is_behind(group, member):
                return True
    return False
