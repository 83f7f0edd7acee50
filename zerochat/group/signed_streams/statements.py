"""Signed statements about subscriptions that we send with every `sync`: requests, answers, confirmations."""

from typing import Any

from msgspec.structs import replace

from zerochat.crypto.content_encryption import xc20p_seal
from zerochat.crypto.encoding import b64url, did_key_bytes
from zerochat.crypto.primitives import hkdf_sha256, sha256, x25519, x25519_public
from zerochat.evidence.handshake import Accept, Confirm, Request, SignedStatement
from zerochat.evidence.messages import overwrite, sign_ack
from zerochat.group.effects import StoreStatement
from zerochat.group.key_modes.sender_key import KEY_BYTES
from zerochat.group.signed_streams import publisher
from zerochat.group.state import Stream, Subscriber, SubscriptionRequest
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Transaction

NO_RULES = b64url(sha256(b"zerochat/rules/none"))
"""The rules digest of a group without a transparency log."""
NONCE_BYTES = 16


def sync_fields(tx: Transaction, name: str, member: str) -> dict[str, Any]:
    """The stream fields of a `sync` to this member (`messages.SyncBody`)."""
    group = tx.group(name)
    entries: list[str] = []
    fields: dict[str, Any] = {}
    if (subscriber := group.streams.subscribers.get(member)) is not None:
        fields["subscription"], fields["signed_upto"] = subscriber.digest, subscriber.acked
        entries += [subscriber.accept] if subscriber.accept else []
    if (pending := group.streams.requests.get(member)) is not None:
        entries.append(pending.statement)
    if (stream := group.streams.followed.get(member)) is not None:
        stream = replace(stream, ack=ack_of(tx, name, stream), confirmation_due=False)
        ack = stream.ack
        if group.streams.followed[member].confirmation_due:
            entries.append(_confirm(tx, name, member, stream))
            ack = stream.former or ack  # our acknowledgement of later messages follows with the next sync
        if ack:
            fields["signed_ack"] = ack
        tx.update_streams(name, followed={**tx.group(name).streams.followed, member: stream})
    if entries:
        fields["statements"] = entries
    return fields


def ack_of(tx: Transaction, name: str, stream: Stream) -> str:
    """Our signed acknowledgement of the last received message; empty: none was received."""
    if stream.ack or not stream.time:
        return stream.ack
    seed = tx.group(name).seed
    return b64url(sign_ack(seed, stream.alias, stream.time, stream.head, max(1, tx.now)).serialize())


def request_stream(tx: Transaction, name: str, member: str) -> None:
    """Request a member's stream, from now on."""
    group = tx.group(name)
    nonce = b64url(tx.context.random(NONCE_BYTES))
    request = Request(time=max(1, tx.now), topic=name, subscriber=group.me, publisher=member, nonce=nonce)
    request = request.signed(group.seed)
    pending = SubscriptionRequest(request.digest, request.serialize().decode(), tx.now)
    tx.update_streams(name, requests={**group.streams.requests, member: pending})
    store_statement(tx, name, member, request)


def accept_subscriber(tx: Transaction, name: str, member: str, asked: Request) -> None:
    """Accept a member's subscription to our stream, from its current position."""
    stream, group = publisher.own_stream(tx, name), tx.group(name)
    if (known := group.streams.subscribers.get(member)) is not None:
        adoption.record_ended(tx, name, member, known)
        group = tx.group(name)
    rules = adoption.current_rules(group)
    leads_there = ""
    if stream.head != stream.start:
        there = overwrite(group.seed, max(1, tx.now), did_key_bytes(member), stream.alias, stream.head, stream.start)
        leads_there = b64url(there.serialize())
    # unpublished events go out at the end of this step
    after = group.log.unpublished[0].seq - 1 if group.log.unpublished else group.seq
    given = Accept(
        time=max(1, tx.now, stream.time),  # all earlier messages have a `T` that is not greater
        request=asked.digest,
        publisher=group.me,
        subscriber=member,
        alias=b64url(stream.alias),
        start=b64url(stream.start),
        overwrite=leads_there,
        rules=rules or NO_RULES,
        after=after,
        key=b64url(seal_key(stream.chain, group.view.members[member].transport, tx.context.random(KEY_BYTES))),
    ).signed(group.seed)
    begun = former = stream.time
    if known is not None:
        former = known.acked if known.acked > known.begun else known.former
    answer = given.serialize().decode()
    subscriber = Subscriber(asked.digest, given.digest, after, answer, begun, tx.now, rules, begun, former)
    tx.update_streams(name, subscribers={**group.streams.subscribers, member: subscriber})
    store_statement(tx, name, member, asked)
    store_statement(tx, name, member, given)


def _confirm(tx: Transaction, name: str, member: str, stream: Stream) -> str:
    """Our confirmation of a subscription; the same bytes each time, since each distinct statement is stored."""
    group = tx.group(name)
    at = max(1, stream.received_at or stream.accepted_at)
    entries = Confirm(time=at, accept=stream.accept, subscriber=group.me).signed(group.seed)
    store_statement(tx, name, member, entries)
    return entries.serialize().decode()


def store_statement(tx: Transaction, name: str, member: str, statement: SignedStatement) -> None:
    tag = type(statement).__struct_config__.tag
    tx.emit(StoreStatement(name, member, str(tag), statement.digest, statement.serialize(), tx.now))


# --- the key --------------------------------------------------------------------------------------------------------


def seal_key(chain: bytes, transport: bytes, once: bytes) -> bytes:
    """A key encrypted to the owner of an X25519 key, with an ephemeral key: 80 bytes."""
    public = x25519_public(once)
    sealing = sealing_key(x25519(once, transport), public, transport)
    return public + b"".join(xc20p_seal(sealing, bytes(24), chain, b""))


def sealing_key(shared: bytes, public: bytes, transport: bytes) -> bytes:
    return hkdf_sha256(shared, b"zerochat/stream/1\nkey\n" + public + transport)
