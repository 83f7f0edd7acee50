"""Fuzz targets of signed streams: a member's messages, and its subscription statements in `sync`.

Hostile bytes reach the code for a dishonest member: a mutated message is sealed under the next key, signed by the
member, and named after the previous message. Two agents receive it: a subscriber, and one whose request is pending.
"""

import dataclasses
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from operator import attrgetter
from random import Random
from typing import Any

import msgspec
from msgspec.structs import replace

from fuzzing.group import _PACKER, NOW, Place, _content, _framed, place
from fuzzing.nodes import Array, Bytes, Object, Part, as_text, utf8
from fuzzing.people import dice
from fuzzing.run import Form
from zerochat.crypto.encoding import b64url, canonical_json, compact_json, did_key_bytes, strict_json
from zerochat.crypto.primitives import ed25519_public, ed25519_sign, x25519_public
from zerochat.didcomm.did import resolve, short_form
from zerochat.didcomm.message import MESSAGE_BYTES_MAX, dump
from zerochat.errors import Malformed, RemoteError
from zerochat.evidence import handshake
from zerochat.evidence.handshake import Accept, Confirm, Request
from zerochat.evidence.messages import (
    ACK_CONTEXT,
    KEY_BYTES,
    SIGNATURE_BYTES,
    Data,
    overwrite,
    parse_ack,
    parse_data,
    sign_ack,
)
from zerochat.group.effects import StoreSignedAck, StoreSignedMessage, StoreStatement
from zerochat.group.engine import step
from zerochat.group.event_log.event import POST, Event
from zerochat.group.inputs import Received, StepContext
from zerochat.group.key_modes.sender_key import associated_data, open_content, ratchet, seal_padded, wrap_key
from zerochat.group.membership.attestation import sign_heads
from zerochat.group.signed_streams.receiver import EARLY_BYTES_MAX, EARLY_MAX
from zerochat.group.signed_streams.statements import NO_RULES, seal_key
from zerochat.group.state import Agent, Group, Stream, SubscriptionRequest
from zerochat.group.wire.event_runs import write_runs
from zerochat.group.wire.messages import SYNC

_random = dice("streams")


@dataclass(frozen=True)
class Here:
    """A member's stream as an agent receives it, and the same agent with a pending request. The member owes both a
    confirmation and an acknowledgement."""

    place: Place
    stream: Stream
    seed: bytes
    """The speaker's."""
    asking: Agent
    asked: Request


@cache
def here() -> Here:
    found = place("sender-key")
    group, sender = found.group, found.sender
    asked = Request(time=NOW, topic=group.id, subscriber=group.me, publisher=sender, nonce=b64url(_random(16))).signed(
        group.seed
    )
    subscriber = replace(group.streams.subscribers[sender], accept=asked.serialize().decode(), acked=0)
    group = replace(
        group, streams=replace(group.streams, subscribers={**group.streams.subscribers, sender: subscriber})
    )
    streams = {did: one for did, one in group.streams.followed.items() if did != sender}
    asking = {**group.streams.requests, sender: SubscriptionRequest(asked.digest, asked.serialize().decode())}
    waiting = replace(group, streams=replace(group.streams, followed=streams, requests=asking))

    def agent(has: Group) -> Agent:
        return replace(found.agent, groups={**found.agent.groups, group.id: has})

    return Here(
        dataclasses.replace(found, agent=agent(group), group=group),
        group.streams.followed[sender],
        found.seeds[sender],
        agent(waiting),
        asked,
    )


class Streams:
    """The sending member: its signed messages, its statements and its acknowledgements."""

    name = "stream"
    form: Form = "sealed"
    size_max = MESSAGE_BYTES_MAX

    def seeds(self) -> list[bytes]:
        """The body of a message, or a `sync` with its statements in the open."""
        return [*map(compact_json, self._bodies()), *self._syncs()]

    def _bodies(self) -> list[dict[str, Any]]:
        at = here()
        group, sender = at.place.group, at.place.sender
        chain = group.chain(sender)
        heads = tuple(group.log.heads[:2])
        first = Event(group.id, POST, sender, chain.seq + 1, chain.head_id, heads, (), NOW, NOW, {"text": "hello"})
        second = replace(_bare(first), seq=first.seq + 1, pre=first.id, lamport=NOW + 1, body={"text": "x" * 300})
        told = {"view": group.view.checksum, "have": [one.seq for one in group.log.chains.values()]}
        return [{"runs": write_runs(events, sender), **told} for events in ([first], [first, second], [])]

    def _syncs(self) -> list[bytes]:
        at = here()
        group, sender, mine = at.place.group, at.place.sender, at.place.group.streams.own
        assert mine is not None
        alias, start, then = _random(16), _random(64), _random(64)
        there = overwrite(at.seed, NOW, did_key_bytes(group.me), alias, then, start)
        key = b64url(seal_key(_random(32), x25519_public(group.own_place.secret), _random(32)))
        given = Accept(
            time=NOW,
            request=at.asked.digest,
            publisher=sender,
            subscriber=group.me,
            alias=b64url(alias),
            start=b64url(start),
            overwrite=b64url(there.serialize()),
            rules=NO_RULES,
            after=group.chain(sender).seq,
            key=key,
        )
        wanted = Request(time=NOW, topic=group.id, subscriber=sender, publisher=group.me, nonce=b64url(_random(16)))
        heard = Confirm(time=NOW, accept=group.streams.subscribers[sender].digest, subscriber=sender)
        ack = sign_ack(at.seed, mine.alias, max(1, mine.time), mine.head, NOW)
        says: list[dict[str, Any]] = [
            {"say": [strict_json(one.signed(at.seed).serialize(), 1 << 16)]} for one in (given, wanted, heard)
        ]
        says += [{"ack": b64url(ack.serialize())}, {"by": at.stream.accept, "signed": at.stream.time}, {"by": ""}]
        theirs = at.place.theirs
        usual = next(message for message in at.place.bodies if message.type == SYNC)
        word = sign_heads(at.seed, group.id, tuple(usual.body["heads"]))
        bare = {name: value for name, value in usual.body.items() if name not in ("say", "by", "signed", "ack")}
        usual = replace(usual, body={**bare, "word": word}, from_prior=None)
        usual = replace(usual, from_=theirs.mine.short, to=(short_form(theirs.theirs),))
        return [dump(replace(usual, body={**usual.body, **fields})) for fields in says]

    # --- made right again ---------------------------------------------------------------------------------------------

    def seal(self, tree: Part, dice: Random) -> bytes:
        if isinstance(tree, Object) and "body" in tree.names:
            return self._sync(tree, dice)
        return self._message(utf8(as_text(tree))[:MESSAGE_BYTES_MAX], dice)

    def _message(self, plain: bytes, dice: Random) -> bytes:
        """The next message of the stream, or an early one, or one with a key, or one with a false position."""
        at = here()
        stream, odd = at.stream, dice.random()
        key = ratchet(stream.chain)[0] if odd > 0.05 else dice.randbytes(32)
        time = stream.time + dice.choice((1, 1, 1, 1, 5, 0, -1, 10**9, 2**53))
        before = stream.head if dice.random() < 0.9 else dice.randbytes(SIGNATURE_BYTES)
        alias = stream.alias if dice.random() < 0.95 else dice.randbytes(16)
        bare = Data(max(0, time), ed25519_public(at.seed), alias, b"", before)
        if dice.random() < 0.8:
            sealed = seal_padded(key, _content(_packed(plain, dice), dice), associated_data(bare))
        elif dice.random() < 0.8:
            new = dice.randbytes(dice.choice((32, 32, 32, 31, 0)))
            sealed = wrap_key(_framed(_content(new, dice), at.place, dice))
        else:
            sealed = dice.choice((b"\x01", b"\x02", b"\x03", b"")) + plain
        said = replace(bare, sealed=sealed)
        return replace(said, signature=ed25519_sign(at.seed, said.signed_bytes())).serialize()

    def _sync(self, tree: Object, dice: Random) -> bytes:
        body = tree.get("body")
        if isinstance(body, Object):
            if isinstance(say := body.get("say"), Array):
                body = body.put("say", Array([_stated(one, dice) for one in say.parts]))
            if isinstance(ack := body.get("ack"), Bytes) and dice.random() < 0.8:
                said = ack.data[:-SIGNATURE_BYTES]
                signature = ed25519_sign(here().seed, ACK_CONTEXT + said[KEY_BYTES:])
                body = body.put("ack", Bytes(said + signature))
            tree = tree.put("body", body)
        theirs = here().place.theirs
        return _PACKER.authcrypt(
            utf8(as_text(tree))[:MESSAGE_BYTES_MAX],
            sender=_PACKER.own_key(theirs.mine, theirs.mine.short),
            recipient=_PACKER.their_key(resolve(theirs.theirs), short_form(theirs.theirs)),
            random=dice.randbytes,
        )

    # --- receiving --------------------------------------------------------------------------------------------------

    def parse(self, data: bytes) -> object:
        at = here()
        found = [self._heard(agent, data) for agent in (at.place.agent, at.asking)]
        if not any(found):
            raise Malformed(why="what a member may not say")
        return found

    def _heard(self, before: Agent, data: bytes) -> bool:
        """It never raises; a refused message changes no knowledge; buffers are bounded; stored proofs verify; and
        stored records can be read from disk again. Returns whether the message was accepted."""
        at = here()
        after, effects = step(before, Received(at.place.link, data), StepContext(NOW, dice("moment")))
        was, now = before.groups[at.place.group.id], after.groups[at.place.group.id]
        is_rejected = [type(effect).__name__ for effect in effects] == ["Measure"]
        if is_rejected and now.streams.followed == was.streams.followed:
            parts = "control view log.chains links.relationships streams.subscribers streams.requests streams.own"
            for name in parts.split():
                assert attrgetter(name)(was) == attrgetter(name)(now), name
            return now.streams.early_messages != was.streams.early_messages
        self._bounded(was, now, at.place.sender)
        for effect in effects:
            match effect:
                case StoreSignedMessage():
                    message = parse_data(effect.message)
                    assert (message.alias, message.time, message.before) == (effect.alias, effect.time, effect.before)
                    assert effect.author != at.place.sender or not effect.key or open_content(effect.key, message)
                case StoreSignedAck():
                    assert parse_ack(effect.ack).time == effect.time
                case StoreStatement():
                    handshake.parse_statement(effect.statement).check()
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(after), type=Agent) == after
        return True

    def _bounded(self, was: Group, now: Group, sender: str) -> None:
        if (waiting := now.streams.early_messages.get(sender)) is not None:
            assert len(waiting.messages) <= EARLY_MAX
            assert waiting.size <= EARLY_BYTES_MAX
        known, found = was.streams.followed.get(sender), now.streams.followed.get(sender)
        if known is not None and found is not None and known.alias == found.alias:
            assert found.time > known.time or (found.time, found.head) == (known.time, known.head)
        assert now.streams.own is not None and all(
            one.acked <= now.streams.own.time for one in now.streams.subscribers.values()
        )


def _packed(plain: bytes, dice: Random) -> bytes:
    """JSON of a message in MessagePack; other bytes stay as they are. Now and then it holds a value that JSON does not
    have, or a changed byte."""
    try:
        packed = bytearray(msgspec.msgpack.encode(msgspec.json.decode(plain)))
    except (ValueError, RecursionError, OverflowError):
        return plain
    if dice.random() < 0.1:
        packed[dice.randrange(len(packed))] = dice.randrange(256)
    return bytes(packed)


def _bare(event: Event) -> Event:
    return replace(event)


def _stated(part: Part, dice: Random) -> Part:
    """A statement as its transport text, signed again by its sender; or its mutant, unchanged."""
    text = as_text(part)
    if not isinstance(part, Object) or dice.random() < 0.1:
        return text
    with suppress(RemoteError):
        says = strict_json(utf8(as_text(part.put("sig", ""))), 1 << 20)
        assert isinstance(says, Mapping)
        signature = ed25519_sign(here().seed, handshake.CONTEXT + canonical_json(says))
        return canonical_json({**says, "sig": b64url(signature)}).decode()
    return text
