"""Subscriptions: processing the signed statements about streams in a member's `sync`."""

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
    ack_time,
    parse_ack,
    parse_overwrite,
)
from zerochat.group.effects import StoreSignedAck
from zerochat.group.event_log import lamport
from zerochat.group.links import rate_limits
from zerochat.group.signed_streams import statements
from zerochat.group.signed_streams.statements import sealing_key
from zerochat.group.state import Group, Stream
from zerochat.group.sync import acknowledgements
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Transaction
from zerochat.group.wire.messages import SyncBody

RETRY_INTERVAL_MS = 2_000
"""A repeated request is answered at most once in this time, and an unanswered one is repeated after it."""


def receive_sync(tx: Transaction, name: str, sender: str, body: SyncBody) -> None:
    """Process a member's statements about its stream and ours. Raises RemoteError."""
    if sender not in tx.group(name).view.members:
        return
    answer = False
    for written in body.statements:
        statement = parse_statement(written.encode())
        statement.check()
        match statement:
            case Request():
                answer |= _receive_request(tx, name, sender, statement)
            case Accept():
                answer |= _receive_accept(tx, name, sender, statement)
            case Confirm():
                _receive_confirm(tx, name, sender, statement)
    if body.signed_ack:
        _receive_ack(tx, name, sender, body.signed_ack)
    group = tx.group(name)
    stream = group.streams.followed.get(sender)
    outdated = stream is not None and body.reach.at < stream.accepted_at
    agreed = body.view == group.view.checksum
    if stream is not None and stream.rules != adoption.current_rules(group) and agreed:
        answer |= renew_subscription(tx, name, sender)
    elif not outdated and body.subscription != (stream.accept if stream is not None else None):
        answer |= _request_or_retry(tx, name, sender)
    if answer:
        acknowledgements.send_sync(tx, name, sender)
    elif stream is not None and body.subscription == stream.accept and body.signed_upto < stream.time:
        acknowledgements.schedule_ack(tx, name, sender)


def renew_subscription(tx: Transaction, name: str, member: str) -> bool:
    """The terms have changed since we subscribed to this member: subscribe again under the new terms. Returns whether
    to send a `sync` now."""
    if member in tx.group(name).streams.requests:
        return _request_or_retry(tx, name, member)
    if not rate_limits.spend_statement(tx, name, member):
        return False
    statements.request_stream(tx, name, member)
    return True


def renew_and_send(tx: Transaction, name: str, member: str) -> None:
    """Renew the subscription, and send a `sync` if needed."""
    if renew_subscription(tx, name, member):
        acknowledgements.send_sync(tx, name, member)


def _request_or_retry(tx: Transaction, name: str, sender: str) -> bool:
    """A member does not know of our subscription: request it, or repeat the request. Returns whether to send a `sync`
    now."""
    group = tx.group(name)
    asked = group.streams.requests.get(sender)
    if asked is None:
        if not rate_limits.spend_statement(tx, name, sender):
            return False
        statements.request_stream(tx, name, sender)
        return True
    if not _has_elapsed(tx, asked.requested_at):
        return False  # the request is under way
    tx.update_streams(name, requests={**group.streams.requests, sender: replace(asked, requested_at=tx.now)})
    return True


def _has_elapsed(tx: Transaction, at: int) -> bool:
    """Whether RETRY_INTERVAL_MS have passed since, or the clock was set back."""
    return not 0 <= tx.now - at < RETRY_INTERVAL_MS


def _receive_request(tx: Transaction, name: str, sender: str, statement: Request) -> bool:
    """Process a request; returns whether to send a `sync` now."""
    group = tx.group(name)
    if (statement.topic, statement.subscriber, statement.publisher) != (name, sender, group.me):
        raise Refused(why="a request for another member's stream")
    if statement.signing_key:
        raise Refused(why="a request with a separate acknowledgement key, which is not supported")
    known = group.streams.subscribers.get(sender)
    if known is not None and not _has_elapsed(tx, known.answered_at):
        return False  # rate limited: each answer is stored for good
    if (
        known is None
        or known.request != statement.digest
        or (known.accept and known.rules != adoption.current_rules(group))
    ):
        if not rate_limits.spend_statement(tx, name, sender):
            return False  # the member repeats it
        statements.accept_subscriber(tx, name, sender, statement)
    elif known.accept:  # our answer was lost
        tx.update_streams(name, subscribers={**group.streams.subscribers, sender: replace(known, answered_at=tx.now)})
    else:
        return False
    return True


def _receive_accept(tx: Transaction, name: str, sender: str, statement: Accept) -> bool:
    group = tx.group(name)
    known, asked = group.streams.followed.get(sender), group.streams.requests.get(sender)
    if known is not None and known.accept == statement.digest:
        tx.update_streams(name, followed={**group.streams.followed, sender: replace(known, confirmation_due=True)})
        return True  # our confirmation was lost
    if (
        (statement.publisher, statement.subscriber) != (sender, group.me)
        or asked is None
        or statement.request != asked.digest
    ):
        return False  # an answer to an outdated request; it is repeated until we request again
    if group.view.has_tlog and statement.rules != (adoption.current_rules(group) or statements.NO_RULES):
        return False  # one of us does not have the terms in force yet; the request is repeated under them
    stream = _stream_from(group, sender, statement, tx.now)
    if known is not None and known.alias == stream.alias and known.time >= statement.time:
        # The answer came late, and the previous one has brought more messages: the author knows that and stops
        # repeating this one.
        stream = replace(stream, head=known.head, chain=known.chain, time=known.time, ack=known.ack)
    elif known is not None and known.alias == stream.alias:
        stream = replace(stream, former=statements.ack_of(tx, name, known) or known.former)
    rest = {did: one for did, one in group.streams.requests.items() if did != sender}
    tx.update_streams(name, followed={**group.streams.followed, sender: stream}, requests=rest)
    statements.store_statement(tx, name, sender, statement)
    return True


def _stream_from(group: Group, sender: str, statement: Accept, now: int) -> Stream:
    """The initial state of the stream by this answer, which came at `now` (UTC ms). Raises Malformed or Unauthentic."""
    alias, start = b64url_bytes(statement.alias), b64url_bytes(statement.start)
    rules = adoption.current_rules(group)
    if len(alias) != ALIAS_BYTES or len(start) != SIGNATURE_BYTES or statement.rules != (rules or statements.NO_RULES):
        raise Malformed(why="an answer without a valid stream")
    if statement.signing_key:
        raise Malformed(why="an answer with a separate signing key, which is not supported")
    head = start
    if statement.overwrite:
        there = parse_overwrite(b64url_bytes(statement.overwrite))
        place = there.subscriber, there.publisher, there.alias, there.before
        if place != (did_key_bytes(group.me), did_key_bytes(sender), alias, start):
            raise Malformed(why="an answer with an overwrite for another stream")
        head = there.then
    chain = open_key(b64url_bytes(statement.key), group.own_place.secret)
    return Stream(
        alias,
        head,
        chain,
        statement.digest,
        statement.time,
        statement.after,
        confirmation_due=True,
        rules=rules,
        received_at=now,
    )


def open_key(sealed: bytes, secret: bytes) -> bytes:
    """Decrypt a key from `statements.seal_key` with this secret. Raises Malformed or Unauthentic."""
    if len(sealed) != SEALED_KEY_BYTES:
        raise Malformed(why="a sealed key of the wrong length")
    public, ciphertext, tag = sealed[:32], sealed[32:-16], sealed[-16:]
    return xc20p_open(
        sealing_key(x25519(secret, public), public, x25519_public(secret)), bytes(24), ciphertext, tag, b""
    )


def _receive_confirm(tx: Transaction, name: str, sender: str, statement: Confirm) -> None:
    group = tx.group(name)
    known = group.streams.subscribers.get(sender)
    if statement.subscriber != sender:
        raise Refused(why="a confirmation of another member's subscription")
    if known is not None and known.digest == statement.accept and known.accept:
        tx.update_streams(name, subscribers={**group.streams.subscribers, sender: replace(known, accept="")})
        statements.store_statement(tx, name, sender, statement)


def _receive_ack(tx: Transaction, name: str, sender: str, written: str) -> None:
    """A member's signed acknowledgement of our stream. The journal stores it where there is such a message."""
    group = tx.group(name)
    known = group.streams.subscribers.get(sender)
    if known is None or group.streams.own is None:
        return
    ack = b64url_bytes(written)
    time = ack_time(ack)
    former = known.former < time <= known.begun
    if time <= known.acked and not former:
        return  # it is repeated in every sync, and verifying a signature takes a while
    signed = parse_ack(ack)
    if (signed.subscriber, signed.alias) != (did_key_bytes(sender), group.streams.own.alias):
        return  # of an earlier stream
    lamport.check_not_ahead(signed.at, tx.now)  # an acknowledgement from the future would not expose a false accusation
    if signed.time > group.streams.own.time:
        raise Refused(why="an acknowledgement of a message that was never sent")
    known = replace(known, former=signed.time) if former else replace(known, acked=signed.time)
    tx.update_streams(name, subscribers={**group.streams.subscribers, sender: known})
    place = signed.alias, signed.time, signed.of
    tx.emit(StoreSignedAck(name, group.me, sender, *place, ack, known.begun if former else 0))
