"""Receiving other members' signed streams: each message follows the one that it names.

Early messages wait in a bounded buffer; excess ones are dropped, as the log retransmits. A message is accepted in whole
or not at all: once the key has ratcheted on, it cannot be decrypted again.

Messages that are not accepted are checked for equivocation: two messages with the same predecessor, or one that is not
later than its predecessor, convict their author (`evidence/judge.py`, E1 and E2). The journal stores such a pair;
nothing else follows.
"""

from msgspec.structs import replace

from zerochat.crypto.encoding import did_key_bytes
from zerochat.errors import Malformed, Refused, Unauthentic
from zerochat.evidence.messages import ALIAS, TIME, Data, find_equivocation, parse_data
from zerochat.group.effects import Measure, StoreConflictingMessage, StoreSignedMessage
from zerochat.group.event_log import receiving
from zerochat.group.key_modes.sender_key import KEY_BYTES, ratchet, wrapped_key
from zerochat.group.links import storage_quota
from zerochat.group.signed_streams.messages import body_of, record_dropped, record_received
from zerochat.group.signed_streams.publisher import hash_of
from zerochat.group.state import EarlyMessage, EarlyMessages, Group, Stream
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Transaction
from zerochat.group.wire.frame import open_frame

EARLY_MAX = 64
EARLY_BYTES_MAX = 1 << 20
"""Buffered messages of one stream, and their bytes: one retransmission."""


def receive_signed(tx: Transaction, name: str, sender: str, written: bytes) -> None:
    """A signed message over the link to its author. Raises RemoteError, and then nothing has changed."""
    group = tx.group(name)
    if not group.first_mode.signs:
        raise Refused(why="a signed message in a group without signatures")
    message = parse_data(written)
    if message.publisher != did_key_bytes(sender):
        raise Refused(why="a signed message of another member")
    stream = group.streams.followed.get(sender)
    acknowledgements.schedule_ack(tx, name, sender)
    is_new = stream is None or message.time > stream.time
    if is_new and receiving.lacks_room(tx, name, sender, group.chain(sender).seq + 1):
        return
    if stream is None or message.alias != stream.alias:
        if sender not in group.streams.requests:
            tx.emit(Measure("dropped", "NotSubscribed"))  # our `sync` tells the author that we are not subscribed
            return
        _buffer(tx, name, sender, message, written)
    elif message.time > stream.time and message.before != stream.head:
        _buffer(tx, name, sender, message, written)
    elif message.time > stream.time:
        _accept(tx, name, sender, stream, message, written)
        drain_buffer(tx, name, sender)
    elif message.signature != stream.head:
        _check_conflict(tx, name, sender, message, written)


def receive_from_tlog(tx: Transaction, name: str, author: str, written: bytes) -> None:
    """A signed message from the transparency log, passed on by any member: its author's signature counts. Raises
    RemoteError, and then nothing has changed."""
    group = tx.group(name)
    message = parse_data(written)
    stream = group.streams.followed.get(author)
    if message.publisher != did_key_bytes(author):
        raise Refused(why="a signed message of another member")
    if author not in group.links.peers:
        return
    if stream is None or message.alias != stream.alias or message.time <= _accepted_until(stream, message):
        _check_conflict(tx, name, author, message, written)
        record_received(tx, name, author, written)
        return
    if receiving.lacks_room(tx, name, author, group.chain(author).seq + 1):
        return
    if message.before != stream.head:
        _buffer(tx, name, author, message, written)
        return
    _accept(tx, name, author, stream, message, written, from_author=False)
    drain_buffer(tx, name, author)
    acknowledgements.schedule_ack(tx, name, author)


def _accepted_until(stream: Stream, message: Data) -> int:
    """Up to which time messages are here, or precede our subscription."""
    return max(stream.time, 0 if message.before == stream.head else stream.accepted_at)


def _buffer(tx: Transaction, name: str, sender: str, message: Data, written: bytes) -> None:
    group = tx.group(name)
    early = group.streams.early_messages.get(sender, EarlyMessages())
    held = early.messages
    rival = next((one for one in early.written if find_equivocation(one, written)), None)
    if rival is not None:
        _check_conflict(tx, name, sender, message, written, rival)
    elif message.before not in held:
        _check_conflict(tx, name, sender, message, written)
    if message.before in held:
        return  # a duplicate, or another message at its position
    if len(held) < EARLY_MAX and early.size + len(written) <= EARLY_BYTES_MAX:
        early = EarlyMessages({**held, message.before: EarlyMessage(written)})
        tx.update_streams(name, early_messages={**group.streams.early_messages, sender: early})
    else:
        tx.emit(Measure("dropped", "EarlyFull"))


def _check_conflict(
    tx: Transaction, name: str, sender: str, message: Data, written: bytes, beside: bytes = b""
) -> None:
    """Have the journal compare the message with the stored ones."""
    place = message.alias, message.time, message.before, message.signature
    tx.emit(StoreConflictingMessage(name, sender, *place, written, tx.now, beside))


def drain_buffer(tx: Transaction, name: str, sender: str) -> None:
    """Accept buffered messages that follow the current head of this member's stream."""
    while True:
        group = tx.group(name)
        stream, early = group.streams.followed.get(sender), group.streams.early_messages.get(sender)
        if early is None or stream is None:
            return
        fitting = {before: one for before, one in early.messages.items() if _may_still_fit(one.written, stream)}
        if stream.head not in fitting and sender in group.streams.requests:
            return
        record_dropped(tx, name, sender, [one.written for key, one in early.messages.items() if key not in fitting])
        messages = dict(fitting)
        following = messages.pop(stream.head, None)
        if messages != early.messages:
            rest = {did: one for did, one in group.streams.early_messages.items() if did != sender}
            tx.update_streams(name, early_messages={**rest, sender: EarlyMessages(messages)} if messages else rest)
        if following is None:
            return
        with tx.attempt():
            _accept(tx, name, sender, stream, parse_data(following.written), following.written)


def _may_still_fit(written: bytes, stream: Stream) -> bool:
    """Whether a buffered message may still find its predecessor."""
    return int.from_bytes(written[TIME], "big") > stream.time and written[ALIAS] == stream.alias


def _accept(
    tx: Transaction, name: str, sender: str, stream: Stream, message: Data, written: bytes, *, from_author: bool = True
) -> None:
    """Accept the next message of a stream. `itself`: its author sent it."""
    group = tx.group(name)
    frame = wrapped_key(message)
    key, body = b"", None
    if frame is None:
        key, chain = ratchet(stream.chain)
        try:
            body = body_of(key, message)
        except Unauthentic:
            _lose_stream(tx, name, sender, written)
            return
    else:
        found = _new_key(group, sender, frame)
        if found is None:
            _lose_stream(tx, name, sender, written)
            return
        chain = found
    after = replace(stream, head=message.signature, chain=chain, time=message.time, ack="")
    tx.update_streams(name, followed={**group.streams.followed, sender: after})
    upto = (
        receiving.receive_signed_events(tx, name, sender, body, from_author=from_author)
        if body is not None
        else group.chain(sender).seq
    )
    storage_quota.charge(tx, name, sender, len(written))
    place = message.alias, message.time, message.before, message.signature, upto
    tx.emit(StoreSignedMessage(name, sender, *place, written, key, hash_of(group, written)))


def _new_key(group: Group, sender: str, frame: bytes) -> bytes | None:
    """The key in a frame from this member; None: it is not for us, or not for our current keys."""
    relationship = group.links.relationships.get(sender)
    if relationship is None:
        return None
    try:
        key, _ = open_frame(frame, group.id, group.me, relationship)
    except Unauthentic:
        return None
    if len(key) != KEY_BYTES:
        raise Malformed(why="a key of the wrong length")
    return key


def _lose_stream(tx: Transaction, name: str, sender: str, written: bytes) -> None:
    """We cannot decrypt this message, and so no later one of this stream: our next `sync` says so, and we subscribe
    again."""
    group = tx.group(name)
    record_received(tx, name, sender, written)
    record_dropped(tx, name, sender, group.streams.early_messages.get(sender, EarlyMessages()).written)
    fields = {
        field: {did: other for did, other in getattr(group.streams, field).items() if did != sender}
        for field in ("followed", "early_messages", "requests")
    }
    tx.update_streams(name, **fields)
    tx.emit(Measure("dropped", "KeyLost"))
