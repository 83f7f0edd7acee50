"""Attacks with signatures and keys in groups whose keys sign (see `attacks.py`)."""

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import ed25519_public
from zerochat.evidence.handshake import Accept, Confirm, Request
from zerochat.evidence.messages import Data, data, sign_ack
from zerochat.group.event_log.event import POST
from zerochat.group.key_modes.sender_key import associated_data, ratchet, seal_content, wrap_key
from zerochat.group.signed_streams.statements import NO_RULES, seal_key
from zerochat.group.state import Group
from zerochat.group.wire.frame import seal_frame
from zerochat.group.wire.messages import SYNC
from zerochat.sim.adversary import Adversary
from zerochat.sim.forgeries import AttackResult, active_group, sample_victims, sync_body


def signing_group(adversary: Adversary) -> Group | None:
    """Our group if its keys sign and we have a stream."""
    group = active_group(adversary)
    return group if group is not None and group.mode.signs and group.streams.own is not None else None


def signed_garbage(adversary: Adversary) -> AttackResult | None:
    """Sign undecryptable data, invalid JSON, an unknown predecessor, and two messages at one time."""
    group, victims = signing_group(adversary), sample_victims(adversary)
    if group is None or group.streams.own is None or not victims:
        return None
    own = group.streams.own
    key, _ = ratchet(own.chain)
    time = max(1, adversary.world.now, own.time + 1)
    bare = Data(time, ed25519_public(group.seed), own.alias, b"", own.head)
    for name in victims:
        sealed = adversary.rng.choice(
            (
                adversary.rng.randbytes(300),
                b"\x01" + adversary.rng.randbytes(300),
                b"\x02" + adversary.rng.randbytes(300),
                seal_content(key, {"runs": "none"}, associated_data(bare)),
                seal_content(key, {"runs": [], "view": "", "have": []}, associated_data(bare)),
            )
        )
        before = adversary.rng.choice((own.head, own.start, adversary.rng.randbytes(64)))
        adversary.deliver(name, data(group.seed, time, own.alias, sealed, before).serialize())
    return AttackResult()


def selective_key(adversary: Adversary) -> AttackResult | None:
    """Send a new key to some members only: the others must notice that they cannot read us."""
    group, victims = signing_group(adversary), sample_victims(adversary)
    if group is None or group.streams.own is None or not victims:
        return None
    known = [adversary.known[adversary.members()[name]][1] for name in victims]
    own = group.streams.own
    frame = seal_frame(adversary.rng.randbytes(32), group.id, group.me, known, adversary.context())
    time = max(1, adversary.world.now, own.time + 1)
    message = data(group.seed, time, own.alias, wrap_key(frame), own.head)
    for name in adversary.victims():
        adversary.deliver(name, message.serialize())
    return AttackResult()


def false_statements(adversary: Adversary) -> AttackResult | None:
    """Claim requests, answers and confirmations that never happened; offer an invalid stream."""
    group, victims = signing_group(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    for name in victims:
        member, now = adversary.members()[name], max(1, adversary.world.now)
        if member not in group.view.members:
            continue  # removed, as we know; others do not yet
        asked = group.streams.requests.get(member)
        random = adversary.rng.randbytes
        given = Accept(
            time=now,
            request=asked.digest if asked is not None else b64url(random(32)),
            publisher=group.me,
            subscriber=member,
            alias=b64url(random(adversary.rng.choice((16, 3)))),
            start=b64url(random(64)),
            rules=adversary.rng.choice((NO_RULES, b64url(random(32)))),
            after=adversary.rng.choice((0, 2**53 - 1)),
            key=b64url(seal_key(random(32), group.view.members[member].transport, random(32))),
        )
        ask = Request(time=now, topic=group.id, subscriber=group.me, publisher=member, nonce=b64url(random(16)))
        read = Confirm(time=now, accept=b64url(random(32)), subscriber=group.me)
        of_others = with_author(ask, member)
        statements = [
            statement.signed(group.seed) for statement in adversary.rng.sample([given, ask, read, of_others], 3)
        ]
        written = [statement.serialize().decode() for statement in statements]
        adversary.send_message(
            name,
            SYNC,
            sync_body(adversary, group, statements=written, subscription=adversary.rng.choice(("", given.digest))),
        )
    return AttackResult()


def with_author(ask: Request, member: str) -> Request:
    """The request with another author."""
    return Request(time=ask.time, topic=ask.topic, subscriber=member, publisher=ask.subscriber, nonce=ask.nonce)


def false_signatures(adversary: Adversary) -> AttackResult | None:
    """Acknowledge messages that do not exist, with wrong times, or with another key."""
    group, victims = signing_group(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    for name in victims:
        member = adversary.members()[name]
        stream = group.streams.followed.get(member)
        alias = stream.alias if stream is not None else adversary.rng.randbytes(16)
        time = adversary.rng.choice(
            (1, adversary.world.now + 10**9, stream.time if stream is not None and stream.time else 5)
        )
        at = adversary.rng.choice((adversary.world.now, adversary.world.now + 10**10, 1))
        seed = adversary.rng.choice((group.seed, adversary.rng.randbytes(32)))
        said = sign_ack(seed, alias, time, adversary.rng.randbytes(64), at)
        adversary.send_message(
            name,
            SYNC,
            sync_body(
                adversary, group, signed_ack=b64url(said.serialize()), signed_upto=adversary.rng.choice((0, 2**53 - 1))
            ),
        )
    return AttackResult()


def stolen_messages(adversary: Adversary) -> AttackResult | None:
    """Relay a message signed by another member as ours, and sign its content ourselves."""
    group, victims = signing_group(adversary), sample_victims(adversary)
    kept = [message for message in adversary.node.signed if group is not None and message.author != group.me]
    if group is None or not kept or not victims:
        return None
    for name in victims:
        stolen = adversary.rng.choice(kept)
        adversary.deliver(name, stolen.message)
        sealed = stolen.message[56:-128]
        adversary.deliver(name, data(group.seed, stolen.time, stolen.alias, sealed, stolen.before).serialize())
    return AttackResult()


def unsigned_posts(adversary: Adversary) -> AttackResult | None:
    """Send an unsigned post where everything is signed."""
    group, victims = signing_group(adversary), sample_victims(adversary)
    if group is None or not victims:
        return None
    said = adversary.event(POST, {"text": "I never said that"})
    for name in victims:
        adversary.send_events_unsigned(name, said)
    return AttackResult((said.id,))


EVIDENCE_ATTACKS = [signed_garbage, selective_key, false_statements, false_signatures, stolen_messages, unsigned_posts]
