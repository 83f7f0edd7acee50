"""The messages of other members' streams, each behind the one that it names.

What comes too early waits in a bounded place; what does not fit there is dropped, for the log repairs. A message is
taken in whole or not at all: once the key has moved on, nothing opens it again.

What is not taken in is looked at once more, for it may contradict what was: two messages that name the same one before
them, or one that is not later than the one it names, convict their author (`evidence/judge.py`, E1 and E2). Such a pair
goes to the journal; nothing else comes of it.
"""

from msgspec.structs import replace

from zerochat.crypto.encoding import did_key_bytes
from zerochat.errors import Malformed, Refused, RemoteError, Unauthentic
from zerochat.evidence.equivocation import ALIAS, TIME, contradiction
from zerochat.evidence.messages import Data, parse_data
from zerochat.group.effects import KeepMessage, KeepRival, Measure
from zerochat.group.event_log import log
from zerochat.group.key_modes.sender_key import KEY_BYTES, moved_on, wrapped_key
from zerochat.group.signed_streams import orphans
from zerochat.group.signed_streams.publisher import hash_of
from zerochat.group.signed_streams.reader import body_of
from zerochat.group.state import Early, Group, Stream
from zerochat.group.sync import acknowledgements
from zerochat.group.transaction import Turn
from zerochat.group.wire.frame import open_frame

EARLY_MAX = 64
EARLY_BYTES_MAX = 1 << 20
"""Messages of one stream that wait for an earlier one, and their bytes: a repair's worth."""


def hear(turn: Turn, name: str, sender: str, written: bytes) -> None:
    """A signed message, over the link to its author. Raises RemoteError, and then nothing has changed."""
    group = turn.group(name)
    if not group.mode.signs:
        raise Refused(why="a signed message in a group where nothing is signed")
    message = parse_data(written)
    if message.publisher != did_key_bytes(sender):
        raise Refused(why="a signed message of somebody else's")
    stream = group.streams.get(sender)
    acknowledgements.owe(turn, name, sender)
    if stream is None or message.alias != stream.alias:
        if sender not in group.asking:
            turn.say(Measure("dropped", "NotSubscribed"))  # whoever is told what we have sees that we hear nothing
            return
        _hold(turn, name, sender, message, written)
    elif message.time > stream.time and message.before != stream.head:
        _hold(turn, name, sender, message, written)
    elif message.time > stream.time:
        _take(turn, name, sender, stream, message, written)
        follow(turn, name, sender)
    elif message.signature != stream.head:
        _doubt(turn, name, sender, message, written)


def hear_posted(turn: Turn, name: str, author: str, written: bytes) -> None:
    """The same out of the group's log, whoever has handed it over: the signature is its author's. Raises RemoteError,
    and then nothing has changed."""
    group = turn.group(name)
    message = parse_data(written)
    stream = group.streams.get(author)
    if message.publisher != did_key_bytes(author):
        raise Refused(why="a signed message of somebody else's")
    if author not in group.peers:
        return
    if stream is None or message.alias != stream.alias or message.time <= _taken_or_before(stream, message):
        _doubt(turn, name, author, message, written)
        orphans.came(turn, name, author, written)
        return
    if message.before != stream.head:
        _hold(turn, name, author, message, written)
        return
    _take(turn, name, author, stream, message, written, itself=False)
    follow(turn, name, author)
    acknowledgements.owe(turn, name, author)


def _taken_or_before(stream: Stream, message: Data) -> int:
    """Up to which time a message is here, or was said before we could hear the stream."""
    return max(stream.time, 0 if message.before == stream.head else stream.accepted_at)


def _hold(turn: Turn, name: str, sender: str, message: Data, written: bytes) -> None:
    group = turn.group(name)
    held = group.early.get(sender, Early()).messages
    rival = next((one for one in held.values() if contradiction(one, written)), None)
    if rival is not None:
        _doubt(turn, name, sender, message, written, rival)
    elif message.before not in held:
        _doubt(turn, name, sender, message, written)
    if message.before in held:
        return  # the same once more, or another one in its place
    if len(held) < EARLY_MAX and sum(map(len, held.values())) + len(written) <= EARLY_BYTES_MAX:
        turn.edit(name, early={**group.early, sender: Early({**held, message.before: written})})
    else:
        turn.say(Measure("dropped", "EarlyFull"))


def _doubt(turn: Turn, name: str, sender: str, message: Data, written: bytes, beside: bytes = b"") -> None:
    """Have it compared with what is kept."""
    place = message.alias, message.time, message.before, message.signature
    turn.say(KeepRival(name, sender, *place, written, turn.now, beside))


def follow(turn: Turn, name: str, sender: str) -> None:
    """Take in what has waited for the place at which this member's stream stands now."""
    while True:
        group = turn.group(name)
        stream, early = group.streams.get(sender), group.early.get(sender)
        if early is None or stream is None:
            return
        fitting = {before: one for before, one in early.messages.items() if _later(one, stream)}
        if stream.head not in fitting and sender in group.asking:
            return
        orphans.put_aside(turn, name, sender, [one for key, one in early.messages.items() if key not in fitting])
        messages = dict(fitting)
        written = messages.pop(stream.head, None)
        if messages != early.messages:
            rest = {did: one for did, one in group.early.items() if did != sender}
            turn.edit(name, early={**rest, sender: Early(messages)} if messages else rest)
        if written is None:
            return
        before, said = turn.agent, len(turn.effects)
        try:
            _take(turn, name, sender, stream, parse_data(written), written)
        except RemoteError as error:
            turn.agent = before
            del turn.effects[said:]
            turn.say(Measure("dropped", error.code))
            return


def _later(written: bytes, stream: Stream) -> bool:
    """Whether a message that waits may still find its place."""
    return int.from_bytes(written[TIME], "big") > stream.time and written[ALIAS] == stream.alias


def _take(
    turn: Turn, name: str, sender: str, stream: Stream, message: Data, written: bytes, *, itself: bool = True
) -> None:
    """The next message of a stream: what it brings, and the place behind it. `itself`: its author says it now."""
    group = turn.group(name)
    frame = wrapped_key(message)
    key, body = b"", None
    if frame is None:
        key, chain = moved_on(stream.chain)
        try:
            body = body_of(key, message)
        except Unauthentic:
            _lose(turn, name, sender, written)
            return
    else:
        found = _new_key(group, sender, frame)
        if found is None:
            _lose(turn, name, sender, written)
            return
        chain = found
    after = replace(stream, head=message.signature, chain=chain, time=message.time, ack="")
    turn.edit(name, streams={**group.streams, sender: after})
    upto = log.hear_signed(turn, name, sender, body, itself=itself) if body is not None else group.chain(sender).seq
    place = message.alias, message.time, message.before, message.signature, upto
    turn.say(KeepMessage(name, sender, *place, written, key, hash_of(group, written)))


def _new_key(group: Group, sender: str, frame: bytes) -> bytes | None:
    """The key in a frame of this member's; None: it is not for us, or for what we were."""
    relationship = group.relationships.get(sender)
    if relationship is None:
        return None
    try:
        key, _ = open_frame(frame, group.id, group.me, relationship)
    except Unauthentic:
        return None
    if len(key) != KEY_BYTES:
        raise Malformed(why="a key of another length")
    return key


def _lose(turn: Turn, name: str, sender: str, written: bytes) -> None:
    """We cannot read this message, and so nothing of this stream any more: the member sees that from what we tell it
    next, and we ask anew."""
    group = turn.group(name)
    orphans.came(turn, name, sender, written)
    orphans.put_aside(turn, name, sender, group.early.get(sender, Early()).messages.values())
    fields = {
        field: {did: one for did, one in getattr(group, field).items() if did != sender}
        for field in ("streams", "early", "asking")
    }
    turn.edit(name, **fields)
    turn.say(Measure("dropped", "KeyLost"))
