"""Our key events and messages: what the key agreement needs comes before the next message; then one for all members.

A key event goes to each member by itself, with its direct message, again with the other retransmissions until a `sync`
of the member acknowledges it.
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.didcomm.message import Message, new_id
from zerochat.group.dcgka import forwarding, ring_channels
from zerochat.group.dcgka.channels import keys_of, without_recipient
from zerochat.group.dcgka.membership import membership_of
from zerochat.group.effects import Publish
from zerochat.group.event_log.event import Event
from zerochat.group.inputs import StepContext
from zerochat.group.key_agreement.key_event import Directs, KeyEvent
from zerochat.group.key_agreement.message_keys import sending_key
from zerochat.group.key_agreement.production import due, may_wait, produce
from zerochat.group.key_agreement.state import Keys
from zerochat.group.key_agreement.wire import direct_bytes, event_bytes
from zerochat.group.key_modes.dcgka import Place, seal
from zerochat.group.key_modes.deniable import add_tags
from zerochat.group.links import content_keys, mediator_mail, neighbours, outbox, rate_limits
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.state import Group
from zerochat.group.state.dcgka import PendingDirect, SentKeyEvent
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import message_batches, signed_together, with_bytes
from zerochat.group.wire.messages import KEY_EVENTS, KEY_EVENTS_MAX, SEALED
from zerochat.group.wire.queue_names import data_queue

SENT_MAX: Final = 128
"""Our key events that are kept for members that have not acknowledged them. One that has missed more follows our
ratchet again once it has said so."""
ADOPTIONS_MAX, ADOPTION_INTERVAL_MS = 16, 5_000
"""Key events that others cause at once, and one more after each interval: each costs a message to every member, and an
insider could cause one before each message of ours. Those that keep our messages from a former member do not wait."""


# --- key events -----------------------------------------------------------------------------------------------------


def prepare(tx: Transaction, name: str) -> tuple[str, ...]:
    """Make the key event that is due before our next message, if one is. Returns the members that it is for, which
    acknowledge it with a `sync`: none on the ring."""
    if neighbours.is_ring(tx.group(name)):
        ring_channels.with_channels(tx, name)
    keys, membership = keys_of(tx, name), membership_of(tx.group(name))
    what = due(keys, membership, tx.now)
    if not what or (may_wait(keys, membership, tx.now) and not _spend_adoption(tx, name)):
        return ()
    return make(tx, name, update=what == "update")


def _spend_adoption(tx: Transaction, name: str) -> bool:
    """Count a key event that others cause, with an update or a lost ratchet; False: they cause too many, and this one
    waits. No member reads less for it: what it cannot open is retransmitted."""
    dcgka = tx.group(name).dcgka
    passed = tx.now - dcgka.adoptions_at
    left, at = ADOPTIONS_MAX, tx.now
    if passed >= 0 and dcgka.adoptions_at:
        more = passed // ADOPTION_INTERVAL_MS
        left = min(ADOPTIONS_MAX, dcgka.adoptions_left + more)
        at = dcgka.adoptions_at + more * ADOPTION_INTERVAL_MS if left < ADOPTIONS_MAX else tx.now
    if left:
        tx.update_dcgka(name, adoptions_left=left - 1, adoptions_at=at)
    return left > 0


def make(tx: Transaction, name: str, *, update: bool = False) -> tuple[str, ...]:
    """Make a key event of ours, and send it to all members. Returns those that acknowledge it with a `sync`."""
    if neighbours.is_ring(tx.group(name)):
        ring_channels.with_channels(tx, name)
    group, keys = tx.group(name), keys_of(tx, name)
    made = produce(keys, membership_of(group), StepContext(tx.now, tx.context.random), update=update)
    if made.event.is_update:
        content_keys.renew(tx, name)
    return distribute(tx, name, made.keys, made.event.signed(group.seed), made.directs)


def distribute(tx: Transaction, name: str, keys: Keys, event: KeyEvent, directs: Directs) -> tuple[str, ...]:
    """Send a key event of ours to all members, and keep it until they acknowledge it. Returns those that do so with a
    `sync`. `keys`: the state after it."""
    if neighbours.is_ring(tx.group(name)):
        ring_channels.distribute(tx, name, keys, event, directs)
        return ()
    group, pending = tx.group(name), {}
    for member in sorted(membership_of(group).members & group.links.peers.keys()):
        direct = directs.direct(member)
        pending[member] = PendingDirect(direct_bytes(direct) if direct is not None else b"")
    sent = group.dcgka.sent
    if pending:
        sent = {**sent, event.number: SentKeyEvent(event_bytes(event), pending)}
    for number in sorted(sent)[:-SENT_MAX]:
        del sent[number]
    tx.update_dcgka(name, keys=keys, sent=sent)
    for member in pending:
        _send(tx, name, member, [event.number])
    return tuple(pending)


def lacks_key_events(group: Group, member: str) -> bool:
    """Whether a member has not acknowledged all of our key events that are kept for it, or has not told us its pre-key:
    it sends it again when a `sync` of ours does not name it. On the ring, `ring_channels` knows."""
    if not group.mode.heals or neighbours.is_ring(group):
        return False
    channel = group.dcgka.keys.channels.get(member)
    is_met = channel is not None and bool(channel.peer)
    return not is_met or any(member in event.pending for event in group.dcgka.sent.values())


def resend(tx: Transaction, name: str, member: str) -> None:
    """Send a member the first key events of ours that it has not acknowledged."""
    sent = tx.group(name).dcgka.sent
    _send(tx, name, member, [number for number in sorted(sent) if member in sent[number].pending][:KEY_EVENTS_MAX])


def record_ack(tx: Transaction, name: str, member: str, upto: int, *, lost: bool) -> None:
    """A member has our key events up to this number, and follows our ratchet, or has `lost` it."""
    dcgka = tx.group(name).dcgka
    sent = {}
    for number, event in dcgka.sent.items():
        left = without_recipient(event, member) if number <= upto else event
        if left.pending:
            sent[number] = left
    if sent != dcgka.sent:
        tx.update_dcgka(name, sent=sent)
    is_new = lost and upto == dcgka.keys.number and member in dcgka.keys.synced
    if is_new and rate_limits.spend_statement(tx, name, member):
        tx.update_dcgka(name, keys=replace(dcgka.keys, synced=dcgka.keys.synced - {member}))


def _send(tx: Transaction, name: str, member: str, numbers: Sequence[int]) -> None:
    """Send a member these key events, if it can be reached."""
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    if not numbers or relationship is None or not relationship.established:
        return
    if member not in group.view.members or not mediator_mail.seek(tx, name, member):
        return
    sent = group.dcgka.sent
    earlier = [number for number, event in sent.items() if number < numbers[0] and member in event.pending]
    events = [[b64url(sent[number].record), b64url(sent[number].pending[member].message)] for number in numbers]
    body = {"group": name, "events": events, "before": max(earlier, default=0)}
    body |= content_keys.announced(tx, name, member)
    message = Message(type=KEY_EVENTS, id=new_id(tx.context.random), body=body)
    mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random))


# --- messages -------------------------------------------------------------------------------------------------------


def publish_sealed(tx: Transaction, name: str, events: Sequence[Event]) -> None:
    """Send these posts and annotations of ours, the next ones in our chain, to all members, under our message keys.
    What is due comes first (`prepare`)."""
    for portion in signed_together(events) if tx.group(name).mode.signs_events else message_batches(events):
        sending = sending_key(keys_of(tx, name))
        tx.update_dcgka(name, keys=sending.keys)
        group = tx.group(name)
        place, body = Place(sending.epoch, sending.number), with_bytes(outbox.events_body(tx, group, portion))
        sealed = seal(sending.key, place, name, group.me, body)
        if neighbours.is_forwarding(group):
            forwarding.publish(tx, name, sealed, portion[-1].seq)
        else:
            _publish(tx, name, sealed, outbox.span_of(group, portion))


def _publish(tx: Transaction, name: str, envelope: bytes, span: mediator_mail.Span | None) -> None:
    """Put a message on our queue; members that are reached by mail get it in an envelope of their own."""
    group, near, up = tx.group(name), dict[bytes, Relationship](), tx.agent.links_up
    for member, peer in group.links.peers.items():
        relationship = group.links.relationships.get(member)
        if member not in group.view.members or relationship is None or not relationship.established:
            continue
        if (
            peer.link not in up
            and mediator_mail.seek(tx, name, member)
            and mediator_mail.goes_by_mail(tx, name, member)
        ):
            content = b64url(_authenticated(group, envelope, [relationship]))
            message = Message(type=SEALED, id=new_id(tx.context.random), body={"message": content})
            packed = pack(relationship, message, tx.packer_of(name), tx.context.random)
            mediator_mail.send(tx, name, member, packed, span)
        else:
            near[peer.link] = relationship
    if near:
        tx.emit(Publish(data_queue(name, group.me), _authenticated(group, envelope, [*near.values()]), tuple(near)))


def _authenticated(group: Group, envelope: bytes, to: Sequence[Relationship]) -> bytes:
    """The message for these members: signed events need nothing, others a tag for each member."""
    return envelope if group.mode.signs_events else add_tags(envelope, group.id, group.me, to)
