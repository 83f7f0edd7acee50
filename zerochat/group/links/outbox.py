"""The outbox: events on their way to members, over queues, member links or mediators.

A member that has subscribed to a queue of ours gets its messages there, one that has not yet gets them over the pair
link; a member reached by mail gets an envelope of its own.
"""

from collections.abc import Sequence
from typing import Any

from zerochat.didcomm.message import Message, new_id
from zerochat.group.dcgka import channels
from zerochat.group.effects import Publish
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes.mode import Recipient, SealedEnvelope
from zerochat.group.key_modes.pairwise import seal_status
from zerochat.group.links import content_keys, mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.group.state import Group
from zerochat.group.sync.positions import position_fields
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import compress_runs, message_batches, write_runs
from zerochat.group.wire.messages import EVENTS, STATUS

RETRANSMISSION_BYTES_MAX = 8 * 1024
"""Records in one message of a retransmission. On a slow line nothing else gets through while one is under way, not even
a heartbeat; so it must take less time than the silence timeout."""


def publish_events(
    tx: Transaction, name: str, events: Sequence[Event], audience: Sequence[str], *, status: bool
) -> None:
    """Send these events, few enough for one message, to every member of the audience that can be reached."""
    publish_message(tx, name, _message(tx, name, events, status=status), audience, span_of(tx.group(name), events))


def publish_message(
    tx: Transaction, name: str, message: Message, audience: Sequence[str], span: mediator_mail.Span | None = None
) -> None:
    """Put a message on our queues for these members: a status on the state queue, events on the data queues. `span`:
    our own events in it."""
    group, packer = tx.group(name), tx.packer_of(name)
    relationships = group.links.relationships
    linked = [member for member in audience if member in group.links.peers]
    ready = [member for member in linked if member in relationships and relationships[member].established]
    for member in ready:
        mediator_mail.seek(tx, name, member)
    near = [
        Recipient(relationships[member], group.view.members[member].transport)
        for member in ready
        if not mediator_mail.goes_by_mail(tx, name, member)
    ]
    sealed: Sequence[SealedEnvelope] = ()
    if near and message.type == STATUS:
        sealed = [seal_status(group.own_place, message, near, packer, tx.context)]
    elif near:
        sealed = group.mode.seal(group.own_place, message, near, packer, tx.context)
    for one in sealed:
        tx.emit(Publish(one.queue, one.envelope, tuple(group.links.peers[member].link for member in one.members)))
    alone = compress_runs(message) if message.type == EVENTS else message
    published = {reader.relationship.member for reader in near}
    for member in ready:
        if member not in published:
            send_content(tx, name, member, alone, span)


def send_content(
    tx: Transaction, name: str, member: str, message: Message, span: mediator_mail.Span | None = None
) -> None:
    """Send a message with content of the group to one member, in the relationship with it, which is established. Every
    such message goes through here: events, history, parts of files. Where keys heal it is sealed to the member's
    content key, and not sent as long as that is unknown."""
    relationship, sealed = tx.group(name).links.relationships[member], content_keys.sealed(tx, name, member, message)
    if sealed is not None:
        packed = pack(relationship, sealed, tx.packer_of(name), tx.context.random)
        mediator_mail.send(tx, name, member, packed, span)


def send_status(tx: Transaction, name: str, member: str, events: Sequence[Event]) -> None:
    """Send membership events, few enough for one message, to one member that can be reached: not over the queue, which
    all peers subscribe to."""
    group = tx.group(name)
    message = _message(tx, name, events, status=True)
    packed = pack(group.links.relationships[member], message, tx.packer_of(name), tx.context.random)
    mediator_mail.send(tx, name, member, packed)


def send_events(tx: Transaction, name: str, member: str, events: Sequence[Event]) -> None:
    """Send events to one member, in as many envelopes as it takes; nothing if it cannot be reached."""
    group = tx.group(name)
    relationship = group.links.relationships.get(member)
    if member not in group.links.peers or relationship is None or not relationship.established:
        return
    if not mediator_mail.seek(tx, name, member):
        return
    for portion in message_batches(events, RETRANSMISSION_BYTES_MAX):
        message = compress_runs(_message(tx, name, portion, status=False))
        send_content(tx, name, member, message, span_of(group, portion))


def span_of(group: Group, events: Sequence[Event]) -> mediator_mail.Span | None:
    """The positions of our own events among these; None: there are none, or they are not consecutive."""
    own = [event.seq for event in events if event.author == group.me]
    return (own[0], own[-1]) if own and own == [*range(own[0], own[-1] + 1)] else None


def events_body(tx: Transaction, group: Group, events: Sequence[Event]) -> dict[str, Any]:
    """The body of a message with these events (`messages.EventsBody`)."""
    positions, _ = position_fields(tx, group, whole=False)
    return {"runs": write_runs(events, group.me), **positions}


def _message(tx: Transaction, name: str, events: Sequence[Event], *, status: bool) -> Message:
    group = tx.group(name)
    body = events_body(tx, group, events)
    if group.mode.heals and not status:
        body |= channels.sent_field(group)
    if status:
        body["group"] = name
    return Message(type=STATUS if status else EVENTS, id=new_id(tx.context.random), body=body)
