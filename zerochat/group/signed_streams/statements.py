"""What we say to a member about streams, with every `sync`: by what it hears ours, what of its own we have, and the
statements that it has not answered."""

from typing import Any

from msgspec.structs import replace

from zerochat.crypto.content_encryption import xc20p_seal
from zerochat.crypto.encoding import b64url, did_key_bytes
from zerochat.crypto.primitives import hkdf_sha256, sha256, x25519, x25519_public
from zerochat.evidence.handshake import Accept, Confirm, Request, SignedStatement
from zerochat.evidence.messages import acknowledgement, overwrite
from zerochat.group.effects import KeepStatement
from zerochat.group.key_modes.sender_key import KEY_BYTES
from zerochat.group.signed_streams import publisher
from zerochat.group.state import Asking, Stream, Subscriber
from zerochat.group.tlog import adoption
from zerochat.group.transaction import Turn

NO_RULES = b64url(sha256(b"zerochat/rules/none"))
"""Of a group without a ledger: nobody has agreed to be judged."""
NONCE_BYTES = 16


def told(turn: Turn, name: str, member: str) -> dict[str, Any]:
    """The fields of a `sync` to this member (`messages.SyncBody`)."""
    group = turn.group(name)
    say: list[str] = []
    fields: dict[str, Any] = {}
    if (hears := group.subscribers.get(member)) is not None:
        fields["by"], fields["signed"] = hears.digest, hears.acked
        say += [hears.accept] if hears.accept else []
    if (asking := group.asking.get(member)) is not None:
        say.append(asking.statement)
    if (stream := group.streams.get(member)) is not None:
        stream = replace(stream, ack=ack_of(turn, name, stream), confirm=False)
        ack = stream.ack
        if group.streams[member].confirm:
            say.append(_confirm(turn, name, member, stream))
            ack = stream.former or ack  # ours of what has come since then is said with the next word
        if ack:
            fields["ack"] = ack
        turn.edit(name, streams={**turn.group(name).streams, member: stream})
    if say:
        fields["say"] = say
    return fields


def ack_of(turn: Turn, name: str, stream: Stream) -> str:
    """Our signed acknowledgement of the last message that came; empty: there was none."""
    if stream.ack or not stream.time:
        return stream.ack
    seed = turn.group(name).seed
    return b64url(acknowledgement(seed, stream.alias, stream.time, stream.head, max(1, turn.now)).written())


def ask(turn: Turn, name: str, member: str) -> None:
    """Ask to hear a member's stream, from now on."""
    group = turn.group(name)
    nonce = b64url(turn.moment.random(NONCE_BYTES))
    wanted = Request(time=max(1, turn.now), topic=name, subscriber=group.me, publisher=member, nonce=nonce)
    wanted = wanted.signed(group.seed)
    asking = Asking(wanted.digest, wanted.written().decode(), turn.now)
    turn.edit(name, asking={**group.asking, member: asking})
    keep(turn, name, member, wanted)


def accept(turn: Turn, name: str, member: str, asked: Request) -> None:
    """Let a member hear our stream from where it stands."""
    stream, group = publisher.current(turn, name), turn.group(name)
    if (known := group.subscribers.get(member)) is not None:
        adoption.replaced(turn, name, member, known)
        group = turn.group(name)
    rules = adoption.rules_now(group)
    leads_there = ""
    if stream.head != stream.start:
        there = overwrite(group.seed, max(1, turn.now), did_key_bytes(member), stream.alias, stream.head, stream.start)
        leads_there = b64url(there.written())
    after = group.fresh[0].seq - 1 if group.fresh else group.seq  # what is fresh goes out at the end of this turn
    given = Accept(
        time=max(1, turn.now, stream.time),  # all that was said before has a `T` that is no greater
        request=asked.digest,
        publisher=group.me,
        subscriber=member,
        alias=b64url(stream.alias),
        start=b64url(stream.start),
        overwrite=leads_there,
        rules=rules or NO_RULES,
        after=after,
        key=b64url(seal_key(stream.chain, group.view.members[member].transport, turn.moment.random(KEY_BYTES))),
    ).signed(group.seed)
    begun = former = stream.time
    if known is not None:
        former = known.acked if known.acked > known.begun else known.former
    answer = given.written().decode()
    hears = Subscriber(asked.digest, given.digest, after, answer, begun, turn.now, rules, begun, former)
    turn.edit(name, subscribers={**group.subscribers, member: hears})
    keep(turn, name, member, asked)
    keep(turn, name, member, given)


def _confirm(turn: Turn, name: str, member: str, stream: Stream) -> str:
    """That we hear a member's stream, in the same words each time: else each would be one more to keep."""
    group = turn.group(name)
    at = max(1, stream.heard_at or stream.accepted_at)
    said = Confirm(time=at, accept=stream.accept, subscriber=group.me).signed(group.seed)
    keep(turn, name, member, said)
    return said.written().decode()


def keep(turn: Turn, name: str, member: str, said: SignedStatement) -> None:
    tag = type(said).__struct_config__.tag
    turn.say(KeepStatement(name, member, str(tag), said.digest, said.written(), turn.now))


# --- the key --------------------------------------------------------------------------------------------------------


def seal_key(chain: bytes, transport: bytes, once: bytes) -> bytes:
    """A key for the owner of an X25519 key alone, under one that was drawn for it: 80 bytes."""
    public = x25519_public(once)
    sealing = sealing_key(x25519(once, transport), public, transport)
    return public + b"".join(xc20p_seal(sealing, bytes(24), chain, b""))


def sealing_key(shared: bytes, public: bytes, transport: bytes) -> bytes:
    return hkdf_sha256(shared, b"zerochat/stream/1\nkey\n" + public + transport)
