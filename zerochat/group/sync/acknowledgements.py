"""Cumulative acknowledgements, and retransmission by the author.

One message, `sync`, carries the sender's whole state: how far it has every chain, where its own chain begins for the
recipient, and which membership events it knows. It is acknowledgement and request in one. Acknowledgements are
piggybacked on posts; alone they go only to the authors concerned, after a short delay, so n members cost n messages and
not n squared. An author retransmits unacknowledged events in order, with exponential backoff and no end; differences in
membership events are exchanged as soon as either side notices.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message, new_id
from zerochat.group import effects, retention
from zerochat.group.backoff import Backoff
from zerochat.group.effects import Notify, ReadOwnEvents
from zerochat.group.event_log.event import load_event
from zerochat.group.links import mediator_mail, mediator_receipts, outbox, storage_quota
from zerochat.group.links.outbox import confirmed_positions
from zerochat.group.links.relationship import pack
from zerochat.group.membership import attestation
from zerochat.group.notifications import Receipt, ViewChanged
from zerochat.group.signed_streams import publisher, statements
from zerochat.group.state import Group
from zerochat.group.sync.chain_heads import head_digests
from zerochat.group.timer_kinds import TimerKind
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import FORMER_MAX, STATUS, SYNC

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


def record_state(tx: Transaction, name: str, sender: str, view: str, acks: Sequence[int], first: int = 0) -> None:
    """Record what an authentic message reports of its sender's state: the places `acks` in the chains of the members of
    its `view`, from the `first` member on."""
    group = tx.group(name)
    peer = group.links.peers[sender]
    if view == peer.anti_entropy.view:
        tx.update_peer(name, sender, last_received_at=tx.now)
    else:
        tx.update_peer(name, sender, last_received_at=tx.now, anti_entropy=replace(peer.anti_entropy, view=view))
        tx.emit(Notify(ViewChanged(name)))
    if view == group.view.checksum:
        record_acks(tx, name, sender, dict(zip(group.members_from(first), acks, strict=False)))
    else:
        schedule_view_comparison(tx, name)


def record_regression(
    tx: Transaction, name: str, member: str, view: str, acks: Sequence[int], at: int, first: int = 0
) -> None:
    """A member reports its state, written `at` this time by its own clock (UTC ms). If it keeps reporting less of our
    chain than it had acknowledged, its profile is an older copy: accept that, and retransmit the lost events. `acks`
    and `first`: as in `record_state`.

    A single report does not suffice: messages on two paths overtake each other. Older, possibly replayed reports are
    ignored. Nor is it accepted often, since a false report costs its sender nothing.
    """
    group = tx.group(name)
    peer = group.links.peers[member]
    if view != group.view.checksum or at <= peer.acks.written_at:
        return
    known = peer.acks.upto.get(group.me, 0)
    upto = dict(zip(group.members_from(first), acks, strict=False)).get(group.me, known)
    regressed = upto < known
    if regressed and peer.acks.regressed_since and tx.now >= peer.acks.regressed_since + REGRESSION_MS:
        tx.update_acks(name, member, written_at=at, regressed_since=0, upto={group.me: upto})
        tx.update_retransmission(name, member, tries=0, retry_at=tx.now)
        mediator_receipts.invalidate(tx, name, member)
        retransmit(tx, name)
    else:
        tx.update_acks(
            name, member, written_at=at, regressed_since=(peer.acks.regressed_since or tx.now) if regressed else 0
        )


def record_acks(tx: Transaction, name: str, member: str, reported: dict[str, int]) -> None:
    """A member reports up to where it has these authors' chains."""
    group = tx.group(name)
    peer = group.links.peers[member]
    known, acked = peer.acks.upto.get, dict(peer.acks.upto)
    for author, upto in [one for one in reported.items() if one[1] > known(one[0], 0)]:  # most reports are old
        after = acked.get(author, 0)
        if author == group.me:  # our own chain cannot be longer elsewhere
            upto, after = min(upto, group.seq), max(after, peer.start_seq)
        if author != member and upto > after:
            acked[author] = upto
            tx.emit(Notify(Receipt(name, member, author, after, upto)))
            if author == group.me:
                tx.emit(effects.StoreReceipt(name, member, author, upto, tx.now, _transport(tx, name, member)))
            elif upto > group.chain(author).seq:  # usually still under way
                tx.set_timer(
                    TimerKind.GAPS,
                    name,
                    GAP_DELAY_MS * 4 // 5 + tx.context.random(1)[0] * GAP_DELAY_MS // 365,
                    if_unset=True,
                )
    if acked != peer.acks.upto:
        progress = acked.get(group.me, 0) > peer.acks.upto.get(group.me, 0)
        # A member that has all of a retransmission gets the next one at once, not at the timer.
        at_once = peer.retransmission.tries > 0 and acked.get(group.me, 0) >= peer.retransmission.upto
        acks, retransmission = replace(peer.acks, upto=acked), peer.retransmission
        if progress:
            retransmission = replace(retransmission, tries=0, retry_at=tx.now + (0 if at_once else RETRY_MS))
        tx.update_peer(name, member, acks=acks, retransmission=retransmission)
        if progress and at_once:
            retransmit(tx, name)


def _transport(tx: Transaction, name: str, member: str) -> str:
    return "mediator" if mediator_mail.goes_by_mail(tx, name, member) else "link"


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
            send_sync(tx, name, author)


def send_sync(tx: Transaction, name: str, member: str, unreachable: Sequence[str] = ()) -> None:
    """Send our whole state to one member, if it can be reached. `unreachable`: the members to which it is asked to
    relay what we cannot deliver (`relay.py`)."""
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    if relationship is None or not relationship.established or tx.agent.reach is None:
        return
    if not mediator_mail.seek(tx, name, member):
        return
    message = sync_message(tx, name, member, unreachable)
    mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random))


def sync_message(tx: Transaction, name: str, member: str, unreachable: Sequence[str] = ()) -> Message:
    """Our state for one member; it counts as sent."""
    group = tx.group(name)
    peer = group.links.peers[member]
    heads, word = attestation.own_attestation(group)
    body: dict[str, Any] = {
        "group": name,
        "view": group.view.checksum,
        **outbox.have_fields(tx, confirmed_positions(group)),
        "start_seq": peer.start_seq,
        "acked": group.chain(member).confirmed_seq,
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
        and not group.mode.signs
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
    if group.mode.signs:
        body |= statements.sync_fields(tx, name, member)
    if size := adoption.current_size(group):
        body["tlog_size"] = size
    if unreachable:
        body["unreachable"] = [place for place, did in enumerate(group.view.members) if did in unreachable]
    body["head_digests"] = head_digests(group, salt := new_id(tx.context.random), body.get("have_from", 0))
    if peer.exchange.greeting_due:
        tx.update_exchange(name, member, greeting_due=False)
    if member in group.sync.acks_due:
        tx.update_sync(name, acks_due=group.sync.acks_due - {member})
    return Message(type=SYNC, id=salt, body=body)


def _highest_seen(group: Group, member: str) -> int:
    """The last place of a member's chain of which we have any event: buffered, relayed, or signed."""
    buffer = group.log.reorder_buffers.get(member)
    waiting = [load_event(one.record) for one in group.log.blocked.values()]
    signed = [event.seq for event in (*group.control.values(), *waiting) if event.author == member]
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
        body["mail"] = [{"uri": route.uri, "keys": list(route.routing_keys)} for route in reach.routes]
    return body


def announce_reach(tx: Transaction, name: str) -> None:
    """Our endpoints have changed: announce them to every member at once."""
    send_status(tx, name, {"reach": _reach(tx, tx.group(name))})


def send_status(tx: Transaction, name: str, more: dict[str, Any]) -> None:
    group = tx.group(name)
    have = outbox.have_fields(tx, confirmed_positions(group))
    body = {"group": name, "runs": [], "view": group.view.checksum, **have, **more}
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
    peer = group.links.peers[member]
    return max(peer.acks.upto.get(group.me, 0), peer.start_seq) < group.seq


def expect_acknowledgement(tx: Transaction, name: str, seq: int, audience: Iterable[str]) -> None:
    """Events from `seq` on were published: start the retransmission timers of their recipients."""
    group = tx.group(name)
    now, me, up = tx.now, group.me, tx.agent.links_up
    peers, waiting, deadlines, unreached = dict(group.links.peers), set[str](), list[int](), list[str]()
    for member in audience:
        peer = peers[member]
        mailed = peer.link not in up and mediator_mail.route_to(tx, name, member) is not None
        if max(peer.acks.upto.get(me, 0), peer.start_seq) >= seq - 1:
            # A member that lacked nothing gets the full time; one that is behind keeps its deadline.
            retry_at = now + (MAIL_RETRY_MS if mailed else RETRY_MS)
            peers[member] = peer = replace(peer, retransmission=replace(peer.retransmission, retry_at=retry_at))
        if not mailed and peer.link not in up:
            unreached.append(member)
        else:
            waiting.add(member)
            deadlines.append(peer.retransmission.retry_at - now)
    tx.update_links(name, peers=peers)
    for member in unreached:
        mediator_mail.seek(tx, name, member)
    if not waiting.isdisjoint(group.sync.acks_due):
        tx.update_sync(name, acks_due=group.sync.acks_due - waiting)
    if deadlines:
        tx.set_timer(TimerKind.RETRANSMIT, name, min(deadlines))


def _retransmission_delay(tx: Transaction, name: str, member: str, tries: int = 0) -> int:
    """The time until the next retransmission, in ms."""
    if mediator_mail.goes_by_mail(tx, name, member):
        return Backoff(MAIL_RETRY_MS, MAIL_RETRY_MS_MAX).delay_ms(tries)
    return Backoff(RETRY_MS, RETRY_MS_MAX).delay_ms(tries)


def retransmit(tx: Transaction, name: str) -> None:
    """Retransmit unacknowledged events to every reachable member in time, and set the next timer."""
    group = tx.group(name)
    delays = []
    for member, peer in group.links.peers.items():
        relationship = group.links.relationships.get(member)
        if relationship is None or not relationship.established or not mediator_mail.reachable(tx, name, member):
            continue
        behind = is_behind(group, member)
        if not (behind or publisher.lacks_signature(group, member)) or member not in group.view.members:
            continue
        if peer.retransmission.retry_at <= tx.now:
            delay = _retransmission_delay(tx, name, member, peer.retransmission.tries)
            tx.update_retransmission(name, member, retry_at=tx.now + delay, tries=peer.retransmission.tries + 1)
            if behind or peer.retransmission.tries:
                after = max(peer.acks.upto.get(group.me, 0), peer.start_seq)
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
            if peer.retransmission.tries or not behind:
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
    if tx.group(name).mode.signs:
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
    peer = tx.peer(name, member)
    if (
        peer.retransmission.tries > 0
        and mediator_mail.goes_by_mail(tx, name, member)
        and is_behind(tx.group(name), member)
    ):
        tx.update_retransmission(
            name, member, tries=1, retry_at=min(peer.retransmission.retry_at, tx.now + MAIL_RETRY_MS)
        )
        retransmit(tx, name)


# --- views ------------------------------------------------------------------------------------------------------------


def schedule_view_comparison(tx: Transaction, name: str) -> None:
    """Our view differs from another member's: compare soon, after concurrent changes have arrived."""
    tx.set_timer(TimerKind.VIEWS, name, SYNC_INTERVAL_MS)


def view_changed(tx: Transaction, name: str) -> None:
    """Our view has changed: views that members reported before count no longer, unless equal to it."""
    group = tx.group(name)
    ours = group.view.checksum
    for member, peer in group.links.peers.items():
        if peer.anti_entropy.view not in ("", ours):
            tx.update_anti_entropy(name, member, view="")
    schedule_view_comparison(tx, name)
