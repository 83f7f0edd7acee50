"""Our own signed stream: each message is signed and encrypted once for all subscribers."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import ed25519_public, sha256
from zerochat.didcomm.message import Message, new_id
from zerochat.evidence.messages import ALIAS_BYTES, SIGNATURE_BYTES, data_header, sign_data
from zerochat.group.effects import Publish, StoreSignedMessage
from zerochat.group.event_log import lamport
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes.sender_key import KEY_BYTES, ratchet, seal_content, wrap_key
from zerochat.group.links import mediator_mail, outbox
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.settings import DAY_MS
from zerochat.group.signed_streams.messages import record_dropped
from zerochat.group.state import Group, OwnStream
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import message_batches
from zerochat.group.wire.frame import seal_frame
from zerochat.group.wire.messages import SIGNED
from zerochat.group.wire.queue_names import data_queue


def own_stream(tx: Transaction, name: str) -> OwnStream:
    """Our stream, which is created at its first use."""
    group = tx.group(name)
    if group.streams.own is None:
        random = tx.context.random
        start = random(SIGNATURE_BYTES)
        own = OwnStream(random(ALIAS_BYTES), start, start, random(KEY_BYTES), tx.now)
        group = tx.update_streams(name, own=own)
    assert group.streams.own is not None
    return group.streams.own


def member_left(tx: Transaction, name: str) -> None:
    """A member with our key has left: rotate the key, unless the user has allowed more departures first
    (`group/settings.py`)."""
    own = tx.group(name).streams.own
    if own is not None:
        left = own.departures + 1
        tx.update_streams(
            name,
            own=replace(own, departures=left, rotation_due=own.rotation_due or left >= tx.agent.key_rotation.removals),
        )


def restart_stream(tx: Transaction, name: str) -> None:
    """We may have sent more than we remember: begin another stream, without subscribers."""
    adoption.retire_tlogs(tx, name, tx.now + lamport.AHEAD_MS_MAX)
    group = tx.group(name)
    for member, early in group.streams.early_messages.items():
        record_dropped(tx, name, member, early.written)
    if group.streams.own is not None or group.streams.followed or group.streams.requests:
        tx.update_streams(name, own=None, subscribers={}, followed={}, requests={}, early_messages={})


def forget_member(tx: Transaction, name: str, member: str) -> None:
    """Drop both subscriptions between this member and us."""
    group = tx.group(name)
    if member in group.streams.early_messages:
        record_dropped(tx, name, member, group.streams.early_messages[member].written)
    for field in ("subscribers", "followed", "requests", "early_messages"):
        known = getattr(group.streams, field)
        if member in known:
            tx.update_streams(name, **{field: {did: other for did, other in known.items() if did != member}})


# --- publishing -----------------------------------------------------------------------------------------------------


def publish_signed(tx: Transaction, name: str, events: Sequence[Event]) -> None:
    """Send these events of ours, the next ones in our chain, to all subscribers."""
    for portion in message_batches(events):
        if _needs_new_key(tx, own_stream(tx, name)):
            _rotate_key(tx, name, portion[-1].seq)
        own = own_stream(tx, name)
        key, chain = ratchet(own.chain)
        body = outbox.events_body(tx, tx.group(name), portion)
        tx.update_streams(name, own=replace(own, chain=chain, messages=own.messages + 1))
        _publish_signed(
            tx,
            name,
            partial(seal_content, key, body),
            portion[-1].seq,
            key,
            outbox.span_of(tx.group(name), portion),
        )


def _needs_new_key(tx: Transaction, own: OwnStream) -> bool:
    """Whether the next message takes a new key. The limits may have been lowered since a member left."""
    rules = tx.agent.key_rotation
    due = own.rotation_due or own.departures >= rules.removals or own.messages >= rules.messages
    return due or not 0 <= tx.now - own.since < rules.days * DAY_MS


def _rotate_key(tx: Transaction, name: str, upto: int) -> None:
    """Draw a new key and send it to all subscribers that are members; the others request it again."""
    group, own = tx.group(name), own_stream(tx, name)
    listeners = dict(_reachable_subscribers(group))
    chain = tx.context.random(KEY_BYTES)
    if listeners:
        frame = seal_frame(chain, group.id, group.me, list(listeners.values()), tx.context)
        _publish_signed(tx, name, lambda _: wrap_key(frame), upto, b"")
        own = own_stream(tx, name)
    kept = {did: one for did, one in group.streams.subscribers.items() if did in listeners}
    tx.update_streams(
        name,
        own=replace(own, chain=chain, since=tx.now, messages=0, rotation_due=False, departures=0),
        subscribers=kept,
    )


def hash_of(group: Group, written: bytes) -> bytes:
    """The hash of a message in the transparency log; empty where the group keeps none."""
    return sha256(written) if group.view.has_tlog else b""


def _reachable_subscribers(group: Group) -> list[tuple[str, Relationship]]:
    members, known = group.view.members, group.links.relationships.get
    found = [(did, known(did)) for did in group.streams.subscribers if did in members]
    return [(did, one) for did, one in found if one is not None and one.established]


def _publish_signed(
    tx: Transaction,
    name: str,
    sealed: Callable[[bytes], bytes],
    upto: int,
    key: bytes,
    span: mediator_mail.Span | None = None,
) -> None:
    """Publish a message with this sealed part, which leads up to position `upto` of our chain. `span`: the events in
    it, if any."""
    group, own = tx.group(name), own_stream(tx, name)
    time = max(1, tx.now, own.time + 1)
    head = data_header(time, ed25519_public(group.seed), own.alias)
    written = sign_data(group.seed, head, sealed(head), own.head)
    signature = written[-SIGNATURE_BYTES:]
    tx.update_streams(name, own=replace(own, head=signature, time=time))
    place = own.alias, time, own.head, signature, upto
    tx.emit(StoreSignedMessage(name, group.me, *place, written, key, hash_of(group, written)))
    peers, up = group.links.peers, tx.agent.links_up
    near = {
        did: peers[did].link
        for did, _ in _reachable_subscribers(group)
        if did in peers and (peers[did].link in up or not mediator_mail.goes_by_mail(tx, name, did))
    }
    if key and own.departures and peers.keys() - group.view.members.keys():
        near = {}  # a former member can decrypt this, and is subscribed to the queue until we have closed it
    if near:
        tx.emit(Publish(data_queue(name, group.me), written, tuple(near.values())))
    for did in group.streams.subscribers:  # a set difference would have another order in every process
        if did not in near:
            _send_signed(tx, name, did, written, span)


def _send_signed(
    tx: Transaction, name: str, member: str, written: bytes, span: mediator_mail.Span | None = None
) -> None:
    """Send a message to one member: as it is over its link, in an envelope over a mediator. A removed member stays
    connected for some seconds and may still have the key, so it is sent nothing."""
    group = tx.group(name)
    if member not in group.view.members:
        return
    relationship = group.links.relationships.get(member)
    if member not in group.links.peers or relationship is None or not relationship.established:
        return
    if not mediator_mail.goes_by_mail(tx, name, member):
        mediator_mail.send(tx, name, member, written)
        return
    message = Message(type=SIGNED, id=new_id(tx.context.random), body={"message": b64url(written)})
    mediator_mail.send(tx, name, member, pack(relationship, message, tx.packer_of(name), tx.context.random), span)


# --- retransmission -------------------------------------------------------------------------------------------------


def unacknowledged_of(group: Group, member: str) -> tuple[bytes, int]:
    """The stream, and the time after which this member may lack messages of it; empty: not a subscriber.

    Its acknowledgements of the log do not show that: others may have passed on the events, but only we send the stream.
    """
    subscriber = group.streams.subscribers.get(member)
    return (
        (group.streams.own.alias, subscriber.acked)
        if group.streams.own is not None and subscriber is not None
        else (b"", 0)
    )


def lacks_signature(group: Group, member: str) -> bool:
    """Whether this member has not signed an acknowledgement for all of our stream."""
    subscriber = group.streams.subscribers.get(member)
    return group.streams.own is not None and subscriber is not None and subscriber.acked < group.streams.own.time


def retransmit(
    tx: Transaction, name: str, member: str, events: Sequence[Event], messages: Sequence[tuple[int, bytes]]
) -> int:
    """Send a member the stream messages and the other events that it lacks; events from after an upgrade of the keys
    are signed themselves. Returns the position up to which it has all
    then."""
    subscriber = tx.group(name).streams.subscribers.get(member)
    if subscriber is None:
        outbox.send_events(tx, name, member, [event for event in events if event.is_control or event.sig])
        return 0
    posts = [event for event in events if not (event.is_control or event.sig or event.seq <= subscriber.after)]
    outbox.send_events(tx, name, member, [event for event in events if event not in posts])
    for upto, written in messages:
        within = [event for event in posts if event.seq <= upto]
        posts = posts[len(within) :]
        _send_signed(tx, name, member, written, outbox.span_of(tx.group(name), within))
    last = events[-1].seq if events else 0
    return min(last, messages[-1][0]) if messages else last
