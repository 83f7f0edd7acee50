"""What an adversary does with signatures and keys, in a group whose keys sign. Each is an attack as in `attacks.py`."""

from zerochat.crypto.encoding import b64url
from zerochat.crypto.primitives import ed25519_public
from zerochat.evidence.handshake import Accept, Confirm, Request
from zerochat.evidence.messages import Data, acknowledgement, data
from zerochat.group.event_log.event import POST
from zerochat.group.key_modes.sender_key import bound_of, moved_on, seal_content, wrap_key
from zerochat.group.signed_streams.statements import NO_RULES, seal_key
from zerochat.group.state import Group
from zerochat.group.wire.frame import seal_frame
from zerochat.group.wire.messages import SYNC
from zerochat.sim.adversary import Adversary
from zerochat.sim.forgeries import Spoils, inside, some, sync_of


def signing(one: Adversary) -> Group | None:
    """Our group, if its keys sign and we have said anything in it."""
    group = inside(one)
    return group if group is not None and group.mode.signs and group.stream is not None else None


def signed_junk(one: Adversary) -> Spoils | None:
    """Sign what opens under no key, what is no JSON, what names a message that never was, and two at one time."""
    group, victims = signing(one), some(one)
    if group is None or group.stream is None or not victims:
        return None
    own = group.stream
    key, _ = moved_on(own.chain)
    time = max(1, one.world.now, own.time + 1)
    bare = Data(time, ed25519_public(group.seed), own.alias, b"", own.head)
    for name in victims:
        sealed = one.dice.choice(
            (
                one.dice.randbytes(300),
                b"\x01" + one.dice.randbytes(300),
                b"\x02" + one.dice.randbytes(300),
                seal_content(key, {"runs": "none"}, bound_of(bare)),
                seal_content(key, {"runs": [], "view": "", "have": []}, bound_of(bare)),
            )
        )
        before = one.dice.choice((own.head, own.start, one.dice.randbytes(64)))
        one.deliver(name, data(group.seed, time, own.alias, sealed, before).written())
    return Spoils()


def key_for_some(one: Adversary) -> Spoils | None:
    """Give a new key to some only, and go on under it: the others have to notice that they hear nothing."""
    group, victims = signing(one), some(one)
    if group is None or group.stream is None or not victims:
        return None
    known = [one.known[one.members()[name]][1] for name in victims]
    own = group.stream
    frame = seal_frame(one.dice.randbytes(32), group.id, group.me, known, one.moment())
    time = max(1, one.world.now, own.time + 1)
    message = data(group.seed, time, own.alias, wrap_key(frame), own.head)
    for name in one.victims():
        one.deliver(name, message.written())
    return Spoils()


def false_statements(one: Adversary) -> Spoils | None:
    """Say that somebody has asked for, was given, or has read what it has not; give a stream that is none."""
    group, victims = signing(one), some(one)
    if group is None or not victims:
        return None
    for name in victims:
        member, now = one.members()[name], max(1, one.world.now)
        if member not in group.view.members:
            continue  # we have heard that it is out, and others have not yet
        asked = group.asking.get(member)
        random = one.dice.randbytes
        given = Accept(
            time=now,
            request=asked.digest if asked is not None else b64url(random(32)),
            publisher=group.me,
            subscriber=member,
            alias=b64url(random(one.dice.choice((16, 3)))),
            start=b64url(random(64)),
            rules=one.dice.choice((NO_RULES, b64url(random(32)))),
            after=one.dice.choice((0, 2**53 - 1)),
            key=b64url(seal_key(random(32), group.view.members[member].transport, random(32))),
        )
        ask = Request(time=now, topic=group.id, subscriber=group.me, publisher=member, nonce=b64url(random(16)))
        read = Confirm(time=now, accept=b64url(random(32)), subscriber=group.me)
        of_others = replace_author(ask, member)
        statements = [one.signed(group.seed) for one in one.dice.sample([given, ask, read, of_others], 3)]
        say = [statement.written().decode() for statement in statements]
        one.utter(name, SYNC, sync_of(one, group, say=say, by=one.dice.choice(("", given.digest))))
    return Spoils()


def replace_author(ask: Request, member: str) -> Request:
    """The same request as if somebody else had made it."""
    return Request(time=ask.time, topic=ask.topic, subscriber=member, publisher=ask.subscriber, nonce=ask.nonce)


def false_signatures(one: Adversary) -> Spoils | None:
    """Acknowledge what was never said, or in a year, or with somebody else's key; or take back what was signed."""
    group, victims = signing(one), some(one)
    if group is None or not victims:
        return None
    for name in victims:
        member = one.members()[name]
        stream = group.streams.get(member)
        alias = stream.alias if stream is not None else one.dice.randbytes(16)
        time = one.dice.choice((1, one.world.now + 10**9, stream.time if stream is not None and stream.time else 5))
        at = one.dice.choice((one.world.now, one.world.now + 10**10, 1))
        seed = one.dice.choice((group.seed, one.dice.randbytes(32)))
        said = acknowledgement(seed, alias, time, one.dice.randbytes(64), at)
        one.utter(name, SYNC, sync_of(one, group, ack=b64url(said.written()), signed=one.dice.choice((0, 2**53 - 1))))
    return Spoils()


def stolen_words(one: Adversary) -> Spoils | None:
    """Hand on what another member has signed as if it was ours, and sign it ourselves."""
    group, victims = signing(one), some(one)
    kept = [message for message in one.node.signed if group is not None and message.author != group.me]
    if group is None or not kept or not victims:
        return None
    for name in victims:
        stolen = one.dice.choice(kept)
        one.deliver(name, stolen.message)
        sealed = stolen.message[56:-128]
        one.deliver(name, data(group.seed, stolen.time, stolen.alias, sealed, stolen.before).written())
    return Spoils()


def unsigned_words(one: Adversary) -> Spoils | None:
    """Say something without a signature, where everything that is said has one."""
    group, victims = signing(one), some(one)
    if group is None or not victims:
        return None
    said = one.event(POST, {"text": "I never said that"})
    for name in victims:
        one.tell_unsigned(name, said)
    return Spoils((said.id,))


PERJURIES = [signed_junk, key_for_some, false_statements, false_signatures, stolen_words, unsigned_words]
