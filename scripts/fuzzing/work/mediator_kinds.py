"""Messages of a mediator's user, and forwards to its mailboxes; the real mediator with its store."""

import tempfile
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from random import Random

from msgspec.structs import replace

from fuzzing.work.kinds import kind
from fuzzing.work.meters import Meter
from zerochat.agent.mediator.core import Mediator
from zerochat.agent.mediator.limits import INVITATION_USES
from zerochat.agent.mediator.sessions import Policy, Session
from zerochat.agent.mediator.store import Store
from zerochat.crypto.encoding import b64url
from zerochat.crypto.keys import SecretKey
from zerochat.didcomm.did import Identity, new_peer2, new_peer4, resolve
from zerochat.didcomm.jwe import JwePacker
from zerochat.didcomm.message import Message
from zerochat.didcomm.packer import TheirKey
from zerochat.didcomm.protocols import features, mediation, pickup, ping, routing, shared_mailbox, short_links
from zerochat.didcomm.protocols.mediation import UPDATES_MAX, Change
from zerochat.didcomm.protocols.pickup import RECEIVED_MAX
from zerochat.didcomm.protocols.shared_mailbox import SHARES_MAX
from zerochat.didcomm.protocols.short_links import ID_CHARS, IDS_MAX, SEALED_BYTES_MAX, Publication
from zerochat.group.inputs import Received

NOW = 1_800_000_000_000
STORED = 600
"""Messages that wait in the mailbox."""
ALLOWANCE_S = 2
"""What is left to the user at the start, in seconds of its rate: its costliest request takes that."""
WHOLE, POSTED = b"socket", b"post"
"""The connections of an envelope: a WebSocket that stays, and one for this envelope alone."""
_SECRET = bytes(range(32))
"""Of the group that shares a mailbox."""
_V2 = JwePacker()
_URI = "http://mediator.example:8080"


_random = Random("mediator").randbytes
IDENTITY = new_peer2(
    _random, [{"id": "#s", "type": "DIDCommMessaging", "serviceEndpoint": {"uri": _URI, "accept": ["didcomm/v2"]}}]
)
USER, MAILBOX = new_peer4(_random, []), new_peer4(_random, [])


@cache
def _stored() -> bytes:
    """The database of a mediator with this user, and with messages in its mailbox."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mediator.db"
        Store.create(path, bytes(32)).close()
        machine = MediatorMachine(Path(folder), path.read_bytes())
        speaker = MediatorSpeaker(machine, Random("stored"))
        granted = mediation.request(speaker.random, pthid="the-invitation")
        registered = mediation.update([Change(MAILBOX.did, "add")], speaker.random)
        stored = [speaker.forward(b"x" * 50) for _ in range(STORED)]
        machine.process([speaker.say(granted), speaker.say(registered), speaker.share([_SECRET]), *stored])
        machine.close()
        return path.read_bytes()


class MediatorMachine:
    """A mediator without sockets. Its user has used up its bursts before."""

    def __init__(self, folder: Path, stored: bytes = b"") -> None:
        path = folder / "mediator.db"
        path.write_bytes(stored or _stored())
        self.store = Store.open(path, bytes(32))
        self.store._db.pragma("synchronous", "OFF")  # how long the disk takes is not measured
        policy = Policy({"the-invitation": INVITATION_USES}, page="https://mediator.example/j")
        random = Random("later" if not stored else "before").randbytes  # no id comes twice
        self.mediator = Mediator(self.store, IDENTITY, policy=policy, uris=(_URI,), random=random)
        self.now, self.meter = NOW, Meter()
        self.meter.watch_database(self.store._db)
        if not stored:
            (work,) = [self.store.usage.work[number] for number in self.store.usage.recipients]
            work.allowance, work.at = ALLOWANCE_S * self.mediator.limits.requests_per_s, self.now // 1000
        self.dropped: Counter[str] = Counter()
        """What came of the envelopes."""
        self._session, self._handles = Session(1, True), 1

    def close(self) -> None:
        self.store.close()

    def process(self, inputs: Iterable[Received]) -> None:
        total = self.meter.total
        with self.meter.running():
            with self.store.transaction():
                outcomes = [self.mediator.receive(each.envelope, self._session_of(each), self.now) for each in inputs]
                dispatches = self.mediator.due(self.now)
            pushes = self.mediator.pushes(self.now // 1000)
            sent = [each.answer or b"" for each in outcomes] + [each.envelope for each in dispatches]
            total.sent += sum(map(len, [*sent, *(each.envelope for each in pushes)]))
            total.refused += sum(each.what in ("unreadable", "processed") for each in outcomes)
            self.dropped.update(each.what for each in outcomes)

    def advance(self, now: int) -> None:
        self.now = now

    def _session_of(self, received: Received) -> Session:
        if received.link == WHOLE:
            return self._session
        self._handles += 1
        return Session(self._handles, False)


class MediatorSpeaker:
    """A user of the mediator with one mailbox."""

    def __init__(self, machine: MediatorMachine, dice: Random) -> None:
        self.machine, self.dice, self.random = machine, dice, dice.randbytes
        self.links: list[str] = []

    def resume(self) -> None:
        """Nothing to remember between two batches."""

    def say(self, message: Message, link: bytes = POSTED) -> Received:
        plain = _V2.dump(replace(message, from_=USER.did, to=(IDENTITY.did,), return_route="all"))
        key = _V2.own_key(USER, USER.did)
        return Received(link, _V2.authcrypt(plain, sender=key, recipient=_key(IDENTITY.did), random=self.random))

    def forward(self, text: bytes, delay_milli: int | None = None, noise: int = 0) -> Received:
        """A sealed envelope to the mailbox."""
        letter = _V2.anoncrypt(b'{"x":"%s"}' % text, recipient=_key(MAILBOX.did), random=self.random)
        wrapped = routing.forward(
            letter, MAILBOX.short, to=IDENTITY.did, random=self.random, delay_milli=delay_milli, noise=noise
        )
        return Received(POSTED, _V2.anoncrypt(wrapped, recipient=_key(IDENTITY.did), random=self.random))

    def share(self, secrets: Iterable[bytes]) -> Received:
        """The mailbox gets what comes to the shared keys of these secrets."""
        seeds = [shared_mailbox.shared_seed(secret, IDENTITY.did) for secret in secrets]
        claims = [shared_mailbox.share(seed, MAILBOX.did, USER.did, IDENTITY.did) for seed in seeds]
        return self.say(shared_mailbox.keep(claims, self.random))

    def post(self, text: bytes) -> Received:
        """A sealed envelope to the shared mailbox."""
        seed = shared_mailbox.shared_seed(_SECRET, IDENTITY.did)
        key = shared_mailbox.key_of(seed)
        letter = _V2.anoncrypt(b'{"x":"%s"}' % text, recipient=_key(key), random=self.random)
        proof = shared_mailbox.sign_post(seed, letter)
        wrapped = routing.forward(letter, key, to=IDENTITY.did, random=self.random, shared=proof)
        return Received(POSTED, _V2.anoncrypt(wrapped, recipient=_key(IDENTITY.did), random=self.random))


def _key(did: str) -> TheirKey:
    return _V2.their_key(resolve(did), did)


@kind(mediation.request(bytes, version=mediation.VERSIONS[0]).type, "user")
def mediate_request(speaker: MediatorSpeaker, dice: Random) -> Received:
    version = dice.choice(mediation.VERSIONS)
    return speaker.say(mediation.request(speaker.random, pthid="the-invitation", version=version))


@kind(mediation.update([Change("x", "add")], bytes, version=mediation.VERSIONS[0]).type, "user")
def mediate_update(speaker: MediatorSpeaker, dice: Random) -> Received:
    """New DIDs with and without proofs, and the removal of what may be there."""
    dids: list[Identity] = [new_peer4(speaker.random, []) for _ in range(dice.choice((1, UPDATES_MAX)))]
    message = mediation.update(
        [Change(each.did, "add") for each in dids], speaker.random, version=dice.choice(mediation.VERSIONS)
    )
    if dice.random() < 0.6:
        keys = {each.did: SecretKey("Ed25519", each.signing_seed) for each in dids}
        addressed = replace(message, from_=USER.did, to=(IDENTITY.did,))
        message = mediation.with_proofs(addressed, keys)
    return speaker.say(message)


@kind(mediation.query(bytes, version=mediation.VERSIONS[0]).type, "user")
def mediate_query(speaker: MediatorSpeaker, dice: Random) -> Received:
    page = mediation.Page(dice.choice((0, 2**30)), mediation.PAGE_MAX)
    return speaker.say(mediation.query(speaker.random, page, version=dice.choice(mediation.VERSIONS)))


@kind(pickup.status_request(bytes).type, "user")
def pickup_status(speaker: MediatorSpeaker, dice: Random) -> Received:
    did, version = dice.choice((None, MAILBOX.did)), dice.choice(pickup.VERSIONS)
    return speaker.say(pickup.status_request(speaker.random, did, version=version))


@kind(pickup.delivery_request(bytes).type, "user")
def pickup_delivery(speaker: MediatorSpeaker, dice: Random) -> Received:
    did = dice.choice((None, MAILBOX.did))
    limit, version = dice.choice((1, pickup.DELIVERY_MAX)), dice.choice(pickup.VERSIONS)
    request = pickup.delivery_request(speaker.random, limit, did, version=version)
    return speaker.say(request, dice.choice((WHOLE, POSTED)))


@kind(pickup.list_request([], bytes).type, "user")
def pickup_list(speaker: MediatorSpeaker, dice: Random) -> Received:
    ids = [b64url(speaker.random(16)) for _ in range(dice.choice((1, pickup.DELIVERY_MAX)))]
    return speaker.say(pickup.list_request(ids, speaker.random))


@kind(pickup.noop(bytes).type, "user")
def pickup_noop(speaker: MediatorSpeaker, dice: Random) -> Received:
    return speaker.say(pickup.noop(speaker.random))


@kind(pickup.messages_received(["x"], bytes).type, "user")
def pickup_received(speaker: MediatorSpeaker, dice: Random) -> Received:
    ids = [b64url(speaker.random(16)) for _ in range(dice.choice((1, RECEIVED_MAX)))]
    return speaker.say(pickup.messages_received(ids, speaker.random, version=dice.choice(pickup.VERSIONS[1:])))


@kind(pickup.live_delivery_change(True, bytes).type, "user")
def pickup_live(speaker: MediatorSpeaker, dice: Random) -> Received:
    live = speaker.dice.random() < 0.6
    change = pickup.live_delivery_change(live, speaker.random, version=dice.choice(pickup.VERSIONS[1:]))
    return speaker.say(change, dice.choice((WHOLE, POSTED)))


@kind(short_links.publish(Publication("x", b"", 0), bytes).type, "user")
def link_publish(speaker: MediatorSpeaker, dice: Random) -> Received:
    """A new link, or a longer one in its place."""
    if len(speaker.links) < 40:
        speaker.links.append(b64url(speaker.random(ID_CHARS))[:ID_CHARS])
    sealed = speaker.random(dice.choice((10, SEALED_BYTES_MAX)))
    return speaker.say(
        short_links.publish(
            Publication(speaker.dice.choice(speaker.links), sealed, NOW // 1000 + 3_600), speaker.random
        )
    )


@kind(short_links.keep([], bytes).type, "user")
def link_keep(speaker: MediatorSpeaker, dice: Random) -> Received:
    unknown = [b64url(speaker.random(ID_CHARS))[:ID_CHARS] for _ in range(dice.choice((0, IDS_MAX)))]
    return speaker.say(short_links.keep(unknown, speaker.random))


@kind(shared_mailbox.keep([], bytes).type, "user")
def keep_shares(speaker: MediatorSpeaker, dice: Random) -> Received:
    """One share, which posts go to, or as many as a recipient may have."""
    more = [speaker.random(32) for _ in range(dice.choice((0, SHARES_MAX - 1)))]
    return speaker.share([_SECRET, *more])


@kind(ping.PING, "user", "mediator ping")
def mediator_ping(speaker: MediatorSpeaker, dice: Random) -> Received:
    return speaker.say(ping.ping(speaker.random))


@kind(features.QUERIES, "user", "mediator features")
def mediator_features(speaker: MediatorSpeaker, dice: Random) -> Received:
    return speaker.say(features.queries(speaker.random))


@kind("https://example.org/unknown/1.0/x", "user", "mediator unknown")
def mediator_unknown(speaker: MediatorSpeaker, dice: Random) -> Received:
    return speaker.say(Message("https://example.org/unknown/1.0/x", b64url(speaker.random(12))))


@kind(routing.FORWARD, "sender")
def forwards(speaker: MediatorSpeaker, dice: Random) -> Received:
    """Envelopes to a mailbox: small, large, delayed, or with noise."""
    delay_milli, noise = dice.choice(((None, 0), (5_000, 0), (None, 10_000)))
    return speaker.forward(b"x" * dice.choice((1, 1_000, 100_000)), delay_milli, noise)


@kind(routing.FORWARD, "sender", "shared posts")
def shared_posts(speaker: MediatorSpeaker, dice: Random) -> Received:
    return speaker.post(b"x" * dice.choice((1, 1_000, 100_000)))


@kind("", "sender", "mediator garbage")
def mediator_garbage(speaker: MediatorSpeaker, dice: Random) -> Received:
    return Received(POSTED, speaker.random(dice.choice((10, 1_000, 100_000))))
