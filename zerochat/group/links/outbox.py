"""The outbox: events on their way to members, over queues, member links or mediators.

A member that has subscribed to a queue of ours gets its messages there, one that has not yet gets them over the pair
link; a member reached by mail gets an envelope of its own.
"""

from collections.abc import Sequence
from typing import Any

from zerochat.didcomm.message import Message, new_id
from zerochat.group.effects import Publish
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes.mode import Recipient, SealedEnvelope
from zerochat.group.key_modes.pairwise import seal_status
from zerochat.group.links import mediator_mail
from zerochat.group.links.relationship import pack
from zerochat.group.state import Group
from zerochat.group.transaction import Transaction
from zerochat.group.wire.event_runs import compress_runs, message_batches, write_runs
from zerochat.group.wire.messages import EVENTS, HAVE_MAX, STATUS
from zerochat.overlay import OVERLAYS

RETRANSMISSION_BYTES_MAX = 8 * 1024
"""Records in one message of a retransmission. On a slow line nothing else gets through while one is under way, not even
a heartbeat; so it must take less time than the silence timeout."""


def confirmed_positions(group: Group) -> list[int]:
    """How far we have each member's chain by the author's own word, in the order of the view. Relayed events do not
    count: the author may still retransmit them."""
    chains = group.log.chains
    return [chains[did].confirmed_seq if did in chains else 0 for did in group.view.members]


def have_fields(tx: Transaction, have: list[int]) -> dict[str, Any]:
    """The fields `have` and `have_from` of a message, for these positions of all members. Of a view that is too large,
    each message covers other members: it begins at a random place, so that every author is covered in time."""
    if len(have) <= HAVE_MAX:
        return {"have": have}
    first = int.from_bytes(tx.context.random(4)) % len(have)
    return {"have": [*have[first:], *have[:first]][:HAVE_MAX], "have_from": first}


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
    overlay = OVERLAYS[group.profile.path]
    hops = [hop for member in audience for hop in overlay.first_hops(group.me, member, group.links.peers.keys())]
    ready = [hop for hop in hops if hop in group.links.relationships and group.links.relationships[hop].established]
    for member in ready:
        mediator_mail.seek(tx, name, member)
    near = [
        Recipient(group.links.relationships[member], group.view.members[member].transport)
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
            mediator_mail.send(
                tx, name, member, pack(group.links.relationships[member], alone, packer, tx.context.random), span
            )


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
        packed = pack(relationship, message, tx.packer_of(name), tx.context.random)
        mediator_mail.send(tx, name, member, packed, span_of(group, portion))


def span_of(group: Group, events: Sequence[Event]) -> mediator_mail.Span | None:
    """The positions of our own events among these; None: there are none, or they are not consecutive."""
    own = [event.seq for event in events if event.author == group.me]
    return (own[0], own[-1]) if own and own == [*range(own[0], own[-1] + 1)] else None


def events_body(tx: Transaction, group: Group, events: Sequence[Event]) -> dict[str, Any]:
    """The body of a message with these events (`messages.EventsBody`)."""
    have = have_fields(tx, confirmed_positions(group))
    return {"runs": write_runs(events, group.me), "view": group.view.checksum, **have}


def _message(tx: Transaction, name: str, events: Sequence[Event], *, status: bool) -> Message:
    group = tx.group(name)
    body = events_body(tx, group, events)
    if status:
        body["group"] = name
    return Message(type=STATUS if status else EVENTS, id=new_id(tx.context.random), body=body)
