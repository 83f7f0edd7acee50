"""Our own stream: what we say, signed once and encrypted once for all who hear it."""

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import ed25519_public, sha256
from zerochat.didcomm.message import Message, new_id
from zerochat.evidence.messages import ALIAS_BYTES, SIGNATURE_BYTES, heading, sign_data
from zerochat.group.effects import KeepMessage, Publish
from zerochat.group.event_log import lamport
from zerochat.group.event_log.event import Event
from zerochat.group.key_modes.sender_key import KEY_BYTES, moved_on, seal_content, wrap_key
from zerochat.group.key_rotation import DAY_MS
from zerochat.group.links import mediator_mail, outbox
from zerochat.group.links.relationship import Relationship, pack
from zerochat.group.signed_streams import orphans
from zerochat.group.state import Group, OwnStream
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Turn
from zerochat.group.wire.event_runs import portions
from zerochat.group.wire.frame import seal_frame
from zerochat.group.wire.messages import SIGNED
from zerochat.group.wire.queue_names import data_queue


def current(turn: Turn, name: str) -> OwnStream:
    """Our stream, which begins with the first word about it."""
    group = turn.group(name)
    if group.stream is None:
        random = turn.moment.random
        start = random(SIGNATURE_BYTES)
        own = OwnStream(random(ALIAS_BYTES), start, start, random(KEY_BYTES), turn.now)
        group = turn.edit(name, stream=own)
    assert group.stream is not None
    return group.stream


def somebody_went(turn: Turn, name: str) -> None:
    """Whoever has our key and is not a member any more shall read nothing of what comes, unless a person here has said
    that it may take some more of them (`rotation.py`)."""
    own = turn.group(name).stream
    if own is not None:
        left = own.left + 1
        turn.edit(name, stream=replace(own, left=left, gone=own.gone or left >= turn.agent.rotation.removals))


def begin_anew(turn: Turn, name: str) -> None:
    """We may have said more than we know: whatever comes stands in another stream, of which nobody has heard."""
    adoption.retire(turn, name, turn.now + lamport.AHEAD_MS_MAX)
    group = turn.group(name)
    for member, early in group.early.items():
        orphans.put_aside(turn, name, member, early.messages.values())
    if group.stream is not None or group.streams or group.asking:
        turn.edit(name, stream=None, subscribers={}, streams={}, asking={}, early={})


def forget(turn: Turn, name: str, member: str) -> None:
    """This member hears nothing of us any more, and we nothing of it."""
    group = turn.group(name)
    if member in group.early:
        orphans.put_aside(turn, name, member, group.early[member].messages.values())
    for field in ("subscribers", "streams", "asking", "early"):
        known = getattr(group, field)
        if member in known:
            turn.edit(name, **{field: {did: one for did, one in known.items() if did != member}})


# --- saying ---------------------------------------------------------------------------------------------------------


def publish(turn: Turn, name: str, events: Sequence[Event]) -> None:
    """Say these events of ours, the next ones in our chain, to everybody who hears us."""
    for portion in portions(events):
        if _is_worn(turn, current(turn, name)):
            _take_new_key(turn, name, portion[-1].seq)
        own = current(turn, name)
        key, chain = moved_on(own.chain)
        body = outbox.events_body(turn.group(name), portion)
        turn.edit(name, stream=replace(own, chain=chain, number=own.number + 1))
        _say(
            turn,
            name,
            partial(seal_content, key, body),
            portion[-1].seq,
            key,
            outbox.span_of(turn.group(name), portion),
        )


def _is_worn(turn: Turn, own: OwnStream) -> bool:
    """Whether the next message goes under a new key. The limits may have been lowered since somebody left."""
    rules = turn.agent.rotation
    due = own.gone or own.left >= rules.removals or own.number >= rules.messages
    return due or not 0 <= turn.now - own.since < rules.days * DAY_MS


def _take_new_key(turn: Turn, name: str, upto: int) -> None:
    """Draw a new key, and say it to all who hear us and are members; whoever cannot be told asks anew."""
    group, own = turn.group(name), current(turn, name)
    listeners = dict(_listeners(group))
    chain = turn.moment.random(KEY_BYTES)
    if listeners:
        frame = seal_frame(chain, group.id, group.me, list(listeners.values()), turn.moment)
        _say(turn, name, lambda _: wrap_key(frame), upto, b"")
        own = current(turn, name)
    kept = {did: one for did, one in group.subscribers.items() if did in listeners}
    turn.edit(name, stream=replace(own, chain=chain, since=turn.now, number=0, gone=False, left=0), subscribers=kept)


def hash_of(group: Group, written: bytes) -> bytes:
    """By which a message may stand in the group's log; empty where the group keeps none."""
    return sha256(written) if group.view.ledger else b""


def _listeners(group: Group) -> list[tuple[str, Relationship]]:
    members, known = group.view.members, group.relationships.get
    found = [(did, known(did)) for did in group.subscribers if did in members]
    return [(did, one) for did, one in found if one is not None and one.established]


def _say(
    turn: Turn,
    name: str,
    sealed: Callable[[bytes], bytes],
    upto: int,
    key: bytes,
    span: mediator_mail.Span | None = None,
) -> None:
    """Say what is sealed behind the heading of a message, which leads up to this place of our chain. `span`: the events
    in it, if there are any."""
    group, own = turn.group(name), current(turn, name)
    time = max(1, turn.now, own.time + 1)
    head = heading(time, ed25519_public(group.seed), own.alias)
    written = sign_data(group.seed, head, sealed(head), own.head)
    signature = written[-SIGNATURE_BYTES:]
    turn.edit(name, stream=replace(own, head=signature, time=time))
    place = own.alias, time, own.head, signature, upto
    turn.say(KeepMessage(name, group.me, *place, written, key, hash_of(group, written)))
    peers, up = group.peers, turn.agent.up
    near = {
        did: peers[did].link
        for did, _ in _listeners(group)
        if did in peers and (peers[did].link in up or not mediator_mail.by_mail(turn, name, did))
    }
    if key and own.left and peers.keys() - group.view.members.keys():
        near = {}  # somebody who has gone can open this, and hears the queue until we have closed it
    if near:
        turn.say(Publish(data_queue(name, group.me), written, tuple(near.values())))
    for did in group.subscribers:  # a difference of sets would have another order in every process
        if did not in near:
            _send(turn, name, did, written, span)


def _send(turn: Turn, name: str, member: str, written: bytes, span: mediator_mail.Span | None = None) -> None:
    """To one member alone: over its link as it is, over a mediator in an envelope. Whoever was put out can be reached
    for some seconds more, and is sent none of it: it may have the key still (`rotation.py`)."""
    group = turn.group(name)
    if member not in group.view.members:
        return
    relationship = group.relationships.get(member)
    if member not in group.peers or relationship is None or not relationship.established:
        return
    if not mediator_mail.by_mail(turn, name, member):
        mediator_mail.send(turn, name, member, written)
        return
    message = Message(type=SIGNED, id=new_id(turn.moment.random), body={"message": b64url(written)})
    mediator_mail.send(turn, name, member, pack(relationship, message, turn.packer_of(name), turn.moment.random), span)


# --- saying again ---------------------------------------------------------------------------------------------------


def lacked_of(group: Group, member: str) -> tuple[bytes, int]:
    """Of which stream this member may lack something, and after which time; empty: it hears none of us.

    What it says of the log does not tell: others may have brought it the events, and a later one may have confirmed
    them, but the stream it has from us alone."""
    hears = group.subscribers.get(member)
    return (group.stream.alias, hears.acked) if group.stream is not None and hears is not None else (b"", 0)


def lacks_signature(group: Group, member: str) -> bool:
    """Whether this member has not signed yet that it has all of our stream: what it says of the log is not enough."""
    hears = group.subscribers.get(member)
    return group.stream is not None and hears is not None and hears.acked < group.stream.time


def repeat(turn: Turn, name: str, member: str, events: Sequence[Event], messages: Sequence[tuple[int, bytes]]) -> int:
    """Send a member what it lacks: of the stream, and what is not in that. The place up to which it has all then."""
    subscriber = turn.group(name).subscribers.get(member)
    if subscriber is None:
        outbox.send(turn, name, member, [event for event in events if event.is_control])
        return 0
    outbox.send(turn, name, member, [event for event in events if event.is_control or event.seq <= subscriber.after])
    said = [event for event in events if not event.is_control and event.seq > subscriber.after]
    for upto, written in messages:
        within = [event for event in said if event.seq <= upto]
        said = said[len(within) :]
        _send(turn, name, member, written, outbox.span_of(turn.group(name), within))
    last = events[-1].seq if events else 0
    return min(last, messages[-1][0]) if messages else last
