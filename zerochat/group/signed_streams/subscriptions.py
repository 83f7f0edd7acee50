"""What a member says to us about streams, with every `sync`."""

from msgspec.structs import replace

from zerochat.crypto.content_encryption import xc20p_open
from zerochat.crypto.encoding import b64url_bytes, did_key_bytes
from zerochat.crypto.primitives import x25519, x25519_public
from zerochat.errors import Malformed, Refused
from zerochat.evidence.handshake import Accept, Confirm, Request, parse_statement
from zerochat.evidence.messages import (
    ALIAS_BYTES,
    SEALED_KEY_BYTES,
    SIGNATURE_BYTES,
    parse_ack,
    parse_overwrite,
    time_of_ack,
)
from zerochat.group.effects import KeepAck
from zerochat.group.event_log import lamport
from zerochat.group.links import rate_limits
from zerochat.group.signed_streams import statements
from zerochat.group.signed_streams.statements import sealing_key
from zerochat.group.state import Group, Stream
from zerochat.group.sync import acknowledgements
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Turn
from zerochat.group.wire.messages import SyncBody

AGAIN_MS = 2_000
"""Who has been answered and asks anew is answered once in this time; and who has not heard is asked again after it."""


def hear(turn: Turn, name: str, sender: str, body: SyncBody) -> None:
    """Take in what a member says of its stream, and of ours. Raises RemoteError."""
    if sender not in turn.group(name).view.members:
        return
    answer = False
    for written in body.say:
        statement = parse_statement(written.encode())
        statement.check()
        match statement:
            case Request():
                answer |= _hear_request(turn, name, sender, statement)
            case Accept():
                answer |= _hear_accept(turn, name, sender, statement)
            case Confirm():
                _hear_confirm(turn, name, sender, statement)
    if body.ack:
        _hear_ack(turn, name, sender, body.ack)
    group = turn.group(name)
    stream = group.streams.get(sender)
    told_before = stream is not None and body.reach.at < stream.accepted_at
    agreed = body.view == group.view.checksum
    if stream is not None and stream.rules != adoption.rules_now(group) and agreed:
        answer |= ask_anew(turn, name, sender)
    elif not told_before and body.by != (stream.accept if stream is not None else None):
        answer |= _ask_or_remind(turn, name, sender)
    if answer:
        acknowledgements.send_sync(turn, name, sender)
    elif stream is not None and body.by == stream.accept and body.signed < stream.time:
        acknowledgements.owe(turn, name, sender)


def ask_anew(turn: Turn, name: str, member: str) -> bool:
    """There are other terms than when we have asked to hear this member: ask again, by those. Whether to do so now."""
    if member in turn.group(name).asking:
        return _ask_or_remind(turn, name, member)
    if not rate_limits.spend_statement(turn, name, member):
        return False
    statements.ask(turn, name, member)
    return True


def say_anew(turn: Turn, name: str, member: str) -> None:
    """The same, and say so."""
    if ask_anew(turn, name, member):
        acknowledgements.send_sync(turn, name, member)


def _ask_or_remind(turn: Turn, name: str, sender: str) -> bool:
    """A member does not know that we hear its stream: ask to, or say again what we have asked. Whether to do so now."""
    group = turn.group(name)
    asked = group.asking.get(sender)
    if asked is None:
        if not rate_limits.spend_statement(turn, name, sender):
            return False
        statements.ask(turn, name, sender)
        return True
    if not _is_over(turn, asked.at):
        return False  # it is on its way
    turn.edit(name, asking={**group.asking, sender: replace(asked, at=turn.now)})
    return True


def _is_over(turn: Turn, at: int) -> bool:
    """Whether AGAIN_MS have gone by since, or the clock was set back."""
    return not 0 <= turn.now - at < AGAIN_MS


def _hear_request(turn: Turn, name: str, sender: str, said: Request) -> bool:
    """Whether there is something to say to that."""
    group = turn.group(name)
    if (said.topic, said.subscriber, said.publisher) != (name, sender, group.me):
        raise Refused(why="a request to hear somebody else")
    if said.signs:
        raise Refused(why="a request by another key, with which nobody acknowledges here")
    known = group.subscribers.get(sender)
    if known is not None and not _is_over(turn, known.at):
        return False  # whoever asks again and again is kept waiting: each answer is kept for good
    if known is None or known.request != said.digest or (known.accept and known.rules != adoption.rules_now(group)):
        if not rate_limits.spend_statement(turn, name, sender):
            return False  # it says it again
        statements.accept(turn, name, sender, said)
    elif known.accept:  # our answer was lost
        turn.edit(name, subscribers={**group.subscribers, sender: replace(known, at=turn.now)})
    else:
        return False
    return True


def _hear_accept(turn: Turn, name: str, sender: str, said: Accept) -> bool:
    group = turn.group(name)
    known, asked = group.streams.get(sender), group.asking.get(sender)
    if known is not None and known.accept == said.digest:
        turn.edit(name, streams={**group.streams, sender: replace(known, confirm=True)})
        return True  # our confirmation was lost
    if (said.publisher, said.subscriber) != (sender, group.me) or asked is None or said.request != asked.digest:
        return False  # to what we have asked before something was lost; it is said until we ask anew
    if group.view.ledger and said.rules != (adoption.rules_now(group) or statements.NO_RULES):
        return False  # one of us has not heard of the terms in force; it is said again, and then by those
    stream = _begun(group, sender, said, turn.now)
    if known is not None and known.alias == stream.alias and known.time >= said.time:
        # It has come late, and we have heard more by the one before: the author knows that, and says it no more.
        stream = replace(stream, head=known.head, chain=known.chain, time=known.time, ack=known.ack)
    elif known is not None and known.alias == stream.alias:
        stream = replace(stream, former=statements.ack_of(turn, name, known) or known.former)
    rest = {did: one for did, one in group.asking.items() if did != sender}
    turn.edit(name, streams={**group.streams, sender: stream}, asking=rest)
    statements.keep(turn, name, sender, said)
    return True


def _begun(group: Group, sender: str, said: Accept, now: int) -> Stream:
    """The stream as it stands by this answer, which has come `now` (UTC ms). Raises Malformed or Unauthentic."""
    alias, start = b64url_bytes(said.alias), b64url_bytes(said.start)
    rules = adoption.rules_now(group)
    if len(alias) != ALIAS_BYTES or len(start) != SIGNATURE_BYTES or said.rules != (rules or statements.NO_RULES):
        raise Malformed(why="an answer without a stream")
    if said.signs:
        raise Malformed(why="an answer with another key than what comes is signed by")
    head = start
    if said.overwrite:
        there = parse_overwrite(b64url_bytes(said.overwrite))
        place = there.subscriber, there.publisher, there.alias, there.before
        if place != (did_key_bytes(group.me), did_key_bytes(sender), alias, start):
            raise Malformed(why="an answer that leads somewhere else")
        head = there.then
    chain = open_key(b64url_bytes(said.key), group.place.secret)
    return Stream(alias, head, chain, said.digest, said.time, said.after, confirm=True, rules=rules, heard_at=now)


def open_key(sealed: bytes, secret: bytes) -> bytes:
    """What `terms.seal_key` has sealed for the key with this secret. Raises Malformed or Unauthentic."""
    if len(sealed) != SEALED_KEY_BYTES:
        raise Malformed(why="a sealed key of another length")
    public, ciphertext, tag = sealed[:32], sealed[32:-16], sealed[-16:]
    return xc20p_open(
        sealing_key(x25519(secret, public), public, x25519_public(secret)), bytes(24), ciphertext, tag, b""
    )


def _hear_confirm(turn: Turn, name: str, sender: str, said: Confirm) -> None:
    group = turn.group(name)
    known = group.subscribers.get(sender)
    if said.subscriber != sender:
        raise Refused(why="a confirmation by somebody else")
    if known is not None and known.digest == said.accept and known.accept:
        turn.edit(name, subscribers={**group.subscribers, sender: replace(known, accept="")})
        statements.keep(turn, name, sender, said)


def _hear_ack(turn: Turn, name: str, sender: str, written: str) -> None:
    """A member has signed what it has of our stream. The journal keeps that where there is such a message."""
    group = turn.group(name)
    known = group.subscribers.get(sender)
    if known is None or group.stream is None:
        return
    ack = b64url_bytes(written)
    time = time_of_ack(ack)
    former = known.former < time <= known.begun
    if time <= known.acked and not former:
        return  # it says so with every word, and a signature takes a while to check
    signed = parse_ack(ack)
    if (signed.subscriber, signed.alias) != (did_key_bytes(sender), group.stream.alias):
        return  # of a stream that was before this one
    lamport.check(signed.at, turn.now)  # one from the future would not show who has accused falsely
    if signed.time > group.stream.time:
        raise Refused(why="an acknowledgement of what was never said")
    known = replace(known, former=signed.time) if former else replace(known, acked=signed.time)
    turn.edit(name, subscribers={**group.subscribers, sender: known})
    place = signed.alias, signed.time, signed.of
    turn.say(KeepAck(name, group.me, sender, *place, ack, known.begun if former else 0))
